//! The entry of a map under a key.

use super::{Key, Map, Value};

/// The entry of a key in a map, which may be there or not.
#[derive(Debug)]
pub struct Entry<'a> {
    map: &'a mut Map,
    key: Key,
    place: Option<usize>,
}

impl<'a> Entry<'a> {
    pub(super) fn new(map: &'a mut Map, key: Key, place: Option<usize>) -> Self {
        Self { map, key, place }
    }

    pub fn or_insert(self, value: Value) -> &'a mut Value {
        self.or_insert_with(|| value)
    }

    pub fn or_insert_with(self, value: impl FnOnce() -> Value) -> &'a mut Value {
        let place = self
            .place
            .unwrap_or_else(|| self.map.push(self.key, value()));
        self.map.at_mut(place)
    }
}
