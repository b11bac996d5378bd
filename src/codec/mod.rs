//! Bytes to objects and back, driven by the schema: JSON, YAML, protobuf. No headers, no storage.
//!
//! An [`Object`] that comes from here has its fields in the order of the schema and holds exactly
//! what JSON shows: zero values that Go omits are absent, those that it shows are there (null for a
//! nil list, map or time).

pub mod configuration;
pub mod normalize;
pub mod json;
pub mod protobuf;
mod omit_empty;
pub mod unstructured;
pub mod yaml;

use std::borrow::Cow;

use crate::meta::{Object, Value};
use crate::schema::TypeRef;

/// The depth to which the trees nest that the codec builds: as deep as JSON may. Threads that walk
/// them need a stack of [`STACK_BYTES`](crate::meta::tree::STACK_BYTES).
pub const MAX_TREE_DEPTH: usize = json::MAX_DEPTH;

/// The maximum number of issues that are noted for one object (sigs.k8s.io/json).
pub const MAX_ISSUES: usize = 100;

/// The maximum number of bytes of paths that are put together to note issues of one object. Each
/// path may be as long as half a body.
const MAX_ISSUE_BYTES: usize = 1024 * 1024;

/// The maximum number of fields that the messages of one object may have, those counted that JSON
/// shows of what is absent; an empty message counts as two. A message may take one byte of protobuf
/// and a kilobyte of memory. What a store takes (1.5 MiB) stays within it.
const MAX_FIELDS: usize = 2_000_000;

/// The error for more than [`MAX_FIELDS`].
fn too_many_fields() -> DecodeError {
    DecodeError::new("the object has too many fields")
}

/// An object, and what was noted about its bytes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Decoded {
    pub object: Object,
    /// Upstream's texts in the order of the document: `unknown field "spec.foo"`, `duplicate field
    /// "metadata.name"`. Each is reported once.
    pub issues: Vec<String>,
}

/// The reason why bytes are not an object: upstream's text, without the part about which kind was
/// expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DecodeError(pub String);

impl DecodeError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// Bytes as text; what is not UTF-8 becomes U+FFFD.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}

/// Brings a tree (after a patch, from YAML) into the form of its type, as a round trip through the
/// Go type would: unknown fields are dropped and noted, nulls dropped, values normalised, fields
/// put in order.
///
/// # Errors
/// A value that does not fit its type, or a bound that is exceeded.
pub fn from_value(value: &Value, ty: TypeRef) -> Result<Decoded, DecodeError> {
    let mut bytes = Vec::with_capacity(4096);
    json::encode_value(value, &mut bytes);
    json::decode(&bytes, ty)
}
