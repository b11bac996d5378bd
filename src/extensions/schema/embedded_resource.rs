//! The type and metadata of embedded resources (apiextensions `schema/objectmeta/validation.go`).

use crate::extensions::schema::json_schema_props::JsonSchemaProps;
use crate::extensions::schema::lazy_path::LazyPath;
use crate::extensions::schema::prune_and_default::read_meta;
use crate::meta::{ErrorList, Object, Path};
use crate::meta::{Key, Map, Value, names};
use crate::registry::NameRule;
use crate::registry::validation::validate_generic_meta;

/// Checks every embedded resource below `entries`, and the object itself if its schema declares
/// that it is one.
pub fn validate(place: &LazyPath<'_>, entries: &Map, schema: &JsonSchemaProps) -> ErrorList {
    let mut errors = ErrorList::new();
    check(&mut errors, place, entries, schema);
    errors
}

fn check(errors: &mut ErrorList, place: &LazyPath<'_>, entries: &Map, schema: &JsonSchemaProps) {
    if errors.is_full() {
        return;
    }
    if schema.embedded {
        resource(errors, place, entries);
    }
    let mut names: Vec<&Key> = entries.keys().collect();
    names.sort_unstable();
    for name in names {
        match (schema.properties.get(name.as_str()), &schema.additional) {
            (Some(property), _) => below(
                errors,
                &LazyPath::Field(place, name),
                &entries[name],
                Some(property),
            ),
            (None, Some(additional)) => below(
                errors,
                &LazyPath::Key(place, name),
                &entries[name],
                additional.schema.as_deref(),
            ),
            (None, None) => {}
        }
    }
}

fn below(
    errors: &mut ErrorList,
    place: &LazyPath<'_>,
    value: &Value,
    schema: Option<&JsonSchemaProps>,
) {
    let Some(schema) = schema else { return };
    match value {
        Value::Object(entries) => check(errors, place, entries, schema),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                below(
                    errors,
                    &LazyPath::Index(place, index),
                    item,
                    schema.items.as_deref(),
                );
            }
        }
        _ => {}
    }
}

fn resource(errors: &mut ErrorList, place: &LazyPath<'_>, entries: &Map) {
    let at = |name: &str| place.path().child(name);
    for name in ["apiVersion", "kind"] {
        if !entries.contains_key(name) {
            errors.required(&at(name), "");
        }
    }
    match entries.get("apiVersion") {
        None => {}
        Some(Value::String(version)) if version.is_empty() => {
            errors.invalid(&at("apiVersion"), "", "must not be empty");
        }
        Some(Value::String(version)) if version.matches('/').count() > 1 => {
            let why = format!("unexpected GroupVersion string: {version}");
            errors.invalid(&at("apiVersion"), version.as_str(), why);
        }
        Some(Value::String(_)) => {}
        Some(other) => errors.invalid(&at("apiVersion"), other.clone(), "must be a string"),
    }
    match entries.get("kind") {
        None => {}
        Some(Value::String(kind)) if kind.is_empty() => {
            errors.invalid(&at("kind"), "", "must not be empty")
        }
        Some(Value::String(kind)) => {
            let problems = names::dns1035_label(&kind.to_lowercase());
            if !problems.is_empty() {
                let why = format!(
                    "may have mixed case, but should otherwise match: {}",
                    problems.join(",")
                );
                errors.invalid(&at("kind"), kind.as_str(), why);
            }
        }
        Some(other) => errors.invalid(&at("kind"), other.clone(), "must be a string"),
    }
    match entries
        .get("metadata")
        .map(|value| (value, read_meta(value)))
    {
        None => {}
        Some((value, Err(why))) => errors.invalid(&at("metadata"), value.clone(), why.0),
        Some((_, Ok((meta, _)))) => {
            let mut object = Object::default();
            object.insert("metadata", meta);
            if object.name().is_empty() {
                object.set_meta_str("name", "fakename");
            }
            let namespaced = !object.namespace().is_empty();
            let check = |path: &Path| {
                validate_generic_meta(&object, namespaced, NameRule::PathSegment, path)
            };
            if !check(&Path::default()).is_empty() {
                errors.extend(check(&at("metadata")));
            }
        }
    }
}
