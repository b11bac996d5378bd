//! Continue tokens: base64 of the revision and the key where the next page starts (apiserver
//! `storage/continue.go`). Any server over the same data understands them: what they say besides is
//! not needed, and kube-apiserver passes over it.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;

use crate::codec;
use crate::meta::{Status, Value};
use crate::storage::Revision;

const VERSION: &str = "meta.k8s.io/v1";
/// The message of [`expired`].
const INCONSISTENT_CONTINUE: &str = "The provided continue parameter is too old to display a consistent list result. \
You can start a new list without the continue parameter, or use the continue token in this response to retrieve the \
remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were \
created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

#[derive(Default, Serialize)]
struct Token {
    #[serde(rename = "v")]
    version: String,
    #[serde(rename = "rv")]
    revision: Revision,
    start: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ahead: Option<i64>,
}

/// The start of a page.
#[derive(Debug, PartialEq)]
pub struct Next {
    pub key: String,
    /// A negative one continues at the present.
    pub revision: Revision,
    /// The number of objects from the key on at the revision, if known: paging through many objects
    /// should not count the rest again for each page.
    pub items_from_key: Option<i64>,
}

/// Returns the 410 for a token whose revision is compacted, with a token that continues from `key`
/// at the present.
pub fn expired(key: &str, prefix: &str) -> Status {
    let mut status = Status::expired(INCONSISTENT_CONTINUE);
    let next = Next {
        key: key.to_owned(),
        revision: -1,
        items_from_key: None,
    };
    status.continue_token = encode(&next, prefix);
    status
}

/// The token for a page whose key begins with `prefix`.
pub fn encode(next: &Next, prefix: &str) -> String {
    let start = next
        .key
        .strip_prefix(prefix)
        .unwrap_or(&next.key)
        .to_owned();
    let token = Token {
        version: VERSION.to_owned(),
        revision: next.revision,
        start,
        ahead: next.items_from_key,
    };
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
}

/// Reads a token.
///
/// # Errors
/// 400 for a token that kube-apiserver would not read either, in the same words.
pub fn decode(text: &str, prefix: &str) -> Result<Next, Status> {
    let invalid = |why: &str| Status::bad_request(format!("continue key is not valid{why}"));
    let bytes =
        crate::meta::go::base64::decode_url(text).map_err(|why| invalid(&format!(": {why}")))?;
    let token = parse(&bytes).map_err(|why| invalid(&format!(": {why}")))?;
    if token.version != VERSION {
        return Err(invalid(&format!(
            ": server does not recognize this encoded version {}",
            token.version
        )));
    }
    if token.revision == 0 {
        return Err(invalid(
            ": incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
        ));
    }
    if token.start.is_empty() {
        return Err(invalid(
            ": encoded start key empty (version meta.k8s.io/v1)",
        ));
    }
    let relative = token.start.strip_prefix('/').unwrap_or(&token.start);
    if relative
        .split('/')
        .any(|part| part.is_empty() || part == "." || part == "..")
    {
        return Err(invalid(&format!(": {}", token.start)));
    }
    Ok(Next {
        key: format!("{prefix}{relative}"),
        revision: token.revision,
        items_from_key: token.ahead,
    })
}

/// Reads a token as Go does, and says what is wrong with it in the same words.
fn parse(bytes: &[u8]) -> Result<Token, String> {
    let mut token = Token::default();
    let fields = match codec::json::parse(bytes).map_err(|why| why.0)?.0 {
        Value::Object(fields) => fields,
        Value::Null => return Ok(token),
        other => {
            return Err(format!(
                "json: cannot unmarshal {} into Go value of type storage.continueToken",
                go_kind(&other, false)
            ));
        }
    };
    for (key, value) in fields.iter() {
        let misfit = |field: &str, ty: &str| {
            let what = go_kind(value, ty != "string");
            Err(format!(
                "json: cannot unmarshal {what} into Go struct field continueToken.{field} of type {ty}"
            ))
        };
        match (key.to_ascii_lowercase().as_str(), value) {
            (_, Value::Null) => {}
            ("v", Value::String(text)) => token.version = text.to_string(),
            ("start", Value::String(text)) => token.start = text.to_string(),
            (field @ ("v" | "start"), _) => return misfit(field, "string"),
            ("rv", value) => match value.as_i64() {
                Some(revision) => token.revision = revision,
                None => return misfit("rv", "int64"),
            },
            ("ahead", value) => token.ahead = value.as_i64(),
            _ => {}
        }
    }
    Ok(token)
}

/// Returns the name that Go gives to the kind of a value; `spelled` adds the digits of a number.
fn go_kind(value: &Value, spelled: bool) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(number) if spelled => format!("number {number}"),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_trip() {
        for items_from_key in [None, Some(3)] {
            let next = || Next {
                key: "/registry/pods/ns/a\0".to_owned(),
                revision: 7,
                items_from_key,
            };
            let token = encode(&next(), "/registry/pods/");
            assert_eq!(
                decode(&token, "/registry/pods/").map_err(|status| status.message),
                Ok(next())
            );
        }
    }

    #[test]
    fn tokens_of_kube_apiserver_are_read() {
        let token = URL_SAFE_NO_PAD.encode(r#"{"v":"meta.k8s.io/v1","rv":7,"start":"ns/a\u0000"}"#);
        let next = Next {
            key: "/p/ns/a\0".to_owned(),
            revision: 7,
            items_from_key: None,
        };
        assert_eq!(encode(&next, "/p/"), token);
        assert_eq!(
            decode(&token, "/p/").map_err(|status| status.message),
            Ok(next)
        );
    }

    #[test]
    fn tokens_cannot_lead_out_of_the_prefix() {
        let token = URL_SAFE_NO_PAD.encode(r#"{"v":"meta.k8s.io/v1","rv":7,"start":"../secrets"}"#);
        assert_eq!(
            decode(&token, "/p/").map_err(|status| status.message),
            Err("continue key is not valid: ../secrets".to_owned())
        );
    }

    #[test]
    fn malformed_tokens_are_refused_in_the_words_of_go() {
        let said = |text: &str| {
            decode(text, "/p/")
                .map_err(|status| status.message)
                .expect_err("an error")
        };
        let table = [
            (
                "nojson",
                "invalid character 'o' in literal null (expecting 'u')",
            ),
            (
                "[1]",
                "json: cannot unmarshal array into Go value of type storage.continueToken",
            ),
            (
                r#"{"rv":"5"}"#,
                "json: cannot unmarshal string into Go struct field continueToken.rv of type int64",
            ),
            (
                r#"{"rv":1.5}"#,
                "json: cannot unmarshal number 1.5 into Go struct field continueToken.rv of type int64",
            ),
            (
                r#"{"start":5}"#,
                "json: cannot unmarshal number into Go struct field continueToken.start of type string",
            ),
        ];
        for (json, want) in table {
            assert_eq!(
                said(&URL_SAFE_NO_PAD.encode(json)),
                format!("continue key is not valid: {want}"),
                "{json}"
            );
        }
        assert_eq!(
            said("garbage!!"),
            "continue key is not valid: illegal base64 data at input byte 7"
        );
    }
}
