//! The JSON of stored objects, rendered once for all lists that show them, in bounded memory.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use moka::sync::Cache;

use crate::codec::DecodeError;
use crate::codec::protobuf::{self, Message};
use crate::meta::{Gvr, status};
use crate::registry::cells::Cells;
use crate::registry::store::unreadable;
use crate::registry::table;
use crate::storage::{Revision, Stored};

/// Bytes that are kept, about. What is asked for most often stays when there is more.
const MAX_BYTES: u64 = 192 << 20;

/// What was not asked for so long is dropped. What is at hand is not asked for: if it is in use it is rendered again.
const MAX_IDLE: Duration = Duration::from_secs(300);

/// What an object costs besides its JSON: the cells of its row, the books of the cache.
const OVERHEAD: usize = 512;

/// What metadata come to mostly, so that they are not moved while they are written.
const BARE_BYTES: usize = 2048;

/// How many objects are found without asking the cache: as many as are kept, if they are of the usual size.
const AT_HAND: usize = 1 << 17;

/// How many places for these are made at once.
const STRETCH: usize = 1 << 12;

/// An object as lists show it.
#[derive(Debug)]
pub struct Rendered {
    revision: Revision,
    /// Without kind and apiVersion; or the bare metadata alone.
    json: Box<[u8]>,
    whole: bool,
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
        Ok(Self { revision: stored.mod_revision, json: out[begun..].into(), whole: true, metadata, cells: OnceLock::new() })
    }

    /// The bare metadata alone.
    fn bare(stored: &Stored, message: Message) -> Result<Self, DecodeError> {
        let mut json = Vec::with_capacity(BARE_BYTES);
        table::write_metadata_of(&mut json, message, stored.written_at())?;
        Ok(Self { revision: stored.mod_revision, metadata: 0..json.len(), json: json.into(), whole: false, cells: OnceLock::new() })
    }

    /// The JSON without kind and apiVersion, if more than metadata was wanted before.
    pub fn object(&self) -> Option<&[u8]> {
        self.whole.then_some(&*self.json)
    }

    /// The JSON of the bare metadata, unless the object was rendered and shows others.
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
struct Share(u64);

impl Default for Share {
    fn default() -> Self {
        Self(MAX_BYTES)
    }
}

impl Share {
    /// Whether anything is left.
    fn lasts(self) -> bool {
        self.0 > 0
    }

    /// An object of so many bytes was shown.
    fn take(&mut self, len: usize) {
        self.0 = self.0.saturating_sub((len + OVERHEAD) as u64);
    }
}

/// The cache as one list uses it.
pub struct Shelf {
    cache: Arc<RenderedCache>,
    of: Served,
    share: Share,
}

impl Shelf {
    /// For a list of this resource.
    pub fn new(cache: Arc<RenderedCache>, gvr: &Gvr) -> Self {
        Self { cache, of: Served::new(gvr), share: Share::default() }
    }

    /// Appends the JSON of an object without kind and apiVersion, and keeps it. `message` is asked for it if it is not there.
    ///
    /// # Errors
    /// Those of `message`, and 500 for one that cannot be read; what was appended is then of no use.
    pub fn object<'a>(
        &mut self,
        stored: &Stored,
        message: impl FnOnce() -> status::Result<Message<'a>>,
        out: &mut Vec<u8>,
    ) -> status::Result<()> {
        if !self.share.lasts() {
            let message = message()?;
            return protobuf::to_json(message.bytes, message.ty, "", "", stored.written_at(), out).map(drop).map_err(unreadable);
        }
        let begun = out.len();
        match self.cache.get(self.of, stored).as_deref().and_then(Rendered::object) {
            Some(json) => out.extend_from_slice(json),
            None => self.cache.render(self.of, stored, message()?, out).map_err(unreadable)?,
        }
        self.share.take(out.len() - begun);
        Ok(())
    }

    /// What is kept of an object, at least its bare metadata; `None` where there is no room left for that.
    ///
    /// # Errors
    /// As [`Shelf::object`].
    pub fn metadata<'a>(
        &mut self,
        stored: &Stored,
        message: impl FnOnce() -> status::Result<Message<'a>>,
    ) -> status::Result<Option<Arc<Rendered>>> {
        if !self.share.lasts() {
            return Ok(None);
        }
        let kept = match self.cache.get(self.of, stored) {
            Some(kept) => kept,
            None => self.cache.render_metadata(self.of, stored, message()?).map_err(unreadable)?,
        };
        self.share.take(kept.json.len());
        Ok(Some(kept))
    }
}

/// Which object: a hash of the served resource and the key.
type Key = u64;

/// A hash of the resource that objects are served as.
#[derive(Clone, Copy, Debug)]
struct Served(u64);

impl Served {
    fn new(gvr: &Gvr) -> Self {
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
    fn get(&self, of: Served, stored: &Stored) -> Option<Arc<Rendered>> {
        let (key, revision) = (of.key(stored), stored.mod_revision);
        self.at_hand.get(key, revision).or_else(|| {
            let found = self.all.get(&key).filter(|rendered| rendered.revision == revision)?;
            self.at_hand.put(key, &found);
            Some(found)
        })
    }

    /// Appends the JSON of a message that is not there yet, without kind and apiVersion, and keeps it in place of what was there of
    /// the object.
    ///
    /// # Errors
    /// As [`protobuf::to_json`]; what was appended is then of no use.
    fn render(&self, of: Served, stored: &Stored, message: Message, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        self.keep(of.key(stored), &Arc::new(Rendered::append(stored, message, out)?));
        Ok(())
    }

    /// Keeps the bare metadata of a message that is not there yet.
    ///
    /// # Errors
    /// As [`protobuf::metadata_to_json`].
    fn render_metadata(&self, of: Served, stored: &Stored, message: Message) -> Result<Arc<Rendered>, DecodeError> {
        let rendered = Arc::new(Rendered::bare(stored, message)?);
        self.keep(of.key(stored), &rendered);
        Ok(rendered)
    }

    fn keep(&self, key: Key, rendered: &Arc<Rendered>) {
        self.all.insert(key, rendered.clone());
        self.at_hand.put(key, rendered);
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
        let rendered = |revision| Arc::new(Rendered { revision, json: [].into(), whole: true, metadata: 0..0, cells: OnceLock::new() });
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
    fn what_is_kept_is_what_was_rendered() {
        let (gvr, mut as_shown) = (Gvr::new("", "v1", "things"), 0);
        for (number, line) in include_str!("../../tests/data/stored.jsonl").lines().enumerate() {
            let object = serde_json::from_str::<Value>(line).expect("JSON")["object"].take();
            let text = |key: &str| object[key].as_str().expect("a string").to_owned();
            let gvk = Gvk::from_api_version(&text("apiVersion"), &text("kind"));
            let ty = crate::schema::builtin().get(&gvk).expect("a kind");
            let bytes = protobuf::encode(&json::decode(object.to_string().as_bytes(), ty).expect("valid").object, ty);
            let message = Message { bytes: &bytes, ty };
            let stored = Stored { key: format!("/{number}"), value: bytes.clone().into(), create_revision: 1, mod_revision: 7 };
            let (mut whole, mut bare) = (Vec::new(), Vec::new());
            protobuf::to_json(&bytes, ty, "", "", Some(7), &mut whole).expect("valid");
            table::write_metadata_of(&mut bare, message, Some(7)).expect("valid");

            let cache = Arc::new(RenderedCache::default());
            let mut shelf = Shelf::new(cache.clone(), &gvr);
            let nothing = || panic!("{gvk}: it is there");
            let first = shelf.metadata(&stored, || Ok(message)).expect("valid").expect("there is room");
            assert!(first.metadata() == Some(&bare) && first.object().is_none(), "{gvk}");
            let again = shelf.metadata(&stored, nothing).expect("valid").expect("there is room");
            assert!(Arc::ptr_eq(&first, &again), "{gvk}");

            let mut shown = b"before".to_vec();
            shelf.object(&stored, || Ok(message), &mut shown).expect("valid");
            shelf.object(&stored, nothing, &mut shown).expect("valid");
            assert_eq!(shown, [b"before", &*whole, &*whole].concat(), "{gvk}");
            let kept = shelf.metadata(&stored, nothing).expect("valid").expect("there is room");
            assert_eq!(kept.object(), Some(&*whole), "{gvk}: the whole takes the place of the part");
            match kept.metadata() {
                Some(metadata) => assert_eq!(metadata, bare, "{gvk}"),
                None => assert_eq!(gvk.kind, "DaemonSet", "others show what is kept"),
            }
            as_shown += usize::from(kept.metadata().is_some());

            let next = Stored { mod_revision: 8, ..stored.clone() };
            let before = [Arc::downgrade(&first), Arc::downgrade(&kept)];
            drop((first, again, kept));
            shelf.object(&next, || Ok(message), &mut Vec::new()).expect("valid");
            cache.sweep();
            assert!(before.iter().all(|before| before.upgrade().is_none()), "{gvk}: what it was before goes");
        }
        assert!(as_shown > 20, "{as_shown}");
    }
}
