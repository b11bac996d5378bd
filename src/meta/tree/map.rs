//! Maps that keep the order of their keys.

use std::fmt;
use std::sync::{Arc, OnceLock};

use indexmap::IndexMap;

use super::entry::Entry;
use super::{Key, Value};

/// Number of entries up to which a map is searched linearly; larger ones have a hash index.
const SHORT: usize = 32;

/// A JSON object. Keys keep the order in which they came.
#[derive(Clone)]
pub struct Map(Form);

#[derive(Clone)]
enum Form {
    Parsed(Entries),
    Raw(Arc<Raw>),
}

#[derive(Clone)]
enum Entries {
    Short(Vec<(Key, Value)>),
    Long(Box<IndexMap<Key, Value>>),
}

/// The text of a JSON object, parsed on first access.
struct Raw {
    text: String,
    entries: OnceLock<Entries>,
}

impl Raw {
    fn entries(&self) -> &Entries {
        self.entries
            .get_or_init(|| match serde_json::from_str::<Map>(&self.text) {
                Ok(Map(Form::Parsed(entries))) => entries,
                _ => Entries::Short(Vec::new()),
            })
    }
}

impl Map {
    pub const fn new() -> Self {
        Self(Form::Parsed(Entries::Short(Vec::new())))
    }

    /// Returns a map that is parsed on first access. `text` is a JSON object, compact and escaped
    /// as Go does it, of at most [`Map::MAX_RAW_DEPTH`] levels.
    pub fn from_raw_json(text: String) -> Self {
        if text == "{}" {
            return Self::new();
        }
        Self(Form::Raw(Arc::new(Raw {
            text,
            entries: OnceLock::new(),
        })))
    }

    /// Maximum nesting depth of a text for [`Map::from_raw_json`].
    pub const MAX_RAW_DEPTH: usize = 100;

    /// Returns the text of a map from [`Map::from_raw_json`] that has not been changed since.
    pub fn raw_json(&self) -> Option<&str> {
        match &self.0 {
            Form::Parsed(_) => None,
            Form::Raw(raw) => Some(&raw.text),
        }
    }

    #[inline]
    fn entries(&self) -> &Entries {
        match &self.0 {
            Form::Parsed(entries) => entries,
            Form::Raw(raw) => raw.entries(),
        }
    }

    #[inline]
    fn entries_mut(&mut self) -> &mut Entries {
        if let Form::Raw(raw) = &mut self.0 {
            let sole = Arc::get_mut(raw).and_then(|raw| raw.entries.take());
            self.0 = Form::Parsed(sole.unwrap_or_else(|| raw.entries().clone()));
        }
        match &mut self.0 {
            Form::Parsed(entries) => entries,
            Form::Raw(_) => unreachable!("a raw map was replaced above"),
        }
    }

    pub fn with_capacity(capacity: usize) -> Self {
        Self(Form::Parsed(if capacity <= SHORT {
            Entries::Short(Vec::with_capacity(capacity))
        } else {
            Entries::Long(Box::new(IndexMap::with_capacity(capacity)))
        }))
    }

    #[inline]
    pub fn len(&self) -> usize {
        match self.entries() {
            Entries::Short(entries) => entries.len(),
            Entries::Long(entries) => entries.len(),
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.raw_json().is_none() && self.len() == 0
    }

    /// The place of a key.
    #[inline]
    pub fn position(&self, key: &str) -> Option<usize> {
        match self.entries() {
            Entries::Short(entries) => entries.iter().position(|(other, _)| other.as_str() == key),
            Entries::Long(entries) => entries.get_index_of(key),
        }
    }

    #[inline]
    pub fn get(&self, key: &str) -> Option<&Value> {
        match self.entries() {
            Entries::Short(entries) => entries
                .iter()
                .find(|(other, _)| other.as_str() == key)
                .map(|(_, value)| value),
            Entries::Long(entries) => entries.get(key),
        }
    }

    #[inline]
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        match self.entries_mut() {
            Entries::Short(entries) => entries
                .iter_mut()
                .find(|(other, _)| other.as_str() == key)
                .map(|(_, value)| value),
            Entries::Long(entries) => entries.get_mut(key),
        }
    }

    pub fn contains_key(&self, key: &str) -> bool {
        self.position(key).is_some()
    }

    /// The value at a place that there is.
    pub(super) fn at_mut(&mut self, place: usize) -> &mut Value {
        match self.entries_mut() {
            Entries::Short(entries) => &mut entries[place].1,
            Entries::Long(entries) => &mut entries[place],
        }
    }

    /// Appends an entry whose key is new, and returns its index.
    pub(super) fn push(&mut self, key: Key, value: Value) -> usize {
        let place = self.len();
        match self.entries_mut() {
            Entries::Short(entries) if entries.len() < SHORT => entries.push((key, value)),
            Entries::Short(entries) => {
                let mut long: IndexMap<Key, Value> = std::mem::take(entries).into_iter().collect();
                long.insert(key, value);
                self.0 = Form::Parsed(Entries::Long(Box::new(long)));
            }
            Entries::Long(entries) => {
                entries.insert(key, value);
            }
        }
        place
    }

    /// Appends an entry whose key is known not to be there yet.
    pub fn append(&mut self, key: Key, value: Value) {
        debug_assert!(!self.contains_key(&key), "{key} is there already");
        self.push(key, value);
    }

    /// Sets the value of a key, in its place if it is there, else at the end. Returns what it was.
    pub fn insert(&mut self, key: impl Into<Key>, value: Value) -> Option<Value> {
        let key = key.into();
        if let Entries::Long(entries) = self.entries_mut() {
            return entries.insert(key, value);
        }
        match self.get_mut(&key) {
            Some(slot) => Some(std::mem::replace(slot, value)),
            None => {
                self.push(key, value);
                None
            }
        }
    }

    /// Sets the value of a key and moves it to the place `at`.
    pub fn shift_insert(&mut self, at: usize, key: impl Into<Key>, value: Value) -> Option<Value> {
        let key = key.into();
        match self.entries_mut() {
            Entries::Short(entries) => {
                let before = entries
                    .iter()
                    .position(|(other, _)| *other == key)
                    .map(|place| entries.remove(place).1);
                if entries.len() == SHORT {
                    self.push(key.clone(), Value::Null);
                    return self.shift_insert(at, key, value).and(before);
                }
                entries.insert(at, (key, value));
                before
            }
            Entries::Long(entries) => entries.shift_insert(at, key, value),
        }
    }

    /// Takes an entry out; those behind it move up.
    pub fn shift_remove(&mut self, key: &str) -> Option<Value> {
        match self.entries_mut() {
            Entries::Short(entries) => {
                let place = entries
                    .iter()
                    .position(|(other, _)| other.as_str() == key)?;
                Some(entries.remove(place).1)
            }
            Entries::Long(entries) => entries.shift_remove(key),
        }
    }

    /// Takes an entry out and puts the last one in its place.
    pub fn swap_remove(&mut self, key: &str) -> Option<Value> {
        match self.entries_mut() {
            Entries::Short(entries) => {
                let place = entries
                    .iter()
                    .position(|(other, _)| other.as_str() == key)?;
                Some(entries.swap_remove(place).1)
            }
            Entries::Long(entries) => entries.swap_remove(key),
        }
    }

    /// The entry of a key, to look at and to fill.
    pub fn entry(&mut self, key: impl Into<Key>) -> Entry<'_> {
        let key = key.into();
        let place = self.position(&key);
        Entry::new(self, key, place)
    }

    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Keeps the entries for which `keep` returns true.
    pub fn retain(&mut self, mut keep: impl FnMut(&Key, &mut Value) -> bool) {
        match self.entries_mut() {
            Entries::Short(entries) => entries.retain_mut(|(key, value)| keep(key, value)),
            Entries::Long(entries) => entries.retain(|key, value| keep(key, value)),
        }
    }

    /// Puts the entries into the order of their keys.
    pub fn sort_keys(&mut self) {
        match self.entries_mut() {
            Entries::Short(entries) => entries.sort_by(|(a, _), (b, _)| a.cmp(b)),
            Entries::Long(entries) => entries.sort_keys(),
        }
    }

    pub fn iter(&self) -> Iter<'_> {
        Iter(match self.entries() {
            Entries::Short(entries) => Either::Short(entries.iter()),
            Entries::Long(entries) => Either::Long(entries.iter()),
        })
    }

    pub fn iter_mut(&mut self) -> IterMut<'_> {
        IterMut(match self.entries_mut() {
            Entries::Short(entries) => Either::Short(entries.iter_mut()),
            Entries::Long(entries) => Either::Long(entries.iter_mut()),
        })
    }

    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &Key> + ExactSizeIterator + Clone {
        self.iter().map(|(key, _)| key)
    }

    pub fn values(&self) -> impl DoubleEndedIterator<Item = &Value> + ExactSizeIterator + Clone {
        self.iter().map(|(_, value)| value)
    }

    pub fn values_mut(&mut self) -> impl ExactSizeIterator<Item = &mut Value> {
        self.iter_mut().map(|(_, value)| value)
    }
}

impl Default for Map {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

/// Maps are equal regardless of the order of their keys.
impl PartialEq for Map {
    fn eq(&self, other: &Self) -> bool {
        if self
            .raw_json()
            .is_some_and(|text| other.raw_json() == Some(text))
        {
            return true;
        }
        if self.len() != other.len() {
            return false;
        }
        // Mostly the order is the same.
        let mut ahead = other.iter();
        self.iter().all(|(key, value)| match ahead.next() {
            Some((same, theirs)) if same == key => theirs == value,
            _ => other.get(key) == Some(value),
        })
    }
}

impl Eq for Map {}

impl std::ops::Index<&str> for Map {
    type Output = Value;
    fn index(&self, key: &str) -> &Value {
        self.get(key).expect("no entry found for key")
    }
}

impl<K: Into<Key>> Extend<(K, Value)> for Map {
    fn extend<I: IntoIterator<Item = (K, Value)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.insert(key, value);
        }
    }
}

impl<K: Into<Key>> FromIterator<(K, Value)> for Map {
    fn from_iter<I: IntoIterator<Item = (K, Value)>>(entries: I) -> Self {
        let entries = entries.into_iter();
        let mut map = Self::with_capacity(entries.size_hint().0);
        map.extend(entries);
        map
    }
}

/// Iterates in one of the two ways.
#[derive(Clone, Debug)]
enum Either<S, L> {
    Short(S),
    Long(L),
}

/// The entries of a map in order.
#[derive(Clone, Debug)]
pub struct Iter<'a>(
    Either<std::slice::Iter<'a, (Key, Value)>, indexmap::map::Iter<'a, Key, Value>>,
);

/// The entries of a map in order, with values to change.
#[derive(Debug)]
pub struct IterMut<'a>(
    Either<std::slice::IterMut<'a, (Key, Value)>, indexmap::map::IterMut<'a, Key, Value>>,
);

/// The entries of a map that is no more.
#[derive(Debug)]
pub struct IntoIter(Either<std::vec::IntoIter<(Key, Value)>, indexmap::map::IntoIter<Key, Value>>);

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a Key, &'a Value);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Either::Short(entries) => entries.next().map(|(key, value)| (key, value)),
            Either::Long(entries) => entries.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
            Either::Short(entries) => entries.size_hint(),
            Either::Long(entries) => entries.size_hint(),
        }
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Either::Short(entries) => entries.next_back().map(|(key, value)| (key, value)),
            Either::Long(entries) => entries.next_back(),
        }
    }
}

impl ExactSizeIterator for Iter<'_> {}

impl<'a> Iterator for IterMut<'a> {
    type Item = (&'a Key, &'a mut Value);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Either::Short(entries) => entries.next().map(|(key, value)| (&*key, value)),
            Either::Long(entries) => entries.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
            Either::Short(entries) => entries.size_hint(),
            Either::Long(entries) => entries.size_hint(),
        }
    }
}

impl ExactSizeIterator for IterMut<'_> {}

impl Iterator for IntoIter {
    type Item = (Key, Value);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Either::Short(entries) => entries.next(),
            Either::Long(entries) => entries.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
            Either::Short(entries) => entries.size_hint(),
            Either::Long(entries) => entries.size_hint(),
        }
    }
}

impl ExactSizeIterator for IntoIter {}

impl<'a> IntoIterator for &'a Map {
    type Item = (&'a Key, &'a Value);
    type IntoIter = Iter<'a>;
    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut Map {
    type Item = (&'a Key, &'a mut Value);
    type IntoIter = IterMut<'a>;
    fn into_iter(self) -> IterMut<'a> {
        self.iter_mut()
    }
}

impl IntoIterator for Map {
    type Item = (Key, Value);
    type IntoIter = IntoIter;
    fn into_iter(mut self) -> IntoIter {
        IntoIter(match self.entries_mut() {
            Entries::Short(entries) => Either::Short(std::mem::take(entries).into_iter()),
            Entries::Long(entries) => Either::Long(std::mem::take(&mut **entries).into_iter()),
        })
    }
}
