//! Authentication: client certificates, tokens, service accounts and front proxies. The first
//! authenticator that recognises the client decides.

pub mod bootstrap_token;
pub mod cache;
pub mod certificate_request;
pub mod chain;
pub mod external_signer;
pub mod jwt;
pub mod keys;
pub mod metrics;
pub mod oidc;
pub mod openid;
pub mod request_header;
pub mod service_account;
pub mod static_token;
pub mod token_webhook;
pub mod x509;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::HeaderMap;
use jiff::Timestamp;
use parking_lot::Mutex;
use rustls_pki_types::CertificateDer;

use super::User;
use crate::meta::Object;
pub use chain::{Chain, Options};
use x509::{CaBundle, Verified};

/// The extra attribute with the ID of the credential that was used.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The time for which a certificate stays refused without being checked again: it may be one that
/// is not valid yet.
pub const REFUSAL_TTL: Duration = Duration::from_secs(10);

/// The other side of a connection: the certificates it showed, the key of the first of which it has
/// proven to have. What was found out about them is kept, since it is asked for with every request.
#[derive(Debug, Default)]
pub struct Peer {
    certificates: Vec<CertificateDer<'static>>,
    client: Mutex<Option<CachedAuthentication>>,
    front_proxy: Mutex<Option<CachedAuthentication>>,
}

/// The outcome of checking a peer's certificate. It holds for the authorities that were asked, and
/// up to a time.
#[derive(Debug)]
struct CachedAuthentication {
    authorities: CaBundle,
    until: Timestamp,
    outcome: Result<Arc<Verified>, AuthnError>,
}

/// The purposes that a client certificate is checked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Client,
    FrontProxy,
}

impl Peer {
    pub fn new(certificates: Vec<CertificateDer<'static>>) -> Self {
        Self {
            certificates,
            ..Self::default()
        }
    }

    /// The certificates shown, the peer's own first.
    #[cfg(test)]
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.certificates
    }

    /// Returns the identity that the peer's certificate proves by `bundle`; `None` if it showed
    /// none.
    pub(crate) fn verified(
        &self,
        purpose: Purpose,
        bundle: &CaBundle,
        now: Timestamp,
    ) -> Result<Option<Arc<Verified>>, AuthnError> {
        if self.certificates.is_empty() {
            return Ok(None);
        }
        let mut slot = match purpose {
            Purpose::Client => self.client.lock(),
            Purpose::FrontProxy => self.front_proxy.lock(),
        };
        if let Some(cached) = slot
            .as_ref()
            .filter(|cached| now <= cached.until && cached.authorities.is(bundle))
        {
            return cached.outcome.clone().map(Some);
        }
        let verified = bundle.verify(&self.certificates, now);
        let outcome = verified
            .map(Arc::new)
            .map_err(|why| AuthnError::new(format!("verifying certificate failed: {why}")));
        let until = match &outcome {
            Ok(verified) => verified.not_after,
            Err(_) => now.checked_add(REFUSAL_TTL).unwrap_or(now),
        };
        *slot = Some(CachedAuthentication {
            authorities: bundle.clone(),
            until,
            outcome: outcome.clone(),
        });
        outcome.map(Some)
    }
}

/// The credentials of a request.
#[derive(Clone, Copy, Debug)]
pub struct Credentials<'a> {
    /// The path that is asked for.
    pub path: &'a str,
    pub headers: &'a HeaderMap,
    pub peer: &'a Peer,
}

/// The user of a token, and those of the audiences asked for that the token is meant for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenUser {
    pub user: Arc<User>,
    pub audiences: Vec<String>,
    /// Warnings for every client that uses the token.
    pub warnings: Vec<&'static str>,
    pub annotations: Annotations,
}

/// The annotations about credentials for audit events.
pub type Annotations = Vec<(&'static str, String)>;

/// The user of a request, and warnings about its credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authenticated {
    pub user: Arc<User>,
    pub warnings: Vec<&'static str>,
    pub annotations: Annotations,
}

impl From<Arc<User>> for Authenticated {
    fn from(user: Arc<User>) -> Self {
        Self {
            user,
            ..Self::default()
        }
    }
}

/// The reason credentials were not accepted. The client sees `Unauthorized` only; TokenReview and
/// the log have the reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthnError {
    reasons: Vec<String>,
    last: bool,
}

impl AuthnError {
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            reasons: vec![reason.into()],
            last: false,
        }
    }

    /// An error after which no other way to authenticate is tried.
    pub fn last(reason: impl Into<String>) -> Self {
        Self {
            last: true,
            ..Self::new(reason)
        }
    }

    /// Reports whether no other way to authenticate is to be tried.
    pub fn is_last(&self) -> bool {
        self.last
    }

    fn add(&mut self, other: AuthnError) {
        self.reasons.extend(other.reasons);
        self.last |= other.last;
    }

    fn is_empty(&self) -> bool {
        self.reasons.is_empty()
    }
}

/// One reason as it is, several in brackets, each once (apimachinery `util/errors.Aggregate`).
impl fmt::Display for AuthnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut unique: Vec<&str> = Vec::new();
        for reason in &self.reasons {
            if !unique.contains(&reason.as_str()) {
                unique.push(reason);
            }
        }
        match unique.as_slice() {
            [one] => f.write_str(one),
            many => write!(f, "[{}]", many.join(", ")),
        }
    }
}

impl std::error::Error for AuthnError {}

/// Determines the user of a request.
#[async_trait]
pub trait Authenticator: Send + Sync {
    /// The user, or `None` if the request has no credentials and anonymous requests are not let in.
    ///
    /// # Errors
    /// The request has credentials that are not valid: it is answered with 401, not treated as
    /// anonymous.
    async fn authenticate(
        &self,
        credentials: &Credentials<'_>,
    ) -> Result<Option<Authenticated>, AuthnError>;
}

/// The value of a key in a Secret's data.
fn secret_data(secret: &Object, key: &str) -> Option<Vec<u8>> {
    let encoded = secret.get("data")?.get(key)?.as_str()?;
    BASE64_STANDARD.decode(encoded).ok()
}

/// Compares two secrets in constant time.
fn same(one: &[u8], other: &[u8]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(one, other).is_ok()
}

#[cfg(test)]
mod fake {
    use std::collections::BTreeMap;

    use async_trait::async_trait;
    use parking_lot::Mutex;

    use crate::auth::ObjectSource;
    use crate::meta::status::Result;
    use crate::meta::{Gvr, Object, Value};

    /// Objects in memory, by resource, namespace and name.
    #[derive(Default)]
    pub struct Objects(Mutex<BTreeMap<(String, String, String), Object>>);

    impl Objects {
        pub fn put(&self, resource: &str, namespace: &str, value: Value) {
            let object = Object::from_value(value).expect("an object");
            let key = (
                resource.to_owned(),
                namespace.to_owned(),
                object.name().to_owned(),
            );
            self.0.lock().insert(key, object);
        }

        pub fn remove(&self, resource: &str, namespace: &str, name: &str) {
            self.0
                .lock()
                .remove(&(resource.to_owned(), namespace.to_owned(), name.to_owned()));
        }
    }

    #[async_trait]
    impl ObjectSource for Objects {
        async fn get(&self, gvr: &Gvr, namespace: &str, name: &str) -> Option<Object> {
            self.0
                .lock()
                .get(&(gvr.resource.clone(), namespace.to_owned(), name.to_owned()))
                .cloned()
        }

        async fn set_label(
            &self,
            gvr: &Gvr,
            object: &Object,
            key: &str,
            value: &str,
        ) -> Result<()> {
            let mut object = object.clone();
            object.set_label(key, value);
            let namespace = object.namespace().to_owned();
            self.put(&gvr.resource, &namespace, Value::Object(object.0));
            Ok(())
        }
    }
}
