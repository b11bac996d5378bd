//! The bodies of lists, encoded object by object wherever the form allows it, so that memory does
//! not grow with the list.

use std::sync::Arc;

use crate::base::blocking::run_blocking;
use crate::cacher::{CachedObject, Representation, Retention};
use crate::codec;
use crate::codec::protobuf;
use crate::endpoints::body::{self, Body};
use crate::meta::status::Result;
use crate::meta::{Map, Object, Value};
use crate::registry::store::{Page, unreadable};
use crate::registry::table::ListMeta;

use super::list_body::{self, ListFraming};
use super::{Encoder, Form, MediaType, Source, fixed_body, meta_version, partial_metadata};

/// The kind of a list of bare metadata.
const PARTIAL_LIST: &str = "PartialObjectMetadataList";

/// The end of a list in JSON.
const JSON_TAIL: &[u8] = b"]}\n";

impl Encoder {
    /// The body of an answer with a list.
    ///
    /// # Errors
    /// 406 where the form is that of one object, 500 for an object that cannot be decoded.
    pub async fn list(&self, mut page: Page) -> Result<Body> {
        let is_json = self.output.media == MediaType::Json;
        match self.output.form {
            Form::NotAcceptable(kind) => {
                Err(self.not_acceptable(kind, "is a list", &self.resource().gvk, "List"))
            }
            Form::Object if is_json => self.json_list(page).await,
            // Empty ones have no items or rows at all.
            Form::Metadata(version) if is_json && !page.items.is_empty().await => {
                self.metadata_list(page, meta_version(version)).await
            }
            Form::Table(version)
                if is_json
                    && self.has_independent_rows(version)
                    && !page.items.is_empty().await =>
            {
                self.table_list(page, version).await
            }
            _ => match self.protobuf_list(&mut page).await? {
                Some(body) => Ok(body),
                None => run_blocking(|| self.tree_list(page)),
            },
        }
    }

    async fn json_list(&self, page: Page) -> Result<Body> {
        let head = json_head(
            &self.list_kind(),
            &self.resource().gvk.api_version(),
            self.list_meta(&page),
        );
        let encoder = self.clone();
        let encode =
            move |stored: &Arc<CachedObject>, out: &mut Vec<u8>| encoder.write_item(stored, out);
        list_body::stream(self.json_framing(head), page.items, encode).await
    }

    async fn metadata_list(&self, page: Page, api_version: &'static str) -> Result<Body> {
        let head = json_head(PARTIAL_LIST, api_version, self.list_meta(&page));
        let encoder = self.clone();
        let encode = move |stored: &Arc<CachedObject>, out: &mut Vec<u8>| {
            encoder.write_partial(stored, api_version, Retention::Scan, out)
        };
        list_body::stream(self.json_framing(head), page.items, encode).await
    }

    /// The framing of a list in JSON that begins with `head`.
    fn json_framing(&self, head: Vec<u8>) -> ListFraming {
        ListFraming {
            head,
            separator: b",",
            tail: JSON_TAIL.to_vec(),
            is_indented: self.is_indented(),
        }
    }

    /// A list in protobuf; `None` where it takes trees.
    ///
    /// The lengths of all items have to be known before the first is sent: they are gone through
    /// twice.
    async fn protobuf_list(&self, page: &mut Page) -> Result<Option<Body>> {
        let metadata = match self.output.form {
            Form::Object => None,
            Form::Metadata(version) => Some(meta_version(version)),
            Form::Table(_) | Form::NotAcceptable(_) => return Ok(None),
        };
        if self.output.media != MediaType::Protobuf || !self.resource().stored_as_served() {
            return Ok(None);
        }
        page.items.select_all().await?;
        let (mut items, mut items_len) = (page.items.clone(), 0);
        while let Some(stored) = items.next_item().await {
            match self.revised(&*stored?, metadata.is_some())? {
                Some(object) => items_len += object.item_len(),
                None => return Ok(None),
            }
        }
        let (api_version, kind) = self.type_meta(metadata);
        let revision = page.revision.to_string();
        let meta = protobuf::ListMeta {
            resource_version: &revision,
            continue_token: &page.continue_token,
            remaining_item_count: page.remaining,
        };
        let (mut head, mut tail) = (Vec::with_capacity(256), Vec::new());
        let list_kind = format!("{kind}List");
        protobuf::list_head(&api_version, &list_kind, meta, items_len, &mut head);
        protobuf::list_tail(&mut tail);
        let framing = ListFraming {
            head,
            separator: b"",
            tail,
            is_indented: false,
        };
        let encoder = self.clone();
        let encode = move |stored: &Arc<CachedObject>, out: &mut Vec<u8>| {
            encoder.write_protobuf_item(stored, metadata.is_some(), out)
        };
        list_body::stream(framing, page.items.clone(), encode)
            .await
            .map(Some)
    }

    /// Appends the item of a list in protobuf. One that watches or gets have encoded is copied.
    /// Others are not kept: they are a copy of what is stored.
    pub(super) fn write_protobuf_item(
        &self,
        stored: &Arc<CachedObject>,
        metadata: bool,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let representation = if metadata {
            Representation::ProtobufMetadata
        } else {
            Representation::Protobuf
        };
        if let Some(kept) = self.existing_encoding(stored, representation) {
            protobuf::write_item(kept.slice(&kept.part), out);
            return Ok(());
        }
        self.revised(stored, metadata)?
            .ok_or_else(|| unreadable(codec::DecodeError::new("it changed while it was sent")))?
            .write_item(out);
        Ok(())
    }

    /// The body of a list in a form that is made of trees.
    fn tree_list(&self, page: Page) -> Result<Body> {
        let list_meta = self.list_meta(&page);
        let bytes = match self.output.form {
            Form::Object | Form::NotAcceptable(_) => self.object_list(page, list_meta)?,
            Form::Metadata(version) => {
                let (mut items, api_version) = (Vec::new(), meta_version(version));
                for stored in page.items {
                    items.push(Value::from(partial_metadata(
                        &self.tree(Source::Stored(stored?))?,
                        api_version,
                    )));
                }
                let items = if items.is_empty() {
                    Value::Null
                } else {
                    Value::Array(items)
                };
                let list = envelope(PARTIAL_LIST, api_version, list_meta, items);
                fixed_body(&list, self.output)
            }
            Form::Table(version) => {
                let revision = page.revision.to_string();
                let meta = table_meta(&page, &revision);
                let objects: Result<Vec<Object>> = page
                    .items
                    .clone()
                    .map(|stored| self.storage_tree(Source::Stored(stored?)))
                    .collect();
                self.table_of_trees(&objects?, meta, version, true)?
            }
        };
        Ok(body::full(bytes))
    }

    fn object_list(&self, page: Page, list_meta: Map) -> Result<Vec<u8>> {
        let mut items = Vec::new();
        for stored in page.items {
            let mut object = self.tree(Source::Stored(stored?))?;
            if !self.items_have_types() {
                object.shift_remove("kind");
                object.shift_remove("apiVersion");
            }
            items.push(Value::from(object));
        }
        let list = envelope(
            &self.list_kind(),
            &self.resource().gvk.api_version(),
            list_meta,
            Value::Array(items),
        );
        Ok(self.tree_body(&list))
    }

    /// The metadata of a list.
    fn list_meta(&self, page: &Page) -> Map {
        let mut meta = Map::new();
        meta.insert("resourceVersion", page.revision.to_string().into());
        if !page.continue_token.is_empty() {
            meta.insert("continue", page.continue_token.clone().into());
        } else if self.resource().custom.is_some() && self.output.form == Form::Object {
            // Lists of custom resources always have a `continue`.
            meta.insert("continue", "".into());
        }
        if let Some(remaining) = page.remaining {
            meta.insert("remainingItemCount", remaining.into());
        }
        meta
    }

    fn list_kind(&self) -> String {
        match &self.resource().custom {
            Some(custom) => custom.list_kind().to_owned(),
            None => format!("{}List", self.resource().gvk.kind),
        }
    }
}

/// The metadata of a Table.
pub(super) fn table_meta<'a>(page: &'a Page, revision: &'a str) -> ListMeta<'a> {
    ListMeta {
        resource_version: revision,
        continue_token: &page.continue_token,
        remaining_item_count: page.remaining,
    }
}

/// A list in JSON up to its first item; `]}` ends it.
fn json_head(kind: &str, api_version: &str, metadata: Map) -> Vec<u8> {
    let mut head = codec::json::encode(&envelope(kind, api_version, metadata, Value::Null));
    head.truncate(head.len() - b"null}".len());
    head.push(b'[');
    head
}

/// A list.
fn envelope(kind: &str, api_version: &str, metadata: Map, items: Value) -> Object {
    let mut out = Object::default();
    out.insert("kind", kind.into());
    out.insert("apiVersion", api_version.into());
    out.insert("metadata", Value::Object(metadata));
    out.insert("items", items);
    out
}
