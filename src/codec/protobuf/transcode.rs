//! Protobuf to JSON without a tree in between. Writes exactly what decoding and encoding the tree would.

use std::borrow::Cow;

use super::decode::{IntOrString, int_or_string, quantity, raw, timestamp};
use super::wire::{Raw, Reader, Wire, find};
use crate::codec::{DecodeError, MAX_TREE_DEPTH, base64, json, shape, text};
use crate::meta::{Gvk, time};
use crate::schema::{Field, Kind, Presence, Schema, SchemaAlternative, Type, TypeId, TypeRef};

/// Appends the JSON of a message (without its envelope): `kind` and `apiVersion` first, then the fields in the order of
/// the schema. `resource_version` takes the place of `metadata.resourceVersion`.
///
/// # Errors
/// As [`super::decode`]; what was appended is then of no use.
pub fn to_json(
    bytes: &[u8],
    ty: TypeRef,
    api_version: &str,
    kind: &str,
    resource_version: Option<i64>,
    out: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    let mut transcoder = Transcoder { schema: ty.schema, spans: Vec::with_capacity(256), out, resource_version };
    transcoder.out.push(b'{');
    for (name, value) in [("kind", kind), ("apiVersion", api_version)] {
        if !value.is_empty() {
            transcoder.key(name);
            json::write_string(value, transcoder.out);
        }
    }
    transcoder.fields(bytes, ty.id, 0, false)?;
    transcoder.out.push(b'}');
    Ok(())
}

/// Where the values of a field lie in its message, from the first to the end of the last.
#[derive(Clone, Copy)]
struct Span<'b> {
    first: usize,
    end: usize,
    /// The last value, which is the one that counts; `None` where the field is absent.
    last: Option<Wire<'b>>,
}

const ABSENT: Span = Span { first: usize::MAX, end: 0, last: None };

struct Transcoder<'s, 'o, 'b> {
    schema: &'s Schema,
    /// A stretch for each message that is open, by the index of the field.
    spans: Vec<Span<'b>>,
    out: &'o mut Vec<u8>,
    resource_version: Option<i64>,
}

impl<'b> Transcoder<'_, '_, 'b> {
    fn message(&mut self, bytes: &'b [u8], id: TypeId, depth: usize, is_metadata: bool) -> Result<(), DecodeError> {
        if depth > MAX_TREE_DEPTH {
            return Err(DecodeError::new("exceeded max depth"));
        }
        self.out.push(b'{');
        self.fields(bytes, id, depth, is_metadata)?;
        self.out.push(b'}');
        Ok(())
    }

    /// The fields of a message, into the object that is open.
    fn fields(&mut self, bytes: &'b [u8], id: TypeId, depth: usize, is_metadata: bool) -> Result<(), DecodeError> {
        let ty = TypeRef { schema: self.schema, id }.get();
        let base = self.spans.len();
        self.spans.resize(base + ty.fields.len(), ABSENT);
        locate(bytes, ty, &mut self.spans[base..])?;
        for (index, field) in ty.fields.iter().enumerate() {
            if field.via.is_some() || field.number == 0 {
                continue;
            }
            let span = self.spans[base + index];
            if let Kind::Inline(inner) = field.kind {
                let inner_bytes = span.last.map_or(&[][..], Wire::bytes);
                self.fields(inner_bytes, inner, depth + 1, false)?;
            } else if is_metadata && field.json == "resourceVersion" && self.resource_version.is_some() {
                self.key("resourceVersion");
                let revision = self.resource_version.unwrap_or_default();
                self.out.extend_from_slice(format!("\"{revision}\"").as_bytes());
            } else {
                self.field(field, bytes, span, depth)?;
            }
        }
        self.spans.truncate(base);
        Ok(())
    }

    /// A key with its comma and colon. Names of fields need no escapes.
    fn key(&mut self, name: &str) {
        if self.out.last() != Some(&b'{') {
            self.out.push(b',');
        }
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    fn field(&mut self, field: &Field, bytes: &'b [u8], span: Span<'b>, depth: usize) -> Result<(), DecodeError> {
        match &field.kind {
            Kind::List(item, _) if field.wrapped => match span.last {
                Some(value) => self.list_field(field, value.bytes(), whole(value.bytes()), 1, item, depth),
                None => self.missing(field),
            },
            Kind::List(item, _) => self.list_field(field, bytes, span, field.number, item, depth),
            Kind::Map(item, _) if span.last.is_some() => {
                self.key(&field.json);
                self.map(bytes, span, field.number, item, depth)
            }
            Kind::Map(..) => self.missing(field),
            kind => match span.last {
                Some(value) if field.presence == Presence::OmitEmpty && is_zero(kind, value) => self.missing(field),
                Some(value) if is_null(kind, value)? => self.missing(field),
                Some(value) => {
                    self.key(&field.json);
                    let is_metadata = depth == 0 && field.json == "metadata";
                    self.value(kind, value, depth, is_metadata)
                }
                None => self.missing(field),
            },
        }
    }

    fn missing(&mut self, field: &Field) -> Result<(), DecodeError> {
        match field.presence {
            Presence::Always => {
                self.key(&field.json);
                self.zero(&field.kind)
            }
            Presence::Nullable => {
                self.key(&field.json);
                self.out.extend_from_slice(b"null");
                Ok(())
            }
            Presence::OmitEmpty if !field.filled.is_empty() => {
                self.key(&field.json);
                json::write_string(&field.filled, self.out);
                Ok(())
            }
            Presence::OmitEmpty | Presence::Pointer => Ok(()),
        }
    }

    fn zero(&mut self, kind: &Kind) -> Result<(), DecodeError> {
        let text: &[u8] = match kind {
            Kind::String => b"\"\"",
            Kind::Bool | Kind::SchemaOr(SchemaAlternative::Bool, _) => b"false",
            Kind::Int32 | Kind::Int64 | Kind::Double | Kind::IntOrString => b"0",
            Kind::Quantity => b"\"0\"",
            Kind::Message(id) => return self.message(&[], *id, 1, false),
            _ => b"null",
        };
        self.out.extend_from_slice(text);
        Ok(())
    }

    /// A list that shows if it has items; `number` is that of its items in `bytes`.
    fn list_field(
        &mut self,
        field: &Field,
        bytes: &'b [u8],
        span: Span<'b>,
        number: u32,
        item: &Kind,
        depth: usize,
    ) -> Result<(), DecodeError> {
        let mut open = false;
        let mut values = values(bytes, span, number);
        while let Some(value) = values.next()? {
            if open {
                self.out.push(b',');
            } else {
                self.key(&field.json);
                self.out.push(b'[');
                open = true;
            }
            match shape::embedded_kind(field, self.schema) {
                Some(gvk) if field.embedded => self.embedded(value.bytes(), gvk, item, depth)?,
                _ => self.value(item, value, depth, false)?,
            }
        }
        if !open {
            return self.missing(field);
        }
        self.out.push(b']');
        Ok(())
    }

    /// An object with its kind and apiVersion.
    fn embedded(&mut self, bytes: &'b [u8], gvk: &Gvk, item: &Kind, depth: usize) -> Result<(), DecodeError> {
        let Kind::Message(id) = *item else { return Ok(()) };
        self.out.push(b'{');
        for (name, value) in [("kind", &gvk.kind), ("apiVersion", &gvk.api_version())] {
            self.key(name);
            json::write_string(value, self.out);
        }
        self.fields(bytes, id, depth + 1, false)?;
        self.out.push(b'}');
        Ok(())
    }

    fn map(&mut self, bytes: &'b [u8], span: Span<'b>, number: u32, item: &Kind, depth: usize) -> Result<(), DecodeError> {
        let mut entries: Vec<(Cow<str>, Option<Wire<'b>>)> = Vec::new();
        let mut values = values(bytes, span, number);
        while let Some(value) = values.next()? {
            let (mut key, mut content) = (&[][..], None);
            let mut fields = Reader::new(value.bytes());
            while let Some(Raw { number, value }) = fields.next()? {
                match number {
                    1 => key = value.bytes(),
                    2 => content = Some(value),
                    _ => {}
                }
            }
            entries.push((text(key), content));
        }
        if !entries.is_sorted_by(|(one, _), (other, _)| one < other) {
            // Of entries with the same key the last counts.
            entries.reverse();
            entries.sort_by(|(one, _), (other, _)| one.cmp(other));
            entries.dedup_by(|(one, _), (other, _)| one == other);
        }
        self.out.push(b'{');
        for (index, (key, content)) in entries.iter().enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            json::write_string(key, self.out);
            self.out.push(b':');
            match (content, item) {
                (Some(value), Kind::List(inner, _)) => self.wrapped(value.bytes(), inner, depth)?,
                (Some(value), kind) => self.value(kind, *value, depth, false)?,
                (None, Kind::Bytes) => self.out.extend_from_slice(b"\"\""),
                (None, kind) => self.zero(kind)?,
            }
        }
        self.out.push(b'}');
        Ok(())
    }

    /// The items of a list in a message of its own.
    fn wrapped(&mut self, bytes: &'b [u8], item: &Kind, depth: usize) -> Result<(), DecodeError> {
        self.out.push(b'[');
        let mut values = values(bytes, whole(bytes), 1);
        while let Some(value) = values.next()? {
            self.separate();
            self.value(item, value, depth, false)?;
        }
        self.out.push(b']');
        Ok(())
    }

    /// A comma, unless the list at hand has just begun.
    fn separate(&mut self) {
        if self.out.last() != Some(&b'[') {
            self.out.push(b',');
        }
    }

    fn value(&mut self, kind: &Kind, value: Wire<'b>, depth: usize, is_metadata: bool) -> Result<(), DecodeError> {
        match kind {
            Kind::String => self.string(value.bytes()),
            Kind::Bool => self.out.extend_from_slice(if value.integer() != 0 { b"true" } else { b"false" }),
            Kind::Int32 => json::write_i64((value.integer() as i32).into(), self.out),
            Kind::Int64 => json::write_i64(value.integer() as i64, self.out),
            Kind::Double => self.double(f64::from_bits(value.integer())),
            Kind::Bytes => {
                self.out.push(b'"');
                base64::encode_into(value.bytes(), self.out);
                self.out.push(b'"');
            }
            Kind::Quantity => json::write_string(&quantity(value.bytes())?, self.out),
            Kind::Time | Kind::MicroTime => match timestamp(value.bytes())? {
                None => self.out.extend_from_slice(b"null"),
                Some(moment) => {
                    let text = if *kind == Kind::Time { time::format(moment.seconds) } else { time::format_micro(moment) };
                    json::write_string(&text, self.out);
                }
            },
            Kind::IntOrString => match int_or_string(value.bytes())? {
                IntOrString::Int(value) => json::write_i64(value.into(), self.out),
                IntOrString::String(text) => self.string(text),
            },
            Kind::Raw | Kind::FieldsV1 | Kind::Any => match raw(value.bytes())? {
                [] => self.out.extend_from_slice(b"null"),
                bytes => json::compact(bytes, self.out),
            },
            Kind::SchemaOr(alternative, id) => self.schema_or(*alternative, *id, value.bytes(), depth)?,
            Kind::Message(id) | Kind::Inline(id) => self.message(value.bytes(), *id, depth + 1, is_metadata)?,
            Kind::List(..) | Kind::Map(..) => self.out.extend_from_slice(b"null"),
        }
        Ok(())
    }

    fn string(&mut self, bytes: &[u8]) {
        json::write_string(&text(bytes), self.out);
    }

    fn double(&mut self, value: f64) {
        if value.is_finite() {
            json::write_f64(value, self.out);
        } else {
            self.out.extend_from_slice(b"null");
        }
    }

    fn schema_or(&mut self, alternative: SchemaAlternative, id: TypeId, bytes: &'b [u8], depth: usize) -> Result<(), DecodeError> {
        let (schema, other) = if alternative == SchemaAlternative::Bool { (2, 1) } else { (1, 2) };
        let mut items = values(bytes, whole(bytes), other);
        let first = items.next()?;
        match (alternative, first, last(bytes, schema)?) {
            (SchemaAlternative::Array, Some(_), _) => self.wrapped_as(bytes, &Kind::Message(id), depth),
            (SchemaAlternative::StringArray, Some(_), _) => self.wrapped_as(bytes, &Kind::String, depth),
            (.., Some(value)) => self.message(value.bytes(), id, depth + 1, false),
            (SchemaAlternative::Bool, allows, None) => {
                self.out.extend_from_slice(if allows.is_some_and(|value| value.integer() != 0) { b"true" } else { b"false" });
                Ok(())
            }
            _ => {
                self.out.extend_from_slice(b"null");
                Ok(())
            }
        }
    }

    /// The items of a JSONSchemaPropsOr…Array, which have number 2.
    fn wrapped_as(&mut self, bytes: &'b [u8], item: &Kind, depth: usize) -> Result<(), DecodeError> {
        self.out.push(b'[');
        let mut values = values(bytes, whole(bytes), 2);
        while let Some(value) = values.next()? {
            self.separate();
            self.value(item, value, depth, false)?;
        }
        self.out.push(b']');
        Ok(())
    }
}

/// Notes where the fields of a message lie.
fn locate<'b>(bytes: &'b [u8], ty: &Type, spans: &mut [Span<'b>]) -> Result<(), DecodeError> {
    let mut reader = Reader::new(bytes);
    let mut next = 0;
    loop {
        let first = reader.at;
        let Some(raw) = reader.next()? else { return Ok(()) };
        if let Some(index) = find(ty, raw.number, &mut next) {
            let span = &mut spans[index];
            *span = Span { first: span.first.min(first), end: reader.at, last: Some(raw.value) };
        }
    }
}

/// The stretch of a whole message.
fn whole(bytes: &[u8]) -> Span<'_> {
    Span { first: 0, end: bytes.len(), last: None }
}

/// The values with a number within a stretch of a message.
struct Values<'a> {
    reader: Reader<'a>,
    number: u32,
}

fn values<'b>(bytes: &'b [u8], span: Span, number: u32) -> Values<'b> {
    let stretch = bytes.get(span.first..span.end).unwrap_or_default();
    Values { reader: Reader::new(stretch), number }
}

impl<'a> Values<'a> {
    fn next(&mut self) -> Result<Option<Wire<'a>>, DecodeError> {
        while let Some(raw) = self.reader.next()? {
            if raw.number == self.number {
                return Ok(Some(raw.value));
            }
        }
        Ok(None)
    }
}

/// The last value with a number, which is the one that counts.
fn last(bytes: &[u8], number: u32) -> Result<Option<Wire<'_>>, DecodeError> {
    let mut values = values(bytes, whole(bytes), number);
    let mut out = None;
    while let Some(value) = values.next()? {
        out = Some(value);
    }
    Ok(out)
}

/// Whether a value is the one that `omitempty` leaves out.
fn is_zero(kind: &Kind, value: Wire) -> bool {
    match (kind, value) {
        (Kind::Double, value) => f64::from_bits(value.integer()) == 0.0,
        (Kind::Message(_), _) => false,
        (_, Wire::Bytes(bytes)) => bytes.is_empty(),
        (_, value) => value.integer() == 0,
    }
}

/// Whether a value is one that JSON would show as null: it then counts as absent.
fn is_null(kind: &Kind, value: Wire) -> Result<bool, DecodeError> {
    Ok(match kind {
        Kind::Time | Kind::MicroTime => timestamp(value.bytes())?.is_none(),
        Kind::Raw | Kind::FieldsV1 | Kind::Any => raw(value.bytes())?.is_empty(),
        _ => false,
    })
}
