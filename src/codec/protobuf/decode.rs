//! Protobuf to objects.

use crate::meta::go::base64;
use std::borrow::Cow;
use std::collections::BTreeMap;

use super::projection::{Choice, Projection};
use super::wire::{Reader, WireValue};
use crate::codec::{
    self, DecodeError, MAX_FIELDS, MAX_TREE_DEPTH, json, omit_empty, too_many_fields,
};
use crate::meta::go::quantity::Quantity;
use crate::meta::time::{self, Timestamp};
use crate::meta::{Map, Object, Value};
use crate::schema::{Kind, Schema, SchemaAlternative, Type, TypeId, TypeRef};

/// Reads a message without its envelope. Numbers that the type does not know are ignored. The
/// object has no `apiVersion` and `kind`: the envelope has them.
///
/// # Errors
/// Bytes that are no protobuf; quantities that are none.
pub fn decode(bytes: &[u8], ty: TypeRef) -> Result<Object, DecodeError> {
    Decoder {
        schema: ty.schema,
        slots: Vec::with_capacity(128),
        fields: 0,
    }
    .message(bytes, ty.id, 0, None)
    .map(Object)
}

/// Like [`decode`], of the fields that a projection names: the others are passed over.
///
/// # Errors
/// As [`decode`], for what is read.
pub fn decode_part(bytes: &[u8], ty: TypeRef, part: &Projection) -> Result<Object, DecodeError> {
    Decoder {
        schema: ty.schema,
        slots: Vec::with_capacity(128),
        fields: 0,
    }
    .message(bytes, ty.id, 0, Some(part))
    .map(Object)
}

/// One value as a tree; `None` where it is none.
pub(super) fn value(kind: &Kind, value: WireValue, schema: &Schema) -> Option<Value> {
    Decoder {
        schema,
        slots: Vec::new(),
        fields: 0,
    }
    .value(kind, value, 0, None)
    .ok()
}

struct Decoder<'s> {
    schema: &'s Schema,
    /// The fields of the messages that are open, a stretch for each.
    slots: Vec<Option<Value>>,
    /// The fields of all messages so far.
    fields: usize,
}

impl Decoder<'_> {
    fn message(
        &mut self,
        bytes: &[u8],
        id: TypeId,
        depth: usize,
        part: Option<&Projection>,
    ) -> Result<Map, DecodeError> {
        let ty = TypeRef {
            schema: self.schema,
            id,
        }
        .get();
        let base = self.slots.len();
        self.fill(bytes, id, depth, part)?;
        let count = self.slots[base..]
            .iter()
            .filter(|slot| slot.is_some())
            .count();
        let mut out = Map::with_capacity(count + 2);
        let mut show = |index: usize, slot: &mut Option<Value>| {
            let field = &ty.fields[index];
            let shown = match slot.take() {
                _ if matches!(field.kind, Kind::Inline(_)) => None,
                Some(value) => omit_empty::shown(field, value, self.schema),
                None => omit_empty::missing(field, self.schema),
            };
            if let Some(value) = shown {
                out.append(field.json.clone(), value);
            }
        };
        let slots = &mut self.slots[base..];
        match part {
            Some(part) => part
                .order
                .iter()
                .for_each(|&index| show(index, &mut slots[index])),
            None => slots
                .iter_mut()
                .enumerate()
                .for_each(|(index, slot)| show(index, slot)),
        }
        self.slots.truncate(base);
        self.fields += out.len() + 2;
        if self.fields > MAX_FIELDS {
            Err(too_many_fields())
        } else {
            Ok(out)
        }
    }

    /// Reads the fields of a message into slots of its own, at the end of the others.
    fn fill(
        &mut self,
        bytes: &[u8],
        id: TypeId,
        depth: usize,
        part: Option<&Projection>,
    ) -> Result<(), DecodeError> {
        if depth > MAX_TREE_DEPTH {
            return Err(DecodeError::new("exceeded max depth"));
        }
        let ty = TypeRef {
            schema: self.schema,
            id,
        }
        .get();
        let base = self.slots.len();
        self.slots.resize(base + ty.fields.len(), None);
        let mut fields = Reader::new(bytes);
        let wire = self.schema.wire(id);
        while let Some(raw) = fields.next()? {
            let Some(place) = wire
                .slot_of_tag(raw.tag())
                .or_else(|| wire.place(raw.number))
            else {
                continue;
            };
            let index = wire.fields[place].index;
            let field = &ty.fields[index];
            let part = match part.map(|part| part.choice(index)) {
                None => None,
                Some(Choice::Skip) => continue,
                Some(choice) => choice.inner(),
            };
            match &field.kind {
                Kind::Inline(inner) => self.inline(raw.value.bytes(), *inner, ty, base, depth)?,
                Kind::List(item, _) if !field.wrapped => {
                    let value = self.value(item, raw.value, depth, part)?;
                    match &mut self.slots[base + index] {
                        Some(Value::Array(items)) => items.push(value),
                        slot => *slot = Some(Value::Array(vec![value])),
                    }
                }
                Kind::Map(item, _) => {
                    let (key, value) = self.entry(item, raw.value.bytes(), depth, part)?;
                    match &mut self.slots[base + index] {
                        Some(Value::Object(map)) => {
                            map.insert(key, value);
                        }
                        slot => *slot = Some(Value::Object(Map::from_iter([(key, value)]))),
                    }
                }
                kind => {
                    let value = match kind {
                        Kind::List(item, _) => self.wrapped(item, raw.value, depth)?,
                        kind => self.value(kind, raw.value, depth, part)?,
                    };
                    self.slots[base + index] = Some(value);
                }
            }
        }
        // gogo writes maps sorted; others may not.
        for (slot, field) in self.slots[base..].iter_mut().zip(&ty.fields) {
            if let (Some(Value::Object(map)), Kind::Map(..)) = (slot, &field.kind)
                && !map.keys().is_sorted()
            {
                *map = std::mem::take(map)
                    .into_iter()
                    .collect::<BTreeMap<_, _>>()
                    .into_iter()
                    .collect();
            }
        }
        Ok(())
    }

    /// An inlined message: its fields are fields of the one around it, whose slots begin at `base`.
    fn inline(
        &mut self,
        bytes: &[u8],
        id: TypeId,
        outer: &Type,
        base: usize,
        depth: usize,
    ) -> Result<(), DecodeError> {
        let inner = TypeRef {
            schema: self.schema,
            id,
        }
        .get();
        let own = self.slots.len();
        self.fill(bytes, id, depth + 1, None)?;
        for (offset, field) in inner.fields.iter().enumerate() {
            if let (Some(value), Some(&index)) = (
                self.slots[own + offset].take(),
                outer.by_json.get(&field.json),
            ) {
                self.slots[base + index] = Some(value);
            }
        }
        self.slots.truncate(own);
        Ok(())
    }

    fn wrapped(
        &mut self,
        item: &Kind,
        value: WireValue,
        depth: usize,
    ) -> Result<Value, DecodeError> {
        let mut items = Vec::new();
        let mut fields = Reader::new(value.bytes());
        while let Some(raw) = fields.next()? {
            if raw.number == 1 {
                items.push(self.value(item, raw.value, depth, None)?);
            }
        }
        Ok(Value::Array(items))
    }

    fn entry(
        &mut self,
        item: &Kind,
        bytes: &[u8],
        depth: usize,
        part: Option<&Projection>,
    ) -> Result<(String, Value), DecodeError> {
        let (mut key, mut value) = (String::new(), None);
        let mut fields = Reader::new(bytes);
        while let Some(raw) = fields.next()? {
            match raw.number {
                1 => key = text(raw.value),
                2 => {
                    value = Some(match item {
                        Kind::List(inner, _) => self.wrapped(inner, raw.value, depth)?,
                        kind => self.value(kind, raw.value, depth, part)?,
                    });
                }
                _ => {}
            }
        }
        let value = value.unwrap_or_else(|| match item {
            Kind::Bytes => Value::String(String::new()),
            kind => omit_empty::zero(kind, self.schema),
        });
        Ok((key, value))
    }

    fn value(
        &mut self,
        kind: &Kind,
        value: WireValue,
        depth: usize,
        part: Option<&Projection>,
    ) -> Result<Value, DecodeError> {
        Ok(match kind {
            Kind::String => Value::String(text(value)),
            Kind::Bool => Value::Bool(value.integer() != 0),
            Kind::Int32 => Value::from(value.integer() as i32),
            Kind::Int64 => Value::from(value.integer() as i64),
            Kind::Double => double(value),
            Kind::Bytes => Value::String(base64::encode(value.bytes())),
            Kind::Quantity => Value::String(quantity(value.bytes())?.into_owned()),
            Kind::Time => timestamp(value.bytes())?.map_or(Value::Null, |time| {
                Value::String(time::format(time.seconds))
            }),
            Kind::MicroTime => timestamp(value.bytes())?
                .map_or(Value::Null, |time| Value::String(time::format_micro(time))),
            Kind::IntOrString => match int_or_string(value.bytes())? {
                IntOrString::Int(value) => Value::from(value),
                IntOrString::String(text) => Value::String(codec::text(text).into_owned()),
            },
            Kind::Raw | Kind::FieldsV1 | Kind::Any => match raw(value.bytes())? {
                [] => Value::Null,
                bytes => {
                    let document = json::Document::new(bytes)?;
                    let text = if *kind == Kind::FieldsV1 {
                        document.canonical_object()
                    } else {
                        None
                    };
                    text.map_or_else(
                        || document.value(),
                        |text| Ok(Value::Object(Map::from_raw_json(text.to_owned()))),
                    )?
                }
            },
            Kind::SchemaOr(alternative, id) => {
                self.schema_or(*alternative, *id, value.bytes(), depth)?
            }
            Kind::Message(id) | Kind::Inline(id) => {
                Value::Object(self.message(value.bytes(), *id, depth + 1, part)?)
            }
            Kind::List(..) | Kind::Map(..) => Value::Null,
        })
    }

    fn schema_or(
        &mut self,
        alternative: SchemaAlternative,
        id: TypeId,
        bytes: &[u8],
        depth: usize,
    ) -> Result<Value, DecodeError> {
        let kind = Kind::Message(id);
        let (mut schema, mut allows, mut items) = (None, false, Vec::new());
        let mut fields = Reader::new(bytes);
        while let Some(raw) = fields.next()? {
            match (alternative, raw.number) {
                (SchemaAlternative::Bool, 1) => allows = raw.value.integer() != 0,
                (SchemaAlternative::Bool, 2) | (_, 1) => {
                    schema = Some(self.value(&kind, raw.value, depth, None)?)
                }
                (SchemaAlternative::Array, 2) => {
                    items.push(self.value(&kind, raw.value, depth, None)?)
                }
                (SchemaAlternative::StringArray, 2) => items.push(Value::String(text(raw.value))),
                _ => {}
            }
        }
        Ok(match (schema, alternative) {
            (_, SchemaAlternative::Array | SchemaAlternative::StringArray) if !items.is_empty() => {
                Value::Array(items)
            }
            (Some(schema), _) => schema,
            (None, SchemaAlternative::Bool) => Value::Bool(allows),
            _ => Value::Null,
        })
    }
}

fn text(value: WireValue) -> String {
    codec::text(value.bytes()).into_owned()
}

fn double(value: WireValue) -> Value {
    serde_json::Number::from_f64(f64::from_bits(value.integer())).map_or(Value::Null, Value::Number)
}

/// The only field of a `RawExtension`, `JSON` or `FieldsV1`.
pub(super) fn raw(bytes: &[u8]) -> Result<&[u8], DecodeError> {
    let mut out: &[u8] = &[];
    let mut fields = Reader::new(bytes);
    while let Some(field) = fields.next()? {
        if field.number == 1 {
            out = field.value.bytes();
        }
    }
    Ok(out)
}

pub(super) fn quantity(bytes: &[u8]) -> Result<Cow<'_, str>, DecodeError> {
    let text = raw(bytes)?;
    let text = str::from_utf8(text).unwrap_or_default();
    let text = if text.is_empty() { "0" } else { text };
    Quantity::normalise(text).map_err(|error| DecodeError(error.to_string()))
}

/// The moment of a Timestamp; `None` for the zero time, which has no bytes.
pub(super) fn timestamp(bytes: &[u8]) -> Result<Option<Timestamp>, DecodeError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut out = Timestamp {
        seconds: 0,
        nanos: 0,
    };
    let mut fields = Reader::new(bytes);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => out.seconds = field.value.integer() as i64,
            2 => out.nanos = (field.value.integer() as u32).min(999_999_999),
            _ => {}
        }
    }
    // Years of more than four digits cannot be written.
    const LAST: i64 = 253_402_300_799;
    out.seconds = out.seconds.clamp(time::ZERO.seconds, LAST);
    Ok(if out == time::ZERO { None } else { Some(out) })
}

pub(super) enum IntOrString<'a> {
    Int(i32),
    String(&'a [u8]),
}

pub(super) fn int_or_string(bytes: &[u8]) -> Result<IntOrString<'_>, DecodeError> {
    let (mut is_string, mut integer, mut text) = (false, 0, &[][..]);
    let mut fields = Reader::new(bytes);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => is_string = field.value.integer() != 0,
            2 => integer = field.value.integer() as i32,
            3 => text = field.value.bytes(),
            _ => {}
        }
    }
    Ok(if is_string {
        IntOrString::String(text)
    } else {
        IntOrString::Int(integer)
    })
}
