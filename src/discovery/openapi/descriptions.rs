//! The descriptions of types and fields, taken from the `k8s-openapi` crate when this one is built.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Read;

use flate2::read::GzDecoder;

static TABLE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptions.json.gz"));

/// The descriptions of every published type. A megabyte: it is read when a document is rendered,
/// and not kept.
#[derive(Default)]
pub struct Descriptions {
    /// By OpenAPI name: the type's text, and the fields' by JSON name.
    types: HashMap<String, (String, HashMap<String, String>)>,
}

impl Descriptions {
    pub fn load() -> Self {
        let mut json = Vec::new();
        let read = GzDecoder::new(TABLE)
            .read_to_end(&mut json)
            .map_err(serde_json::Error::io);
        // build.rs wrote the table; without it the documents would only lack words.
        Self {
            types: read
                .and_then(|_| serde_json::from_slice(&json))
                .unwrap_or_default(),
        }
    }

    /// Of the type with this OpenAPI name; empty where there is none.
    pub fn of_type(&self, name: &str) -> Cow<'_, str> {
        match self.types.get(name) {
            Some((text, _)) => Cow::Borrowed(text),
            None => listed(name).map_or(Cow::Borrowed(""), |kind| {
                Cow::Owned(format!("A list of {kind} objects."))
            }),
        }
    }

    /// Of a field of that type. The crate has no words for what every object or list has.
    pub fn of_field(&self, name: &str, field: &str) -> &str {
        let known = self
            .types
            .get(name)
            .and_then(|(_, fields)| fields.get(field));
        match (known, field) {
            (Some(text), _) => text,
            (None, "apiVersion") => {
                "The group and version of the schema of this object, such as apps/v1."
            }
            (None, "kind") => "The kind of this object, in CamelCase.",
            (None, "metadata") => "Standard metadata.",
            (None, "items") if listed(name).is_some() => "The objects of the list.",
            (None, "object") if name.ends_with(".WatchEvent") => {
                "The object after the change, before a deletion, or the Status of an error."
            }
            (None, _) => "",
        }
    }
}

/// The kind whose list the type is, by its name.
fn listed(name: &str) -> Option<&str> {
    name.rsplit('.').next()?.strip_suffix("List")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_fields_have_descriptions() {
        let words = Descriptions::load();
        assert_eq!(
            words.of_type("io.k8s.api.coordination.v1.LeaseSpec"),
            "LeaseSpec is a specification of a Lease."
        );
        assert_eq!(
            words.of_type("io.k8s.api.coordination.v1.LeaseList"),
            "A list of Lease objects."
        );
        assert!(
            words
                .of_field("io.k8s.api.core.v1.PodSpec", "nodeName")
                .starts_with("NodeName indicates")
        );
        assert_eq!(words.of_type("io.k8s.nothing"), "");
        let group = words.of_field(
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionSpec",
            "group",
        );
        assert!(
            group.contains("`/apis/<group>/...`"),
            "marks of rustdoc are gone: {group}"
        );
    }
}
