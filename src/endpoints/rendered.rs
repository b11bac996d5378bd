//! The JSON of stored objects, rendered once for all lists and gets that show them, in bounded
//! memory.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use moka::sync::Cache;

use crate::meta::status::Result;
use crate::registry::cells::Cells;
use crate::registry::resource::Resource;
use crate::storage::{Revision, Stored};

/// Bytes that are kept, about. What is asked for most often stays when there is more.
const MAX_BYTES: u64 = 192 << 20;

/// What was not asked for so long is dropped. What is at hand is not asked for: if it is in use it
/// is rendered again.
const MAX_IDLE: Duration = Duration::from_secs(300);

/// What an object costs besides its JSON: the cells of its row, the books of the cache.
const OVERHEAD: usize = 512;

/// What metadata come to mostly, so that they are not moved while they are written.
const BARE_BYTES: usize = 2048;

/// How many objects are found without asking the cache: as many as are kept, if they are of the
/// usual size.
const AT_HAND: usize = 1 << 17;

/// How many places for these are made at once.
const STRETCH: usize = 1 << 12;

/// The JSON of an object as lists show it.
#[derive(Clone, Debug)]
pub struct ItemJson {
    /// The item of a list, or the bare metadata alone.
    json: Arc<[u8]>,
    whole: bool,
    /// Where the bare metadata lie; nowhere if the item shows others.
    metadata: Range<u32>,
}

impl ItemJson {
    fn new(json: Arc<[u8]>, whole: bool, metadata: Range<usize>) -> Self {
        // No object is so large that its metadata cannot be told.
        let (start, end) = (u32::try_from(metadata.start), u32::try_from(metadata.end));
        Self {
            json,
            whole,
            metadata: start
                .ok()
                .zip(end.ok())
                .map_or(0..0, |(start, end)| start..end),
        }
    }

    /// The item of a list, if more than metadata was wanted before.
    fn item(&self) -> Option<&[u8]> {
        self.whole.then_some(&*self.json)
    }

    /// The JSON of the bare metadata, unless the item shows others.
    pub fn metadata(&self) -> Option<&[u8]> {
        self.json
            .get(self.metadata.start as usize..self.metadata.end as usize)
            .filter(|metadata| !metadata.is_empty())
    }
}

/// All that lists show of an object.
#[derive(Debug)]
pub struct Rendered {
    revision: Revision,
    shown: ItemJson,
    cells: OnceLock<Cells>,
}

impl Rendered {
    /// The JSON of the bare metadata, unless the item shows others.
    pub fn metadata(&self) -> Option<&[u8]> {
        self.shown.metadata()
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

/// What is left of the cache to one list. What comes after as much as fits would only drive out
/// what the next list begins with, so it is neither kept nor looked for.
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
        Self {
            cache,
            of: Served::new(resource),
            share: Share::default(),
        }
    }

    /// Appends the item of an object. `render` appends it if it is not there, and tells where in
    /// `out` its metadata lie, if they are as they are shown alone.
    ///
    /// # Errors
    /// Those of `render`.
    pub fn item(
        &mut self,
        stored: &Arc<Stored>,
        out: &mut Vec<u8>,
        render: impl FnOnce(&mut Vec<u8>) -> Result<Range<usize>>,
    ) -> Result<()> {
        if !self.share.lasts() {
            return render(out).map(drop);
        }
        let begun = out.len();
        self.cache.item(self.of, stored, out, render, || true)?;
        self.share.take(out.len() - begun);
        Ok(())
    }

    /// The JSON of an object, at least its bare metadata, which `render` writes if nothing is kept;
    /// `None` where there is no room left for that.
    ///
    /// # Errors
    /// Those of `render`.
    pub fn metadata(
        &mut self,
        stored: &Arc<Stored>,
        render: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<Option<ItemJson>> {
        if !self.share.lasts() {
            return Ok(None);
        }
        let shown = match self.cache.shown(self.of, stored) {
            Some(shown) => shown,
            None => self
                .cache
                .keep(self.of, stored, bare(render)?)
                .shown
                .clone(),
        };
        self.share.take(shown.json.len());
        Ok(Some(shown))
    }

    /// Like [`Shelf::metadata`], with the cells of its row.
    ///
    /// # Errors
    /// Those of `render`.
    pub fn row(
        &mut self,
        stored: &Arc<Stored>,
        render: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<Option<Arc<Rendered>>> {
        if !self.share.lasts() {
            return Ok(None);
        }
        let kept = match self.cache.get(self.of, stored) {
            Some(kept) => kept,
            None => self.cache.keep(self.of, stored, bare(render)?),
        };
        self.share.take(kept.shown.json.len());
        Ok(Some(kept))
    }
}

/// What `render` writes: bare metadata.
fn bare(render: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<ItemJson> {
    let mut json = Vec::with_capacity(BARE_BYTES);
    render(&mut json)?;
    let all = 0..json.len();
    Ok(ItemJson::new(json.into(), false, all))
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
        resource
            .custom
            .as_ref()
            .map(|custom| custom.fingerprint())
            .hash(&mut hasher);
        Self(hasher.finish())
    }

    fn key(self, stored: &Stored) -> Key {
        let mut hasher = DefaultHasher::new();
        (self.0, &stored.key).hash(&mut hasher);
        hasher.finish()
    }
}

/// Where what the cache gave last is found again. Its books of who asked for what take longer than
/// copying an object does, so a list of many that are all there would mostly keep books. What the
/// cache drops is gone from here.
#[derive(Debug, Default)]
struct AtHand([OnceLock<Box<[Mutex<Place>]>>; AT_HAND / STRETCH]);

/// What was put there last, as long as it is cached; or what was asked for last, and not kept yet.
/// An object is known by where it is in memory, which is nobody else's place while it is
/// remembered.
#[derive(Debug, Default)]
struct Place {
    of: u64,
    stored: Weak<Stored>,
    rendered: Weak<Rendered>,
    /// What is shown of it lies here, too: most lists want nothing else, and each step to what is
    /// far away takes long.
    json: Option<Weak<[u8]>>,
    whole: bool,
    metadata: Range<u32>,
}

impl Place {
    fn new(of: Served, stored: &Arc<Stored>, rendered: &Arc<Rendered>) -> Self {
        let ItemJson {
            json,
            whole,
            metadata,
        } = &rendered.shown;
        let (stored, rendered, json) = (
            Arc::downgrade(stored),
            Arc::downgrade(rendered),
            Arc::downgrade(json),
        );
        Self {
            of: of.0,
            stored,
            rendered,
            json: Some(json),
            whole: *whole,
            metadata: metadata.clone(),
        }
    }

    fn is_of(&self, of: Served, stored: &Arc<Stored>) -> bool {
        self.of == of.0 && ptr::eq(self.stored.as_ptr(), &**stored)
    }

    fn shown(&self) -> Option<ItemJson> {
        Some(ItemJson {
            json: self.json.as_ref()?.upgrade()?,
            whole: self.whole,
            metadata: self.metadata.clone(),
        })
    }
}

impl AtHand {
    fn get(&self, of: Served, stored: &Arc<Stored>) -> Option<Arc<Rendered>> {
        let there = self.place(stored);
        if there.is_of(of, stored) {
            there.rendered.upgrade()
        } else {
            None
        }
    }

    fn shown(&self, of: Served, stored: &Arc<Stored>) -> Option<ItemJson> {
        let there = self.place(stored);
        if there.is_of(of, stored) {
            there.shown()
        } else {
            None
        }
    }

    /// Notes that the object was asked for; whether it had been before.
    fn noted(&self, of: Served, stored: &Arc<Stored>) -> bool {
        let mut there = self.place(stored);
        let before = there.is_of(of, stored);
        if !before {
            *there = Place {
                of: of.0,
                stored: Arc::downgrade(stored),
                ..Place::default()
            };
        }
        before
    }

    fn put(&self, of: Served, stored: &Arc<Stored>, rendered: &Arc<Rendered>) {
        *self.place(stored) = Place::new(of, stored, rendered);
    }

    /// Revisions that follow each other have places that do.
    fn place(&self, stored: &Stored) -> MutexGuard<'_, Place> {
        let number = stored.mod_revision.unsigned_abs() as usize % AT_HAND;
        let stretch = self.0[number / STRETCH]
            .get_or_init(|| (0..STRETCH).map(|_| Mutex::default()).collect());
        stretch[number % STRETCH]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
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
        let weigh = |_: &Key, rendered: &Arc<Rendered>| {
            u32::try_from(rendered.shown.json.len() + OVERHEAD).unwrap_or(u32::MAX)
        };
        let all = Cache::builder()
            .weigher(weigh)
            .max_capacity(MAX_BYTES)
            .time_to_idle(MAX_IDLE)
            .build();
        Self {
            all,
            at_hand: AtHand::default(),
        }
    }
}

impl RenderedCache {
    /// The object if it was rendered.
    fn get(&self, of: Served, stored: &Arc<Stored>) -> Option<Arc<Rendered>> {
        self.at_hand.get(of, stored).or_else(|| {
            let found = self
                .all
                .get(&of.key(stored))
                .filter(|rendered| rendered.revision == stored.mod_revision)?;
            self.at_hand.put(of, stored, &found);
            Some(found)
        })
    }

    /// What is shown of the object if it was rendered.
    fn shown(&self, of: Served, stored: &Arc<Stored>) -> Option<ItemJson> {
        self.at_hand
            .shown(of, stored)
            .or_else(|| self.get(of, stored).map(|rendered| rendered.shown.clone()))
    }

    /// Appends the item of an object that is got alone, which `render` appends if it is not there.
    /// What is got once may never be got again as it is now, so it is kept when that happens the
    /// second time.
    ///
    /// # Errors
    /// Those of `render`.
    pub fn got(
        &self,
        resource: &Resource,
        stored: &Arc<Stored>,
        out: &mut Vec<u8>,
        render: impl FnOnce(&mut Vec<u8>) -> Result<Range<usize>>,
    ) -> Result<()> {
        let of = Served::new(resource);
        self.item(of, stored, out, render, || self.at_hand.noted(of, stored))
    }

    /// Appends the item of an object, which `render` appends if it is not there, telling where its
    /// metadata lie; then it is kept if that is wanted.
    fn item(
        &self,
        of: Served,
        stored: &Arc<Stored>,
        out: &mut Vec<u8>,
        render: impl FnOnce(&mut Vec<u8>) -> Result<Range<usize>>,
        wanted: impl FnOnce() -> bool,
    ) -> Result<()> {
        if let Some(json) = self.shown(of, stored).as_ref().and_then(ItemJson::item) {
            out.extend_from_slice(json);
            return Ok(());
        }
        let begun = out.len();
        let metadata = render(out)?;
        if wanted() {
            let metadata = if metadata.is_empty() {
                0..0
            } else {
                metadata.start - begun..metadata.end - begun
            };
            self.keep(
                of,
                stored,
                ItemJson::new(out[begun..].into(), true, metadata),
            );
        }
        Ok(())
    }

    /// Keeps what was rendered in place of what was there of the object.
    fn keep(&self, of: Served, stored: &Arc<Stored>, shown: ItemJson) -> Arc<Rendered> {
        let rendered = Arc::new(Rendered {
            revision: stored.mod_revision,
            shown,
            cells: OnceLock::new(),
        });
        self.all.insert(of.key(stored), rendered.clone());
        self.at_hand.put(of, stored, &rendered);
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
        let (at_hand, pods, others) = (AtHand::default(), Served(1), Served(2));
        let stored = |mod_revision| {
            Arc::new(Stored {
                key: "/a".to_owned(),
                value: Default::default(),
                create_revision: 1,
                mod_revision,
            })
        };
        let rendered = |revision| {
            let shown = ItemJson {
                json: [].into(),
                whole: true,
                metadata: 0..0,
            };
            Arc::new(Rendered {
                revision,
                shown,
                cells: OnceLock::new(),
            })
        };
        let (near, far) = (stored(7), stored(7 + AT_HAND as Revision));
        let (one, other) = (rendered(near.mod_revision), rendered(far.mod_revision));
        assert!(at_hand.get(pods, &near).is_none());
        at_hand.put(pods, &near, &one);
        assert!(
            at_hand
                .get(pods, &near)
                .is_some_and(|found| Arc::ptr_eq(&found, &one))
        );
        assert!(
            at_hand.get(others, &near).is_none(),
            "served as another resource"
        );
        assert!(
            at_hand.get(pods, &stored(7)).is_none(),
            "another object of that revision"
        );
        assert!(
            at_hand.get(pods, &far).is_none(),
            "another object with that place"
        );
        at_hand.put(pods, &far, &other);
        assert!(
            at_hand
                .get(pods, &far)
                .is_some_and(|found| Arc::ptr_eq(&found, &other))
        );
        assert!(at_hand.get(pods, &near).is_none(), "its place was taken");
        drop(other);
        assert!(at_hand.get(pods, &far).is_none(), "it was dropped");
    }

    /// A list of pods.
    fn shelf() -> Shelf {
        let pods = crate::schema::builtin()
            .resources
            .iter()
            .find(|decl| decl.resource == "pods")
            .expect("pods");
        Shelf::new(
            Arc::default(),
            &Resource::builtin(pods, crate::builtin::strategy("", "pods")),
        )
    }

    #[test]
    fn what_is_kept_is_what_was_rendered() {
        let (mut shelf, stored) = (
            shelf(),
            Arc::new(Stored {
                key: "/a".to_owned(),
                value: Default::default(),
                create_revision: 1,
                mod_revision: 7,
            }),
        );
        let nothing = |_: &mut Vec<u8>| -> Result<()> { panic!("it is there") };
        let bare = |out: &mut Vec<u8>| -> Result<()> {
            out.extend_from_slice(b"{1}");
            Ok(())
        };
        let first = shelf
            .metadata(&stored, bare)
            .expect("rendered")
            .expect("there is room");
        assert!(first.metadata() == Some(b"{1}") && first.item().is_none());
        let again = shelf
            .metadata(&stored, nothing)
            .expect("rendered")
            .expect("there is room");
        assert!(Arc::ptr_eq(&first.json, &again.json));

        let mut shown = b"before ".to_vec();
        let render = |out: &mut Vec<u8>| {
            out.extend_from_slice(b"{m:{1},s:{}}");
            Ok(10..13)
        };
        shelf.item(&stored, &mut shown, render).expect("rendered");
        shelf
            .item(&stored, &mut shown, |_| panic!("it is there"))
            .expect("rendered");
        assert_eq!(
            String::from_utf8_lossy(&shown),
            "before {m:{1},s:{}}{m:{1},s:{}}"
        );
        let kept = shelf
            .metadata(&stored, nothing)
            .expect("rendered")
            .expect("there is room");
        assert!(
            kept.metadata() == Some(b"{1}") && kept.item().is_some(),
            "the whole takes the place of the part"
        );

        let next = Arc::new(Stored {
            mod_revision: 8,
            ..Stored::clone(&stored)
        });
        let before = [Arc::downgrade(&first.json), Arc::downgrade(&kept.json)];
        drop((first, again, kept));
        shelf
            .item(&next, &mut shown, |_| Ok(0..0))
            .expect("rendered");
        shelf.cache.sweep();
        assert!(
            before.iter().all(|before| before.upgrade().is_none()),
            "what it was before goes"
        );
        let kept = shelf
            .metadata(&next, nothing)
            .expect("rendered")
            .expect("there is room");
        assert_eq!(kept.metadata(), None, "the item shows others");
        assert!(
            shelf
                .item(
                    &Arc::new(Stored {
                        key: "/b".to_owned(),
                        ..Stored::clone(&stored)
                    }),
                    &mut shown,
                    |_| Err(crate::meta::Status::internal("no"))
                )
                .is_err()
        );
    }

    #[test]
    fn what_is_got_is_kept_the_second_time() {
        let pods = crate::schema::builtin()
            .resources
            .iter()
            .find(|decl| decl.resource == "pods")
            .expect("pods");
        let pods = Resource::builtin(pods, crate::builtin::strategy("", "pods"));
        let cache = RenderedCache::default();
        let stored = |key: &str| {
            Arc::new(Stored {
                key: key.to_owned(),
                value: Default::default(),
                create_revision: 1,
                mod_revision: 7,
            })
        };
        let rendered = |stored: &Arc<Stored>| {
            let (mut out, mut rendered) = (Vec::new(), false);
            let render = |out: &mut Vec<u8>| {
                rendered = true;
                out.extend_from_slice(b"{}");
                Ok(0..0)
            };
            cache
                .got(&pods, stored, &mut out, render)
                .expect("rendered");
            assert_eq!(out, b"{}");
            rendered
        };
        let (one, other) = (stored("/a"), stored("/b"));
        assert_eq!(
            [&one, &one, &one, &one].map(rendered),
            [true, true, false, false]
        );
        assert_eq!(
            [&other, &one, &other, &other, &other].map(rendered),
            [true, false, true, true, false],
            "they share a place"
        );
        assert!(!rendered(&one), "the cache has it");
    }
}
