//! Answers: an object or a Status in the representation that was negotiated.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, VARY, WARNING, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};
use jiff::Timestamp;

use crate::builtin::printers;
use crate::codec;
use crate::meta::status::Result;
use crate::meta::{Gvk, Object, Status};
use crate::registry::resource::Resource;
use crate::registry::store::{Store, reshape, unreadable};
use crate::registry::table::{self, Format, IncludeObject};
use crate::storage::Stored;

use super::body::{self, Body};
use super::negotiate::{Form, MediaType, Output};
use super::protobuf::Protobuf;
use super::rendered::RenderedCache;

/// The longest a Warning header may get in all, in bytes (apiserver
/// `endpoints/filters/warning.go`).
const WARNINGS_MAX_BYTES: usize = 4 * 1024;

/// An object to answer with.
#[derive(Debug)]
pub enum Shown {
    /// As it lies in storage.
    Stored(Arc<Stored>),
    /// A tree of the storage version.
    Tree(Object),
    /// A tree of a fixed kind that is not the resource's own: no conversion.
    Fixed(Object),
}

/// What representations need to know of the request.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub store: &'a Store,
    pub rendered: &'a Arc<RenderedCache>,
    pub output: Output,
    pub include: IncludeObject,
    pub now: Timestamp,
}

impl View<'_> {
    pub(super) fn resource(&self) -> &Resource {
        &self.store.resource
    }

    /// The object as a tree of the served version.
    pub fn tree(&self, shown: Shown) -> Result<Object> {
        let mut object = match shown {
            Shown::Fixed(object) => return Ok(object),
            Shown::Tree(object) => object,
            Shown::Stored(stored) => self.store.decode(&stored)?,
        };
        if let Some(conversion) = self.resource().conversion {
            conversion.to_served(&mut object);
        }
        let gvk = &self.resource().gvk;
        object.insert("kind", gvk.kind.clone().into());
        object.insert("apiVersion", gvk.api_version().into());
        if self.resource().conversion.is_some() {
            reshape(&mut object, self.resource().ty());
        }
        if self.resource().custom.is_some() {
            object.sort();
        }
        Ok(object)
    }

    /// Whether what comes as compact JSON is to be indented.
    pub(super) fn indents(&self) -> bool {
        self.output.media == MediaType::Json && self.output.pretty
    }

    /// The bytes of an object as it is stored. In JSON it is what lists show of it, rendered once
    /// for all who ask.
    pub fn stored_bytes(&self, stored: &Arc<Stored>) -> Result<Vec<u8>> {
        if self.output.form != Form::Object || self.output.media != MediaType::Json {
            return self.object_bytes(Shown::Stored(stored.clone()));
        }
        let mut out = Vec::with_capacity(stored.value.len() * 2);
        self.shared(stored, &mut out)?;
        Ok(if self.indents() {
            codec::json::indent(&out)
        } else {
            out
        })
    }

    /// The bytes of one object.
    pub fn object_bytes(&self, shown: Shown) -> Result<Vec<u8>> {
        let metadata = match self.output.form {
            Form::Object => None,
            Form::Metadata(version) => Some(meta_version(version)),
            Form::Table(version) => return self.table_of(shown, version, true),
            Form::Misfit(kind) => {
                let gvk = match &shown {
                    Shown::Fixed(object) => {
                        &Gvk::from_api_version(object.api_version(), object.kind())
                    }
                    _ => &self.resource().gvk,
                };
                return Err(self.misfit(kind, "is not a list", gvk, ""));
            }
        };
        if let Shown::Stored(stored) = &shown {
            if self.output.media == MediaType::Json {
                let mut out = Vec::with_capacity(stored.value.len() * 2);
                match metadata {
                    Some(api_version) => self.partial(stored, api_version, &mut out)?,
                    None => self.whole(stored, &mut out)?,
                }
                return Ok(if self.indents() {
                    codec::json::indent(&out)
                } else {
                    out
                });
            }
            if let Some(bytes) = self
                .protobuf()
                .map(|protobuf| protobuf.object(self.store, stored))
                .transpose()?
                .flatten()
            {
                return Ok(bytes);
            }
        }
        let object = self.tree(shown)?;
        Ok(match metadata {
            Some(api_version) => encode_fixed(&partial_metadata(&object, api_version), self.output),
            None => encode_object(&object, self.resource(), self.output),
        })
    }

    /// 406: the answer is not of the kind that was asked for. Clients are told the Go type that
    /// kube-apiserver has for it.
    pub(super) fn misfit(&self, asked: &str, what: &str, gvk: &Gvk, suffix: &str) -> Status {
        let go = match (self.resource().custom.is_some(), gvk.group.as_str()) {
            (true, _) => format!("unstructured.Unstructured{suffix}"),
            (_, "" | "events.k8s.io") => format!("core.{}{suffix}", gvk.kind),
            (_, "internal.apiserver.k8s.io") => format!("apiserverinternal.{}{suffix}", gvk.kind),
            (_, group) => format!(
                "{}.{}{suffix}",
                group.split('.').next().unwrap_or(group),
                gvk.kind
            ),
        };
        Status::not_acceptable(format!(
            "you requested {asked}, but the requested object {what} (*{go})"
        ))
    }

    /// A Table of one object, with column definitions if `headers`.
    pub fn table_of(&self, shown: Shown, version: &'static str, headers: bool) -> Result<Vec<u8>> {
        if let (Shown::Stored(stored), Some(rows)) = (&shown, self.rows(version))
            && let Some(message) = self.store.message(stored)?
        {
            let (mut out, format) = (Vec::new(), rows.format());
            let revision = stored
                .written_at()
                .map(|at| at.to_string())
                .unwrap_or_default();
            let meta = table::ListMeta {
                resource_version: &revision,
                ..table::ListMeta::default()
            };
            format.head(meta, headers, &mut out);
            out.extend_from_slice(format.before_row(true));
            let cells = rows.cells(message).map_err(unreadable)?;
            format.row_with(&cells, &mut out, |out| {
                self.row_object(stored, None, version, out)
            })?;
            out.extend_from_slice(format.tail(false));
            return Ok(self.reencode(out));
        }
        let object = self.raw_tree(shown)?;
        let meta = table::ListMeta {
            resource_version: object.resource_version(),
            ..table::ListMeta::default()
        };
        self.table_bytes(std::slice::from_ref(&object), meta, version, headers)
    }

    /// What makes rows of stored bytes, where nothing needs trees.
    pub(super) fn rows(&self, version: &'static str) -> Option<table::Rows<'static>> {
        let (resource, gvr) = (self.resource(), &self.resource().gvr);
        let printer = printers::for_resource(&gvr.group, &gvr.resource);
        if self.output.media != MediaType::Json
            || !resource.stored_as_served()
            || printer.order().is_some()
        {
            return None;
        }
        let format = Format {
            printer,
            api_version: meta_version(version),
            include: self.include,
            now: self.now,
        };
        Some(table::Rows::new(
            format,
            printers::paths::of(&gvr.group, &gvr.resource),
            resource.storage_ty(),
        ))
    }

    /// How Tables of the resource are made.
    pub(super) fn format(&self, version: &str) -> Format<'_> {
        let gvr = &self.resource().gvr;
        let printer = self
            .resource()
            .strategy
            .printer()
            .unwrap_or_else(|| printers::for_resource(&gvr.group, &gvr.resource));
        Format {
            printer,
            api_version: meta_version(version),
            include: self.include,
            now: self.now,
        }
    }

    /// The way from stored bytes to protobuf without a tree, if there is one.
    pub(super) fn protobuf(&self) -> Option<Protobuf> {
        Protobuf::new(self.resource(), self.output)
    }

    /// A Table of objects of the storage version.
    pub fn table_bytes(
        &self,
        objects: &[Object],
        meta: table::ListMeta,
        version: &str,
        headers: bool,
    ) -> Result<Vec<u8>> {
        let mut format = self.format(version);
        if let [scale] = objects
            && scale.kind() == "Scale"
        {
            format.printer = printers::scale();
        }
        let mut order: Vec<&Object> = objects.iter().collect();
        if let Some(compare) = format.printer.order() {
            order.sort_by(|a, b| compare(a, b));
        }
        let mut writer = table::TableWriter::new(format, meta, headers);
        for object in order {
            let convert =
                self.include == IncludeObject::Object && self.resource().conversion.is_some();
            let served = convert
                .then(|| self.tree(Shown::Tree(object.clone())))
                .transpose()?;
            writer.row(object, served.as_ref());
        }
        Ok(self.reencode(writer.finish()))
    }

    /// Bytes that came as compact JSON, in the media type that was asked for.
    fn reencode(&self, json: Vec<u8>) -> Vec<u8> {
        if self.output.media == MediaType::Json {
            return if self.output.pretty {
                codec::json::indent(&json)
            } else {
                json
            };
        }
        let object = codec::json::parse(&json)
            .ok()
            .and_then(|(value, _)| Object::from_value(value));
        encode_fixed(&object.unwrap_or_default(), self.output)
    }

    /// The object as a tree of the storage version.
    pub fn raw_tree(&self, shown: Shown) -> Result<Object> {
        match shown {
            Shown::Fixed(object) | Shown::Tree(object) => Ok(object),
            Shown::Stored(stored) => self.store.decode(&stored),
        }
    }
}

pub(super) fn meta_version(version: &str) -> &'static str {
    if version == "v1" {
        "meta.k8s.io/v1"
    } else {
        "meta.k8s.io/v1beta1"
    }
}

/// An object without anything but its metadata.
pub(super) fn partial_metadata(object: &Object, api_version: &str) -> Object {
    let mut out = Object::default();
    out.insert("kind", "PartialObjectMetadata".into());
    out.insert("apiVersion", api_version.into());
    out.insert("metadata", table::bare_metadata(object).into_owned());
    out
}

/// An object of a kind that the resource's schema knows.
fn encode_object(object: &Object, resource: &Resource, output: Output) -> Vec<u8> {
    match output.media {
        MediaType::Protobuf => protobuf(object, resource),
        _ => encode_fixed(object, output),
    }
}

pub(super) fn protobuf(object: &Object, resource: &Resource) -> Vec<u8> {
    let gvk = crate::meta::Gvk::from_api_version(object.api_version(), object.kind());
    let ty = resource
        .schema
        .get(&gvk)
        .or_else(|| crate::schema::builtin().get(&gvk));
    let raw = ty
        .map(|ty| codec::protobuf::encode(object, ty))
        .unwrap_or_default();
    codec::protobuf::wrap(object.api_version(), object.kind(), &raw)
}

/// An object of one of the fixed kinds (Status, Table, ...), whose schema is that of `meta/v1`.
pub(super) fn encode_fixed(object: &Object, output: Output) -> Vec<u8> {
    match output.media {
        MediaType::Json if output.pretty => codec::json::indent(&codec::json::encode(object)),
        MediaType::Json => codec::json::encode(object),
        MediaType::Yaml => codec::yaml::encode(&object.clone().into()),
        MediaType::Protobuf => {
            let gvk = crate::meta::Gvk::from_api_version(object.api_version(), object.kind());
            match crate::schema::builtin().get(&gvk) {
                Some(ty) => codec::protobuf::wrap(
                    object.api_version(),
                    object.kind(),
                    &codec::protobuf::encode(object, ty),
                ),
                None => codec::json::encode(object),
            }
        }
    }
}

/// A Status in its protobuf envelope.
pub fn protobuf_status(status: &Object) -> Vec<u8> {
    encode_fixed(
        status,
        Output {
            media: MediaType::Protobuf,
            ..Output::default()
        },
    )
}

/// A whole answer.
pub fn bytes(code: u16, output: Output, mut bytes: Vec<u8>) -> Response<Body> {
    end_line(&mut bytes, output);
    response(code, output, body::full(Bytes::from(bytes)))
}

/// JSON ends with a newline, as it does upstream.
pub(super) fn end_line(bytes: &mut Vec<u8>, output: Output) {
    if output.media == MediaType::Json {
        bytes.push(b'\n');
    }
}

/// An answer with the headers that go with its representation.
pub fn response(code: u16, output: Output, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(output.media.name()));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    headers.insert(
        http::header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, private"),
    );
    response
}

/// The one place where a Status becomes an answer.
pub fn status(status: &Status, output: Output) -> Response<Body> {
    let object = Object::from_value(status.to_value()).unwrap_or_default();
    let fixed = Output {
        form: Form::Object,
        ..output
    };
    let mut response = bytes(status.code, fixed, encode_fixed(&object, fixed));
    let retry = status
        .details
        .as_ref()
        .map_or(0, |details| details.retry_after_seconds);
    if retry > 0 {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(retry));
    }
    response
}

/// Adds Warning headers, as many as fit.
pub fn add_warnings(response: &mut Response<Body>, warnings: Vec<String>) {
    let mut total = 0;
    for warning in warnings {
        let quoted = warning
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace(['\n', '\r'], " ");
        total += quoted.len();
        if total > WARNINGS_MAX_BYTES {
            return;
        }
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

/// A plain text.
pub fn text(code: u16, message: &'static str) -> Response<Body> {
    let mut response = Response::new(body::full(message));
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
        .headers_mut()
        .insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// What a path gets that no route takes.
pub fn page_not_found() -> Response<Body> {
    text(404, "404 page not found\n")
}
