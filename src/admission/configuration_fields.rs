//! Checks that the configurations of plugins share.

use crate::meta::Value;

/// Returns the error of an object that has another field than those.
pub fn unknown_field(value: &Value, fields: &[&str]) -> Option<String> {
    let Some(map) = value.as_object() else {
        return Some("no object".to_owned());
    };
    let unknown = map.keys().find(|key| !fields.contains(&key.as_ref()));
    unknown.map(|key| format!("unknown field \"{key}\""))
}
