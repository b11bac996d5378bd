//! Functions of optional values (cel-go `cel/library.go`).

use super::super::value::{Error, Result, Value};
use super::super::work;
use super::Declaration;
use super::operators::declare;

pub const DECLARATIONS: &[Declaration] = &[
    declare!("optional.of", |args| match args {
        [value] => Some(Ok(Value::some(value.clone()))),
        _ => None,
    }, "optional_of": "(V) -> optional_type(V)"),
    declare!("optional.ofNonZeroValue", |args| match args {
        [value] if value.is_zero() => Some(Ok(Value::none())),
        [value] => Some(Ok(Value::some(value.clone()))),
        _ => None,
    }, "optional_ofNonZeroValue": "(V) -> optional_type(V)"),
    declare!("optional.none", |args| args.is_empty().then(|| Ok(Value::none())),
        "optional_none": "() -> optional_type(V)"),
    declare!("value", value, "optional_value": "optional_type(V)() -> V"),
    declare!("hasValue", |args| match args {
        [Value::Optional(optional)] => Some(Ok(Value::Bool(optional.is_some()))),
        _ => None,
    }, "optional_hasValue": "optional_type(V)() -> bool"),
    declare!("or", |_| None, "optional_or_optional": "optional_type(V)(optional_type(V)) -> optional_type(V)"),
    declare!("orValue", |_| None, "optional_orValue_value": "optional_type(V)(V) -> V"),
    declare!("_?._", |_| None, "select_optional_field": "(dyn, string) -> optional_type(V)"),
    declare!("_[?_]", |_| None,
        "list_optindex_optional_int": "(list(V), int) -> optional_type(V)",
        "optional_list_optindex_optional_int":
            "(optional_type(list(V)), int) -> optional_type(V)",
        "map_optindex_optional_value": "(map(K, V), K) -> optional_type(V)",
        "optional_map_optindex_optional_value":
            "(optional_type(map(K, V)), K) -> optional_type(V)",
    ),
    declare!("first", |args| end(args, |_| 0), "list_first": "list(V)() -> optional_type(V)"),
    declare!("last", |args| end(args, |len| len - 1),
        "list_last": "list(V)() -> optional_type(V)"),
    declare!("optional.unwrap", unwrap,
        "optional_unwrap": "(list(optional_type(V))) -> list(V)"),
    declare!("unwrapOpt", unwrap,
        "optional_unwrapOpt": "list(optional_type(V))() -> list(V)"),
];

fn value<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    match args {
        [Value::Optional(Some(value))] => Some(Ok((**value).clone())),
        [Value::Optional(None)] => Some(Err(Error::new("optional.none() dereference"))),
        _ => None,
    }
}

/// The item at one end of a list.
fn end<'a>(args: &[Value<'a>], index: fn(usize) -> usize) -> Option<Result<Value<'a>>> {
    let [Value::List(list)] = args else {
        return None;
    };
    if list.len() == 0 {
        return Some(Ok(Value::none()));
    }
    let item = list.get(index(list.len()))?;
    Some(item.map(Value::some))
}

fn unwrap<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [Value::List(list)] = args else {
        return None;
    };
    if !work::copy(list.len()) {
        return Some(Err(Error::CostLimit));
    }
    let mut out = Vec::new();
    for item in list.iter() {
        match item {
            Ok(Value::Optional(Some(value))) => out.push((*value).clone()),
            Ok(Value::Optional(None)) => {}
            Ok(other) => {
                let shown = super::conversions::shown(&other);
                return Some(Err(Error::new(format!("value {shown} is not optional"))));
            }
            Err(error) => return Some(Err(error)),
        }
    }
    Some(Ok(Value::list(out)))
}
