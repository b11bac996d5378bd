//! Reads from the watch cache, which has every write of this server and, soon, those of others.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::base::coop::CoopBudget;
use crate::cacher::{CachedObject, Snapshot};
use crate::meta::Object;
use crate::meta::selector::labels::LabelSelector;
use crate::meta::status::Result;
use crate::storage::ListRequest;

use super::{Selection, Store};

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

/// The objects of a resource in figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    pub objects: i64,
    /// The length of all values; `None` if nobody has them all.
    pub bytes: Option<i64>,
}

impl Store {
    /// Counts an event of an object that was there before a watch.
    pub fn count_initial_event(&self) {
        if let Some(metrics) = self.cacher.as_ref().and_then(|cacher| cacher.metrics()) {
            metrics.initial_event();
        }
    }

    /// Returns the number and size of the objects, as far as this server knows them; their number
    /// from storage if there is no cache.
    ///
    /// # Errors
    /// Those of storage.
    pub async fn stats(&self) -> Result<Stats> {
        if let Some(snapshot) = self.cacher.as_ref().and_then(|cacher| cacher.snapshot()) {
            return Ok(Stats {
                objects: i64::try_from(snapshot.len()).unwrap_or(i64::MAX),
                bytes: Some(i64::try_from(snapshot.bytes()).unwrap_or(i64::MAX)),
            });
        }
        let first = ListRequest {
            prefix: self.prefix(),
            limit: 1,
            ..ListRequest::default()
        };
        let page = self.storage.list(first).await;
        let objects = page.map_err(|error| self.fault(error, "list"))?.count;
        Ok(Stats {
            objects,
            bytes: (objects == 0).then_some(0),
        })
    }

    /// Returns one object, from storage if the cache does not have it: it may be new. `None` if
    /// neither has it.
    ///
    /// # Errors
    /// Those of [`Store::key`] and of storage.
    pub async fn cached_get_stored(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<CachedObject>>> {
        let key = self.key(namespace, name)?;
        if let Some(snapshot) = self.read_your_writes().await
            && let Some(stored) = snapshot.get(&key)
        {
            return Ok(Some(stored.clone()));
        }
        let stored = self
            .storage
            .get(&key)
            .await
            .map_err(|error| self.fault(error, "get"))?;
        Ok(stored.map(Arc::from))
    }

    /// Returns one object of the cache; `None` also if there is no cache, or none that is filled.
    pub async fn cache_lookup(&self, namespace: &str, name: &str) -> Option<Arc<CachedObject>> {
        let snapshot = self.read_your_writes().await?;
        snapshot.get(&self.key(namespace, name).ok()?).cloned()
    }

    /// Returns the objects of a namespace, or all if it is empty; from storage if there is no
    /// cache.
    ///
    /// # Errors
    /// Those of storage.
    pub async fn cached_list_stored(&self, namespace: &str) -> Result<Vec<Arc<CachedObject>>> {
        match self.read_your_writes().await {
            Some(snapshot) => Ok(snapshot
                .range(&self.namespace_prefix(namespace), "")
                .cloned()
                .collect()),
            None => self.all_stored(namespace).await?.items.collect(),
        }
    }

    /// Returns one object of the cache; from storage if there is no cache.
    ///
    /// # Errors
    /// Those of [`Store::key`] and of storage.
    pub async fn cached_find_stored(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<CachedObject>>> {
        let key = self.key(namespace, name)?;
        match self.read_your_writes().await {
            Some(snapshot) => Ok(snapshot.get(&key).cloned()),
            None => self.cached_get_stored(namespace, name).await,
        }
    }

    /// Returns the objects of a namespace, or all if it is empty, with labels that a selector
    /// takes; from storage if there is no cache.
    ///
    /// # Errors
    /// Those of storage.
    pub async fn cached_select_stored(
        &self,
        namespace: &str,
        selector: &LabelSelector,
    ) -> Result<Vec<Arc<CachedObject>>> {
        let selection = Selection {
            labels: selector.clone(),
            ..Selection::default()
        };
        let (mut selected, mut budget) = (Vec::new(), CoopBudget::default());
        for stored in self.cached_list_stored(namespace).await? {
            match self.selects(&selection, &stored) {
                Ok(true) => selected.push(stored),
                Ok(false) => {}
                Err(why) => self.skip(&stored, &why),
            }
            budget.step().await;
        }
        Ok(selected)
    }

    /// Returns the keys of all objects, from storage if there is no cache.
    ///
    /// # Errors
    /// Those of storage.
    pub async fn cached_keys(&self) -> Result<StoredKeys> {
        match self.read_your_writes().await {
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

    /// Returns one object as a tree, like [`Store::cached_get_stored`].
    ///
    /// # Errors
    /// 500 where storage fails or the object cannot be decoded.
    pub async fn cached_get(&self, namespace: &str, name: &str) -> Result<Option<Object>> {
        self.cached_get_stored(namespace, name)
            .await?
            .map(|stored| self.codec.decode(&stored))
            .transpose()
    }

    /// The objects of a namespace (of all where it is empty) as trees, like
    /// [`Store::cached_list_stored`], without those that cannot be read.
    ///
    /// # Errors
    /// 500 where storage fails.
    pub async fn cached_list(&self, namespace: &str) -> Result<Vec<Object>> {
        let known = self.cached_list_stored(namespace).await?;
        Ok(self.readable(
            known
                .into_iter()
                .map(|stored| (stored.clone(), self.codec.decode(&stored))),
        ))
    }

    async fn read_your_writes(&self) -> Option<Snapshot> {
        self.cacher.as_ref()?.read_your_writes().await
    }
}
