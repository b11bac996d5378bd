//! Parts of a definition as error messages show them: upstream prints its internal types with all
//! their fields.

use crate::extensions::schema::validation_rule::ValidationRule;
use crate::meta::{Map, Value, json};
use crate::registry::validation::Fields;

/// `spec.versions`, without what all versions share.
pub fn versions(
    list: Option<&Value>,
    hoisted: &crate::extensions::definition::validation::SharedVersionFields,
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

/// The fields of JSONSchemaProps in the order of the internal type: JSON name, Go name and form.
const SCHEMA_FIELDS: [(&str, &str, Form); 44] = [
    ("id", "ID", Form::Text),
    ("$schema", "Schema", Form::Text),
    ("$ref", "Ref", Form::Any),
    ("description", "Description", Form::Text),
    ("type", "Type", Form::Text),
    ("nullable", "Nullable", Form::Flag),
    ("format", "Format", Form::Text),
    ("title", "Title", Form::Text),
    ("default", "Default", Form::Any),
    ("maximum", "Maximum", Form::Any),
    ("exclusiveMaximum", "ExclusiveMaximum", Form::Flag),
    ("minimum", "Minimum", Form::Any),
    ("exclusiveMinimum", "ExclusiveMinimum", Form::Flag),
    ("maxLength", "MaxLength", Form::Any),
    ("minLength", "MinLength", Form::Any),
    ("pattern", "Pattern", Form::Text),
    ("maxItems", "MaxItems", Form::Any),
    ("minItems", "MinItems", Form::Any),
    ("uniqueItems", "UniqueItems", Form::Flag),
    ("multipleOf", "MultipleOf", Form::Any),
    ("enum", "Enum", Form::Any),
    ("maxProperties", "MaxProperties", Form::Any),
    ("minProperties", "MinProperties", Form::Any),
    ("required", "Required", Form::Any),
    ("items", "Items", Form::SchemaOrArray),
    ("allOf", "AllOf", Form::Schemas),
    ("oneOf", "OneOf", Form::Schemas),
    ("anyOf", "AnyOf", Form::Schemas),
    ("not", "Not", Form::Schema),
    ("properties", "Properties", Form::SchemaMap),
    (
        "additionalProperties",
        "AdditionalProperties",
        Form::SchemaOrBool,
    ),
    ("patternProperties", "PatternProperties", Form::SchemaMap),
    ("dependencies", "Dependencies", Form::Any),
    ("additionalItems", "AdditionalItems", Form::SchemaOrBool),
    ("definitions", "Definitions", Form::SchemaMap),
    ("externalDocs", "ExternalDocs", Form::Docs),
    ("example", "Example", Form::Any),
    (
        "x-kubernetes-preserve-unknown-fields",
        "XPreserveUnknownFields",
        Form::Any,
    ),
    (
        "x-kubernetes-embedded-resource",
        "XEmbeddedResource",
        Form::Flag,
    ),
    ("x-kubernetes-int-or-string", "XIntOrString", Form::Flag),
    ("x-kubernetes-list-map-keys", "XListMapKeys", Form::Any),
    ("x-kubernetes-list-type", "XListType", Form::Any),
    ("x-kubernetes-map-type", "XMapType", Form::Any),
    ("x-kubernetes-validations", "XValidations", Form::Rules),
];

/// The form of a field in Go.
#[derive(Clone, Copy)]
enum Form {
    /// A string, empty where the field is absent.
    Text,
    /// A bool, false where the field is absent.
    Flag,
    /// A pointer, a list or any JSON.
    Any,
    Schema,
    Schemas,
    SchemaMap,
    SchemaOrBool,
    SchemaOrArray,
    Docs,
    Rules,
}

/// Returns a JSONSchemaProps as Go prints it.
pub fn schema(tree: &Value) -> Value {
    let fields = SCHEMA_FIELDS.into_iter();
    let fields: Map = fields
        .map(|(key, name, form)| (name.to_owned(), schema_field(tree, key, form)))
        .collect();
    Value::Object(fields)
}

fn schema_field(tree: &Value, key: &str, form: Form) -> Value {
    let or_null = |show: fn(&Value) -> Value| tree.field(key).map_or(Value::Null, show);
    match form {
        Form::Text => tree.str(key).into(),
        Form::Flag => tree.flag(key).into(),
        Form::Any => tree.field(key).cloned().unwrap_or_default(),
        Form::Schema => or_null(schema),
        Form::Schemas => match tree.list(key) {
            [] => Value::Null,
            list => list.iter().map(schema).collect(),
        },
        Form::SchemaMap => match tree.map(key) {
            None => Value::Null,
            Some(map) => {
                let shown = map.iter().map(|(name, one)| (name.clone(), schema(one)));
                Value::Object(shown.collect())
            }
        },
        Form::SchemaOrBool => or_null(|one| match one {
            Value::Bool(allows) => json!({"Allows": allows, "Schema": null}),
            other => json!({"Allows": true, "Schema": schema(other)}),
        }),
        Form::SchemaOrArray => or_null(|one| match one {
            Value::Array(list) => {
                json!({"Schema": null, "JSONSchemas": list.iter().map(schema).collect::<Value>()})
            }
            other => json!({"Schema": schema(other), "JSONSchemas": null}),
        }),
        Form::Docs => {
            or_null(|docs| json!({"Description": docs.str("description"), "URL": docs.str("url")}))
        }
        Form::Rules => match tree.list(key) {
            [] => Value::Null,
            list => {
                let rules = list.iter().map(|one| ValidationRule::read(one).go_value());
                rules.collect()
            }
        },
    }
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
