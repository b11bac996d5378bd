//! Parts of a definition as errors show them: upstream prints its internal types with all their
//! fields.

use crate::extensions::schema::validation_rule::Rule;
use crate::meta::{Map, Value, json};
use crate::registry::validation::Fields;

/// `spec.versions`, without what all versions share.
pub fn versions(
    list: Option<&Value>,
    hoisted: &crate::extensions::definition::validation::Hoisted,
) -> Value {
    let Some(Value::Array(list)) = list else {
        return Value::Null;
    };
    list.iter()
        .map(|one| {
            let unless = |hoisted: bool, value: Value| if hoisted { Value::Null } else { value };
            let schema = one
                .field("schema")
                .map_or(Value::Null, |one| json!({"OpenAPIV3Schema": one.field("openAPIV3Schema").map_or(Value::Null, schema)}));
            json!({
                "Name": one.str("name"),
                "Served": one.flag("served"),
                "Storage": one.flag("storage"),
                "Deprecated": one.flag("deprecated"),
                "DeprecationWarning": one.field("deprecationWarning"),
                "Schema": unless(hoisted.schema, schema),
                "Subresources": unless(hoisted.subresources, one.field("subresources").map_or(Value::Null, subresources)),
                "AdditionalPrinterColumns": unless(hoisted.columns, columns(one)),
                "SelectableFields": unless(hoisted.selectable, selectable(one)),
            })
        })
        .collect()
}

fn subresources(tree: &Value) -> Value {
    let scale = tree.field("scale").map(|scale| {
        json!({
            "SpecReplicasPath": scale.str("specReplicasPath"),
            "StatusReplicasPath": scale.str("statusReplicasPath"),
            "LabelSelectorPath": scale.field("labelSelectorPath"),
        })
    });
    json!({"Status": tree.field("status").map(|_| json!({})), "Scale": scale})
}

fn columns(version: &Value) -> Value {
    let list = version.list("additionalPrinterColumns");
    if list.is_empty() {
        return Value::Null;
    }
    list.iter()
        .map(|one| {
            json!({
                "Name": one.str("name"),
                "Type": one.str("type"),
                "Format": one.str("format"),
                "Description": one.str("description"),
                "Priority": one.int("priority").unwrap_or(0),
                "JSONPath": one.str("jsonPath"),
            })
        })
        .collect()
}

fn selectable(version: &Value) -> Value {
    let list = version.list("selectableFields");
    if list.is_empty() {
        Value::Null
    } else {
        list.iter()
            .map(|one| json!({"JSONPath": one.str("jsonPath")}))
            .collect()
    }
}

/// A JSONSchemaProps.
pub fn schema(tree: &Value) -> Value {
    let text = |key: &str| Value::from(tree.str(key));
    let flag = |key: &str| Value::from(tree.flag(key));
    let any = |key: &str| tree.field(key).cloned().unwrap_or_default();
    let list = |key: &str| match tree.list(key) {
        [] => Value::Null,
        list => list.iter().map(schema).collect(),
    };
    let map = |key: &str| match tree.map(key) {
        None => Value::Null,
        Some(map) => Value::Object(
            map.iter()
                .map(|(name, one)| (name.clone(), schema(one)))
                .collect(),
        ),
    };
    let one = |key: &str| tree.field(key).map_or(Value::Null, schema);
    let or_bool = |key: &str| match tree.field(key) {
        None => Value::Null,
        Some(Value::Bool(allows)) => json!({"Allows": allows, "Schema": null}),
        Some(other) => json!({"Allows": true, "Schema": schema(other)}),
    };
    let items = match tree.field("items") {
        None => Value::Null,
        Some(Value::Array(list)) => {
            json!({"Schema": null, "JSONSchemas": list.iter().map(schema).collect::<Value>()})
        }
        Some(other) => json!({"Schema": schema(other), "JSONSchemas": null}),
    };
    let rules = match tree.list("x-kubernetes-validations") {
        [] => Value::Null,
        list => list.iter().map(|one| Rule::read(one).shown()).collect(),
    };
    let docs = tree
        .field("externalDocs")
        .map(|docs| json!({"Description": docs.str("description"), "URL": docs.str("url")}));
    let fields: Vec<(&str, Value)> = vec![
        ("ID", text("id")),
        ("Schema", text("$schema")),
        ("Ref", any("$ref")),
        ("Description", text("description")),
        ("Type", text("type")),
        ("Nullable", flag("nullable")),
        ("Format", text("format")),
        ("Title", text("title")),
        ("Default", any("default")),
        ("Maximum", any("maximum")),
        ("ExclusiveMaximum", flag("exclusiveMaximum")),
        ("Minimum", any("minimum")),
        ("ExclusiveMinimum", flag("exclusiveMinimum")),
        ("MaxLength", any("maxLength")),
        ("MinLength", any("minLength")),
        ("Pattern", text("pattern")),
        ("MaxItems", any("maxItems")),
        ("MinItems", any("minItems")),
        ("UniqueItems", flag("uniqueItems")),
        ("MultipleOf", any("multipleOf")),
        ("Enum", any("enum")),
        ("MaxProperties", any("maxProperties")),
        ("MinProperties", any("minProperties")),
        ("Required", any("required")),
        ("Items", items),
        ("AllOf", list("allOf")),
        ("OneOf", list("oneOf")),
        ("AnyOf", list("anyOf")),
        ("Not", one("not")),
        ("Properties", map("properties")),
        ("AdditionalProperties", or_bool("additionalProperties")),
        ("PatternProperties", map("patternProperties")),
        ("Dependencies", any("dependencies")),
        ("AdditionalItems", or_bool("additionalItems")),
        ("Definitions", map("definitions")),
        ("ExternalDocs", docs.unwrap_or_default()),
        ("Example", any("example")),
        (
            "XPreserveUnknownFields",
            any("x-kubernetes-preserve-unknown-fields"),
        ),
        ("XEmbeddedResource", flag("x-kubernetes-embedded-resource")),
        ("XIntOrString", flag("x-kubernetes-int-or-string")),
        ("XListMapKeys", any("x-kubernetes-list-map-keys")),
        ("XListType", any("x-kubernetes-list-type")),
        ("XMapType", any("x-kubernetes-map-type")),
        ("XValidations", rules),
    ];
    Value::Object(
        fields
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect::<Map>(),
    )
}

/// The fields of a schema that are set, by the names of the internal type, in its order.
pub fn set_fields(tree: &Value) -> Vec<String> {
    let Value::Object(fields) = schema(tree) else {
        return Vec::new();
    };
    let is_zero = |value: &Value| {
        value.is_null() || value == &Value::Bool(false) || value.as_str() == Some("")
    };
    fields
        .into_iter()
        .filter(|(_, value)| !is_zero(value))
        .map(|(key, _)| key.into())
        .collect()
}
