//! Validation of the schemas of a definition, node by node (apiextensions
//! `ValidateCustomResourceDefinitionOpenAPISchema`).

use std::collections::HashSet;

use crate::base::blocking::run_blocking;
use crate::extensions::definition::go_format;
use crate::extensions::definition::validation::cel_rules;
use crate::extensions::definition::validation::defaults;
use crate::extensions::schema::field_path;
use crate::extensions::schema::json_schema_props::JsonSchemaProps;
use crate::extensions::schema::lazy_path::LazyPath;
use crate::extensions::schema::structural;
use crate::meta::Value;
use crate::meta::{ErrorList, FieldError, Path};
use crate::registry::validation::Fields;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];
const LIST_TYPES: [&str; 3] = ["atomic", "set", "map"];
const MAP_TYPES: [&str; 2] = ["atomic", "granular"];
/// The fields that may stand at the root of a schema beside a status subresource, whose schema is
/// taken out of it.
const ALLOWED_AT_ROOT: [&str; 22] = [
    "Description",
    "Type",
    "Format",
    "Title",
    "Maximum",
    "ExclusiveMaximum",
    "Minimum",
    "ExclusiveMinimum",
    "MaxLength",
    "MinLength",
    "Pattern",
    "MaxItems",
    "MinItems",
    "UniqueItems",
    "MultipleOf",
    "Required",
    "Items",
    "Properties",
    "ExternalDocs",
    "Example",
    "XPreserveUnknownFields",
    "XValidations",
];

/// The rules for schemas; an update need not follow those that the old schemas broke.
#[derive(Clone, Debug)]
pub struct SchemaRules {
    valid_types: bool,
    structural: bool,
    pruned_defaults: bool,
    atomic_sets: bool,
    map_keys: bool,
}

impl SchemaRules {
    pub fn strict() -> Self {
        Self {
            valid_types: true,
            structural: true,
            pruned_defaults: true,
            atomic_sets: true,
            map_keys: true,
        }
    }

    /// The rules that all of these schemas satisfy.
    pub fn no_stricter_than(schemas: &[JsonSchemaProps]) -> Self {
        let all = |holds: &mut dyn FnMut(&JsonSchemaProps) -> bool| {
            !schemas
                .iter()
                .any(|schema| schema.any(&mut |one| !holds(one)))
        };
        let root = Path::default();
        Self {
            valid_types: all(&mut |one| one.kind.is_empty() || TYPES.contains(&one.kind.as_str())),
            structural: schemas.iter().all(|one| {
                structural::conversion_error(one).is_none()
                    && structural::validate(&root, one).is_empty()
            }),
            pruned_defaults: schemas.iter().all(defaults::are_pruned),
            atomic_sets: all(&mut |one| set_problem(one, &LazyPath::EMPTY).is_none()),
            map_keys: all(&mut |one| map_key_problems(one, &LazyPath::EMPTY).is_empty()),
        }
    }

    /// Pruning, defaults and extensions of Kubernetes work on structural schemas only.
    pub fn tighten(&mut self, schemas: &[Option<JsonSchemaProps>], preserve: bool) {
        let extended = |one: &JsonSchemaProps| {
            let lists =
                one.list_type.is_some() || !one.list_map_keys.is_empty() || !one.rules.is_empty();
            one.default.is_some()
                || one.embedded
                || one.preserve_unknown.is_some()
                || one.int_or_string
                || lists
        };
        self.structural |= !preserve
            || schemas
                .iter()
                .flatten()
                .any(|schema| schema.any(&mut |one| extended(one)));
    }
}

/// Checks the `schema` of a version (`tree`), in which `schema` is the OpenAPI schema.
pub fn validation(
    errors: &mut ErrorList,
    tree: Option<&Value>,
    schema: Option<&JsonSchemaProps>,
    has_status: bool,
    rules: &SchemaRules,
    path: &Path,
) {
    let (Some(tree), Some(schema)) = (tree.and_then(|tree| tree.field("openAPIV3Schema")), schema)
    else {
        return;
    };
    let before = errors.len();
    if has_status {
        status_root(errors, tree, schema, path);
    }
    if schema.nullable {
        errors.forbidden(
            &path.child("openAPIV3Schema.nullable"),
            "nullable cannot be true at the root",
        );
    }
    let root = path.child("openAPIV3Schema");
    let mut late = None;
    if rules.structural {
        if let Some(why) = structural::conversion_error(schema) {
            late = Some(FieldError::invalid(&root, "", why));
        } else {
            let found = structural::validate(&root, schema);
            if found.is_empty() {
                errors.extend(defaults::validate(&root, schema, rules.pruned_defaults));
            }
            errors.extend(found);
        }
    }
    let walk = SchemaWalk {
        rules,
        defaults: None,
        in_meta: false,
        converts: structural::conversion_error(schema).is_none(),
    };
    walk.schema(errors, schema, &LazyPath::Root(root.as_str()), true);
    if errors.len() == before {
        if rules.structural && late.is_none() {
            run_blocking(|| cel_rules::validate(errors, schema, &root));
        }
        errors.extend(late);
    }
}

/// Only fields that survive the extraction of the status schema are allowed at the root.
fn status_root(errors: &mut ErrorList, tree: &Value, schema: &JsonSchemaProps, path: &Path) {
    for field in go_format::set_fields(tree) {
        if field == "Type" {
            if schema.kind != "object" {
                let why = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
                errors.invalid(
                    &path.child("openAPIV3Schema.type"),
                    schema.kind.as_str(),
                    why,
                );
                return;
            }
        } else if !ALLOWED_AT_ROOT.contains(&field.as_str()) {
            let why = format!(
                "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
                ALLOWED_AT_ROOT.join(" ")
            );
            errors.invalid(&path.child("openAPIV3Schema"), go_format::schema(tree), why);
            return;
        }
    }
}

/// The way down a schema.
#[derive(Clone, Copy)]
struct SchemaWalk<'a> {
    rules: &'a SchemaRules,
    /// The reason why there may be no defaults; `None` where there may.
    defaults: Option<&'static str>,
    /// Inside of the type or metadata of a resource.
    in_meta: bool,
    /// The whole schema can be read as a structural one.
    converts: bool,
}

impl SchemaWalk<'_> {
    fn schema(
        &self,
        errors: &mut ErrorList,
        schema: &JsonSchemaProps,
        path: &LazyPath<'_>,
        is_root: bool,
    ) {
        if errors.is_full() {
            return;
        }
        self.fields(errors, schema, path);
        self.below(errors, schema, path, is_root);
        self.extensions(errors, schema, path);
        rules(errors, schema, self.converts, path);
    }

    fn fields(&self, errors: &mut ErrorList, schema: &JsonSchemaProps, path: &LazyPath<'_>) {
        if self.rules.valid_types
            && !schema.kind.is_empty()
            && !TYPES.contains(&schema.kind.as_str())
        {
            errors.not_supported(&path.child("type"), schema.kind.as_str(), &TYPES);
        }
        if let (Some(_), Some(why)) = (&schema.default, self.defaults) {
            errors.forbidden(&path.child("default"), format!("must not be set {why}"));
        }
        for field in [
            "id",
            "additionalItems",
            "patternProperties",
            "definitions",
            "dependencies",
            "$ref",
        ] {
            if schema.unsupported.contains(&field) {
                errors.forbidden(&path.child(field), format!("{field} is not supported"));
            }
        }
        if schema.kind == "null" {
            errors.forbidden(
                &path.child("type"),
                "type cannot be set to null, use nullable as an alternative",
            );
        }
        if schema.items_list {
            errors.forbidden(
                &path.child("items"),
                "items must be a schema object and not an array",
            );
        }
        if self.in_meta && schema.embedded {
            let why = "must not be used inside of resource meta";
            errors.forbidden(&path.child("x-kubernetes-embedded-resource"), why);
        }
        if schema.values.unique_items {
            let why =
                "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            errors.forbidden(&path.child("uniqueItems"), why);
        }
    }

    fn below(
        &self,
        errors: &mut ErrorList,
        schema: &JsonSchemaProps,
        path: &LazyPath<'_>,
        is_root: bool,
    ) {
        if let Some(additional) = &schema.additional {
            let place = LazyPath::Field(path, "additionalProperties");
            if !schema.properties.is_empty() && (!additional.allows || additional.schema.is_some())
            {
                errors.forbidden(
                    &place.path(),
                    "additionalProperties and properties are mutual exclusive",
                );
            }
            let mut walk = *self;
            if self.in_meta {
                walk.defaults = Some("inside additionalProperties applying to object metadata");
            }
            if let Some(below) = &additional.schema {
                walk.schema(errors, below, &place, false);
            }
        }
        let properties = LazyPath::Field(path, "properties");
        for (name, property) in &schema.properties {
            let mut walk = *self;
            let top = match name.as_str() {
                "metadata" => Some("in top-level metadata"),
                "kind" => Some("in top-level kind"),
                "apiVersion" => Some("in top-level apiVersion"),
                _ => None,
            };
            if (is_root || schema.embedded) && top.is_some() {
                walk.in_meta = true;
                if is_root {
                    walk.defaults = top;
                }
            }
            walk.schema(errors, property, &LazyPath::Key(&properties, name), false);
        }
        if let Some(not) = &schema.not {
            self.schema(errors, not, &LazyPath::Field(path, "not"), false);
        }
        for (list, name) in [
            (&schema.all_of, "allOf"),
            (&schema.one_of, "oneOf"),
            (&schema.any_of, "anyOf"),
        ] {
            let place = LazyPath::Field(path, name);
            for (index, one) in list.iter().enumerate() {
                self.schema(errors, one, &LazyPath::Index(&place, index), false);
            }
        }
        if let Some(items) = &schema.items {
            self.schema(errors, items, &LazyPath::Field(path, "items"), false);
        }
        for (field, key, one) in &schema.elsewhere {
            let place = LazyPath::Field(path, field);
            let place = key.as_ref().map_or(place, |key| LazyPath::Key(&place, key));
            self.schema(errors, one, &place, false);
        }
    }

    fn extensions(&self, errors: &mut ErrorList, schema: &JsonSchemaProps, path: &LazyPath<'_>) {
        if schema.preserve_unknown == Some(false) {
            errors.invalid(
                &path.child("x-kubernetes-preserve-unknown-fields"),
                false,
                "must be true or undefined",
            );
        }
        if let Some(given) = &schema.map_type {
            must_be(
                errors,
                schema,
                "object",
                "must be object if x-kubernetes-map-type is specified",
                path,
            );
            if !MAP_TYPES.contains(&given.as_str()) {
                errors.not_supported(
                    &path.child("x-kubernetes-map-type"),
                    given.as_str(),
                    &MAP_TYPES,
                );
            }
        }
        if let Some(given) = &schema.list_type {
            if schema.kind != "array" {
                must_be(
                    errors,
                    schema,
                    "array",
                    "must be array if x-kubernetes-list-type is specified",
                    path,
                );
            } else if self.rules.atomic_sets {
                errors.extend(set_problem(schema, path));
            }
            if !LIST_TYPES.contains(&given.as_str()) {
                errors.not_supported(
                    &path.child("x-kubernetes-list-type"),
                    given.as_str(),
                    &LIST_TYPES,
                );
            }
        }
        if !schema.list_map_keys.is_empty() && !schema.is_list_type("map") {
            let (place, why) = (
                path.child("x-kubernetes-list-type"),
                "must be map if x-kubernetes-list-map-keys is non-empty",
            );
            errors.push(match &schema.list_type {
                None => FieldError::required(&place, why),
                Some(given) => FieldError::invalid(&place, given.as_str(), why),
            });
        }
        if schema.is_list_type("map") {
            list_map(errors, schema, path);
        }
        if self.rules.map_keys {
            errors.extend(map_key_problems(schema, path));
        }
    }
}

fn must_be(
    errors: &mut ErrorList,
    schema: &JsonSchemaProps,
    kind: &str,
    why: &str,
    path: &LazyPath<'_>,
) {
    match schema.kind.as_str() {
        given if given == kind => {}
        "" => errors.required(&path.child("type"), why),
        given => errors.invalid(&path.child("type"), given, why),
    }
}

/// The items of a set are owned whole.
fn set_problem(schema: &JsonSchemaProps, path: &LazyPath<'_>) -> Option<FieldError> {
    let items = schema
        .items
        .as_deref()
        .filter(|_| schema.is_list_type("set"))?;
    let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let shown = items.list_type.as_deref().map_or(Value::Null, Value::from);
    match items.kind.as_str() {
        "array"
            if items
                .list_type
                .as_deref()
                .is_some_and(|given| given != "atomic") =>
        {
            Some(FieldError::invalid(
                &path.child("items").child("x-kubernetes-list-type"),
                shown,
                why,
            ))
        }
        "object" if items.map_type.as_deref() != Some("atomic") => Some(FieldError::invalid(
            &path.child("items").child("x-kubernetes-map-type"),
            shown,
            why,
        )),
        _ => None,
    }
}

fn list_map(errors: &mut ErrorList, schema: &JsonSchemaProps, path: &LazyPath<'_>) {
    let keys_path = || path.child("x-kubernetes-list-map-keys");
    if schema.list_map_keys.is_empty() {
        errors.required(
            &keys_path(),
            "must not be empty if x-kubernetes-list-type is map",
        );
    }
    let Some(items) = schema.items.as_deref() else {
        if !schema.items_list {
            errors.required(
                &path.child("items"),
                "must have a schema if x-kubernetes-list-type is map",
            );
        }
        return;
    };
    if items.kind != "object" {
        let why = "must be object if parent array's x-kubernetes-list-type is map";
        errors.invalid(&path.child("items").child("type"), items.kind.as_str(), why);
        return;
    }
    let shown = || Value::from(schema.list_map_keys.as_slice());
    let mut seen = HashSet::new();
    for key in &schema.list_map_keys {
        if errors.is_full() {
            return;
        }
        match items.properties.get(key) {
            None => errors.invalid(
                &keys_path(),
                shown(),
                "entries must all be names of item properties",
            ),
            Some(property) if matches!(property.kind.as_str(), "array" | "object") => {
                let place = path
                    .child("items")
                    .child("properties")
                    .key(key)
                    .child("type");
                let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                errors.invalid(&place, items.kind.as_str(), why);
            }
            Some(_) => {}
        }
        if !seen.insert(key) {
            errors.invalid(&keys_path(), shown(), "must not contain duplicate entries");
        }
    }
}

/// Keys are there in every item, and items are there at all.
fn map_key_problems(schema: &JsonSchemaProps, path: &LazyPath<'_>) -> ErrorList {
    let Some(items) = schema.items.as_deref() else {
        return ErrorList::new();
    };
    let Some(list_type) = schema
        .list_type
        .as_deref()
        .filter(|given| matches!(*given, "set" | "map"))
    else {
        return ErrorList::new();
    };
    let mut errors = ErrorList::new();
    if items.nullable {
        let why = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.forbidden(&path.child("items").child("nullable"), why);
    }
    let required: HashSet<&String> = items.values.required.iter().collect();
    for key in schema.list_map_keys.iter().filter(|_| list_type == "map") {
        if errors.is_full() {
            break;
        }
        let Some(property) = items.properties.get(key) else {
            continue;
        };
        let place = || path.child("items").child("properties").key(key);
        if !required.contains(key) && property.default.is_none() {
            let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.required(&place().child("default"), why);
        }
        if property.nullable {
            let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.forbidden(&place().child("nullable"), why);
        }
    }
    errors
}

/// Checks the form of `x-kubernetes-validations`. `converts`: the schema can be read as a
/// structural one; without it that is looked at.
fn rules(errors: &mut ErrorList, schema: &JsonSchemaProps, converts: bool, path: &LazyPath<'_>) {
    let has_newline = |text: &str| text.contains(['\n', '\r']);
    let field_paths = schema.rules.iter().any(|rule| !rule.field_path.is_empty());
    let converts = converts || (field_paths && structural::conversion_error(schema).is_none());
    let list = LazyPath::Field(path, "x-kubernetes-validations");
    for (index, rule) in schema.rules.iter().enumerate() {
        if errors.is_full() {
            return;
        }
        let place = LazyPath::Index(&list, index);
        let (text, message) = (rule.rule.trim(), rule.message.trim());
        if text.is_empty() {
            errors.required(&place.child("rule"), "rule is not specified");
        } else if !rule.message.is_empty() && message.is_empty() {
            errors.invalid(
                &place.child("message"),
                rule.message.as_str(),
                "must be non-empty if specified",
            );
        } else if has_newline(message) {
            errors.invalid(
                &place.child("message"),
                rule.message.as_str(),
                "must not contain line breaks",
            );
        } else if has_newline(text) && message.is_empty() {
            let why = "message must be specified if rule contains line breaks";
            errors.required(&place.child("message"), why);
        }
        if !rule.message_expression.is_empty() && rule.message_expression.trim().is_empty() {
            let why = "messageExpression must be non-empty if specified";
            errors.required(&place.child("messageExpression"), why);
        }
        if let Some(reason) = rule
            .reason
            .as_deref()
            .filter(|reason| !REASONS.contains(reason))
        {
            errors.not_supported(&place.child("reason"), reason, &REASONS);
        }
        if !rule.field_path.is_empty() {
            let mut refuse = |why: &str| {
                errors.invalid(&place.child("fieldPath"), rule.field_path.as_str(), why)
            };
            if rule.field_path.trim().is_empty() {
                refuse("must be non-empty if specified");
            }
            if has_newline(&rule.field_path) {
                refuse("must not contain line breaks");
            }
            if converts && field_path::resolve(&rule.field_path, schema, true).is_err() {
                refuse("must be a valid path");
            }
        }
    }
}
