//! Errors about trees that do not fit their Go types, in the words of apimachinery's converter from
//! unstructured objects, which reads the results of applies and strategic merge patches.

use super::{MAX_ISSUE_BYTES, MAX_TREE_DEPTH, json};
use crate::meta::go::quantity::Quantity;
use crate::meta::go::{self, base64};
use crate::meta::{Map, Value, time};
use crate::schema::{Kind, Schema, TypeId, TypeRef};

/// The maximum number of unknown fields that are reported.
const MAX_UNKNOWN: usize = 1_000;

/// Returns the error about an object that [`super::normalize`] has refused: the first value that
/// does not fit, by the order of the Go struct's fields. `None` where all do.
pub fn conversion_error(object: &Map, ty: TypeRef<'_>) -> Option<String> {
    Reader { schema: ty.schema }.message(object, ty.id, 0).err()
}

/// The fields that the type does not know, as `unknown field "spec.foo"`, in order of their texts.
pub fn unknown_fields(object: &Map, ty: TypeRef<'_>) -> Vec<String> {
    let mut found = Unknown::default();
    collect_unknown(object, ty, &mut String::new(), &mut found);
    found.fields.sort_unstable();
    found.fields
}

/// The fields that were found, and the bytes of their texts.
#[derive(Default)]
struct Unknown {
    fields: Vec<String>,
    bytes: usize,
}

impl Unknown {
    fn add(&mut self, path: &str) {
        if self.fields.len() < MAX_UNKNOWN && self.bytes < MAX_ISSUE_BYTES {
            self.bytes += path.len();
            self.fields.push(format!("unknown field \"{path}\""));
        }
    }
}

fn collect_unknown(object: &Map, ty: TypeRef<'_>, path: &mut String, found: &mut Unknown) {
    for (name, value) in object {
        let length = path.len();
        if length > 0 {
            path.push('.');
        }
        path.push_str(name);
        match ty.field(name) {
            Some(field) => collect_unknown_in(value, &field.kind, ty.schema, path, found),
            None => found.add(path),
        }
        path.truncate(length);
    }
}

fn collect_unknown_in(
    value: &Value,
    kind: &Kind,
    schema: &Schema,
    path: &mut String,
    found: &mut Unknown,
) {
    match (kind, value) {
        (Kind::Message(id), Value::Object(map)) => {
            collect_unknown(map, TypeRef { schema, id: *id }, path, found)
        }
        (Kind::List(item, _), Value::Array(items)) => {
            for (index, value) in items.iter().enumerate() {
                let length = path.len();
                path.push_str(&format!("[{index}]"));
                collect_unknown_in(value, item, schema, path, found);
                path.truncate(length);
            }
        }
        // The converter does not report keys of maps.
        (Kind::Map(item, _), Value::Object(map)) => map
            .values()
            .for_each(|value| collect_unknown_in(value, item, schema, path, found)),
        _ => {}
    }
}

/// Go's `reflect.Kind` of a value.
fn kind_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

type Result = std::result::Result<(), String>;

struct Reader<'s> {
    schema: &'s Schema,
}

impl Reader<'_> {
    fn message(&self, map: &Map, id: TypeId, depth: usize) -> Result {
        if depth > MAX_TREE_DEPTH {
            return Err("exceeded max depth".to_owned());
        }
        let ty = TypeRef {
            schema: self.schema,
            id,
        }
        .get();
        for field in ty
            .fields
            .iter()
            .filter(|field| !matches!(field.kind, Kind::Inline(_)))
        {
            if let Some(value) = map.get(&field.json) {
                self.value(&field.kind, value, &field.go_type, depth)?;
            }
        }
        Ok(())
    }

    /// `go` is the name of the Go type where it has one of its own.
    fn value(&self, kind: &Kind, value: &Value, go: &str, depth: usize) -> Result {
        let item_type = go
            .strip_prefix("[]")
            .or_else(|| {
                go.strip_prefix("map[")
                    .and_then(|rest| Some(rest.split_once(']')?.1))
            })
            .unwrap_or("");
        match (kind, value) {
            (_, Value::Null) | (Kind::Raw | Kind::FieldsV1 | Kind::Any, _) => Ok(()),
            (Kind::Message(id), Value::Object(map)) => self.message(map, *id, depth + 1),
            (Kind::Message(_), other) => {
                Err(format!("cannot restore struct from: {}", kind_name(other)))
            }
            (Kind::List(item, _), Value::Array(items)) => items
                .iter()
                .try_for_each(|value| self.value(item, value, item_type, depth + 1)),
            (Kind::Bytes, Value::String(text)) => base64::normalise(text)
                .map(drop)
                .map_err(|why| format!("error decoding from json: {why}")),
            (Kind::List(..) | Kind::Bytes, other) => {
                Err(format!("cannot restore slice from {}", kind_name(other)))
            }
            (Kind::Map(item, _), Value::Object(map)) => map
                .values()
                .try_for_each(|value| self.value(item, value, item_type, depth + 1)),
            (Kind::Map(..), other) => Err(format!("cannot restore map from {}", kind_name(other))),
            _ => self.scalar(kind, value, go),
        }
    }

    fn scalar(&self, kind: &Kind, value: &Value, go: &str) -> Result {
        let foreign = |ty: &str| {
            Err(format!(
                "json: cannot unmarshal {} into Go value of type {ty}",
                go::json_type(value)
            ))
        };
        match (kind, value) {
            (Kind::String, Value::String(_))
            | (Kind::Bool, Value::Bool(_))
            | (Kind::IntOrString, Value::String(_)) => Ok(()),
            (Kind::Double, Value::Number(_)) => Ok(()),
            (Kind::Int32 | Kind::Int64, Value::Number(number)) => {
                match number.as_f64().filter(|_| number.is_f64()) {
                    Some(float) if float.trunc() != float => {
                        Err(format!("cannot convert float64 to {}", go_type(kind, go)))
                    }
                    _ => Ok(()),
                }
            }
            // Go converts integers to strings, but the converter does not let it.
            (Kind::String, Value::Number(number)) if !number.is_f64() => {
                Err(format!("cannot convert int64 to {}", go_type(kind, go)))
            }
            (Kind::String, _) => Err("unrecognized type: string".to_owned()),
            (Kind::Bool, _) => Err("unrecognized type: bool".to_owned()),
            (Kind::Int32, _) => Err("unrecognized type: int32".to_owned()),
            (Kind::Int64, _) => Err("unrecognized type: int64".to_owned()),
            (Kind::Double, _) => Err("unrecognized type: float64".to_owned()),
            (Kind::IntOrString, Value::Number(_)) => {
                let text = json::text_of(value);
                let error =
                    format!("json: cannot unmarshal number {text} into Go value of type int32");
                text.parse::<i32>().map(drop).map_err(|_| error)
            }
            (Kind::IntOrString, _) => foreign("int32"),
            (Kind::Quantity, value) => {
                let text = json::text_of(value);
                let text = text
                    .strip_prefix('"')
                    .and_then(|text| text.strip_suffix('"'))
                    .unwrap_or(&text);
                Quantity::normalise(text)
                    .map(drop)
                    .map_err(|error| error.to_string())
            }
            (Kind::Time, Value::String(text)) => time::parse(text).map(drop),
            (Kind::MicroTime, Value::String(text)) => time::parse_micro(text).map(drop),
            (Kind::Time | Kind::MicroTime, _) => foreign("string"),
            _ => Ok(()),
        }
    }
}

fn go_type<'g>(kind: &Kind, go: &'g str) -> &'g str {
    match (go, kind) {
        ("", Kind::Int32) => "int32",
        ("", Kind::Int64) => "int64",
        ("", _) => "string",
        (named, _) => named,
    }
}
