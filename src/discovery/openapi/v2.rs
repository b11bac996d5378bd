//! OpenAPI v2: one document of everything.

use std::collections::BTreeSet;

use super::definitions::{Definitions, Dialect};
use super::operations::{Body, Media, Operation, PathItem};
use super::parameters::Parameter;
use super::v3::{code_text, common_parameters, schema};
use crate::meta::{Map, Value, json};

const PATCHES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

const CUSTOM_PATCHES: [&str; 3] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
];

/// Writes the document of these paths.
pub fn document(paths: &[PathItem], mut definitions: Definitions, info: &Value) -> Value {
    let paths: Map = paths
        .iter()
        .map(|item| (item.path.clone(), path(item, &mut definitions)))
        .collect();
    let token = json!({"description": "Bearer Token authentication", "type": "apiKey", "name": "authorization", "in": "header"});
    json!({
        "swagger": "2.0",
        "info": info,
        "paths": paths,
        "definitions": definitions.finish(),
        "securityDefinitions": {"BearerToken": token},
        "security": [{"BearerToken": []}],
    })
}

fn path(item: &PathItem, definitions: &mut Definitions) -> Value {
    let common = common_parameters(item);
    let mut out = Map::new();
    for one in &item.operations {
        out.insert(one.method.to_owned(), operation(one, &common, definitions));
    }
    if !common.is_empty() {
        out.insert(
            "parameters",
            common.iter().map(|one| one.render(Dialect::V2)).collect(),
        );
    }
    Value::Object(out)
}

fn body_parameter(operation: &Operation, body: &Body, definitions: &mut Definitions) -> Value {
    let mut out = Map::from_iter([
        ("name".to_owned(), Value::from("body")),
        ("in".to_owned(), "body".into()),
    ]);
    if operation.body_required {
        out.insert("required", true.into());
    }
    out.insert("schema", schema(body, definitions));
    Value::Object(out)
}

fn operation(
    operation: &Operation,
    common: &BTreeSet<Parameter>,
    definitions: &mut Definitions,
) -> Value {
    let produces = media_types(operation.media);
    let consumes = match operation.action {
        _ if operation.patches && operation.media == Media::Custom => &CUSTOM_PATCHES[..],
        _ if operation.media == Media::Custom => produces,
        _ if operation.patches => &PATCHES[..],
        // The documents of the token issuer say nothing of what they consume.
        "" if operation.answer == Body::Text => &[],
        "" => produces,
        _ => &["*/*"],
    };
    let mut out = Map::new();
    out.insert("description", operation.description.as_str().into());
    if !consumes.is_empty() {
        out.insert("consumes", json!(consumes));
    }
    out.insert("produces", json!(produces));
    out.insert("schemes", json!(["https"]));
    out.insert("tags", json!([operation.tag]));
    out.insert("operationId", operation.id.as_str().into());
    let body = operation
        .body
        .as_ref()
        .map(|body| body_parameter(operation, body, definitions));
    let own = operation
        .parameters
        .iter()
        .filter(|one| !common.contains(one))
        .map(|one| one.render(Dialect::V2));
    let parameters: Vec<Value> = body.into_iter().chain(own).collect();
    if !parameters.is_empty() {
        out.insert("parameters", parameters.into());
    }
    let answer = schema(&operation.answer, definitions);
    let mut responses = Map::new();
    for code in operation.codes {
        responses.insert(
            code.to_string(),
            json!({"description": code_text(*code), "schema": answer}),
        );
    }
    responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
    out.insert("responses", responses.into());
    if let Some(kind) = operation
        .kind
        .as_ref()
        .filter(|_| !operation.action.is_empty())
    {
        out.insert("x-kubernetes-action".to_owned(), operation.action.into());
        let kind = json!({"group": kind.group, "kind": kind.kind, "version": kind.version});
        out.insert("x-kubernetes-group-version-kind".to_owned(), kind);
    }
    Value::Object(out)
}

fn media_types(media: Media) -> &'static [&'static str] {
    match media {
        Media::Objects => &[
            "application/json",
            "application/yaml",
            "application/vnd.kubernetes.protobuf",
        ],
        Media::Custom => &["application/json", "application/yaml"],
        Media::Stream => &[
            "application/json",
            "application/yaml",
            "application/vnd.kubernetes.protobuf",
            "application/json;stream=watch",
            "application/vnd.kubernetes.protobuf;stream=watch",
        ],
        Media::Log => &[
            "text/plain",
            "application/json",
            "application/yaml",
            "application/vnd.kubernetes.protobuf",
        ],
        Media::Any => &["*/*"],
        Media::Json => &["application/json"],
        Media::Jwks => &["application/jwk-set+json"],
    }
}
