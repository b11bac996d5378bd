//! Trees to JSON, byte for byte as Go's `encoding/json` writes it.

use super::escape::write_string;
use crate::meta::{Map, Object, Value};

/// Compact JSON, without a newline at the end.
pub fn encode(object: &Object) -> Vec<u8> {
    let mut out = Vec::with_capacity(4096);
    write_map(object, &mut out);
    out
}

/// A value as compact JSON.
pub fn text_of(value: &Value) -> String {
    let mut out = Vec::new();
    encode_value(value, &mut out);
    String::from_utf8(out).unwrap_or_default()
}

/// Appends a value as compact JSON.
pub fn encode_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => write_number(number, out),
        Value::String(text) => write_string(text, out),
        Value::Array(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                encode_value(item, out);
            }
            out.push(b']');
        }
        Value::Object(map) => write_map(map, out),
    }
}

fn write_map(map: &Map, out: &mut Vec<u8>) {
    if let Some(text) = map.raw_json() {
        return out.extend_from_slice(text.as_bytes());
    }
    out.push(b'{');
    for (index, (key, value)) in map.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_string(key, out);
        out.push(b':');
        encode_value(value, out);
    }
    out.push(b'}');
}

fn write_number(number: &serde_json::Number, out: &mut Vec<u8>) {
    match (number.as_i64(), number.as_u64(), number.as_f64()) {
        (Some(integer), ..) => write_i64(integer, out),
        (_, Some(integer), _) => out.extend_from_slice(integer.to_string().as_bytes()),
        (.., Some(float)) => write_f64(float, out),
        _ => out.extend_from_slice(number.to_string().as_bytes()),
    }
}

/// Appends an integer.
pub(in crate::codec) fn write_i64(integer: i64, out: &mut Vec<u8>) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = integer.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if integer < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// A float as Go writes it: without a needless fraction, with an exponent only where it is very
/// small or very large.
pub(in crate::codec) fn write_f64(float: f64, out: &mut Vec<u8>) {
    let magnitude = float.abs();
    if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        let text = format!("{float:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let sign = if exponent.starts_with('-') { "" } else { "+" };
        out.extend_from_slice(format!("{mantissa}e{sign}{exponent}").as_bytes());
    } else {
        out.extend_from_slice(float.to_string().as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    fn text(value: Value) -> String {
        let mut out = Vec::new();
        encode_value(&value, &mut out);
        String::from_utf8(out).expect("JSON is UTF-8")
    }

    #[test]
    fn values_are_written_as_go_writes_them() {
        assert_eq!(
            text(json!("<a>&\u{2028}\u{2029}…\u{1}\u{8}\n\"\\\u{7f}")),
            r#""\u003ca\u003e\u0026\u2028\u2029…\u0001\b\n\"\\"#.to_owned() + "\u{7f}\""
        );
        assert_eq!(
            text(json!([
                0,
                -1,
                i64::MIN,
                u64::MAX,
                1.0,
                0.5,
                1e21,
                1.5e-7,
                1e20
            ])),
            "[0,-1,-9223372036854775808,18446744073709551615,1,0.5,1e+21,1.5e-7,100000000000000000000]"
        );
        assert_eq!(
            text(json!({"b": null, "a": {"x": [true, false, {}]}})),
            r#"{"b":null,"a":{"x":[true,false,{}]}}"#
        );
    }
}
