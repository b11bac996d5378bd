//! The encoding of one object, whole or metadata alone: as a response, as a list item, and as the
//! watch event that the cache keeps.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::cacher::{
    CachedObject, Encoding, EncodingId, Representation, Retention, SharedEncoding,
};
use crate::codec::json;
use crate::codec::protobuf::{self, Message};
use crate::meta::Object;
use crate::meta::status::Result;
use crate::registry::store::unreadable;
use crate::registry::table;

use super::{Encoder, MediaType, Source, event, partial_metadata, protobuf_tree};

/// The version of `meta.k8s.io` whose PartialObjectMetadata are cached: clients use no other.
pub(super) const META_VERSION: &str = "meta.k8s.io/v1";

/// The kind of bare metadata.
const PARTIAL: &str = "PartialObjectMetadata";

/// The bytes that close the envelope of a protobuf object behind its message.
const ENVELOPE_END: usize = 4;

/// The offsets of the parts of an object that was written as JSON.
struct Layout {
    /// The end of its kind and apiVersion, or its beginning where items of lists have them, too.
    fields: usize,
    /// Its metadata, if they are as they are shown alone.
    metadata: Range<usize>,
}

impl Encoder {
    /// The body of an answer with the whole object.
    pub(super) fn whole(&self, source: Source) -> Result<Bytes> {
        let stored = match (&source, self.output.media) {
            (Source::Stored(stored), MediaType::Json | MediaType::Protobuf) => stored,
            _ => return Ok(self.tree_body(&self.tree(source)?).into()),
        };
        if self.output.media == MediaType::Protobuf {
            return match self.encoding(stored, Representation::Protobuf, Retention::Request)? {
                Some(kept) => Ok(object_bytes(&kept)),
                None => Ok(self.protobuf_object(stored, None)?.into()),
            };
        }
        let mut out = Vec::new();
        self.write_object(stored, Retention::Request, &mut out)?;
        Ok(self.json_body(out).into())
    }

    /// The body of an answer with the object cut down to its metadata.
    pub(super) fn metadata(&self, source: Source, api_version: &'static str) -> Result<Bytes> {
        match (&source, self.output.media) {
            (Source::Stored(stored), MediaType::Json) => {
                let mut out = Vec::with_capacity(stored.value.len() * 2);
                self.write_partial(stored, api_version, Retention::Request, &mut out)?;
                Ok(self.json_body(out).into())
            }
            (Source::Stored(stored), MediaType::Protobuf) if api_version == META_VERSION => {
                let metadata = Representation::ProtobufMetadata;
                match self.encoding(stored, metadata, Retention::Request)? {
                    Some(kept) => Ok(object_bytes(&kept)),
                    None => Ok(self.protobuf_object(stored, Some(api_version))?.into()),
                }
            }
            (Source::Stored(stored), MediaType::Protobuf) => {
                Ok(self.protobuf_object(stored, Some(api_version))?.into())
            }
            _ => {
                let object = partial_metadata(&self.tree(source)?, api_version);
                Ok(super::fixed_body(&object, self.output).into())
            }
        }
    }

    /// The encoding of a stored object that is kept, made if it is to be. `None` where the caller
    /// writes the object itself.
    pub(super) fn encoding(
        &self,
        stored: &Arc<CachedObject>,
        representation: Representation,
        retention: Retention,
    ) -> Result<Option<Arc<SharedEncoding>>> {
        stored.encoding(
            &self.cache,
            self.id(representation),
            retention,
            || match representation {
                Representation::Json => self.json_event(stored),
                Representation::JsonMetadata => self.json_metadata_event(stored),
                Representation::Protobuf => self.protobuf_event(stored, None),
                Representation::ProtobufMetadata => self.protobuf_event(stored, Some(META_VERSION)),
                Representation::TableRow => self.row_cells(stored),
            },
        )
    }

    /// The encoding of a stored object, if it is there already.
    pub(super) fn existing_encoding(
        &self,
        stored: &Arc<CachedObject>,
        representation: Representation,
    ) -> Option<Arc<SharedEncoding>> {
        stored.existing_encoding(&self.cache, self.id(representation))
    }

    fn id(&self, representation: Representation) -> EncodingId {
        EncodingId {
            served: self.store.served_id(),
            representation,
        }
    }

    /// An encoding with the bare metadata of an object in JSON: that of the whole object, or of its
    /// metadata.
    pub(super) fn json_metadata(
        &self,
        stored: &Arc<CachedObject>,
        retention: Retention,
    ) -> Result<Option<Arc<SharedEncoding>>> {
        let whole = self
            .existing_encoding(stored, Representation::Json)
            .filter(|whole| !whole.part.is_empty());
        match whole {
            Some(whole) => Ok(Some(whole)),
            None => self.encoding(stored, Representation::JsonMetadata, retention),
        }
    }

    fn json_event(&self, stored: &Arc<CachedObject>) -> Result<Encoding> {
        let mut out = Vec::with_capacity(stored.value.len() * 2 + 256);
        event::open_json(event::kind_of(stored), &mut out);
        let start = out.len();
        let layout = self.write_json(stored, true, &mut out)?;
        let object = start..out.len();
        event::close_json(&mut out);
        Ok(Encoding {
            bytes: Bytes::copy_from_slice(&out),
            object: offsets(object),
            fields: offset(layout.fields),
            part: offsets(layout.metadata),
            ..Encoding::EMPTY
        })
    }

    fn json_metadata_event(&self, stored: &Arc<CachedObject>) -> Result<Encoding> {
        let mut out = Vec::with_capacity(1024);
        event::open_json(event::kind_of(stored), &mut out);
        let start = out.len();
        table::open_partial(&mut out, META_VERSION);
        let metadata = out.len();
        self.write_metadata(stored, &mut out)?;
        let metadata = metadata..out.len();
        out.push(b'}');
        let object = start..out.len();
        event::close_json(&mut out);
        Ok(Encoding {
            bytes: Bytes::copy_from_slice(&out),
            object: offsets(object),
            part: offsets(metadata),
            ..Encoding::EMPTY
        })
    }

    fn protobuf_event(
        &self,
        stored: &Arc<CachedObject>,
        metadata: Option<&'static str>,
    ) -> Result<Encoding> {
        let object = self.protobuf_object(stored, metadata)?;
        let message = protobuf::unwrap(&object).map_or(0, |envelope| envelope.raw.len());
        let event = event::protobuf_frame(event::kind_of(stored).name(), &object);
        let end = event.len() - ENVELOPE_END.min(event.len());
        Ok(Encoding {
            object: offsets(event.len() - object.len()..event.len()),
            part: offsets(end.saturating_sub(message)..end),
            bytes: event.into(),
            ..Encoding::EMPTY
        })
    }

    fn row_cells(&self, stored: &Arc<CachedObject>) -> Result<Encoding> {
        let cells = self.cells(stored)?;
        Ok(Encoding {
            bytes: Bytes::copy_from_slice(&cells.text),
            ages: cells.ages,
            ..Encoding::EMPTY
        })
    }

    /// Appends the JSON of an object, with its kind and apiVersion if `typed`.
    fn write_json(
        &self,
        stored: &Arc<CachedObject>,
        typed: bool,
        out: &mut Vec<u8>,
    ) -> Result<Layout> {
        let gvk = &self.resource().gvk;
        let open = out.len();
        let Some(Message { bytes, ty }) = self.message(stored)? else {
            return Ok(self.write_tree(self.tree(Source::Stored(stored.clone()))?, typed, out));
        };
        let (api_version, kind) = if typed {
            (&*gvk.api_version(), gvk.kind.as_str())
        } else {
            ("", "")
        };
        let metadata = protobuf::to_json(bytes, ty, api_version, kind, stored.written_at(), out)
            .map_err(unreadable)?;
        let type_len = r#"{"kind":"","apiVersion":"""#.len() + kind.len() + api_version.len();
        Ok(Layout {
            fields: open + type_len,
            metadata: if table::shows_metadata(ty) {
                metadata
            } else {
                0..0
            },
        })
    }

    /// Appends the JSON of a tree of the served version, with its kind and apiVersion if `typed`;
    /// objects of custom kinds always have these, among their other fields.
    fn write_tree(&self, object: Object, typed: bool, out: &mut Vec<u8>) -> Layout {
        let is_bare = matches!(table::bare_metadata(&object), Cow::Borrowed(_));
        let is_custom = self.items_have_types();
        let open = out.len();
        let mut layout = Layout {
            fields: open,
            metadata: 0..0,
        };
        let mut write = |key: &str, write_value: &mut dyn FnMut(&mut Vec<u8>)| {
            out.push(if out.len() == open { b'{' } else { b',' });
            json::write_string(key, out);
            out.push(b':');
            let begun = out.len();
            write_value(out);
            begun..out.len()
        };
        if typed && !is_custom {
            let gvk = &self.resource().gvk;
            write("kind", &mut |out| json::write_string(&gvk.kind, out));
            let last = write("apiVersion", &mut |out| {
                json::write_string(&gvk.api_version(), out)
            });
            layout.fields = last.end;
        }
        for (key, value) in object.iter() {
            if !is_custom && matches!(key.as_str(), "kind" | "apiVersion") {
                continue;
            }
            let at = write(key, &mut |out| json::encode_value(value, out));
            if is_bare && key == "metadata" {
                layout.metadata = at;
            }
        }
        if out.len() == open {
            out.push(b'{');
        }
        out.push(b'}');
        layout
    }

    /// Appends the JSON of an object.
    pub(super) fn write_object(
        &self,
        stored: &Arc<CachedObject>,
        retention: Retention,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        match self.encoding(stored, Representation::Json, retention)? {
            Some(kept) => {
                let object = kept.slice(&kept.object);
                // The newline that ends an answer fits in as well.
                out.reserve(object.len() + 1);
                out.extend_from_slice(object);
                Ok(())
            }
            None => self.write_new_object(stored, out),
        }
    }

    /// Appends the JSON of an object of which no encoding is kept.
    pub(super) fn write_new_object(
        &self,
        stored: &Arc<CachedObject>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        out.reserve(stored.value.len() * 2);
        self.write_json(stored, true, out).map(drop)
    }

    /// Appends the item of a list in JSON.
    pub(super) fn write_item(&self, stored: &Arc<CachedObject>, out: &mut Vec<u8>) -> Result<()> {
        let Some(kept) = self.encoding(stored, Representation::Json, Retention::Scan)? else {
            return self.write_json(stored, false, out).map(drop);
        };
        let fields = kept.slice(&(kept.fields..kept.object.end));
        match fields.split_first() {
            Some((b',', fields)) => {
                out.push(b'{');
                out.extend_from_slice(fields);
            }
            // It has its type among its fields.
            Some((b'{', _)) => out.extend_from_slice(fields),
            _ => out.extend_from_slice(b"{}"),
        }
        Ok(())
    }

    /// Appends the JSON of the metadata of an object as they are shown alone.
    fn write_metadata(&self, stored: &Arc<CachedObject>, out: &mut Vec<u8>) -> Result<()> {
        if let Some(message) = self.message(stored)? {
            return table::write_metadata_of(out, message, stored.written_at()).map_err(unreadable);
        }
        let object = self.tree(Source::Stored(stored.clone()))?;
        json::encode_value(&table::bare_metadata(&object), out);
        Ok(())
    }

    /// Appends the JSON of an object cut down to its metadata.
    pub(super) fn write_partial(
        &self,
        stored: &Arc<CachedObject>,
        api_version: &str,
        retention: Retention,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        table::open_partial(out, api_version);
        match self.json_metadata(stored, retention)? {
            Some(kept) => out.extend_from_slice(kept.slice(&kept.part)),
            None => self.write_metadata(stored, out)?,
        }
        out.push(b'}');
        Ok(())
    }

    /// Reports whether objects have their kind and apiVersion in lists, too: those of built-in
    /// kinds do not.
    pub(super) fn items_have_types(&self) -> bool {
        self.resource().custom.is_some()
    }

    /// A stored object in its protobuf envelope, or, with an API version of `meta.k8s.io`, its
    /// metadata.
    pub(super) fn protobuf_object(
        &self,
        stored: &Arc<CachedObject>,
        metadata: Option<&'static str>,
    ) -> Result<Vec<u8>> {
        if let Some(object) = self.revised(stored, metadata.is_some())? {
            let mut out = Vec::with_capacity(object.message_len() + 64);
            let (api_version, kind) = self.type_meta(metadata);
            object.write_object(&api_version, kind, &mut out);
            return Ok(out);
        }
        let object = self.tree(Source::Stored(stored.clone()))?;
        Ok(match metadata {
            Some(api_version) => {
                protobuf_tree(&partial_metadata(&object, api_version), self.resource())
            }
            None => protobuf_tree(&object, self.resource()),
        })
    }

    /// A stored message with its resourceVersion, or its metadata alone. `None` where it takes a
    /// tree.
    pub(super) fn revised<'a>(
        &'a self,
        stored: &'a CachedObject,
        metadata: bool,
    ) -> Result<Option<protobuf::WithResourceVersion<'a>>> {
        let revised = self
            .message(stored)?
            .and_then(|message| protobuf::WithResourceVersion::new(message, stored.written_at()));
        Ok(revised.map(|object| if metadata { object.metadata() } else { object }))
    }

    /// The apiVersion and kind of whole objects, or of their metadata.
    pub(super) fn type_meta(&self, metadata: Option<&'static str>) -> (Cow<'static, str>, &str) {
        match metadata {
            Some(api_version) => (Cow::Borrowed(api_version), PARTIAL),
            None => {
                let gvk = &self.resource().gvk;
                (Cow::Owned(gvk.api_version()), &gvk.kind)
            }
        }
    }
}

/// The object within its event, without a copy.
fn object_bytes(kept: &SharedEncoding) -> Bytes {
    kept.bytes.slice_ref(kept.slice(&kept.object))
}

fn offset(at: usize) -> u32 {
    // No object is that large.
    u32::try_from(at).unwrap_or(u32::MAX)
}

fn offsets(part: Range<usize>) -> Range<u32> {
    offset(part.start)..offset(part.end)
}
