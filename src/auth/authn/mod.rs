//! Authentication: client certificates, tokens, service accounts, front proxies; the first that knows the caller wins.

pub mod request_header;
pub mod x509;

use std::fmt;
use std::sync::OnceLock;

use async_trait::async_trait;
use http::HeaderMap;
use jiff::Timestamp;
use rustls_pki_types::CertificateDer;

use super::User;
use x509::{CaBundle, Verified};

/// The attribute of a user that tells which credential was used, so that it can be traced.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The other side of a connection: the certificates it showed, the key of the first of which it has proven to have.
/// What was found out about them is kept, since it is asked for with every request.
#[derive(Debug, Default)]
pub struct Peer {
    certificates: Vec<CertificateDer<'static>>,
    client: OnceLock<Result<Verified, AuthnError>>,
    front_proxy: OnceLock<Result<Verified, AuthnError>>,
}

/// What a client certificate is checked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Client,
    FrontProxy,
}

impl Peer {
    pub fn new(certificates: Vec<CertificateDer<'static>>) -> Self {
        Self { certificates, ..Self::default() }
    }

    /// The certificates shown, the peer's own first.
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.certificates
    }

    /// Who the peer's certificate names, by `bundle`; `None` if it showed none. Always ask with the same bundle for a purpose.
    pub(crate) fn verified(&self, purpose: Purpose, bundle: &CaBundle, now: Timestamp) -> Result<Option<&Verified>, AuthnError> {
        if self.certificates.is_empty() {
            return Ok(None);
        }
        let slot = match purpose {
            Purpose::Client => &self.client,
            Purpose::FrontProxy => &self.front_proxy,
        };
        let verify =
            || bundle.verify(&self.certificates, now).map_err(|why| AuthnError::new(format!("verifying certificate failed: {why}")));
        match slot.get_or_init(verify) {
            Ok(verified) if now > verified.not_after => Err(AuthnError::new("x509: certificate has expired or is not yet valid")),
            Ok(verified) => Ok(Some(verified)),
            Err(why) => Err(why.clone()),
        }
    }
}

/// What a request says about who sent it.
#[derive(Clone, Copy, Debug)]
pub struct Credentials<'a> {
    pub headers: &'a HeaderMap,
    pub peer: &'a Peer,
}

/// Why credentials were not accepted. The client is told `Unauthorized` only; TokenReview and the log tell the reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthnError(Vec<String>);

impl AuthnError {
    pub fn new(reason: impl Into<String>) -> Self {
        Self(vec![reason.into()])
    }

    fn add(&mut self, other: AuthnError) {
        self.0.extend(other.0);
    }
}

/// One reason as it is, several in brackets, each once (apimachinery `util/errors.Aggregate`).
impl fmt::Display for AuthnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut unique: Vec<&str> = Vec::new();
        for reason in &self.0 {
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

/// Finds out who sends a request.
#[async_trait]
pub trait Authenticator: Send + Sync {
    /// The user, or `None` if nothing in the request says who it is and nameless requests are not let in.
    ///
    /// # Errors
    /// The request has credentials that are not valid: it is answered with 401, not treated as anonymous.
    async fn authenticate(&self, credentials: &Credentials<'_>) -> Result<Option<User>, AuthnError>;
}
