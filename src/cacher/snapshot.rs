//! An immutable state of one resource, in the order of its keys. Copies share everything.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use imbl::{HashMap, OrdSet};

use crate::storage::{Revision, Stored};

use super::ring::Change;

/// Reads the value that an object is indexed by.
pub type IndexFn = Arc<dyn Fn(&Stored) -> Arc<str> + Send + Sync>;

/// An object, in order of its key.
#[derive(Clone, Debug)]
struct Item(Arc<Stored>);

impl Borrow<str> for Item {
    fn borrow(&self) -> &str {
        &self.0.key
    }
}

impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for Item {}

impl PartialOrd for Item {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Item {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key.cmp(&other.0.key)
    }
}

/// All objects of a resource as they were at one revision. Cloning takes no time and no memory.
#[derive(Clone, Default)]
pub struct Snapshot {
    /// The revision that it is true at.
    pub revision: Revision,
    items: OrdSet<Item>,
    /// The objects by what [`IndexFn`] reads from them.
    by_value: HashMap<Arc<str>, OrdSet<Item>>,
    pub(super) index: Option<IndexFn>,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({} at {})", self.items.len(), self.revision)
    }
}

impl Snapshot {
    /// An empty state at revision 0.
    pub fn new(index: Option<IndexFn>) -> Self {
        Self { index, ..Self::default() }
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn get(&self, key: &str) -> Option<&Arc<Stored>> {
        self.items.get(key).map(|item| &item.0)
    }

    /// The objects below `prefix` from the key `start` on (the prefix itself where it is empty), in order.
    pub fn range<'a>(&'a self, prefix: &str, start: &str) -> impl Iterator<Item = &'a Arc<Stored>> + use<'a> {
        below(&self.items, prefix, start)
    }

    /// Like [`Snapshot::range`], of the objects with that indexed value alone. Nothing without an index.
    pub fn range_of<'a>(&'a self, value: &str, prefix: &str, start: &str) -> impl Iterator<Item = &'a Arc<Stored>> + use<'a> {
        self.by_value.get(value).map(|items| below(items, prefix, start)).into_iter().flatten()
    }

    /// What an object is indexed by; `None` without an index.
    pub(super) fn value_of(&self, stored: &Stored) -> Option<Arc<str>> {
        self.index.as_ref().map(|index| index(stored))
    }

    /// Adds or replaces an object; the one that was there before comes back.
    pub(super) fn put(&mut self, stored: Arc<Stored>) -> Option<Arc<Stored>> {
        let value = self.value_of(&stored);
        let previous = self.items.insert(Item(stored.clone())).map(|item| item.0);
        if let Some(value) = value {
            if let Some(previous) = &previous {
                self.unindex(previous);
            }
            self.by_value.entry(value).or_default().insert(Item(stored));
        }
        previous
    }

    /// Takes an object out.
    pub(super) fn remove(&mut self, key: &str) -> Option<Arc<Stored>> {
        let removed = self.items.remove(key).map(|item| item.0)?;
        self.unindex(&removed);
        Some(removed)
    }

    fn unindex(&mut self, stored: &Stored) {
        let Some(value) = self.value_of(stored) else { return };
        if let Some(items) = self.by_value.get_mut(&value) {
            items.remove(stored.key.as_str());
            if items.is_empty() {
                self.by_value.remove(&value);
            }
        }
    }

    /// Takes a change back.
    pub(super) fn undo(&mut self, change: &Change) {
        match &change.previous {
            Some(previous) => drop(self.put(previous.clone())),
            None => drop(change.current.as_ref().and_then(|current| self.remove(&current.key))),
        }
    }
}

/// The objects below `prefix` from the key `start` on. Keys are looked at where the stretch begins and ends, not between.
fn below<'a>(items: &'a OrdSet<Item>, prefix: &str, start: &str) -> impl Iterator<Item = &'a Arc<Stored>> + use<'a> {
    let end = behind(prefix);
    let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    let from = start.max(prefix);
    let empty = matches!(end, Bound::Excluded(end) if from >= end);
    let range: (Bound<&str>, Bound<&str>) = if empty { (Bound::Included(""), Bound::Excluded("")) } else { (Bound::Included(from), end) };
    items.range::<_, str>(range).map(|item| &item.0)
}

/// The first key behind all that begin with `prefix`; `None` where there is none.
fn behind(prefix: &str) -> Option<String> {
    let mut end = prefix.to_owned();
    while let Some(last) = end.pop() {
        if let Some(next) = (last..=char::MAX).nth(1) {
            end.push(next);
            return Some(end);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_is_what_begins_with_the_prefix() {
        let mut snapshot = Snapshot::new(Some(Arc::new(|stored: &Stored| stored.key.chars().take(2).collect::<String>().into())));
        for key in ["/a", "/a/", "/a/1", "/a/2", "/a0", "/b/1", "/\u{10ffff}", "/\u{10ffff}x", "/\u{d7ff}1"] {
            let stored = Stored { key: key.to_owned(), value: bytes::Bytes::new(), create_revision: 1, mod_revision: 1 };
            assert_eq!(snapshot.put(Arc::new(stored)), None);
        }
        let range = |prefix: &str, start: &str| snapshot.range(prefix, start).map(|s| s.key.clone()).collect::<Vec<_>>().join(" ");
        assert_eq!(range("/a/", ""), "/a/ /a/1 /a/2");
        assert_eq!(range("/a/", "/a/1\0"), "/a/2");
        assert_eq!(range("/a/", "/b"), "");
        assert_eq!(range("/a/", "/a/3"), "");
        assert_eq!(range("/c/", ""), "");
        assert_eq!(range("/\u{10ffff}", ""), "/\u{10ffff} /\u{10ffff}x");
        assert_eq!(range("/\u{d7ff}", ""), "/\u{d7ff}1");
        assert_eq!(range("", "").split(' ').count(), 9);
        assert_eq!(snapshot.range_of("/a", "/a/", "/a/2").map(|s| s.key.clone()).collect::<Vec<_>>(), ["/a/2"]);
        assert_eq!(snapshot.range_of("/c", "/", "").count(), 0);
    }
}
