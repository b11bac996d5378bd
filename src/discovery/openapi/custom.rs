//! Custom kinds in OpenAPI documents: the fields of objects and lists around the definition's
//! schema (apiextensions `controller/openapi/builder`), and the operations, which differ from those
//! of the built-in resources.

use std::sync::Arc;

use super::definitions::{Dialect, META};
use super::descriptions::Descriptions;
use super::operations::{self, Media, Operation, PathItem, with};
use super::parameters;
use crate::meta::{Gvk, Map, Value, json};
use crate::registry::Custom;
use crate::schema::ResourceDecl;

const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// A version of a custom kind, as it is served.
#[derive(Clone)]
pub struct CustomKind {
    pub decl: ResourceDecl,
    pub custom: Arc<dyn Custom>,
}

impl CustomKind {
    /// Returns a text that changes with the documents about the kind.
    pub fn fingerprint(&self) -> String {
        format!(
            "{}/{} {}",
            self.decl.version,
            self.decl.resource,
            self.custom.fingerprint()
        )
    }

    /// The kinds of the objects and of their lists, each with its definition.
    pub fn definitions(&self, dialect: Dialect, descriptions: &Descriptions) -> [(Gvk, Value); 2] {
        let gvk = |kind: &str| Gvk::new(&self.decl.group, &self.decl.version, kind);
        let (object, list) = (gvk(&self.decl.kind), gvk(self.custom.list_kind()));
        let words = FieldDescriptions {
            name: model_name(&object),
            dialect,
            descriptions,
        };
        let definitions = [self.object(&words), self.list(&object, &words)];
        let [first, second] = definitions.map(|mut definition| {
            let fields: Vec<Value> = self
                .custom
                .selectable()
                .iter()
                .map(|path| json!({"fieldPath": path}))
                .collect();
            if !fields.is_empty() {
                definition.insert("x-kubernetes-selectable-fields".to_owned(), fields.into());
            }
            definition
        });
        let marked = |mut definition: Map, of: &Gvk| {
            let kinds = json!([{"group": of.group, "kind": of.kind, "version": of.version}]);
            definition.insert("x-kubernetes-group-version-kind".to_owned(), kinds);
            Value::Object(definition)
        };
        [
            (object.clone(), marked(first, &object)),
            (list.clone(), marked(second, &list)),
        ]
    }

    fn object(&self, words: &FieldDescriptions) -> Map {
        let Some(mut schema) = self.custom.published(words.dialect == Dialect::V2) else {
            return Map::from_iter([("type".to_owned(), "object".into())]);
        };
        embed(&mut schema, words);
        words.put_native(&mut schema, "ObjectMeta");
        schema
    }

    fn list(&self, of: &Gvk, words: &FieldDescriptions) -> Map {
        let description = format!("{} is a list of {}", self.custom.list_kind(), of.kind);
        let items = json!({"description": "The objects of the list.", "type": "array", "items": words.dialect.reference(&words.name)});
        let mut out = Map::from_iter([
            ("description".to_owned(), description.into()),
            ("type".to_owned(), "object".into()),
            ("required".to_owned(), json!(["items"])),
            ("properties".to_owned(), json!({ "items": items })),
        ]);
        words.put_native(&mut out, "ListMeta");
        out
    }

    /// The paths of the resource, without those of old for watches.
    pub fn paths(&self) -> Vec<PathItem> {
        let mut paths = operations::resource_paths(&self.decl);
        paths.retain(|item| !item.path.contains("/watch/"));
        let kind = Gvk::new(&self.decl.group, &self.decl.version, &self.decl.kind);
        for item in &mut paths {
            item.operations = std::mem::take(&mut item.operations)
                .into_iter()
                .map(|one| adapt(one, &kind))
                .collect();
        }
        paths
    }
}

/// An operation on built-in objects as it is on custom ones.
fn adapt(operation: Operation, kind: &Gvk) -> Operation {
    let mut operation = Operation {
        media: Media::Custom,
        kind: Some(kind.clone()),
        ..operation
    };
    match operation.action {
        "get" => with(operation, [parameters::resource_version()]),
        "deletecollection" => {
            operation.body = None;
            operation
                .parameters
                .retain(|one| one.place == "path" || one.name == "pretty");
            with(
                operation,
                parameters::select().into_iter().chain(parameters::watch()),
            )
        }
        "patch" => Operation {
            codes: &[200],
            ..operation
        },
        _ => operation,
    }
}

/// The name of a kind's definition: the group from its end to its beginning, then version and kind.
pub fn model_name(kind: &Gvk) -> String {
    let group: Vec<&str> = kind.group.split('.').rev().collect();
    format!("{}.{}.{}", group.join("."), kind.version, kind.kind)
}

/// The descriptions of the fields that every object has.
struct FieldDescriptions<'a> {
    name: String,
    dialect: Dialect,
    descriptions: &'a Descriptions,
}

impl FieldDescriptions<'_> {
    /// Adds apiVersion, kind and metadata of the given type.
    fn put_native(&self, schema: &mut Map, metadata: &str) {
        let properties = schema.entry("properties").or_insert_with(|| json!({}));
        let Some(properties) = properties.as_object_mut() else {
            return;
        };
        for field in ["apiVersion", "kind"] {
            properties.insert(field.to_owned(), json!({"description": self.descriptions.of_field(&self.name, field), "type": "string"}));
        }
        let mut reference = Map::from_iter([(
            "description".to_owned(),
            self.descriptions.of_field(&self.name, "metadata").into(),
        )]);
        let target = self.dialect.reference(&format!("{META}.{metadata}"));
        match (self.dialect, target) {
            (Dialect::V3, target) => drop(reference.insert("allOf", json!([target]))),
            (Dialect::V2, Value::Object(target)) => reference.extend(target),
            (Dialect::V2, _) => {}
        }
        properties.insert("metadata", reference.into());
    }
}

/// Adds what every object has to the embedded ones.
fn embed(schema: &mut Map, words: &FieldDescriptions) {
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties
            .values_mut()
            .filter_map(Value::as_object_mut)
            .for_each(|one| embed(one, words));
    }
    for below in ["items", "additionalProperties"] {
        if let Some(Value::Object(one)) = schema.get_mut(below) {
            embed(one, words);
        }
    }
    let is = |key: &str| schema.get(key) == Some(&Value::Bool(true));
    // In version 2 fields that are listed are all that there may be.
    if !is(EMBEDDED) || (words.dialect == Dialect::V2 && is(PRESERVE)) {
        return;
    }
    words.put_native(schema, "ObjectMeta");
    if let Value::Array(required) = schema.entry("required").or_insert_with(|| json!([])) {
        for field in ["kind", "apiVersion"] {
            if !required.iter().any(|one| one == field) {
                required.push(field.into());
            }
        }
    }
}
