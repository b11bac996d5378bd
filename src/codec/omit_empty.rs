//! Go's `omitempty`: the zero values that JSON shows, and the values that absent fields stand for.

use crate::meta::{Gvk, Map, Value};
use crate::schema::{Field, Kind, Presence, Schema, TypeId, TypeRef};

/// Returns a decoded field as JSON shows it; `None` if JSON does not.
pub(super) fn shown(field: &Field, mut value: Value, schema: &Schema) -> Option<Value> {
    if field.embedded {
        embed(field, &mut value, schema);
    }
    match (field.presence, &value) {
        (_, Value::Null) => missing(field, schema),
        (_, Value::Array(_)) if field.keeps_empty => Some(value),
        (Presence::OmitEmpty, value) if is_zero(value) => missing(field, schema),
        _ => Some(value),
    }
}

/// Returns the value that JSON shows for an absent field.
pub(super) fn missing(field: &Field, schema: &Schema) -> Option<Value> {
    match field.presence {
        Presence::Always => Some(zero(&field.kind, schema)),
        Presence::Nullable => Some(Value::Null),
        Presence::OmitEmpty if !field.filled.is_empty() => {
            Some(Value::String(field.filled.clone()))
        }
        Presence::OmitEmpty | Presence::Pointer => None,
    }
}

/// The kind of the items of an embedding list: what stands in their `apiVersion` and `kind`.
pub(super) fn embedded_kind<'s>(field: &Field, schema: &'s Schema) -> Option<&'s Gvk> {
    match &field.kind {
        Kind::List(item, _) => match **item {
            Kind::Message(id) => TypeRef { schema, id }.get().gvks.first(),
            _ => None,
        },
        _ => None,
    }
}

/// Sets kind and apiVersion of the items of an embedding list, regardless of what they had of
/// themselves.
fn embed(field: &Field, value: &mut Value, schema: &Schema) {
    let (Some(gvk), Value::Array(items)) = (embedded_kind(field, schema), value) else {
        return;
    };
    for item in items.iter_mut().filter_map(Value::as_object_mut) {
        item.shift_insert(0, "kind", gvk.kind.clone().into());
        item.shift_insert(1, "apiVersion", gvk.api_version().into());
    }
}

/// The zero value of a Go type, as JSON shows it.
pub(super) fn zero(kind: &Kind, schema: &Schema) -> Value {
    match kind {
        Kind::String => Value::String(String::new()),
        Kind::Bool => Value::Bool(false),
        Kind::Int32 | Kind::Int64 | Kind::Double | Kind::IntOrString => Value::from(0),
        Kind::Quantity => Value::String("0".to_owned()),
        Kind::Message(id) => Value::Object(empty(*id, schema)),
        Kind::SchemaOr(crate::schema::SchemaAlternative::Bool, _) => Value::Bool(false),
        _ => Value::Null,
    }
}

/// A struct without any field set.
pub(super) fn empty(id: TypeId, schema: &Schema) -> Map {
    let ty = TypeRef { schema, id }.get();
    let mut out = Map::new();
    for field in ty
        .fields
        .iter()
        .filter(|field| !matches!(field.kind, Kind::Inline(_)))
    {
        if let Some(value) = missing(field, schema) {
            out.append(field.json.clone(), value);
        }
    }
    out
}

pub(super) fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}
