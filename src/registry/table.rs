//! Tables: columns and rows, as `kubectl get` asks for them (meta.k8s.io/v1 Table; apiserver `handlers/response.go`).

use std::borrow::Cow;
use std::cmp::Ordering;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::meta::status::Result;
use crate::meta::{FieldError, Object, Path, Status};

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

/// A remark on a whole row (`TableRowCondition`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowCondition {
    pub kind: &'static str,
    pub status: &'static str,
    pub reason: &'static str,
    pub message: &'static str,
}

/// The columns of a kind and the cells of its objects.
pub trait TablePrinter: Send + Sync {
    fn columns(&self) -> &[Column];

    /// The cells of one row, one for each column. Ages are relative to `now`.
    fn cells(&self, object: &Object, now: Timestamp) -> Vec<Value>;

    /// What is to be said of the row as a whole.
    fn condition(&self, _object: &Object) -> Option<&'static RowCondition> {
        None
    }

    /// The order of the rows of a list, where it is not the order of the list.
    fn order(&self) -> Option<fn(&Object, &Object) -> Ordering> {
        None
    }

    /// Whether a Table without rows says `null` rather than `[]`, which clients can see.
    fn empty_is_null(&self) -> bool {
        false
    }
}

/// How much of the object goes with its row (`includeObject`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IncludeObject {
    None,
    #[default]
    Metadata,
    Object,
}

impl IncludeObject {
    /// Reads the query parameter; absent and empty mean `Metadata`.
    pub fn parse(value: &str) -> Result<Self> {
        match value {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => {
                let error = FieldError::invalid(&Path::new("includeObject"), other, "must be 'Metadata', 'Object', 'None', or empty");
                Err(Status::bad_request(format!("Unable to convert to Table as requested: {error}")))
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

/// What a Table is made with.
#[derive(Clone, Copy)]
pub struct Format<'a> {
    pub printer: &'a dyn TablePrinter,
    /// `meta.k8s.io/v1` or `meta.k8s.io/v1beta1`.
    pub api_version: &'a str,
    pub include: IncludeObject,
    pub now: Timestamp,
}

/// The annotation of the bookmark that ends the initial events of a watch: its object is shown whatever was asked.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Writes a Table as JSON, one row at a time.
pub struct TableWriter<'a> {
    format: Format<'a>,
    out: Vec<u8>,
    empty: bool,
}

impl<'a> TableWriter<'a> {
    /// Starts a Table. Later events of a watch go without `headers`: their column definitions are null.
    pub fn new(format: Format<'a>, meta: ListMeta, headers: bool) -> Self {
        let mut out = Vec::new();
        out.extend_from_slice(b"{\"kind\":\"Table\",\"apiVersion\":");
        write_json(&mut out, &format.api_version);
        out.extend_from_slice(b",\"metadata\":");
        write_json(&mut out, &list_meta(meta));
        out.extend_from_slice(b",\"columnDefinitions\":");
        write_json(&mut out, &if headers { columns(format.printer) } else { Value::Null });
        out.extend_from_slice(b",\"rows\":");
        Self { format, out, empty: true }
    }

    /// Adds a row. `object` is of the storage version, which the printers know; `served` is what the client would get
    /// without a Table, where it differs.
    pub fn row(&mut self, object: &Object, served: Option<&Object>) {
        let Format { printer, api_version, include, now } = self.format;
        self.out.extend_from_slice(if self.empty { b"[{\"cells\":" } else { b",{\"cells\":" });
        self.empty = false;
        write_json(&mut self.out, &printer.cells(object, now));
        if let Some(RowCondition { kind, status, reason, message }) = printer.condition(object) {
            self.out.extend_from_slice(b",\"conditions\":");
            write_json(&mut self.out, &json!([{"type": kind, "status": status, "reason": reason, "message": message}]));
        }
        self.out.extend_from_slice(b",\"object\":");
        match include {
            IncludeObject::Object => write_json(&mut self.out, &served.unwrap_or(object).0),
            IncludeObject::None if !ends_initial_events(object) => self.out.extend_from_slice(b"null"),
            IncludeObject::None | IncludeObject::Metadata => write_partial(&mut self.out, object, api_version),
        }
        self.out.push(b'}');
    }

    /// What has been written since the last call, for sending a long Table in pieces.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Ends the Table and returns what [`TableWriter::take`] has not returned yet.
    pub fn finish(mut self) -> Vec<u8> {
        let end: &[u8] = match (self.empty, self.format.printer.empty_is_null()) {
            (false, _) => b"]}",
            (true, false) => b"[]}",
            (true, true) => b"null}",
        };
        self.out.extend_from_slice(end);
        self.out
    }
}

/// A Table of a few objects as JSON bytes, in the printer's order.
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

/// An object cut down to its metadata, as JSON: `PartialObjectMetadata` of `api_version` (meta.k8s.io/v1 or v1beta1).
pub fn write_partial(out: &mut Vec<u8>, object: &Object, api_version: &str) {
    out.extend_from_slice(b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":");
    write_json(out, &api_version);
    out.extend_from_slice(b",\"metadata\":");
    match object.metadata() {
        Some(metadata) => write_json(out, metadata),
        None => out.extend_from_slice(b"{}"),
    }
    out.push(b'}');
}

/// A list cut down to metadata, as JSON: `PartialObjectMetadataList` of `api_version`. Empty, its items are null.
pub fn partial_list<'a>(api_version: &str, meta: ListMeta, objects: impl IntoIterator<Item = &'a Object>) -> Vec<u8> {
    let mut out = b"{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":".to_vec();
    write_json(&mut out, &api_version);
    out.extend_from_slice(b",\"metadata\":");
    write_json(&mut out, &list_meta(meta));
    out.extend_from_slice(b",\"items\":");
    let mut empty = true;
    for object in objects {
        out.push(if empty { b'[' } else { b',' });
        empty = false;
        write_partial(&mut out, object, api_version);
    }
    out.extend_from_slice(if empty { b"null}" } else { b"]}" });
    out
}

fn ends_initial_events(object: &Object) -> bool {
    object.annotations().is_some_and(|annotations| annotations.contains_key(INITIAL_EVENTS_END))
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
    let mut out = serde_json::Map::new();
    for (key, value) in [("resourceVersion", meta.resource_version), ("continue", meta.continue_token)] {
        if !value.is_empty() {
            out.insert(key.to_owned(), value.into());
        }
    }
    if let Some(count) = meta.remaining_item_count {
        out.insert("remainingItemCount".to_owned(), count.into());
    }
    Value::Object(out)
}

fn write_json(out: &mut Vec<u8>, value: &impl serde::Serialize) {
    // Trees have string keys only, and a Vec takes every byte: there is nothing that could fail.
    let _ = serde_json::to_writer(out, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::printers;

    fn object(value: Value) -> Object {
        Object::from_value(value).expect("an object")
    }

    fn render(include: IncludeObject, headers: bool, objects: &[&Object]) -> Value {
        let printer = printers::for_resource("", "configmaps");
        let format = Format { printer, api_version: "meta.k8s.io/v1", include, now: Timestamp::UNIX_EPOCH };
        let meta = ListMeta { resource_version: "7", continue_token: "c", remaining_item_count: Some(1) };
        serde_json::from_slice(&table(format, meta, headers, objects)).expect("JSON")
    }

    #[test]
    fn rows_carry_what_was_asked_for() {
        let map = object(json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": "v"}}));
        let table = render(IncludeObject::Metadata, true, &[&map]);
        assert_eq!(table["metadata"], json!({"resourceVersion": "7", "continue": "c", "remainingItemCount": 1}));
        let partial = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a"}});
        assert_eq!(table["rows"], json!([{"cells": ["a", 1, "<unknown>"], "object": partial}]));
        assert_eq!(table["columnDefinitions"][0]["format"], "name");
        assert_eq!(render(IncludeObject::None, false, &[&map])["rows"][0]["object"], Value::Null);
        assert_eq!(render(IncludeObject::None, false, &[&map])["columnDefinitions"], Value::Null);
        assert_eq!(render(IncludeObject::Object, true, &[&map])["rows"][0]["object"], Value::from(map));
    }

    #[test]
    fn the_end_of_initial_events_is_always_shown() {
        let bookmark = object(json!({"metadata": {"annotations": {INITIAL_EVENTS_END: "true"}}}));
        let table = render(IncludeObject::None, false, &[&bookmark]);
        assert_eq!(table["rows"][0]["cells"], json!(["", 0, "<unknown>"]));
        assert_eq!(table["rows"][0]["object"]["metadata"]["annotations"][INITIAL_EVENTS_END], "true");
    }

    #[test]
    fn a_table_without_rows_is_a_list_or_null() {
        assert_eq!(render(IncludeObject::None, true, &[])["rows"], json!([]));
        let format = Format {
            printer: printers::for_resource("", "limitranges"),
            api_version: "meta.k8s.io/v1",
            include: IncludeObject::None,
            now: Timestamp::UNIX_EPOCH,
        };
        let table: Value = serde_json::from_slice(&table(format, ListMeta::default(), true, &[])).expect("JSON");
        assert_eq!(table["rows"], Value::Null);
    }

    #[test]
    fn a_list_of_metadata_says_what_each_item_is() {
        let map = object(json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": "v"}}));
        let render = |objects: &[Object]| {
            let list = partial_list("meta.k8s.io/v1", ListMeta { resource_version: "7", ..ListMeta::default() }, objects);
            serde_json::from_slice::<Value>(&list).expect("JSON")
        };
        let partial = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a"}});
        let list = |items: Value| json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "7"}, "items": items});
        assert_eq!(render(&[map.clone(), map]), list(json!([partial, partial])));
        assert_eq!(render(&[]), list(Value::Null));
    }

    #[test]
    fn unknown_policies_are_refused() {
        assert_eq!(IncludeObject::parse("").expect("the default"), IncludeObject::Metadata);
        let error = IncludeObject::parse("Nonsense").expect_err("not a policy");
        let want = "Unable to convert to Table as requested: includeObject: Invalid value: \"Nonsense\": must be 'Metadata', 'Object', 'None', or empty";
        assert_eq!((error.code, error.message.as_str()), (400, want));
    }
}
