//! Trees of stored objects that are asked for again and again, in bounded memory: those that
//! admission reads, and what the last write of an object left as it was.

use std::collections::BTreeSet;
use std::sync::Arc;

use moka::sync::Cache;

use crate::cacher::{CachedObject, Snapshot};
use crate::codec::protobuf::{self, Projection};
use crate::meta::status::Result;
use crate::meta::{Key, Map, Object, Value};
use crate::storage::{Revision, Stored};

use super::{Store, unreadable};

/// Bytes of stored objects of which trees are kept; the trees themselves take some times as much.
const MAX_BYTES: u64 = 2 << 20;

/// Trees by the keys of their objects.
#[derive(Clone, Debug)]
pub struct Trees(Cache<String, Known>);

/// An entry of the cache: an object as it was stored at a revision.
#[derive(Clone, Debug)]
struct Known {
    revision: Revision,
    bytes: u32,
    tree: Tree,
}

#[derive(Clone, Debug)]
enum Tree {
    Whole(Object),
    /// Some of the sections of the object, with their defaults.
    Sections(Map),
}

impl Default for Trees {
    fn default() -> Self {
        Self(
            Cache::builder()
                .weigher(|_, known: &Known| known.bytes)
                .max_capacity(MAX_BYTES)
                .build(),
        )
    }
}

impl Trees {
    fn get(&self, stored: &Stored) -> Option<Tree> {
        self.0
            .get(&stored.key)
            .filter(|known| known.revision == stored.mod_revision)
            .map(|known| known.tree)
    }

    fn keep(&self, stored: &Stored, tree: Tree) {
        let bytes = u32::try_from(stored.value.len()).unwrap_or(u32::MAX);
        self.0.insert(
            stored.key.clone(),
            Known {
                revision: stored.mod_revision,
                bytes,
                tree,
            },
        );
    }
}

/// The keys that existed at one moment.
pub enum KnownKeys {
    Cached(Snapshot),
    Listed(BTreeSet<String>),
}

impl KnownKeys {
    pub fn has(&self, key: &str) -> bool {
        match self {
            Self::Cached(snapshot) => snapshot.get(key).is_some(),
            Self::Listed(keys) => keys.contains(key),
        }
    }
}

impl Store {
    /// A stored object as a tree of the storage version with all defaults. Its sections are shared
    /// ([`Map::share`]), so that those that a write leaves alone are known as what they are:
    /// complete.
    pub(super) fn tree(&self, stored: &Stored) -> Result<Object> {
        let mut object = match self.trees_of(stored).and_then(|trees| trees.get(stored)) {
            Some(Tree::Whole(object)) => return Ok(object),
            Some(Tree::Sections(sections)) => self.decode_around(stored, &sections)?,
            None => self.decode(stored)?,
        };
        if self.resource.custom.is_none() {
            self.resource.strategy.default(&mut object);
        }
        if self.resource.custom.is_none() && self.resource.conversion.is_none() {
            object
                .values_mut()
                .filter_map(Value::as_object_mut)
                .for_each(Map::share);
            object.share();
        }
        Ok(object)
    }

    /// Like [`Store::tree`], for an object that is often asked for.
    ///
    /// # Errors
    /// 500 for stored bytes that cannot be decoded.
    pub fn kept_tree(&self, stored: &Stored) -> Result<Object> {
        let Some(trees) = self.trees_of(stored) else {
            return self.tree(stored);
        };
        if let Some(Tree::Whole(object)) = trees.get(stored) {
            return Ok(object);
        }
        let object = self.tree(stored)?;
        trees.keep(stored, Tree::Whole(object.clone()));
        Ok(object)
    }

    /// Takes note of what a write of `new` over `old` left as it was. `stored` is what it wrote.
    pub(super) fn keep_sections(&self, old: &Object, new: &Object, stored: &Stored) {
        let Some(trees) = self.trees_of(stored) else {
            return;
        };
        let is_kept = |(key, value): &(&Key, &Value)| {
            let before = old.get(key.as_str()).and_then(Value::as_object);
            before
                .zip(value.as_object())
                .is_some_and(|(before, now)| now.is_copy_of(before))
        };
        let sections: Map = new
            .iter()
            .filter(is_kept)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if !sections.is_empty() {
            trees.keep(stored, Tree::Sections(sections));
        }
    }

    /// Returns the cache for trees of the object. Resources with several versions have none: they
    /// share a key.
    fn trees_of(&self, stored: &Stored) -> Option<&Trees> {
        let resource = &self.resource;
        let one_version = resource.custom.is_none()
            && resource.conversion.is_none()
            && resource.gvk == resource.storage_gvk;
        (one_version && stored.mod_revision > 0 && stored.value.starts_with(protobuf::MAGIC))
            .then_some(&self.trees)
    }

    /// Decodes a stored object but for the sections that are known.
    fn decode_around(&self, stored: &Stored, sections: &Map) -> Result<Object> {
        let Some(message) = self.message(stored)? else {
            return self.decode(stored);
        };
        let fields = &message.ty.get().fields;
        let names = fields
            .iter()
            .map(|field| field.json.as_str())
            .filter(|name| !sections.contains_key(name));
        let part = Projection::new(message.ty, names);
        let mut decoded =
            protobuf::decode_part(message.bytes, message.ty, &part).map_err(unreadable)?;
        let mut object = Object(Map::with_capacity(fields.len() + 2));
        for field in fields {
            if let Some(value) = sections
                .get(&field.json)
                .cloned()
                .or_else(|| decoded.shift_remove(&field.json))
            {
                object.insert(&field.json, value);
            }
        }
        self.name_kind(&mut object);
        object.set_resource_version(&stored.mod_revision.to_string());
        Ok(object)
    }

    /// One object as far as this server knows: every write of its own is seen, those of other
    /// servers soon. `None` where there is no such object.
    ///
    /// # Errors
    /// The store's.
    pub async fn find_stored(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<CachedObject>>> {
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
        Ok(stored.map(Arc::from))
    }

    /// One object as the cache knows it, like [`Store::find_stored`], but without a look into
    /// storage where it does not. `None` also where there is no cache, or none that is filled.
    pub async fn cached_stored(&self, namespace: &str, name: &str) -> Option<Arc<CachedObject>> {
        let snapshot = self.cacher.as_ref()?.read_your_writes().await?;
        snapshot.get(&self.key(namespace, name).ok()?).cloned()
    }

    /// The objects of a namespace (of all where it is empty) as far as this server knows, like
    /// [`Store::find_stored`].
    ///
    /// # Errors
    /// The store's.
    pub async fn known_stored(&self, namespace: &str) -> Result<Vec<Arc<CachedObject>>> {
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

    /// The keys of all objects as far as this server knows, like [`Store::find_stored`].
    ///
    /// # Errors
    /// The store's.
    pub async fn known_keys(&self) -> Result<KnownKeys> {
        let known = match &self.cacher {
            Some(cacher) => cacher.read_your_writes().await,
            None => None,
        };
        match known {
            Some(snapshot) => Ok(KnownKeys::Cached(snapshot)),
            None => {
                let items = self.all_stored("").await?.items;
                items
                    .map(|stored| Ok(stored?.key.clone()))
                    .collect::<Result<_>>()
                    .map(KnownKeys::Listed)
            }
        }
    }
}
