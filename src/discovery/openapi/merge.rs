//! The documents of other servers, merged into one of everything (kube-openapi `pkg/aggregator`).

use std::collections::{HashMap, HashSet};

use crate::meta::{Map, Value, str_at};

const DEFINITIONS: &str = "#/definitions/";
/// The bytes of shared parameters and responses that are put in the places of references to them.
const MAX_INLINED_BYTES: usize = 16 << 20;
/// The highest number in the new name of a definition.
const MAX_SUFFIX: usize = 1000;
const KINDS: &str = "x-kubernetes-group-version-kind";
/// The sections of a document that references may lead to, besides that of definitions; their
/// contents are put in the place of the reference.
const SHARED: [&str; 2] = ["parameters", "responses"];

/// Returns the part of a document that is about the paths below a prefix, in the form in which it
/// can be merged.
///
/// # Errors
/// What it shares is too large.
pub fn part(mut document: Value, prefix: &str) -> Result<Value, String> {
    let mut shared = HashMap::new();
    for key in SHARED {
        for (name, content) in take(&mut document, key) {
            let bytes = content.to_string().len();
            shared.insert(format!("#/{key}/{name}"), (content, bytes));
        }
    }
    let mut paths = take(&mut document, "paths");
    let mut left = MAX_INLINED_BYTES;
    for item in paths.values_mut() {
        inline(item, &shared, &mut left)?;
    }
    let definitions = take(&mut document, "definitions");
    let used_before = used(&paths, &definitions);
    paths.retain(|path, _| path.starts_with(prefix));
    Ok(keep_used(paths, definitions, &used_before))
}

/// A document of paths with the definitions that they use, and those that no path ever used.
fn keep_used(paths: Map, mut definitions: Map, used_before: &HashSet<String>) -> Value {
    let used = used(&paths, &definitions);
    definitions.retain(|name, _| used.contains(&**name) || !used_before.contains(&**name));
    Value::Object(Map::from_iter([
        ("paths".to_owned(), Value::Object(paths)),
        ("definitions".to_owned(), Value::Object(definitions)),
    ]))
}

fn take(document: &mut Value, key: &str) -> Map {
    let section = document.get_mut(key).map(Value::take);
    match section {
        Some(Value::Object(map)) => map,
        _ => Map::default(),
    }
}

/// Puts shared parameters and responses in the place of the references to them.
fn inline(
    value: &mut Value,
    shared: &HashMap<String, (Value, usize)>,
    left: &mut usize,
) -> Result<(), String> {
    if let Some((content, bytes)) = shared.get(str_at(value, "/$ref")) {
        let too_many = || "the shared parameters are too large".to_owned();
        *left = left.checked_sub(*bytes).ok_or_else(too_many)?;
        *value = content.clone();
        return Ok(());
    }
    match value {
        Value::Object(map) => map
            .values_mut()
            .try_for_each(|one| inline(one, shared, left)),
        Value::Array(items) => items
            .iter_mut()
            .try_for_each(|one| inline(one, shared, left)),
        _ => Ok(()),
    }
}

/// The names of the definitions that paths refer to, directly or by way of others.
fn used(paths: &Map, definitions: &Map) -> HashSet<String> {
    let mut found = HashSet::new();
    let mut next: Vec<&Value> = paths.values().collect();
    while let Some(value) = next.pop() {
        match value {
            Value::Object(map) => {
                let target = map.get("$ref").and_then(Value::as_str);
                let name = target.and_then(|target| target.strip_prefix(DEFINITIONS));
                if let Some(name) = name
                    && found.insert(name.to_owned())
                {
                    next.extend(definitions.get(name));
                }
                next.extend(map.values());
            }
            Value::Array(items) => next.extend(items),
            _ => {}
        }
    }
    found
}

/// Merges a part into a document. Paths that the document has already stay, and a definition that
/// is another than the document's of the same name gets a new name.
pub fn merge(document: &mut Value, mut part: Value) {
    let (mut paths, mut definitions) = (take(&mut part, "paths"), take(&mut part, "definitions"));
    let known = section(document, "paths");
    let count = paths.len();
    let before = (count > 0).then(|| used(&paths, &definitions));
    paths.retain(|path, _| !known.contains_key(path));
    let Some(before) = before.filter(|_| !paths.is_empty()) else {
        return;
    };
    if paths.len() < count {
        let mut kept = keep_used(paths, definitions, &before);
        (paths, definitions) = (take(&mut kept, "paths"), take(&mut kept, "definitions"));
    }
    let known = section(document, "definitions");
    let names = new_names(known, &definitions);
    if !names.is_empty() {
        paths.values_mut().for_each(|one| rename(one, &names));
        definitions.values_mut().for_each(|one| rename(one, &names));
    }
    for (name, definition) in definitions {
        let name = names
            .get(&*name)
            .cloned()
            .unwrap_or_else(|| name.to_string());
        match known.get_mut(&name) {
            Some(known) => add_kinds(known, &definition),
            None => drop(known.insert(name, definition)),
        }
    }
    let known = section(document, "paths");
    for (path, item) in paths {
        known.insert(path, item);
    }
    known.sort_keys();
    section(document, "definitions").sort_keys();
}

fn section<'a>(document: &'a mut Value, key: &'static str) -> &'a mut Map {
    if document.get(key).is_none_or(|section| !section.is_object()) {
        document[key] = Value::Object(Map::default());
    }
    match &mut document[key] {
        Value::Object(map) => map,
        // It has just been made one.
        _ => unreachable!("a section is an object"),
    }
}

/// The new names of definitions that are others than the known ones of the same name.
fn new_names(known: &Map, definitions: &Map) -> HashMap<String, String> {
    let mut names: HashMap<String, String> = HashMap::new();
    let mut given: HashSet<String> = HashSet::new();
    for (name, definition) in definitions.iter() {
        if known.get(name).is_none_or(|known| same(known, definition)) {
            continue;
        }
        let free = (2..=MAX_SUFFIX)
            .map(|number| format!("{name}_v{number}"))
            .find(|candidate| match known.get(candidate) {
                Some(known) => same(known, definition),
                None => !definitions.contains_key(candidate) && !given.contains(candidate),
            });
        // The document's own is used where there are too many.
        let Some(free) = free else { continue };
        given.insert(free.clone());
        names.insert(name.to_string(), free);
    }
    names
}

/// Reports whether two definitions are the same but for the kinds that they are used for.
fn same(one: &Value, other: &Value) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else {
        return one == other;
    };
    let rest = |map: &Map| map.len() - usize::from(map.contains_key(KINDS));
    rest(one) == rest(other)
        && one
            .iter()
            .all(|(key, value)| key == KINDS || other.get(key) == Some(value))
}

/// Gives definitions the names that others know them by.
fn rename(value: &mut Value, names: &HashMap<String, String>) {
    match value {
        Value::Object(map) => {
            for (key, one) in map.iter_mut() {
                let target = one.as_str().filter(|_| key == "$ref");
                let name = target.and_then(|target| names.get(target.strip_prefix(DEFINITIONS)?));
                match name {
                    Some(name) => *one = format!("{DEFINITIONS}{name}").into(),
                    None => rename(one, names),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|one| rename(one, names)),
        _ => {}
    }
}

/// Adds the kinds that the other definition is used for.
fn add_kinds(known: &mut Value, other: &Value) {
    let Some(more) = other.get(KINDS).and_then(Value::as_array) else {
        return;
    };
    let mut kinds = match known.get(KINDS) {
        Some(Value::Array(kinds)) => kinds.clone(),
        Some(_) => return,
        None => Vec::new(),
    };
    let count = kinds.len();
    for kind in more {
        if !kinds.contains(kind) {
            kinds.push(kind.clone());
        }
    }
    if kinds.len() > count {
        kinds.sort_by_cached_key(|kind| {
            let part = |key| str_at(kind, key).to_owned();
            format!("{}/{}.{}", part("/group"), part("/version"), part("/kind"))
        });
        known[KINDS] = kinds.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    fn get(definition: &str) -> Value {
        let schema = json!({"$ref": format!("#/definitions/{definition}")});
        json!({"get": {"responses": {"200": {"schema": schema}}}})
    }

    #[test]
    fn parts_have_their_paths_and_what_these_use() {
        let document = json!({
            "swagger": "2.0",
            "paths": {"/apis/g/v1/": get("a"), "/apis/other/v1/": get("c"), "/apis/g/v1/x": {
                "parameters": [{"$ref": "#/parameters/pretty"}],
            }},
            "parameters": {"pretty": {"name": "pretty", "in": "query"}},
            "definitions": {
                "a": {"properties": {"b": {"$ref": "#/definitions/b"}}}, "b": {"type": "string"},
                "c": {"type": "integer"}, "unused": {"type": "boolean"},
            },
        });
        let part = part(document, "/apis/g/v1/").expect("a document");
        let names = |key| -> Vec<String> {
            let section = part[key].as_object().expect("a section");
            section.keys().map(|key| key.to_string()).collect()
        };
        assert_eq!(names("paths"), ["/apis/g/v1/", "/apis/g/v1/x"]);
        assert_eq!(names("definitions"), ["a", "b", "unused"]);
        let parameters = &part["paths"]["/apis/g/v1/x"]["parameters"];
        assert_eq!(*parameters, json!([{"name": "pretty", "in": "query"}]));
    }

    #[test]
    fn definitions_of_the_same_name_are_told_apart() {
        let kind = |group: &str| json!([{"group": group, "version": "v1", "kind": "Delete"}]);
        let mut document = json!({
            "paths": {"/mine": get("a")},
            "definitions": {
                "a": {"type": "string"}, "a_v2": {"type": "number"},
                "options": {"type": "object", KINDS: kind("z")},
            },
        });
        let part = json!({
            "paths": {"/mine": get("options"), "/theirs": get("a"), "/delete": get("options")},
            "definitions": {
                "a": {"type": "integer"}, "options": {"type": "object", KINDS: kind("b")},
            },
        });
        merge(&mut document, part.clone());
        merge(&mut document, part);
        assert_eq!(
            document,
            json!({
                "paths": {"/delete": get("options"), "/mine": get("a"), "/theirs": get("a_v3")},
                "definitions": {
                    "a": {"type": "string"}, "a_v2": {"type": "number"}, "a_v3": {"type": "integer"},
                    "options": {"type": "object", KINDS: [
                        {"group": "b", "version": "v1", "kind": "Delete"},
                        {"group": "z", "version": "v1", "kind": "Delete"},
                    ]},
                },
            })
        );
    }

    #[test]
    fn definitions_that_refer_in_circles_end() {
        let document = json!({
            "paths": {"/apis/g/v1/": get("a")},
            "definitions": {"a": {"items": {"$ref": "#/definitions/a"}}},
        });
        let part = part(document, "/apis/g/v1/").expect("a document");
        assert!(part["definitions"]["a"].is_object());
    }
}
