//! OpenAPI v3: a document for each group version.

use std::collections::BTreeSet;

use super::definitions::{Definitions, Dialect};
use super::operations::{Body, Media, Operation, PathItem};
use super::parameters::Parameter;
use crate::meta::{Map, Value, json};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const PATCHES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

/// Writes the document of these paths; `info` says what it is.
pub fn document(paths: &[PathItem], mut definitions: Definitions, info: &Value) -> Value {
    let paths: Map = paths
        .iter()
        .map(|item| (item.path.clone(), path(item, &mut definitions)))
        .collect();
    let mut components = Map::new();
    let schemas = definitions.finish();
    if !schemas.is_empty() {
        components.insert("schemas", schemas.into());
    }
    let token = json!({"type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header"});
    components.insert("securitySchemes", json!({ "BearerToken": token }));
    json!({
        "openapi": "3.0.0",
        "info": info,
        "paths": paths,
        "components": components,
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
            common.iter().map(|one| one.render(Dialect::V3)).collect(),
        );
    }
    Value::Object(out)
}

/// The parameters that every operation of the path takes; they are said once.
pub fn common_parameters(item: &PathItem) -> BTreeSet<Parameter> {
    let mut sets = item.operations.iter().map(|operation| {
        operation
            .parameters
            .iter()
            .cloned()
            .collect::<BTreeSet<_>>()
    });
    let first = sets.next().unwrap_or_default();
    sets.fold(first, |common, set| {
        common.intersection(&set).cloned().collect()
    })
}

fn operation(
    operation: &Operation,
    common: &BTreeSet<Parameter>,
    definitions: &mut Definitions,
) -> Value {
    let mut out = Map::new();
    out.insert("tags", json!([operation.tag]));
    out.insert("description", operation.description.as_str().into());
    out.insert("operationId", operation.id.as_str().into());
    let own: Vec<Value> = operation
        .parameters
        .iter()
        .filter(|one| !common.contains(one))
        .map(|one| one.render(Dialect::V3))
        .collect();
    if !own.is_empty() {
        out.insert("parameters", own.into());
    }
    if let Some(body) = &operation.body {
        let schema = schema(body, definitions);
        let media: &[&str] = match (operation.patches, operation.media) {
            (true, Media::Custom) => &PATCHES[..3],
            (true, _) => &PATCHES,
            (false, Media::Custom) => media_types(Media::Custom),
            (false, _) => &["*/*"],
        };
        let mut request = Map::from_iter([("content".to_owned(), content(media, &schema))]);
        if operation.body_required {
            request.insert("required", true.into());
        }
        out.insert("requestBody", request.into());
    }
    let answer = schema(&operation.answer, definitions);
    let mut responses = Map::new();
    for code in operation.codes {
        let description = code_text(*code);
        responses.insert(code.to_string(), json!({"description": description, "content": content(media_types(operation.media), &answer)}));
    }
    responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
    out.insert("responses", responses.into());
    if let Some(kind) = operation
        .kind
        .as_ref()
        .filter(|_| !operation.action.is_empty())
    {
        out.insert("x-kubernetes-action".to_owned(), operation.action.into());
        let kind = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
        out.insert("x-kubernetes-group-version-kind".to_owned(), kind);
    }
    Value::Object(out)
}

/// The reason phrase of a success code.
pub fn code_text(code: u16) -> &'static str {
    match code {
        201 => "Created",
        202 => "Accepted",
        _ => "OK",
    }
}

/// The schema of what is sent or got.
pub fn schema(body: &Body, definitions: &mut Definitions) -> Value {
    match body {
        Body::Text => json!({"type": "string"}),
        Body::Meta(name) => definitions.reference(&format!("{META}.{name}")),
        Body::Definition(name) => definitions.reference(name),
        Body::Kind(kind) => match definitions.name_of(kind) {
            Some(name) => definitions.reference(&name),
            None => json!({"type": "object"}),
        },
    }
}

fn content(media: &[&str], schema: &Value) -> Value {
    let content: Map = media
        .iter()
        .map(|one| ((*one).to_owned(), json!({"schema": schema})))
        .collect();
    content.into()
}

fn media_types(media: Media) -> &'static [&'static str] {
    match media {
        Media::Objects => &[
            "application/json",
            "application/vnd.kubernetes.protobuf",
            "application/yaml",
        ],
        Media::Custom => &["application/json", "application/yaml"],
        Media::Stream => &[
            "application/json",
            "application/json;stream=watch",
            "application/vnd.kubernetes.protobuf",
            "application/vnd.kubernetes.protobuf;stream=watch",
            "application/yaml",
        ],
        Media::Log => &[
            "application/json",
            "application/vnd.kubernetes.protobuf",
            "application/yaml",
            "text/plain",
        ],
        Media::Any => &["*/*"],
        Media::Json => &["application/json"],
        Media::Jwks => &["application/jwk-set+json"],
    }
}
