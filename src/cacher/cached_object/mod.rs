//! A stored object and its encodings, both shared by all readers (upstream:
//! `storage/cacher/caching_object.go`).

mod encoding_cache;
mod encodings;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use bytes::Bytes;

use crate::meta::status;
use crate::storage::{Revision, Stored};

pub use encoding_cache::EncodingCache;
pub use encodings::{Encoding, EncodingId, Representation, Retention, ServedId, SharedEncoding};

/// Encodings that an object has at most. Beyond that, which takes a definition that changes again
/// and again while the object does not, it begins anew.
const MAX_ENCODINGS: usize = 16;

/// A stored object and its encodings. Lists, gets and watches of the same state hold the same one.
pub struct CachedObject {
    stored: Stored,
    /// The last state of an object that is gone, at the revision of its deletion.
    deleted: bool,
    /// Set in the watch cache, where readers share the object.
    shared: bool,
    /// Its value is of the version that is served, not of the one that is stored.
    converted: bool,
    /// Set by the first request for it.
    requested: AtomicBool,
    /// Set by each use of an encoding, cleared by the clock hand.
    pub(super) used: AtomicBool,
    /// Set while it is in the queue of the clock.
    pub(super) queued: AtomicBool,
    encodings: ArcSwapOption<SharedEncoding>,
}

impl std::fmt::Debug for CachedObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "CachedObject({} at {})",
            self.stored.key, self.stored.mod_revision
        )
    }
}

impl Deref for CachedObject {
    type Target = Stored;

    fn deref(&self) -> &Stored {
        &self.stored
    }
}

/// An object that is not in the watch cache: its encodings are not kept.
impl From<Stored> for CachedObject {
    fn from(stored: Stored) -> Self {
        Self::new(stored, false)
    }
}

/// The same, shared.
impl From<Stored> for Arc<CachedObject> {
    fn from(stored: Stored) -> Self {
        Self::new(stored.into())
    }
}

impl CachedObject {
    /// An object of the watch cache.
    pub fn shared(stored: Stored) -> Arc<Self> {
        Arc::new(Self::new(stored, true))
    }

    fn new(stored: Stored, shared: bool) -> Self {
        Self {
            stored,
            deleted: false,
            shared,
            converted: false,
            requested: AtomicBool::new(false),
            used: AtomicBool::new(false),
            queued: AtomicBool::new(false),
            encodings: ArcSwapOption::empty(),
        }
    }

    /// The last state of this object, which was deleted at `revision`.
    pub fn deleted_at(&self, revision: Revision) -> Arc<Self> {
        let stored = Stored {
            mod_revision: revision,
            ..self.stored.clone()
        };
        Arc::new(Self {
            deleted: true,
            converted: self.converted,
            ..Self::new(stored, self.shared)
        })
    }

    /// The same state with `value`, which is of the version that is served.
    pub fn converted_to(&self, value: Bytes) -> Arc<Self> {
        let stored = Stored {
            value,
            ..self.stored.clone()
        };
        Arc::new(Self {
            deleted: self.deleted,
            converted: true,
            ..Self::new(stored, self.shared)
        })
    }

    /// Reports whether the value is of the version that is served, not of the one that is stored.
    pub fn is_converted(&self) -> bool {
        self.converted
    }

    /// Reports whether readers share the object.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Reports whether this is the last state of a deleted object.
    pub fn is_deleted(&self) -> bool {
        self.deleted
    }

    /// Reports whether the object was created in this state.
    pub fn is_new(&self) -> bool {
        self.stored.create_revision == self.stored.mod_revision
    }

    /// Returns the encoding, if there is one, made before or concurrently. `None` where it is not
    /// to be kept: the caller encodes for itself.
    ///
    /// `encode` runs once, however many ask at the same time; its error is kept as well.
    ///
    /// # Errors
    /// That of `encode`.
    pub fn encoding(
        self: &Arc<Self>,
        cache: &Arc<EncodingCache>,
        id: EncodingId,
        retention: Retention,
        encode: impl FnOnce() -> status::Result<Encoding>,
    ) -> status::Result<Option<Arc<SharedEncoding>>> {
        if let Some(node) = self.find(id)
            && let Some(found) = node.get()
        {
            found?;
            self.record_hit(cache);
            return Ok(Some(node));
        }
        if !self.shared {
            return Ok(None);
        }
        cache.record_miss();
        if !cache.admits(self, retention) {
            return Ok(None);
        }
        let node = self.find_or_insert(cache, id);
        node.get_or_encode(encode)?;
        cache.record_encoding(self, retention);
        Ok(Some(node))
    }

    /// Returns the encoding if it is there already.
    pub fn existing_encoding(
        &self,
        cache: &EncodingCache,
        id: EncodingId,
    ) -> Option<Arc<SharedEncoding>> {
        let node = self.find(id)?;
        node.get()?.ok()?;
        self.record_hit(cache);
        Some(node)
    }

    fn record_hit(&self, cache: &EncodingCache) {
        cache.record_hit();
        // Not written if it is so already: many threads read this.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Records a request for this state, and reports whether it is the first.
    pub(super) fn is_first_request(&self) -> bool {
        !self.requested.load(Ordering::Relaxed) && !self.requested.swap(true, Ordering::Relaxed)
    }

    /// Drops all encodings.
    pub(super) fn clear_encodings(&self) {
        self.encodings.store(None);
    }

    fn find(&self, id: EncodingId) -> Option<Arc<SharedEncoding>> {
        find(self.encodings.load().as_ref(), id).cloned()
    }

    fn find_or_insert(&self, cache: &Arc<EncodingCache>, id: EncodingId) -> Arc<SharedEncoding> {
        loop {
            let first = self.encodings.load_full();
            if let Some(node) = find(first.as_ref(), id) {
                return node.clone();
            }
            let next = first.clone().filter(|first| first.length() < MAX_ENCODINGS);
            let node = SharedEncoding::new(cache, id, next);
            let before = self.encodings.compare_and_swap(&first, Some(node.clone()));
            if before.as_ref().map(Arc::as_ptr) == first.as_ref().map(Arc::as_ptr) {
                return node;
            }
        }
    }
}

fn find(first: Option<&Arc<SharedEncoding>>, id: EncodingId) -> Option<&Arc<SharedEncoding>> {
    std::iter::successors(first, |node| node.next()).find(|node| node.id() == id)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;
    use crate::cacher::{Representation, ServedId};
    use crate::meta::Status;

    fn object() -> Arc<CachedObject> {
        CachedObject::shared(Stored {
            key: "/a".to_owned(),
            value: Bytes::new(),
            create_revision: 1,
            mod_revision: 2,
        })
    }

    fn json() -> EncodingId {
        EncodingId {
            served: ServedId::unique(),
            representation: Representation::Json,
        }
    }

    fn encoding(text: &'static str) -> status::Result<Encoding> {
        Ok(Encoding {
            bytes: Bytes::from_static(text.as_bytes()),
            ..Encoding::EMPTY
        })
    }

    #[test]
    fn many_threads_share_one_encoding() {
        const THREADS: usize = 16;
        let (object, cache, id) = (object(), Arc::new(EncodingCache::new(1 << 20)), json());
        let (encoded, begin) = (AtomicUsize::new(0), Barrier::new(THREADS));
        let ask = || {
            begin.wait();
            let kept = object.encoding(&cache, id, Retention::Event, || {
                encoded.fetch_add(1, Ordering::Relaxed);
                // The others arrive while it is being encoded.
                thread::yield_now();
                encoding("{}")
            });
            kept.expect("encoded").expect("kept")
        };
        let all: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(ask)).collect();
            let kept = threads.into_iter().map(|one| one.join().expect("it ends"));
            kept.collect()
        });
        assert_eq!(encoded.into_inner(), 1);
        assert!(all.iter().all(|one| Arc::ptr_eq(one, &all[0])));
        assert_eq!(&*all[0].bytes, b"{}");
    }

    #[test]
    fn encodings_of_other_resources_and_representations_are_apart() {
        let (object, cache) = (object(), Arc::new(EncodingCache::new(1 << 20)));
        let first = json();
        let other_resource = json();
        let other_representation = EncodingId {
            representation: Representation::Protobuf,
            ..first
        };
        for (id, text) in [
            (first, "one"),
            (other_resource, "two"),
            (other_representation, "three"),
        ] {
            assert!(object.existing_encoding(&cache, id).is_none(), "{text}");
            for _ in 0..2 {
                let kept = object.encoding(&cache, id, Retention::Event, || encoding(text));
                assert_eq!(kept.expect("encoded").expect("kept").bytes, text);
            }
        }
    }

    #[test]
    fn an_object_has_few_encodings_however_often_its_definition_changes() {
        let (object, cache) = (object(), Arc::new(EncodingCache::new(1 << 20)));
        for _ in 0..10 * MAX_ENCODINGS {
            let kept = object.encoding(&cache, json(), Retention::Event, || encoding("{}"));
            drop(kept.expect("encoded"));
            let first = object.encodings.load_full().expect("there is one");
            assert!(first.length() <= MAX_ENCODINGS);
        }
    }

    #[test]
    fn an_error_is_the_same_for_all() {
        let (object, cache, id) = (object(), Arc::new(EncodingCache::new(1 << 20)), json());
        for why in ["first", "second"] {
            let failed =
                object.encoding(&cache, id, Retention::Event, || Err(Status::internal(why)));
            assert!(failed.expect_err("an error").message.contains("first"));
        }
        assert!(object.existing_encoding(&cache, id).is_none());
    }

    #[test]
    fn a_request_is_kept_the_second_time_and_objects_outside_the_cache_never() {
        let cache = Arc::new(EncodingCache::new(1 << 20));
        let is_kept = |object: &Arc<CachedObject>, id| {
            let kept = object.encoding(&cache, id, Retention::Request, || encoding("{}"));
            kept.expect("encoded").is_some()
        };
        let (shared, id) = (object(), json());
        assert_eq!([(); 3].map(|()| is_kept(&shared, id)), [false, true, true]);
        let own: Arc<CachedObject> = Stored::clone(&shared).into();
        assert_eq!([(); 3].map(|()| is_kept(&own, id)), [false; 3]);
    }
}
