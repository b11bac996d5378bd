//! The form of a value that is encrypted with a key of a KMS plugin, and its limits (apiserver
//! `storage/value/encrypt/envelope/kmsv2/envelope.go`).

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;

use crate::meta::{FieldError, Path, names};
use crate::storage::encryption::TransformError;

pub use generated::{EncryptedDekSourceType, EncryptedObject};

#[allow(clippy::all)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/envelope.rs"));
}

/// The maximum size of annotations, keys and values.
const MAX_ANNOTATION_BYTES: usize = 32 * 1024;
/// The maximum size of a key id.
const MAX_KEY_ID_BYTES: usize = 1024;
/// The maximum size of an encrypted key or seed.
const MAX_DEK_SOURCE_BYTES: usize = 1024;

/// The name of a key or seed, the same whatever value is encrypted with it.
pub type SourceId = [u8; 32];

impl EncryptedObject {
    /// Checks what a plugin has answered, or a stored value.
    ///
    /// # Errors
    /// Upstream's text for the first part that is wrong.
    pub fn validate(&self) -> Result<(), TransformError> {
        let wrong = |why: String| Err(TransformError::permanent(why));
        if EncryptedDekSourceType::try_from(self.encrypted_dek_source_type).is_err() {
            return wrong(format!(
                "unknown encryptedDEKSourceType: {}",
                self.encrypted_dek_source_type
            ));
        }
        if self.encrypted_data.is_empty() {
            return wrong("encrypted data is empty".to_owned());
        }
        let size = self.encrypted_dek_source.len();
        if size == 0 {
            let why = "failed to validate encrypted DEK source: encrypted DEK source is empty";
            return wrong(why.to_owned());
        }
        if size > MAX_DEK_SOURCE_BYTES {
            return wrong(format!(
                "failed to validate encrypted DEK source: encrypted DEK source is {size} bytes, \
                 which exceeds the max size of {MAX_DEK_SOURCE_BYTES}"
            ));
        }
        if let Err((_, why)) = check_key_id(&self.key_id) {
            return wrong(format!("failed to validate key id: {why}"));
        }
        match check_annotations(&self.annotations) {
            Some(why) => wrong(format!("failed to validate annotations: {why}")),
            None => Ok(()),
        }
    }

    /// Returns the name of the key or seed.
    pub fn source_id(&self) -> SourceId {
        let mut text = Vec::new();
        text.extend_from_slice(&self.encrypted_dek_source_type.to_be_bytes());
        push(&mut text, &self.encrypted_dek_source);
        push(&mut text, self.key_id.as_bytes());
        for (key, value) in &self.annotations {
            push(&mut text, key.as_bytes());
            push(&mut text, value);
        }
        let mut id = SourceId::default();
        id.copy_from_slice(digest(&SHA256, &text).as_ref());
        id
    }
}

/// Appends bytes with their length in front.
fn push(text: &mut Vec<u8>, bytes: &[u8]) {
    text.extend_from_slice(&bytes.len().to_be_bytes());
    text.extend_from_slice(bytes);
}

/// Checks a key id.
///
/// # Errors
/// Returns the label of the metric and upstream's text.
pub fn check_key_id(key_id: &str) -> Result<(), (&'static str, String)> {
    match key_id.len() {
        0 => Err(("empty", "keyID is empty".to_owned())),
        size if size > MAX_KEY_ID_BYTES => Err((
            "too_long",
            format!("keyID is {size} bytes, which exceeds the max size of {MAX_KEY_ID_BYTES}"),
        )),
        _ => Ok(()),
    }
}

/// Returns what keeps the key of an annotation from being a domain name (apimachinery
/// `util/validation.IsFullyQualifiedDomainName`).
fn domain_name(key: &str) -> Vec<String> {
    let path = Path::new("annotations");
    if key.is_empty() {
        return vec![FieldError::required(&path, "").to_string()];
    }
    let name = key.strip_suffix('.').unwrap_or(key);
    let invalid = |why: String| FieldError::invalid(&path, name, why).to_string();
    let problems = names::dns1123_subdomain(name);
    if !problems.is_empty() {
        return vec![invalid(problems.join(","))];
    }
    if !name.contains('.') {
        let why = "should be a domain with at least two segments separated by dots";
        return vec![invalid(why.to_owned())];
    }
    let mut labels = name
        .split('.')
        .map(|label| (label, names::dns1123_label(label)));
    let wrong = labels.find(|(_, problems)| !problems.is_empty());
    wrong
        .map(|(label, problems)| FieldError::invalid(&path, label, problems.join(",")).to_string())
        .into_iter()
        .collect()
}

fn check_annotations(annotations: &BTreeMap<String, Bytes>) -> Option<String> {
    let mut errors: Vec<String> = annotations
        .keys()
        .flat_map(|key| domain_name(key))
        .collect();
    let size: usize = annotations
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum();
    if size > MAX_ANNOTATION_BYTES {
        errors.push(format!(
            "total size of annotations is {size}, which exceeds the max size of {MAX_ANNOTATION_BYTES}"
        ));
    }
    match errors.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}
