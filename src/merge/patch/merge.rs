//! JSON merge patch (RFC 7396) as evanphx/json-patch v4 does it: nulls in new members vanish at
//! every depth, but stay where a map replaces a value of another type.

use super::{PatchError, sort_keys};
use crate::meta::{Map, Value};

/// Merges `patch` into `document`. A list takes the place of the whole document.
///
/// # Errors
/// [`PatchError::Malformed`] where the patch is null or a scalar.
pub fn apply(document: &mut Value, patch: Value) -> Result<(), PatchError> {
    match patch {
        Value::Object(patch) => match document {
            Value::Object(document) => merge(document, patch),
            other => {
                let mut patch = Value::Object(patch);
                prune(&mut patch);
                *other = patch;
            }
        },
        Value::Array(_) => {
            *document = patch;
            prune(document);
        }
        _ => return Err(PatchError::Malformed("Invalid JSON Patch".to_owned())),
    }
    Ok(())
}

fn merge(document: &mut Map, patch: Map) {
    for (key, mut value) in patch {
        match (document.get_mut(&key), value) {
            (_, Value::Null) => {
                // Order is made when all is done.
                document.swap_remove(&key);
            }
            (Some(Value::Object(current)), Value::Object(value)) => merge(current, value),
            (Some(current @ Value::Object(_)), replacement) => *current = replacement,
            (Some(current), replacement) if !current.is_null() => {
                *current = replacement;
                prune(current);
            }
            (_, new) => {
                value = new;
                prune(&mut value);
                document.insert(key, value);
            }
        }
    }
    sort_keys(document);
}

/// Drops the members of maps that are null, at every depth.
fn prune(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(prune);
            sort_keys(map);
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::meta::json;

    #[test]
    fn patches_merge() {
        for (document, patch, want) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": "b", "b": "c"}),
                json!({"a": null}),
                json!({"b": "c"}),
            ),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (
                json!({"a": "foo"}),
                json!({"a": {"bb": {"ccc": null}}}),
                json!({"a": {"bb": {}}}),
            ),
            (
                json!({}),
                json!({"a": {"bb": {"ccc": null}}, "l": [null, {"x": null}]}),
                json!({"a": {"bb": {}}, "l": [null, {}]}),
            ),
            (
                json!({"a": {"b": 1}}),
                json!({"a": [{"x": null}]}),
                json!({"a": [{"x": null}]}),
            ),
            (
                json!({"a": null}),
                json!({"a": {"x": null}}),
                json!({"a": {}}),
            ),
            (
                json!({"e": null}),
                json!({"a": 1}),
                json!({"e": null, "a": 1}),
            ),
            (json!({"a": 1}), json!(["c", {"x": null}]), json!(["c", {}])),
        ] {
            let mut out = document.clone();
            apply(&mut out, patch.clone()).expect("applies");
            assert_eq!(out, want, "{document} with {patch}");
        }
        for patch in [json!(null), json!("x"), json!(1)] {
            assert_eq!(
                apply(&mut json!({}), patch),
                Err(PatchError::Malformed("Invalid JSON Patch".to_owned()))
            );
        }
    }
}
