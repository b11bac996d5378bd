//! The index of a snapshot: objects by label, and by the fields that many clients select by.

use std::cmp::Ordering;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdSet;

use crate::storage::Stored;

use super::cached_object::CachedObject;

/// Something that an object carries, as a hash: of the objects found by it, each has to be looked
/// at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IndexKey(u64);

impl IndexKey {
    /// The term of a `name` with a `value`; `sort` keeps labels and fields apart.
    pub fn new(sort: &str, name: &str, value: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        (sort, name, value).hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// Lists the terms of an object. Whether it can be read at all, as far as can be told without
/// decoding it.
pub type IndexFn = Arc<dyn Fn(&Stored, &mut Vec<IndexKey>) -> bool + Send + Sync>;

/// An object under one of its terms; in order of the term, then of the object's key.
#[derive(Clone)]
struct Entry {
    term: IndexKey,
    stored: Arc<CachedObject>,
}

impl Entry {
    /// The position of the first entry of `term` at or after `key`.
    fn place(term: IndexKey, key: &str) -> Self {
        let stored = Stored {
            key: key.to_owned(),
            value: bytes::Bytes::new(),
            create_revision: 0,
            mod_revision: 0,
        };
        Self {
            term,
            stored: stored.into(),
        }
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.term
            .cmp(&other.term)
            .then_with(|| self.stored.key.cmp(&other.stored.key))
    }
}

/// The objects of a snapshot by their terms. Copies share everything.
#[derive(Clone, Default)]
pub(super) struct Index {
    terms_of: Option<IndexFn>,
    entries: OrdSet<Entry>,
    /// The keys of the objects that cannot be read: hardly ever any.
    unreadable: OrdSet<Arc<str>>,
}

impl Index {
    pub fn new(terms_of: Option<IndexFn>) -> Self {
        Self {
            terms_of,
            ..Self::default()
        }
    }

    /// An empty one that reads the same terms.
    pub fn emptied(&self) -> Self {
        Self::new(self.terms_of.clone())
    }

    /// The terms of an object, none without an index, and whether it can be read.
    fn terms(&self, stored: &Stored) -> (Vec<IndexKey>, bool) {
        let mut terms = Vec::new();
        let readable = self
            .terms_of
            .as_ref()
            .is_none_or(|terms_of| terms_of(stored, &mut terms));
        (terms, readable)
    }

    /// The first key below `prefix` of an object that cannot be read.
    pub fn unreadable(&self, prefix: &str) -> Option<&str> {
        let first = self
            .unreadable
            .range::<_, str>((Bound::Included(prefix), Bound::Unbounded))
            .next()?;
        first.starts_with(prefix).then_some(first)
    }

    /// Replaces an object (or nothing) by another (or nothing) with the same key. Gives the terms
    /// of either.
    pub fn replace(
        &mut self,
        previous: Option<&Arc<CachedObject>>,
        current: Option<&Arc<CachedObject>>,
    ) -> Vec<IndexKey> {
        let (mut terms, readable) =
            current.map_or_else(|| (Vec::new(), true), |current| self.terms(current));
        if let Some(previous) = previous.filter(|_| !self.unreadable.is_empty()) {
            self.unreadable.remove::<str>(&previous.key);
        }
        if let Some(current) = current {
            if !readable {
                self.unreadable.insert(current.key.as_str().into());
            }
            for &term in &terms {
                self.entries.insert(Entry {
                    term,
                    stored: current.clone(),
                });
            }
        }
        if let Some(previous) = previous {
            let (mut gone, _) = self.terms(previous);
            gone.retain(|term| !terms.contains(term));
            for &term in &gone {
                self.entries.remove(&Entry {
                    term,
                    stored: previous.clone(),
                });
            }
            terms.append(&mut gone);
        }
        terms
    }

    /// The objects with `term` below `prefix` from the key `start` on, in order.
    pub fn range<'a>(
        &'a self,
        term: IndexKey,
        prefix: &str,
        start: &str,
    ) -> impl Iterator<Item = &'a Arc<CachedObject>> + use<'a> {
        let from = Entry::place(term, start.max(prefix));
        let end = match (prefix_end(prefix), term.0.checked_add(1)) {
            (Some(end), _) => Bound::Excluded(Entry::place(term, &end)),
            (None, Some(next)) => Bound::Excluded(Entry::place(IndexKey(next), "")),
            (None, None) => Bound::Unbounded,
        };
        let empty = matches!(&end, Bound::Excluded(end) if from >= *end);
        let range = (!empty).then(|| self.entries.range((Bound::Included(from), end)));
        range.into_iter().flatten().map(|entry| &entry.stored)
    }

    /// The term that the fewest objects below `prefix` have: the one whose range ends first when
    /// all are walked in step.
    pub fn most_selective(&self, terms: &[IndexKey], prefix: &str) -> Option<IndexKey> {
        if let [] | [_] = terms {
            return terms.first().copied();
        }
        let mut ranges: Vec<_> = terms
            .iter()
            .map(|&term| (term, self.range(term, prefix, "")))
            .collect();
        loop {
            for (term, range) in &mut ranges {
                if range.next().is_none() {
                    return Some(*term);
                }
            }
        }
    }
}

/// The first key behind all that begin with `prefix`; `None` where there is none.
pub(super) fn prefix_end(prefix: &str) -> Option<String> {
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

    fn stored(key: &str, revision: i64) -> Arc<CachedObject> {
        CachedObject::shared(Stored {
            key: key.to_owned(),
            value: bytes::Bytes::new(),
            create_revision: 1,
            mod_revision: revision,
        })
    }

    /// The terms of an object in these tests: the letters of its name.
    fn letters() -> Index {
        Index::new(Some(Arc::new(
            |stored: &Stored, terms: &mut Vec<IndexKey>| {
                terms.extend(
                    stored
                        .key
                        .rsplit('/')
                        .next()
                        .unwrap_or_default()
                        .chars()
                        .map(letter),
                );
                !stored.key.ends_with('!')
            },
        )))
    }

    fn letter(letter: char) -> IndexKey {
        IndexKey::new("letter", &letter.to_string(), "")
    }

    #[test]
    fn objects_are_found_by_each_of_their_terms_and_the_rarest_is_known() {
        let mut index = letters();
        for key in ["/a/abc", "/a/ab", "/b/a", "/\u{10ffff}/a"] {
            index.replace(None, Some(&stored(key, 1)));
        }
        let found = |index: &Index, term, prefix: &str, start: &str| {
            index
                .range(letter(term), prefix, start)
                .map(|s| s.key.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            found(&index, 'a', "", ""),
            ["/a/ab", "/a/abc", "/b/a", "/\u{10ffff}/a"]
        );
        assert_eq!(found(&index, 'a', "/a/", ""), ["/a/ab", "/a/abc"]);
        assert_eq!(found(&index, 'a', "/a/", "/a/ab\0"), ["/a/abc"]);
        assert_eq!(found(&index, 'a', "/a/", "/b"), [""; 0]);
        assert_eq!(found(&index, 'c', "/\u{10ffff}", ""), [""; 0]);
        assert_eq!(found(&index, 'a', "/\u{10ffff}", ""), ["/\u{10ffff}/a"]);
        assert_eq!(
            index.most_selective(&[letter('a'), letter('b'), letter('c')], ""),
            Some(letter('c'))
        );
        assert_eq!(
            index.most_selective(&[letter('a'), letter('b')], "/b/"),
            Some(letter('b'))
        );
        assert_eq!(index.most_selective(&[], ""), None);
    }

    #[test]
    fn unreadable_objects_are_indexed_until_they_are_deleted() {
        let mut index = letters();
        for key in ["/a/a", "/a/b!", "/b/c!"] {
            index.replace(None, Some(&stored(key, 1)));
        }
        assert_eq!(
            (
                index.unreadable(""),
                index.unreadable("/b/"),
                index.unreadable("/c/")
            ),
            (Some("/a/b!"), Some("/b/c!"), None)
        );
        index.replace(Some(&stored("/a/b!", 1)), None);
        assert_eq!(
            (index.unreadable("/a/"), index.unreadable("")),
            (None, Some("/b/c!"))
        );
    }

    #[test]
    fn replaced_objects_leave_the_index() {
        let mut index = letters();
        let old = stored("/a/ab", 1);
        index.replace(None, Some(&old));
        let new = stored("/a/ab", 2);
        index.replace(Some(&old), Some(&new));
        assert_eq!(
            index
                .range(letter('a'), "", "")
                .map(|s| s.mod_revision)
                .collect::<Vec<_>>(),
            [2]
        );
        index.replace(Some(&new), None);
        assert!(index.entries.is_empty());
    }
}
