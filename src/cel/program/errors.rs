//! The errors of cel-go that tell of the types of values.

use super::super::environment::JSON_PATCH;
use super::super::library::{self, Pattern};
use super::super::schema::ListType;
use super::super::value::{Error, List, Map, Value};

/// The error that a function does not take such arguments. What is told of it depends on how
/// cel-go binds the function.
pub fn no_such_overload(name: &str, args: &[Value<'_>]) -> Error {
    // Values that have methods in cel-go are asked for one before it is told that there is none.
    let has_methods = matches!(
        args,
        [
            Value::String(_) | Value::Timestamp(_) | Value::Duration(_),
            ..
        ]
    );
    match name {
        _ if library::looks_itself(name) && has_methods => Error::no_such_overload(),
        "size" | "sort" | "@sortByAssociatedKeys" => {
            Error::new(format!("no such overload: {name}"))
        }
        // A pattern that is no constant is matched by the text.
        "matches" if !matches!(args, [Value::String(_), ..]) && !has_pattern(args) => {
            Error::new("no such overload: matches")
        }
        "find" | "findAll" if has_pattern(args) => Error::no_such_overload(),
        "startsWith" | "endsWith" | "contains" | "matches" => Error::no_such_overload(),
        operator if operator.contains('_') || operator.starts_with('@') => match args {
            [first, ..] if !library::is_operand(operator, first) => {
                Error::new(format!("no such overload: {operator}"))
            }
            _ => Error::no_such_overload(),
        },
        name => {
            let types: Vec<&str> = args.iter().map(Value::type_name).collect();
            let types = types.join(", ");
            Error::new(format!("no such overload: {name}({types})"))
        }
    }
}

/// Reports whether a pattern was a constant, which is compiled before.
fn has_pattern(args: &[Value<'_>]) -> bool {
    matches!(args, [_, Value::Extension(value), ..] if value.as_any().is::<Pattern>())
}

/// The name of a value's type in Go, which some errors tell.
pub fn go_type(value: &Value<'_>) -> &'static str {
    match value {
        Value::Null => "types.Null",
        Value::Bool(_) => "types.Bool",
        Value::Int(_) => "types.Int",
        Value::Uint(_) => "types.Uint",
        Value::Double(_) => "types.Double",
        Value::String(_) => "types.String",
        Value::Bytes(_) => "types.Bytes",
        Value::Timestamp(_) => "types.Timestamp",
        Value::Duration(_) => "types.Duration",
        Value::List(List::Joined(_)) => "*types.concatList",
        Value::List(_) => "*types.baseList",
        Value::Map(_) => "*types.baseMap",
        Value::Type(_) => "*types.Type",
        Value::Optional(_) => "*types.Optional",
        Value::Extension(value) => match (value.type_name(), value.is_comparable()) {
            ("kubernetes.Quantity", true) => "cel.Quantity",
            ("kubernetes.Quantity", false) => "*cel.Quantity",
            ("kubernetes.Semver", _) => "cel.Semver",
            ("kubernetes.URL", _) => "cel.URL",
            ("kubernetes.NamedFormat", _) => "*cel.Format",
            ("net.IP", _) => "cel.IP",
            ("net.CIDR", _) => "cel.CIDR",
            _ => "*types.Object",
        },
        Value::Struct(object) if &*object.name == JSON_PATCH => "*mutation.JSONPatchVal",
        Value::Struct(_) => "*dynamic.ObjectVal",
    }
}

/// The name of the type in Go of a value that selects nothing, which may be a part of a variable.
pub fn no_qualifier(key: &Value<'_>, of_variable: bool) -> Option<&'static str> {
    Some(match key {
        Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::String(_) => {
            return None;
        }
        Value::Null if of_variable => "<nil>",
        Value::List(List::Tree(_, schema) | List::Typed(_, schema)) if !schema.is_unknown() => {
            match schema.list_type() {
                ListType::Atomic => "*common.unstructuredList",
                ListType::Set => "*common.unstructuredSetList",
                ListType::Map(_) => "*common.unstructuredMapList",
            }
        }
        Value::List(List::Tree(..)) if of_variable => "[]interface {}",
        Value::Map(Map::Tree(_, schema)) if !schema.is_unknown() => "*common.unstructuredMap",
        Value::Map(Map::Tree(..)) if of_variable => "map[string]interface {}",
        other => go_type(other),
    })
}

/// The error that a field of a list was asked for.
pub fn no_field_of_list() -> Error {
    Error::new("unsupported index type 'string' in list")
}
