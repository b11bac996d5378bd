//! The encoder: objects, lists, Tables and watch events in the negotiated media type and form
//! (apiserver `handlers/response.go`, `responsewriters`).
//!
//! The encodings of an object hang on the object itself ([`CachedObject`]), where all readers share
//! them. An encoding that is not kept is written straight to its destination.

mod event;
mod list;
mod list_body;
mod object;
mod table;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use jiff::Timestamp;

use crate::cacher::{CachedObject, EncodingCache};
use crate::codec;
use crate::codec::protobuf;
use crate::meta::status::Result;
use crate::meta::{Gvk, Object, Status};
use crate::registry::resource::Resource;
use crate::registry::store::{Store, restore_field_order};
use crate::registry::table::{IncludeObject, bare_metadata};

use super::negotiate::{Form, MediaType, Output};

pub use event::{EventEncoder, LENGTH_BYTES};

/// An object to encode.
#[derive(Debug)]
pub enum Source {
    /// The stored bytes.
    Stored(Arc<CachedObject>),
    /// A tree of the storage version.
    Tree(Object),
    /// A tree of a fixed kind that is not the resource's own: no conversion.
    Fixed(Object),
}

/// Encodes the objects of one resource in one representation. Clones share everything.
#[derive(Clone, Debug)]
pub struct Encoder {
    store: Arc<Store>,
    cache: Arc<EncodingCache>,
    output: Output,
    /// The part of an object that goes with its row in a Table.
    include: IncludeObject,
    /// The time that ages in Tables are relative to.
    now: Timestamp,
    /// The fields that the cells of a row are made of, once they were wanted.
    projection: OnceLock<Arc<protobuf::Projection>>,
}

impl Encoder {
    /// An encoder of the objects of `store`, whose encodings are kept in `cache`.
    pub fn new(
        store: Arc<Store>,
        cache: Arc<EncodingCache>,
        output: Output,
        include: IncludeObject,
        now: Timestamp,
    ) -> Self {
        Self {
            store,
            cache,
            output,
            include,
            now,
            projection: OnceLock::new(),
        }
    }

    fn resource(&self) -> &Resource {
        &self.store.resource
    }

    /// The body of an answer with one object.
    ///
    /// # Errors
    /// 406 where the form is that of a list, 500 for an object that cannot be decoded.
    pub fn object(&self, source: Source) -> Result<Bytes> {
        let bytes = match self.output.form {
            Form::Object => self.whole(source)?,
            Form::Metadata(version) => self.metadata(source, meta_version(version))?,
            Form::Table(version) => self.table_of(source, version, true)?.into(),
            Form::NotAcceptable(kind) => {
                let gvk = match &source {
                    Source::Fixed(object) => {
                        &Gvk::from_api_version(object.api_version(), object.kind())
                    }
                    _ => &self.resource().gvk,
                };
                return Err(self.not_acceptable(kind, "is not a list", gvk, ""));
            }
        };
        Ok(bytes)
    }

    /// The object as a tree of the served version.
    fn tree(&self, source: Source) -> Result<Object> {
        let mut object = match source {
            Source::Fixed(object) => return Ok(object),
            Source::Tree(object) => object,
            Source::Stored(stored) => self.store.codec.decode_shared(&stored)?,
        };
        if let Some(conversion) = self.resource().conversion {
            conversion.to_served(&mut object);
        }
        let gvk = &self.resource().gvk;
        object.insert("kind", gvk.kind.clone().into());
        object.insert("apiVersion", gvk.api_version().into());
        if self.resource().conversion.is_some() {
            restore_field_order(&mut object, self.resource().ty());
        }
        if self.resource().custom.is_some() {
            object.sort();
        }
        Ok(object)
    }

    /// The object as a tree of the storage version.
    fn storage_tree(&self, source: Source) -> Result<Object> {
        match source {
            Source::Fixed(object) | Source::Tree(object) => Ok(object),
            Source::Stored(stored) => self.store.codec.decode_shared(&stored),
        }
    }

    /// The message of an object that is served as it is stored.
    fn message<'a>(&'a self, stored: &'a CachedObject) -> Result<Option<protobuf::Message<'a>>> {
        if self.resource().stored_as_served() {
            self.store.codec.message(stored)
        } else {
            Ok(None)
        }
    }

    /// Reports whether compact JSON has to be indented.
    fn is_indented(&self) -> bool {
        self.output.media == MediaType::Json && self.output.pretty
    }

    /// Turns compact JSON into a body: indented if the client wants it, with a final newline.
    fn json_body(&self, mut json: Vec<u8>) -> Vec<u8> {
        if self.is_indented() {
            json = codec::json::indent(&json);
        }
        json.push(b'\n');
        json
    }

    /// A tree of the served version as a body.
    fn tree_body(&self, object: &Object) -> Vec<u8> {
        match self.output.media {
            MediaType::Protobuf => protobuf_tree(object, self.resource()),
            _ => fixed_body(object, self.output),
        }
    }

    /// Returns the 406 for an answer that is not of the kind that was asked for. Its message names
    /// the Go type that kube-apiserver has for it.
    fn not_acceptable(&self, asked: &str, what: &str, gvk: &Gvk, suffix: &str) -> Status {
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
}

/// The API version of `meta.k8s.io` for one of its versions.
fn meta_version(version: &str) -> &'static str {
    if version == "v1" {
        "meta.k8s.io/v1"
    } else {
        "meta.k8s.io/v1beta1"
    }
}

/// An object without anything but its metadata.
fn partial_metadata(object: &Object, api_version: &str) -> Object {
    let mut out = Object::default();
    out.insert("kind", "PartialObjectMetadata".into());
    out.insert("apiVersion", api_version.into());
    out.insert("metadata", bare_metadata(object).into_owned());
    out
}

/// A tree in its protobuf envelope; its kind is one that the resource's schema knows.
fn protobuf_tree(object: &Object, resource: &Resource) -> Vec<u8> {
    let gvk = Gvk::from_api_version(object.api_version(), object.kind());
    let ty = resource
        .schema
        .get(&gvk)
        .or_else(|| crate::schema::builtin().get(&gvk));
    let raw = ty
        .map(|ty| protobuf::encode(object, ty))
        .unwrap_or_default();
    protobuf::wrap(object.api_version(), object.kind(), &raw)
}

/// An object of one of the fixed kinds (Status, Table, ...), whose schema is that of `meta/v1`, as
/// a body.
pub fn fixed_body(object: &Object, output: Output) -> Vec<u8> {
    let json = |pretty| {
        let mut json = codec::json::encode(object);
        if pretty {
            json = codec::json::indent(&json);
        }
        json
    };
    match output.media {
        MediaType::Json => {
            let mut json = json(output.pretty);
            json.push(b'\n');
            json
        }
        MediaType::Yaml => codec::yaml::encode(&object.clone().into()),
        MediaType::Protobuf => {
            let gvk = Gvk::from_api_version(object.api_version(), object.kind());
            match crate::schema::builtin().get(&gvk) {
                Some(ty) => protobuf::wrap(
                    object.api_version(),
                    object.kind(),
                    &protobuf::encode(object, ty),
                ),
                None => json(false),
            }
        }
    }
}
