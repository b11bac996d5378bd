//! The JSON of stored objects, rendered once for all lists that show them, in bounded memory.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use moka::sync::Cache;

use crate::meta::status::Result;
use crate::registry::cells::Cells;
use crate::registry::resource::Resource;
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
    /// The item of a list, or the bare metadata alone.
    json: Box<[u8]>,
    whole: bool,
    /// Where the bare metadata lie; nowhere if the item shows others.
    metadata: Range<usize>,
    cells: OnceLock<Cells>,
}

impl Rendered {
    /// The item of a list, if more than metadata was wanted before.
    fn item(&self) -> Option<&[u8]> {
        self.whole.then_some(&*self.json)
    }

    /// The JSON of the bare metadata, unless the item shows others.
    pub fn metadata(&self) -> Option<&[u8]> {
        self.json.get(self.metadata.clone()).filter(|metadata| !metadata.is_empty())
    }

    /// The cells of its row, which `make` makes the first time.
    pub fn cells(&self, make: impl FnOnce() -> Result<Cells>) -> Result<&Cells> {
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
    pub fn new(cache: Arc<RenderedCache>, resource: &Resource) -> Self {
        Self { cache, of: Served::new(resource), share: Share::default() }
    }

    /// Appends the item of an object. `render` appends it if it is not there, and tells where in `out` its metadata lie, if they are as
    /// they are shown alone.
    ///
    /// # Errors
    /// Those of `render`.
    pub fn item(&mut self, stored: &Stored, out: &mut Vec<u8>, render: impl FnOnce(&mut Vec<u8>) -> Result<Range<usize>>) -> Result<()> {
        if !self.share.lasts() {
            return render(out).map(drop);
        }
        let begun = out.len();
        match self.cache.get(self.of, stored).as_deref().and_then(Rendered::item) {
            Some(json) => out.extend_from_slice(json),
            None => {
                let metadata = render(out)?;
                let metadata = if metadata.is_empty() { 0..0 } else { metadata.start - begun..metadata.end - begun };
                let revision = stored.mod_revision;
                self.cache.keep(
                    self.of,
                    stored,
                    Rendered { revision, json: out[begun..].into(), whole: true, metadata, cells: OnceLock::new() },
                );
            }
        }
        self.share.take(out.len() - begun);
        Ok(())
    }

    /// What is kept of an object, at least its bare metadata, which `render` writes if nothing is; `None` where there is no room left
    /// for that.
    ///
    /// # Errors
    /// Those of `render`.
    pub fn metadata(&mut self, stored: &Stored, render: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<Option<Arc<Rendered>>> {
        if !self.share.lasts() {
            return Ok(None);
        }
        let kept = match self.cache.get(self.of, stored) {
            Some(kept) => kept,
            None => {
                let mut json = Vec::with_capacity(BARE_BYTES);
                render(&mut json)?;
                let (revision, metadata) = (stored.mod_revision, 0..json.len());
                self.cache.keep(self.of, stored, Rendered { revision, json: json.into(), whole: false, metadata, cells: OnceLock::new() })
            }
        };
        self.share.take(kept.json.len());
        Ok(Some(kept))
    }
}

/// Which object: a hash of the served resource and the key.
type Key = u64;

/// A hash of the resource that objects are served as, and of what a definition says of it.
#[derive(Clone, Copy, Debug)]
struct Served(u64);

impl Served {
    fn new(resource: &Resource) -> Self {
        let mut hasher = DefaultHasher::new();
        resource.gvr.hash(&mut hasher);
        resource.custom.as_ref().map(|custom| custom.fingerprint()).hash(&mut hasher);
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

    /// Keeps what was rendered in place of what was there of the object.
    fn keep(&self, of: Served, stored: &Stored, rendered: Rendered) -> Arc<Rendered> {
        let (key, rendered) = (of.key(stored), Arc::new(rendered));
        self.all.insert(key, rendered.clone());
        self.at_hand.put(key, &rendered);
        rendered
    }

    /// Lets go of what was not asked for lately.
    pub fn sweep(&self) {
        self.all.run_pending_tasks();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// A list of pods.
    fn shelf() -> Shelf {
        let pods = crate::schema::builtin().resources.iter().find(|decl| decl.resource == "pods").expect("pods");
        Shelf::new(Arc::default(), &Resource::builtin(pods, crate::registry::builtin::strategy("", "pods")))
    }

    #[test]
    fn what_is_kept_is_what_was_rendered() {
        let (mut shelf, stored) =
            (shelf(), Stored { key: "/a".to_owned(), value: Default::default(), create_revision: 1, mod_revision: 7 });
        let nothing = |_: &mut Vec<u8>| -> Result<()> { panic!("it is there") };
        let bare = |out: &mut Vec<u8>| -> Result<()> {
            out.extend_from_slice(b"{1}");
            Ok(())
        };
        let first = shelf.metadata(&stored, bare).expect("rendered").expect("there is room");
        assert!(first.metadata() == Some(b"{1}") && first.item().is_none());
        let again = shelf.metadata(&stored, nothing).expect("rendered").expect("there is room");
        assert!(Arc::ptr_eq(&first, &again));

        let mut shown = b"before ".to_vec();
        let render = |out: &mut Vec<u8>| {
            out.extend_from_slice(b"{m:{1},s:{}}");
            Ok(10..13)
        };
        shelf.item(&stored, &mut shown, render).expect("rendered");
        shelf.item(&stored, &mut shown, |_| panic!("it is there")).expect("rendered");
        assert_eq!(String::from_utf8_lossy(&shown), "before {m:{1},s:{}}{m:{1},s:{}}");
        let kept = shelf.metadata(&stored, nothing).expect("rendered").expect("there is room");
        assert!(kept.metadata() == Some(b"{1}") && kept.item().is_some(), "the whole takes the place of the part");

        let next = Stored { mod_revision: 8, ..stored.clone() };
        let before = [Arc::downgrade(&first), Arc::downgrade(&kept)];
        drop((first, again, kept));
        shelf.item(&next, &mut shown, |_| Ok(0..0)).expect("rendered");
        shelf.cache.sweep();
        assert!(before.iter().all(|before| before.upgrade().is_none()), "what it was before goes");
        let kept = shelf.metadata(&next, nothing).expect("rendered").expect("there is room");
        assert_eq!(kept.metadata(), None, "the item shows others");
        assert!(shelf.item(&Stored { key: "/b".to_owned(), ..stored }, &mut shown, |_| Err(crate::meta::Status::internal("no"))).is_err());
    }
}
