//! Front proxies: a client whose certificate is trusted for it names the user in headers (apiserver `request/headerrequest`).

use http::{HeaderMap, HeaderName};
use jiff::Timestamp;
use percent_encoding::percent_decode_str;

use super::x509::CaBundle;
use super::{AuthnError, Credentials, Purpose};
use crate::auth::User;

/// The headers that are taken for a front proxy's, whatever the flags say, when they are removed from requests.
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
    /// The client's certificate is not that of a front proxy: others that know it may still accept it.
    pub fn authenticate(&self, credentials: &Credentials<'_>, now: Timestamp) -> Result<Option<User>, AuthnError> {
        let Some(proxy) = credentials.peer.verified(Purpose::FrontProxy, &self.authorities, now)? else { return Ok(None) };
        if !self.allowed_names.is_empty() && !self.allowed_names.contains(&proxy.common_name) {
            return Err(AuthnError::new(format!("x509: subject with cn={} is not in the allowed list", proxy.common_name)));
        }
        let headers = credentials.headers;
        let Some(name) = first(headers, &self.username_headers) else { return Ok(None) };
        let mut user = User { name, uid: first(headers, &self.uid_headers).unwrap_or_default(), ..User::default() };
        user.groups = self.group_headers.iter().flat_map(|header| values(headers, header)).collect();
        for prefix in &self.extra_prefixes {
            for (header, value) in headers {
                if let (Some(key), Ok(value)) = (strip_prefix(header, prefix), value.to_str()) {
                    user.extra.entry(unescape(key)).or_default().push(value.to_owned());
                }
            }
        }
        Ok(Some(user))
    }

    /// Removes the headers that a front proxy names users with.
    pub fn strip(&self, headers: &mut HeaderMap) {
        for name in self.username_headers.iter().chain(&self.uid_headers).chain(&self.group_headers) {
            headers.remove(name.as_str());
        }
        for prefix in &self.extra_prefixes {
            remove_prefixed(headers, prefix);
        }
    }
}

/// Removes the usual headers of front proxies, so that nothing behind authentication takes them for the truth.
pub fn strip_standard(headers: &mut HeaderMap) {
    for name in STANDARD_HEADERS {
        headers.remove(name);
    }
    remove_prefixed(headers, STANDARD_EXTRA_PREFIX);
}

fn remove_prefixed(headers: &mut HeaderMap, prefix: &str) {
    let found: Vec<HeaderName> = headers.keys().filter(|name| strip_prefix(name, prefix).is_some()).cloned().collect();
    for name in found {
        headers.remove(name);
    }
}

/// The rest of a (lower-case) header name behind a prefix in any case.
fn strip_prefix<'a>(name: &'a HeaderName, prefix: &str) -> Option<&'a str> {
    let (head, rest) = name.as_str().split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(rest)
}

fn first(headers: &HeaderMap, names: &[String]) -> Option<String> {
    names
        .iter()
        .filter_map(|name| headers.get(name.as_str()))
        .filter_map(|value| value.to_str().ok())
        .find(|value| !value.is_empty())
        .map(str::to_owned)
}

fn values<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = String> + use<'a> {
    headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok()).filter(|value| !value.is_empty()).map(str::to_owned)
}

/// A key of extra attributes, percent-decoded; as it is if that gives no text.
fn unescape(key: &str) -> String {
    percent_decode_str(key).decode_utf8().map_or_else(|_| key.to_owned(), |decoded| decoded.into_owned())
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
        leaf.distinguished_name.push(DnType::CommonName, common_name);
        let leaf = leaf.signed_by(&KeyPair::generate().expect("a key"), &Issuer::new(ca, ca_key)).expect("a certificate");
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
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().expect("a value"))).collect()
    }

    const NAMED: &[(&str, &str)] = &[
        ("x-remote-user", "alice"),
        ("x-remote-uid", "7"),
        ("x-remote-group", "devs"),
        ("x-remote-group", "ops"),
        ("x-remote-extra-example.com%2fkey", "a"),
    ];

    #[test]
    fn a_trusted_proxy_names_the_user() {
        let (proxy, peer) = proxy_and_peer("front-proxy-client");
        let mut headers = headers(NAMED);
        let user = proxy.authenticate(&Credentials { headers: &headers, peer: &peer }, Timestamp::now()).expect("trusted").expect("named");
        assert_eq!((user.name.as_str(), user.uid.as_str(), user.groups), ("alice", "7", vec!["devs".to_owned(), "ops".to_owned()]));
        assert_eq!(user.extra.get("example.com/key").map(Vec::as_slice), Some(&["a".to_owned()][..]));
        proxy.strip(&mut headers);
        assert!(headers.is_empty(), "{headers:?}");
    }

    #[test]
    fn others_do_not() {
        let (proxy, stranger) = proxy_and_peer("someone");
        let headers = headers(NAMED);
        let why = proxy.authenticate(&Credentials { headers: &headers, peer: &stranger }, Timestamp::now()).expect_err("not allowed");
        assert_eq!(why.to_string(), "x509: subject with cn=someone is not in the allowed list");
        let nobody = Peer::default();
        assert_eq!(proxy.authenticate(&Credentials { headers: &headers, peer: &nobody }, Timestamp::now()), Ok(None));
    }
}
