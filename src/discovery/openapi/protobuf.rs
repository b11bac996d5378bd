//! OpenAPI v2 as protobuf (gnostic `openapiv2`), which client-go asks for: the JSON document, field
//! by field. The same is done for [version 3](super::protobuf_v3).

use crate::meta::{Map, Value};
use prost::encoding::{encode_key, encode_varint, wire_type::WireType};

/// The protobuf encoding of the JSON value of a field.
pub enum Encoding {
    Text,
    Texts,
    Bool,
    Integer,
    Number,
    /// A string or a list of strings, in a message with the field 1.
    Type,
    /// Any JSON, as YAML text in a message with the field 2.
    Anything,
    /// A list of any JSON.
    Anythings,
    Message(&'static MessageLayout),
    Messages(&'static MessageLayout),
    /// A message in the field 1 of a wrapper; wrappers of wrappers have more than one number.
    Wrapped(&'static [u32], &'static MessageLayout),
    /// A map as a repeated message of name (1) and value (2), in the given field of a message of
    /// its own.
    Named(u32, &'static Encoding),
    /// The parameters of an operation: the message of each depends on its location.
    Parameters,
    /// `{"name": [..]}` of a security requirement.
    Requirements,
    /// A message with the field 1, or a reference in the field 2.
    OrReference(&'static MessageLayout),
    OrReferences(&'static MessageLayout),
    /// In the given field of a message of its own.
    Within(u32, &'static Encoding),
    /// The number (1), boolean (2) or text (3) of a default.
    DefaultValue,
}

use Encoding::{
    Anything, Anythings, Bool, DefaultValue, Integer, Message, Messages, Named, Number,
    OrReference, OrReferences, Parameters, Requirements, Text, Texts, Type, Within, Wrapped,
};

/// A message: JSON name, number and form of its fields, and the number of its `x-` extensions.
pub struct MessageLayout {
    pub fields: &'static [(&'static str, u32, Encoding)],
    pub extensions: u32,
}

static DOCUMENT: MessageLayout = MessageLayout {
    fields: &[
        ("swagger", 1, Text),
        ("info", 2, Message(&INFO)),
        ("paths", 8, Named(2, &Message(&PATH_ITEM))),
        ("definitions", 9, Named(1, &Message(&SCHEMA))),
        ("security", 12, Requirements),
        (
            "securityDefinitions",
            13,
            Named(1, &Wrapped(&[2], &API_KEY)),
        ),
    ],
    extensions: 16,
};

static INFO: MessageLayout = MessageLayout {
    fields: &[("title", 1, Text), ("version", 2, Text)],
    extensions: 7,
};

static API_KEY: MessageLayout = MessageLayout {
    fields: &[
        ("type", 1, Text),
        ("name", 2, Text),
        ("in", 3, Text),
        ("description", 4, Text),
    ],
    extensions: 5,
};

static PATH_ITEM: MessageLayout = MessageLayout {
    fields: &[
        ("get", 2, Message(&OPERATION)),
        ("put", 3, Message(&OPERATION)),
        ("post", 4, Message(&OPERATION)),
        ("delete", 5, Message(&OPERATION)),
        ("options", 6, Message(&OPERATION)),
        ("head", 7, Message(&OPERATION)),
        ("patch", 8, Message(&OPERATION)),
        ("parameters", 9, Parameters),
    ],
    extensions: 10,
};

static OPERATION: MessageLayout = MessageLayout {
    fields: &[
        ("tags", 1, Texts),
        ("description", 3, Text),
        ("operationId", 5, Text),
        ("produces", 6, Texts),
        ("consumes", 7, Texts),
        ("parameters", 8, Parameters),
        ("responses", 9, Named(1, &Wrapped(&[1], &RESPONSE))),
        ("schemes", 10, Texts),
    ],
    extensions: 13,
};

static RESPONSE: MessageLayout = MessageLayout {
    fields: &[
        ("description", 1, Text),
        ("schema", 2, Wrapped(&[1], &SCHEMA)),
    ],
    extensions: 5,
};

static BODY: MessageLayout = MessageLayout {
    fields: &[
        ("description", 1, Text),
        ("name", 2, Text),
        ("in", 3, Text),
        ("required", 4, Bool),
        ("schema", 5, Message(&SCHEMA)),
    ],
    extensions: 6,
};

static QUERY: MessageLayout = MessageLayout {
    fields: &[
        ("required", 1, Bool),
        ("in", 2, Text),
        ("description", 3, Text),
        ("name", 4, Text),
        ("type", 6, Text),
        ("uniqueItems", 20, Bool),
    ],
    extensions: 23,
};

static PATH: MessageLayout = MessageLayout {
    fields: &[
        ("required", 1, Bool),
        ("in", 2, Text),
        ("description", 3, Text),
        ("name", 4, Text),
        ("type", 5, Text),
        ("uniqueItems", 19, Bool),
    ],
    extensions: 22,
};

static SCHEMA: MessageLayout = MessageLayout {
    fields: &[
        ("$ref", 1, Text),
        ("format", 2, Text),
        ("title", 3, Text),
        ("description", 4, Text),
        ("multipleOf", 6, Number),
        ("maximum", 7, Number),
        ("exclusiveMaximum", 8, Bool),
        ("minimum", 9, Number),
        ("exclusiveMinimum", 10, Bool),
        ("maxLength", 11, Integer),
        ("minLength", 12, Integer),
        ("pattern", 13, Text),
        ("maxItems", 14, Integer),
        ("minItems", 15, Integer),
        ("uniqueItems", 16, Bool),
        ("maxProperties", 17, Integer),
        ("minProperties", 18, Integer),
        ("required", 19, Texts),
        ("enum", 20, Anythings),
        ("additionalProperties", 21, Wrapped(&[1], &SCHEMA)),
        ("type", 22, Type),
        ("items", 23, Wrapped(&[1], &SCHEMA)),
        ("allOf", 24, Messages(&SCHEMA)),
        ("properties", 25, Named(1, &Message(&SCHEMA))),
        ("externalDocs", 29, Message(&EXTERNAL_DOCS)),
        ("example", 30, Anything),
    ],
    extensions: 31,
};

pub static EXTERNAL_DOCS: MessageLayout = MessageLayout {
    fields: &[("description", 1, Text), ("url", 2, Text)],
    extensions: 3,
};

/// The protobuf form of an OpenAPI v2 document.
pub fn document(json: &Value) -> Vec<u8> {
    encode(json, &DOCUMENT)
}

/// The encoding of a document as a message.
pub fn encode(json: &Value, layout: &MessageLayout) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(map) = json.as_object() {
        message(map, layout, &mut out);
    }
    out
}

fn message(map: &Map, shape: &MessageLayout, out: &mut Vec<u8>) {
    for (name, number, form) in shape.fields {
        if let Some(value) = map.get(name) {
            field(value, *number, form, out);
        }
    }
    for (name, value) in map.iter().filter(|(name, _)| name.starts_with("x-")) {
        named(name, value, shape.extensions, &Anything, out);
    }
}

fn field(value: &Value, number: u32, form: &Encoding, out: &mut Vec<u8>) {
    match (form, value) {
        (Text, Value::String(text)) => bytes(number, text.as_bytes(), out),
        (Bool, Value::Bool(true)) => {
            encode_key(number, WireType::Varint, out);
            encode_varint(1, out);
        }
        (Integer, Value::Number(value)) => {
            encode_key(number, WireType::Varint, out);
            // Negative numbers are sign-extended, as int64 is.
            encode_varint(value.as_i64().unwrap_or_default().cast_unsigned(), out);
        }
        (Number, Value::Number(value)) => {
            encode_key(number, WireType::SixtyFourBit, out);
            out.extend(value.as_f64().unwrap_or_default().to_le_bytes());
        }
        (Type, value) => nested(number, out, |out| field(value, 1, &Texts, out)),
        (Texts, Value::String(text)) => bytes(number, text.as_bytes(), out),
        (Texts, Value::Array(list)) => list.iter().for_each(|one| field(one, number, &Text, out)),
        (Anythings, Value::Array(list)) => list.iter().for_each(|one| yaml(one, number, out)),
        (Anything, value) => yaml(value, number, out),
        (Message(shape), Value::Object(map)) => nested(number, out, |out| message(map, shape, out)),
        (Messages(shape), Value::Array(list)) => list
            .iter()
            .for_each(|one| field(one, number, &Message(shape), out)),
        // additionalProperties may be a boolean.
        (Wrapped(..) | Within(..), Value::Bool(allows)) => nested(number, out, |out| {
            encode_key(2, WireType::Varint, out);
            encode_varint(u64::from(*allows), out);
        }),
        (Wrapped(wrappers, shape), value) => {
            nested(number, out, |out| wrapped(value, wrappers, shape, out))
        }
        (Named(inner, form), Value::Object(map)) => nested(number, out, |out| {
            map.iter()
                .for_each(|(name, value)| named(name, value, *inner, form, out));
        }),
        (OrReference(layout), Value::Object(map)) => {
            nested(number, out, |out| match map.get("$ref") {
                Some(Value::String(target)) => {
                    nested(2, out, |out| bytes(1, target.as_bytes(), out))
                }
                _ => nested(1, out, |out| message(map, layout, out)),
            })
        }
        (OrReferences(layout), Value::Array(list)) => list
            .iter()
            .for_each(|one| field(one, number, &OrReference(layout), out)),
        (Within(inner, form), value) => nested(number, out, |out| field(value, *inner, form, out)),
        (DefaultValue, value) => nested(number, out, |out| match value {
            Value::Number(_) => field(value, 1, &Number, out),
            Value::Bool(value) => {
                encode_key(2, WireType::Varint, out);
                encode_varint(u64::from(*value), out);
            }
            value => field(value, 3, &Text, out),
        }),
        (Parameters, Value::Array(list)) => list
            .iter()
            .for_each(|one| nested(number, out, |out| parameter(one, out))),
        (Requirements, Value::Array(list)) => {
            list.iter()
                .filter_map(Value::as_object)
                .for_each(|requirement| {
                    nested(number, out, |out| {
                        requirement
                            .iter()
                            .for_each(|(name, scopes)| named(name, scopes, 1, &Type, out))
                    });
                })
        }
        _ => {}
    }
}

/// A pair of name and value.
fn named(name: &str, value: &Value, number: u32, form: &Encoding, out: &mut Vec<u8>) {
    nested(number, out, |out| {
        bytes(1, name.as_bytes(), out);
        field(value, 2, form, out);
    });
}

fn wrapped(value: &Value, wrappers: &[u32], shape: &'static MessageLayout, out: &mut Vec<u8>) {
    match wrappers {
        [number, rest @ ..] if !rest.is_empty() => {
            nested(*number, out, |out| wrapped(value, rest, shape, out))
        }
        [number, ..] => field(value, *number, &Message(shape), out),
        [] => {}
    }
}

/// A ParametersItem: a parameter (1) that is a body (1), or else (2) one of the query (3) or the
/// path (4).
fn parameter(value: &Value, out: &mut Vec<u8>) {
    let (wrappers, shape): (&[u32], &'static MessageLayout) =
        match value.get("in").and_then(Value::as_str) {
            Some("body") => (&[1, 1], &BODY),
            Some("path") => (&[1, 2, 4], &PATH),
            _ => (&[1, 2, 3], &QUERY),
        };
    wrapped(value, wrappers, shape, out);
}

/// Any JSON is YAML too.
fn yaml(value: &Value, number: u32, out: &mut Vec<u8>) {
    nested(number, out, |out| {
        bytes(2, format!("{value}\n").as_bytes(), out)
    });
}

fn bytes(number: u32, value: &[u8], out: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

fn nested(number: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    write(&mut inner);
    bytes(number, &inner, out);
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::meta::json;

    /// A document as protobuf's text form would show it: numbers and strings, nested.
    pub fn show(mut bytes: &[u8]) -> String {
        let mut out = Vec::new();
        while let Some((key, rest)) = varint(bytes) {
            let Some((value, rest)) = varint(rest) else {
                break;
            };
            if key & 7 == 0 {
                out.push(format!("{}:{value}", key >> 3));
                bytes = rest;
                continue;
            }
            let (inner, rest) = rest.split_at(value as usize);
            let text = std::str::from_utf8(inner).ok().filter(|text| {
                !text.is_empty() && text.chars().all(|one| one >= ' ' || one == '\n')
            });
            out.push(match text {
                Some(text) => format!("{}:{text:?}", key >> 3),
                None => format!("{}{{{}}}", key >> 3, show(inner)),
            });
            bytes = rest;
        }
        out.join(" ")
    }

    fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
        let end = bytes.iter().position(|byte| byte & 0x80 == 0)?;
        let value = bytes[..=end]
            .iter()
            .rev()
            .fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f));
        Some((value, &bytes[end + 1..]))
    }

    #[test]
    fn definitions_keep_what_clients_read_of_them() {
        let spec = json!({"type": "object", "required": ["replicas"], "properties": {
            "replicas": {"type": "integer", "format": "int32"},
            "items": {"type": "array", "items": {"$ref": "#/definitions/a"}, "x-kubernetes-list-type": "map"}}});
        let gvk = json!([{"group": "", "kind": "A", "version": "v1"}]);
        let definitions =
            json!({"definitions": {"a": {"x-kubernetes-group-version-kind": gvk}, "b": spec}});
        let replicas = r#"1{1:"replicas" 2{2:"int32" 22{1:"integer"}}}"#;
        let list_type = r#"31{1:"x-kubernetes-list-type" 2{2:"\"map\"\n"}}"#;
        let items = format!(
            r##"1{{1:"items" 2{{22{{1:"array"}} 23{{1{{1:"#/definitions/a"}}}} {list_type}}}}}"##
        );
        let kind = r#"31{1:"x-kubernetes-group-version-kind" 2{2:"[{\"group\":\"\",\"kind\":\"A\",\"version\":\"v1\"}]\n"}}"#;
        let want = format!(
            r#"9{{1{{1:"a" 2{{{kind}}}}} 1{{1:"b" 2{{19:"replicas" 22{{1:"object"}} 25{{{replicas} {items}}}}}}}}}"#
        );
        assert_eq!(show(&document(&definitions)), want);
    }

    #[test]
    fn protobuf_parameters_differ_by_location() {
        let place =
            |place: &str| json!({"parameters": [{"in": place, "name": "n", "required": true}]});
        let paths =
            json!({"paths": {"/a": place("path"), "/b": place("query"), "/c": place("body")}});
        let want = concat!(
            r#"8{2{1:"/a" 2{9{1{2{4{1:1 2:"path" 4:"n"}}}}}} 2{1:"/b" 2{9{1{2{3{1:1 2:"query" 4:"n"}}}}}} "#,
            r#"2{1:"/c" 2{9{1{1{2:"n" 3:"body" 4:1}}}}}}"#
        );
        assert_eq!(show(&document(&paths)), want);
    }
}
