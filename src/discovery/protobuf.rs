//! The legacy discovery objects as protobuf, made from their JSON.

use bytes::Bytes;

use crate::codec::{json, protobuf};
use crate::meta::Gvk;
use crate::schema;

/// The protobuf form of a discovery object, given its JSON; `None` for a kind that is not one of
/// them.
pub fn encode(document: &[u8]) -> Option<Bytes> {
    let (value, _) = json::parse(document).ok()?;
    let kind = value.get("kind")?.as_str()?;
    // The core group's documents name no apiVersion; their kinds are those of v1 all the same.
    let ty = schema::builtin().get(&Gvk::new("", "v1", kind))?;
    let decoded = json::decode(document, ty).ok()?;
    let object = &decoded.object;
    Some(
        protobuf::wrap(
            object.api_version(),
            object.kind(),
            &protobuf::encode(object, ty),
        )
        .into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message inside the envelope.
    fn message(document: &str) -> (String, Vec<u8>) {
        let bytes = encode(document.as_bytes()).expect("a discovery kind");
        let envelope = protobuf::unwrap(&bytes).expect("an envelope");
        (
            format!("{}/{}", envelope.api_version, envelope.kind),
            envelope.raw.to_vec(),
        )
    }

    #[test]
    fn the_core_group_is_written_as_recorded() {
        let address = r#"{"clientCIDR":"0.0.0.0/0","serverAddress":"10.0.0.1:6444"}"#;
        let (kind, raw) = message(&format!(
            r#"{{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[{address}]}}"#
        ));
        assert_eq!(
            (kind.as_str(), &raw[..]),
            (
                "/APIVersions",
                &b"\x0a\x02v1\x12\x1a\x0a\x090.0.0.0/0\x12\x0d10.0.0.1:6444"[..]
            )
        );
    }

    #[test]
    fn absent_strings_of_a_resource_are_written_empty() {
        let binding = r#"{"name":"bindings","singularName":"binding","namespaced":true,"kind":"Binding","verbs":["create"]}"#;
        let (_, raw) = message(&format!(
            r#"{{"kind":"APIResourceList","groupVersion":"v1","resources":[{binding}]}}"#
        ));
        let want = b"\x0a\x02v1\x12\x2e\x0a\x08bindings\x10\x01\x1a\x07Binding\"\x08\x0a\x06create2\x07bindingB\0J\0R\0";
        assert_eq!(raw, want);
    }
}
