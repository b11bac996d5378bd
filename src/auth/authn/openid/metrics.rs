//! Metrics of JWT authenticators (apiserver `plugin/pkg/authenticator/token/oidc/metrics.go`).

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::base::clock::Clock;
use crate::telemetry::config_reloads::hash;
use crate::telemetry::metrics::{Declared, Gauge, Histogram};

static SECONDS: Histogram = Histogram::new(
    "apiserver_authentication_jwt_authenticator_latency_seconds",
    "[ALPHA] Latency of jwt authentication operations in seconds. This is the time spent authenticating a token for cache miss only (i.e. when the token is not found in the cache).",
    &["result", "jwt_issuer_hash"],
    &[
        0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    ],
);
static LAST_FETCH: Gauge = Gauge::new(
    "apiserver_authentication_jwt_authenticator_jwks_fetch_last_timestamp_seconds",
    "[ALPHA] Timestamp of the last successful or failed JWKS fetch split by result, api server identity and jwt issuer for the JWT authenticator.",
    &["result", "jwt_issuer_hash", "apiserver_id_hash"],
);
static KEY_SET: Gauge = Gauge::new(
    "apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info",
    "[ALPHA] Information about the last JWKS fetched by the JWT authenticator with hash as label, split by api server identity and jwt issuer.",
    &["jwt_issuer_hash", "apiserver_id_hash", "hash"],
);

pub static METRICS: &[&dyn Declared] = &[&SECONDS, &LAST_FETCH, &KEY_SET];

/// The hash of each issuer's key set that is shown.
static SHOWN: Mutex<Option<HashMap<String, String>>> = Mutex::new(None);

/// Records the authentication of a token that claims to be an issuer's.
pub fn authenticated(issuer: &str, succeeded: bool, took: Duration) {
    let result = if succeeded { "success" } else { "failure" };
    SECONDS.observe(&[result, &hash(issuer.as_bytes())], took.as_secs_f64());
}

/// The key set of an issuer, as this server fetches it.
#[derive(Clone)]
pub struct KeySetMetrics {
    issuer: String,
    server: String,
}

impl KeySetMetrics {
    pub fn new(issuer: &str, server: &str) -> Self {
        Self {
            issuer: hash(issuer.as_bytes()),
            server: hash(server.as_bytes()),
        }
    }

    /// Records that it was fetched.
    pub fn fetched(&self, document: &[u8]) {
        self.record("success");
        let new = hash(document);
        let mut shown = SHOWN.lock();
        let shown = shown.get_or_insert_default();
        if let Some(old) = shown.insert(self.issuer.clone(), new.clone()) {
            KEY_SET.remove(&[&self.issuer, &self.server, &old]);
        }
        KEY_SET.set(&[&self.issuer, &self.server, &new], 1);
    }

    /// Records that it could not be.
    pub fn failed(&self) {
        self.record("failure");
    }

    fn record(&self, result: &str) {
        let labels = [result, self.issuer.as_str(), self.server.as_str()];
        LAST_FETCH.set(&labels, Clock::system().now().as_second());
    }

    /// Forgets an issuer that is no longer configured.
    pub fn remove(&self) {
        for result in ["success", "failure"] {
            LAST_FETCH.remove(&[result, &self.issuer, &self.server]);
        }
        let mut shown = SHOWN.lock();
        if let Some(old) = shown.as_mut().and_then(|all| all.remove(&self.issuer)) {
            KEY_SET.remove(&[&self.issuer, &self.server, &old]);
        }
    }
}
