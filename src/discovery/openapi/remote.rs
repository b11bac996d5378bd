//! The documents of a version that another server serves.

use std::sync::Arc;

use bytes::Bytes;

use super::{V3, compress, conform, convert, decompress, merge, sha512_hex};
use crate::meta::{Value, json};

/// The bytes of all parts that are merged into the document of everything. Further ones are left
/// out.
const MAX_MERGED_BYTES: usize = 64 << 20;

/// The documents of a version.
#[derive(Clone, Debug)]
pub struct RemoteSpec {
    /// The path below `/openapi/v3/`.
    pub path: String,
    /// The part of its server's OpenAPI v2 document that is about it.
    pub v2: Option<Arc<RemoteDocument>>,
    /// The path of its OpenAPI v3 document, with a hash.
    pub v3: Option<String>,
    /// The server knows nothing of version 3, so that the document is made of that of version 2.
    pub is_converted: bool,
}

impl RemoteSpec {
    /// A version of which no documents are known.
    pub fn new(group: &str, version: &str) -> Self {
        Self {
            path: format!("apis/{group}/{version}"),
            v2: None,
            v3: None,
            is_converted: false,
        }
    }

    /// Takes note of the path of the OpenAPI v3 document, which must be that of the version:
    /// clients follow it.
    pub fn set_v3_url(&mut self, url: &str) -> bool {
        let below = url.strip_prefix(V3).and_then(|rest| rest.strip_prefix('/'));
        let rest = below.and_then(|below| below.strip_prefix(self.path.as_str()));
        let is_its = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('?'));
        if is_its {
            self.v3 = Some(url.to_owned());
        }
        is_its
    }
}

/// A part of an OpenAPI v2 document.
#[derive(Debug)]
pub struct RemoteDocument {
    /// Names the content.
    pub hash: String,
    /// The bytes of the JSON.
    bytes: usize,
    /// The JSON, gzipped.
    json: Bytes,
    /// The title and the version of the API.
    info: Value,
    /// False if it would be too large as a document of version 3.
    pub is_convertible: bool,
}

impl RemoteDocument {
    /// Keeps the part of a document that is about the paths below `/PATH/`.
    ///
    /// # Errors
    /// It is no OpenAPI v2 document.
    pub fn new(document: Value, path: &str) -> Result<Self, String> {
        let mut document = conform::document(document)?;
        let info = document.get_mut("info").map(Value::take);
        let info = info.unwrap_or_else(|| json!({"title": "", "version": ""}));
        let part = merge::part(document, &format!("/{path}/"))?;
        let is_convertible = convert::is_bounded(&part);
        let part = part.to_string();
        Ok(Self {
            is_convertible,
            hash: sha512_hex(format!("{info}{part}").as_bytes()),
            bytes: part.len(),
            json: compress(part.as_bytes()),
            info,
        })
    }

    fn value(&self) -> Value {
        // It has been written as JSON.
        serde_json::from_slice(&decompress(&self.json)).unwrap_or_default()
    }

    /// Writes the document as one of version 3.
    pub fn converted(&self) -> Value {
        convert::document(self.value(), &self.info)
    }
}

/// Merges the documents of other servers into one, in their order.
pub fn merge_into(document: &mut Value, remote: &[Arc<RemoteSpec>]) {
    let mut left = MAX_MERGED_BYTES;
    for spec in remote {
        let Some(part) = &spec.v2 else { continue };
        let Some(rest) = left.checked_sub(part.bytes) else {
            tracing::warn!(
                "the OpenAPI v2 document of {} is left out: all are too large",
                spec.path
            );
            continue;
        };
        left = rest;
        merge::merge(document, part.value());
    }
}
