//! Objects that plugins follow, known from writes of this server before the client gets its answer
//! and from a watch for those of other servers. What is older than what is known is no news.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::meta::Object;

/// Objects that are gone and still known, so that older news of them are told from newer ones. The
/// oldest are forgotten.
pub const MAX_GONE: usize = 4096;

/// Follows the objects of a resource.
pub trait Observer: Send + Sync {
    /// Takes note of an object as it was written or read.
    fn observe(&self, object: &Object);

    /// Takes note of the end of an object at a revision.
    fn forget(&self, name: &str, revision: i64);

    /// Takes note of all objects that there were at a revision.
    fn replace(&self, objects: &[Object], revision: i64);
}

/// Objects with the revisions that they are known at.
pub struct Tracked<T> {
    known: HashMap<String, (i64, Option<Arc<T>>)>,
    /// The names of what went, the oldest first.
    gone: VecDeque<String>,
}

impl<T> Default for Tracked<T> {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
            gone: VecDeque::new(),
        }
    }
}

impl<T> Tracked<T> {
    pub fn get(&self, name: &str) -> Option<&Arc<T>> {
        self.known.get(name)?.1.as_ref()
    }

    /// The names and values of what there is, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Arc<T>)> {
        self.known
            .iter()
            .filter_map(|(name, (_, value))| Some((name, value.as_ref()?)))
    }

    /// Reports whether the state of a revision is news.
    pub fn is_news(&self, name: &str, revision: i64) -> bool {
        self.known
            .get(name)
            .is_none_or(|(known, _)| *known < revision)
    }

    pub fn insert(&mut self, name: &str, revision: i64, value: Arc<T>) {
        self.known.insert(name.to_owned(), (revision, Some(value)));
    }

    /// Takes note of an end; returns what there was. The end of something older is no news; where
    /// the revision is not known (0) it is that of whatever there is.
    pub fn remove(&mut self, name: &str, revision: i64) -> Option<Arc<T>> {
        let known = self.known.get_mut(name)?;
        if revision != 0 && known.0 > revision {
            return None;
        }
        let before = known.1.take()?;
        known.0 = known.0.max(revision);
        self.gone.push_back(name.to_owned());
        while self.gone.len() > MAX_GONE {
            let oldest = self.gone.pop_front().unwrap_or_default();
            if self.known.get(&oldest).is_some_and(|(_, it)| it.is_none()) {
                self.known.remove(&oldest);
            }
        }
        Some(before)
    }

    /// The names of what is known since `revision` at the latest, and not among `names`.
    pub fn missing(&self, names: &HashSet<&str>, revision: i64) -> Vec<String> {
        self.known
            .iter()
            .filter(|(name, (known, value))| {
                value.is_some() && *known <= revision && !names.contains(name.as_str())
            })
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// The number of names that are known, of what is gone too.
    #[cfg(test)]
    pub fn known(&self) -> usize {
        self.known.len()
    }
}
