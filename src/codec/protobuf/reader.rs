//! Scalars and labels of a message, read in place, so that selectors need no tree.

use std::borrow::Cow;

use super::decode;
use super::wire::{Reader, WireValue};
use crate::codec::{self, omit_empty};
use crate::meta::Value;
use crate::meta::selector::FieldReader;
use crate::schema::{Field, Kind, Type, TypeRef};

/// The number of `metadata` in every kind.
pub(super) const METADATA: u32 = 1;
/// The number of `labels` in ObjectMeta.
const LABELS: u32 = 11;

/// The bytes of a message (without its envelope) and their type. What is no protobuf is absent to
/// every look-up.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    pub bytes: &'a [u8],
    pub ty: TypeRef<'a>,
}

impl<'a> Message<'a> {
    /// The labels in their stored order, which is that of their keys.
    pub fn labels(&self) -> impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)> + use<'a> {
        let metadata = last(self.bytes, METADATA).map_or(&[][..], WireValue::bytes);
        entries(metadata, LABELS).map(|(key, value)| {
            (
                codec::text(key),
                codec::text(value.map_or(&[], WireValue::bytes)),
            )
        })
    }
}

impl FieldReader for Message<'_> {
    fn text_at(&self, dotted: &str) -> Cow<'_, str> {
        text_at(self.bytes, self.ty, dotted).unwrap_or_default()
    }

    fn label(&self, key: &str) -> Option<Cow<'_, str>> {
        let metadata = last(self.bytes, METADATA)?.bytes();
        entry(metadata, LABELS, key).map(|value| codec::text(value.map_or(&[], WireValue::bytes)))
    }

    fn each_label(&self, look: &mut dyn FnMut(&str, &str)) {
        self.labels().for_each(|(key, value)| look(&key, &value));
    }
}

/// The scalar at a dotted path of JSON names (indexes in lists, keys without dots in maps and raw
/// JSON), as it would be text in a tree; `None` where JSON shows none.
pub fn text_at<'a>(bytes: &'a [u8], ty: TypeRef<'a>, dotted: &str) -> Option<Cow<'a, str>> {
    let (name, rest) = match dotted.split_once('.') {
        Some((name, rest)) => (name, Some(rest)),
        None => (dotted, None),
    };
    let outer = ty.get();
    let field = outer
        .fields
        .iter()
        .find(|field| field.json == name && !matches!(field.kind, Kind::Inline(_)))?;
    if let Some((number, id)) = field.via.and_then(|via| inlined(outer, via)) {
        return text_at(
            last(bytes, number).map_or(&[], WireValue::bytes),
            ty.to(id),
            dotted,
        );
    }
    match (&field.kind, rest) {
        (Kind::Message(id), Some(rest)) => match last(bytes, field.number) {
            Some(value) => text_at(value.bytes(), ty.to(*id), rest),
            // A struct that is no pointer shows even if it is absent.
            None if field.presence == crate::schema::Presence::Always => {
                text_at(&[], ty.to(*id), rest)
            }
            None => None,
        },
        (Kind::List(item, _), Some(rest)) if !field.wrapped => {
            let (index, rest) = rest
                .split_once('.')
                .map_or((rest, None), |(index, rest)| (index, Some(rest)));
            let value = nth(bytes, field.number, index.parse().ok()?)?;
            match (&**item, rest) {
                (Kind::Message(id), Some(rest)) => text_at(value.bytes(), ty.to(*id), rest),
                (kind, None) => text(decode::value(kind, value, ty.schema)?),
                _ => None,
            }
        }
        (Kind::Map(item, _), Some(key)) if !key.contains('.') => {
            let value = entry(bytes, field.number, key)?.unwrap_or(WireValue::Bytes(&[]));
            if let Kind::String = **item {
                Some(codec::text(value.bytes()))
            } else {
                text(decode::value(item, value, ty.schema)?)
            }
        }
        (Kind::Raw | Kind::Any, Some(rest)) => {
            let raw = decode::raw(last(bytes, field.number)?.bytes()).ok()?;
            crate::codec::json::Reader::new(raw).scalar(rest)
        }
        (_, None) => scalar(field, last(bytes, field.number), ty),
        _ => None,
    }
}

/// The number and type of the message through which protobuf carries an inlined field.
fn inlined(outer: &Type, via: usize) -> Option<(u32, crate::schema::TypeId)> {
    let through = outer.fields.get(via)?;
    if let Kind::Inline(id) = through.kind {
        Some((through.number, id))
    } else {
        None
    }
}

/// Returns the value that JSON shows for a field that may be absent.
fn scalar<'a>(field: &Field, value: Option<WireValue<'a>>, ty: TypeRef) -> Option<Cow<'a, str>> {
    match (&field.kind, value) {
        (Kind::String, Some(value)) if !value.bytes().is_empty() => {
            Some(codec::text(value.bytes()))
        }
        (kind, Some(value)) => text(omit_empty::shown(
            field,
            decode::value(kind, value, ty.schema)?,
            ty.schema,
        )?),
        (_, None) => text(omit_empty::missing(field, ty.schema)?),
    }
}

fn text<'a>(value: Value) -> Option<Cow<'a, str>> {
    match value {
        Value::String(text) => Some(Cow::Owned(text)),
        Value::Bool(value) => Some(Cow::Borrowed(if value { "true" } else { "false" })),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        _ => None,
    }
}

/// The last value with a number, which is the one that counts. Fields are written by ascending
/// number: what comes after a larger one is not looked at once there is a value.
pub(super) fn last(bytes: &[u8], number: u32) -> Option<WireValue<'_>> {
    let mut out = None;
    let mut fields = Reader::new(bytes);
    while let Ok(Some(field)) = fields.next() {
        if field.number == number {
            out = Some(field.value);
        } else if field.number > number && out.is_some() {
            break;
        }
    }
    out
}

fn nth(bytes: &[u8], number: u32, index: usize) -> Option<WireValue<'_>> {
    values(bytes, number).nth(index)
}

/// The values with a number, in their order.
pub(super) fn values(bytes: &[u8], number: u32) -> impl Iterator<Item = WireValue<'_>> {
    let mut fields = Reader::new(bytes);
    let all = std::iter::from_fn(move || fields.next().ok().flatten());
    all.filter(move |field| field.number == number)
        .map(|field| field.value)
}

/// The keys and values of a map.
fn entries(bytes: &[u8], number: u32) -> impl Iterator<Item = (&[u8], Option<WireValue<'_>>)> {
    values(bytes, number).map(|entry| {
        let (mut key, mut value) = (&[][..], None);
        let mut fields = Reader::new(entry.bytes());
        while let Ok(Some(field)) = fields.next() {
            match field.number {
                1 => key = field.value.bytes(),
                2 => value = Some(field.value),
                _ => {}
            }
        }
        (key, value)
    })
}

/// The value of a key in a map; of entries with the same key the last counts.
fn entry<'a>(bytes: &'a [u8], number: u32, key: &str) -> Option<Option<WireValue<'a>>> {
    entries(bytes, number)
        .filter(|(found, _)| *found == key.as_bytes())
        .last()
        .map(|(_, value)| value)
}
