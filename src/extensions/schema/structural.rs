//! What makes a schema structural: every field specified outside of value validations, with a type
//! (apiextensions `schema/{convert,validation,complete}.go`).

use crate::extensions::schema::json_schema_props::{Props, Values};
use crate::meta::Value;
use crate::meta::{ErrorList, FieldError, Path};

/// Where in a schema a node stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Why a schema cannot be read as a structural one at all, upstream's text.
pub fn conversion_error(schema: &Props) -> Option<String> {
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

/// Everything that keeps a schema from being structural, sorted by its text.
pub fn validate(path: &Path, schema: &Props) -> ErrorList {
    let mut errors = ErrorList::new();
    invariants(&mut errors, schema, Level::Root, path);
    value_completeness(&mut errors, schema, Some(schema), path, path);
    errors.sort_by_key(ToString::to_string);
    errors
}

fn invariants(errors: &mut ErrorList, schema: &Props, level: Level, path: &Path) {
    if schema.kind == "array" && schema.items.is_none() {
        errors.push(FieldError::required(
            &path.child("items"),
            "must be specified",
        ));
    }
    if let Some(items) = &schema.items {
        invariants(errors, items, Level::Item, &path.child("items"));
    }
    for (name, property) in &schema.properties {
        invariants(
            errors,
            property,
            Level::Field,
            &path.child("properties").key(name),
        );
    }
    if let Some(additional) = &schema.additional {
        if level == Level::Root {
            errors.push(FieldError::forbidden(
                &path.child("additionalProperties"),
                "must not be used at the root",
            ));
        }
        if let Some(below) = &additional.schema {
            invariants(
                errors,
                below,
                Level::Field,
                &path.child("additionalProperties"),
            );
        }
    }
    extensions(errors, schema, path);
    let skip_any = is_int_or_string(&schema.any_of);
    let skip_first = schema
        .all_of
        .first()
        .is_some_and(|first| is_int_or_string(&first.any_of));
    value_validation(errors, schema, skip_any, skip_first, level, path);
    types(errors, schema, level, path);
    metadata(errors, schema, level, path);
    if schema.embedded && !schema.preserves() && schema.properties.is_empty() {
        let why = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(&path.child("properties"), why));
    }
}

fn extensions(errors: &mut ErrorList, schema: &Props, path: &Path) {
    let mut refuse = |field: &str| {
        errors.push(FieldError::invalid(
            &path.child(field),
            true,
            "must be false if x-kubernetes-int-or-string is true",
        ));
    };
    if schema.int_or_string && schema.preserves() {
        refuse("x-kubernetes-preserve-unknown-fields");
    }
    if schema.int_or_string && schema.embedded {
        refuse("x-kubernetes-embedded-resource");
    }
}

fn types(errors: &mut ErrorList, schema: &Props, level: Level, path: &Path) {
    let place = path.child("type");
    if schema.embedded && schema.kind != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match schema.kind.as_str() {
            "" => FieldError::required(&place, why),
            kind => FieldError::invalid(&place, kind, why),
        });
    } else if schema.kind.is_empty() && !schema.int_or_string && !schema.preserves() {
        let why = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(&place, why));
    }
    if schema.embedded && schema.additional.is_some() {
        let why = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(
            &path.child("additionalProperties"),
            why,
        ));
    }
    if level == Level::Root && !schema.kind.is_empty() && schema.kind != "object" {
        errors.push(FieldError::invalid(
            &place,
            schema.kind.as_str(),
            "must be object at the root",
        ));
    }
}

/// The type and metadata of a resource are its own: a schema may restrict no more than names.
fn metadata(errors: &mut ErrorList, schema: &Props, level: Level, path: &Path) {
    let is_resource = level == Level::Root || schema.embedded;
    for name in ["kind", "apiVersion"] {
        if let Some(property) = schema
            .properties
            .get(name)
            .filter(|property| is_resource && property.kind != "string")
        {
            let place = path.child("properties").key(name).child("type");
            errors.push(FieldError::invalid(
                &place,
                property.kind.as_str(),
                "must be string",
            ));
        }
    }
    let Some(meta) = schema.properties.get("metadata") else {
        return;
    };
    let place = path.child("properties").key("metadata");
    if is_resource && meta.kind != "object" {
        errors.push(FieldError::invalid(
            &place.child("type"),
            meta.kind.as_str(),
            "must be object",
        ));
    }
    if level == Level::Root && !restricts_only_names(meta) {
        let why = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(FieldError::forbidden(&place, why));
    }
}

fn restricts_only_names(meta: &Props) -> bool {
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

/// Whether the alternatives are those of `x-kubernetes-int-or-string`, and nothing more.
fn is_int_or_string(list: &[Props]) -> bool {
    let plain = |one: &Props, kind: &str| {
        one.kind == kind && one.raw.len() == 1 && one.properties.is_empty() && one.items.is_none()
    };
    matches!(list, [first, second] if plain(first, "integer") && plain(second, "string"))
}

fn value_validation(
    errors: &mut ErrorList,
    schema: &Props,
    skip_any: bool,
    skip_first: bool,
    level: Level,
    path: &Path,
) {
    if !skip_any {
        for (index, one) in schema.any_of.iter().enumerate() {
            nested(errors, one, false, level, &path.child("anyOf").index(index));
        }
    }
    for (index, one) in schema.all_of.iter().enumerate() {
        nested(
            errors,
            one,
            skip_first && index == 0,
            level,
            &path.child("allOf").index(index),
        );
    }
    for (index, one) in schema.one_of.iter().enumerate() {
        nested(errors, one, false, level, &path.child("oneOf").index(index));
    }
    if let Some(not) = &schema.not {
        nested(errors, not, false, level, &path.child("not"));
    }
    let Values { pattern, regex, .. } = &schema.values;
    if let Some(Err(why)) = regex {
        let detail = format!("must be a valid regular expression, but isn't: {why}");
        errors.push(FieldError::invalid(
            &path.child("pattern"),
            pattern.as_str(),
            detail,
        ));
    }
}

/// A schema below allOf, anyOf, oneOf or not may look at values only.
fn nested(errors: &mut ErrorList, schema: &Props, skip_any: bool, level: Level, path: &Path) {
    value_validation(errors, schema, skip_any, false, level, path);
    if let Some(items) = &schema.items {
        nested(errors, items, false, level, &path.child("items"));
    }
    for (name, property) in &schema.properties {
        nested(
            errors,
            property,
            false,
            Level::Field,
            &path.child("properties").key(name),
        );
    }
    let additional = schema.additional.as_ref().is_some_and(|one| one.allows);
    let forbidden = [
        (
            !schema.kind.is_empty(),
            "type",
            "must be empty to be structural",
        ),
        (
            additional,
            "additionalProperties",
            "must be undefined to be structural",
        ),
        (
            schema.default.is_some(),
            "default",
            "must be undefined to be structural",
        ),
        (
            !schema.title.is_empty(),
            "title",
            "must be empty to be structural",
        ),
        (
            !schema.description.is_empty(),
            "description",
            "must be empty to be structural",
        ),
        (
            schema.nullable,
            "nullable",
            "must be false to be structural",
        ),
        (
            schema.preserves(),
            "x-kubernetes-preserve-unknown-fields",
            "must be false to be structural",
        ),
        (
            schema.embedded,
            "x-kubernetes-embedded-resource",
            "must be false to be structural",
        ),
        (
            schema.int_or_string,
            "x-kubernetes-int-or-string",
            "must be false to be structural",
        ),
        (
            !schema.list_map_keys.is_empty(),
            "x-kubernetes-list-map-keys",
            "must be empty to be structural",
        ),
        (
            schema.list_type.is_some(),
            "x-kubernetes-list-type",
            "must be undefined to be structural",
        ),
        (
            schema.map_type.is_some(),
            "x-kubernetes-map-type",
            "must be undefined to be structural",
        ),
        (
            !schema.rules.is_empty(),
            "x-kubernetes-validations",
            "must be empty to be structural",
        ),
    ];
    for (_, field, why) in forbidden.into_iter().filter(|(is_set, ..)| *is_set) {
        errors.push(FieldError::forbidden(&path.child(field), why));
    }
    if schema.properties.contains_key("metadata") {
        let place = path.child("properties").key("metadata");
        errors.push(FieldError::forbidden(
            &place,
            "must not be specified in a nested context",
        ));
    }
}

/// Whatever a value validation looks at must be specified in the structure itself.
fn value_completeness(
    errors: &mut ErrorList,
    values: &Props,
    schema: Option<&Props>,
    at: &Path,
    from: &Path,
) {
    if let Some(not) = &values.not {
        completeness(errors, not, schema, at, &from.child("not"));
    }
    for (list, name) in [
        (&values.all_of, "allOf"),
        (&values.any_of, "anyOf"),
        (&values.one_of, "oneOf"),
    ] {
        for (index, one) in list.iter().enumerate() {
            completeness(errors, one, schema, at, &from.child(name).index(index));
        }
    }
}

fn completeness(
    errors: &mut ErrorList,
    values: &Props,
    schema: Option<&Props>,
    at: &Path,
    from: &Path,
) {
    let Some(schema) = schema else {
        errors.push(FieldError::required(
            at,
            format!("because it is defined in {from}"),
        ));
        return;
    };
    value_completeness(errors, values, Some(schema), at, from);
    if let Some(items) = &values.items {
        completeness(
            errors,
            items,
            schema.items.as_deref(),
            &at.child("items"),
            &from.child("items"),
        );
    }
    for (name, property) in &values.properties {
        let (at, from) = (
            at.child("properties").key(name),
            from.child("properties").key(name),
        );
        completeness(errors, property, schema.properties.get(name), &at, &from);
    }
}
