//! What `x-kubernetes-list-type` set and map promise: no item twice (apiextensions `schema/listtype`).

use super::props::Props;
use crate::meta::{ErrorList, FieldError, Key, Map, Path, Value};

/// Every item of a set or map list that is there twice, reported at its second place.
pub fn validate(path: &Path, schema: &Props, entries: &Map) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut names: Vec<&Key> = entries.keys().collect();
    names.sort_unstable();
    for name in names {
        let value = &entries[name];
        if let Some(property) = schema.properties.get(name.as_str()) {
            errors.extend(below(&path.child(name), property, value));
        } else if let Some(additional) = schema.additional_schema() {
            errors.extend(below(&path.key(name), additional, value));
        }
    }
    errors
}

fn below(path: &Path, schema: &Props, value: &Value) -> ErrorList {
    match value {
        Value::Object(entries) => validate(path, schema, entries),
        Value::Array(items) => {
            let mut errors = match schema.list_type.as_deref() {
                Some("set") => repeated(path, items.to_vec()),
                Some("map") => repeated_keys(path, &schema.list_map_keys, items),
                _ => ErrorList::new(),
            };
            if let Some(below_items) = schema.items.as_deref() {
                errors.extend(items.iter().enumerate().flat_map(|(index, item)| below(&path.index(index), below_items, item)));
            }
            errors
        }
        _ => ErrorList::new(),
    }
}

fn repeated_keys(path: &Path, keys: &[String], items: &[Value]) -> ErrorList {
    if let Some((index, item)) = items.iter().enumerate().find(|(_, item)| !item.is_object() && !item.is_null()) {
        return [FieldError::invalid(&path.index(index), item.clone(), "must be an object for an array of list-type map")].into();
    }
    let key = |item: &Value| {
        let given = keys.iter().filter_map(|key| item.get(key).map(|value| (key.clone(), value.clone())));
        let mut key: Map = given.collect();
        key.sort_keys();
        Value::Object(key)
    };
    repeated(path, items.iter().map(key).collect())
}

/// An error for the first repetition of each value.
fn repeated(path: &Path, values: Vec<Value>) -> ErrorList {
    let mut seen: std::collections::HashMap<String, usize> = std::collections::HashMap::new();
    let mut errors = ErrorList::new();
    for (index, mut value) in values.into_iter().enumerate() {
        value.sort_all_objects();
        let count = seen.entry(value.to_string()).or_default();
        *count += 1;
        if *count == 2 {
            errors.push(FieldError::duplicate(&path.index(index), value));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    #[test]
    fn the_second_of_two_is_refused() {
        let schema = Props::read(&json!({"type": "object", "properties": {
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["p", "k"],
                "items": {"type": "object"}}}}));
        let value = json!({"set": ["a", "b", "a", "a"], "map": [{"k": "a", "p": 1}, {"p": 1, "k": "a", "v": 2}]});
        let errors = validate(&Path::default(), &schema, value.as_object().expect("an object"));
        let shown: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(shown, [r#"map[1]: Duplicate value: {"k":"a","p":1}"#, r#"set[2]: Duplicate value: "a""#]);
    }
}
