//! Protobuf that is made of stored bytes, without a tree in between.

use std::sync::Arc;

use crate::codec::{self, protobuf};
use crate::meta::status::Result;
use crate::registry::resource::Resource;
use crate::registry::store::{Page, Store, unreadable};
use crate::storage::Stored;

use super::body::Body;
use super::list_body::{self, Outline};
use super::negotiate::{Form, MediaType, Output};
use super::respond::meta_version;

/// One of the representations.
#[derive(Clone, Copy, Debug)]
pub struct Protobuf {
    /// The version of `meta.k8s.io`, where only metadata is wanted.
    metadata: Option<&'static str>,
}

impl Protobuf {
    /// The one for an output; `None` where it takes a tree: what is not protobuf, Tables, what is
    /// not stored as it is served.
    pub fn new(resource: &Resource, output: Output) -> Option<Self> {
        let metadata = match output.form {
            Form::Object => None,
            Form::Metadata(version) => Some(version),
            Form::Table(_) | Form::Misfit(_) => return None,
        };
        (output.media == MediaType::Protobuf && resource.stored_as_served())
            .then_some(Self { metadata })
    }

    /// The apiVersion and kind of what is shown.
    fn type_meta(self, resource: &Resource) -> (String, &str) {
        match self.metadata {
            Some(version) => (meta_version(version).to_owned(), "PartialObjectMetadata"),
            None => (resource.gvk.api_version(), &resource.gvk.kind),
        }
    }

    /// The bytes of an object; `None` if these do take a tree.
    pub fn object(self, store: &Store, stored: &Stored) -> Result<Option<Vec<u8>>> {
        let Some(object) = self.revise(store, stored)? else {
            return Ok(None);
        };
        let (api_version, kind) = self.type_meta(&store.resource);
        let mut out = Vec::with_capacity(stored.value.len() * 2);
        object.write_object(&api_version, kind, &mut out);
        Ok(Some(out))
    }

    fn revise<'a>(
        self,
        store: &'a Store,
        stored: &'a Stored,
    ) -> Result<Option<protobuf::WithResourceVersion<'a>>> {
        let revised = store
            .message(stored)?
            .and_then(|message| protobuf::WithResourceVersion::new(message, stored.written_at()));
        Ok(revised.map(|object| {
            if self.metadata.is_some() {
                object.metadata()
            } else {
                object
            }
        }))
    }

    /// The body of a list; `None` if one of its objects takes a tree.
    ///
    /// The lengths of all items have to be known before the first is sent: they are gone through
    /// twice.
    pub fn list(self, store: &Store, page: &Page) -> Result<Option<Body>> {
        let mut items_len = 0;
        for stored in page.items.clone() {
            let stored = stored?;
            match self.revise(store, &stored)? {
                Some(object) => items_len += object.item_len(),
                None => return Ok(None),
            }
        }
        let (api_version, kind) = self.type_meta(&store.resource);
        let revision = page.revision.to_string();
        let meta = protobuf::ListMeta {
            resource_version: &revision,
            continue_token: &page.continue_token,
            remaining_item_count: page.remaining,
        };
        let mut head = Vec::with_capacity(256);
        protobuf::list_head(
            &api_version,
            &format!("{kind}List"),
            meta,
            items_len,
            &mut head,
        );
        let mut tail = Vec::new();
        protobuf::list_tail(&mut tail);
        let store = store.clone();
        let render = move |stored: &Arc<Stored>, out: &mut Vec<u8>| {
            let object = self.revise(&store, stored)?;
            object
                .ok_or_else(|| unreadable(codec::DecodeError::new("it changed while it was sent")))?
                .write_item(out);
            Ok(())
        };
        let outline = Outline {
            head,
            separator: b"",
            tail,
            indented: false,
        };
        list_body::stream(outline, page.items.clone(), render).map(Some)
    }
}
