//! Continue tokens: base64 of the revision and the key where the next page starts (apiserver `storage/continue.go`).
//! Any server over the same data understands them: what they say besides is not needed, and kube-apiserver passes over it.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::meta::Status;
use crate::storage::Revision;

const VERSION: &str = "meta.k8s.io/v1";

#[derive(Serialize, Deserialize)]
struct Token {
    #[serde(rename = "v", default)]
    version: String,
    #[serde(rename = "rv", default)]
    revision: Revision,
    #[serde(rename = "start", default)]
    start: String,
    #[serde(rename = "ahead", default, skip_serializing_if = "Option::is_none")]
    ahead: Option<i64>,
}

/// Where a page starts.
#[derive(Debug, PartialEq)]
pub struct Next {
    pub key: String,
    /// A negative one continues at the present.
    pub revision: Revision,
    /// How many objects there are from the key on at the revision, if somebody counted: who pages through many should not count them
    /// again for each page.
    pub ahead: Option<i64>,
}

/// The token for a page whose key begins with `prefix`.
pub fn encode(next: &Next, prefix: &str) -> String {
    let start = next.key.strip_prefix(prefix).unwrap_or(&next.key).to_owned();
    let token = Token { version: VERSION.to_owned(), revision: next.revision, start, ahead: next.ahead };
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
}

/// What a token says.
pub fn decode(text: &str, prefix: &str) -> Result<Next, Status> {
    let invalid = |why: &str| Status::bad_request(format!("continue key is not valid{why}"));
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|why| invalid(&format!(": {}", go_base64_error(text, &why))))?;
    let token: Token = serde_json::from_slice(&bytes).map_err(|_| invalid(&format!(": {}", go_json_error(&bytes))))?;
    if token.version != VERSION {
        return Err(invalid(&format!(": server does not recognize this encoded version {}", token.version)));
    }
    if token.revision == 0 {
        return Err(invalid(": incorrect encoded start resourceVersion (version meta.k8s.io/v1)"));
    }
    if token.start.is_empty() {
        return Err(invalid(": encoded start key empty (version meta.k8s.io/v1)"));
    }
    let relative = token.start.strip_prefix('/').unwrap_or(&token.start);
    if relative.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
        return Err(invalid(&format!(": {}", token.start)));
    }
    Ok(Next { key: format!("{prefix}{relative}"), revision: token.revision, ahead: token.ahead })
}

fn go_base64_error(text: &str, why: &base64::DecodeError) -> String {
    let at = match why {
        base64::DecodeError::InvalidByte(at, _) => *at,
        _ => text.len().saturating_sub(text.len() % 4),
    };
    format!("illegal base64 data at input byte {at}")
}

fn go_json_error(bytes: &[u8]) -> String {
    match crate::codec::json::parse(bytes) {
        Err(why) => why.0,
        Ok(_) => "json: cannot unmarshal continue token".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leads_back_to_its_key_and_revision() {
        for ahead in [None, Some(3)] {
            let next = || Next { key: "/registry/pods/ns/a\0".to_owned(), revision: 7, ahead };
            let token = encode(&next(), "/registry/pods/");
            assert_eq!(decode(&token, "/registry/pods/").map_err(|status| status.message), Ok(next()));
        }
    }

    #[test]
    fn a_token_of_a_kube_apiserver_does() {
        let token = URL_SAFE_NO_PAD.encode(r#"{"v":"meta.k8s.io/v1","rv":7,"start":"ns/a\u0000"}"#);
        let next = Next { key: "/p/ns/a\0".to_owned(), revision: 7, ahead: None };
        assert_eq!(encode(&next, "/p/"), token);
        assert_eq!(decode(&token, "/p/").map_err(|status| status.message), Ok(next));
    }

    #[test]
    fn tokens_cannot_lead_out_of_the_prefix() {
        let token = URL_SAFE_NO_PAD.encode(r#"{"v":"meta.k8s.io/v1","rv":7,"start":"../secrets"}"#);
        assert_eq!(decode(&token, "/p/").map_err(|status| status.message), Err("continue key is not valid: ../secrets".to_owned()));
    }
}
