//! An OpenID provider: its discovery document, and the keys that it signs with (go-oidc `oidc.go`,
//! `jwks.go`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::StatusCode;
use http::header::CACHE_CONTROL;
use parking_lot::Mutex;
use serde::Deserialize;

use super::metrics::KeySetMetrics;
use crate::auth::authn::keys::VerifyingKey;
use crate::base::allowance::Allowance;
use crate::codec::json::Document;
use crate::meta::{array_at, go};
use crate::webhook::{Fetched, Fetcher};

const WELL_KNOWN: &str = "/.well-known/openid-configuration";
/// The time before they expire at which keys are fetched anew (go-oidc `keysExpiryDelta`).
const EXPIRY_DELTA: Duration = Duration::from_secs(30);
/// The longest time for which keys are not looked at again, whatever the provider says.
const MAX_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// The keys of a provider; further ones are passed over.
const MAX_KEYS: usize = 256;
/// The fetches that tokens with an unknown key may cause at once, and the time that each takes to
/// be allowed again: anybody can send such tokens.
const MAX_FETCHES: u32 = 10;
const FETCH_INTERVAL: Duration = Duration::from_secs(1);
/// The bytes of an answer that an error quotes.
const MAX_QUOTED: usize = 1024;

/// A provider whose discovery document is known.
pub struct Provider {
    issuer: String,
    keys_url: String,
    fetcher: Fetcher,
    metrics: KeySetMetrics,
    keys: Mutex<Keys>,
    allowance: Allowance,
    /// Held by the one who fetches.
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Clone, Default)]
struct Keys {
    all: Arc<Vec<VerifyingKey>>,
    /// They need not be looked at again until then.
    expiry: Option<Instant>,
    /// The number of fetches.
    version: u64,
}

impl Keys {
    fn verify(&self, id: &str, algorithm: &str, message: &[u8], signature: &[u8]) -> bool {
        let mut candidates = self.all.iter().filter(|key| id.is_empty() || key.id == id);
        candidates.any(|key| key.verifies(algorithm, message, signature))
    }
}

impl Provider {
    /// Reads the discovery document of an issuer, at `discovery_url` where that is given.
    ///
    /// # Errors
    /// It is not to be had, or is another issuer's.
    pub async fn discover(
        issuer: &str,
        discovery_url: &str,
        fetcher: &Fetcher,
        metrics: KeySetMetrics,
    ) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Discovery {
            #[serde(default)]
            issuer: String,
            #[serde(default)]
            jwks_uri: String,
        }
        let well_known = format!("{}{WELL_KNOWN}", issuer.strip_suffix('/').unwrap_or(issuer));
        let url = match discovery_url {
            "" => well_known.as_str(),
            url => url,
        };
        let document = fetcher.get(url, None).await?;
        if document.status != StatusCode::OK {
            return Err(format!("{}: {}", document.status, quoted(&document)));
        }
        let found: Discovery = serde_json::from_slice(&document.body)
            .map_err(|why| format!("oidc: failed to decode provider discovery object: {why}"))?;
        if found.issuer != issuer {
            return Err(format!(
                "oidc: issuer did not match the issuer returned by provider, expected {} got {}",
                go::quote(issuer),
                go::quote(&found.issuer)
            ));
        }
        if found.jwks_uri.is_empty() {
            return Err("provider did not return JWKS URL".to_owned());
        }
        Ok(Self {
            issuer: issuer.to_owned(),
            keys_url: found.jwks_uri,
            fetcher: fetcher.clone(),
            metrics,
            keys: Mutex::default(),
            allowance: Allowance::new(MAX_FETCHES, FETCH_INTERVAL),
            fetching: tokio::sync::Mutex::default(),
        })
    }

    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Checks that a signature is the provider's. Where no known key made it, the keys are fetched
    /// anew, unless the provider has said that they stay for a while.
    ///
    /// # Errors
    /// None of its keys made it, or they are not to be had.
    pub async fn verify(
        &self,
        id: &str,
        algorithm: &str,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), String> {
        let known = self.keys.lock().clone();
        if known.verify(id, algorithm, message, signature) {
            return Ok(());
        }
        let refused = || Err("failed to verify id token signature".to_owned());
        let fresh = known
            .expiry
            .is_some_and(|expiry| Instant::now() + EXPIRY_DELTA <= expiry);
        if fresh {
            return refused();
        }
        let keys = self
            .fetch_after(known.version)
            .await
            .map_err(|why| format!("fetching keys {why}"))?;
        match keys.verify(id, algorithm, message, signature) {
            true => Ok(()),
            false => refused(),
        }
    }

    /// Returns keys that were fetched after those of a version; all who want them at a time wait
    /// for one fetch.
    async fn fetch_after(&self, version: u64) -> Result<Keys, String> {
        let _fetching = self.fetching.lock().await;
        let known = self.keys.lock().clone();
        if known.version > version {
            return Ok(known);
        }
        if !self.allowance.take() {
            return Ok(known);
        }
        let fetched = self.fetch().await;
        match &fetched {
            Ok((_, _, document)) => self.metrics.fetched(document),
            Err(_) => self.metrics.failed(),
        }
        let (all, expiry, _) = fetched?;
        let keys = Keys {
            all: Arc::new(all),
            expiry,
            version: version + 1,
        };
        *self.keys.lock() = keys.clone();
        Ok(keys)
    }

    async fn fetch(&self) -> Result<(Vec<VerifyingKey>, Option<Instant>, bytes::Bytes), String> {
        let document = self.fetcher.get(&self.keys_url, None).await;
        let document = document.map_err(|why| format!("oidc: get keys failed {why}"))?;
        if document.status != StatusCode::OK {
            return Err(format!(
                "oidc: get keys failed: {} {}",
                document.status,
                quoted(&document)
            ));
        }
        let keys = read_keys(&document.body)
            .map_err(|why| format!("oidc: failed to decode keys: {why} {}", quoted(&document)))?;
        let expiry = lifetime(&document).map(|lifetime| Instant::now() + lifetime);
        Ok((keys, expiry, document.body))
    }
}

fn quoted(document: &Fetched) -> String {
    let end = document.body.len().min(MAX_QUOTED);
    String::from_utf8_lossy(&document.body[..end]).into_owned()
}

/// Reads a JSON Web Key Set. Keys that cannot verify tokens are passed over.
fn read_keys(body: &[u8]) -> Result<Vec<VerifyingKey>, String> {
    let document = Document::new(body).map_err(|why| why.0)?;
    let value = document.value().map_err(|why| why.0)?;
    if !value.is_object() {
        return Err("json: cannot unmarshal into Go value of type jose.JSONWebKeySet".to_owned());
    }
    let keys = array_at(&value, "/keys").iter();
    Ok(keys
        .filter_map(|key| VerifyingKey::from_jwk(key).ok())
        .take(MAX_KEYS)
        .collect())
}

/// The time for which a document may be kept; `None` for none.
fn lifetime(document: &Fetched) -> Option<Duration> {
    let mut lifetime = None;
    for value in document.headers.get_all(CACHE_CONTROL) {
        for directive in value.to_str().unwrap_or_default().split(',') {
            let directive = directive.trim().to_ascii_lowercase();
            match directive.split_once('=') {
                None if matches!(directive.as_str(), "no-store" | "no-cache") => return None,
                Some(("max-age", seconds)) => {
                    let seconds = seconds.trim_matches('"').parse().ok()?;
                    lifetime = Some(Duration::from_secs(seconds).min(MAX_LIFETIME));
                }
                _ => {}
            }
        }
    }
    lifetime
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    #[test]
    fn unusable_keys_of_a_set_are_passed_over() {
        let set = json!({"keys": [
            {"kty": "oct", "k": "AAAA", "kid": "secret"},
            {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
            {"kty": "RSA", "n": "AQAB", "e": "AQAB"},
            {"kty": "OKP", "crv": "Ed25519", "x": "AA"},
            "no key",
        ]});
        let keys = read_keys(set.to_string().as_bytes()).expect("a set");
        assert_eq!(keys.len(), 0);
        assert!(read_keys(b"[]").is_err() && read_keys(b"{").is_err());
    }

    #[test]
    fn documents_are_kept_as_long_as_they_say() {
        let of = |value: &'static str| {
            let mut headers = http::HeaderMap::new();
            headers.insert(CACHE_CONTROL, http::HeaderValue::from_static(value));
            let (status, body) = (StatusCode::OK, bytes::Bytes::new());
            lifetime(&Fetched {
                status,
                headers,
                body,
            })
        };
        assert_eq!(of("public, max-age=60"), Some(Duration::from_secs(60)));
        assert_eq!(of("max-age=99999999"), Some(MAX_LIFETIME));
        assert_eq!(of("max-age=60, no-cache"), None);
        assert_eq!(of("max-age=x"), None);
    }
}
