//! Responses in protobuf from stored messages: objects, list items or metadata, with the
//! resourceVersion added. Bytes are copied; nothing is decoded.

use super::reader::METADATA;
use super::wire::{Reader, put_bytes, put_message, put_varint};
use super::{MAGIC, Message};
use crate::schema::Kind;

/// The number of `resourceVersion` in ObjectMeta.
const RESOURCE_VERSION: u32 = 6;
/// The number of `items` in every list.
const ITEMS: u32 = 2;
/// The number of `raw` in the envelope.
const RAW: u32 = 2;

/// A stored message with a resourceVersion in its metadata. Written, it is what decoding and
/// encoding the tree would give.
#[derive(Clone, Copy, Debug)]
pub struct WithResourceVersion<'a> {
    /// ObjectMeta before and after its resourceVersion.
    head: &'a [u8],
    tail: &'a [u8],
    version: DecimalText,
    /// The fields of the object after its metadata.
    rest: &'a [u8],
}

/// A number as text; nothing for none.
#[derive(Clone, Copy, Debug)]
struct DecimalText {
    bytes: [u8; 20],
    length: usize,
}

impl DecimalText {
    fn new(number: Option<i64>) -> Self {
        let mut text = Vec::with_capacity(20);
        if let Some(number) = number {
            crate::codec::json::write_i64(number, &mut text);
        }
        let mut bytes = [0; 20];
        bytes[..text.len()].copy_from_slice(&text);
        Self {
            bytes,
            length: text.len(),
        }
    }
}

impl<'a> WithResourceVersion<'a> {
    /// The message (without its envelope) at a revision; without one its resourceVersion stays
    /// empty.
    ///
    /// `None` for bytes that were not written as Go writes them, or that lack what reading fills
    /// in: they have to go through a tree.
    pub fn new(message: Message<'a>, revision: Option<i64>) -> Option<Self> {
        let mut fields = Reader::new(message.bytes);
        let first = fields.next().ok()??;
        if first.number != METADATA || lacks_filled(message) {
            return None;
        }
        let metadata = first.value.bytes();
        let (head, tail) = around_version(metadata)?;
        Some(Self {
            head,
            tail,
            version: DecimalText::new(revision),
            rest: message.bytes.get(fields.at..)?,
        })
    }

    /// The message of a `PartialObjectMetadata`: the same, without anything but metadata.
    pub fn metadata(self) -> Self {
        Self { rest: &[], ..self }
    }

    /// The length of the ObjectMeta.
    fn metadata_len(&self) -> usize {
        self.head.len() + field_len(self.version.length) + self.tail.len()
    }

    /// The length of the message.
    pub fn message_len(&self) -> usize {
        field_len(self.metadata_len()) + self.rest.len()
    }

    /// Appends the message.
    pub fn write_message(&self, out: &mut Vec<u8>) {
        put_head(METADATA, self.metadata_len(), out);
        out.extend_from_slice(self.head);
        put_bytes(
            RESOURCE_VERSION,
            &self.version.bytes[..self.version.length],
            out,
        );
        out.extend_from_slice(self.tail);
        out.extend_from_slice(self.rest);
    }

    /// The length of what [`WithResourceVersion::write_item`] appends.
    pub fn item_len(&self) -> usize {
        field_len(self.message_len())
    }

    /// Appends the message as an item of a list.
    pub fn write_item(&self, out: &mut Vec<u8>) {
        put_head(ITEMS, self.message_len(), out);
        self.write_message(out);
    }

    /// Appends the whole object, envelope included.
    pub fn write_object(&self, api_version: &str, kind: &str, out: &mut Vec<u8>) {
        open_envelope(api_version, kind, out);
        put_head(RAW, self.message_len(), out);
        self.write_message(out);
        close_envelope(out);
    }
}

/// Appends a whole message as an item of a list.
pub fn write_item(message: &[u8], out: &mut Vec<u8>) {
    put_bytes(ITEMS, message, out);
}

/// The metadata of a list, as `meta/v1 ListMeta` has it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListMeta<'a> {
    pub resource_version: &'a str,
    pub continue_token: &'a str,
    pub remaining_item_count: Option<i64>,
}

/// Appends the beginning of a list: its envelope and metadata. `items_len` is the length of all
/// items that follow, which [`WithResourceVersion::item_len`] and [`item_len`] compute without
/// writing them.
pub fn list_head(
    api_version: &str,
    kind: &str,
    meta: ListMeta,
    items_len: usize,
    out: &mut Vec<u8>,
) {
    let mut head = Vec::with_capacity(128);
    put_message(METADATA, &mut head, |out| {
        put_bytes(1, b"", out);
        put_bytes(2, meta.resource_version.as_bytes(), out);
        put_bytes(3, meta.continue_token.as_bytes(), out);
        if let Some(count) = meta.remaining_item_count {
            super::wire::put_integer(4, count as u64, out);
        }
    });
    open_envelope(api_version, kind, out);
    put_head(RAW, head.len() + items_len, out);
    out.extend_from_slice(&head);
}

/// Appends the end of a list.
pub fn list_tail(out: &mut Vec<u8>) {
    close_envelope(out);
}

pub(super) fn open_envelope(api_version: &str, kind: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(MAGIC);
    put_message(1, out, |out| {
        put_bytes(1, api_version.as_bytes(), out);
        put_bytes(2, kind.as_bytes(), out);
    });
}

pub(super) fn close_envelope(out: &mut Vec<u8>) {
    put_bytes(3, b"", out);
    put_bytes(4, b"", out);
}

/// Tag and length of a field whose bytes follow. Numbers here are below 16.
fn put_head(number: u32, length: usize, out: &mut Vec<u8>) {
    put_varint(u64::from(number) << 3 | 2, out);
    put_varint(length as u64, out);
}

/// The length of a length-delimited field with a number below 16.
fn field_len(length: usize) -> usize {
    let bits = usize::BITS - (length | 1).leading_zeros();
    1 + bits.div_ceil(7) as usize + length
}

/// Returns the parts of ObjectMeta before and after its resourceVersion. `None` where fields are
/// not in ascending order.
fn around_version(metadata: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut fields = Reader::new(metadata);
    let mut last = 0;
    loop {
        let begun = fields.at;
        let number = fields.next().ok()?.map(|field| field.number);
        match number {
            Some(number) if number < last => return None,
            Some(number) if number < RESOURCE_VERSION => last = number,
            Some(RESOURCE_VERSION) => {
                return Some((metadata.get(..begun)?, metadata.get(fields.at..)?));
            }
            _ => return Some((metadata.get(..begun)?, metadata.get(begun..)?)),
        }
    }
}

/// Reports whether a part of the object is empty that upstream defaults at every read (the phase of
/// a PersistentVolumeClaim).
fn lacks_filled(message: Message) -> bool {
    let Message { bytes, ty } = message;
    let parts = ty.get().fields.iter().filter_map(|part| match part.kind {
        Kind::Message(id) if part.number != METADATA => Some((part, ty.to(id))),
        _ => None,
    });
    parts.into_iter().any(|(part, inner)| {
        let filled = inner
            .get()
            .fields
            .iter()
            .filter(|field| !field.filled.is_empty());
        filled.into_iter().any(|field| {
            let inside = super::reader::last(bytes, part.number)
                .map_or(&[][..], super::wire::WireValue::bytes);
            super::reader::last(inside, field.number).is_none_or(|value| value.bytes().is_empty())
        })
    })
}
