//! Values of expressions as trees, to be applied to objects or put into JSON patches (apiserver
//! `cel/mutation/dynamic`).

use crate::cel::{JSON_PATCH, Struct, Value as CelValue};
use crate::meta::go;
use crate::meta::go::base64;
use crate::meta::{Map, Value};

/// The largest integer that a double can tell from its neighbours.
const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// Adds an error for each object that is not named after the path on which it lies. Lists and maps
/// are no part of it.
pub(super) fn check_type_names(value: &CelValue<'_>, path: &str, errors: &mut Vec<String>) {
    match value {
        CelValue::Struct(object) => {
            if *object.name != *path {
                errors.push(format!(
                    "unexpected type name {}, expected {}, which matches field name path from \
                     root Object type",
                    go::quote(&object.name),
                    go::quote(path)
                ));
            }
            for (name, field) in &object.fields {
                check_type_names(field, &format!("{path}.{name}"), errors);
            }
        }
        CelValue::List(list) => {
            for item in list.iter().flatten() {
                check_type_names(&item, path, errors);
            }
        }
        CelValue::Map(map) => {
            for value in map.entries().into_iter().flat_map(|(_, value)| value) {
                check_type_names(&value, path, errors);
            }
        }
        _ => {}
    }
}

/// A step to a value in a configuration.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Field(String),
    Item(usize),
}

/// A value that no configuration can hold, as Go prints it.
#[derive(Debug)]
pub(super) struct Foreign {
    pub path: Vec<Step>,
    /// `%v`, `%#v` and `%T`.
    pub plain: String,
    pub syntax: String,
    pub ty: &'static str,
}

/// The configuration that an object stands for, with null in place of what it cannot hold; `None`
/// where a key is no text. Upstream takes objects apart, and lists and maps directly in them; what
/// is made within those by the expression stays a value of the expression.
pub(super) fn configuration(
    object: &Struct<'_>,
    path: &mut Vec<Step>,
    foreign: &mut Vec<Foreign>,
) -> Option<Map> {
    let mut out = Map::with_capacity(object.fields.len());
    for (name, field) in &object.fields {
        path.push(Step::Field(name.to_string()));
        let value = match field {
            CelValue::List(list) => {
                let mut items = Vec::with_capacity(list.len());
                for (index, item) in list.iter().enumerate() {
                    path.push(Step::Item(index));
                    items.push(within(&item.ok()?, path, foreign)?);
                    path.pop();
                }
                Value::Array(items)
            }
            CelValue::Map(map) => {
                let mut entries = Map::new();
                for (key, value) in map.entries() {
                    let CelValue::String(name) = &key else {
                        return None;
                    };
                    path.push(Step::Field(name.as_str().to_owned()));
                    let value = within(&value.ok()?, path, foreign)?;
                    path.pop();
                    entries.insert(name.as_str().to_owned(), value);
                }
                Value::Object(entries)
            }
            other => within(other, path, foreign)?,
        };
        path.pop();
        out.insert(name.to_string(), value);
    }
    Some(out)
}

fn within(value: &CelValue<'_>, path: &mut Vec<Step>, foreign: &mut Vec<Foreign>) -> Option<Value> {
    Some(match value {
        CelValue::Bool(value) => Value::from(*value),
        CelValue::Int(number) => Value::from(*number),
        CelValue::Double(number) => of_double(*number).ok()?,
        CelValue::String(text) | CelValue::Type(text) => Value::from(text.as_str()),
        CelValue::Optional(Some(value)) => within(value, path, foreign)?,
        CelValue::Optional(None) => Value::Null,
        CelValue::Struct(object) => Value::Object(configuration(object, path, foreign)?),
        CelValue::List(list) if !list.is_made() => json(value).ok()?,
        CelValue::Map(map) if !map.is_made() => json(value).ok()?,
        other => {
            let (plain, syntax) = printed(other);
            foreign.push(Foreign {
                path: path.clone(),
                plain,
                syntax,
                ty: other.go_value_type(),
            });
            Value::Null
        }
    })
}

/// A value as Go prints it with `%v` and `%#v`.
fn printed(value: &CelValue<'_>) -> (String, String) {
    match value {
        CelValue::Null => ("NULL_VALUE".to_owned(), "0".to_owned()),
        CelValue::Uint(number) => (number.to_string(), format!("{number:#x}")),
        CelValue::Bytes(bytes) => {
            let plain: Vec<String> = bytes.iter().map(ToString::to_string).collect();
            let syntax: Vec<String> = bytes.iter().map(|byte| format!("{byte:#x}")).collect();
            let syntax = format!("[]uint8{{{}}}", syntax.join(", "));
            (format!("[{}]", plain.join(" ")), syntax)
        }
        CelValue::Duration(duration) => (value.shown(), duration.as_nanos().to_string()),
        CelValue::List(list) => {
            let items: Vec<(String, String)> =
                list.iter().flatten().map(|item| printed(&item)).collect();
            let part = |of: fn(&(String, String)) -> &String, with: &str| {
                let parts: Vec<&str> = items.iter().map(|item| of(item).as_str()).collect();
                parts.join(with)
            };
            let syntax = format!("[]ref.Val{{{}}}", part(|item| &item.1, ", "));
            (format!("[{}]", part(|item| &item.0, " ")), syntax)
        }
        CelValue::Map(map) => {
            let mut plain = Vec::new();
            let mut syntax = Vec::new();
            for (key, value) in map.entries() {
                if let Ok(value) = value {
                    let (key, value) = (printed(&key), printed(&value));
                    plain.push(format!("{}:{}", key.0, value.0));
                    syntax.push(format!("{}:{}", key.1, value.1));
                }
            }
            let syntax = format!("map[ref.Val]ref.Val{{{}}}", syntax.join(", "));
            (format!("map[{}]", plain.join(" ")), syntax)
        }
        CelValue::String(text) => (text.as_str().to_owned(), go::quote(text.as_str())),
        other => (other.shown(), other.shown()),
    }
}

/// The JSON of a value as `google.protobuf.Value` has it: what is neither a number that a double
/// holds nor a list or map is a text.
///
/// # Errors
/// It has none.
pub(super) fn json(value: &CelValue<'_>) -> Result<Value, String> {
    Ok(match value {
        CelValue::Null => Value::Null,
        CelValue::Bool(value) => Value::from(*value),
        CelValue::Int(number) if number.unsigned_abs() > MAX_SAFE_INTEGER => {
            Value::from(number.to_string())
        }
        CelValue::Int(number) => Value::from(*number),
        CelValue::Uint(number) if *number > MAX_SAFE_INTEGER => Value::from(number.to_string()),
        CelValue::Uint(number) => Value::from(*number),
        CelValue::Double(number) => of_double(*number)?,
        CelValue::String(text) => Value::from(text.as_str()),
        CelValue::Bytes(bytes) => Value::from(base64::encode(bytes)),
        CelValue::Timestamp(_) | CelValue::Duration(_) => Value::from(value.shown()),
        CelValue::List(list) => {
            let items = list.iter().map(|item| {
                let item = item.map_err(|error| error.to_string())?;
                json(&item)
            });
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        CelValue::Map(map) => {
            let mut out = Map::new();
            for (key, value) in map.entries() {
                let CelValue::String(name) = &key else {
                    let ty = key.type_name();
                    return Err(format!("unsupported type conversion from '{ty}' to string"));
                };
                let value = value.map_err(|error| error.to_string())?;
                out.insert(name.as_str().to_owned(), json(&value)?);
            }
            Value::Object(out)
        }
        CelValue::Struct(object) if &*object.name == JSON_PATCH => {
            return Err("cannot convert to native type: *structpb.Value".to_owned());
        }
        CelValue::Struct(object) => {
            let mut out = Map::new();
            for (name, field) in &object.fields {
                out.insert(name.to_string(), json(field)?);
            }
            Value::Object(out)
        }
        CelValue::Optional(Some(value)) => json(value)?,
        CelValue::Optional(None) => return Err("optional.none() dereference".to_owned()),
        CelValue::Type(_) => return Err("type conversion not supported for 'type'".to_owned()),
        CelValue::Extension(_) => {
            let ty = value.type_name();
            let ty = ty.rsplit('.').next().unwrap_or(ty);
            return Err(format!(
                "type conversion error from '{ty}' to '*structpb.Value'"
            ));
        }
    })
}

/// A double as JSON writes it: one that is whole looks like an integer.
fn of_double(number: f64) -> Result<Value, String> {
    if !number.is_finite() {
        return Err(format!("invalid {number} value"));
    }
    #[allow(clippy::cast_precision_loss)] // it has been chosen to have none
    let safe = MAX_SAFE_INTEGER as f64;
    if number.fract() == 0.0 && number.abs() <= safe {
        #[allow(clippy::cast_possible_truncation)] // it has been looked at
        return Ok(Value::from(number as i64));
    }
    Ok(Value::from(number))
}
