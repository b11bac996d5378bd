//! Representations that are made of stored bytes without a tree in between.

use std::sync::Arc;

use crate::codec::{self, protobuf};
use crate::meta::status::Result;
use crate::registry::resource::Resource;
use crate::registry::store::{Page, Store, unreadable};
use crate::registry::table;
use crate::storage::Stored;

use super::body::Body;
use super::list_body::{self, Outline};
use super::negotiate::{Form, MediaType, Output};

/// One of them.
#[derive(Clone, Copy, Debug)]
pub struct Plain {
    protobuf: bool,
    /// The version of `meta.k8s.io`, where only metadata is wanted.
    metadata: Option<&'static str>,
}

impl Plain {
    /// The one for an output; `None` where it takes a tree: Tables, YAML, what is not stored as it is served. JSON is compact.
    pub fn new(resource: &Resource, output: Output) -> Option<Self> {
        let metadata = match output.form {
            Form::Object => None,
            Form::Metadata(version) => Some(version),
            Form::Table(_) => return None,
        };
        let protobuf = match output.media {
            MediaType::Json => false,
            MediaType::Protobuf => true,
            _ => return None,
        };
        resource.stored_as_served().then_some(Self { protobuf, metadata })
    }

    /// The apiVersion and kind of what is shown.
    fn type_meta(self, resource: &Resource) -> (String, &str) {
        match self.metadata {
            Some(version) => (format!("meta.k8s.io/{version}"), "PartialObjectMetadata"),
            None => (resource.gvk.api_version(), &resource.gvk.kind),
        }
    }

    /// Appends an object; `false` if these bytes do take a tree.
    pub fn object(self, store: &Store, stored: &Stored, out: &mut Vec<u8>) -> Result<bool> {
        let Some(message) = store.message(stored)? else { return Ok(false) };
        let (api_version, kind) = self.type_meta(&store.resource);
        if self.protobuf {
            let Some(object) = self.revised(message, stored) else { return Ok(false) };
            object.write_object(&api_version, kind, out);
        } else {
            self.json(message, stored, &api_version, kind, out)?;
        }
        Ok(true)
    }

    fn revised<'a>(self, message: protobuf::Message<'a>, stored: &Stored) -> Option<protobuf::Revised<'a>> {
        let object = protobuf::Revised::new(message, stored.written_at())?;
        Some(if self.metadata.is_some() { object.metadata() } else { object })
    }

    /// Appends the JSON of an object, without `kind` and `apiVersion` where they are empty.
    fn json(self, message: protobuf::Message, stored: &Stored, api_version: &str, kind: &str, out: &mut Vec<u8>) -> Result<()> {
        if self.metadata.is_none() {
            return protobuf::to_json(message.bytes, message.ty, api_version, kind, stored.written_at(), out).map(drop).map_err(unreadable);
        }
        table::write_partial_of(out, message, stored.written_at(), api_version).map_err(unreadable)
    }

    /// The body of a list in protobuf; `None` in JSON, and if one of its objects takes a tree.
    ///
    /// The lengths of all items have to be known before the first is sent: they are gone through twice.
    pub fn list(self, store: &Store, page: &Page) -> Result<Option<Body>> {
        if !self.protobuf {
            return Ok(None);
        }
        let mut items_len = 0;
        for stored in page.items.clone() {
            let stored = stored?;
            let Some(object) = store.message(&stored)?.and_then(|message| self.revised(message, &stored)) else { return Ok(None) };
            items_len += object.item_len();
        }
        let (api_version, kind) = self.type_meta(&store.resource);
        let revision = page.revision.to_string();
        let meta =
            protobuf::ListMeta { resource_version: &revision, continue_token: &page.continue_token, remaining_item_count: page.remaining };
        let mut head = Vec::with_capacity(256);
        protobuf::list_head(&api_version, &format!("{kind}List"), meta, items_len, &mut head);
        let mut tail = Vec::new();
        protobuf::list_tail(&mut tail);
        let store = store.clone();
        let render = move |stored: &Arc<Stored>, out: &mut Vec<u8>| {
            let message = store.message(stored)?.and_then(|message| self.revised(message, stored));
            let object = message.ok_or_else(|| unreadable(codec::DecodeError::new("it changed while it was sent")))?;
            object.write_item(out);
            Ok(())
        };
        let outline = Outline { head, separator: b"", tail, indented: false };
        list_body::stream(outline, page.items.clone(), render).map(Some)
    }
}
