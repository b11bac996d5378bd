//! Protobuf to JSON without a tree in between. Writes exactly what decoding and encoding the tree
//! would.
//!
//! A message is read twice: once to note where the values of its fields lie, which is by ascending
//! number, and once to write them in the order of the schema. What a field shows besides its value
//! is prepared ([`WireField`]).

mod alternatives;

use std::borrow::Cow;
use std::ops::Range;

use super::decode::{IntOrString, int_or_string, quantity, timestamp};
use super::field_offsets::{ByteRange, EMPTY_RANGE, FieldSpan, MAX_LENGTH, Value, next_value};
use super::wire::Reader;
use crate::codec::{DecodeError, MAX_TREE_DEPTH, json, text};
use crate::meta::go::base64;
use crate::meta::time;
use crate::schema::{Arity, Kind, Schema, SchemaAlternative, TypeId, TypeRef, WireField, WireType};

/// Appends the JSON of a message (without its envelope): `kind` and `apiVersion` first unless they
/// are empty, then the fields in the order of the schema. `resource_version` takes the place of
/// `metadata.resourceVersion`. Returns where in `out` the value of `metadata` lies (nowhere if it
/// has none).
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
) -> Result<Range<usize>, DecodeError> {
    let mut transcoder = Transcoder::new(bytes, ty.schema, resource_version, out)?;
    let open = transcoder.out.len();
    for (key, value) in [(",\"kind\":", kind), (",\"apiVersion\":", api_version)] {
        if !value.is_empty() {
            transcoder.out.extend_from_slice(key.as_bytes());
            json::write_string(value, transcoder.out);
        }
    }
    let whole = ByteRange {
        start: 0,
        end: bytes.len(),
    };
    transcoder.fields(whole, ty.id, 0, 0, None)?;
    transcoder.close(open, *b"{}");
    Ok(transcoder.metadata)
}

/// Appends the JSON of the `metadata` of a message, as [`to_json`] would show it.
///
/// # Errors
/// As [`to_json`].
pub fn metadata_to_json(
    bytes: &[u8],
    ty: TypeRef,
    resource_version: Option<i64>,
    out: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    let mut transcoder = Transcoder::new(bytes, ty.schema, resource_version, out)?;
    let wire = ty.schema.wire(ty.id);
    let Some(field) = wire.metadata.map(|place| &wire.fields[place]) else {
        return Err(DecodeError::new("the kind has no metadata"));
    };
    let Kind::Message(id) = field.item else {
        return Err(DecodeError::new("the kind has no metadata"));
    };
    let metadata = transcoder
        .last(
            ByteRange {
                start: 0,
                end: bytes.len(),
            },
            field.number,
        )?
        .map_or(EMPTY_RANGE, |value| value.range());
    transcoder.message(metadata, id, 1, 0, transcoder.revision)
}

struct Transcoder<'a> {
    schema: &'a Schema,
    /// The message at the top: every [`ByteRange`] is one of it.
    document: &'a [u8],
    /// A stretch for each message that is open, by the place of the field. What lies there from
    /// before is not looked at.
    spans: Vec<FieldSpan>,
    out: &'a mut Vec<u8>,
    revision: Option<i64>,
    /// The offset of the top-level metadata in the output.
    metadata: Range<usize>,
    /// True while every message was in the usual order. After one that was not, none is tried in
    /// that order any more: a message is begun twice at most, however deep it lies.
    orderly: bool,
}

impl<'a> Transcoder<'a> {
    fn new(
        document: &'a [u8],
        schema: &'a Schema,
        revision: Option<i64>,
        out: &'a mut Vec<u8>,
    ) -> Result<Self, DecodeError> {
        if document.len() > MAX_LENGTH {
            return Err(DecodeError::new("the message is too long"));
        }
        Ok(Self {
            schema,
            document,
            spans: Vec::with_capacity(256),
            out,
            revision,
            metadata: 0..0,
            orderly: true,
        })
    }

    /// The values in a stretch of the document.
    #[inline]
    fn read(&self, part: ByteRange) -> Reader<'a> {
        Reader {
            bytes: self.document.get(..part.end).unwrap_or_default(),
            at: part.start,
        }
    }

    #[inline]
    fn bytes(&self, part: ByteRange) -> &'a [u8] {
        self.document.get(part.start..part.end).unwrap_or_default()
    }

    /// Puts the brackets around what was written since `open`. Whatever was written begins with a
    /// comma, which makes room.
    #[inline]
    fn close(&mut self, open: usize, brackets: [u8; 2]) {
        match self.out.get_mut(open) {
            Some(comma) => {
                *comma = brackets[0];
                self.out.push(brackets[1]);
            }
            None => self.out.extend_from_slice(&brackets),
        }
    }

    /// A message as an object. `base` is where its spans begin; `revision` is what to show as
    /// `resourceVersion`.
    fn message(
        &mut self,
        part: ByteRange,
        id: TypeId,
        depth: usize,
        base: usize,
        revision: Option<i64>,
    ) -> Result<(), DecodeError> {
        if depth > MAX_TREE_DEPTH {
            return Err(DecodeError::new("exceeded max depth"));
        }
        let open = self.out.len();
        self.fields(part, id, depth, base, revision)?;
        self.close(open, *b"{}");
        Ok(())
    }

    /// The fields of a message, each after a comma.
    fn fields(
        &mut self,
        part: ByteRange,
        id: TypeId,
        depth: usize,
        base: usize,
        revision: Option<i64>,
    ) -> Result<(), DecodeError> {
        let ty = self.schema.wire(id);
        let open = Open {
            depth,
            top: base,
            revision: None,
        };
        if ty.in_order && depth > 0 && self.orderly {
            let begun = self.out.len();
            if self.fields_in_order(part, ty, revision, open)? {
                return Ok(());
            }
            self.out.truncate(begun);
            self.orderly = false;
        }
        let top = base + ty.fields.len();
        if self.spans.len() < top {
            self.spans.resize(top, FieldSpan::default());
        }
        let mut present = self.index_fields(part, ty, base)?;
        if depth == 0 && self.revision.is_some() {
            self.make_metadata(ty, base, &mut present);
        }
        let version = revision.and(ty.resource_version);
        let mut shown = present | ty.always | version.map_or(0, |place| 1 << place);
        while shown != 0 {
            let place = shown.trailing_zeros() as usize;
            shown &= shown - 1;
            let field = &ty.fields[place];
            if version == Some(place) {
                self.resource_version(field, revision);
            } else if present >> place & 1 == 0 && field.arity != Arity::Inline {
                self.out.extend_from_slice(&field.absent);
            } else {
                let span = if present >> place & 1 == 0 {
                    FieldSpan::default()
                } else {
                    self.spans[base + place]
                };
                if depth == 0 && ty.metadata == Some(place) {
                    let begun = self.out.len() + field.key.length();
                    self.field(
                        field,
                        span,
                        Open {
                            depth,
                            top,
                            revision: self.revision,
                        },
                    )?;
                    self.metadata = begun..self.out.len();
                } else {
                    self.field(
                        field,
                        span,
                        Open {
                            depth,
                            top,
                            revision: None,
                        },
                    )?;
                }
            }
        }
        Ok(())
    }

    /// The fields of a message that is written in the order in which it is read. False if it is in
    /// another order after all, or has a value twice: what was written is then of no use.
    fn fields_in_order(
        &mut self,
        part: ByteRange,
        ty: &WireType,
        revision: Option<i64>,
        open: Open,
    ) -> Result<bool, DecodeError> {
        let bytes = self.document.get(..part.end).unwrap_or_default();
        let version = revision.and(ty.resource_version);
        let always = ty.always | version.map_or(0, |place| 1 << place);
        let mut next = 0;
        let mut at = part.start;
        while at < bytes.len() {
            let (Some(place), value) = next_value(ty, bytes, &mut at)? else {
                continue;
            };
            if place < next {
                return Ok(false);
            }
            let skipped = always >> next << next & !(u64::MAX << place);
            if skipped != 0 {
                self.absent(ty, skipped, version, revision);
            }
            let field = &ty.fields[place];
            next = place + 1;
            if version == Some(place) {
                self.resource_version(field, revision);
                continue;
            }
            match field.arity {
                Arity::Single if field.omits_zero && value.is_zero(field.is_numeric()) => {
                    self.out.extend_from_slice(&field.absent)
                }
                Arity::Single => self.single(field, value, open)?,
                Arity::List => self.items_in_order(ty, field, value, bytes, &mut at, open)?,
                Arity::Map if self.map_in_order(ty, field, value, bytes, &mut at, open)? => {}
                _ => return Ok(false),
            }
        }
        if next < 64 {
            let left = always >> next << next;
            self.absent(ty, left, version, revision);
        }
        Ok(true)
    }

    /// Writes what JSON shows of absent fields, given as bits.
    fn absent(
        &mut self,
        ty: &WireType,
        mut places: u64,
        version: Option<usize>,
        revision: Option<i64>,
    ) {
        while places != 0 {
            let place = places.trailing_zeros() as usize;
            places &= places - 1;
            let field = &ty.fields[place];
            if version == Some(place) {
                self.resource_version(field, revision);
            } else {
                self.out.extend_from_slice(&field.absent);
            }
        }
    }

    fn resource_version(&mut self, field: &WireField, revision: Option<i64>) {
        field.key.append(self.out);
        json::write_i64(revision.unwrap_or_default(), self.out);
        self.out.push(b'"');
    }

    /// Metadata that is not there has a resourceVersion all the same.
    #[cold]
    fn make_metadata(&mut self, ty: &WireType, base: usize, present: &mut u64) {
        if let Some(place) = ty.metadata
            && *present >> place & 1 == 0
        {
            *present |= 1 << place;
            self.spans[base + place] = FieldSpan::default();
        }
    }

    /// Notes where the fields of a message lie. Returns a bit for each that is there.
    fn index_fields(
        &mut self,
        part: ByteRange,
        ty: &WireType,
        base: usize,
    ) -> Result<u64, DecodeError> {
        let spans = &mut self.spans[base..base + ty.fields.len()];
        let bytes = self.document.get(..part.end).unwrap_or_default();
        let mut present = 0u64;
        let mut at = part.start;
        while at < bytes.len() {
            let first = at;
            let (Some(place), last) = next_value(ty, bytes, &mut at)? else {
                continue;
            };
            let (field, bit) = (&ty.fields[place], 1 << place);
            if field.omits_zero && last.is_zero(field.is_numeric()) {
                present &= !bit;
                continue;
            }
            let first = if present & bit == 0 {
                first as u32
            } else {
                spans[place].first
            };
            spans[place] = FieldSpan {
                first,
                end: at as u32,
                last,
            };
            present |= bit;
        }
        Ok(present)
    }

    fn field(&mut self, field: &WireField, span: FieldSpan, open: Open) -> Result<(), DecodeError> {
        match field.arity {
            Arity::Single => self.single(field, span.last, open),
            Arity::List => {
                field.key.append(self.out);
                self.items(field, span.range(), field.number, open)
            }
            Arity::Wrapped => {
                let begun = self.out.len();
                field.key.append(self.out);
                let list = self.out.len();
                self.items(field, span.last.range(), 1, open)?;
                if self.out.len() == list + 2 {
                    self.out.truncate(begun);
                    self.out.extend_from_slice(&field.absent);
                }
                Ok(())
            }
            Arity::Map | Arity::MapOfLists => {
                field.key.append(self.out);
                self.map(field, span.range(), open)
            }
            Arity::Inline => match field.item {
                Kind::Message(id) => {
                    self.fields(span.last.range(), id, open.depth + 1, open.top, None)
                }
                _ => Ok(()),
            },
        }
    }

    fn single(&mut self, field: &WireField, value: Value, open: Open) -> Result<(), DecodeError> {
        match field.item {
            Kind::String if field.opens_quote => {
                field.key.append(self.out);
                let part = value.range();
                json::write_part(self.document, part.start, part.end, self.out);
                self.out.push(b'"');
                return Ok(());
            }
            Kind::Message(id) => {
                field.key.append(self.out);
                return self.message(value.range(), id, open.depth + 1, open.top, open.revision);
            }
            // What JSON would show as null counts as absent.
            Kind::Time | Kind::MicroTime if timestamp(self.bytes(value.range()))?.is_none() => {
                self.out.extend_from_slice(&field.absent);
                return Ok(());
            }
            Kind::Raw | Kind::FieldsV1 | Kind::Any if self.inner(value.range())?.is_none() => {
                self.out.extend_from_slice(&field.absent);
                return Ok(());
            }
            _ => {}
        }
        field.key.append(self.out);
        self.value(&field.item, value, open)
    }

    /// The items of a list that follow one another, from the first, which was just read.
    fn items_in_order(
        &mut self,
        ty: &WireType,
        field: &WireField,
        first: Value,
        bytes: &[u8],
        at: &mut usize,
        open: Open,
    ) -> Result<(), DecodeError> {
        field.key.append(self.out);
        let begun = self.out.len();
        self.item(field, first, open)?;
        while has_tag(bytes, *at, field.tag) {
            let (_, value) = next_value(ty, bytes, at)?;
            self.item(field, value, open)?;
        }
        self.close(begun, *b"[]");
        Ok(())
    }

    /// The items with a number in a stretch of the document, as an array.
    fn items(
        &mut self,
        field: &WireField,
        part: ByteRange,
        number: u32,
        open: Open,
    ) -> Result<(), DecodeError> {
        let begun = self.out.len();
        let mut values = self.read(part);
        while let Some(raw) = values.next()? {
            if raw.number == number {
                self.item(
                    field,
                    Value::new(field.item.is_numeric(), raw.value, values.at),
                    open,
                )?;
            }
        }
        self.close(begun, *b"[]");
        Ok(())
    }

    fn item(&mut self, field: &WireField, value: Value, open: Open) -> Result<(), DecodeError> {
        self.out.push(b',');
        let (Some(embedded), &Kind::Message(id)) = (&field.embedded, &field.item) else {
            return self.value(&field.item, value, open);
        };
        let item = self.out.len();
        embedded.append(self.out);
        self.fields(value.range(), id, open.depth + 1, open.top, None)?;
        self.close(item, *b"{}");
        Ok(())
    }

    /// The entries of a map that follow one another, from the first, which was just read. False if
    /// their keys do not ascend.
    fn map_in_order(
        &mut self,
        ty: &WireType,
        field: &WireField,
        first: Value,
        bytes: &[u8],
        at: &mut usize,
        open: Open,
    ) -> Result<bool, DecodeError> {
        field.key.append(self.out);
        let begun = self.out.len();
        let mut previous = None;
        let mut value = first;
        loop {
            if !self.map_entry(field, value.range(), &mut previous, open)? {
                return Ok(false);
            }
            if !has_tag(bytes, *at, field.tag) {
                break;
            }
            value = next_value(ty, bytes, at)?.1;
        }
        self.close(begun, *b"{}");
        Ok(true)
    }

    /// A map, whose entries Go writes by ascending keys.
    fn map(&mut self, field: &WireField, part: ByteRange, open: Open) -> Result<(), DecodeError> {
        let mut previous = None;
        let mut values = self.read(part);
        while let Some(raw) = values.next()? {
            if raw.number == field.number {
                let (key, _) =
                    self.entry(field, Value::new(false, raw.value, values.at).range())?;
                if !self.ascends(key, &mut previous) {
                    return self.unsorted_map(field, part, open);
                }
            }
        }
        let begun = self.out.len();
        let mut previous = None;
        let mut values = self.read(part);
        while let Some(raw) = values.next()? {
            if raw.number == field.number {
                self.map_entry(
                    field,
                    Value::new(false, raw.value, values.at).range(),
                    &mut previous,
                    open,
                )?;
            }
        }
        self.close(begun, *b"{}");
        Ok(())
    }

    /// Reports whether a key is text that comes after the one before it.
    fn ascends(&self, key: ByteRange, previous: &mut Option<&'a [u8]>) -> bool {
        let bytes = self.bytes(key);
        let after = previous.is_none_or(|previous| previous < bytes);
        *previous = Some(bytes);
        after && (bytes.is_ascii() || str::from_utf8(bytes).is_ok())
    }

    /// An entry of a map. False if its key does not come after `previous`, or is no text.
    fn map_entry(
        &mut self,
        field: &WireField,
        part: ByteRange,
        previous: &mut Option<&'a [u8]>,
        open: Open,
    ) -> Result<bool, DecodeError> {
        let (key, value) = self.entry(field, part)?;
        if !self.ascends(key, previous) {
            return Ok(false);
        }
        self.out.extend_from_slice(b",\"");
        json::write_part(self.document, key.start, key.end, self.out);
        self.out.extend_from_slice(b"\":");
        self.map_value(field, value, open)?;
        Ok(true)
    }

    /// A map whose entries are in no order. Of those with the same key the last counts.
    #[cold]
    fn unsorted_map(
        &mut self,
        field: &WireField,
        part: ByteRange,
        open: Open,
    ) -> Result<(), DecodeError> {
        let mut entries: Vec<(Cow<str>, Option<Value>)> = Vec::new();
        let mut values = self.read(part);
        while let Some(raw) = values.next()? {
            if raw.number == field.number {
                let (key, value) =
                    self.entry(field, Value::new(false, raw.value, values.at).range())?;
                entries.push((text(self.bytes(key)), value));
            }
        }
        entries.reverse();
        entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        entries.dedup_by(|(one, _), (other, _)| one == other);
        let begun = self.out.len();
        for (key, value) in entries {
            self.out.push(b',');
            json::write_string(&key, self.out);
            self.out.push(b':');
            self.map_value(field, value, open)?;
        }
        self.close(begun, *b"{}");
        Ok(())
    }

    /// The key and the value of a map's entry.
    fn entry(
        &self,
        field: &WireField,
        part: ByteRange,
    ) -> Result<(ByteRange, Option<Value>), DecodeError> {
        let (mut key, mut value) = (EMPTY_RANGE, None);
        let mut fields = self.read(part);
        while let Some(raw) = fields.next()? {
            match raw.number {
                1 => key = Value::new(false, raw.value, fields.at).range(),
                2 => {
                    value = Some(Value::new(
                        field.item.is_numeric() && field.arity == Arity::Map,
                        raw.value,
                        fields.at,
                    ))
                }
                _ => {}
            }
        }
        Ok((key, value))
    }

    fn map_value(
        &mut self,
        field: &WireField,
        value: Option<Value>,
        open: Open,
    ) -> Result<(), DecodeError> {
        match (value, field.arity, &field.item) {
            (Some(value), Arity::MapOfLists, _) => self.items(field, value.range(), 1, open),
            (Some(value), _, kind) => self.value(kind, value, open),
            (None, Arity::MapOfLists, _) => self.literal("null"),
            (None, _, Kind::Message(id)) => self.message(EMPTY_RANGE, *id, 1, open.top, None),
            (None, _, kind) => self.literal(zero(kind)),
        }
    }

    fn literal(&mut self, text: &str) -> Result<(), DecodeError> {
        self.out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn value(&mut self, kind: &Kind, value: Value, open: Open) -> Result<(), DecodeError> {
        match *kind {
            Kind::String => self.string(value.range()),
            Kind::Bool => return self.literal(if value.0 != 0 { "true" } else { "false" }),
            Kind::Int32 => json::write_i64((value.0 as i32).into(), self.out),
            Kind::Int64 => json::write_i64(value.0 as i64, self.out),
            Kind::Double if f64::from_bits(value.0).is_finite() => {
                json::write_f64(f64::from_bits(value.0), self.out)
            }
            Kind::Bytes => {
                self.out.push(b'"');
                base64::encode_into(self.bytes(value.range()), self.out);
                self.out.push(b'"');
            }
            Kind::Quantity => json::write_string(&quantity(self.bytes(value.range()))?, self.out),
            Kind::Time | Kind::MicroTime => return self.time(kind, value.range()),
            Kind::IntOrString => match int_or_string(self.bytes(value.range()))? {
                IntOrString::Int(value) => json::write_i64(value.into(), self.out),
                IntOrString::String(bytes) => json::write_string(&text(bytes), self.out),
            },
            Kind::Raw | Kind::FieldsV1 | Kind::Any => match self.inner(value.range())? {
                Some(raw) => json::compact_part(self.document, raw.start, raw.end, self.out),
                None => return self.literal("null"),
            },
            Kind::SchemaOr(alternative, id) => {
                return self.schema_or(alternative, id, value.range(), open);
            }
            Kind::Message(id) => {
                return self.message(value.range(), id, open.depth + 1, open.top, None);
            }
            Kind::Double | Kind::List(..) | Kind::Map(..) | Kind::Inline(_) => {
                return self.literal("null");
            }
        }
        Ok(())
    }

    fn string(&mut self, part: ByteRange) {
        self.out.push(b'"');
        json::write_part(self.document, part.start, part.end, self.out);
        self.out.push(b'"');
    }

    fn time(&mut self, kind: &Kind, part: ByteRange) -> Result<(), DecodeError> {
        let Some(moment) = timestamp(self.bytes(part))? else {
            return self.literal("null");
        };
        self.out.push(b'"');
        if *kind == Kind::Time {
            self.out.extend_from_slice(&time::text(moment.seconds));
        } else {
            self.out
                .extend_from_slice(time::format_micro(moment).as_bytes());
        }
        self.out.push(b'"');
        Ok(())
    }

    /// Returns the value of the only field of a Quantity, `RawExtension`, `JSON` or `FieldsV1`;
    /// `None` for nothing.
    fn inner(&self, part: ByteRange) -> Result<Option<ByteRange>, DecodeError> {
        Ok(self
            .last(part, 1)?
            .map(Value::range)
            .filter(|part| part.start < part.end))
    }

    /// The last bytes with a number, which are those that count.
    fn last(&self, part: ByteRange, number: u32) -> Result<Option<Value>, DecodeError> {
        let mut out = None;
        let mut fields = self.read(part);
        while let Some(raw) = fields.next()? {
            if raw.number == number {
                out = Some(Value::new(false, raw.value, fields.at));
            }
        }
        Ok(out)
    }
}

/// Reports whether the current value has this tag, in the usual encoding.
#[inline(always)]
fn has_tag(bytes: &[u8], at: usize, tag: u32) -> bool {
    match bytes.get(at) {
        Some(&first) if tag < 0x80 => u32::from(first) == tag,
        Some(&first) => {
            u32::from(first) == tag & 0x7f | 0x80
                && bytes
                    .get(at + 1)
                    .is_some_and(|&second| u32::from(second) == tag >> 7)
        }
        None => false,
    }
}

/// The message that a field is in.
#[derive(Clone, Copy)]
struct Open {
    depth: usize,
    /// The first span of the messages in it.
    top: usize,
    /// For the metadata at the top: the resourceVersion to show.
    revision: Option<i64>,
}

/// The zero value of a map's value that is not there.
fn zero(kind: &Kind) -> &'static str {
    match kind {
        Kind::String | Kind::Bytes => "\"\"",
        Kind::Bool | Kind::SchemaOr(SchemaAlternative::Bool, _) => "false",
        Kind::Int32 | Kind::Int64 | Kind::Double | Kind::IntOrString => "0",
        Kind::Quantity => "\"0\"",
        _ => "null",
    }
}
