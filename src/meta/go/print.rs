//! Go's formatting of values: numbers as `encoding/json` and `%v` write them, trees as `%v` and
//! `%#v`, strings as jsoniter escapes them.

use serde_json::Number;

use crate::meta::{Key, Value};

/// Appends a number as `encoding/json` writes it.
fn json_number(number: &Number, out: &mut String) {
    match (number.as_i64(), number.as_f64()) {
        (Some(int), _) => out.push_str(&int.to_string()),
        (None, Some(float)) => json_float(float, out),
        (None, None) => out.push_str(&number.to_string()),
    }
}

fn json_float(float: f64, out: &mut String) {
    let size = float.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        out.push_str(&exponent_form(float, 1));
    } else {
        // Rust prints the shortest digits that read back, as Go does, and never an exponent.
        out.push_str(&float.to_string());
    }
}

/// `d.ddde±x` with at least `width` exponent digits.
fn exponent_form(float: f64, width: usize) -> String {
    let text = format!("{float:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent
        .strip_prefix('-')
        .map_or(('+', exponent), |rest| ('-', rest));
    format!("{digits}e{sign}{exponent:0>width$}")
}

/// Formats a float as `%v` does: with an exponent from 1e6 on and below 1e-4.
pub fn sprint_float(float: f64) -> String {
    if !float.is_finite() {
        let text = match float {
            f64::INFINITY => "+Inf",
            f64::NEG_INFINITY => "-Inf",
            _ => "NaN",
        };
        return text.to_owned();
    }
    let text = format!("{float:e}");
    let exponent: i32 = text
        .split_once('e')
        .and_then(|(_, exponent)| exponent.parse().ok())
        .unwrap_or(0);
    if (-4..6).contains(&exponent) {
        float.to_string()
    } else {
        exponent_form(float, 2)
    }
}

/// Appends a JSON string. With `html`, `<`, `>`, `&` are escaped as well, which jsoniter does for
/// values and not for names.
pub fn json_string(text: &str, html: bool, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' if html => {
                out.push_str(&format!("\\u{:04x}", c as u32))
            }
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Appends compact JSON as `encoding/json` writes it: numbers Go's way, HTML escaped, keys in order
/// of their bytes.
pub fn json(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => json_number(number, out),
        Value::String(text) => json_string(text, true, out),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                json(item, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push('{');
            for (index, (key, item)) in sorted(map).into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                json_string(key, true, out);
                out.push(':');
                json(item, out);
            }
            out.push('}');
        }
    }
}

fn sorted(map: &crate::meta::Map) -> Vec<(&Key, &Value)> {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    entries
}

/// Formats a tree as `%v` does.
pub fn sprint(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => sprint_number(number),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!(
            "[{}]",
            items.iter().map(sprint).collect::<Vec<_>>().join(" ")
        ),
        Value::Object(map) => {
            let entries: Vec<String> = sorted(map)
                .into_iter()
                .map(|(key, value)| format!("{key}:{}", sprint(value)))
                .collect();
            format!("map[{}]", entries.join(" "))
        }
    }
}

/// Formats a number as `%v` does.
pub fn sprint_number(number: &Number) -> String {
    match (number.as_i64(), number.as_f64()) {
        (Some(int), _) => int.to_string(),
        (None, Some(float)) => sprint_float(float),
        (None, None) => number.to_string(),
    }
}

/// Formats a tree as `%#v` does.
pub fn syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => sprint_number(number),
        Value::String(text) => quote(text),
        Value::Array(items) => format!(
            "[]interface {{}}{{{}}}",
            items.iter().map(syntax).collect::<Vec<_>>().join(", ")
        ),
        Value::Object(map) => {
            let entries: Vec<String> = sorted(map)
                .into_iter()
                .map(|(key, value)| format!("{}:{}", quote(key), syntax(value)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", entries.join(", "))
        }
    }
}

/// Returns the name of a value's JSON type in the errors of Go's decoder (`encoding/json`
/// `UnmarshalTypeError`).
pub fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Returns the type of a value as `%T` prints it.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Quotes a string as `%q` does.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                out.push_str(&format!("\\x{:02x}", c as u32))
            }
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Formats a slice of strings as `%q` does: `["a" "b"]`.
pub fn quote_all(items: &[String]) -> String {
    let items: Vec<String> = items.iter().map(|item| quote(item)).collect();
    format!("[{}]", items.join(" "))
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::meta::json;

    #[test]
    fn numbers_print_as_in_go() {
        for (value, in_json, in_text) in [
            (json!(80), "80", "80"),
            (json!(8080.0), "8080", "8080"),
            (json!(-1.5), "-1.5", "-1.5"),
            (json!(1e21), "1e+21", "1e+21"),
            (json!(1e-7), "1e-7", "1e-07"),
            (json!(123456789.0), "123456789", "1.23456789e+08"),
            (json!(1e20), "100000000000000000000", "1e+20"),
            (json!(0.00001), "0.00001", "1e-05"),
        ] {
            let mut text = String::new();
            super::json(&value, &mut text);
            assert_eq!((text.as_str(), sprint(&value).as_str()), (in_json, in_text));
        }
    }

    #[test]
    fn trees_print_as_in_go() {
        let value = json!({"b": [1, "x", null], "a": {"t": true}});
        assert_eq!(sprint(&value), "map[a:map[t:true] b:[1 x <nil>]]");
        assert_eq!(
            syntax(&value),
            r#"map[string]interface {}{"a":map[string]interface {}{"t":true}, "b":[]interface {}{1, "x", interface {}(nil)}}"#
        );
    }
}
