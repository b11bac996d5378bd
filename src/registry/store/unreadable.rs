//! Stored bytes that are no object of their kind: somebody wrote them past the API, or a disk
//! forgot. Clients who ask for them are told; what the server does by itself goes on with all other
//! objects.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use parking_lot::Mutex;

use crate::cacher::CachedObject;
use crate::codec;
use crate::meta::status::Result;
use crate::meta::{Object, Status};
use crate::storage::Stored;

use super::Store;

/// Objects that are remembered to have been logged; beyond that, all are forgotten and may be
/// logged again.
const LOGGED: usize = 1024;

/// The states that have been logged, as hashes of keys and revisions.
#[derive(Debug, Default)]
pub(super) struct Logged(Mutex<HashSet<u64>>);

impl Logged {
    /// Reports whether this state of an object has not been logged yet. From then on it has.
    fn is_news(&self, stored: &Stored) -> bool {
        let mut hasher = DefaultHasher::new();
        (&stored.key, stored.mod_revision).hash(&mut hasher);
        let mut logged = self.0.lock();
        if logged.len() >= LOGGED {
            logged.clear();
        }
        logged.insert(hasher.finish())
    }
}

/// The Status for stored bytes that are no object.
pub fn unreadable(why: codec::DecodeError) -> Status {
    Status::internal(format!("unable to decode the stored object: {}", why.0))
}

/// The Status for stored bytes that are encrypted where nothing decrypts them (apiserver
/// `storage/value/encrypt/identity`).
pub(super) fn encrypted() -> Status {
    Status::internal("identity transformer tried to read encrypted data")
}

/// The Status for a list with an object in it that cannot be read.
pub(super) fn unreadable_key(key: &str) -> Status {
    Status::internal(format!("unable to decode the stored object: {key}"))
}

impl Store {
    /// Goes on without an object that cannot be read. It is logged once.
    pub fn skip(&self, stored: &Stored, why: &Status) {
        if self.logged.is_news(stored) {
            tracing::error!(
                key = stored.key,
                revision = stored.mod_revision,
                "a stored object is skipped: {}",
                why.message
            );
        }
    }

    /// An object with nothing but the namespace and name that the key of a stored one says.
    pub fn named(&self, stored: &Stored) -> Object {
        let path = stored.key.strip_prefix(&self.prefix()).unwrap_or_default();
        let (namespace, name) = path.split_once('/').unwrap_or(("", path));
        let mut object = Object::default();
        object.set_meta_str("name", name);
        if !namespace.is_empty() {
            object.set_meta_str("namespace", namespace);
        }
        object.set_resource_version(&stored.mod_revision.to_string());
        object
    }

    /// Those of the objects that can be read.
    pub(super) fn readable<T>(
        &self,
        decoded: impl Iterator<Item = (T, Result<Object>)>,
    ) -> Vec<Object>
    where
        T: std::ops::Deref<Target = CachedObject>,
    {
        decoded
            .filter_map(|(stored, decoded)| decoded.map_err(|why| self.skip(&stored, &why)).ok())
            .collect()
    }
}
