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

/// Writes the document of these paths, with `info` at its head.
pub fn document(paths: &[PathItem], mut definitions: Definitions, info: &Value) -> Value {
    let paths = paths_of(paths, &mut definitions, Dialect::V3, operation);
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

/// Writes the operations of one path.
type WriteOperation = fn(&Operation, &BTreeSet<Parameter>, &mut Definitions) -> Value;

/// Writes all paths, with the operations as a dialect has them.
pub fn paths_of(
    paths: &[PathItem],
    definitions: &mut Definitions,
    dialect: Dialect,
    operation: WriteOperation,
) -> Map {
    let path = |item: &PathItem| {
        let common = common_parameters(item);
        let operations = item.operations.iter();
        let mut out: Map = operations
            .map(|one| (one.method.to_owned(), operation(one, &common, definitions)))
            .collect();
        if !common.is_empty() {
            let parameters = common.iter().map(|one| one.render(dialect));
            out.insert("parameters", parameters.collect());
        }
        (item.path.clone(), Value::Object(out))
    };
    paths.iter().map(path).collect()
}

/// The parameters of an operation that are not those of all operations of its path.
pub fn own_parameters(
    operation: &Operation,
    common: &BTreeSet<Parameter>,
    dialect: Dialect,
) -> impl Iterator<Item = Value> {
    let own = operation.parameters.iter();
    own.filter(|one| !common.contains(one))
        .map(move |one| one.render(dialect))
}

/// Adds the extensions that name the action and the kind, whose parts have an order of their own in
/// each dialect.
pub fn kind_extensions(operation: &Operation, order: &[&str; 3], out: &mut Map) {
    let Some(kind) = operation
        .kind
        .as_ref()
        .filter(|_| !operation.action.is_empty())
    else {
        return;
    };
    let parts = order.map(|part| {
        let text = match part {
            "group" => &kind.group,
            "kind" => &kind.kind,
            _ => &kind.version,
        };
        (part.to_owned(), Value::from(text.as_str()))
    });
    out.insert("x-kubernetes-action".to_owned(), operation.action.into());
    let parts = Value::Object(Map::from_iter(parts));
    out.insert("x-kubernetes-group-version-kind".to_owned(), parts);
}

/// The parameters that every operation of the path takes; they are written once.
fn common_parameters(item: &PathItem) -> BTreeSet<Parameter> {
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
    let own: Vec<Value> = own_parameters(operation, common, Dialect::V3).collect();
    if !own.is_empty() {
        out.insert("parameters", own.into());
    }
    if let Some(body) = &operation.body {
        let schema = schema(body, definitions);
        let media: &[&str] = match (operation.patches, operation.media) {
            (true, Media::Custom) => &PATCHES[..3],
            (true, _) => &PATCHES,
            (false, Media::Custom) => Media::Custom.types(),
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
        responses.insert(code.to_string(), json!({"description": description, "content": content(operation.media.types(), &answer)}));
    }
    responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
    out.insert("responses", responses.into());
    kind_extensions(operation, &["group", "version", "kind"], &mut out);
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

/// The schema under each media type, sorted.
fn content(media: &[&str], schema: &Value) -> Value {
    let mut media = media.to_vec();
    media.sort_unstable();
    let entries = media
        .into_iter()
        .map(|one| (one.to_owned(), json!({"schema": schema})));
    Map::from_iter(entries).into()
}
