//! JSON patch (RFC 6902) with the deviations of evanphx/json-patch v4: `replace` creates absent
//! members, an absent `value` is null, text before the first slash of a path is ignored, negative
//! indexes count from the end.

use std::collections::HashMap;

use super::{PatchError, sort_keys};
use crate::codec::{MAX_ISSUES, MAX_TREE_DEPTH};
use crate::meta::{Map, Value, go};

/// The maximum number of operations of one patch.
pub const MAX_OPERATIONS: usize = 10_000;
/// The maximum number of bytes (of JSON) that the `copy` operations of one patch may copy.
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;
/// The maximum number of items of lists that the operations of one patch may move to make or fill
/// gaps, with the values that they look through. Ten thousand operations on lists of some thousands
/// stay within it.
const MAX_MOVED: usize = 50_000_000;

/// The operations of a patch.
///
/// # Errors
/// 400 where the patch is not a list of objects, 413 where the list is too long.
pub fn operations(patch: Value) -> Result<Vec<Map>, PatchError> {
    let cannot = |what: &Value, into: &str| {
        let what = go::json_type(what);
        PatchError::Malformed(format!(
            "error decoding patch: json: cannot unmarshal {what} into Go value of type {into}"
        ))
    };
    let items = match patch {
        Value::Null => Vec::new(),
        Value::Array(items) => items,
        other => return Err(cannot(&other, "[]handlers.jsonPatchOp")),
    };
    if let Some(odd) = items
        .iter()
        .find(|item| !item.is_object() && !item.is_null())
    {
        return Err(cannot(odd, "handlers.jsonPatchOp"));
    }
    for item in items.iter().filter_map(Value::as_object) {
        for name in ["op", "path", "from"] {
            if let Some(odd) = item
                .get(name)
                .filter(|value| !value.is_string() && !value.is_null())
            {
                let what = go::json_type(odd);
                let message = format!(
                    "error decoding patch: json: cannot unmarshal {what} into Go struct field jsonPatchOp.{name} of type string"
                );
                return Err(PatchError::Malformed(message));
            }
        }
    }
    if items.len() > MAX_OPERATIONS {
        let message = format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            items.len()
        );
        return Err(PatchError::TooLarge(message));
    }
    let operation = |item| {
        if let Value::Object(operation) = item {
            operation
        } else {
            Map::new()
        }
    };
    Ok(items.into_iter().map(operation).collect())
}

/// Returns a strict decoder's errors for members that no operation has, such as `unknown field
/// "[0].extra"`.
pub fn unknown_fields(operations: &[Map]) -> Vec<String> {
    let known = ["op", "path", "from", "value"];
    // No more than a decoder reports.
    let unknown = operations
        .iter()
        .enumerate()
        .flat_map(|(index, operation)| {
            let keys = operation
                .keys()
                .filter(|key| !known.contains(&key.as_str()));
            keys.map(move |key| format!("unknown field \"[{index}].{key}\""))
        });
    unknown.take(MAX_ISSUES).collect()
}

/// The end of the error of a test that fails.
const TEST_FAILED: &str = "failed: test failed";

/// Reports whether an operation did not apply because it is a test that fails.
pub fn is_failed_test(why: &str) -> bool {
    why.ends_with(TEST_FAILED)
}

/// Applies `operations` one after the other. After an error `document` is in between.
///
/// # Errors
/// [`PatchError::Unfit`] at the first operation that does not apply, [`PatchError::TooLarge`] at
/// the first that moves too much.
pub fn apply(document: &mut Value, operations: Vec<Map>) -> Result<(), PatchError> {
    let mut bounds = Bounds {
        copied: 0,
        moved: 0,
        depth: depth(document),
    };
    let mut touched = Touched::default();
    for mut operation in operations {
        apply_one(document, &mut operation, &mut bounds).map_err(PatchError::Unfit)?;
        if bounds.moved > MAX_MOVED {
            return Err(PatchError::TooLarge(format!(
                "The operations of a JSON patch may move at most {MAX_MOVED} items of lists"
            )));
        }
        for path in ["path", "from"]
            .into_iter()
            .filter_map(|name| operation.get(name).and_then(Value::as_str))
        {
            touched.add(path.rsplit_once('/').map_or("", |(parents, _)| parents));
        }
    }
    touched.sort(document);
    Ok(())
}

/// The maps and lists that operations went through, as a tree: each is put into order once.
#[derive(Default)]
struct Touched(HashMap<String, Touched>);

impl Touched {
    /// Adds those on the way to the end of `path`, that one included.
    fn add(&mut self, path: &str) {
        path.split('/')
            .skip(1)
            .fold(self, |at, part| at.0.entry(unescape(part)).or_default());
    }

    /// Sorts the keys of each map.
    fn sort(&self, document: &mut Value) {
        if let Value::Object(map) = document {
            sort_keys(map);
        }
        for (part, below) in &self.0 {
            if let Some(next) = descend(document, part) {
                below.sort(next);
            }
        }
    }
}

/// Bounds on the work of all operations of one patch together.
struct Bounds {
    /// Bytes of JSON that were copied.
    copied: usize,
    /// Items of lists that were moved, and values that were looked through.
    moved: usize,
    /// Maximum nesting depth of the document.
    depth: usize,
}

impl Bounds {
    /// Takes note of a value of the patch that is to be put at `path`.
    fn place(&mut self, path: &str, value: &Value) -> Result<(), String> {
        self.reach(levels(path) + depth(value))
    }

    /// Takes note of a part of the document that is to be at `path`, too. Only where the estimate
    /// says too deep is the part looked at.
    fn transplant(&mut self, from: &str, path: &str, value: &Value) -> Result<(), String> {
        let estimate = levels(path) + self.depth.saturating_sub(levels(from));
        if estimate <= MAX_TREE_DEPTH {
            return self.reach(estimate);
        }
        self.moved += values(value);
        self.place(path, value)
    }

    fn add(&mut self, parent: &mut Value, key: &str, value: Value) -> Result<(), String> {
        let before = length(parent);
        self.moved += before.saturating_sub(index_of(key).unwrap_or(before));
        add(parent, key, value)
    }

    fn remove(&mut self, parent: &mut Value, key: &str) -> Result<Value, String> {
        self.moved += length(parent).saturating_sub(index_of(key).unwrap_or_default());
        remove(parent, key)
    }

    fn reach(&mut self, depth: usize) -> Result<(), String> {
        self.depth = self.depth.max(depth);
        if self.depth > MAX_TREE_DEPTH {
            Err("exceeded max depth".to_owned())
        } else {
            Ok(())
        }
    }
}

fn levels(path: &str) -> usize {
    path.bytes().filter(|&byte| byte == b'/').count()
}

/// Counts the values in a value, itself included.
fn values(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(values).sum::<usize>(),
        Value::Object(map) => 1 + map.values().map(values).sum::<usize>(),
        _ => 1,
    }
}

/// Returns the nesting depth of a value.
pub fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn apply_one(document: &mut Value, operation: &mut Map, bounds: &mut Bounds) -> Result<(), String> {
    let value = operation.shift_remove("value");
    let text = |name: &str| operation.get(name).and_then(Value::as_str);
    let kind = text("op").unwrap_or("unknown");
    let path = || {
        text("path").ok_or_else(|| format!("{kind} operation failed to decode path: missing value"))
    };
    let from = || {
        text("from").ok_or_else(|| format!("{kind} operation failed to decode from: missing value"))
    };
    match kind {
        "add" => {
            let path = path()?;
            let (parent, key) = locate(document, kind, "path", path)?;
            let value = value.unwrap_or_default();
            bounds.place(path, &value)?;
            let added = bounds.add(parent, &key, value);
            added.map_err(|why| failed("add", path, &why))
        }
        "remove" => {
            let path = path()?;
            let (parent, key) = locate(document, kind, "path", path)?;
            let removed = bounds.remove(parent, &key).map(drop);
            removed.map_err(|why| failed("remove", path, &why))
        }
        "replace" if path()?.is_empty() => match value {
            Some(value @ (Value::Object(_) | Value::Array(_))) => {
                *document = value;
                Ok(())
            }
            Some(_) => Err("replace operation value must be object or array".to_owned()),
            None => Err("replace operation has no value".to_owned()),
        },
        "replace" => {
            let path = path()?;
            let (parent, key) = locate(document, kind, "path", path)?;
            let value = value.unwrap_or_default();
            bounds.place(path, &value)?;
            // Upstream says so.
            replace(parent, &key, value).map_err(|why| failed("remove", path, &why))
        }
        "move" => {
            let (parent, key) = locate(document, kind, "from path", from()?)?;
            let removed = bounds.remove(parent, &key);
            let value = removed.map_err(|why| failed("move", &key, &why))?;
            let path = path()?;
            bounds.transplant(from()?, path, &value)?;
            let (parent, key) = locate(document, kind, "destination path", path)?;
            let added = bounds.add(parent, &key, value);
            added.map_err(|why| failed("move", path, &why))
        }
        "copy" => copy(document, bounds, from()?, path),
        "test" => test(document, path()?, value.as_ref()),
        other => Err(format!("Unexpected kind: {other}")),
    }
}

/// Copies a value; the destination is asked for when the value has been found.
fn copy<'p>(
    document: &mut Value,
    bounds: &mut Bounds,
    from: &str,
    path: impl FnOnce() -> Result<&'p str, String>,
) -> Result<(), String> {
    let (parent, key) = locate(document, "copy", "from path", from)?;
    let found =
        get(parent, &key).map_err(|why| format!("error in copy for from: '{from}': {why}"))?;
    let value = found.cloned().unwrap_or_default();
    bounds.copied += json_size(&value);
    if bounds.copied > MAX_COPIED_BYTES {
        let copied = bounds.copied;
        return Err(format!(
            "Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the limit {MAX_COPIED_BYTES}"
        ));
    }
    let path = path()?;
    bounds.transplant(from, path, &value)?;
    let (parent, key) = locate(document, "copy", "destination path", path)?;
    let added = bounds.add(parent, &key, value);
    added.map_err(|why| format!("error while adding value during copy: {why}"))
}

/// Compares a value of the document; absent and null are the same.
fn test(document: &mut Value, path: &str, value: Option<&Value>) -> Result<(), String> {
    let found = if path.is_empty() {
        Some(&*document)
    } else {
        let (parent, key) = locate(document, "test", "path", path)?;
        get(parent, &key).map_err(|why| failed("test", path, &why))?
    };
    match found.unwrap_or(&Value::Null) == value.unwrap_or(&Value::Null) {
        true => Ok(()),
        false => Err(format!("testing value {path} {TEST_FAILED}")),
    }
}

/// The bytes of `value` as JSON.
fn json_size(value: &Value) -> usize {
    let mut text = String::new();
    go::json(value, &mut text);
    text.len()
}

/// Like [`find`], with the error of an operation of `kind`, which says what path it is.
fn locate<'d>(
    document: &'d mut Value,
    kind: &str,
    what: &str,
    path: &str,
) -> Result<(&'d mut Value, String), String> {
    find(document, path).ok_or_else(|| {
        // As upstream says it.
        let missing = match kind {
            "add" | "remove" => format!("doc is missing {what}: \"{path}\""),
            "test" => format!("is missing {what}: {path}"),
            _ => format!("doc is missing {what}: {path}"),
        };
        format!("{kind} operation does not apply: {missing}: missing value")
    })
}

/// The error of an operation at a path that is there.
fn failed(kind: &str, path: &str, why: &str) -> String {
    format!("error in {kind} for path: '{path}': {why}")
}

/// The map or list that holds the end of `path`, and the key in it.
fn find<'d>(document: &'d mut Value, path: &str) -> Option<(&'d mut Value, String)> {
    let (parents, key) = path.rsplit_once('/')?;
    let mut at = document;
    // What comes before the first slash plays no part.
    for part in parents.split('/').skip(1) {
        at = descend(at, &unescape(part))?;
    }
    (at.is_object() || at.is_array()).then(|| (at, unescape(key)))
}

fn descend<'d>(at: &'d mut Value, part: &str) -> Option<&'d mut Value> {
    match at {
        Value::Object(map) => map.get_mut(part),
        Value::Array(items) => {
            let index = existing_index(part, items.len()).ok()?;
            items.get_mut(index)
        }
        _ => None,
    }
}

fn unescape(part: &str) -> String {
    if part.contains('~') {
        part.replace("~1", "/").replace("~0", "~")
    } else {
        part.to_owned()
    }
}

fn out_of_range(index: i64) -> String {
    format!("Unable to access invalid index: {index}: invalid index detected")
}

/// The index of one of `len` things; negative ones count from the end.
fn existing_index(key: &str, len: usize) -> Result<usize, String> {
    let index: i64 = key
        .parse()
        .map_err(|_| format!("strconv.Atoi: parsing {key:?}: invalid syntax"))?;
    let from_start = if index < 0 {
        index.saturating_add_unsigned(len as u64)
    } else {
        index
    };
    usize::try_from(from_start)
        .ok()
        .filter(|at| *at < len)
        .ok_or_else(|| out_of_range(index))
}

fn get<'d>(parent: &'d Value, key: &str) -> Result<Option<&'d Value>, String> {
    match parent {
        Value::Object(map) => Ok(map.get(key)),
        Value::Array(items) => existing_index(key, items.len()).map(|at| items.get(at)),
        _ => Ok(None),
    }
}

/// Returns the number of items of a list.
fn length(parent: &Value) -> usize {
    parent.as_array().map_or(0, Vec::len)
}

/// The place that a key names from the start of a list.
fn index_of(key: &str) -> Option<usize> {
    key.parse().ok()
}

fn add(parent: &mut Value, key: &str, value: Value) -> Result<(), String> {
    match parent {
        Value::Object(map) => {
            map.insert(key.to_owned(), value);
        }
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let at = existing_index(key, items.len() + 1)?;
            items.insert(at, value);
        }
        _ => {}
    }
    Ok(())
}

fn replace(parent: &mut Value, key: &str, value: Value) -> Result<(), String> {
    match parent {
        Value::Array(items) => {
            let at = existing_index(key, items.len())?;
            items[at] = value;
            Ok(())
        }
        other => add(other, key, value),
    }
}

fn remove(parent: &mut Value, key: &str) -> Result<Value, String> {
    match parent {
        // Order is made when all is done.
        Value::Object(map) => map
            .swap_remove(key)
            .ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value")),
        Value::Array(items) => existing_index(key, items.len()).map(|at| items.remove(at)),
        _ => Ok(Value::Null),
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::meta::{json, on_deep_stack};

    fn patched(document: Value, patch: Value) -> Result<Value, PatchError> {
        let mut document = document;
        apply(&mut document, operations(patch)?)?;
        Ok(document)
    }

    #[test]
    fn operations_change_the_document() {
        let document = json!({"data": {"a": "1", "b": "2"}, "list": [1, 2, 3]});
        for (patch, want) in [
            (
                json!([{"op": "add", "path": "/data/c", "value": "3"}]),
                json!({"data": {"a": "1", "b": "2", "c": "3"}, "list": [1, 2, 3]}),
            ),
            (
                json!([{"op": "replace", "path": "/data/z", "value": "9"}]),
                json!({"data": {"a": "1", "b": "2", "z": "9"}, "list": [1, 2, 3]}),
            ),
            (
                json!([{"op": "remove", "path": "/data"}]),
                json!({"list": [1, 2, 3]}),
            ),
            (
                json!([{"op": "move", "from": "/data/a", "path": "/data/x~1y"}]),
                json!({"data": {"b": "2", "x/y": "1"}, "list": [1, 2, 3]}),
            ),
            (
                json!([{"op": "copy", "from": "/data/none", "path": "/n"}]),
                json!({"data": {"a": "1", "b": "2"}, "list": [1, 2, 3], "n": null}),
            ),
            (
                json!([{"op": "add", "path": "/list/-", "value": 4}, {"op": "add", "path": "/list/0", "value": 0}]),
                json!({"data": {"a": "1", "b": "2"}, "list": [0, 1, 2, 3, 4]}),
            ),
            (
                json!([{"op": "remove", "path": "/list/-1"}]),
                json!({"data": {"a": "1", "b": "2"}, "list": [1, 2]}),
            ),
            (
                json!([{"op": "test", "path": "/absent", "value": null}]),
                document.clone(),
            ),
            (
                json!([{"op": "add", "path": "ignored/q"}]),
                json!({"data": {"a": "1", "b": "2"}, "list": [1, 2, 3], "q": null}),
            ),
            (
                json!([{"op": "replace", "path": "", "value": {"x": 1}}]),
                json!({"x": 1}),
            ),
            (json!(null), document.clone()),
        ] {
            assert_eq!(
                patched(document.clone(), patch.clone()).expect("applies"),
                want,
                "{patch}"
            );
        }
    }

    #[test]
    fn inapplicable_operations_are_refused() {
        let document = json!({"data": {"a": "1"}, "list": [1]});
        for patch in [
            json!([{}]),
            json!([{"op": "bogus", "path": "/data"}]),
            json!([{"op": "remove", "path": "/data/zz"}]),
            json!([{"op": "add", "path": "/nope/deep", "value": 1}]),
            json!([{"op": "add", "path": "", "value": {}}]),
            json!([{"op": "replace", "path": "", "value": 1}]),
            json!([{"op": "add", "path": "data", "value": {}}]),
            json!([{"op": "add", "value": {}}]),
            json!([{"op": "move", "from": "/data", "path": "/data/x"}]),
            json!([{"op": "test", "path": "/data/a", "value": "2"}]),
            json!([{"op": "add", "path": "/list/3", "value": 1}]),
            json!([{"op": "replace", "path": "/list/1", "value": 1}]),
            json!([{"op": "add", "path": "/data/a/b", "value": 1}]),
            json!([{"op": "add", "path": "/list/-9223372036854775808", "value": 1}]),
        ] {
            assert!(
                matches!(
                    patched(document.clone(), patch.clone()),
                    Err(PatchError::Unfit(_))
                ),
                "{patch}"
            );
        }
    }

    #[test]
    fn malformed_patches_are_told_from_large_ones() {
        let message = |patch| operations(patch).expect_err("refused").to_string();
        assert_eq!(
            message(json!({"op": "add"})),
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
        );
        let many = Value::Array(vec![json!({}); MAX_OPERATIONS + 1]);
        assert_eq!(
            message(many),
            "The allowed maximum operations in a JSON patch is 10000, got 10001"
        );
        let strict = operations(json!([{"op": "add", "extra": 1}])).expect("operations");
        assert_eq!(unknown_fields(&strict), [r#"unknown field "[0].extra""#]);
    }

    #[test]
    fn copies_are_bounded() {
        let doubling = Value::Array(vec![
            json!({"op": "copy", "from": "/a", "path": "/a/-"});
            64
        ]);
        let refused = patched(json!({"a": ["x".repeat(100)]}), doubling).expect_err("refused");
        assert!(
            refused
                .to_string()
                .starts_with("Unable to complete the copy"),
            "{refused}"
        );
    }

    #[test]
    fn moves_are_bounded() {
        let list = Value::Array(vec![json!(1); 100_000]);
        let many = |operation: Value| Value::Array(vec![operation; MAX_OPERATIONS]);
        for operation in [
            json!({"op": "add", "path": "/x/0", "value": 1}),
            json!({"op": "remove", "path": "/x/0"}),
        ] {
            let refused = patched(json!({"x": list}), many(operation)).expect_err("refused");
            assert!(matches!(refused, PatchError::TooLarge(_)), "{refused}");
        }
        let at_the_end = patched(
            json!({"x": list}),
            many(json!({"op": "add", "path": "/x/-", "value": 1})),
        )
        .expect("applies");
        assert_eq!(
            at_the_end["x"].as_array().map(Vec::len),
            Some(100_000 + MAX_OPERATIONS)
        );
    }

    #[test]
    fn touched_maps_are_sorted_once() {
        let entries: Map = (0..50_000)
            .map(|number| (format!("k{number}"), json!({"b": 1, "a": 1})))
            .collect();
        let operations: Vec<Value> = (0..MAX_OPERATIONS)
            .map(|number| json!({"op": "add", "path": format!("/x/k{number}/0"), "value": 1}))
            .collect();
        let out = patched(json!({"x": entries}), Value::Array(operations)).expect("applies");
        let inner = out["x"]["k1"].as_object().expect("a map");
        assert!(
            out["x"].as_object().expect("a map").keys().is_sorted()
                && inner.keys().is_sorted()
                && inner.len() == 3
        );
    }

    #[test]
    fn depth_is_bounded() {
        on_deep_stack(deep_patches);
    }

    fn deep_patches() {
        let deep =
            (0..MAX_TREE_DEPTH - 2).fold(json!(1), |below, _| Value::from_iter([("a", below)]));
        let nest = json!([{"op": "add", "path": "/x/y", "value": deep.clone()}]);
        let nested = patched(json!({"x": {}}), nest).expect("deep enough");
        let again = json!([{"op": "copy", "from": "/x", "path": "/x/y/a"}]);
        assert_eq!(
            patched(nested.clone(), again),
            Err(PatchError::Unfit("exceeded max depth".to_owned()))
        );
        let back_and_forth = (0..100).flat_map(|_| [("/x/y", "/x/z"), ("/x/z", "/x/y")]);
        let moves: Vec<Value> = back_and_forth
            .map(|(from, path)| json!({"op": "move", "from": from, "path": path}))
            .collect();
        assert_eq!(patched(nested.clone(), Value::Array(moves)), Ok(nested));
    }

    #[test]
    fn touched_levels_are_in_go_order() {
        let document = json!({"z": {"b": 1, "a": {"d": 1, "c": 1}}, "a": 1});
        let out =
            patched(document, json!([{"op": "add", "path": "/z/x", "value": 1}])).expect("applies");
        assert_eq!(
            out.to_string(),
            r#"{"a":1,"z":{"a":{"d":1,"c":1},"b":1,"x":1}}"#
        );
    }
}
