//! The schema of a custom kind as OpenAPI documents publish it (apiextensions
//! `controller/openapi/builder`).

use crate::meta::{Map, Value, json};
use crate::registry::validation::Fields;

/// Fields that are published unchanged, unless they are empty: empty texts and lists, and `false`.
const PLAIN: [&str; 28] = [
    "title",
    "description",
    "type",
    "format",
    "nullable",
    "example",
    "externalDocs",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "multipleOf",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "maxProperties",
    "minProperties",
    "enum",
    "required",
    PRESERVE,
    "x-kubernetes-embedded-resource",
    INT_OR_STRING,
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
];
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const RULES: &str = "x-kubernetes-validations";
const ALTERNATIVES: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// The root of a structural schema. None in OpenAPI v2 where objects may have any field: to
/// kubectl, a schema that lists some fields forbids all others.
pub fn root(schema: &Value, preserve: bool, for_v2: bool) -> Option<Map> {
    let tree = schema.as_object()?;
    let open = preserve || tree.flag(PRESERVE);
    (!(for_v2 && open)).then(|| {
        if for_v2 {
            version2(tree)
        } else {
            version3(tree)
        }
    })
}

fn plain(tree: &Map) -> Map {
    let says_nothing = |one: &Value| match one {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    };
    let kept = PLAIN.iter().filter_map(|key| {
        Some((
            (*key).to_owned(),
            tree.get(key).filter(|one| !says_nothing(one))?.clone(),
        ))
    });
    let rules = tree.list(RULES);
    kept.chain((!rules.is_empty()).then(|| (RULES.to_owned(), rules.to_vec().into())))
        .collect()
}

/// The node with the schemas below it, each as `node` writes it.
fn nested(out: &mut Map, tree: &Map, node: fn(&Map) -> Map) {
    if let Some(Value::Object(items)) = tree.get("items") {
        out.insert("items", node(items).into());
    }
    let properties: Map = tree
        .entries("properties")
        .filter_map(|(name, one)| Some((name.clone(), node(one.as_object()?).into())))
        .collect();
    if !properties.is_empty() {
        out.insert("properties", properties.into());
    }
    match tree.get("additionalProperties") {
        Some(Value::Object(one)) => drop(out.insert("additionalProperties", node(one).into())),
        Some(Value::Bool(allows)) => drop(out.insert("additionalProperties", (*allows).into())),
        _ => {}
    }
}

fn version3(tree: &Map) -> Map {
    let mut out = plain(tree);
    if let Some(default) = tree.get("default").filter(|one| !one.is_null()) {
        out.insert("default", default.clone());
    }
    nested(&mut out, tree, version3);
    for key in ALTERNATIVES {
        let list: Vec<Value> = tree
            .list(key)
            .iter()
            .filter_map(Value::as_object)
            .map(|one| version3(one).into())
            .collect();
        if !list.is_empty() {
            out.insert(key.to_owned(), list.into());
        }
    }
    if let Some(Value::Object(not)) = tree.get("not") {
        out.insert("not", version3(not).into());
    }
    if tree.flag(INT_OR_STRING) {
        unfold(&mut out);
    }
    out
}

/// Spells `x-kubernetes-int-or-string` out as alternatives, unless the schema does so already.
fn unfold(out: &mut Map) {
    let both = json!([{"type": "integer"}, {"type": "string"}]);
    let first = out
        .list("allOf")
        .first()
        .map(|one| one.list("anyOf").to_vec());
    if out.get("anyOf") == Some(&both) || first.as_deref() == both.as_array().map(Vec::as_slice) {
        return;
    }
    if !out.contains_key("anyOf") {
        out.insert("anyOf", both);
        return;
    }
    let mut all = vec![json!({ "anyOf": both })];
    all.extend_from_slice(out.list("allOf"));
    out.insert("allOf", all.into());
}

/// Version 2 has neither alternatives nor null, and kubectl takes what it lists for all there is.
fn version2(tree: &Map) -> Map {
    let nullable = |one: &Value| one.flag("nullable");
    let mut out = plain(tree);
    out.swap_remove("nullable");
    let open = tree.flag(PRESERVE);
    let mut below = tree.clone();
    if tree.flag("nullable") {
        out.swap_remove("type");
    }
    if open || tree.flag("nullable") {
        below.swap_remove("items");
        below.swap_remove("properties");
    }
    if (out.str("type") == "array" && !below.contains_key("items"))
        || (open && out.str("type") == "object")
    {
        out.swap_remove("type");
    }
    let any_nullable = below.get("additionalProperties").is_some_and(nullable);
    if let Some(Value::Array(required)) = out.get_mut("required") {
        required.retain(|name| {
            let property = name
                .as_str()
                .and_then(|name| below.get("properties")?.get(name));
            !any_nullable && !property.is_some_and(nullable)
        });
        if required.is_empty() {
            out.swap_remove("required");
        }
    }
    nested(&mut out, &below, version2);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(schema: &Value) -> [Value; 2] {
        [false, true].map(|for_v2| root(schema, false, for_v2).map_or(Value::Null, Value::Object))
    }

    #[test]
    fn openapi_v3_publishes_all_and_v2_a_subset() {
        let alternatives = json!([{"format": "ipv4"}, {"format": "ipv6"}]);
        let schema = json!({"type": "object", "description": "", "required": [], "properties": {
            "a": {"type": "string", "anyOf": alternatives, "default": "::1", "nullable": false, "pattern": "^x"},
            "n": {"type": "object", "nullable": true, "properties": {"b": {"type": "string"}}},
            "v": {"type": "integer", RULES: [{"rule": "self > 0", "message": "no"}], "enum": [1, 2]},
        }});
        assert_eq!(
            published(&schema),
            [
                json!({"type": "object", "properties": {
                    "a": {"type": "string", "anyOf": alternatives, "default": "::1", "pattern": "^x"},
                    "n": {"type": "object", "nullable": true, "properties": {"b": {"type": "string"}}},
                    "v": {"type": "integer", RULES: [{"rule": "self > 0", "message": "no"}], "enum": [1, 2]}}}),
                json!({"type": "object", "properties": {
                    "a": {"type": "string", "pattern": "^x"},
                    "n": {},
                    "v": {"type": "integer", RULES: [{"rule": "self > 0", "message": "no"}], "enum": [1, 2]}}}),
            ]
        );
    }

    #[test]
    fn int_or_string_becomes_any_of_once() {
        let both = json!([{"type": "integer"}, {"type": "string"}]);
        let of = |tree: Value| root(&tree, false, false).map(Value::Object);
        let spelled = json!({INT_OR_STRING: true, "anyOf": both});
        assert_eq!(of(json!({INT_OR_STRING: true})), Some(spelled.clone()));
        assert_eq!(of(spelled.clone()), Some(spelled));
        let other = json!({INT_OR_STRING: true, "anyOf": [{"pattern": "a"}]});
        assert_eq!(
            of(other),
            Some(
                json!({INT_OR_STRING: true, "anyOf": [{"pattern": "a"}], "allOf": [{"anyOf": both}]})
            )
        );
        let first = json!({INT_OR_STRING: true, "allOf": [{"anyOf": both}]});
        assert_eq!(
            of(first.clone()),
            Some(json!({INT_OR_STRING: true, "allOf": [{"anyOf": both}]}))
        );
        assert_eq!(
            root(&first, false, true),
            Some(Map::from_iter([(INT_OR_STRING.to_owned(), true.into())]))
        );
    }

    #[test]
    fn openapi_v2_allows_preserved_fields() {
        let open =
            json!({"type": "object", PRESERVE: true, "properties": {"a": {"type": "string"}}});
        assert_eq!(root(&open, false, true), None);
        assert_eq!(root(&json!({"type": "object"}), true, true), None);
        assert!(root(&open, true, false).is_some());
        let schema = json!({"type": "object", "required": ["n", "l"], "properties": {
            "n": {"type": "string", "nullable": true},
            "l": {"type": "array", PRESERVE: true, "items": {"type": "string"}},
            "o": open,
            "m": {"type": "object", "required": ["x"], "additionalProperties": {"type": "string", "nullable": true}},
        }});
        assert_eq!(
            root(&schema, false, true).map(Value::Object),
            Some(json!({"type": "object", "required": ["l"], "properties": {
                "n": {},
                "l": {PRESERVE: true},
                "o": {PRESERVE: true},
                "m": {"type": "object", "additionalProperties": {}}}}))
        );
    }
}
