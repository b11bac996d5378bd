//! The JSON of stored objects, rendered once for all lists that show them, in bounded memory.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use moka::sync::Cache;

use crate::codec::DecodeError;
use crate::codec::protobuf::{self, Message};
use crate::meta::Gvr;
use crate::registry::cells::Cells;
use crate::registry::table;
use crate::storage::{Revision, Stored};

/// Bytes that are kept, about. What is asked for most often stays when there is more.
const MAX_BYTES: u64 = 192 << 20;

/// What was not asked for so long is dropped. What is at hand is not asked for: if it is in use it is rendered again.
const MAX_IDLE: Duration = Duration::from_secs(300);

/// What an object costs besides its JSON: the cells of its row, the books of the cache.
const OVERHEAD: usize = 512;

/// How many objects are found without asking the cache: as many as are kept, if they are of the usual size.
const AT_HAND: usize = 1 << 17;

/// How many places for these are made at once.
const STRETCH: usize = 1 << 12;

/// An object as lists show it.
#[derive(Debug)]
pub struct Rendered {
    revision: Revision,
    /// Without kind and apiVersion.
    pub json: Box<[u8]>,
    metadata: Range<usize>,
    cells: OnceLock<Cells>,
}

impl Rendered {
    /// Appends the JSON of a message, and keeps a copy.
    fn append(stored: &Stored, message: Message, out: &mut Vec<u8>) -> Result<Self, DecodeError> {
        let begun = out.len();
        let metadata = protobuf::to_json(message.bytes, message.ty, "", "", stored.written_at(), out)?;
        let shown = table::shows_metadata(message.ty) && !metadata.is_empty();
        let metadata = if shown { metadata.start - begun..metadata.end - begun } else { 0..0 };
        Ok(Self { revision: stored.mod_revision, json: out[begun..].into(), metadata, cells: OnceLock::new() })
    }

    /// The JSON of the metadata, where they are shown alone as they are shown with the object.
    pub fn metadata(&self) -> Option<&[u8]> {
        self.json.get(self.metadata.clone()).filter(|metadata| !metadata.is_empty())
    }

    /// The cells of its row, which `make` makes the first time.
    pub fn cells<E>(&self, make: impl FnOnce() -> Result<Cells, E>) -> Result<&Cells, E> {
        match self.cells.get() {
            Some(cells) => Ok(cells),
            None => {
                let cells = make()?;
                Ok(self.cells.get_or_init(|| cells))
            }
        }
    }
}

/// What is left of the cache to one list. What comes after as much as fits would only drive out what the next list begins with, so it
/// is neither kept nor looked for.
#[derive(Clone, Copy, Debug)]
pub struct Share(u64);

impl Default for Share {
    fn default() -> Self {
        Self(MAX_BYTES)
    }
}

impl Share {
    /// Whether anything is left.
    pub fn lasts(self) -> bool {
        self.0 > 0
    }

    /// An object of so many bytes was shown.
    pub fn take(&mut self, len: usize) {
        self.0 = self.0.saturating_sub((len + OVERHEAD) as u64);
    }
}

/// Which object: a hash of the served resource and the key.
type Key = u64;

/// A hash of the resource that objects are served as.
#[derive(Clone, Copy, Debug)]
pub struct Served(u64);

impl Served {
    pub fn new(gvr: &Gvr) -> Self {
        let mut hasher = DefaultHasher::new();
        gvr.hash(&mut hasher);
        Self(hasher.finish())
    }

    fn key(self, stored: &Stored) -> Key {
        let mut hasher = DefaultHasher::new();
        (self.0, &stored.key).hash(&mut hasher);
        hasher.finish()
    }
}

/// Where what the cache gave last is found again. Its books of who asked for what take longer than copying an object does, so a
/// list of many that are all there would mostly keep books. What the cache drops is gone from here.
#[derive(Debug, Default)]
struct AtHand([OnceLock<Box<[Place]>>; AT_HAND / STRETCH]);

/// What was put there last, as long as it is cached.
type Place = Mutex<(Key, Weak<Rendered>)>;

impl AtHand {
    fn get(&self, key: Key, revision: Revision) -> Option<Arc<Rendered>> {
        let there = self.place(revision).lock().unwrap_or_else(PoisonError::into_inner);
        if there.0 == key { there.1.upgrade().filter(|rendered| rendered.revision == revision) } else { None }
    }

    fn put(&self, key: Key, rendered: &Arc<Rendered>) {
        *self.place(rendered.revision).lock().unwrap_or_else(PoisonError::into_inner) = (key, Arc::downgrade(rendered));
    }

    /// Revisions that follow each other have places that do.
    fn place(&self, revision: Revision) -> &Place {
        let number = revision.unsigned_abs() as usize % AT_HAND;
        let stretch = self.0[number / STRETCH].get_or_init(|| (0..STRETCH).map(|_| Place::default()).collect());
        &stretch[number % STRETCH]
    }
}

/// Rendered objects, each as it was at one revision.
#[derive(Debug)]
pub struct RenderedCache {
    all: Cache<Key, Arc<Rendered>>,
    at_hand: AtHand,
}

impl Default for RenderedCache {
    fn default() -> Self {
        let weigh = |_: &Key, rendered: &Arc<Rendered>| u32::try_from(rendered.json.len() + OVERHEAD).unwrap_or(u32::MAX);
        let all = Cache::builder().weigher(weigh).max_capacity(MAX_BYTES).time_to_idle(MAX_IDLE).build();
        Self { all, at_hand: AtHand::default() }
    }
}

impl RenderedCache {
    /// The object if it was rendered.
    pub fn get(&self, of: Served, stored: &Stored) -> Option<Arc<Rendered>> {
        let (key, revision) = (of.key(stored), stored.mod_revision);
        self.at_hand.get(key, revision).or_else(|| {
            let found = self.all.get(&key).filter(|rendered| rendered.revision == revision)?;
            self.at_hand.put(key, &found);
            Some(found)
        })
    }

    /// Appends the JSON of a message that is not there yet, without kind and apiVersion, and keeps it in place of what the object was
    /// before.
    ///
    /// # Errors
    /// As [`protobuf::to_json`]; what was appended is then of no use.
    pub fn render(&self, of: Served, stored: &Stored, message: Message, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        let rendered = Rendered::append(stored, message, out)?;
        self.all.insert(of.key(stored), Arc::new(rendered));
        Ok(())
    }

    /// Lets go of what was not asked for lately.
    pub fn sweep(&self) {
        self.all.run_pending_tasks();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::json;
    use crate::meta::Gvk;
    use crate::meta::Value;

    #[test]
    fn a_list_takes_no_more_than_there_is() {
        let (mut share, mut shown) = (Share::default(), 0_usize);
        while share.lasts() {
            share.take(1 << 20);
            shown += 1;
        }
        assert_eq!(shown, 192);
    }

    #[test]
    fn what_is_at_hand_is_what_the_cache_has() {
        let (at_hand, far) = (AtHand::default(), 7 + AT_HAND as Revision);
        let rendered = |revision| Arc::new(Rendered { revision, json: [].into(), metadata: 0..0, cells: OnceLock::new() });
        let (one, other) = (rendered(7), rendered(far));
        assert!(at_hand.get(1, 7).is_none());
        at_hand.put(1, &one);
        assert!(at_hand.get(1, 7).is_some_and(|found| Arc::ptr_eq(&found, &one)));
        assert!(at_hand.get(2, 7).is_none(), "another object of that revision");
        assert!(at_hand.get(1, far).is_none(), "another revision with that place");
        at_hand.put(1, &other);
        assert!(at_hand.get(1, far).is_some_and(|found| Arc::ptr_eq(&found, &other)));
        assert!(at_hand.get(1, 7).is_none(), "its place was taken");
        drop(other);
        assert!(at_hand.get(1, far).is_none(), "it was dropped");
    }

    #[test]
    fn what_is_kept_is_what_was_rendered_and_its_metadata_are_part_of_it() {
        let (cache, of) = (RenderedCache::default(), Served::new(&Gvr::new("", "v1", "things")));
        let mut with_metadata = 0;
        for (number, line) in include_str!("../../tests/data/stored.jsonl").lines().enumerate() {
            let object = serde_json::from_str::<Value>(line).expect("JSON")["object"].take();
            let text = |key: &str| object[key].as_str().expect("a string").to_owned();
            let gvk = Gvk::from_api_version(&text("apiVersion"), &text("kind"));
            let ty = crate::schema::builtin().get(&gvk).expect("a kind");
            let bytes = protobuf::encode(&json::decode(object.to_string().as_bytes(), ty).expect("valid").object, ty);
            let message = Message { bytes: &bytes, ty };
            let stored = Stored { key: format!("/{number}"), value: bytes.clone().into(), create_revision: 1, mod_revision: 7 };
            let (mut first, mut metadata) = (b"before".to_vec(), Vec::new());
            assert!(cache.get(of, &stored).is_none());
            cache.render(of, &stored, message, &mut first).expect("valid");
            let kept = cache.get(of, &stored).expect("it is kept");
            assert_eq!(first, [b"before", &*kept.json].concat(), "{gvk}");
            assert!(cache.get(of, &stored).is_some_and(|again| Arc::ptr_eq(&again, &kept)), "{gvk}");
            if let Some(part) = kept.metadata() {
                protobuf::metadata_to_json(&bytes, ty, Some(7), &mut metadata).expect("valid");
                assert_eq!(String::from_utf8_lossy(part), String::from_utf8_lossy(&metadata), "{gvk}");
                with_metadata += 1;
            } else {
                assert_eq!(gvk.kind, "DaemonSet");
            }
            let next = Stored { mod_revision: 8, ..stored.clone() };
            assert!(cache.get(of, &next).is_none(), "another revision is another object");
            cache.render(of, &next, message, &mut Vec::new()).expect("valid");
            let before = Arc::downgrade(&kept);
            drop(kept);
            cache.sweep();
            assert!(cache.get(of, &next).is_some() && before.upgrade().is_none(), "what it was before goes");
        }
        assert!(with_metadata > 20, "{with_metadata}");
    }
}
