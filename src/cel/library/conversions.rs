//! Conversions between types (cel-go `common/types`).

use std::sync::Arc;

use super::super::number;
use super::super::time;
use super::super::value::{Error, Result, Text, Value, double_to_int, double_to_uint};
use super::super::work;
use super::Declaration;
use super::operators::{declare, duration, timestamp};

pub const DECLARATIONS: &[Declaration] = &[
    declare!("type", type_of, "type": "(A) -> type(A)"),
    declare!("dyn", identity, "to_dyn": "(A) -> dyn"),
    declare!("bool", to_bool, "bool_to_bool": "(bool) -> bool", "string_to_bool": "(string) -> bool"),
    declare!("bytes", to_bytes,
        "bytes_to_bytes": "(bytes) -> bytes",
        "string_to_bytes": "(string) -> bytes",
    ),
    declare!("double", to_double,
        "double_to_double": "(double) -> double",
        "int64_to_double": "(int) -> double",
        "string_to_double": "(string) -> double",
        "uint64_to_double": "(uint) -> double",
    ),
    declare!("duration", to_duration,
        "duration_to_duration": "(duration) -> duration",
        "int64_to_duration": "(int) -> duration",
        "string_to_duration": "(string) -> duration",
    ),
    declare!("int", to_int,
        "int64_to_int64": "(int) -> int",
        "double_to_int64": "(double) -> int",
        "duration_to_int64": "(duration) -> int",
        "string_to_int64": "(string) -> int",
        "timestamp_to_int64": "(timestamp) -> int",
        "uint64_to_int64": "(uint) -> int",
    ),
    declare!("string", to_string,
        "string_to_string": "(string) -> string",
        "bool_to_string": "(bool) -> string",
        "bytes_to_string": "(bytes) -> string",
        "double_to_string": "(double) -> string",
        "duration_to_string": "(duration) -> string",
        "int64_to_string": "(int) -> string",
        "timestamp_to_string": "(timestamp) -> string",
        "uint64_to_string": "(uint) -> string",
    ),
    declare!("timestamp", to_timestamp,
        "timestamp_to_timestamp": "(timestamp) -> timestamp",
        "int64_to_timestamp": "(int) -> timestamp",
        "string_to_timestamp": "(string) -> timestamp",
    ),
    declare!("uint", to_uint,
        "uint64_to_uint64": "(uint) -> uint",
        "double_to_uint64": "(double) -> uint",
        "int64_to_uint64": "(int) -> uint",
        "string_to_uint64": "(string) -> uint",
    ),
];

/// The functions whose calls with a constant are constants.
pub const NAMES: [&str; 11] = [
    "type",
    "dyn",
    "bool",
    "bytes",
    "double",
    "duration",
    "int",
    "string",
    "timestamp",
    "uint",
    "null_type",
];

/// The bytes that are gone through in the time that it takes to read a digit of a double.
const DIGIT_READS: usize = 8;

fn failed<'a>(value: &Value<'a>, to: &str) -> Result<Value<'a>> {
    let from = value.type_name();
    Err(Error::new(format!(
        "type conversion error from '{from}' to '{to}'"
    )))
}

fn overflow<'a>(kind: &str) -> Result<Value<'a>> {
    Err(Error::new(format!("{kind} overflow")))
}

fn type_of<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [value] = args else { return None };
    Some(Ok(Value::Type(Text::Shared(Arc::from(value.type_name())))))
}

fn identity<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [value] = args else { return None };
    Some(Ok(value.clone()))
}

fn to_bool<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [value] = args else { return None };
    Some(match value {
        Value::Bool(_) => Ok(value.clone()),
        Value::String(text) => match text.as_str() {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Value::Bool(false)),
            _ => failed(value, "bool"),
        },
        _ => return None,
    })
}

fn to_bytes<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    match args {
        [value @ Value::Bytes(_)] => Some(Ok(value.clone())),
        [Value::String(text)] => Some(Ok(Value::Bytes(text.as_str().as_bytes().into()))),
        _ => None,
    }
}

#[allow(clippy::cast_precision_loss)] // as cel-go
fn to_double<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [value] = args else { return None };
    Some(match value {
        Value::Double(_) => Ok(value.clone()),
        Value::Int(number) => Ok(Value::Double(*number as f64)),
        Value::Uint(number) => Ok(Value::Double(*number as f64)),
        Value::String(text) => match parsed_double(text.as_str()) {
            Some(number) => Ok(Value::Double(number)),
            None => failed(value, "double"),
        },
        _ => return None,
    })
}

fn parsed_double(text: &str) -> Option<f64> {
    work::read(text.len().saturating_mul(DIGIT_READS));
    number::parse_double(text)
}

fn to_duration<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [value] = args else { return None };
    Some(match value {
        Value::Duration(_) => Ok(value.clone()),
        Value::Int(_) => failed(value, "google.protobuf.Duration"),
        Value::String(text) => match time::parse_duration(text.as_str()) {
            Some(parsed) => duration(Some(parsed)),
            None => failed(value, "google.protobuf.Duration"),
        },
        _ => return None,
    })
}

fn to_int<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [value] = args else { return None };
    Some(match value {
        Value::Int(_) => Ok(value.clone()),
        Value::Uint(number) => match i64::try_from(*number) {
            Ok(number) => Ok(Value::Int(number)),
            Err(_) => overflow("integer"),
        },
        // The least and the greatest integer are left out, for they are no exact doubles.
        Value::Double(number) => match double_to_int(number.trunc()) {
            Some(number) if number != i64::MIN => Ok(Value::Int(number)),
            _ => overflow("integer"),
        },
        Value::Duration(by) => Ok(Value::Int(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX))),
        Value::Timestamp(at) => Ok(Value::Int(time::to_unix(*at))),
        Value::String(text) => match text.as_str().parse() {
            Ok(number) => Ok(Value::Int(number)),
            Err(_) => failed(value, "int"),
        },
        _ => return None,
    })
}

fn to_uint<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [value] = args else { return None };
    Some(match value {
        Value::Uint(_) => Ok(value.clone()),
        Value::Int(number) => match u64::try_from(*number) {
            Ok(number) => Ok(Value::Uint(number)),
            Err(_) => overflow("unsigned integer"),
        },
        Value::Double(number) => match double_to_uint(number.trunc()) {
            Some(truncated) if *number >= 0.0 => Ok(Value::Uint(truncated)),
            _ => overflow("unsigned integer"),
        },
        Value::String(text) => match text.as_str().parse() {
            Ok(number) if !text.as_str().starts_with('+') => Ok(Value::Uint(number)),
            _ => failed(value, "uint"),
        },
        _ => return None,
    })
}

fn to_timestamp<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [value] = args else { return None };
    Some(match value {
        Value::Timestamp(_) => Ok(value.clone()),
        Value::Int(seconds) => timestamp(time::from_unix(*seconds)),
        Value::String(text) => match time::parse_timestamp(text.as_str()) {
            Some(at) => timestamp(Some(at)),
            None => failed(value, "google.protobuf.Timestamp"),
        },
        _ => return None,
    })
}

fn to_string<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [value] = args else { return None };
    Some(match value {
        Value::String(_) => Ok(value.clone()),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Value::text(text)),
            Err(_) => Err(Error::new(
                "invalid UTF-8 in bytes, cannot convert to string",
            )),
        },
        Value::Bool(_)
        | Value::Int(_)
        | Value::Uint(_)
        | Value::Double(_)
        | Value::Duration(_)
        | Value::Timestamp(_) => Ok(Value::text(shown(value))),
        _ => return None,
    })
}

/// A scalar as text.
pub fn shown(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Double(double) => number::format_double(*double),
        Value::Duration(by) => time::format_duration(*by),
        Value::Timestamp(at) => time::format_timestamp(*at),
        Value::String(text) | Value::Type(text) => text.as_str().to_owned(),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::List(list) => {
            let items: Vec<String> = list.iter().flatten().map(|item| shown(&item)).collect();
            format!("[{}]", items.join(", "))
        }
        other => other.type_name().to_owned(),
    }
}
