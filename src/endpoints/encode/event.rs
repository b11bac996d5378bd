//! Watch events: JSON as lines, protobuf as frames with their length in front (apimachinery
//! `runtime/serializer/{streaming,protobuf}`).

use std::sync::Arc;

use bytes::Bytes;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

use crate::base::clock::Clock;
use crate::cacher::{CachedObject, Representation, Retention};
use crate::codec;
use crate::meta::status::Result;
use crate::meta::{Object, Status, json};
use crate::registry::store::{Event, EventKind, restore_field_order};
use crate::registry::table::{INITIAL_EVENTS_END, ListMeta};
use crate::storage::Revision;

use super::object::META_VERSION;
use super::{Encoder, Form, MediaType, Output, Source, fixed_body, meta_version};

/// The bytes in front of a protobuf frame: its length.
pub const LENGTH_BYTES: usize = 4;

/// Encodes the events of one watch.
pub struct EventEncoder {
    encoder: Encoder,
    clock: Clock,
    /// The next Table is the first: it carries the columns.
    with_columns: bool,
}

impl EventEncoder {
    /// An encoder of events in the representation of `encoder`, which is never indented.
    pub fn new(mut encoder: Encoder, clock: Clock) -> Self {
        encoder.output.pretty = false;
        Self {
            encoder,
            clock,
            with_columns: true,
        }
    }

    /// The frame of an event.
    ///
    /// # Errors
    /// The object cannot be decoded.
    pub fn event(&mut self, event: &Event) -> Result<Bytes> {
        let Some(stored) = &event.stored else {
            return Ok(self.bookmark(event.revision, true));
        };
        let retention = if event.initial {
            Retention::Scan
        } else {
            Retention::Event
        };
        let (kind, encoder) = (event.kind, &self.encoder);
        match (encoder.output.form, encoder.output.media) {
            (Form::Table(version), _) => {
                let columns = std::mem::take(&mut self.with_columns);
                self.encoder.now = self.clock.now();
                let source = Source::Stored(stored.clone());
                let table = self.encoder.table_of(source, version, columns)?;
                Ok(self.frame(kind, &table))
            }
            (Form::Metadata(version), MediaType::Protobuf) => {
                encoder.protobuf_frame(kind, stored, Some(meta_version(version)), retention)
            }
            (_, MediaType::Protobuf) => encoder.protobuf_frame(kind, stored, None, retention),
            (Form::Metadata(version), _) => {
                encoder.metadata_frame(kind, stored, meta_version(version), retention)
            }
            _ => encoder.json_frame(kind, stored, retention),
        }
    }

    /// A BOOKMARK: an object of the kind with nothing but a resourceVersion.
    pub fn bookmark(&self, revision: Revision, ends_initial_events: bool) -> Bytes {
        let resource = self.encoder.resource();
        let gvk = &resource.gvk;
        let mut metadata = json!({ "resourceVersion": revision.to_string() });
        if ends_initial_events {
            metadata["annotations"] = json!({ INITIAL_EVENTS_END: "true" });
        }
        let blank =
            json!({ "kind": gvk.kind, "apiVersion": gvk.api_version(), "metadata": metadata });
        let mut object = Object::from_value(blank).unwrap_or_default();
        if resource.custom.is_none() {
            restore_field_order(&mut object, resource.ty());
        }
        let bytes = match self.encoder.output.form {
            Form::Table(version) => {
                let revision = revision.to_string();
                let meta = ListMeta {
                    resource_version: &revision,
                    ..ListMeta::default()
                };
                self.encoder
                    .table_of_trees(std::slice::from_ref(&object), meta, version, false)
                    .map(Bytes::from)
            }
            _ => self.encoder.object(Source::Tree(object)),
        };
        self.frame(EventKind::InitialEventsEnd, &bytes.unwrap_or_default())
    }

    /// The last frame of a watch that failed.
    pub fn error(&self, status: &Status) -> Bytes {
        let object = Object::from_value(status.to_value()).unwrap_or_default();
        let media = self.encoder.output.media;
        let bytes = match media {
            MediaType::Protobuf => fixed_body(
                &object,
                Output {
                    media,
                    ..Output::default()
                },
            ),
            _ => codec::json::encode(&object),
        };
        self.frame_of("ERROR", &bytes)
    }

    fn frame(&self, kind: EventKind, object: &[u8]) -> Bytes {
        self.frame_of(kind.name(), object)
    }

    fn frame_of(&self, kind: &str, object: &[u8]) -> Bytes {
        match self.encoder.output.media {
            MediaType::Protobuf => protobuf_frame(kind, object).into(),
            // A body ends with a newline, an object in an event does not.
            _ => wrap_json(kind, object.strip_suffix(b"\n").unwrap_or(object)).into(),
        }
    }
}

impl Encoder {
    fn json_frame(
        &self,
        kind: EventKind,
        stored: &Arc<CachedObject>,
        retention: Retention,
    ) -> Result<Bytes> {
        match self.encoding(stored, Representation::Json, retention)? {
            Some(kept) if kind == kind_of(stored) => Ok(kept.bytes.clone()),
            Some(kept) => Ok(wrap_json(kind.name(), kept.slice(&kept.object)).into()),
            None => {
                let mut out = Vec::with_capacity(stored.value.len() * 2 + 256);
                open_json(kind, &mut out);
                self.write_new_object(stored, &mut out)?;
                close_json(&mut out);
                Ok(out.into())
            }
        }
    }

    fn metadata_frame(
        &self,
        kind: EventKind,
        stored: &Arc<CachedObject>,
        api_version: &'static str,
        retention: Retention,
    ) -> Result<Bytes> {
        if api_version == META_VERSION
            && kind == kind_of(stored)
            && let Some(kept) = self.encoding(stored, Representation::JsonMetadata, retention)?
        {
            return Ok(kept.bytes.clone());
        }
        let mut out = Vec::with_capacity(1024);
        open_json(kind, &mut out);
        self.write_partial(stored, api_version, retention, &mut out)?;
        close_json(&mut out);
        Ok(out.into())
    }

    fn protobuf_frame(
        &self,
        kind: EventKind,
        stored: &Arc<CachedObject>,
        metadata: Option<&'static str>,
        retention: Retention,
    ) -> Result<Bytes> {
        let representation = match metadata {
            None => Some(Representation::Protobuf),
            Some(META_VERSION) => Some(Representation::ProtobufMetadata),
            Some(_) => None,
        };
        let kept = representation
            .map(|representation| self.encoding(stored, representation, retention))
            .transpose()?
            .flatten();
        match kept {
            Some(kept) if kind == kind_of(stored) => Ok(kept.bytes.clone()),
            Some(kept) => Ok(protobuf_frame(kind.name(), kept.slice(&kept.object)).into()),
            None => {
                let object = self.protobuf_object(stored, metadata)?;
                Ok(protobuf_frame(kind.name(), &object).into())
            }
        }
    }
}

/// The kind of the event that a state of an object mostly is shown in, and that its encodings are
/// kept as.
pub(super) fn kind_of(stored: &CachedObject) -> EventKind {
    if stored.is_deleted() {
        EventKind::Deleted
    } else if stored.is_new() {
        EventKind::Added
    } else {
        EventKind::Modified
    }
}

/// Appends an event in JSON up to its object.
pub(super) fn open_json(kind: EventKind, out: &mut Vec<u8>) {
    open_json_of(kind.name(), out);
}

fn open_json_of(kind: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
}

/// Appends the end of an event in JSON.
pub(super) fn close_json(out: &mut Vec<u8>) {
    out.extend_from_slice(b"}\n");
}

pub(super) fn wrap_json(kind: &str, object: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(object.len() + 48);
    open_json_of(kind, &mut out);
    out.extend_from_slice(object);
    close_json(&mut out);
    out
}

/// A length of four bytes, then a `meta/v1` WatchEvent: the type is field 1, the object a
/// RawExtension in field 2 (apimachinery `runtime/serializer/protobuf`).
pub(super) fn protobuf_frame(kind: &str, object: &[u8]) -> Vec<u8> {
    let field_len = |len: usize| 1 + encoded_len_varint(len as u64) + len;
    let raw_len = field_len(object.len());
    let event_len = field_len(kind.len()) + field_len(raw_len);
    let mut out = Vec::with_capacity(LENGTH_BYTES + event_len);
    out.extend_from_slice(&u32::try_from(event_len).unwrap_or(u32::MAX).to_be_bytes());
    open_field(1, kind.len(), &mut out);
    out.extend_from_slice(kind.as_bytes());
    open_field(2, raw_len, &mut out);
    open_field(1, object.len(), &mut out);
    out.extend_from_slice(object);
    out
}

/// The head of a length-delimited protobuf field.
fn open_field(number: u32, len: usize, out: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(len as u64, out);
}
