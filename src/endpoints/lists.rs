//! The bodies of lists: object after object wherever the form allows it, so that nothing the size
//! of a list is in memory.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use jiff::Timestamp;

use crate::base::blocking::run_blocking;
use crate::codec;
use crate::codec::protobuf::{self, Message};
use crate::meta::status::Result;
use crate::meta::{Map, Object, Value};
use crate::registry::cells::Cells;
use crate::registry::store::{Page, Store, unreadable};
use crate::registry::table::{self, IncludeObject, ListMeta, Rows};
use crate::storage::Stored;

use super::body::{self, Body};
use super::list_body::{self, Outline};
use super::negotiate::{Form, MediaType, Output};
use super::rendered::{ItemJson, Rendered, RenderedCache, Shelf};
use super::respond::{self, Shown, View, encode_fixed, end_line, meta_version, partial_metadata};

/// The kind of a list of bare metadata.
const PARTIAL_LIST: &str = "PartialObjectMetadataList";

/// What ends a list in JSON.
const JSON_TAIL: &[u8] = b"]}\n";

/// What a list needs to go on by itself.
struct Lister {
    store: Store,
    rendered: Arc<RenderedCache>,
    output: Output,
    include: IncludeObject,
    now: Timestamp,
}

impl Lister {
    fn view(&self) -> View<'_> {
        View {
            store: &self.store,
            rendered: &self.rendered,
            output: self.output,
            include: self.include,
            now: self.now,
        }
    }
}

impl View<'_> {
    /// The body of a list.
    pub fn list(&self, page: Page) -> Result<Body> {
        let json = self.output.media == MediaType::Json;
        let empty = page.items.clone().next().is_none();
        match self.output.form {
            Form::Misfit(kind) => Err(self.misfit(kind, "is a list", &self.resource().gvk, "List")),
            Form::Object if json => self.json_list(&page),
            // Empty ones have no items or rows at all.
            Form::Metadata(version) if json && !empty => self.metadata_list(&page, version),
            Form::Table(version) if json && !empty && self.rows_stand_alone(version) => {
                self.table_list(&page, version)
            }
            _ => {
                let protobuf = self
                    .protobuf()
                    .map(|protobuf| protobuf.list(self.store, &page))
                    .transpose()?
                    .flatten();
                protobuf.map_or_else(|| run_blocking(|| self.tree_list(page)), Ok)
            }
        }
    }

    /// Whether each row is made of one object, and shows the metadata that a list of metadata
    /// shows. What conversion adds to them Tables do not show.
    fn rows_stand_alone(&self, version: &str) -> bool {
        self.format(version).printer.order().is_none() && self.resource().conversion.is_none()
    }

    fn lister(&self) -> (Lister, Shelf) {
        let View {
            output,
            include,
            now,
            ..
        } = *self;
        let lister = Lister {
            store: self.store.clone(),
            rendered: self.rendered.clone(),
            output,
            include,
            now,
        };
        (lister, Shelf::new(self.rendered.clone(), self.resource()))
    }

    /// A list in JSON that begins with `head`.
    fn outline(&self, head: Vec<u8>) -> Outline {
        Outline {
            head,
            separator: b",",
            tail: JSON_TAIL.to_vec(),
            indented: self.indents(),
        }
    }

    fn json_list(&self, page: &Page) -> Result<Body> {
        let head = json_head(
            &self.list_kind(),
            &self.resource().gvk.api_version(),
            self.list_meta(page),
        );
        let (lister, mut shelf) = self.lister();
        let render = move |stored: &Arc<Stored>, out: &mut Vec<u8>| {
            shelf.item(stored, out, |out| lister.view().item(stored, out))
        };
        list_body::stream(self.outline(head), page.items.clone(), render)
    }

    fn metadata_list(&self, page: &Page, version: &str) -> Result<Body> {
        let api_version = meta_version(version);
        let head = json_head(PARTIAL_LIST, api_version, self.list_meta(page));
        let (lister, mut shelf) = self.lister();
        let render = move |stored: &Arc<Stored>, out: &mut Vec<u8>| {
            let view = lister.view();
            match shelf
                .metadata(stored, |out| view.metadata(stored, out))?
                .as_ref()
                .and_then(ItemJson::metadata)
            {
                Some(metadata) => table::write_partial_with(out, metadata, api_version),
                None => view.partial(stored, api_version, out)?,
            }
            Ok(())
        };
        list_body::stream(self.outline(head), page.items.clone(), render)
    }

    fn table_list(&self, page: &Page, version: &'static str) -> Result<Body> {
        let format = self.format(version);
        let (mut head, revision) = (Vec::new(), page.revision.to_string());
        format.head(table_meta(page, &revision), true, &mut head);
        head.extend_from_slice(format.before_row(true));
        let outline = Outline {
            head,
            separator: format.before_row(false),
            tail: [format.tail(false), b"\n"].concat(),
            indented: self.indents(),
        };
        let (rows, (lister, mut shelf)) = (self.rows(version), self.lister());
        let render = move |stored: &Arc<Stored>, out: &mut Vec<u8>| {
            let view = lister.view();
            let make = || view.cells(stored, rows.as_ref(), version);
            let kept = shelf.row(stored, |out| view.metadata(stored, out))?;
            let metadata = kept.as_deref().and_then(Rendered::metadata);
            let show = |out: &mut Vec<u8>| view.row_object(stored, metadata, version, out);
            match &kept {
                Some(kept) => view.format(version).row_with(kept.cells(make)?, out, show),
                None => view.format(version).row_with(&make()?, out, show),
            }
        };
        list_body::stream(outline, page.items.clone(), render)
    }

    /// Appends the item of a list. Tells where its metadata lie, if they are as they are shown
    /// alone.
    fn item(&self, stored: &Arc<Stored>, out: &mut Vec<u8>) -> Result<Range<usize>> {
        if let Some(message) = self.message(stored)? {
            let metadata =
                protobuf::to_json(message.bytes, message.ty, "", "", stored.written_at(), out)
                    .map_err(unreadable)?;
            return Ok(if table::shows_metadata(message.ty) {
                metadata
            } else {
                0..0
            });
        }
        let object = self.tree(Shown::Stored(stored.clone()))?;
        let bare = matches!(table::bare_metadata(&object), Cow::Borrowed(_));
        let (open, mut metadata) = (out.len(), 0..0);
        for (key, value) in self.without_type(object).iter() {
            out.push(if out.len() == open { b'{' } else { b',' });
            codec::json::write_string(key, out);
            out.push(b':');
            let begun = out.len();
            codec::json::encode_value(value, out);
            if bare && key == "metadata" {
                metadata = begun..out.len();
            }
        }
        out.push(b'}');
        Ok(metadata)
    }

    /// Appends the metadata of an object as they are shown alone.
    fn metadata(&self, stored: &Arc<Stored>, out: &mut Vec<u8>) -> Result<()> {
        if let Some(message) = self.message(stored)? {
            return table::write_metadata_of(out, message, stored.written_at()).map_err(unreadable);
        }
        let object = self.tree(Shown::Stored(stored.clone()))?;
        codec::json::encode_value(&table::bare_metadata(&object), out);
        Ok(())
    }

    /// The cells of an object's row.
    fn cells(&self, stored: &Arc<Stored>, rows: Option<&Rows>, version: &str) -> Result<Cells> {
        match (rows, self.message(stored)?) {
            (Some(rows), Some(message)) => rows.cells(message).map_err(unreadable),
            _ => Ok(self
                .format(version)
                .cells(&self.raw_tree(Shown::Stored(stored.clone()))?)),
        }
    }

    /// Appends what a row shows of an object; `metadata` are its metadata, if they are at hand.
    pub(super) fn row_object(
        &self,
        stored: &Arc<Stored>,
        metadata: Option<&[u8]>,
        version: &str,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        match (self.include, metadata) {
            (IncludeObject::None, _) => out.extend_from_slice(b"null"),
            (IncludeObject::Metadata, Some(metadata)) => {
                table::write_partial_with(out, metadata, meta_version(version))
            }
            (IncludeObject::Metadata, None) => self.partial(stored, meta_version(version), out)?,
            (IncludeObject::Object, _) => self.whole(stored, out)?,
        }
        Ok(())
    }

    /// Appends an object cut down to its metadata.
    pub(super) fn partial(
        &self,
        stored: &Arc<Stored>,
        api_version: &str,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        match self.message(stored)? {
            Some(message) => {
                table::write_partial_of(out, message, stored.written_at(), api_version)
                    .map_err(unreadable)
            }
            None => {
                table::write_partial(out, &self.tree(Shown::Stored(stored.clone()))?, api_version);
                Ok(())
            }
        }
    }

    /// Appends an object with its kind and apiVersion.
    pub(super) fn whole(&self, stored: &Arc<Stored>, out: &mut Vec<u8>) -> Result<()> {
        let gvk = &self.resource().gvk;
        match self.message(stored)? {
            Some(Message { bytes, ty }) => protobuf::to_json(
                bytes,
                ty,
                &gvk.api_version(),
                &gvk.kind,
                stored.written_at(),
                out,
            )
            .map(drop)
            .map_err(unreadable),
            None => {
                codec::json::encode_value(&self.tree(Shown::Stored(stored.clone()))?.into(), out);
                Ok(())
            }
        }
    }

    /// [`View::whole`] of an object that is got, with the item that lists show.
    pub(super) fn shared(&self, stored: &Arc<Stored>, out: &mut Vec<u8>) -> Result<()> {
        let got = |out: &mut Vec<u8>| {
            self.rendered
                .got(self.resource(), stored, out, |out| self.item(stored, out))
        };
        if self.items_have_types() {
            return got(out);
        }
        let gvk = &self.resource().gvk;
        out.extend_from_slice(b"{\"kind\":");
        codec::json::write_string(&gvk.kind, out);
        out.extend_from_slice(b",\"apiVersion\":");
        codec::json::write_string(&gvk.api_version(), out);
        let item = out.len();
        got(out)?;
        // The object goes on where the item opens.
        match &out[item..] {
            b"{}" => drop(out.remove(item)),
            _ => out[item] = b',',
        }
        Ok(())
    }

    /// Whether objects say in lists, too, what they are: those of built-in kinds do not.
    fn items_have_types(&self) -> bool {
        self.resource().custom.is_some()
    }

    /// The message of an object that is served as it is stored.
    fn message<'a>(&'a self, stored: &'a Stored) -> Result<Option<protobuf::Message<'a>>> {
        if self.resource().stored_as_served() {
            self.store.message(stored)
        } else {
            Ok(None)
        }
    }

    /// An object as lists show it.
    fn without_type(&self, mut object: Object) -> Object {
        if !self.items_have_types() {
            object.shift_remove("kind");
            object.shift_remove("apiVersion");
        }
        object
    }

    /// The body of a list in a form that is made of trees.
    fn tree_list(&self, page: Page) -> Result<Body> {
        let list_meta = self.list_meta(&page);
        let mut bytes = match self.output.form {
            Form::Object | Form::Misfit(_) => self.object_list(page, list_meta)?,
            Form::Metadata(version) => {
                let (mut items, api_version) = (Vec::new(), meta_version(version));
                for stored in page.items {
                    items.push(Value::from(partial_metadata(
                        &self.tree(Shown::Stored(stored?))?,
                        api_version,
                    )));
                }
                let items = if items.is_empty() {
                    Value::Null
                } else {
                    Value::Array(items)
                };
                encode_fixed(
                    &envelope(PARTIAL_LIST, api_version, list_meta, items),
                    self.output,
                )
            }
            Form::Table(version) => {
                let revision = page.revision.to_string();
                let meta = table_meta(&page, &revision);
                let objects: Result<Vec<Object>> = page
                    .items
                    .clone()
                    .map(|stored| self.raw_tree(Shown::Stored(stored?)))
                    .collect();
                self.table_bytes(&objects?, meta, version, true)?
            }
        };
        end_line(&mut bytes, self.output);
        Ok(body::full(bytes))
    }

    fn object_list(&self, page: Page, list_meta: Map) -> Result<Vec<u8>> {
        let mut items = Vec::new();
        for stored in page.items {
            items.push(Value::from(
                self.without_type(self.tree(Shown::Stored(stored?))?),
            ));
        }
        let list = envelope(
            &self.list_kind(),
            &self.resource().gvk.api_version(),
            list_meta,
            Value::Array(items),
        );
        Ok(match self.output.media {
            MediaType::Protobuf => respond::protobuf(&list, self.resource()),
            _ => encode_fixed(&list, self.output),
        })
    }

    /// The metadata of a list.
    fn list_meta(&self, page: &Page) -> Map {
        let mut meta = Map::new();
        meta.insert("resourceVersion", page.revision.to_string().into());
        if !page.continue_token.is_empty() {
            meta.insert("continue", page.continue_token.clone().into());
        } else if self.resource().custom.is_some() && self.output.form == Form::Object {
            // Lists of custom resources always say where they go on.
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
fn table_meta<'a>(page: &'a Page, revision: &'a str) -> ListMeta<'a> {
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
