//! Trees to JSON, byte for byte as Go's `encoding/json` writes it.

use crate::meta::{Map, Object, Value};

/// Compact JSON, without a newline at the end.
pub fn encode(object: &Object) -> Vec<u8> {
    let mut out = Vec::with_capacity(4096);
    write_map(object, &mut out);
    out
}

/// JSON indented by two spaces, as Go's `MarshalIndent` writes it, without a newline at the end.
pub fn encode_pretty(object: &Object) -> Vec<u8> {
    let mut out = Vec::with_capacity(8192);
    pretty_map(object, &mut out, 0);
    out
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

/// Appends a value as JSON indented by two spaces per level.
pub fn encode_value_pretty(value: &Value, out: &mut Vec<u8>) {
    pretty(value, out, 0);
}

fn write_map(map: &Map<String, Value>, out: &mut Vec<u8>) {
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

fn pretty(value: &Value, out: &mut Vec<u8>, level: usize) {
    match value {
        Value::Array(items) if !items.is_empty() => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                new_line(out, level + 1);
                pretty(item, out, level + 1);
            }
            new_line(out, level);
            out.push(b']');
        }
        Value::Object(map) => pretty_map(map, out, level),
        other => encode_value(other, out),
    }
}

fn pretty_map(map: &Map<String, Value>, out: &mut Vec<u8>, level: usize) {
    out.push(b'{');
    for (index, (key, value)) in map.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        new_line(out, level + 1);
        write_string(key, out);
        out.extend_from_slice(b": ");
        pretty(value, out, level + 1);
    }
    if !map.is_empty() {
        new_line(out, level);
    }
    out.push(b'}');
}

fn new_line(out: &mut Vec<u8>, level: usize) {
    out.push(b'\n');
    out.resize(out.len() + level * 2, b' ');
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

/// A float as Go writes it: without a needless fraction, with an exponent only where it is very small or very large.
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

/// Whether Go writes a byte of a string as it is.
const PLAIN: [bool; 256] = {
    let mut plain = [true; 256];
    let mut byte = 0;
    while byte < 0x20 {
        plain[byte] = false;
        byte += 1;
    }
    let special = *b"\"\\<>&\xe2";
    let mut index = 0;
    while index < special.len() {
        plain[special[index] as usize] = false;
        index += 1;
    }
    plain
};

/// Appends a string with quotes. As Go does, `<`, `>`, `&` and the line separators of Unicode are escaped.
pub(in crate::codec) fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    write_escaped(text.as_bytes(), out);
    out.push(b'"');
}

fn write_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    let mut start = 0;
    let mut at = 0;
    while let Some(found) = bytes[at..].iter().position(|&byte| !PLAIN[byte as usize]) {
        at += found;
        // U+2028 and U+2029 are e2 80 a8 and e2 80 a9.
        if bytes[at] == 0xe2 && !matches!(bytes.get(at + 1..at + 3), Some([0x80, 0xa8 | 0xa9])) {
            at += 1;
            continue;
        }
        out.extend_from_slice(&bytes[start..at]);
        match bytes[at] {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x8 => out.extend_from_slice(b"\\b"),
            0xc => out.extend_from_slice(b"\\f"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0xe2 => {
                out.extend_from_slice(if bytes[at + 2] == 0xa8 { b"\\u2028" } else { b"\\u2029" });
                at += 2;
            }
            byte => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
        }
        at += 1;
        start = at;
    }
    out.extend_from_slice(&bytes[start..]);
}

/// Appends JSON text as Go writes a `RawMessage`: without white space, `<`, `>`, `&` and line separators escaped.
pub(in crate::codec) fn compact(json: &[u8], out: &mut Vec<u8>) {
    let mut in_string = false;
    let (mut start, mut at) = (0, 0);
    while let Some(&byte) = json.get(at) {
        // The bytes that are left out, and what stands in their place.
        let (length, instead): (usize, &[u8]) = match byte {
            b'"' => {
                in_string = !in_string;
                (0, b"")
            }
            b'\\' if in_string => {
                at += 1;
                (0, b"")
            }
            b' ' | b'\t' | b'\r' | b'\n' if !in_string => (1, b""),
            b'<' => (1, b"\\u003c"),
            b'>' => (1, b"\\u003e"),
            b'&' => (1, b"\\u0026"),
            0xe2 => match json.get(at + 1..at + 3) {
                Some([0x80, 0xa8]) => (3, b"\\u2028"),
                Some([0x80, 0xa9]) => (3, b"\\u2029"),
                _ => (0, b""),
            },
            _ => (0, b""),
        };
        if length > 0 {
            out.extend_from_slice(&json[start..at]);
            out.extend_from_slice(instead);
            start = at + length;
        }
        at += length.max(1);
    }
    out.extend_from_slice(json.get(start..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
            text(json!([0, -1, i64::MIN, u64::MAX, 1.0, 0.5, 1e21, 1.5e-7, 1e20])),
            "[0,-1,-9223372036854775808,18446744073709551615,1,0.5,1e+21,1.5e-7,100000000000000000000]"
        );
        assert_eq!(text(json!({"b": null, "a": {"x": [true, false, {}]}})), r#"{"b":null,"a":{"x":[true,false,{}]}}"#);
    }

    #[test]
    fn indentation_is_that_of_marshal_indent() {
        let mut out = Vec::new();
        encode_value_pretty(&json!({"a": [1, {"b": {}}], "c": []}), &mut out);
        assert_eq!(str::from_utf8(&out), Ok("{\n  \"a\": [\n    1,\n    {\n      \"b\": {}\n    }\n  ],\n  \"c\": []\n}"));
    }

    #[test]
    fn raw_json_is_compacted() {
        let mut out = Vec::new();
        compact(b"{ \"a b\" : \"<\\\" \" ,\n\"n\": 1.0 }", &mut out);
        assert_eq!(str::from_utf8(&out), Ok(r#"{"a b":"\u003c\" ","n":1.0}"#));
    }
}
