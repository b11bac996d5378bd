//! The schema of a CustomResourceDefinition (JSONSchemaProps), parsed from its tree for validation,
//! pruning and defaulting.

use std::collections::BTreeMap;

use crate::extensions::schema::enumeration::Enumeration;
use crate::extensions::schema::validation_rule::ValidationRule;
use crate::meta::{Map, Value};
use crate::registry::validation::Fields;

/// One node of a schema.
#[derive(Debug, Default, Clone)]
pub struct JsonSchemaProps {
    /// `type`; empty where none is given.
    pub kind: String,
    pub format: String,
    pub title: String,
    pub description: String,
    pub nullable: bool,
    pub default: Option<Value>,
    pub values: ValueValidation,
    pub properties: BTreeMap<String, JsonSchemaProps>,
    /// The properties that have a default.
    pub defaulted: Vec<String>,
    pub additional: Option<AdditionalProperties>,
    pub items: Option<Box<JsonSchemaProps>>,
    /// `items` was a list of schemas, which is not supported.
    pub items_list: bool,
    pub all_of: Vec<JsonSchemaProps>,
    pub any_of: Vec<JsonSchemaProps>,
    pub one_of: Vec<JsonSchemaProps>,
    pub not: Option<Box<JsonSchemaProps>>,
    pub preserve_unknown: Option<bool>,
    pub embedded: bool,
    pub int_or_string: bool,
    pub list_type: Option<String>,
    pub list_map_keys: Vec<String>,
    pub map_type: Option<String>,
    pub rules: Vec<ValidationRule>,
    /// The fields that no structural schema may have, as far as they are set, by their JSON names.
    pub unsupported: Vec<&'static str>,
    /// Schemas inside of unsupported fields, with their paths relative to this node.
    pub elsewhere: Vec<(String, Option<String>, JsonSchemaProps)>,
    /// The tree that this was read from, without the schemas below it.
    pub raw: Map,
}

/// The constraints on a value beyond its type.
#[derive(Debug, Default, Clone)]
pub struct ValueValidation {
    pub maximum: Option<f64>,
    pub exclusive_maximum: bool,
    pub minimum: Option<f64>,
    pub exclusive_minimum: bool,
    pub multiple_of: Option<f64>,
    pub max_length: Option<i64>,
    pub min_length: Option<i64>,
    pub pattern: String,
    pub max_items: Option<i64>,
    pub min_items: Option<i64>,
    pub unique_items: bool,
    pub max_properties: Option<i64>,
    pub min_properties: Option<i64>,
    pub required: Vec<String>,
    pub enumeration: Enumeration,
}

/// `additionalProperties`: a bool or a schema.
#[derive(Debug, Clone)]
pub struct AdditionalProperties {
    pub allows: bool,
    pub schema: Option<Box<JsonSchemaProps>>,
}

/// The fields that are not supported, with their JSON names, in the order in which conversion looks
/// at them.
pub const UNSUPPORTED: [&str; 7] = [
    "id",
    "$schema",
    "$ref",
    "patternProperties",
    "dependencies",
    "additionalItems",
    "definitions",
];

impl JsonSchemaProps {
    /// Reads a schema. Values of wrong types count as absent: the codec has brought the tree into
    /// form before.
    pub fn read(tree: &Value) -> Self {
        let empty = Map::new();
        let tree = tree.as_object().unwrap_or(&empty);
        let nested = |key: &str| tree.list(key).iter().map(Self::read).collect();
        let properties: BTreeMap<String, Self> = tree
            .entries("properties")
            .map(|(name, one)| (name.to_string(), Self::read(one)))
            .collect();
        let (items, items_list) = match tree.field("items") {
            Some(one @ Value::Object(_)) => (Some(Box::new(Self::read(one))), false),
            Some(Value::Array(_)) => (None, true),
            _ => (None, false),
        };
        Self {
            kind: tree.str("type").to_owned(),
            format: tree.str("format").to_owned(),
            title: tree.str("title").to_owned(),
            description: tree.str("description").to_owned(),
            nullable: tree.flag("nullable"),
            default: tree.field("default").cloned(),
            values: ValueValidation::read(tree),
            defaulted: properties
                .iter()
                .filter(|(_, one)| one.default.is_some())
                .map(|(name, _)| name.clone())
                .collect(),
            properties,
            additional: tree
                .field("additionalProperties")
                .map(AdditionalProperties::read),
            items,
            items_list,
            all_of: nested("allOf"),
            any_of: nested("anyOf"),
            one_of: nested("oneOf"),
            not: tree.field("not").map(|one| Box::new(Self::read(one))),
            preserve_unknown: tree.opt_flag("x-kubernetes-preserve-unknown-fields"),
            embedded: tree.flag("x-kubernetes-embedded-resource"),
            int_or_string: tree.flag("x-kubernetes-int-or-string"),
            list_type: tree.opt_str("x-kubernetes-list-type").map(str::to_owned),
            list_map_keys: strings(tree.list("x-kubernetes-list-map-keys")),
            map_type: tree.opt_str("x-kubernetes-map-type").map(str::to_owned),
            rules: tree
                .list("x-kubernetes-validations")
                .iter()
                .map(ValidationRule::read)
                .collect(),
            unsupported: UNSUPPORTED
                .into_iter()
                .filter(|key| is_set(tree, key))
                .collect(),
            elsewhere: elsewhere(tree),
            raw: tree
                .iter()
                .filter(|(key, _)| !BELOW.contains(&key.as_str()))
                .map(|(key, one)| (key.clone(), one.clone()))
                .collect(),
        }
    }

    /// The schema of a text.
    pub fn text() -> Self {
        Self {
            kind: "string".to_owned(),
            ..Self::default()
        }
    }

    /// The schema of an object with some fields.
    pub fn object<const N: usize>(fields: [(&str, Self); N]) -> Self {
        let fields = fields.into_iter();
        Self {
            kind: "object".to_owned(),
            properties: fields.map(|(name, one)| (name.to_owned(), one)).collect(),
            ..Self::default()
        }
    }

    /// Reports whether fields that are not specified stay.
    pub fn preserves(&self) -> bool {
        self.preserve_unknown == Some(true)
    }

    /// The schema of the entry `name` of an object.
    pub fn entry(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or_else(|| {
            self.additional
                .as_ref()
                .and_then(|one| one.schema.as_deref())
        })
    }

    /// The schema of additional properties.
    pub fn additional_schema(&self) -> Option<&Self> {
        self.additional
            .as_ref()
            .and_then(|one| one.schema.as_deref())
    }

    pub fn is_list_type(&self, name: &str) -> bool {
        self.list_type.as_deref() == Some(name)
    }

    /// Reports whether this or any schema below satisfies `holds`.
    pub fn any(&self, holds: &mut dyn FnMut(&Self) -> bool) -> bool {
        holds(self) || self.below().any(|one| one.any(holds))
    }

    /// The schemas directly below, in the order in which upstream's `SchemaHas` visits them.
    fn below(&self) -> impl Iterator<Item = &Self> {
        let items = self.items.as_deref().into_iter();
        let lists = self.all_of.iter().chain(&self.any_of).chain(&self.one_of);
        let rest = self
            .not
            .as_deref()
            .into_iter()
            .chain(self.properties.values())
            .chain(self.additional_schema());
        items
            .chain(lists)
            .chain(rest)
            .chain(self.elsewhere.iter().map(|(_, _, one)| one))
    }

    /// Reads the node as the root of a resource, which is always embedded.
    #[must_use]
    pub fn into_resource(mut self) -> Self {
        self.embedded = true;
        self
    }
}

/// The fields that hold schemas.
const BELOW: [&str; 8] = [
    "properties",
    "additionalProperties",
    "items",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "x-kubernetes-validations",
];

impl AdditionalProperties {
    fn read(tree: &Value) -> Self {
        match tree {
            Value::Bool(allows) => Self {
                allows: *allows,
                schema: None,
            },
            other => Self {
                allows: true,
                schema: Some(Box::new(JsonSchemaProps::read(other))),
            },
        }
    }
}

impl ValueValidation {
    fn read(tree: &Map) -> Self {
        let number = |key: &str| tree.field(key).and_then(Value::as_f64);
        Self {
            maximum: number("maximum"),
            exclusive_maximum: tree.flag("exclusiveMaximum"),
            minimum: number("minimum"),
            exclusive_minimum: tree.flag("exclusiveMinimum"),
            multiple_of: number("multipleOf"),
            max_length: tree.int("maxLength"),
            min_length: tree.int("minLength"),
            pattern: tree.str("pattern").to_owned(),
            max_items: tree.int("maxItems"),
            min_items: tree.int("minItems"),
            unique_items: tree.flag("uniqueItems"),
            max_properties: tree.int("maxProperties"),
            min_properties: tree.int("minProperties"),
            required: strings(tree.list("required")),
            enumeration: Enumeration::new(tree.list("enum")),
        }
    }
}

fn strings(list: &[Value]) -> Vec<String> {
    list.iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

fn is_set(tree: &Map, key: &str) -> bool {
    match tree.field(key) {
        None => false,
        Some(Value::String(text)) => !text.is_empty() || key == "$ref",
        Some(Value::Object(map)) => !map.is_empty() || key == "additionalItems",
        Some(_) => true,
    }
}

/// The schemas in fields that are not supported; their mistakes are reported too.
fn elsewhere(tree: &Map) -> Vec<(String, Option<String>, JsonSchemaProps)> {
    let mut out = Vec::new();
    for field in ["definitions", "patternProperties"] {
        out.extend(tree.entries(field).map(|(key, one)| {
            (
                field.to_owned(),
                Some(key.to_string()),
                JsonSchemaProps::read(one),
            )
        }));
    }
    let schemas = tree
        .entries("dependencies")
        .filter(|(_, one)| one.is_object());
    out.extend(schemas.map(|(key, one)| {
        (
            "dependencies".to_owned(),
            Some(key.to_string()),
            JsonSchemaProps::read(one),
        )
    }));
    if let Some(one @ Value::Object(_)) = tree.field("additionalItems") {
        out.push((
            "additionalItems".to_owned(),
            None,
            JsonSchemaProps::read(one),
        ));
    }
    out
}
