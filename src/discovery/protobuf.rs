//! The legacy discovery objects as protobuf (apimachinery `meta/v1/generated.proto`), read back from their JSON.
//!
//! These few messages are written out here because one of them is shaped unlike its JSON (`verbs`), and because
//! discovery must not need the schema of the kinds that it describes.

use bytes::Bytes;
use prost::Message;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// What every protobuf answer starts with.
const MAGIC: &[u8] = b"k8s\0";

/// `runtime.Unknown`.
#[derive(Message)]
struct Envelope {
    #[prost(message, required, tag = "1")]
    type_meta: TypeMeta,
    #[prost(bytes = "bytes", required, tag = "2")]
    raw: Bytes,
    #[prost(string, required, tag = "3")]
    content_encoding: String,
    #[prost(string, required, tag = "4")]
    content_type: String,
}

#[derive(Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TypeMeta {
    #[prost(string, required, tag = "1")]
    api_version: String,
    #[prost(string, required, tag = "2")]
    kind: String,
}

#[derive(Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ApiVersions {
    #[prost(string, repeated, tag = "1")]
    versions: Vec<String>,
    #[prost(message, repeated, tag = "2")]
    #[serde(rename = "serverAddressByClientCIDRs")]
    server_addresses: Vec<ServerAddress>,
}

#[derive(Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ServerAddress {
    #[prost(string, required, tag = "1")]
    #[serde(rename = "clientCIDR")]
    client_cidr: String,
    #[prost(string, required, tag = "2")]
    server_address: String,
}

#[derive(Message, Deserialize)]
#[serde(default)]
struct ApiGroupList {
    #[prost(message, repeated, tag = "1")]
    groups: Vec<ApiGroup>,
}

#[derive(Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ApiGroup {
    #[prost(string, required, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    versions: Vec<GroupVersion>,
    #[prost(message, required, tag = "3")]
    preferred_version: GroupVersion,
}

#[derive(Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GroupVersion {
    #[prost(string, required, tag = "1")]
    group_version: String,
    #[prost(string, required, tag = "2")]
    version: String,
}

#[derive(Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ApiResourceList {
    #[prost(string, required, tag = "1")]
    group_version: String,
    #[prost(message, repeated, tag = "2")]
    resources: Vec<ApiResource>,
}

#[derive(Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ApiResource {
    #[prost(string, required, tag = "1")]
    name: String,
    #[prost(bool, required, tag = "2")]
    namespaced: bool,
    #[prost(string, required, tag = "3")]
    kind: String,
    #[prost(message, required, tag = "4")]
    verbs: Verbs,
    #[prost(string, repeated, tag = "5")]
    short_names: Vec<String>,
    #[prost(string, required, tag = "6")]
    singular_name: String,
    #[prost(string, repeated, tag = "7")]
    categories: Vec<String>,
    #[prost(string, required, tag = "8")]
    group: String,
    #[prost(string, required, tag = "9")]
    version: String,
    #[prost(string, required, tag = "10")]
    storage_version_hash: String,
}

/// A message in protobuf, a plain list in JSON.
#[derive(Message, Deserialize)]
#[serde(transparent)]
struct Verbs {
    #[prost(string, repeated, tag = "1")]
    items: Vec<String>,
}

/// The protobuf form of a discovery object, given its JSON; `None` for a kind that is not one of them.
pub fn encode(json: &[u8]) -> Option<Bytes> {
    let type_meta: TypeMeta = serde_json::from_slice(json).ok()?;
    let raw = match type_meta.kind.as_str() {
        "APIVersions" => convert::<ApiVersions>(json),
        "APIGroupList" => convert::<ApiGroupList>(json),
        "APIGroup" => convert::<ApiGroup>(json),
        "APIResourceList" => convert::<ApiResourceList>(json),
        _ => None,
    }?;
    let envelope = Envelope { type_meta, raw, ..Envelope::default() };
    Some([MAGIC, &envelope.encode_to_vec()].concat().into())
}

fn convert<T: Message + DeserializeOwned>(json: &[u8]) -> Option<Bytes> {
    serde_json::from_slice::<T>(json).ok().map(|message| message.encode_to_vec().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_group_is_written_as_recorded() {
        let json = br#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":"10.0.0.1:6444"}]}"#;
        let bytes = encode(json).expect("a discovery kind");
        let envelope = Envelope::decode(&bytes[MAGIC.len()..]).expect("an envelope");
        assert_eq!((envelope.type_meta.api_version.as_str(), envelope.type_meta.kind.as_str()), ("", "APIVersions"));
        assert_eq!(&envelope.raw[..], b"\x0a\x02v1\x12\x1a\x0a\x090.0.0.0/0\x12\x0d10.0.0.1:6444");
    }

    #[test]
    fn absent_strings_of_a_resource_are_written_empty() {
        let json = br#"{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"bindings","singularName":"binding","namespaced":true,"kind":"Binding","verbs":["create"]}]}"#;
        let bytes = encode(json).expect("a discovery kind");
        let envelope = Envelope::decode(&bytes[MAGIC.len()..]).expect("an envelope");
        let want = b"\x0a\x02v1\x12\x2e\x0a\x08bindings\x10\x01\x1a\x07Binding\"\x08\x0a\x06create2\x07bindingB\0J\0R\0";
        assert_eq!(&envelope.raw[..], want);
    }
}
