//! The form of an OpenAPI v2 document, for those that other servers send: what is not part of it is
//! left out, and what is of another type is refused, so that no server spoils the document of all.

use crate::meta::{Map, Value};

/// The form of a value.
enum Form {
    Text,
    Bool,
    Number,
    /// Anything that JSON can say.
    Any,
    /// A text or a list of texts.
    TypeName,
    List(&'static Form),
    /// Values by name.
    Named(&'static Form),
    Message(&'static [(&'static str, Form)]),
    One(&'static Form),
    /// One, or a list of them.
    OneOrMore(&'static Form),
    /// One, or a boolean.
    OrBool(&'static Form),
}

use Form::{Any, Bool, List, Message, Named, Number, One, OneOrMore, OrBool, Text, TypeName};

static TEXTS: Form = List(&Text);

static DOCUMENT: Form = Message(&[
    ("swagger", Text),
    ("info", One(&INFO)),
    ("paths", Named(&PATH_ITEM)),
    ("definitions", Named(&SCHEMA)),
    ("parameters", Named(&PARAMETER)),
    ("responses", Named(&RESPONSE)),
]);

static INFO: Form = Message(&[("title", Text), ("description", Text), ("version", Text)]);

static PATH_ITEM: Form = Message(&[
    ("get", One(&OPERATION)),
    ("put", One(&OPERATION)),
    ("post", One(&OPERATION)),
    ("delete", One(&OPERATION)),
    ("options", One(&OPERATION)),
    ("head", One(&OPERATION)),
    ("patch", One(&OPERATION)),
    ("parameters", List(&PARAMETER)),
]);

static OPERATION: Form = Message(&[
    ("description", Text),
    ("summary", Text),
    ("operationId", Text),
    ("deprecated", Bool),
    ("tags", List(&Text)),
    ("consumes", List(&Text)),
    ("produces", List(&Text)),
    ("schemes", List(&Text)),
    ("parameters", List(&PARAMETER)),
    ("responses", Named(&RESPONSE)),
]);

static PARAMETER: Form = Message(&[
    ("$ref", Text),
    ("name", Text),
    ("in", Text),
    ("description", Text),
    ("required", Bool),
    ("type", Text),
    ("format", Text),
    ("pattern", Text),
    ("uniqueItems", Bool),
    ("allowEmptyValue", Bool),
    ("default", Any),
    ("enum", List(&Any)),
    ("items", Any),
    ("schema", One(&SCHEMA)),
]);

static RESPONSE: Form = Message(&[
    ("$ref", Text),
    ("description", Text),
    ("schema", One(&SCHEMA)),
]);

static SCHEMA: Form = Message(&[
    ("$ref", Text),
    ("description", Text),
    ("title", Text),
    ("type", TypeName),
    ("format", Text),
    ("pattern", Text),
    ("nullable", Bool),
    ("default", Any),
    ("example", Any),
    ("enum", List(&Any)),
    ("maximum", Number),
    ("exclusiveMaximum", Bool),
    ("minimum", Number),
    ("exclusiveMinimum", Bool),
    ("multipleOf", Number),
    ("maxLength", Number),
    ("minLength", Number),
    ("maxItems", Number),
    ("minItems", Number),
    ("uniqueItems", Bool),
    ("maxProperties", Number),
    ("minProperties", Number),
    ("required", List(&Text)),
    ("items", OneOrMore(&SCHEMA)),
    ("allOf", List(&SCHEMA)),
    ("oneOf", List(&SCHEMA)),
    ("anyOf", List(&SCHEMA)),
    ("not", One(&SCHEMA)),
    ("properties", Named(&SCHEMA)),
    ("additionalProperties", OrBool(&SCHEMA)),
]);

/// Brings a document into form.
///
/// # Errors
/// The place of what is of another type than it should be.
pub fn document(document: Value) -> Result<Value, String> {
    conform(document, &DOCUMENT).ok_or_else(|| "the document is not OpenAPI v2".to_owned())
}

fn conform(value: Value, form: &Form) -> Option<Value> {
    match (form, value) {
        (Any, value) => Some(value),
        (Text, value @ Value::String(_))
        | (Bool | OrBool(_), value @ Value::Bool(_))
        | (Number, value @ Value::Number(_))
        | (TypeName, value @ Value::String(_)) => Some(value),
        (TypeName, value) => conform(value, &TEXTS),
        (List(form) | OneOrMore(form), Value::Array(items)) => {
            let items = items.into_iter().map(|item| conform(item, form));
            items.collect::<Option<Vec<_>>>().map(Value::Array)
        }
        (One(form) | OneOrMore(form) | OrBool(form), value) => conform(value, form),
        (Named(form), Value::Object(map)) => {
            let mut out = Map::with_capacity(map.len());
            for (key, value) in map {
                let value = match is_extension(&key) {
                    true => value,
                    false => conform(value, form)?,
                };
                out.append(key, value);
            }
            Some(Value::Object(out))
        }
        (Message(fields), Value::Object(map)) => {
            let mut out = Map::with_capacity(map.len());
            for (key, value) in map {
                let field = fields.iter().find(|(name, _)| *name == &*key);
                match field {
                    Some((_, form)) => out.append(key, conform(value, form)?),
                    None if is_extension(&key) => out.append(key, value),
                    None => {}
                }
            }
            Some(Value::Object(out))
        }
        _ => None,
    }
}

fn is_extension(key: &str) -> bool {
    key.starts_with("x-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    #[test]
    fn documents_lose_what_is_not_theirs() {
        let schema = json!({
            "type": ["string", "null"], "x-mine": 1, "evil": 1, "additionalProperties": false,
            "items": [{"type": "string", "odd": 2}], "properties": {"$ref": {"type": "string"}},
        });
        let read =
            document(json!({"swagger": "2.0", "host": "evil", "definitions": {"a": schema}}));
        let want = json!({
            "type": ["string", "null"], "x-mine": 1, "additionalProperties": false,
            "items": [{"type": "string"}], "properties": {"$ref": {"type": "string"}},
        });
        assert_eq!(
            read,
            Ok(json!({"swagger": "2.0", "definitions": {"a": want}}))
        );
    }

    #[test]
    fn documents_of_another_form_are_refused() {
        for odd in [
            json!([]),
            json!({"paths": {"/a": 7}}),
            json!({"paths": {"/a": {"get": {"parameters": {"a": 1}}}}}),
            json!({"definitions": {"a": {"properties": {"b": true}}}}),
            json!({"definitions": {"a": {"type": [1]}}}),
        ] {
            assert!(document(odd.clone()).is_err(), "{odd}");
        }
    }
}
