//! Operators, sizes and indices (cel-go `common/stdlib/standard.go`).

use std::any::Any;
use std::sync::Arc;

use jiff::SignedDuration;
use jiff::civil::DateTime;

use super::super::extension::Extension;
use super::super::pattern;
use super::super::value::{Error, Key, List, Map, Result, Value};
use super::super::work;
use super::{Declaration, Implementation};
use crate::meta::go::regexp::Program;

/// An operator with its overloads.
macro_rules! declare {
    ($name:literal, $call:expr, $($id:literal: $signature:literal),+ $(,)?) => {
        Declaration { name: $name, overloads: &[$(($id, $signature)),+], call: $call }
    };
}
pub(super) use declare;

/// The overloads of an operator of order, whose names begin as it does.
macro_rules! order {
    ($name:literal, $prefix:literal, $call:expr) => {
        Declaration {
            name: $name,
            overloads: &[
                (concat!($prefix, "_bool"), "(bool, bool) -> bool"),
                (concat!($prefix, "_int64"), "(int, int) -> bool"),
                (concat!($prefix, "_int64_double"), "(int, double) -> bool"),
                (concat!($prefix, "_int64_uint64"), "(int, uint) -> bool"),
                (concat!($prefix, "_uint64"), "(uint, uint) -> bool"),
                (concat!($prefix, "_uint64_double"), "(uint, double) -> bool"),
                (concat!($prefix, "_uint64_int64"), "(uint, int) -> bool"),
                (concat!($prefix, "_double"), "(double, double) -> bool"),
                (concat!($prefix, "_double_int64"), "(double, int) -> bool"),
                (concat!($prefix, "_double_uint64"), "(double, uint) -> bool"),
                (concat!($prefix, "_string"), "(string, string) -> bool"),
                (concat!($prefix, "_bytes"), "(bytes, bytes) -> bool"),
                (
                    concat!($prefix, "_timestamp"),
                    "(timestamp, timestamp) -> bool",
                ),
                (
                    concat!($prefix, "_duration"),
                    "(duration, duration) -> bool",
                ),
            ],
            call: $call,
        }
    };
}

/// An operator that the program evaluates itself.
const NONE: Implementation = |_| None;

pub const DECLARATIONS: &[Declaration] = &[
    declare!("_?_:_", NONE, "conditional": "(bool, A, A) -> A"),
    declare!("_&&_", NONE, "logical_and": "(bool, bool) -> bool"),
    declare!("_||_", NONE, "logical_or": "(bool, bool) -> bool"),
    declare!("!_", NONE, "logical_not": "(bool) -> bool"),
    declare!("@not_strictly_false", NONE, "not_strictly_false": "(bool) -> bool"),
    declare!("_==_", NONE, "equals": "(A, A) -> bool"),
    declare!("_!=_", NONE, "not_equals": "(A, A) -> bool"),
    declare!("_+_", add,
        "add_bytes": "(bytes, bytes) -> bytes",
        "add_double": "(double, double) -> double",
        "add_duration_duration": "(duration, duration) -> duration",
        "add_duration_timestamp": "(duration, timestamp) -> timestamp",
        "add_timestamp_duration": "(timestamp, duration) -> timestamp",
        "add_int64": "(int, int) -> int",
        "add_list": "(list(A), list(A)) -> list(A)",
        "add_string": "(string, string) -> string",
        "add_uint64": "(uint, uint) -> uint",
    ),
    declare!("_/_", divide,
        "divide_double": "(double, double) -> double",
        "divide_int64": "(int, int) -> int",
        "divide_uint64": "(uint, uint) -> uint",
    ),
    declare!("_%_", modulo,
        "modulo_int64": "(int, int) -> int",
        "modulo_uint64": "(uint, uint) -> uint",
    ),
    declare!("_*_", multiply,
        "multiply_double": "(double, double) -> double",
        "multiply_int64": "(int, int) -> int",
        "multiply_uint64": "(uint, uint) -> uint",
    ),
    declare!("-_", negate, "negate_double": "(double) -> double", "negate_int64": "(int) -> int"),
    declare!("_-_", subtract,
        "subtract_double": "(double, double) -> double",
        "subtract_duration_duration": "(duration, duration) -> duration",
        "subtract_int64": "(int, int) -> int",
        "subtract_timestamp_duration": "(timestamp, duration) -> timestamp",
        "subtract_timestamp_timestamp": "(timestamp, timestamp) -> duration",
        "subtract_uint64": "(uint, uint) -> uint",
    ),
    order!("_<_", "less", |args| ordered(args, |order| order.is_lt())),
    order!("_<=_", "less_equals", |args| ordered(args, |order| order
        .is_le())),
    order!("_>_", "greater", |args| ordered(args, |order| order
        .is_gt())),
    order!("_>=_", "greater_equals", |args| ordered(args, |order| {
        order.is_ge()
    })),
    declare!("_[_]", NONE,
        "index_list": "(list(A), int) -> A",
        "index_map": "(map(A, B), A) -> B",
        "optional_list_index_int": "(optional_type(list(A)), int) -> optional_type(A)",
        "optional_map_index_value": "(optional_type(map(A, B)), A) -> optional_type(B)",
    ),
    declare!("@in", contained,
        "in_list": "(A, list(A)) -> bool",
        "in_map": "(A, map(A, B)) -> bool",
    ),
    declare!("size", size,
        "size_bytes": "(bytes) -> int",
        "bytes_size": "bytes() -> int",
        "size_list": "(list(A)) -> int",
        "list_size": "list(A)() -> int",
        "size_map": "(map(A, B)) -> int",
        "map_size": "map(A, B)() -> int",
        "size_string": "(string) -> int",
        "string_size": "string() -> int",
    ),
    declare!("matches", matches,
        "matches": "(string, string) -> bool",
        "matches_string": "string(string) -> bool",
    ),
    declare!("find", find, "string_find_string": "string(string) -> string"),
    declare!("findAll", find_all,
        "string_find_all_string": "string(string) -> list(string)",
        "string_find_all_string_int": "string(string, int) -> list(string)",
    ),
    declare!("cel.@mapInsert", insert,
        "@mapInsert_map_map": "(map(K, V), map(K, V)) -> map(K, V)",
        "@mapInsert_map_key_value": "(map(K, V), K, V) -> map(K, V)",
    ),
];

/// Reports whether an operator is one of values of the first operand's type.
pub fn is_operand(operator: &str, value: &Value<'_>) -> bool {
    use Value::{Bool, Bytes, Double, Duration, Int, List, String, Timestamp, Uint};
    match operator {
        "_+_" => matches!(
            value,
            Int(_)
                | Uint(_)
                | Double(_)
                | String(_)
                | Bytes(_)
                | Timestamp(_)
                | Duration(_)
                | List(_)
        ),
        "_-_" => matches!(
            value,
            Int(_) | Uint(_) | Double(_) | Timestamp(_) | Duration(_)
        ),
        "-_" => matches!(value, Bool(_) | Int(_) | Double(_) | Duration(_)),
        "_*_" | "_/_" => matches!(value, Int(_) | Uint(_) | Double(_)),
        "_%_" => matches!(value, Int(_) | Uint(_)),
        "_<_" | "_<=_" | "_>_" | "_>=_" => matches!(
            value,
            Bool(_)
                | Int(_)
                | Uint(_)
                | Double(_)
                | String(_)
                | Bytes(_)
                | Timestamp(_)
                | Duration(_)
        ),
        _ => true,
    }
}

fn overflow(kind: &str) -> Error {
    Error::new(format!("{kind} overflow"))
}

/// An integer, or the error that there is none.
fn int<'a>(number: Option<i64>) -> Result<Value<'a>> {
    number.map(Value::Int).ok_or_else(|| overflow("integer"))
}

fn uint<'a>(number: Option<u64>) -> Result<Value<'a>> {
    number
        .map(Value::Uint)
        .ok_or_else(|| overflow("unsigned integer"))
}

/// A duration whose nanoseconds are an i64, as those of Go are.
pub(super) fn duration<'a>(duration: Option<SignedDuration>) -> Result<Value<'a>> {
    duration
        .filter(|duration| i64::try_from(duration.as_nanos()).is_ok())
        .map(Value::Duration)
        .ok_or_else(|| overflow("integer"))
}

/// A time within the years 1 to 9999.
pub(super) fn timestamp<'a>(at: Option<DateTime>) -> Result<Value<'a>> {
    at.filter(|at| at.year() >= 1)
        .map(Value::Timestamp)
        .ok_or_else(|| overflow("timestamp"))
}

fn add<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [a, b] = args else { return None };
    Some(match (a, b) {
        (Value::Int(a), Value::Int(b)) => int(a.checked_add(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_add(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
        (Value::String(a), Value::String(b)) => Ok(Value::text([a.as_str(), b.as_str()].concat())),
        (Value::Bytes(a), Value::Bytes(b)) => Ok(Value::Bytes([&**a, b].concat().into())),
        (Value::Duration(a), Value::Duration(b)) => duration(a.checked_add(*b)),
        (Value::Duration(by), Value::Timestamp(at))
        | (Value::Timestamp(at), Value::Duration(by)) => timestamp(at.checked_add(*by).ok()),
        (Value::List(a), Value::List(b)) => a.concat(b).map(Value::List),
        _ => return None,
    })
}

fn subtract<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [a, b] = args else { return None };
    Some(match (a, b) {
        (Value::Int(a), Value::Int(b)) => int(a.checked_sub(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_sub(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a - b)),
        (Value::Duration(a), Value::Duration(b)) => duration(a.checked_sub(*b)),
        (Value::Timestamp(at), Value::Duration(by)) => timestamp(at.checked_sub(*by).ok()),
        (Value::Timestamp(a), Value::Timestamp(b)) => duration(Some(a.duration_since(*b))),
        _ => return None,
    })
}

fn multiply<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    Some(match args {
        [Value::Int(a), Value::Int(b)] => int(a.checked_mul(*b)),
        [Value::Uint(a), Value::Uint(b)] => uint(a.checked_mul(*b)),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a * b)),
        _ => return None,
    })
}

fn divide<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    Some(match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            Err(Error::new("division by zero"))
        }
        [Value::Int(a), Value::Int(b)] => int(a.checked_div(*b)),
        [Value::Uint(a), Value::Uint(b)] => uint(a.checked_div(*b)),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a / b)),
        _ => return None,
    })
}

fn modulo<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    Some(match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            Err(Error::new("modulus by zero"))
        }
        [Value::Int(a), Value::Int(b)] => int(a.checked_rem(*b)),
        [Value::Uint(a), Value::Uint(b)] => uint(a.checked_rem(*b)),
        _ => return None,
    })
}

fn negate<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    Some(match args {
        [Value::Int(number)] => int(number.checked_neg()),
        [Value::Double(number)] => Ok(Value::Double(-number)),
        [Value::Duration(by)] => duration(by.checked_neg()),
        _ => return None,
    })
}

fn ordered<'a>(
    args: &[Value<'a>],
    holds: fn(std::cmp::Ordering) -> bool,
) -> Option<Result<Value<'a>>> {
    let [a, b] = args else { return None };
    is_operand("_<_", a).then(|| a.compare(b).map(|order| Value::Bool(holds(order))))
}

fn contained<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    Some(match args {
        [item, Value::List(list)] => list.contains(item).map(Value::Bool),
        [key, Value::Map(map)] => {
            let found = map.get(key).transpose();
            found.map(|found| Value::Bool(found.is_some()))
        }
        _ => return None,
    })
}

fn size<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [value] = args else { return None };
    let size = i64::try_from(value.size()?).unwrap_or(i64::MAX);
    Some(Ok(Value::Int(size)))
}

/// A pattern that is compiled once, because it is a constant.
#[derive(Debug)]
pub struct Pattern {
    pub text: Arc<str>,
    pub program: Program,
}

impl Extension for Pattern {
    fn type_name(&self) -> &'static str {
        "string"
    }

    fn equals(&self, other: &dyn Extension) -> bool {
        let other = other.as_any().downcast_ref::<Self>();
        other.is_some_and(|other| other.text == self.text)
    }

    fn size(&self) -> Option<usize> {
        Some(self.text.chars().count())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Calls `then` with the compiled pattern of an argument, to search a text.
fn with_pattern<'a>(
    text: &str,
    pattern: &Value<'a>,
    wrap: impl Fn(String) -> String,
    then: impl FnOnce(&Program) -> Value<'a>,
) -> Option<Result<Value<'a>>> {
    let search = |program: &Program| match pattern::search(program, text.len()) {
        true => Ok(then(program)),
        false => Err(Error::CostLimit),
    };
    match pattern {
        Value::Extension(pattern) => {
            let pattern = pattern.as_any().downcast_ref::<Pattern>()?;
            Some(search(&pattern.program))
        }
        Value::String(text) => Some(match pattern::compile(text.as_str()) {
            Ok(program) => search(&program),
            Err(why) => Err(Error::new(wrap(why))),
        }),
        _ => None,
    }
}

fn matches<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    // The name of a type is matched, too, where the pattern has been compiled.
    let (text, pattern) = match args {
        [Value::String(text), pattern] => (text.as_str(), pattern),
        [Value::Type(text), pattern @ Value::Extension(_)] => (text.as_str(), pattern),
        _ => return None,
    };
    let matches = |program: &Program| Value::Bool(program.regex.is_match(text));
    with_pattern(text, pattern, |why| why, matches)
}

fn illegal(why: String) -> String {
    format!("Illegal regex: {why}")
}

fn find<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [Value::String(text), pattern] = args else {
        return None;
    };
    let text = text.as_str();
    let found = |program: &Program| {
        let found = program.regex.find(text);
        Value::text(found.map_or("", |found| found.as_str()))
    };
    with_pattern(text, pattern, illegal, found)
}

fn find_all<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let (text, pattern, limit) = match args {
        [Value::String(text), pattern] => (text.as_str(), pattern, -1),
        [Value::String(text), pattern, Value::Int(limit)] => (text.as_str(), pattern, *limit),
        _ => return None,
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let found = |program: &Program| {
        // To know where a match ends may take all of the text behind it.
        let found = program.regex.find_iter(text).take_while(|found| {
            pattern::search(program, text.len() - found.end()) && work::copy(1)
        });
        let found = found.take(limit).map(|found| Value::text(found.as_str()));
        Value::list(found.collect())
    };
    with_pattern(text, pattern, illegal, found)
}

/// A map with more entries, none of which it has.
fn insert<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let (Value::Map(map), more) = args.split_first()? else {
        return None;
    };
    let mut entries = match map {
        Map::Made(entries) => (**entries).clone(),
        Map::Tree(..) => return None,
    };
    let pairs = match more {
        [Value::Map(more)] => {
            let entries = more.entries().into_iter();
            entries
                .map(|(key, value)| Ok((key, value?)))
                .collect::<Result<Vec<_>>>()
        }
        [key, value] => Ok(vec![(key.clone(), value.clone())]),
        _ => return None,
    };
    let insert = |pairs: Vec<(Value<'a>, Value<'a>)>| {
        for (key, value) in pairs {
            let index = Key::of_entry(&key, entries.len());
            if entries.contains_key(&index) {
                let shown = super::conversions::shown(&key);
                return Err(Error::new(format!(
                    "insert failed: key {shown} already exists"
                )));
            }
            entries.insert(index, (key, value));
        }
        Ok(Value::map(entries))
    };
    Some(pairs.and_then(insert))
}

/// An item of a list by a number of any type that is an integer.
///
/// # Errors
/// An index that is not an integer.
pub fn item<'a>(list: &List<'a>, index: &Value<'a>) -> Result<Option<Value<'a>>> {
    let position = match Key::of(index) {
        Some(Key::Int(number)) if !matches!(index, Value::Bool(_)) => number,
        _ => {
            let message = match index {
                Value::Double(_) | Value::Uint(_) => {
                    let shown = super::conversions::shown(index);
                    format!("unsupported index value {shown} in list")
                }
                other => format!("unsupported index type '{}' in list", other.type_name()),
            };
            return Err(Error::new(message));
        }
    };
    let found = usize::try_from(position)
        .ok()
        .and_then(|position| list.get(position));
    match list {
        List::Tree(_, schema)
            if found.is_some() && !schema.is_unknown() && !matches!(index, Value::Int(_)) =>
        {
            let shown = super::conversions::shown(index);
            Err(Error::new(format!("unsupported index: {shown}")))
        }
        _ => found.transpose(),
    }
}
