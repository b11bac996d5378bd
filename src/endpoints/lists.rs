//! The bodies of lists: object after object wherever the form allows it, so that nothing the size of a list is in memory.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use crate::codec;
use crate::meta::status::Result;
use crate::meta::{Map, Object, Status, Value};
use crate::registry::cells::Cells;
use crate::registry::store::{Page, unreadable};
use crate::registry::table::{self, Format, IncludeObject};
use crate::storage::Stored;

use super::body::{self, Body};
use super::list_body;
use super::negotiate::{Form, MediaType};
use super::rendered::{Rendered, Shelf};
use super::respond::{Shown, View, encode_fixed, end_line, meta_version, partial_metadata, protobuf};

impl View<'_> {
    /// The body of a list.
    pub fn list(&self, page: Page) -> Result<Body> {
        if let Some(plain) = self.plain()
            && let Some(body) = plain.list(self.store, self.rendered, &page)?
        {
            return Ok(body);
        }
        if let Form::Table(version) = self.output.form
            && let Some(body) = self.table_list(&page, version)?.map_or_else(|| self.tree_table(&page, version), |body| Ok(Some(body)))?
        {
            return Ok(body);
        }
        if let Some(body) = self.tree_list(&page)? {
            return Ok(body);
        }
        let mut bytes = self.list_bytes(page)?;
        end_line(&mut bytes, self.output);
        Ok(body::full(bytes))
    }

    /// The body of a Table, row by row; `None` where it takes trees, or is empty.
    fn table_list(&self, page: &Page, version: &'static str) -> Result<Option<Body>> {
        let Some(rows) = self.rows(version).filter(|_| page.items.clone().next().is_some()) else { return Ok(None) };
        let format = rows.format();
        let (head, tail) = table_ends(format, page);
        let (store, mut shelf) = (self.store.clone(), Shelf::new(self.rendered.clone(), self.resource()));
        let render = move |stored: &Arc<Stored>, out: &mut Vec<u8>| {
            let message = || store.message(stored)?.ok_or_else(|| Status::internal("a stored object is no protobuf"));
            let make = || rows.cells(message()?).map_err(unreadable);
            let show = |cells: &Cells, out: &mut Vec<u8>| rows.row(message()?, stored.written_at(), cells, out).map_err(unreadable);
            let bare = |out: &mut Vec<u8>| table::write_metadata_of(out, message()?, stored.written_at()).map_err(unreadable);
            match shelf.metadata(stored, bare)? {
                Some(kept) => match (kept.cells(make)?, kept.metadata()) {
                    (cells, Some(metadata)) if format.include == IncludeObject::Metadata => {
                        format.row_with(cells, metadata, out);
                        Ok(())
                    }
                    (cells, _) => show(cells, out),
                },
                None => show(&make()?, out),
            }
        };
        list_body::stream(head, page.items.clone(), format.before_row(false), tail, render).map(Some)
    }

    /// The body of a Table of objects that take trees, row by row; `None` where it shows more than their metadata, is sorted or empty.
    fn tree_table(&self, page: &Page, version: &'static str) -> Result<Option<Body>> {
        let (store, rendered, View { output, include, now, .. }) = (self.store.clone(), self.rendered.clone(), *self);
        let (json, format) = (output.media == MediaType::Json && !output.pretty, self.format(version));
        if !json || include != IncludeObject::Metadata || format.printer.order().is_some() || page.items.clone().next().is_none() {
            return Ok(None);
        }
        let ((head, tail), before_row) = (table_ends(format, page), format.before_row(false));
        let mut shelf = Shelf::new(rendered.clone(), self.resource());
        let render = move |stored: &Arc<Stored>, out: &mut Vec<u8>| {
            let view = View { store: &store, rendered: &rendered, output, include, now };
            let (tree, format) = (|| view.raw_tree(Shown::Stored(stored.clone())), view.format(version));
            let kept = shelf.metadata(stored, |out| view.bare(stored, out))?;
            match kept.as_deref().and_then(|kept| Some((kept, kept.metadata()?))) {
                Some((kept, metadata)) => format.row_with(kept.cells(|| Ok(format.cells(&tree()?)))?, metadata, out),
                None => format.row(&tree()?, None, out),
            }
            Ok(())
        };
        list_body::stream(head, page.items.clone(), before_row, tail, render).map(Some)
    }

    /// The body of a list in JSON whose objects take trees, one after the other; `None` in other forms, and where it is empty.
    fn tree_list(&self, page: &Page) -> Result<Option<Body>> {
        let (store, rendered, View { output, include, now, .. }) = (self.store.clone(), self.rendered.clone(), *self);
        if output.media != MediaType::Json || output.pretty || page.items.clone().next().is_none() {
            return Ok(None);
        }
        let (version, api_version, kind) = match output.form {
            Form::Object => (None, self.resource().gvk.api_version(), self.list_kind()),
            Form::Metadata(version) => (Some(version), meta_version(version).to_owned(), "PartialObjectMetadataList".to_owned()),
            Form::Table(_) => return Ok(None),
        };
        let head = json_head(&kind, &api_version, self.tree_list_meta(page));
        let mut shelf = Shelf::new(rendered.clone(), self.resource());
        let render = move |stored: &Arc<Stored>, out: &mut Vec<u8>| {
            let view = View { store: &store, rendered: &rendered, output, include, now };
            let tree = || view.tree(Shown::Stored(stored.clone()));
            if version.is_none() {
                return shelf.item(stored, out, |out| Ok(view.item(tree()?, out)));
            }
            match shelf.metadata(stored, |out| view.bare(stored, out))?.as_deref().and_then(Rendered::metadata) {
                Some(metadata) => table::write_partial_with(out, metadata, &api_version),
                None => table::write_partial(out, &tree()?, &api_version),
            }
            Ok(())
        };
        list_body::stream(head, page.items.clone(), b",", b"]}\n".to_vec(), render).map(Some)
    }

    /// The metadata of a list of trees.
    fn tree_list_meta(&self, page: &Page) -> Map {
        let mut meta = list_meta(page);
        if self.resource().custom.is_some() && self.output.form == Form::Object {
            // Lists of custom resources always say where they go on.
            meta.entry("continue").or_insert_with(|| "".into());
        }
        meta
    }

    /// Appends the bare metadata of an object that takes a tree.
    fn bare(&self, stored: &Arc<Stored>, out: &mut Vec<u8>) -> Result<()> {
        let tree = self.tree(Shown::Stored(stored.clone()))?;
        codec::json::encode_value(&table::bare_metadata(&tree), out);
        Ok(())
    }

    /// Appends a tree as the item of a list. Tells where its metadata lie, if they are as they are shown alone.
    fn item(&self, object: Object, out: &mut Vec<u8>) -> Range<usize> {
        let bare = matches!(table::bare_metadata(&object), Cow::Borrowed(_));
        let (open, mut metadata) = (out.len(), 0..0);
        for (key, value) in self.without_type(object).iter() {
            out.push(b',');
            codec::json::write_string(key, out);
            out.push(b':');
            let begun = out.len();
            codec::json::encode_value(value, out);
            if bare && key == "metadata" {
                metadata = begun..out.len();
            }
        }
        match out.get_mut(open) {
            Some(comma) => *comma = b'{',
            None => out.push(b'{'),
        }
        out.push(b'}');
        metadata
    }

    /// Objects of built-in kinds do not say in lists what they are.
    fn without_type(&self, mut object: Object) -> Object {
        if !self.resource().decl.stored_as_json {
            object.shift_remove("kind");
            object.shift_remove("apiVersion");
        }
        object
    }

    /// The bytes of a list in a form that is made of trees.
    fn list_bytes(&self, page: Page) -> Result<Vec<u8>> {
        let list_meta = self.tree_list_meta(&page);
        match self.output.form {
            Form::Object => self.object_list(page, list_meta),
            Form::Metadata(version) => {
                let mut items = Vec::new();
                for stored in page.items {
                    items.push(Value::from(partial_metadata(&self.tree(Shown::Stored(stored?))?, version)));
                }
                let items = if items.is_empty() { Value::Null } else { Value::Array(items) };
                Ok(encode_fixed(&envelope("PartialObjectMetadataList", meta_version(version), list_meta, items), self.output))
            }
            Form::Table(version) => {
                let revision = page.revision.to_string();
                let objects: Result<Vec<Object>> = page.items.map(|stored| self.raw_tree(Shown::Stored(stored?))).collect();
                let meta = table::ListMeta {
                    resource_version: &revision,
                    continue_token: &page.continue_token,
                    remaining_item_count: page.remaining,
                };
                self.table_bytes(&objects?, meta, version, true)
            }
        }
    }

    fn object_list(&self, page: Page, list_meta: Map) -> Result<Vec<u8>> {
        let mut items = Vec::new();
        for stored in page.items {
            items.push(Value::from(self.without_type(self.tree(Shown::Stored(stored?))?)));
        }
        let list = envelope(&self.list_kind(), &self.resource().gvk.api_version(), list_meta, Value::Array(items));
        Ok(match self.output.media {
            MediaType::Protobuf => protobuf(&list, self.resource()),
            _ => encode_fixed(&list, self.output),
        })
    }

    fn list_kind(&self) -> String {
        match &self.resource().custom {
            Some(custom) => custom.list_kind().to_owned(),
            None => format!("{}List", self.resource().gvk.kind),
        }
    }
}

/// The metadata of a list.
pub(super) fn list_meta(page: &Page) -> Map {
    let mut meta = Map::new();
    meta.insert("resourceVersion", page.revision.to_string().into());
    if !page.continue_token.is_empty() {
        meta.insert("continue", page.continue_token.clone().into());
    }
    if let Some(remaining) = page.remaining {
        meta.insert("remainingItemCount", remaining.into());
    }
    meta
}

/// A list in JSON up to its first item; `]}` ends it.
pub(super) fn json_head(kind: &str, api_version: &str, metadata: Map) -> Vec<u8> {
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

/// What stands before the first row of a Table, and behind the last.
fn table_ends(format: Format, page: &Page) -> (Vec<u8>, Vec<u8>) {
    let (mut head, revision) = (Vec::new(), page.revision.to_string());
    let meta = table::ListMeta { resource_version: &revision, continue_token: &page.continue_token, remaining_item_count: page.remaining };
    format.head(meta, true, &mut head);
    head.extend_from_slice(format.before_row(true));
    (head, [format.tail(false), b"\n"].concat())
}
