//! An immutable state of one resource, in the order of its keys. Copies share everything.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdSet;

use crate::storage::Revision;

use super::cached_object::CachedObject;
use super::index::{Index, IndexFn, IndexKey, prefix_end};
use super::ring::Change;

/// An object, in order of its key.
#[derive(Clone, Debug)]
struct Item(Arc<CachedObject>);

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
    /// The length of all values.
    bytes: u64,
    index: Index,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({} at {})", self.items.len(), self.revision)
    }
}

impl Snapshot {
    /// An empty state at revision 0.
    pub fn new(index: Option<IndexFn>) -> Self {
        Self {
            index: Index::new(index),
            ..Self::default()
        }
    }

    /// An empty state at revision 0 with the same index.
    pub(super) fn emptied(&self) -> Self {
        Self {
            index: self.index.emptied(),
            ..Self::default()
        }
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The length of all stored values.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn get(&self, key: &str) -> Option<&Arc<CachedObject>> {
        self.items.get(key).map(|item| &item.0)
    }

    /// The objects below `prefix` from the key `start` on (the prefix itself where it is empty), in
    /// order.
    pub fn range<'a>(
        &'a self,
        prefix: &str,
        start: &str,
    ) -> impl Iterator<Item = &'a Arc<CachedObject>> + use<'a> {
        below(&self.items, prefix, start)
    }

    /// Like [`Snapshot::range`], of the objects with that term alone. Nothing without an index.
    pub fn range_by_index<'a>(
        &'a self,
        term: IndexKey,
        prefix: &str,
        start: &str,
    ) -> impl Iterator<Item = &'a Arc<CachedObject>> + use<'a> {
        self.index.range(term, prefix, start)
    }

    /// The first key below `prefix` of an object that cannot be read, as far as the index can tell.
    pub fn unreadable(&self, prefix: &str) -> Option<&str> {
        self.index.unreadable(prefix)
    }

    /// That of the terms which the fewest objects below `prefix` have.
    pub fn most_selective(&self, terms: &[IndexKey], prefix: &str) -> Option<IndexKey> {
        self.index.most_selective(terms, prefix)
    }

    /// Adds or replaces an object; the one that was there before comes back, with the terms of
    /// either.
    pub(super) fn put(
        &mut self,
        stored: Arc<CachedObject>,
    ) -> (Option<Arc<CachedObject>>, Vec<IndexKey>) {
        let previous = self.items.insert(Item(stored.clone())).map(|item| item.0);
        let replaced = previous.as_ref().map_or(0, |old| old.value.len());
        self.bytes = self.bytes + stored.value.len() as u64 - replaced as u64;
        let terms = self.index.replace(previous.as_ref(), Some(&stored));
        (previous, terms)
    }

    /// Takes an object out; it comes back with its terms.
    pub(super) fn remove(&mut self, key: &str) -> Option<(Arc<CachedObject>, Vec<IndexKey>)> {
        let removed = self.items.remove(key).map(|item| item.0)?;
        self.bytes -= removed.value.len() as u64;
        let terms = self.index.replace(Some(&removed), None);
        Some((removed, terms))
    }

    /// Brings an object back to what it was before a change.
    pub(super) fn undo(&mut self, change: &Change) {
        match &change.previous {
            Some(previous) => drop(self.put(previous.clone())),
            None => drop(self.remove(change.key())),
        }
    }
}

/// The objects below `prefix` from the key `start` on. Keys are looked at where the stretch begins
/// and ends, not between.
fn below<'a>(
    items: &'a OrdSet<Item>,
    prefix: &str,
    start: &str,
) -> impl Iterator<Item = &'a Arc<CachedObject>> + use<'a> {
    let end = prefix_end(prefix);
    let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    let from = start.max(prefix);
    let empty = matches!(end, Bound::Excluded(end) if from >= end);
    let range: (Bound<&str>, Bound<&str>) = if empty {
        (Bound::Included(""), Bound::Excluded(""))
    } else {
        (Bound::Included(from), end)
    };
    items.range::<_, str>(range).map(|item| &item.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_follow_every_change() {
        let stored = |value: &'static str| {
            let value = bytes::Bytes::from_static(value.as_bytes());
            let stored = crate::storage::Stored {
                key: "/a".to_owned(),
                value,
                create_revision: 1,
                mod_revision: 1,
            };
            Arc::<CachedObject>::from(stored)
        };
        let mut snapshot = Snapshot::new(None);
        for (value, bytes) in [("four", 4), ("sixsix", 6), ("", 0), ("one", 3)] {
            snapshot.put(stored(value));
            assert_eq!(snapshot.bytes(), bytes);
        }
        snapshot.remove("/b");
        snapshot.remove("/a");
        assert_eq!((snapshot.bytes(), snapshot.len()), (0, 0));
    }

    #[test]
    fn a_stretch_is_what_begins_with_the_prefix() {
        let mut snapshot = Snapshot::new(None);
        for key in [
            "/a",
            "/a/",
            "/a/1",
            "/a/2",
            "/a0",
            "/b/1",
            "/\u{10ffff}",
            "/\u{10ffff}x",
            "/\u{d7ff}1",
        ] {
            let stored = crate::storage::Stored {
                key: key.to_owned(),
                value: bytes::Bytes::new(),
                create_revision: 1,
                mod_revision: 1,
            };
            let (previous, terms) = snapshot.put(stored.into());
            assert!(previous.is_none() && terms.is_empty());
        }
        let range = |prefix: &str, start: &str| {
            snapshot
                .range(prefix, start)
                .map(|s| s.key.clone())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(range("/a/", ""), "/a/ /a/1 /a/2");
        assert_eq!(range("/a/", "/a/1\0"), "/a/2");
        assert_eq!(range("/a/", "/b"), "");
        assert_eq!(range("/a/", "/a/3"), "");
        assert_eq!(range("/c/", ""), "");
        assert_eq!(range("/\u{10ffff}", ""), "/\u{10ffff} /\u{10ffff}x");
        assert_eq!(range("/\u{d7ff}", ""), "/\u{d7ff}1");
        assert_eq!(range("", "").split(' ').count(), 9);
    }
}
