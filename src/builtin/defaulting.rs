//! Filling in what a client left out: the few verbs that every kind's defaults are written with.

use crate::meta::{Map, Value};

/// The struct under `key`, if it is there.
pub fn part<'a>(map: &'a mut Map, key: &str) -> Option<&'a mut Map> {
    map.get_mut(key).and_then(Value::as_object_mut)
}

/// The struct under `key`, made where absent.
pub fn part_or_new<'a>(map: &'a mut Map, key: &'static str) -> &'a mut Map {
    let slot = map.entry(key).or_insert(Value::Null);
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    match slot {
        Value::Object(map) => map,
        _ => unreachable!("just made an object"),
    }
}

/// The structs in the list under `key`.
pub fn parts<'a>(map: &'a mut Map, key: &str) -> impl Iterator<Item = &'a mut Map> {
    let list = map.get_mut(key).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Sets a field that is absent.
pub fn fill(map: &mut Map, key: &str, value: impl Into<Value>) {
    if map.get(key).is_none_or(Value::is_null) {
        map.insert(key.to_owned(), value.into());
    }
}

/// Sets a string that is absent or empty.
pub fn fill_text(map: &mut Map, key: &str, text: &str) {
    if map
        .get(key)
        .and_then(Value::as_str)
        .is_none_or(str::is_empty)
    {
        map.insert(key.to_owned(), text.into());
    }
}

/// Sets a number that is absent or zero.
pub fn fill_number(map: &mut Map, key: &str, number: i64) {
    if map
        .get(key)
        .and_then(Value::as_i64)
        .is_none_or(|have| have == 0)
    {
        map.insert(key.to_owned(), number.into());
    }
}
