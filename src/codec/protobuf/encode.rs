//! Objects to protobuf, byte for byte as gogo's marshallers write them: fields by ascending number,
//! non-pointer values always, maps sorted by key.

use super::wire::{put_bytes, put_double, put_integer, put_message};
use crate::codec::json;
use crate::meta::go::base64;
use crate::meta::{Map, Object, Value, time};
use crate::schema::{Field, Kind, Presence, Schema, SchemaAlternative, TypeId, TypeRef};

/// The message of an object, without the envelope. `apiVersion`, `kind` and what the type does not
/// know are left out; so is a value of another JSON type than the schema's.
pub fn encode(object: &Object, ty: TypeRef) -> Vec<u8> {
    let mut out = Vec::with_capacity(4096);
    Encoder {
        schema: ty.schema,
        slots: Vec::with_capacity(128),
    }
    .message(ty.id, object, &mut out);
    out
}

/// Stands for a value, and for an object that is not there.
static NOTHING: std::sync::LazyLock<Map> = std::sync::LazyLock::new(Map::new);
static NULL: Value = Value::Null;

struct Encoder<'s, 'v> {
    schema: &'s Schema,
    /// The values of the messages that are open, a stretch for each, by the index of the field.
    slots: Vec<Option<&'v Value>>,
}

impl<'v> Encoder<'_, 'v> {
    fn message(&mut self, id: TypeId, object: &'v Map, out: &mut Vec<u8>) {
        let ty = TypeRef {
            schema: self.schema,
            id,
        }
        .get();
        let base = self.slots.len();
        self.slots.resize(base + ty.fields.len(), None);
        let mut guess = 0;
        for (key, value) in object.iter().filter(|(_, value)| !value.is_null()) {
            if let Some(index) = ty.index_from(guess, key) {
                self.slots[base + index] = Some(value);
                guess = index + 1;
            }
        }
        for &index in &ty.wire_order {
            let field = &ty.fields[index];
            match (&field.kind, self.slots[base + index]) {
                (&Kind::Inline(inner), _) => {
                    put_message(field.number, out, |out| self.message(inner, object, out))
                }
                (_, Some(value)) => self.field(field, value, out),
                (_, None) if matches!(field.presence, Presence::Always | Presence::OmitEmpty) => {
                    self.absent(field, out)
                }
                _ => {}
            }
        }
        self.slots.truncate(base);
    }

    fn field(&mut self, field: &Field, value: &'v Value, out: &mut Vec<u8>) {
        let number = field.number;
        match (&field.kind, value) {
            (Kind::List(item, _), Value::Array(items)) if field.wrapped => {
                put_message(number, out, |out| self.items(item, items, out))
            }
            (Kind::List(item, _), Value::Array(items)) => items
                .iter()
                .for_each(|one| self.value(number, item, one, out)),
            (Kind::Map(item, _), Value::Object(map)) => self.map(number, item, map, out),
            (kind, value) => self.value(number, kind, value, out),
        }
    }

    /// A Go value that is no pointer and has not been set.
    fn absent(&mut self, field: &Field, out: &mut Vec<u8>) {
        match &field.kind {
            Kind::Bytes | Kind::List(..) | Kind::Map(..) => {}
            kind => self.value(field.number, kind, &NULL, out),
        }
    }

    fn items(&mut self, item: &Kind, items: &'v [Value], out: &mut Vec<u8>) {
        items.iter().for_each(|one| self.value(1, item, one, out));
    }

    fn map(&mut self, number: u32, item: &Kind, map: &'v Map, out: &mut Vec<u8>) {
        let mut write = |key: &str, value: &'v Value| {
            put_message(number, out, |out| {
                put_bytes(1, key.as_bytes(), out);
                match (item, value) {
                    (Kind::List(inner, _), Value::Array(items)) => {
                        put_message(2, out, |out| self.items(inner, items, out))
                    }
                    (kind, value) => self.value(2, kind, value, out),
                }
            });
        };
        if map.keys().is_sorted() {
            map.iter().for_each(|(key, value)| write(key, value));
        } else {
            let mut sorted: Vec<_> = map.iter().collect();
            sorted.sort_unstable_by_key(|(key, _)| *key);
            sorted
                .into_iter()
                .for_each(|(key, value)| write(key, value));
        }
    }

    /// One value; null is written as the zero value.
    fn value(&mut self, number: u32, kind: &Kind, value: &'v Value, out: &mut Vec<u8>) {
        match kind {
            Kind::String => put_bytes(number, value.as_str().unwrap_or_default().as_bytes(), out),
            Kind::Bool => put_integer(number, value.as_bool().unwrap_or_default().into(), out),
            Kind::Int32 | Kind::Int64 => put_integer(number, integer(value), out),
            Kind::Double => put_double(number, value.as_f64().unwrap_or_default(), out),
            Kind::Bytes => put_bytes(
                number,
                &base64::decode(value.as_str().unwrap_or_default()),
                out,
            ),
            Kind::Quantity => {
                let text = value.as_str().unwrap_or("0");
                put_message(number, out, |out| put_bytes(1, text.as_bytes(), out));
            }
            Kind::Time | Kind::MicroTime => {
                put_message(number, out, |out| put_time(kind, value, out))
            }
            Kind::IntOrString => put_message(number, out, |out| {
                put_integer(1, value.is_string().into(), out);
                put_integer(2, integer(value), out);
                put_bytes(3, value.as_str().unwrap_or_default().as_bytes(), out);
            }),
            Kind::Raw | Kind::FieldsV1 | Kind::Any => {
                put_message(number, out, |out| put_raw(value, out))
            }
            Kind::SchemaOr(alternative, id) => put_message(number, out, |out| {
                self.schema_or(*alternative, *id, value, out)
            }),
            Kind::Message(id) | Kind::Inline(id) => {
                let object = value.as_object().unwrap_or(&NOTHING);
                put_message(number, out, |out| self.message(*id, object, out));
            }
            // A list or map in a place where only wrapped ones can be: callers see to those.
            Kind::List(..) | Kind::Map(..) => put_bytes(number, b"", out),
        }
    }

    fn schema_or(
        &mut self,
        alternative: SchemaAlternative,
        id: TypeId,
        value: &'v Value,
        out: &mut Vec<u8>,
    ) {
        let kind = Kind::Message(id);
        match (alternative, value) {
            (SchemaAlternative::Bool, _) => {
                put_integer(
                    1,
                    (value.is_object() || value.as_bool().unwrap_or_default()).into(),
                    out,
                );
                if value.is_object() {
                    self.value(2, &kind, value, out);
                }
            }
            (SchemaAlternative::Array, Value::Array(items)) => {
                items.iter().for_each(|one| self.value(2, &kind, one, out));
            }
            (SchemaAlternative::StringArray, Value::Array(items)) => {
                items
                    .iter()
                    .for_each(|one| self.value(2, &Kind::String, one, out));
            }
            (_, Value::Object(_)) => self.value(1, &kind, value, out),
            _ => {}
        }
    }
}

fn integer(value: &Value) -> u64 {
    value.as_i64().unwrap_or_default() as u64
}

/// Nothing for the zero time.
fn put_time(kind: &Kind, value: &Value, out: &mut Vec<u8>) {
    let text = value.as_str().unwrap_or_default();
    let (time, micro) = match kind {
        Kind::MicroTime => (time::parse_micro(text), true),
        _ => (time::parse(text), false),
    };
    if let Some(time) = time.ok().filter(|time| *time != time::ZERO) {
        put_integer(1, time.seconds as u64, out);
        put_integer(2, if micro { time.nanos.into() } else { 0 }, out);
    }
}

fn put_raw(value: &Value, out: &mut Vec<u8>) {
    if !value.is_null() {
        put_message(1, out, |out| json::encode_value(value, out));
    }
}
