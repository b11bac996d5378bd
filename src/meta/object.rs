//! An API object as a tree of JSON values, with the accessors of ObjectMeta that every verb needs.

use std::ops::{Deref, DerefMut};

use crate::meta::{Map, Value};

/// A JSON object that is an API object. It keeps the order of its keys, which is the order of the
/// schema once [`crate::codec`] has seen it. Absent and empty are the same to every accessor.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Object(pub Map);

impl Deref for Object {
    type Target = Map;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Object {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl From<Object> for Value {
    fn from(object: Object) -> Value {
        Value::Object(object.0)
    }
}

impl Object {
    /// The object in `value`, or `None` where it is another JSON type.
    pub fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Object(map) => Some(Self(map)),
            _ => None,
        }
    }

    /// Puts the keys into alphabetical order, at every depth.
    pub fn sort(&mut self) {
        self.0.sort_keys();
        self.0.values_mut().for_each(Value::sort_all_objects);
    }

    /// The value at a slash-separated path of keys and list indexes, such as `/spec/template`.
    pub fn at(&self, path: &str) -> Option<&Value> {
        let (first, rest) = split_pointer(path)?;
        value_at(self.0.get(first)?, rest)
    }

    /// Like [`Object::at`], for change in place.
    pub fn at_mut(&mut self, path: &str) -> Option<&mut Value> {
        let (first, rest) = split_pointer(path)?;
        let value = self.0.get_mut(first)?;
        if rest.is_empty() {
            Some(value)
        } else {
            value.pointer_mut(rest)
        }
    }

    pub fn str_at(&self, path: &str) -> &str {
        self.at(path).and_then(Value::as_str).unwrap_or("")
    }

    pub fn i64_at(&self, path: &str) -> Option<i64> {
        self.at(path).and_then(Value::as_i64)
    }

    pub fn bool_at(&self, path: &str) -> bool {
        self.at(path).and_then(Value::as_bool).unwrap_or(false)
    }

    pub fn array_at(&self, path: &str) -> &[Value] {
        self.at(path)
            .and_then(Value::as_array)
            .map_or(&[], Vec::as_slice)
    }

    /// The texts of the list at a path; none if there is no list.
    pub fn texts_at(&self, path: &str) -> Vec<String> {
        texts_of(self.array_at(path))
    }

    /// The map under a top-level key, made where it is absent (or of another type).
    pub fn section_mut(&mut self, key: &'static str) -> &mut Map {
        let slot = self
            .0
            .entry(key)
            .or_insert_with(|| Value::Object(Map::new()));
        if !slot.is_object() {
            *slot = Value::Object(Map::new());
        }
        slot.as_object_mut().expect("just made an object")
    }

    pub fn metadata(&self) -> Option<&Map> {
        self.0.get("metadata").and_then(Value::as_object)
    }

    pub fn metadata_mut(&mut self) -> &mut Map {
        self.section_mut("metadata")
    }

    fn meta_str(&self, key: &str) -> &str {
        self.metadata()
            .and_then(|meta| meta.get(key))
            .and_then(Value::as_str)
            .unwrap_or("")
    }

    /// Sets a string of ObjectMeta; the empty string removes it.
    pub fn set_meta_str(&mut self, key: &str, value: &str) {
        if value.is_empty() {
            self.metadata_mut().shift_remove(key);
        } else {
            self.metadata_mut()
                .insert(key.to_owned(), Value::String(value.to_owned()));
        }
    }

    pub fn api_version(&self) -> &str {
        self.0
            .get("apiVersion")
            .and_then(Value::as_str)
            .unwrap_or("")
    }

    pub fn kind(&self) -> &str {
        self.0.get("kind").and_then(Value::as_str).unwrap_or("")
    }

    pub fn name(&self) -> &str {
        self.meta_str("name")
    }

    pub fn generate_name(&self) -> &str {
        self.meta_str("generateName")
    }

    pub fn namespace(&self) -> &str {
        self.meta_str("namespace")
    }

    pub fn uid(&self) -> &str {
        self.meta_str("uid")
    }

    pub fn resource_version(&self) -> &str {
        self.meta_str("resourceVersion")
    }

    /// Sets the resourceVersion, in its place among the members of ObjectMeta.
    pub fn set_resource_version(&mut self, version: &str) {
        let meta = self.metadata_mut();
        if meta.contains_key("resourceVersion") {
            return self.set_meta_str("resourceVersion", version);
        }
        let before = ["name", "generateName", "namespace", "selfLink", "uid"];
        let at = meta
            .keys()
            .take_while(|key| before.contains(&key.as_str()))
            .count();
        meta.shift_insert(at, "resourceVersion".to_owned(), version.into());
    }

    pub fn creation_timestamp(&self) -> &str {
        self.meta_str("creationTimestamp")
    }

    pub fn deletion_timestamp(&self) -> Option<&str> {
        self.metadata()
            .and_then(|meta| meta.get("deletionTimestamp"))
            .and_then(Value::as_str)
    }

    pub fn deletion_grace_period_seconds(&self) -> Option<i64> {
        self.metadata()
            .and_then(|meta| meta.get("deletionGracePeriodSeconds"))
            .and_then(Value::as_i64)
    }

    pub fn generation(&self) -> i64 {
        self.metadata()
            .and_then(|meta| meta.get("generation"))
            .and_then(Value::as_i64)
            .unwrap_or(0)
    }

    pub fn set_generation(&mut self, generation: i64) {
        self.metadata_mut().insert("generation", generation.into());
    }

    pub fn finalizers(&self) -> &[Value] {
        self.array_at("/metadata/finalizers")
    }

    /// Labels in their stored order; `None` where there are none.
    /// Whether its JSON has more than about so many bytes. It costs a look at no more than that.
    pub fn is_larger_than(&self, bytes: usize) -> bool {
        exceeds(&self.0, bytes).is_none()
    }

    pub fn labels(&self) -> Option<&Map> {
        self.metadata()
            .and_then(|meta| meta.get("labels"))
            .and_then(Value::as_object)
    }

    /// Sets a label.
    pub fn set_label(&mut self, key: &str, value: &str) {
        let mut labels = self.labels().cloned().unwrap_or_default();
        labels.insert(key.to_owned(), value.into());
        self.metadata_mut().insert("labels", Value::Object(labels));
    }

    pub fn annotations(&self) -> Option<&Map> {
        self.metadata()
            .and_then(|meta| meta.get("annotations"))
            .and_then(Value::as_object)
    }

    /// Sets an annotation.
    pub fn set_annotation(&mut self, key: &str, value: &str) {
        let mut annotations = self.annotations().cloned().unwrap_or_default();
        annotations.insert(key.to_owned(), value.into());
        self.metadata_mut()
            .insert("annotations", Value::Object(annotations));
    }
}

/// Splits `/first/rest` into `first` and `/rest`. Keys here are schema names: none holds a slash or
/// tilde.
fn split_pointer(path: &str) -> Option<(&str, &str)> {
    let path = path.strip_prefix('/')?;
    Some(match path.find('/') {
        Some(at) => (&path[..at], &path[at..]),
        None => (path, ""),
    })
}

/// The value at a JSON pointer below `value`. As in [`split_pointer`], no key holds a slash or
/// tilde.
pub fn value_at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    if path.is_empty() {
        return Some(value);
    }
    path.strip_prefix('/')?
        .split('/')
        .try_fold(value, |value, part| match value {
            Value::Object(map) => map.get(part),
            Value::Array(items) => part.parse().ok().and_then(|index: usize| items.get(index)),
            _ => None,
        })
}

/// The string at a JSON pointer below `value`, empty where absent.
pub fn str_at<'a>(value: &'a Value, path: &str) -> &'a str {
    value_at(value, path).and_then(Value::as_str).unwrap_or("")
}

/// The integer at a JSON pointer below `value`.
pub fn i64_at(value: &Value, path: &str) -> Option<i64> {
    value_at(value, path).and_then(Value::as_i64)
}

/// The boolean at a JSON pointer below `value`, false where absent.
pub fn bool_at(value: &Value, path: &str) -> bool {
    value_at(value, path)
        .and_then(Value::as_bool)
        .unwrap_or(false)
}

/// The list at a JSON pointer below `value`, empty where absent.
pub fn array_at<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    value_at(value, path)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The texts of the list at a path; none if there is no list.
pub fn texts_at(value: &Value, path: &str) -> Vec<String> {
    texts_of(array_at(value, path))
}

fn texts_of(items: &[Value]) -> Vec<String> {
    let texts = items.iter().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

/// The map at a JSON pointer below `value`.
pub fn map_at<'a>(value: &'a Value, path: &str) -> Option<&'a Map> {
    value_at(value, path).and_then(Value::as_object)
}

/// Returns the part of `bytes` that the members of a map leave; `None` if they take more.
fn exceeds(map: &Map, bytes: usize) -> Option<usize> {
    if let Some(text) = map.raw_json() {
        return bytes.checked_sub(text.len());
    }
    map.iter().try_fold(bytes, |left, (key, value)| {
        exceeds_in(value, left.checked_sub(key.len() + 4)?)
    })
}

fn exceeds_in(value: &Value, bytes: usize) -> Option<usize> {
    match value {
        Value::Object(map) => exceeds(map, bytes),
        Value::Array(items) => items
            .iter()
            .try_fold(bytes, |left, item| exceeds_in(item, left.checked_sub(1)?)),
        Value::String(text) => bytes.checked_sub(text.len() + 2),
        Value::Null | Value::Bool(_) | Value::Number(_) => bytes.checked_sub(4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_without_looking_at_everything() {
        let object = Object::from_value(crate::meta::json!({"a": ["x".repeat(100), {"b": 1}]}))
            .expect("an object");
        assert_eq!(
            [90, 110, 130].map(|bytes| object.is_larger_than(bytes)),
            [true, true, false]
        );
    }
    use crate::meta::json;

    #[test]
    fn paths_reach_into_maps_and_lists() {
        let object =
            Object::from_value(json!({"spec": {"ports": [{"port": 80}]}})).expect("an object");
        assert_eq!(object.i64_at("/spec/ports/0/port"), Some(80));
        assert_eq!(object.at("/spec/ports/1/port"), None);
        assert_eq!(object.at("spec"), None, "a path starts with a slash");
    }

    #[test]
    fn an_empty_string_is_an_absent_one() {
        let mut object = Object::default();
        object.set_meta_str("name", "a");
        assert_eq!(object.name(), "a");
        object.set_meta_str("name", "");
        assert_eq!(object.metadata().map(Map::len), Some(0));
    }
}
