//! OpenAPI v3 as protobuf (gnostic `openapiv3`).

use super::protobuf::{self, Encoding, MessageLayout};
use crate::meta::Value;

use Encoding::{
    Anything, Anythings, Bool, DefaultValue, Integer, Message, Named, Number, OrReference,
    OrReferences, Requirements, Text, Texts, Within,
};

static DOCUMENT: MessageLayout = MessageLayout {
    fields: &[
        ("openapi", 1, Text),
        ("info", 2, Message(&INFO)),
        ("paths", 4, Named(1, &Message(&PATH_ITEM))),
        ("components", 5, Message(&COMPONENTS)),
        ("security", 6, Requirements),
    ],
    extensions: 9,
};

static INFO: MessageLayout = MessageLayout {
    fields: &[
        ("title", 1, Text),
        ("description", 2, Text),
        ("version", 6, Text),
    ],
    extensions: 7,
};

static PATH_ITEM: MessageLayout = MessageLayout {
    fields: &[
        ("get", 4, Message(&OPERATION)),
        ("put", 5, Message(&OPERATION)),
        ("post", 6, Message(&OPERATION)),
        ("delete", 7, Message(&OPERATION)),
        ("options", 8, Message(&OPERATION)),
        ("head", 9, Message(&OPERATION)),
        ("patch", 10, Message(&OPERATION)),
        ("parameters", 13, OrReferences(&PARAMETER)),
    ],
    extensions: 14,
};

static OPERATION: MessageLayout = MessageLayout {
    fields: &[
        ("tags", 1, Texts),
        ("summary", 2, Text),
        ("description", 3, Text),
        ("operationId", 5, Text),
        ("parameters", 6, OrReferences(&PARAMETER)),
        ("requestBody", 7, OrReference(&REQUEST_BODY)),
        ("responses", 8, Named(2, &OrReference(&RESPONSE))),
        ("deprecated", 10, Bool),
    ],
    extensions: 13,
};

static PARAMETER: MessageLayout = MessageLayout {
    fields: &[
        ("name", 1, Text),
        ("in", 2, Text),
        ("description", 3, Text),
        ("required", 4, Bool),
        ("allowEmptyValue", 6, Bool),
        ("schema", 10, OrReference(&SCHEMA)),
    ],
    extensions: 14,
};

static REQUEST_BODY: MessageLayout = MessageLayout {
    fields: &[
        ("description", 1, Text),
        ("content", 2, Named(1, &Message(&MEDIA_TYPE))),
        ("required", 3, Bool),
    ],
    extensions: 4,
};

static RESPONSE: MessageLayout = MessageLayout {
    fields: &[
        ("description", 1, Text),
        ("content", 3, Named(1, &Message(&MEDIA_TYPE))),
    ],
    extensions: 5,
};

static MEDIA_TYPE: MessageLayout = MessageLayout {
    fields: &[("schema", 1, OrReference(&SCHEMA))],
    extensions: 5,
};

static COMPONENTS: MessageLayout = MessageLayout {
    fields: &[
        ("schemas", 1, Named(1, &OrReference(&SCHEMA))),
        (
            "securitySchemes",
            7,
            Named(1, &OrReference(&SECURITY_SCHEME)),
        ),
    ],
    extensions: 10,
};

static SECURITY_SCHEME: MessageLayout = MessageLayout {
    fields: &[
        ("type", 1, Text),
        ("description", 2, Text),
        ("name", 3, Text),
        ("in", 4, Text),
    ],
    extensions: 9,
};

static SCHEMA: MessageLayout = MessageLayout {
    fields: &[
        ("nullable", 1, Bool),
        ("externalDocs", 6, Message(&protobuf::EXTERNAL_DOCS)),
        ("example", 7, Anything),
        ("title", 9, Text),
        ("multipleOf", 10, Number),
        ("maximum", 11, Number),
        ("exclusiveMaximum", 12, Bool),
        ("minimum", 13, Number),
        ("exclusiveMinimum", 14, Bool),
        ("maxLength", 15, Integer),
        ("minLength", 16, Integer),
        ("pattern", 17, Text),
        ("maxItems", 18, Integer),
        ("minItems", 19, Integer),
        ("uniqueItems", 20, Bool),
        ("maxProperties", 21, Integer),
        ("minProperties", 22, Integer),
        ("required", 23, Texts),
        ("enum", 24, Anythings),
        ("type", 25, Text),
        ("allOf", 26, OrReferences(&SCHEMA)),
        ("oneOf", 27, OrReferences(&SCHEMA)),
        ("anyOf", 28, OrReferences(&SCHEMA)),
        ("not", 29, Message(&SCHEMA)),
        ("items", 30, Within(1, &OrReference(&SCHEMA))),
        ("properties", 31, Named(1, &OrReference(&SCHEMA))),
        ("additionalProperties", 32, Within(1, &OrReference(&SCHEMA))),
        ("default", 33, DefaultValue),
        ("description", 34, Text),
        ("format", 35, Text),
    ],
    extensions: 36,
};

/// The protobuf form of an OpenAPI v3 document.
pub fn document(json: &Value) -> Vec<u8> {
    protobuf::encode(json, &DOCUMENT)
}

#[cfg(test)]
mod tests {
    use super::protobuf::tests::show;
    use crate::meta::json;

    #[test]
    fn documents_are_written_with_gnostics_numbers() {
        let thing = json!({"$ref": "#/components/schemas/a"});
        let content = json!({"application/json": {"schema": thing}});
        let document = json!({
            "openapi": "3.0.0", "info": {"title": "t", "version": "v"},
            "paths": {"/a": {"post": {
                "operationId": "o", "requestBody": {"content": content, "required": true},
                "parameters": [{"name": "n", "in": "query", "schema": {"type": "string"}}],
                "responses": {"201": {"description": "d", "content": content}},
            }}},
            "components": {"schemas": {"a": {
                "type": "object", "default": "x", "enum": ["b"], "additionalProperties": true,
                "properties": {"p": {"items": thing, "allOf": [thing], "default": true, "x-k": 1}},
            }}},
        });
        let reference = r##"2{1:"#/components/schemas/a"}"##;
        let content = format!(r#"{{1{{1:"application/json" 2{{1{{{reference}}}}}}}}}"#);
        let parameter = r#"6{1{1:"n" 2:"query" 10{1{25:"string"}}}}"#;
        let operation = format!(
            r#"6{{5:"o" {parameter} 7{{1{{2{content} 3:1}}}} 8{{2{{1:"201" 2{{1{{1:"d" 3{content}}}}}}}}}}}"#
        );
        let property = format!(
            r#"26{{{reference}}} 30{{1{{{reference}}}}} 33{{2:1}} 36{{1:"x-k" 2{{2:"1\n"}}}}"#
        );
        let schema = format!(
            r#"24{{2:"\"b\"\n"}} 25:"object" 31{{1{{1:"p" 2{{1{{{property}}}}}}}}} 32{{2:1}} 33{{3:"x"}}"#
        );
        let want = format!(
            r#"1:"3.0.0" 2{{1:"t" 6:"v"}} 4{{1{{1:"/a" 2{{{operation}}}}}}} 5{{1{{1{{1:"a" 2{{1{{{schema}}}}}}}}}}}"#
        );
        assert_eq!(show(&super::document(&document)), want);
    }
}
