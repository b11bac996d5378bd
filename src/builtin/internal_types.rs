//! Objects as upstream's internal types print them, for the messages that show such a value or a
//! difference of two.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::builtin::line_diff::unified;
use crate::meta::{Map, Value};
use crate::registry::validation::Fields;

/// Structs nest at most so deep.
const DEPTH_MAX: usize = 24;

/// One field of an internal struct.
struct Shape {
    go: &'static str,
    json: &'static str,
    kind: &'static str,
}

static SHAPES: LazyLock<HashMap<&'static str, Vec<Shape>>> = LazyLock::new(|| {
    let mut shapes: HashMap<&str, Vec<Shape>> = HashMap::new();
    let mut current = "";
    for line in include_str!("internal_types.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let mut words = line.split_whitespace();
        match (
            line.starts_with(' '),
            words.next(),
            words.next(),
            words.next(),
        ) {
            (true, Some(go), Some(json), Some(kind)) => shapes
                .entry(current)
                .or_default()
                .push(Shape { go, json, kind }),
            (false, Some(name), ..) => current = name,
            _ => {}
        }
    }
    shapes
});

/// A struct of v1 as its internal counterpart: Go names in Go order, everything shown.
pub fn json(kind: &str, value: &Map) -> Value {
    let mut out = Map::new();
    fill(&mut out, kind, value, value, DEPTH_MAX);
    Value::Object(out)
}

/// The structs of a list as their internal counterparts.
pub fn json_list(kind: &str, list: &[Value]) -> Value {
    list.iter()
        .filter_map(Value::as_object)
        .map(|one| json(kind, one))
        .collect()
}

/// `outer` is the struct that holds `value` in v1: some fields have moved in since.
fn fill(out: &mut Map, kind: &str, value: &Map, outer: &Map, depth: usize) {
    for shape in SHAPES.get(kind).map_or(&[][..], Vec::as_slice) {
        if shape.go == "." {
            match (shape.json, shape.kind) {
                (".", embedded) => fill(out, embedded, value, outer, depth),
                (key, _) => out.extend(value.map(key).cloned().unwrap_or_default()),
            }
            continue;
        }
        let field = match shape.json.strip_prefix('^') {
            Some(key) => outer.field(key),
            None => value.field(shape.json),
        };
        let shown = if depth == 0 {
            Value::Null
        } else {
            show(shape.kind, field, value, depth - 1)
        };
        out.insert(shape.go.to_owned(), shown);
    }
}

fn show(kind: &str, field: Option<&Value>, holder: &Map, depth: usize) -> Value {
    let of_struct = |name: &str, value: &Map| {
        let mut out = Map::new();
        fill(&mut out, name, value, holder, depth);
        Value::Object(out)
    };
    match (kind, field) {
        ("m", Some(Value::Object(map))) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| key.as_str());
            entries
                .into_iter()
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect()
        }
        ("s" | "b" | "i" | "q" | "l" | "m" | "raw" | "*v" | "*raw", Some(value)) => value.clone(),
        ("s", None) => "".into(),
        ("b", None) => false.into(),
        ("i", None) => 0.into(),
        ("q", None) => "0".into(),
        ("l" | "m" | "raw" | "*v" | "*raw", None) => Value::Null,
        (_, Some(Value::Array(list))) => {
            let name = kind.trim_start_matches("[]");
            list.iter()
                .filter_map(Value::as_object)
                .map(|one| of_struct(name, one))
                .collect()
        }
        (_, Some(Value::Object(map))) => of_struct(kind.trim_start_matches('*'), map),
        (_, Some(other)) => other.clone(),
        (_, None) if kind.starts_with(['*', '[']) => Value::Null,
        (_, None) => of_struct(kind, &Map::new()),
    }
}

/// The difference of two structs, line by line of their indented JSON.
pub fn diff(kind: &str, old: &Map, new: &Map) -> String {
    unified(&pretty(&json(kind, old)), &pretty(&json(kind, new)))
}

/// JSON as Go's `MarshalIndent` writes it, one space for each level.
fn pretty(value: &Value) -> String {
    let mut out = String::new();
    write(&mut out, value, 0);
    out
}

fn write(out: &mut String, value: &Value, level: usize) {
    let line = |out: &mut String, level: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', level));
    };
    match value {
        Value::Array(list) if !list.is_empty() => {
            for (index, item) in list.iter().enumerate() {
                out.push(if index == 0 { '[' } else { ',' });
                line(out, level + 1);
                write(out, item, level + 1);
            }
            line(out, level);
            out.push(']');
        }
        Value::Object(map) if !map.is_empty() => {
            for (index, (key, item)) in map.iter().enumerate() {
                out.push(if index == 0 { '{' } else { ',' });
                line(out, level + 1);
                out.push_str(&escaped(&Value::from(key.as_str())));
                out.push_str(": ");
                write(out, item, level + 1);
            }
            line(out, level);
            out.push('}');
        }
        other => out.push_str(&escaped(other)),
    }
}

/// Go escapes what a browser could take for markup.
fn escaped(value: &Value) -> String {
    let text = value.to_string();
    if text.contains(['<', '>', '&']) {
        text.replace('<', "\\u003c")
            .replace('>', "\\u003e")
            .replace('&', "\\u0026")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    fn map(value: Value) -> Map {
        match value {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    }

    #[test]
    fn structs_show_every_field() {
        let shown = json("Taint", &map(json!({"key": "a", "effect": "NoSchedule"})));
        assert_eq!(
            shown.to_string(),
            r#"{"Key":"a","Value":"","Effect":"NoSchedule","TimeAdded":null}"#
        );
        let shown = json(
            "PodSpec",
            &map(
                json!({"hostNetwork": true, "securityContext": {}, "overhead": {"b": "1", "a": "2"}}),
            ),
        );
        assert_eq!(shown["SecurityContext"]["HostNetwork"], json!(true));
        assert_eq!(shown["Overhead"].to_string(), r#"{"a":"2","b":"1"}"#);
        assert_eq!(shown["Containers"], Value::Null);
    }

    #[test]
    fn differences_read_as_clients_know_them() {
        let old = map(json!({"restartPolicy": "Always", "terminationGracePeriodSeconds": 30}));
        let mut new = old.clone();
        new.insert("restartPolicy", "Never".into());
        let want = "@@ -3,7 +3,7 @@\n  \"InitContainers\": null,\n  \"Containers\": null,\n  \"EphemeralContainers\": null,\n\
                    - \"RestartPolicy\": \"Always\",\n+ \"RestartPolicy\": \"Never\",\n  \"TerminationGracePeriodSeconds\": 30,\n  \
                    \"ActiveDeadlineSeconds\": null,\n  \"DNSPolicy\": \"\",\n";
        assert_eq!(diff("PodSpec", &old, &new), want);
    }
}
