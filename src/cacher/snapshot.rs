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
    pub fn range<'a>(&'a self, prefix: &'a str, start: &'a str) -> impl Iterator<Item = &'a Arc<Stored>> {
        below(&self.items, prefix, start)
    }

    /// Like [`Snapshot::range`], of the objects with that indexed value alone. Nothing without an index.
    pub fn range_of<'a>(&'a self, value: &str, prefix: &'a str, start: &'a str) -> impl Iterator<Item = &'a Arc<Stored>> {
        self.by_value.get(value).into_iter().flat_map(move |items| below(items, prefix, start))
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

fn below<'a>(items: &'a OrdSet<Item>, prefix: &'a str, start: &'a str) -> impl Iterator<Item = &'a Arc<Stored>> {
    let from: (Bound<&str>, Bound<&str>) = (Bound::Included(start.max(prefix)), Bound::Unbounded);
    items.range::<_, str>(from).map(|item| &item.0).take_while(move |stored| stored.key.starts_with(prefix))
}
