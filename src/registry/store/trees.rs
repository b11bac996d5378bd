//! Trees of stored objects that are asked for again and again, such as namespaces by admission, in bounded memory.

use std::sync::Arc;

use moka::sync::Cache;

use crate::meta::Object;
use crate::meta::options::ListOptions;
use crate::meta::status::Result;
use crate::storage::{Revision, Stored};

use super::Store;

/// Bytes of stored objects whose trees are kept; the trees themselves take some times as much.
const MAX_BYTES: u64 = 1 << 20;

/// Trees by the keys of their objects, each with the revision that it was made of.
#[derive(Clone, Debug)]
pub struct Trees(Cache<String, (Revision, Arc<Object>)>);

impl Default for Trees {
    fn default() -> Self {
        Self(Cache::builder().weigher(|_, (_, object): &(_, Arc<Object>)| weight(object)).max_capacity(MAX_BYTES).build())
    }
}

/// About as many bytes as the object has.
fn weight(object: &Object) -> u32 {
    fn of(value: &crate::meta::Value) -> usize {
        use crate::meta::Value;
        match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(of).sum::<usize>() + 8,
            Value::Object(map) => map.iter().map(|(key, value)| key.len() + of(value)).sum::<usize>() + 8,
            _ => 8,
        }
    }
    u32::try_from(object.values().map(of).sum::<usize>()).unwrap_or(u32::MAX)
}

impl Trees {
    /// The tree of a stored object of `store`.
    ///
    /// # Errors
    /// What is stored is no object.
    pub fn of(&self, store: &Store, stored: &Stored) -> Result<Arc<Object>> {
        // The versions of a custom kind have one key and several trees.
        if store.resource.custom.is_some() {
            return store.decode(stored).map(Arc::new);
        }
        if let Some((_, object)) = self.0.get(&stored.key).filter(|(revision, _)| *revision == stored.mod_revision) {
            return Ok(object);
        }
        let object = Arc::new(store.decode(stored)?);
        self.0.insert(stored.key.clone(), (stored.mod_revision, object.clone()));
        Ok(object)
    }
}

impl Store {
    /// One object as far as this server knows: every write of its own is seen, those of other servers soon. `None` where there is
    /// no such object.
    pub async fn find_stored(&self, namespace: &str, name: &str) -> Result<Option<Arc<Stored>>> {
        let key = self.key(namespace, name)?;
        if let Some(cacher) = &self.cacher
            && let Some(snapshot) = cacher.known().await
            && let Some(stored) = snapshot.get(&key)
        {
            return Ok(Some(stored.clone()));
        }
        // What is not known here may be new.
        let stored = self.storage.get(&key).await.map_err(|error| self.fault(error, "get"))?;
        Ok(stored.map(Arc::new))
    }

    /// The objects of a namespace (of all where it is empty) as far as this server knows, like [`Store::find_stored`].
    pub async fn known_stored(&self, namespace: &str) -> Result<Vec<Arc<Stored>>> {
        let known = match &self.cacher {
            Some(cacher) => cacher.known().await,
            None => None,
        };
        match known {
            Some(snapshot) => Ok(snapshot.range(&self.namespace_prefix(namespace), "").cloned().collect()),
            None => self.list(namespace, &ListOptions::default()).await?.items.collect(),
        }
    }
}
