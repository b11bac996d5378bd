//! Front proxies: a client with a trusted certificate names the user in headers (apiserver
//! `request/headerrequest`).

use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use percent_encoding::percent_decode_str;

use super::x509::CaBundle;
use super::{AuthnError, Credentials, Purpose};
use crate::auth::User;

/// The headers that are taken for a front proxy's, whatever the flags say, when they are removed
/// from requests.
const STANDARD_HEADERS: [&str; 3] = ["x-remote-user", "x-remote-uid", "x-remote-group"];
const STANDARD_EXTRA_PREFIX: &str = "x-remote-extra-";

/// A trusted front proxy and its headers.
#[derive(Clone, Debug, Default)]
pub struct FrontProxy {
    pub authorities: CaBundle,
    /// The common names that its certificate may have; any if empty.
    pub allowed_names: Vec<String>,
    pub username_headers: Vec<String>,
    pub uid_headers: Vec<String>,
    pub group_headers: Vec<String>,
    pub extra_prefixes: Vec<String>,
}

impl FrontProxy {
    /// The user that a front proxy names; `None` for any other client.
    ///
    /// # Errors
    /// The client's certificate is not that of a front proxy: others that know it may still accept
    /// it.
    pub fn authenticate(
        &self,
        credentials: &Credentials<'_>,
        now: Timestamp,
    ) -> Result<Option<User>, AuthnError> {
        let Some(proxy) = credentials
            .peer
            .verified(Purpose::FrontProxy, &self.authorities, now)?
        else {
            return Ok(None);
        };
        if !self.allowed_names.is_empty() && !self.allowed_names.contains(&proxy.common_name) {
            return Err(AuthnError::new(format!(
                "x509: subject with cn={} is not in the allowed list",
                proxy.common_name
            )));
        }
        self.named(credentials.headers)
    }

    /// The user that the headers name. What cannot be read ends the request: it must not be taken
    /// for the proxy's own.
    fn named(&self, headers: &HeaderMap) -> Result<Option<User>, AuthnError> {
        let Some(name) = first(headers, &self.username_headers)? else {
            return Ok(None);
        };
        let mut user = User {
            name,
            uid: first(headers, &self.uid_headers)?.unwrap_or_default(),
            ..User::default()
        };
        for value in self
            .group_headers
            .iter()
            .flat_map(|header| headers.get_all(header.as_str()))
        {
            user.groups
                .extend(Some(text(value)?).filter(|group| !group.is_empty()));
        }
        for prefix in &self.extra_prefixes {
            for (header, value) in headers {
                if let Some(key) = strip_prefix(header, prefix) {
                    let key = unescape_extra(key).ok_or_else(unreadable)?;
                    user.extra.entry(key).or_default().push(text(value)?);
                }
            }
        }
        Ok(Some(user))
    }

    /// Removes the headers that a front proxy names users with.
    pub fn strip(&self, headers: &mut HeaderMap) {
        for name in self
            .username_headers
            .iter()
            .chain(&self.uid_headers)
            .chain(&self.group_headers)
        {
            headers.remove(name.as_str());
        }
        for prefix in &self.extra_prefixes {
            remove_prefixed(headers, prefix);
        }
    }
}

/// Removes the usual headers of front proxies, so that nothing behind authentication takes them for
/// the truth.
pub fn strip_standard(headers: &mut HeaderMap) {
    for name in STANDARD_HEADERS {
        headers.remove(name);
    }
    remove_prefixed(headers, STANDARD_EXTRA_PREFIX);
}

fn remove_prefixed(headers: &mut HeaderMap, prefix: &str) {
    let found: Vec<HeaderName> = headers
        .keys()
        .filter(|name| strip_prefix(name, prefix).is_some())
        .cloned()
        .collect();
    for name in found {
        headers.remove(name);
    }
}

/// The rest of a (lower-case) header name behind a prefix in any case.
fn strip_prefix<'a>(name: &'a HeaderName, prefix: &str) -> Option<&'a str> {
    let (head, rest) = name.as_str().split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// The first value of the first of the headers that has one.
fn first(headers: &HeaderMap, names: &[String]) -> Result<Option<String>, AuthnError> {
    for value in names.iter().filter_map(|name| headers.get(name.as_str())) {
        let value = text(value)?;
        if !value.is_empty() {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

fn text(value: &HeaderValue) -> Result<String, AuthnError> {
    header_text(value).map(str::to_owned).ok_or_else(unreadable)
}

fn unreadable() -> AuthnError {
    AuthnError::last("a header of the front proxy is not valid UTF-8")
}

/// The value of a header that names users. Upstream takes its bytes as they are; here names are
/// UTF-8, and everything else is `None`.
pub fn header_text(value: &HeaderValue) -> Option<&str> {
    std::str::from_utf8(value.as_bytes()).ok()
}

/// A key of extra attributes, percent-decoded, or as it is where a percent sign stands for nothing
/// (Go's `url.PathUnescape`). `None` for bytes that are not UTF-8.
pub fn unescape_extra(key: &str) -> Option<String> {
    let mut rest = key.split('%').skip(1);
    if !rest.all(|part| {
        part.as_bytes()
            .get(..2)
            .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    }) {
        return Some(key.to_owned());
    }
    percent_decode_str(key)
        .decode_utf8()
        .ok()
        .map(|decoded| decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::super::Peer;
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

    fn proxy_and_peer(common_name: &str) -> (FrontProxy, Peer) {
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_key = KeyPair::generate().expect("a key");
        let ca_pem = ca.self_signed(&ca_key).expect("a certificate").pem();
        let mut leaf = CertificateParams::default();
        leaf.distinguished_name
            .push(DnType::CommonName, common_name);
        let leaf = leaf
            .signed_by(
                &KeyPair::generate().expect("a key"),
                &Issuer::new(ca, ca_key),
            )
            .expect("a certificate");
        let proxy = FrontProxy {
            authorities: CaBundle::from_pem(ca_pem.as_bytes()).expect("a bundle"),
            allowed_names: vec!["front-proxy-client".into()],
            username_headers: vec!["X-Remote-User".into()],
            uid_headers: vec!["X-Remote-Uid".into()],
            group_headers: vec!["X-Remote-Group".into()],
            extra_prefixes: vec!["X-Remote-Extra-".into()],
        };
        (proxy, Peer::new(vec![leaf.der().clone()]))
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    value.parse().expect("a value"),
                )
            })
            .collect()
    }

    const NAMED: &[(&str, &str)] = &[
        ("x-remote-user", "alice"),
        ("x-remote-uid", "7"),
        ("x-remote-group", "devs"),
        ("x-remote-group", "ops"),
        ("x-remote-extra-example.com%2fkey", "a"),
    ];

    #[test]
    fn front_proxy_headers_name_the_user() {
        let (proxy, peer) = proxy_and_peer("front-proxy-client");
        let mut headers = headers(NAMED);
        let user = proxy
            .authenticate(
                &Credentials {
                    path: "/",
                    headers: &headers,
                    peer: &peer,
                },
                Timestamp::now(),
            )
            .expect("trusted")
            .expect("named");
        assert_eq!(
            (user.name.as_str(), user.uid.as_str(), user.groups),
            ("alice", "7", vec!["devs".to_owned(), "ops".to_owned()])
        );
        assert_eq!(
            user.extra.get("example.com/key").map(Vec::as_slice),
            Some(&["a".to_owned()][..])
        );
        proxy.strip(&mut headers);
        assert!(headers.is_empty(), "{headers:?}");
    }

    #[test]
    fn front_proxy_headers_must_be_utf8() {
        let (proxy, peer) = proxy_and_peer("front-proxy-client");
        let ask = |name: &'static str, value: &[u8]| {
            let mut headers = headers(NAMED);
            headers.insert(name, HeaderValue::from_bytes(value).expect("a value"));
            proxy.authenticate(
                &Credentials {
                    path: "/",
                    headers: &headers,
                    peer: &peer,
                },
                Timestamp::now(),
            )
        };
        let user = ask("x-remote-user", "jürgen".as_bytes())
            .expect("readable")
            .expect("named");
        assert_eq!(user.name, "jürgen");
        for name in [
            "x-remote-user",
            "x-remote-uid",
            "x-remote-group",
            "x-remote-extra-a",
        ] {
            assert!(
                ask(name, b"j\xfcrgen").expect_err("not UTF-8").is_last(),
                "{name}"
            );
        }
        assert!(
            ask("x-remote-extra-%ff", b"a")
                .expect_err("not UTF-8")
                .is_last()
        );
        assert_eq!(unescape_extra("a%2fb").as_deref(), Some("a/b"));
        assert_eq!(unescape_extra("a%2fb%zz").as_deref(), Some("a%2fb%zz"));
    }

    #[test]
    fn front_proxy_headers_of_others_are_ignored() {
        let (proxy, stranger) = proxy_and_peer("someone");
        let headers = headers(NAMED);
        let why = proxy
            .authenticate(
                &Credentials {
                    path: "/",
                    headers: &headers,
                    peer: &stranger,
                },
                Timestamp::now(),
            )
            .expect_err("not allowed");
        assert_eq!(
            why.to_string(),
            "x509: subject with cn=someone is not in the allowed list"
        );
        let nobody = Peer::default();
        assert_eq!(
            proxy.authenticate(
                &Credentials {
                    path: "/",
                    headers: &headers,
                    peer: &nobody
                },
                Timestamp::now()
            ),
            Ok(None)
        );
    }
}
