//! The rules that make a schema structural: every field specified outside of value validations,
//! with a type (apiextensions `schema/{convert,validation,complete}.go`).

use std::collections::HashMap;

use crate::extensions::schema::json_schema_props::JsonSchemaProps;
use crate::extensions::schema::lazy_path::LazyPath;
use crate::meta::Value;
use crate::meta::go::regexp;
use crate::meta::{ErrorList, FieldError, Path};

/// The most that parsing the patterns of a schema may cost: about as many bytes of patterns.
const MAX_PATTERN_COST: usize = 1 << 20;

/// The place of a node in a schema.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Returns upstream's reason why a schema cannot be read as a structural one at all.
pub fn conversion_error(schema: &JsonSchemaProps) -> Option<String> {
    for (field, name) in [
        ("id", "id"),
        ("$schema", "schema"),
        ("$ref", "$ref"),
        ("patternProperties", "patternProperties"),
        ("dependencies", "dependencies"),
        ("additionalItems", "additionalItems"),
        ("definitions", "definitions"),
    ] {
        let empty_reference =
            field == "$ref" && schema.raw.get("$ref").is_some_and(|one| one == "");
        if schema.unsupported.contains(&field) && !empty_reference {
            return Some(format!("OpenAPIV3Schema '{name}' is not supported"));
        }
    }
    let nested = schema
        .not
        .as_deref()
        .into_iter()
        .chain(&schema.all_of)
        .chain(&schema.any_of)
        .chain(&schema.one_of);
    if let Some(why) = nested.filter_map(conversion_error).next() {
        return Some(why);
    }
    if schema.preserve_unknown == Some(false) {
        return Some(
            "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined"
                .to_owned(),
        );
    }
    if schema.items_list {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
    }
    let below = schema
        .items
        .as_deref()
        .into_iter()
        .chain(schema.properties.values())
        .chain(schema.additional_schema());
    below.filter_map(conversion_error).next()
}

/// Everything that keeps a schema from being structural, sorted by its text. The patterns of a
/// schema that has very many of them are not all looked at.
pub fn validate(path: &Path, schema: &JsonSchemaProps) -> ErrorList {
    let mut errors = ErrorList::new();
    let root = LazyPath::Root(path.as_str());
    let mut patterns = Patterns {
        checked: HashMap::new(),
        left: MAX_PATTERN_COST,
    };
    invariants(&mut errors, &mut patterns, schema, Level::Root, &root);
    value_completeness(&mut errors, schema, Some(schema), &root, &root);
    errors.sort_by_key(ToString::to_string);
    errors
}

/// The patterns that have been parsed, each once.
struct Patterns<'a> {
    /// The mistake in each, if there is one.
    checked: HashMap<&'a str, Option<String>>,
    /// The cost that may still be spent on parsing others.
    left: usize,
}

impl<'a> Patterns<'a> {
    /// Returns the error of a pattern.
    fn problem(&mut self, pattern: &'a str) -> Option<String> {
        if pattern.is_empty() || self.left == 0 {
            return None;
        }
        let left = &mut self.left;
        let checked = self.checked.entry(pattern).or_insert_with(|| {
            let outcome = regexp::check(pattern);
            let cost = outcome.as_ref().copied().unwrap_or(pattern.len());
            *left = left.saturating_sub(cost);
            outcome.err()
        });
        checked.clone()
    }
}

fn invariants<'a>(
    errors: &mut ErrorList,
    patterns: &mut Patterns<'a>,
    schema: &'a JsonSchemaProps,
    level: Level,
    path: &LazyPath<'_>,
) {
    if errors.is_full() {
        return;
    }
    if schema.kind == "array" && schema.items.is_none() {
        errors.required(&path.child("items"), "must be specified");
    }
    if let Some(items) = &schema.items {
        let place = LazyPath::Field(path, "items");
        invariants(errors, patterns, items, Level::Item, &place);
    }
    for (name, property) in &schema.properties {
        let properties = LazyPath::Field(path, "properties");
        let place = LazyPath::Key(&properties, name);
        invariants(errors, patterns, property, Level::Field, &place);
    }
    if let Some(additional) = &schema.additional {
        if level == Level::Root {
            errors.forbidden(
                &path.child("additionalProperties"),
                "must not be used at the root",
            );
        }
        if let Some(below) = &additional.schema {
            let place = LazyPath::Field(path, "additionalProperties");
            invariants(errors, patterns, below, Level::Field, &place);
        }
    }
    extensions(errors, schema, path);
    let skip_any = is_int_or_string(&schema.any_of);
    let skip_first = schema
        .all_of
        .first()
        .is_some_and(|first| is_int_or_string(&first.any_of));
    value_validation(errors, patterns, schema, skip_any, skip_first, path);
    types(errors, schema, level, path);
    metadata(errors, schema, level, path);
    if schema.embedded && !schema.preserves() && schema.properties.is_empty() {
        let why = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.required(&path.child("properties"), why);
    }
}

fn extensions(errors: &mut ErrorList, schema: &JsonSchemaProps, path: &LazyPath<'_>) {
    let mut refuse = |field: &str| {
        errors.invalid(
            &path.child(field),
            true,
            "must be false if x-kubernetes-int-or-string is true",
        );
    };
    if schema.int_or_string && schema.preserves() {
        refuse("x-kubernetes-preserve-unknown-fields");
    }
    if schema.int_or_string && schema.embedded {
        refuse("x-kubernetes-embedded-resource");
    }
}

fn types(errors: &mut ErrorList, schema: &JsonSchemaProps, level: Level, path: &LazyPath<'_>) {
    let place = || path.child("type");
    if schema.embedded && schema.kind != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match schema.kind.as_str() {
            "" => FieldError::required(&place(), why),
            kind => FieldError::invalid(&place(), kind, why),
        });
    } else if schema.kind.is_empty() && !schema.int_or_string && !schema.preserves() {
        let why = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.required(&place(), why);
    }
    if schema.embedded && schema.additional.is_some() {
        let why = "must not be used if x-kubernetes-embedded-resource is set";
        errors.forbidden(&path.child("additionalProperties"), why);
    }
    if level == Level::Root && !schema.kind.is_empty() && schema.kind != "object" {
        errors.invalid(&place(), schema.kind.as_str(), "must be object at the root");
    }
}

/// The type and metadata of a resource are its own: a schema may restrict no more than names.
fn metadata(errors: &mut ErrorList, schema: &JsonSchemaProps, level: Level, path: &LazyPath<'_>) {
    let is_resource = level == Level::Root || schema.embedded;
    for name in ["kind", "apiVersion"] {
        if let Some(property) = schema
            .properties
            .get(name)
            .filter(|property| is_resource && property.kind != "string")
        {
            let place = path.child("properties").key(name).child("type");
            errors.invalid(&place, property.kind.as_str(), "must be string");
        }
    }
    let Some(meta) = schema.properties.get("metadata") else {
        return;
    };
    let place = || path.child("properties").key("metadata");
    if is_resource && meta.kind != "object" {
        errors.invalid(&place().child("type"), meta.kind.as_str(), "must be object");
    }
    if level == Level::Root && !restricts_only_names(meta) {
        let why = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.forbidden(&place(), why);
    }
}

fn restricts_only_names(meta: &JsonSchemaProps) -> bool {
    let only_names = meta
        .properties
        .keys()
        .all(|name| matches!(name.as_str(), "name" | "generateName"));
    let nothing_else =
        meta.items.is_none() && meta.additional.is_none() && meta.not.is_none() && !meta.items_list;
    let no_lists = [&meta.all_of, &meta.any_of, &meta.one_of]
        .into_iter()
        .all(Vec::is_empty)
        && meta.rules.is_empty();
    let rest = meta.raw.iter().all(|(key, value)| {
        matches!(key.as_str(), "type" | "default") || value == &Value::Bool(false)
    });
    only_names && nothing_else && no_lists && rest
}

/// Reports whether the alternatives are those of `x-kubernetes-int-or-string`, and nothing more.
fn is_int_or_string(list: &[JsonSchemaProps]) -> bool {
    let plain = |one: &JsonSchemaProps, kind: &str| {
        one.kind == kind && one.raw.len() == 1 && one.properties.is_empty() && one.items.is_none()
    };
    matches!(list, [first, second] if plain(first, "integer") && plain(second, "string"))
}

/// The fields that no schema below allOf, anyOf, oneOf or not may set, each with a test whether it
/// is set and what it must be.
type Forbidden = (fn(&JsonSchemaProps) -> bool, &'static str, &'static str);
#[rustfmt::skip]
const FORBIDDEN_IN_VALUES: [Forbidden; 13] = [
    (|one| !one.kind.is_empty(), "type", "empty"),
    (|one| one.additional.as_ref().is_some_and(|one| one.allows), "additionalProperties",
        "undefined"),
    (|one| one.default.is_some(), "default", "undefined"),
    (|one| !one.title.is_empty(), "title", "empty"),
    (|one| !one.description.is_empty(), "description", "empty"),
    (|one| one.nullable, "nullable", "false"),
    (JsonSchemaProps::preserves, "x-kubernetes-preserve-unknown-fields", "false"),
    (|one| one.embedded, "x-kubernetes-embedded-resource", "false"),
    (|one| one.int_or_string, "x-kubernetes-int-or-string", "false"),
    (|one| !one.list_map_keys.is_empty(), "x-kubernetes-list-map-keys", "empty"),
    (|one| one.list_type.is_some(), "x-kubernetes-list-type", "undefined"),
    (|one| one.map_type.is_some(), "x-kubernetes-map-type", "undefined"),
    (|one| !one.rules.is_empty(), "x-kubernetes-validations", "empty"),
];

fn value_validation<'a>(
    errors: &mut ErrorList,
    patterns: &mut Patterns<'a>,
    schema: &'a JsonSchemaProps,
    skip_any: bool,
    skip_first: bool,
    path: &LazyPath<'_>,
) {
    let lists = [
        (&schema.any_of, "anyOf", skip_any),
        (&schema.all_of, "allOf", false),
        (&schema.one_of, "oneOf", false),
    ];
    for (list, name, _) in lists.into_iter().filter(|(_, _, skip)| !skip) {
        let place = LazyPath::Field(path, name);
        for (index, one) in list.iter().enumerate() {
            let skip_any = skip_first && index == 0 && name == "allOf";
            nested(
                errors,
                patterns,
                one,
                skip_any,
                &LazyPath::Index(&place, index),
            );
        }
    }
    if let Some(not) = &schema.not {
        nested(errors, patterns, not, false, &LazyPath::Field(path, "not"));
    }
    let pattern = schema.values.pattern.as_str();
    if let Some(why) = patterns.problem(pattern) {
        errors.invalid(
            &path.child("pattern"),
            pattern,
            format!("must be a valid regular expression, but isn't: {why}"),
        );
    }
}

/// Checks that a schema below allOf, anyOf, oneOf or not looks at values only.
fn nested<'a>(
    errors: &mut ErrorList,
    patterns: &mut Patterns<'a>,
    schema: &'a JsonSchemaProps,
    skip_any: bool,
    path: &LazyPath<'_>,
) {
    if errors.is_full() {
        return;
    }
    value_validation(errors, patterns, schema, skip_any, false, path);
    if let Some(items) = &schema.items {
        nested(
            errors,
            patterns,
            items,
            false,
            &LazyPath::Field(path, "items"),
        );
    }
    let properties = LazyPath::Field(path, "properties");
    for (name, property) in &schema.properties {
        let place = LazyPath::Key(&properties, name);
        nested(errors, patterns, property, false, &place);
    }
    for (is_set, field, wanted) in FORBIDDEN_IN_VALUES {
        if is_set(schema) {
            let why = format!("must be {wanted} to be structural");
            errors.forbidden(&path.child(field), why);
        }
    }
    if schema.properties.contains_key("metadata") {
        errors.forbidden(
            &path.child("properties").key("metadata"),
            "must not be specified in a nested context",
        );
    }
}

/// Checks that all fields in value validations are also specified in the structure.
fn value_completeness(
    errors: &mut ErrorList,
    values: &JsonSchemaProps,
    schema: Option<&JsonSchemaProps>,
    at: &LazyPath<'_>,
    from: &LazyPath<'_>,
) {
    if let Some(not) = &values.not {
        completeness(errors, not, schema, at, &LazyPath::Field(from, "not"));
    }
    for (list, name) in [
        (&values.all_of, "allOf"),
        (&values.any_of, "anyOf"),
        (&values.one_of, "oneOf"),
    ] {
        let from = LazyPath::Field(from, name);
        for (index, one) in list.iter().enumerate() {
            completeness(errors, one, schema, at, &LazyPath::Index(&from, index));
        }
    }
}

fn completeness(
    errors: &mut ErrorList,
    values: &JsonSchemaProps,
    schema: Option<&JsonSchemaProps>,
    at: &LazyPath<'_>,
    from: &LazyPath<'_>,
) {
    if errors.is_full() {
        return;
    }
    let Some(schema) = schema else {
        errors.required(&at.path(), format!("because it is defined in {from}"));
        return;
    };
    value_completeness(errors, values, Some(schema), at, from);
    if let Some(items) = &values.items {
        let (at, from) = (LazyPath::Field(at, "items"), LazyPath::Field(from, "items"));
        completeness(errors, items, schema.items.as_deref(), &at, &from);
    }
    let at = LazyPath::Field(at, "properties");
    let from = LazyPath::Field(from, "properties");
    for (name, property) in &values.properties {
        let (at, from) = (LazyPath::Key(&at, name), LazyPath::Key(&from, name));
        completeness(errors, property, schema.properties.get(name), &at, &from);
    }
}
