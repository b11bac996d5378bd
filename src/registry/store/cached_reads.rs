//! Reads that the watch cache answers: what this server has seen of other servers' writes, and
//! every write of its own.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cacher::Snapshot;
use crate::meta::status::Result;
use crate::storage::Stored;

use super::Store;

/// The keys that existed at one moment.
pub enum StoredKeys {
    Cached(Snapshot),
    Listed(BTreeSet<String>),
}

impl StoredKeys {
    pub fn has(&self, key: &str) -> bool {
        match self {
            Self::Cached(snapshot) => snapshot.get(key).is_some(),
            Self::Listed(keys) => keys.contains(key),
        }
    }
}

impl Store {
    /// One object as far as this server knows: every write of its own is seen, those of other
    /// servers soon. `None` where there is no such object.
    pub async fn cached_get_stored(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<Stored>>> {
        let key = self.key(namespace, name)?;
        if let Some(cacher) = &self.cacher
            && let Some(snapshot) = cacher.read_your_writes().await
            && let Some(stored) = snapshot.get(&key)
        {
            return Ok(Some(stored.clone()));
        }
        // What is not known here may be new.
        let stored = self
            .storage
            .get(&key)
            .await
            .map_err(|error| self.fault(error, "get"))?;
        Ok(stored.map(Arc::new))
    }

    /// One object as the cache knows it, like [`Store::cached_get_stored`], but without a look into
    /// storage where it does not. `None` also where there is no cache, or none that is filled.
    pub async fn cache_lookup(&self, namespace: &str, name: &str) -> Option<Arc<Stored>> {
        let snapshot = self.cacher.as_ref()?.read_your_writes().await?;
        snapshot.get(&self.key(namespace, name).ok()?).cloned()
    }

    /// The objects of a namespace (of all where it is empty) as far as this server knows, like
    /// [`Store::cached_get_stored`].
    pub async fn cached_list_stored(&self, namespace: &str) -> Result<Vec<Arc<Stored>>> {
        let known = match &self.cacher {
            Some(cacher) => cacher.read_your_writes().await,
            None => None,
        };
        match known {
            Some(snapshot) => Ok(snapshot
                .range(&self.namespace_prefix(namespace), "")
                .cloned()
                .collect()),
            None => self.all_stored(namespace).await?.items.collect(),
        }
    }

    /// The keys of all objects as far as this server knows, like [`Store::cached_get_stored`].
    pub async fn cached_keys(&self) -> Result<StoredKeys> {
        let known = match &self.cacher {
            Some(cacher) => cacher.read_your_writes().await,
            None => None,
        };
        match known {
            Some(snapshot) => Ok(StoredKeys::Cached(snapshot)),
            None => {
                let items = self.all_stored("").await?.items;
                items
                    .map(|stored| Ok(stored?.key.clone()))
                    .collect::<Result<_>>()
                    .map(StoredKeys::Listed)
            }
        }
    }
}
