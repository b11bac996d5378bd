//! Uniqueness of items in lists with `x-kubernetes-list-type` set and map (apiextensions
//! `schema/listtype`).

use std::collections::{HashMap, HashSet};

use crate::extensions::schema::json_schema_props::JsonSchemaProps;
use crate::extensions::schema::lazy_path::LazyPath;
use crate::meta::{ErrorList, Key, Map, Value};

/// Every item of a set or map list that is there twice, reported at its second place.
pub fn validate(place: &LazyPath<'_>, schema: &JsonSchemaProps, entries: &Map) -> ErrorList {
    let mut errors = ErrorList::new();
    check(&mut errors, place, schema, entries);
    errors
}

fn check(errors: &mut ErrorList, place: &LazyPath<'_>, schema: &JsonSchemaProps, entries: &Map) {
    if errors.is_full() {
        return;
    }
    let mut names: Vec<&Key> = entries.keys().collect();
    names.sort_unstable();
    for name in names {
        let value = &entries[name];
        if let Some(property) = schema.properties.get(name.as_str()) {
            below(errors, &LazyPath::Field(place, name), property, value);
        } else if let Some(additional) = schema.additional_schema() {
            below(errors, &LazyPath::Key(place, name), additional, value);
        }
    }
}

fn below(errors: &mut ErrorList, place: &LazyPath<'_>, schema: &JsonSchemaProps, value: &Value) {
    match value {
        Value::Object(entries) => check(errors, place, schema, entries),
        Value::Array(items) => {
            match schema.list_type.as_deref() {
                Some("set") => repeated(errors, place, items.iter().cloned()),
                Some("map") => repeated_keys(errors, place, &schema.list_map_keys, items),
                _ => {}
            }
            if let Some(below_items) = schema.items.as_deref() {
                for (index, item) in items.iter().enumerate() {
                    below(errors, &LazyPath::Index(place, index), below_items, item);
                }
            }
        }
        _ => {}
    }
}

fn repeated_keys(errors: &mut ErrorList, place: &LazyPath<'_>, keys: &[String], items: &[Value]) {
    if let Some((index, item)) = items
        .iter()
        .enumerate()
        .find(|(_, item)| !item.is_object() && !item.is_null())
    {
        let what = "must be an object for an array of list-type map";
        return errors.invalid(&LazyPath::Index(place, index).path(), item.clone(), what);
    }
    let keys: HashSet<&str> = keys.iter().map(String::as_str).collect();
    let key = |item: &Value| {
        let given = item.as_object().into_iter().flatten();
        let mut key: Map = given
            .filter(|(name, _)| keys.contains(name.as_str()))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        key.sort_keys();
        Value::Object(key)
    };
    repeated(errors, place, items.iter().map(key));
}

/// An error for the first repetition of each value.
fn repeated(errors: &mut ErrorList, place: &LazyPath<'_>, values: impl Iterator<Item = Value>) {
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (index, mut value) in values.enumerate() {
        value.sort_all_objects();
        let count = seen.entry(value.to_string()).or_default();
        *count += 1;
        if *count == 2 && !errors.is_full() {
            errors.duplicate(&LazyPath::Index(place, index).path(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    #[test]
    fn repeated_list_items_are_refused() {
        let schema = JsonSchemaProps::read(&json!({"type": "object", "properties": {
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["p", "k"],
                "items": {"type": "object"}}}}));
        let value = json!({"set": ["a", "b", "a", "a"], "map": [{"k": "a", "p": 1}, {"p": 1, "k": "a", "v": 2}]});
        let errors = validate(
            &LazyPath::EMPTY,
            &schema,
            value.as_object().expect("an object"),
        );
        let shown: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                r#"map[1]: Duplicate value: {"k":"a","p":1}"#,
                r#"set[2]: Duplicate value: "a""#
            ]
        );
    }
}
