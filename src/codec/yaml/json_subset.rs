//! JSON in bodies that are declared as YAML, as most clients send it: parsed by the JSON reader.

use crate::codec::json;
use crate::meta::Value;

/// The tree of a JSON object that YAML reads just so, with its maps sorted by key. `None` where the
/// two might differ: for other text than plain ASCII, escapes that YAML has otherwise, numbers with
/// a fraction, keys that merge or are set twice or too long for YAML; and for what is no JSON.
pub(super) fn to_value(text: &str) -> Option<Value> {
    let bytes = text.as_bytes();
    let odd = |pair: &[u8]| pair[0] == b'\\' && !matches!(pair[1], b'"' | b'\\' | b'n');
    let key_over_lines = |line: &str| line.trim_start().starts_with(':');
    if bytes.first() != Some(&b'{') || bytes.len() > MAX_BYTES || text.lines().any(key_over_lines) {
        return None;
    }
    if !bytes.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n')) || bytes.windows(2).any(odd) {
        return None;
    }
    let (mut value, issues) = json::parse(bytes).ok()?;
    (issues.is_empty() && resolve_scalars(&mut value, MAX_DEPTH)).then_some(value)
}

/// The longest text that is looked at twice where it turns out to be YAML.
const MAX_BYTES: usize = 1_000_000;
/// The depth to which trees may nest: less than YAML takes.
const MAX_DEPTH: usize = 64;
/// The longest key that YAML takes without an indicator, in bytes, less some for escapes.
const KEY_MAX: usize = 512;

/// Sorts the maps; false for what YAML may read otherwise.
fn resolve_scalars(value: &mut Value, depth: usize) -> bool {
    match value {
        Value::Array(_) | Value::Object(_) if depth == 0 => false,
        Value::Number(number) => number.as_i64().is_some(),
        Value::Array(items) => items
            .iter_mut()
            .all(|item| resolve_scalars(item, depth - 1)),
        Value::Object(map) => {
            if !map.keys().is_sorted() {
                map.sort_keys();
            }
            map.iter_mut().all(|(key, value)| {
                key.len() <= KEY_MAX && *key != "<<" && resolve_scalars(value, depth - 1)
            })
        }
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::super::decode;
    use super::*;

    #[test]
    fn json_subset_equals_yaml() {
        for text in [
            r#"{"b":[1,-2,{"z":null,"a":true}],"a":{"y":"x: #y","b\"c\\":"\n"},"c":9007199254740993}"#,
            "{\n  \"a\": [],\n  \"B\": {},\n  \"no\": \"yes\", \"1\": \"1\"}\n",
            r#"{"a":"<<","b":"- x","c":" padded ","d":"---","e":"~","f":"0x1"}"#,
        ] {
            let plain = to_value(text).expect("plain");
            let (full, issues) = decode::read(text, None).expect("YAML");
            assert_eq!(
                (plain.to_string(), issues.len()),
                (full.to_string(), 0),
                "{text}"
            );
        }
    }

    #[test]
    fn json_subset_declines_ambiguous_values() {
        for text in [
            "a: 1",
            r#"{"a":1.5}"#,
            r#"{"a":1e3}"#,
            r#"{"a":"\u00e9"}"#,
            r#"{"a":"\/"}"#,
            r#"{"a":"é"}"#,
            "{\"a\":\t1}",
            r#"{"<<":{"a":1}}"#,
            r#"{"a":1,"a":2}"#,
            r#"{"a":1"#,
            "[1]",
            r#"{"a":99999999999999999999}"#,
            "{a: 1}",
            "{\"a\"\n: 1}",
        ] {
            assert!(to_value(text).is_none(), "{text}");
        }
    }
}
