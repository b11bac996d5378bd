//! Protobuf as gogo writes it for Kubernetes, and the `k8s\0` envelope around it
//! (`runtime.Unknown`).

mod decode;
mod encode;
mod field_offsets;
mod projection;
mod reader;
mod patch_resource_version;
mod transcode;
mod wire;

pub use decode::{decode, decode_part};
pub use encode::encode;
pub use patch_resource_version::{ListMeta, WithResourceVersion, list_head, list_tail, write_item};
pub use projection::Projection;
pub use reader::Message;
pub use transcode::{metadata_to_json, to_json};

use super::DecodeError;
use wire::Reader;

/// The first bytes of everything in the Kubernetes protobuf encoding.
pub const MAGIC: &[u8] = b"k8s\0";

/// The type in the envelope, and the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Envelope<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    /// The message, encoded as `content_type`.
    pub raw: &'a [u8],
    pub content_encoding: &'a str,
    /// Empty for protobuf.
    pub content_type: &'a str,
}

/// Opens an envelope.
///
/// # Errors
/// Bytes that do not begin with [`MAGIC`] or are no `runtime.Unknown`.
pub fn unwrap(bytes: &[u8]) -> Result<Envelope<'_>, DecodeError> {
    if bytes.is_empty() || bytes == MAGIC {
        return Err(DecodeError::new(if bytes.is_empty() {
            "empty data"
        } else {
            "empty body"
        }));
    }
    let Some(unknown) = bytes.strip_prefix(MAGIC) else {
        return Err(DecodeError::new(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]",
        ));
    };
    let text = |bytes| {
        str::from_utf8(bytes).map_err(|_| DecodeError::new("the type of the object is not UTF-8"))
    };
    let mut out = Envelope::default();
    let mut fields = Reader::new(unknown);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => {
                let mut meta = Reader::new(field.value.bytes());
                while let Some(field) = meta.next()? {
                    match field.number {
                        1 => out.api_version = text(field.value.bytes())?,
                        2 => out.kind = text(field.value.bytes())?,
                        _ => {}
                    }
                }
            }
            2 => out.raw = field.value.bytes(),
            3 => out.content_encoding = text(field.value.bytes())?,
            4 => out.content_type = text(field.value.bytes())?,
            _ => {}
        }
    }
    Ok(out)
}

/// Puts a message into an envelope.
pub fn wrap(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len() + api_version.len() + kind.len() + 32);
    patch_resource_version::open_envelope(api_version, kind, &mut out);
    wire::put_bytes(2, raw, &mut out);
    patch_resource_version::close_envelope(&mut out);
    out
}

#[cfg(test)]
mod tests;
