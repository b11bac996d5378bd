//! OpenAPI v2 documents in the words of version 3, for servers that speak version 2 only
//! (kube-openapi `openapiconv`).

use crate::meta::{Map, Value, json, str_at};

const DEFINITIONS: &str = "#/definitions/";
const SCHEMAS: &str = "#/components/schemas/";
/// The keys of a parameter that are those of its schema in version 3.
const SCHEMA_OF_PARAMETER: [&str; 3] = ["type", "format", "uniqueItems"];
/// The keys of a parameter that stay.
const PARAMETER: [&str; 5] = ["name", "in", "description", "required", "allowEmptyValue"];

/// The bytes of the bodies' schemas of a document, once each is under each of its media types.
const MAX_SPREAD_BYTES: usize = 16 << 20;

/// Reports whether the schemas of bodies stay small in version 3, where each stands under each of
/// its media types.
pub fn is_bounded(part: &Value) -> bool {
    let operations = members(part, "paths").flat_map(|item| match item {
        Value::Object(operations) => operations.values().map(spread).collect(),
        _ => Vec::new(),
    });
    operations.fold(0, usize::saturating_add) <= MAX_SPREAD_BYTES
}

/// The bytes of the schemas of an operation's bodies under each of their media types.
fn spread(operation: &Value) -> usize {
    let body = spread_of(items(operation, "parameters"), operation, "consumes");
    let answers = members(operation, "responses");
    body.saturating_add(spread_of(answers, operation, "produces"))
}

fn spread_of<'a>(
    bodies: impl Iterator<Item = &'a Value>,
    operation: &Value,
    media_types: &'static str,
) -> usize {
    let media = || items(operation, media_types).filter_map(Value::as_str);
    let (count, names) = (media().count(), media().map(str::len).sum());
    let schemas = bodies.filter_map(|body| body.get("schema"));
    let bytes = schemas.map(|schema| schema.to_string().len().saturating_mul(count));
    bytes.fold(0, |sum, bytes| {
        sum.saturating_add(bytes).saturating_add(names)
    })
}

/// The values of a member that is an object.
fn members<'a>(value: &'a Value, key: &'static str) -> impl Iterator<Item = &'a Value> {
    let map = value.get(key).and_then(Value::as_object);
    map.into_iter().flat_map(Map::values)
}

/// The items of a member that is an array.
fn items<'a>(value: &'a Value, key: &'static str) -> impl Iterator<Item = &'a Value> {
    value
        .get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// Writes a document of these paths and definitions, with `info` at its head.
pub fn document(mut part: Value, info: &Value) -> Value {
    let mut section = |key, convert: fn(&mut Value)| {
        let mut section = part.get_mut(key).map(Value::take);
        section
            .iter_mut()
            .for_each(|section| each(section, convert));
        section.unwrap_or_else(|| json!({}))
    };
    json!({
        "openapi": "3.0.0",
        "info": info,
        "paths": section("paths", path_item),
        "components": {"schemas": section("definitions", schema)},
    })
}

/// Converts the values of an object that are no extensions.
fn each(value: &mut Value, convert: fn(&mut Value)) {
    let Value::Object(map) = value else { return };
    for (key, value) in map.iter_mut() {
        if !key.starts_with("x-") {
            convert(value);
        }
    }
}

fn path_item(item: &mut Value) {
    each(item, |value| match value {
        Value::Array(parameters) => parameters.iter_mut().for_each(parameter),
        operation => convert_operation(operation),
    });
}

fn convert_operation(operation: &mut Value) {
    let Value::Object(out) = operation else {
        return;
    };
    let mut take = |key| out.shift_remove(key).unwrap_or_default();
    let (consumes, produces) = (take("consumes"), take("produces"));
    let (parameters, mut responses) = (take("parameters"), take("responses"));
    take("schemes");
    let is_body = |one: &Value| str_at(one, "/name") == "body" && one.get("schema").is_some();
    let parameters = parameters.as_array().cloned().unwrap_or_default();
    let (bodies, mut rest): (Vec<Value>, Vec<Value>) = parameters.into_iter().partition(is_body);
    if !rest.is_empty() {
        rest.iter_mut().for_each(parameter);
        out.insert("parameters", rest.into());
    }
    for mut body in bodies {
        let schema = body.get_mut("schema").map(Value::take).unwrap_or_default();
        out.insert(
            "requestBody",
            json!({"content": content(&consumes, schema)}),
        );
    }
    if let Value::Object(responses) = &mut responses {
        for response in responses.values_mut() {
            convert_response(response, &produces);
        }
    }
    out.insert("responses", responses);
}

fn convert_response(response: &mut Value, produces: &Value) {
    let Value::Object(out) = response else { return };
    if let Some(schema) = out.shift_remove("schema") {
        out.insert("content", content(produces, schema));
    }
}

/// The schema of a body under each of its media types.
fn content(media: &Value, mut of_body: Value) -> Value {
    schema(&mut of_body);
    let media = media.as_array().into_iter().flatten();
    let media = media.filter_map(Value::as_str);
    let entries = media.map(|one| (one.to_owned(), json!({"schema": of_body})));
    Map::from_iter(entries).into()
}

fn parameter(parameter: &mut Value) {
    let Value::Object(old) = parameter else {
        return;
    };
    let mut of_parameter = old.shift_remove("schema").unwrap_or_else(|| {
        let keys = SCHEMA_OF_PARAMETER.into_iter();
        let entries = keys.filter_map(|key| Some((key.to_owned(), old.get(key)?.clone())));
        Map::from_iter(entries).into()
    });
    schema(&mut of_parameter);
    old.retain(|key, _| key.starts_with("x-") || PARAMETER.contains(&&**key));
    old.insert("schema", of_parameter);
}

/// Converts a schema and those within it. A reference with something beside it is put into
/// `allOf`, for it has nothing beside it in version 3 (kube-openapi `WrapRefs`).
fn schema(value: &mut Value) {
    let Value::Object(map) = value else { return };
    for (key, value) in map.iter_mut() {
        match (&**key, value) {
            ("$ref", Value::String(target)) => {
                if let Some(name) = target.strip_prefix(DEFINITIONS) {
                    *target = format!("{SCHEMAS}{name}");
                }
            }
            ("properties", Value::Object(properties)) => {
                properties.values_mut().for_each(schema);
            }
            ("items" | "allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => {
                schemas.iter_mut().for_each(schema);
            }
            ("items" | "not" | "additionalProperties", inner) => schema(inner),
            _ => {}
        }
    }
    if map.len() > 1
        && let Some(target) = map.shift_remove("$ref")
    {
        map.insert("allOf", json!([{"$ref": target}]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_are_not_multiplied_without_end() {
        let media = |count: usize| -> Vec<String> { (0..count).map(|i| i.to_string()).collect() };
        let body = json!({"description": "x".repeat(10_000)});
        let part = |consumes: usize, produces: usize| {
            json!({"paths": {"/apis/g/v1/things": {"parameters": [], "post": {
                "consumes": media(consumes), "produces": media(produces),
                "parameters": [{"name": "body", "in": "body", "schema": body}],
                "responses": {"200": {"schema": body}, "201": {"schema": body}},
            }}}})
        };
        assert!(is_bounded(&part(1_000, 250)));
        assert!(!is_bounded(&part(2_000, 0)));
        assert!(!is_bounded(&part(0, 1_000)));
        assert!(is_bounded(&json!({"paths": {"/a": 1, "/b": {"get": []}}})));
    }

    #[test]
    fn documents_say_the_same_in_the_words_of_version_3() {
        let kind = json!({"group": "g", "version": "v1", "kind": "Thing"});
        let thing = json!({"$ref": "#/definitions/Thing"});
        let part = json!({
            "paths": {"/apis/g/v1/things": {
                "parameters": [{"name": "pretty", "in": "query", "type": "string", "uniqueItems": true, "pattern": "x"}],
                "post": {
                    "description": "create", "operationId": "createThing", "schemes": ["https"],
                    "consumes": ["application/json"], "produces": ["application/json", "application/yaml"],
                    "parameters": [
                        {"name": "body", "in": "body", "required": true, "schema": thing},
                        {"name": "dryRun", "in": "query", "type": "string"},
                    ],
                    "responses": {
                        "201": {"description": "Created", "schema": thing},
                        "401": {"description": "Unauthorized"},
                    },
                    "x-kubernetes-group-version-kind": kind,
                },
            }},
            "definitions": {"Thing": {"type": "object", "properties": {
                "spec": {"description": "said beside it", "default": {}, "$ref": "#/definitions/Spec"},
                "list": {"type": "array", "items": {"$ref": "#/definitions/Spec"}},
                "map": {"type": "object", "additionalProperties": {"$ref": "#/definitions/Spec"}},
            }}, "Spec": {"type": "object"}},
        });
        let info = json!({"title": "t", "version": "v"});
        let thing = json!({"schema": {"$ref": "#/components/schemas/Thing"}});
        let spec = json!({"$ref": "#/components/schemas/Spec"});
        let want = json!({
            "openapi": "3.0.0", "info": info,
            "paths": {"/apis/g/v1/things": {
                "parameters": [{"name": "pretty", "in": "query", "schema": {"type": "string", "uniqueItems": true}}],
                "post": {
                    "description": "create", "operationId": "createThing",
                    "x-kubernetes-group-version-kind": kind,
                    "parameters": [{"name": "dryRun", "in": "query", "schema": {"type": "string"}}],
                    "requestBody": {"content": {"application/json": thing}},
                    "responses": {
                        "201": {"description": "Created", "content": {"application/json": thing, "application/yaml": thing}},
                        "401": {"description": "Unauthorized"},
                    },
                },
            }},
            "components": {"schemas": {"Thing": {"type": "object", "properties": {
                "spec": {"description": "said beside it", "default": {}, "allOf": [spec]},
                "list": {"type": "array", "items": spec},
                "map": {"type": "object", "additionalProperties": spec},
            }}, "Spec": {"type": "object"}}},
        });
        assert_eq!(document(part, &info), want);
    }

    #[test]
    fn what_is_not_of_the_form_stays() {
        let odd = json!({"paths": {"/a": 7, "/b": {"get": 1}}, "definitions": {"a": true}});
        let converted = document(odd, &Value::Null);
        assert_eq!(converted["paths"], json!({"/a": 7, "/b": {"get": 1}}));
        assert_eq!(document(json!(7), &Value::Null)["paths"], json!({}));
    }
}
