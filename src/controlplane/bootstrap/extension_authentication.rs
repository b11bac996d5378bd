//! The ConfigMap from which extension servers learn whom this cluster's servers trust
//! (`pkg/controlplane/controller/clusterauthenticationtrust`). Several servers write it: each adds
//! its own to what is there, and takes out certificates that have expired.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jiff::{SignedDuration, Timestamp};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::meta::{Map, Object, Value, json};

/// The entry with the authorities of clients.
pub const CLIENT_CA: &str = "client-ca-file";
/// The entry with the authorities of front proxies.
pub const PROXY_CA: &str = "requestheader-client-ca-file";
/// The entries that are lists of names, about front proxies all of them.
const LISTS: [&str; 5] = [
    "requestheader-allowed-names",
    "requestheader-extra-headers-prefix",
    "requestheader-group-headers",
    "requestheader-uid-headers",
    "requestheader-username-headers",
];
/// The time for which an expired certificate is kept.
const SLACK: SignedDuration = SignedDuration::from_mins(5);
/// The characters of a line of PEM.
const PEM_COLUMNS: usize = 64;

/// Returns what the ConfigMap should hold: what it does hold, and what a server wants in it. What
/// is there and cannot be read is left out.
pub fn combined(existing: &Object, wanted: &Object, now: Timestamp) -> Value {
    let text = |object: &Object, key: &str| {
        let data = object.get("data").and_then(|data| data.get(key));
        data.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let mut data = Map::new();
    for key in [CLIENT_CA, PROXY_CA] {
        let authorities = authorities(&text(existing, key), &text(wanted, key), now);
        if !authorities.is_empty() {
            data.insert(key.to_owned(), authorities.into());
        }
    }
    // Without authorities nobody is a front proxy.
    let lists = if data.contains_key(PROXY_CA) {
        &LISTS[..]
    } else {
        &[]
    };
    for key in lists {
        let mut names = names(&text(existing, key));
        for name in self::names(&text(wanted, key)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if !names.is_empty() || !key.ends_with("uid-headers") {
            data.insert((*key).to_owned(), json!(names).to_string().into());
        }
    }
    data.sort_keys();
    data.into()
}

fn names(list: &str) -> Vec<String> {
    serde_json::from_str(list).unwrap_or_default()
}

/// The certificates of two bundles, each once and unless it has expired, as PEM; the second bundle
/// as it is where there are none.
fn authorities(existing: &str, wanted: &str, now: Timestamp) -> String {
    let mut found: Vec<CertificateDer<'static>> = Vec::new();
    for bundle in [existing, wanted] {
        for cert in CertificateDer::pem_slice_iter(bundle.as_bytes()).flatten() {
            if is_valid(&cert, now) && !found.contains(&cert) {
                found.push(cert);
            }
        }
    }
    if found.is_empty() {
        return wanted.to_owned();
    }
    found.iter().map(|cert| pem(cert)).collect()
}

fn is_valid(cert: &[u8], now: Timestamp) -> bool {
    X509Certificate::from_der(cert).is_ok_and(|(_, parsed)| {
        let end = parsed.validity().not_after.timestamp();
        end > now.as_second().saturating_sub(SLACK.as_secs())
    })
}

fn pem(cert: &[u8]) -> String {
    let body = BASE64_STANDARD.encode(cert);
    let mut out = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for (at, letter) in body.chars().enumerate() {
        if at > 0 && at % PEM_COLUMNS == 0 {
            out.push('\n');
        }
        out.push(letter);
    }
    out.push_str("\n-----END CERTIFICATE-----\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    fn certificate(end: i32) -> String {
        let mut params = CertificateParams::default();
        params.not_after = date_time_ymd(end, 1, 1);
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("a certificate").pem()
    }

    fn map(data: Value) -> Object {
        Object::from_value(json!({ "data": data })).expect("an object")
    }

    #[test]
    fn what_other_servers_wrote_stays_until_it_expires() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().expect("a time");
        let [old, other, own] = [2025, 2030, 2040].map(certificate);
        let existing = map(json!({
            CLIENT_CA: format!("# theirs\n{old}{other}"), "requestheader-allowed-names": "[\"a\",\"b\"]",
            "requestheader-group-headers": "garbage", "mine": "x",
        }));
        let wanted = map(json!({
            CLIENT_CA: own, PROXY_CA: own, "requestheader-allowed-names": "[\"b\",\"c\"]",
            "requestheader-group-headers": "[\"X-Remote-Group\"]",
        }));
        let data = combined(&existing, &wanted, now);
        let normal = |pem: &str| pem.replace("\r\n", "\n");
        let want = json!({
            CLIENT_CA: normal(&format!("{other}{own}")), PROXY_CA: normal(&own),
            "requestheader-allowed-names": "[\"a\",\"b\",\"c\"]",
            "requestheader-extra-headers-prefix": "[]",
            "requestheader-group-headers": "[\"X-Remote-Group\"]",
            "requestheader-username-headers": "[]",
        });
        assert_eq!(data, want);
        let again = combined(&map(data.clone()), &wanted, now);
        assert_eq!(again, data, "nothing is added twice");
        let nothing = combined(&map(json!({})), &map(json!({CLIENT_CA: "PEM"})), now);
        assert_eq!(nothing, json!({CLIENT_CA: "PEM"}));
    }
}
