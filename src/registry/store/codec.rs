//! The encodings of the objects of a resource: trees from stored bytes and back, from the served
//! version to the one that is stored and back.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use crate::cacher::CachedObject;
use crate::codec;
use crate::codec::protobuf::Envelope;
use crate::meta::status::Result;
use crate::meta::{Object, Status};
use crate::registry::resource::Resource;
use crate::schema::{TypeId, TypeRef};
use crate::storage::Stored;
use crate::storage::encryption::is_encrypted;

use super::defaulting;
use super::metrics::StoreMetrics;
use super::unreadable::{encrypted, unreadable};

/// Encodes and decodes the objects of one resource.
#[derive(Clone)]
pub struct ObjectCodec {
    resource: Arc<Resource>,
    /// The type of the stored kind.
    stored: TypeId,
}

impl ObjectCodec {
    /// Returns the codec of a resource.
    pub(super) fn new(resource: Arc<Resource>) -> Self {
        let stored = resource.storage_ty().id;
        Self { resource, stored }
    }

    /// Returns the protobuf message of a stored object, without its envelope; `None` for an object
    /// stored as JSON.
    ///
    /// # Errors
    /// The envelope is damaged or of another kind.
    pub fn message<'a>(
        &'a self,
        stored: &'a Stored,
    ) -> Result<Option<codec::protobuf::Message<'a>>> {
        if !stored.value.starts_with(codec::protobuf::MAGIC) {
            return Ok(None);
        }
        let envelope = self.envelope(&stored.value)?;
        Ok(Some(codec::protobuf::Message {
            bytes: envelope.raw,
            ty: TypeRef {
                schema: &self.resource.schema,
                id: self.stored,
            },
        }))
    }

    /// Decodes at least those fields of a stored object that `part` names.
    ///
    /// # Errors
    /// The bytes are no object of the kind.
    pub fn decode_part(
        &self,
        stored: &Stored,
        part: &codec::protobuf::Projection,
    ) -> Result<Object> {
        let Some(message) = self.message(stored)? else {
            return self.decode(stored);
        };
        let decoded = codec::protobuf::decode_part(message.bytes, message.ty, part);
        let mut object = decoded.map_err(|why| {
            StoreMetrics::decode_error(&self.resource.gvr);
            unreadable(why)
        })?;
        self.set_kind(&mut object);
        Ok(object)
    }

    /// Sets the stored kind and apiVersion.
    fn set_kind(&self, object: &mut Object) {
        object.insert("kind", self.resource.storage_gvk.kind.clone().into());
        object.insert("apiVersion", self.resource.storage_gvk.api_version().into());
    }

    /// Unwraps the envelope of stored bytes, which must be of the resource's own kind.
    fn envelope<'a>(&self, value: &'a [u8]) -> Result<Envelope<'a>> {
        let (envelope, kind) = (
            codec::protobuf::unwrap(value).map_err(unreadable)?,
            &self.resource.storage_gvk.kind,
        );
        if envelope.kind != kind {
            return Err(unreadable(codec::DecodeError::new(format!(
                "it is a {:?} and no {kind}",
                envelope.kind
            ))));
        }
        Ok(envelope)
    }

    /// Decodes a stored object: a tree of the storage version, with its resourceVersion.
    ///
    /// # Errors
    /// The bytes are no object of the kind.
    pub fn decode(&self, stored: &Stored) -> Result<Object> {
        let mut object = self
            .decode_value(&stored.value)
            .inspect_err(|_| StoreMetrics::decode_error(&self.resource.gvr))?;
        // The object of a dry run has no revision.
        if stored.mod_revision > 0 {
            object.set_resource_version(&stored.mod_revision.to_string());
        }
        Ok(object)
    }

    /// Decodes an object as readers share it, which a webhook may have converted.
    ///
    /// # Errors
    /// The bytes are no object of the kind.
    pub fn decode_shared(&self, shared: &CachedObject) -> Result<Object> {
        if !shared.is_converted() {
            return self.decode(shared);
        }
        let (value, _) = codec::json::parse(&shared.value).map_err(unreadable)?;
        let mut object = Object::from_value(value).unwrap_or_default();
        if shared.mod_revision > 0 {
            object.set_resource_version(&shared.mod_revision.to_string());
        }
        Ok(object)
    }

    fn decode_value(&self, value: &Bytes) -> Result<Object> {
        if is_encrypted(value) {
            return Err(encrypted());
        }
        if let Some(custom) = &self.resource.custom {
            return custom.decode(value);
        }
        let ty = self.resource.storage_ty();
        let mut object = if value.starts_with(codec::protobuf::MAGIC) {
            let envelope = self.envelope(value)?;
            codec::protobuf::decode(envelope.raw, ty).map_err(unreadable)?
        } else {
            codec::json::decode(value, ty).map_err(unreadable)?.object
        };
        self.set_kind(&mut object);
        Ok(object)
    }

    /// Decodes a stored object and applies defaults, some of which may not have been known when it
    /// was written.
    ///
    /// # Errors
    /// Those of [`ObjectCodec::decode`].
    pub fn decode_defaulted(&self, stored: &Stored) -> Result<Object> {
        let mut object = self.decode(stored)?;
        if self.resource.custom.is_none() {
            self.resource.strategy.default(&mut object);
        }
        Ok(object)
    }

    /// Encodes an object of the storage version. The resourceVersion is not stored: it is storage's
    /// revision of the key.
    ///
    /// # Errors
    /// With its managed fields the object nests deeper than JSON may: it could not be read again.
    pub(super) fn encode(&self, object: &mut Object) -> Result<Bytes> {
        object.metadata_mut().shift_remove("resourceVersion");
        object.metadata_mut().shift_remove("selfLink");
        if let Some(custom) = &self.resource.custom {
            let bytes = custom.encode(object);
            codec::json::Document::new(&bytes).map_err(|why| Status::failure(500, "", why.0))?;
            return Ok(bytes.into());
        }
        let gvk = &self.resource.storage_gvk;
        if self.resource.decl.stored_as_json {
            let mut bytes = codec::json::encode(object);
            bytes.push(b'\n');
            return Ok(bytes.into());
        }
        let raw = codec::protobuf::encode(object, self.resource.storage_ty());
        Ok(codec::protobuf::wrap(&gvk.api_version(), &gvk.kind, &raw).into())
    }

    /// Returns stored bytes as clients see them, with the defaults that they lack.
    pub(super) fn with_read_defaults(&self, value: Bytes) -> Bytes {
        let resource = &self.resource;
        if resource.strategy.needs_read_defaults().is_none() {
            return value;
        }
        defaulting::with_read_defaults(
            &value,
            &resource.storage_gvk,
            resource.storage_ty(),
            &*resource.strategy,
        )
        .unwrap_or(value)
    }

    /// Converts an object of the served version to the storage version, and applies defaults.
    pub fn to_storage(&self, object: &mut Object) {
        let resource = &self.resource;
        if let Some(conversion) = resource.conversion {
            conversion.to_storage(object);
        }
        if resource.custom.is_none() {
            self.set_kind(object);
        }
        resource.strategy.default(object);
    }

    /// Reports whether the served version differs in form from the one that is stored.
    pub fn converts(&self) -> bool {
        self.resource.conversion.is_some()
    }

    /// Converts an object of the storage version to the served version.
    pub fn served<'o>(&self, object: &'o Object) -> Cow<'o, Object> {
        let resource = &self.resource;
        if resource.gvk == resource.storage_gvk {
            return Cow::Borrowed(object);
        }
        let mut served = object.clone();
        if let Some(conversion) = resource.conversion {
            conversion.to_served(&mut served);
        }
        served.insert("kind", resource.gvk.kind.clone().into());
        served.insert("apiVersion", resource.gvk.api_version().into());
        // Without a conversion both versions look the same.
        if resource.conversion.is_some() {
            restore_field_order(&mut served, resource.ty());
        }
        Cow::Owned(served)
    }

    /// Puts the fields that a strategy added into the order of the schema, for objects stored as
    /// JSON: protobuf has its own order.
    pub(super) fn restore_field_order(&self, object: &mut Object) {
        if self.resource.decl.stored_as_json && self.resource.custom.is_none() {
            restore_field_order(object, self.resource.storage_ty());
        }
    }
}

/// Brings a tree into the field order and form of its type. Fields that do not fit stay as they
/// are.
pub fn restore_field_order(object: &mut Object, ty: TypeRef<'_>) {
    codec::normalize::normalize(object, ty, codec::normalize::Rules::Unstructured);
}
