//! Tables: columns and rows, as `kubectl get` asks for them (meta.k8s.io/v1 Table; apiserver
//! `handlers/response.go`).

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::LazyLock;

use jiff::Timestamp;

use super::cells::{Cell, Cells, CellsRef};
use crate::codec::protobuf::{self, Message, Projection};
use crate::codec::{DecodeError, json};
use crate::meta::status::Result;
use crate::meta::{FieldError, Object, Path, Status, Value, json};
use crate::schema::{TypeId, TypeRef};

pub use super::cells::RowCondition;

/// The metadata that every printer may read.
pub const PRINTED_METADATA: &str =
    "metadata.name metadata.namespace metadata.creationTimestamp metadata.deletionTimestamp";

/// A column of a Table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: Cow<'static, str>,
    /// OpenAPI type: string, integer, number, boolean, date.
    pub kind: Cow<'static, str>,
    /// `name` for the column that identifies the row, else mostly empty.
    pub format: Cow<'static, str>,
    pub description: Cow<'static, str>,
    /// 0 is shown always, 1 only with `-o wide`.
    pub priority: i32,
}

/// The columns of a kind and the cells of its objects.
pub trait TablePrinter: Send + Sync {
    fn columns(&self) -> &[Column];

    /// The fields that the cells and the condition are made of beside [`PRINTED_METADATA`], in the
    /// storage version, as a [`Projection`] takes them, with spaces in between.
    fn paths(&self) -> &'static str {
        ""
    }

    /// The cells of one row, one for each column.
    fn cells(&self, object: &Object) -> Vec<Cell>;

    /// The condition of the row as a whole.
    fn condition(&self, _object: &Object) -> Option<&'static RowCondition> {
        None
    }

    /// The order of the rows of a list, where it is not the order of the list.
    fn order(&self) -> Option<fn(&Object, &Object) -> Ordering> {
        None
    }

    /// Reports whether a Table without rows has `null` rows rather than `[]`: clients can tell.
    fn empty_is_null(&self) -> bool {
        false
    }
}

/// The part of the object that goes with its row (`includeObject`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IncludeObject {
    None,
    #[default]
    Metadata,
    Object,
}

impl IncludeObject {
    /// Reads the query parameter; absent and empty mean `Metadata`.
    ///
    /// # Errors
    /// 400 for an unknown value.
    pub fn parse(value: &str) -> Result<Self> {
        match value {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => {
                let error = FieldError::invalid(
                    &Path::new("includeObject"),
                    other,
                    "must be 'Metadata', 'Object', 'None', or empty",
                );
                Err(Status::bad_request(format!(
                    "Unable to convert to Table as requested: {error}"
                )))
            }
        }
    }
}

/// The metadata of a list or of a Table.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListMeta<'a> {
    pub resource_version: &'a str,
    pub continue_token: &'a str,
    pub remaining_item_count: Option<i64>,
}

/// The format of a Table.
#[derive(Clone, Copy)]
pub struct Format<'a> {
    pub printer: &'a dyn TablePrinter,
    /// `meta.k8s.io/v1` or `meta.k8s.io/v1beta1`.
    pub api_version: &'a str,
    pub include: IncludeObject,
    pub now: Timestamp,
}

/// The annotation of the bookmark that ends the initial events of a watch: its object is shown
/// whatever was asked.
pub const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

impl Format<'_> {
    /// Appends the beginning of a Table, up to its rows, which are separated by commas. Later
    /// events of a watch go without `headers`: their column definitions are null.
    pub fn head(&self, meta: ListMeta, headers: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"kind\":\"Table\",\"apiVersion\":");
        write_text(out, self.api_version);
        out.extend_from_slice(b",\"metadata\":");
        json::encode_value(&list_meta(meta), out);
        out.extend_from_slice(b",\"columnDefinitions\":");
        json::encode_value(
            &if headers {
                columns(self.printer)
            } else {
                Value::Null
            },
            out,
        );
        out.extend_from_slice(b",\"rows\":");
        if !self.printer.empty_is_null() {
            out.push(b'[');
        }
    }

    /// Returns the separator before a row. Where an empty Table says null, the first row opens the
    /// list.
    pub fn before_row(&self, first: bool) -> &'static [u8] {
        match (first, self.printer.empty_is_null()) {
            (false, _) => b",",
            (true, true) => b"[",
            (true, false) => b"",
        }
    }

    /// The end of a Table with or without rows.
    pub fn tail(&self, empty: bool) -> &'static [u8] {
        if empty && self.printer.empty_is_null() {
            b"null}"
        } else {
            b"]}"
        }
    }

    /// Appends a row. `object` is of the storage version, which the printers know; `served` is what
    /// the client would get without a Table, where it differs.
    pub fn row(&self, object: &Object, served: Option<&Object>, out: &mut Vec<u8>) {
        self.row_with(self.cells(object).as_ref(), out, |out| match self.include {
            IncludeObject::None if !ends_initial_events(object) => out.extend_from_slice(b"null"),
            IncludeObject::None | IncludeObject::Metadata => {
                write_partial(out, object, self.api_version)
            }
            IncludeObject::Object => out.extend_from_slice(&json::encode(served.unwrap_or(object))),
        });
    }

    /// The cells of an object of the storage version.
    pub fn cells(&self, object: &Object) -> Cells {
        Cells::new(&self.printer.cells(object), self.printer.condition(object))
    }

    /// Appends a row of these cells, whose object `show` appends.
    pub fn row_with<T>(
        &self,
        cells: CellsRef,
        out: &mut Vec<u8>,
        show: impl FnOnce(&mut Vec<u8>) -> T,
    ) -> T {
        out.push(b'{');
        cells.write(self.now, out);
        out.extend_from_slice(b",\"object\":");
        let outcome = show(out);
        out.push(b'}');
        outcome
    }
}

/// The fields of the stored messages of a built-in resource that the cells of its rows are made of:
/// those at `paths`, which have spaces in between, and those of [`PRINTED_METADATA`].
pub fn projection(paths: &str, ty: TypeRef) -> Projection {
    let paths = [PRINTED_METADATA, paths];
    Projection::new(ty, paths.iter().flat_map(|paths| paths.split_whitespace()))
}

/// Writes a Table as JSON, one row at a time.
pub struct TableWriter<'a> {
    format: Format<'a>,
    out: Vec<u8>,
    empty: bool,
}

impl<'a> TableWriter<'a> {
    /// Starts a Table; see [`Format::head`].
    pub fn new(format: Format<'a>, meta: ListMeta, headers: bool) -> Self {
        let mut out = Vec::new();
        format.head(meta, headers, &mut out);
        Self {
            format,
            out,
            empty: true,
        }
    }

    /// Adds a row; see [`Format::row`].
    pub fn row(&mut self, object: &Object, served: Option<&Object>) {
        self.out
            .extend_from_slice(self.format.before_row(std::mem::take(&mut self.empty)));
        self.format.row(object, served, &mut self.out);
    }

    /// Ends the Table and returns it.
    pub fn finish(mut self) -> Vec<u8> {
        self.out.extend_from_slice(self.format.tail(self.empty));
        self.out
    }
}

/// A Table of a few objects as JSON bytes, in the printer's order.
#[cfg(test)]
pub fn table(format: Format, meta: ListMeta, headers: bool, objects: &[&Object]) -> Vec<u8> {
    let mut writer = TableWriter::new(format, meta, headers);
    let mut objects = objects.to_vec();
    if let Some(order) = format.printer.order() {
        objects.sort_by(|a, b| order(a, b));
    }
    for object in objects {
        writer.row(object, None);
    }
    writer.finish()
}

/// An object cut down to its metadata, as JSON: `PartialObjectMetadata` of `api_version`
/// (meta.k8s.io/v1 or v1beta1).
pub fn write_partial(out: &mut Vec<u8>, object: &Object, api_version: &str) {
    open_partial(out, api_version);
    json::encode_value(&bare_metadata(object), out);
    out.push(b'}');
}

/// A field of DaemonSets that is an annotation in apps/v1 alone.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// The metadata of an object as they are shown without it: they lack what conversion to the served
/// version adds.
pub fn bare_metadata(object: &Object) -> Cow<'_, Value> {
    let Some(metadata @ Value::Object(_)) = object.get("metadata") else {
        return Cow::Owned(json!({}));
    };
    if object.kind() != "DaemonSet" {
        return Cow::Borrowed(metadata);
    }
    let mut metadata = metadata.clone();
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        annotations.shift_remove(TEMPLATE_GENERATION);
        if annotations.is_empty()
            && let Value::Object(metadata) = &mut metadata
        {
            metadata.shift_remove("annotations");
        }
    }
    Cow::Owned(metadata)
}

/// The type whose bare metadata are not its metadata.
static DAEMON_SET: LazyLock<Option<TypeId>> = LazyLock::new(|| {
    Some(
        crate::schema::builtin()
            .named("k8s.io.api.apps.v1.DaemonSet")?
            .id,
    )
});

/// Reports whether the bare metadata of objects of a type equal the metadata that they show.
pub fn shows_metadata(ty: TypeRef) -> bool {
    Some(ty.id) != *DAEMON_SET || !std::ptr::eq(ty.schema, crate::schema::builtin())
}

/// Appends the same as [`write_partial`] for a stored message at a revision, of which only the
/// metadata is read.
///
/// # Errors
/// Those of [`protobuf::decode`]. The appended bytes are then useless.
pub fn write_partial_of(
    out: &mut Vec<u8>,
    message: Message,
    revision: Option<i64>,
    api_version: &str,
) -> std::result::Result<(), DecodeError> {
    open_partial(out, api_version);
    write_metadata_of(out, message, revision)?;
    out.push(b'}');
    Ok(())
}

/// Appends the JSON of the bare metadata of a stored message at a revision.
///
/// # Errors
/// Those of [`write_partial_of`].
pub fn write_metadata_of(
    out: &mut Vec<u8>,
    message: Message,
    revision: Option<i64>,
) -> std::result::Result<(), DecodeError> {
    if shows_metadata(message.ty) {
        return protobuf::metadata_to_json(message.bytes, message.ty, revision, out);
    }
    let mut object = protobuf::decode(message.bytes, message.ty)?;
    object.insert("kind", "DaemonSet".into());
    if let Some(revision) = revision {
        object.set_resource_version(&revision.to_string());
    }
    json::encode_value(&bare_metadata(&object), out);
    Ok(())
}

/// Appends the beginning of a PartialObjectMetadata, up to its metadata; `}` ends it.
pub fn open_partial(out: &mut Vec<u8>, api_version: &str) {
    out.extend_from_slice(b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":");
    write_text(out, api_version);
    out.extend_from_slice(b",\"metadata\":");
}

fn ends_initial_events(object: &Object) -> bool {
    object
        .annotations()
        .is_some_and(|annotations| annotations.contains_key(INITIAL_EVENTS_END))
}

fn columns(printer: &dyn TablePrinter) -> Value {
    let columns = printer.columns().iter().map(|column| {
        json!({
            "name": column.name,
            "type": column.kind,
            "format": column.format,
            "description": column.description,
            "priority": column.priority,
        })
    });
    columns.collect()
}

fn list_meta(meta: ListMeta) -> Value {
    let mut out = crate::meta::Map::new();
    for (key, value) in [
        ("resourceVersion", meta.resource_version),
        ("continue", meta.continue_token),
    ] {
        if !value.is_empty() {
            out.insert(key.to_owned(), value.into());
        }
    }
    if let Some(count) = meta.remaining_item_count {
        out.insert("remainingItemCount", count.into());
    }
    Value::Object(out)
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    json::encode_value(&text.into(), out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;
    use crate::meta::{Gvk, Gvr};

    fn object(value: Value) -> Object {
        Object::from_value(value).expect("an object")
    }

    fn render(include: IncludeObject, headers: bool, objects: &[&Object]) -> Value {
        let printer = builtin::printer("", "configmaps");
        let format = Format {
            printer,
            api_version: "meta.k8s.io/v1",
            include,
            now: Timestamp::UNIX_EPOCH,
        };
        let meta = ListMeta {
            resource_version: "7",
            continue_token: "c",
            remaining_item_count: Some(1),
        };
        serde_json::from_slice(&table(format, meta, headers, objects)).expect("JSON")
    }

    #[test]
    fn rows_carry_the_included_object() {
        let map = object(
            json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": "v"}}),
        );
        let table = render(IncludeObject::Metadata, true, &[&map]);
        assert_eq!(
            table["metadata"],
            json!({"resourceVersion": "7", "continue": "c", "remainingItemCount": 1})
        );
        let partial = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a"}});
        assert_eq!(
            table["rows"],
            json!([{"cells": ["a", 1, "<unknown>"], "object": partial}])
        );
        assert_eq!(table["columnDefinitions"][0]["format"], "name");
        assert_eq!(
            render(IncludeObject::None, false, &[&map])["rows"][0]["object"],
            Value::Null
        );
        assert_eq!(
            render(IncludeObject::None, false, &[&map])["columnDefinitions"],
            Value::Null
        );
        assert_eq!(
            render(IncludeObject::Object, true, &[&map])["rows"][0]["object"],
            Value::from(map)
        );
    }

    #[test]
    fn the_bookmark_that_ends_initial_events_is_always_included() {
        let bookmark = object(json!({"metadata": {"annotations": {INITIAL_EVENTS_END: "true"}}}));
        let table = render(IncludeObject::None, false, &[&bookmark]);
        assert_eq!(table["rows"][0]["cells"], json!(["", 0, "<unknown>"]));
        assert_eq!(
            table["rows"][0]["object"]["metadata"]["annotations"][INITIAL_EVENTS_END],
            "true"
        );
    }

    #[test]
    fn a_table_without_rows_has_an_empty_list_or_null() {
        assert_eq!(render(IncludeObject::None, true, &[])["rows"], json!([]));
        let format = Format {
            printer: builtin::printer("", "limitranges"),
            api_version: "meta.k8s.io/v1",
            include: IncludeObject::None,
            now: Timestamp::UNIX_EPOCH,
        };
        let table: Value =
            serde_json::from_slice(&table(format, ListMeta::default(), true, &[])).expect("JSON");
        assert_eq!(table["rows"], Value::Null);
    }

    #[test]
    fn unknown_policies_are_refused() {
        assert_eq!(
            IncludeObject::parse("").expect("the default"),
            IncludeObject::Metadata
        );
        let error = IncludeObject::parse("Nonsense").expect_err("not a policy");
        let want = "Unable to convert to Table as requested: includeObject: Invalid value: \"Nonsense\": must be 'Metadata', 'Object', 'None', or empty";
        assert_eq!((error.code, error.message.as_str()), (400, want));
    }

    #[test]
    fn rows_of_stored_bytes_equal_rows_of_trees() {
        let now = Timestamp::from_second(1_800_000_000).expect("a time");
        let mut kinds = std::collections::BTreeSet::new();
        for line in include_str!("../../tests/data/stored.jsonl").lines() {
            let stored: Value = serde_json::from_str(line).expect("JSON");
            let text = json::encode(&object(stored["object"].clone()));
            let (kind, api_version) = (
                stored["object"]["kind"].as_str().expect("a kind"),
                stored["object"]["apiVersion"].as_str().expect("a version"),
            );
            let gvk = Gvk::from_api_version(api_version, kind);
            let ty = crate::schema::builtin().get(&gvk).expect("a kind");
            let decl = crate::schema::builtin()
                .resources
                .iter()
                .find(|decl| decl.kind == kind && decl.group == gvk.group)
                .expect("a resource");
            let gvr = Gvr::new(&decl.group, &decl.version, &decl.resource);
            let bytes = protobuf::encode(&json::decode(&text, ty).expect("valid").object, ty);
            let mut tree = protobuf::decode(&bytes, ty).expect("valid");
            tree.set_resource_version("7");
            let printer = builtin::printer(&decl.group, &decl.resource);
            kinds.insert(gvr.resource);
            let paths = printer.paths();
            let format = Format {
                printer,
                api_version: "meta.k8s.io/v1",
                include: IncludeObject::Metadata,
                now,
            };
            let (mut direct, mut by_tree) = (Vec::new(), Vec::new());
            let message = Message { bytes: &bytes, ty };
            let part = protobuf::decode_part(&bytes, ty, &projection(paths, ty)).expect("valid");
            format
                .row_with(format.cells(&part).as_ref(), &mut direct, |out| {
                    write_partial_of(out, message, Some(7), "meta.k8s.io/v1")
                })
                .expect("valid");
            tree.insert("kind", kind.into());
            format.row(&tree, None, &mut by_tree);
            assert_eq!(
                String::from_utf8_lossy(&direct),
                String::from_utf8_lossy(&by_tree),
                "{gvk}"
            );
        }
        assert!(kinds.len() > 20, "{kinds:?}");
    }
}
