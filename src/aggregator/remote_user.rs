//! The headers that tell an extension server who asks (client-go `transport.SetAuthProxyHeaders`).

use std::fmt::Write;

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};

use crate::auth::User;
use crate::auth::authn::request_header::strip_standard;
use crate::meta::go;

const USER: HeaderName = HeaderName::from_static("x-remote-user");
const UID: HeaderName = HeaderName::from_static("x-remote-uid");
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const EXTRA_PREFIX: &str = "x-remote-extra-";

/// Names the user, and nobody else, in the headers of a request to an extension server.
///
/// # Errors
/// Go's text: a name or value that no header can have.
pub fn set_headers(headers: &mut HeaderMap, user: &User) -> Result<(), String> {
    strip_standard(headers);
    headers.insert(USER, value(&USER, &user.name)?);
    if !user.uid.is_empty() {
        headers.insert(UID, value(&UID, &user.uid)?);
    }
    for group in &user.groups {
        headers.append(GROUP, value(&GROUP, group)?);
    }
    for (key, values) in &user.extra {
        let name = format!("{EXTRA_PREFIX}{}", escape_key(key));
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| format!("net/http: invalid header field name {}", go::quote(&name)))?;
        for text in values {
            headers.append(name.clone(), value(&name, text)?);
        }
    }
    Ok(())
}

fn value(name: &HeaderName, text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_bytes(text.as_bytes())
        .map_err(|_| format!("net/http: invalid header field value for \"{name}\""))
}

/// A key of extra attributes in the name of a header: what no name can have is percent-encoded, and
/// so is the percent sign.
fn escape_key(key: &str) -> String {
    let mut escaped = String::new();
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn headers_name_the_user_and_nobody_else() {
        let mut headers = HeaderMap::new();
        for name in [
            "x-remote-user",
            "x-remote-group",
            "x-remote-uid",
            "x-remote-extra-scopes",
        ] {
            headers.insert(name, HeaderValue::from_static("forged"));
        }
        let user = User {
            name: "ü".to_owned(),
            groups: vec!["a".to_owned(), "b".to_owned()],
            extra: BTreeMap::from([("example.com/x%".to_owned(), vec!["1".to_owned(); 2])]),
            ..User::default()
        };
        set_headers(&mut headers, &user).expect("names");
        let mut sent: Vec<(String, String)> = headers
            .iter()
            .map(|(name, value)| {
                let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
                (name.to_string(), value)
            })
            .collect();
        sent.sort();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            sent,
            [
                pair("x-remote-extra-example.com%2fx%25", "1"),
                pair("x-remote-extra-example.com%2fx%25", "1"),
                pair("x-remote-group", "a"),
                pair("x-remote-group", "b"),
                pair("x-remote-user", "ü"),
            ]
        );
        let odd = User {
            name: "a\nb".to_owned(),
            ..User::default()
        };
        let refused = "net/http: invalid header field value for \"x-remote-user\"";
        assert_eq!(set_headers(&mut headers, &odd), Err(refused.to_owned()));
    }
}
