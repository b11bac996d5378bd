//! Keys of JSON patches (apiserver `cel/library/jsonpatch.go`).

use super::super::value::Value;
use super::Declaration;
use super::operators::declare;

pub const DECLARATIONS: &[Declaration] = &[declare!("jsonpatch.escapeKey", |args| match args {
        [Value::String(key)] => {
            Some(Ok(Value::text(key.as_str().replace('~', "~0").replace('/', "~1"))))
        }
        _ => None,
    }, "string_jsonpatch_escapeKey_string": "(string) -> string")];
