//! OpenAPI v2: one document of everything.

use std::collections::BTreeSet;

use super::definitions::{Definitions, Dialect};
use super::operations::{Body, Media, Operation, PathItem};
use super::parameters::Parameter;
use super::v3::{code_text, kind_extensions, own_parameters, paths_of, schema};
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
    let paths = paths_of(paths, &mut definitions, Dialect::V2, operation);
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
    let produces = operation.media.types();
    let consumes = match operation.action {
        _ if operation.patches && operation.media == Media::Custom => &CUSTOM_PATCHES[..],
        _ if operation.media == Media::Custom => produces,
        _ if operation.patches => &PATCHES[..],
        // The documents of the token issuer have no `consumes`.
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
    let own = own_parameters(operation, common, Dialect::V2);
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
    kind_extensions(operation, &["group", "kind", "version"], &mut out);
    Value::Object(out)
}
