//! OpenID Connect: tokens of issuers that a configuration names, verified with the keys that they
//! publish (apiserver `plugin/pkg/authenticator/token/oidc`).

mod authenticator;
pub mod claims;
pub mod configuration;
mod distributed_claims;
pub mod metrics;
mod provider;
pub mod validation;
pub mod verifier;

use std::time::{Duration, Instant};

use super::AuthnError;
use crate::auth::User;
use crate::base::clock::Clock;
use crate::base::dial::Egress;
use authenticator::JwtAuthenticator;
use configuration::Configuration;
use validation::Mapper;

/// The algorithms that tokens may be signed with (`oidc.AllValidSigningAlgorithms`).
pub const ALGORITHMS: [&str; 9] = [
    "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512",
];

/// Removes the metrics of an issuer that is no longer configured.
pub fn forget(issuer: &str, server: &str) {
    metrics::KeySetMetrics::new(issuer, server).remove();
}

/// The authenticators of a configuration. Dropping them ends their tasks.
pub struct JwtAuthenticators(Vec<JwtAuthenticator>);

impl JwtAuthenticators {
    /// Begins to look for the keys of every issuer. `mappers` are those of
    /// [`validation::validate`], `server` is the name of this server in metrics.
    ///
    /// # Errors
    /// The certificates of an issuer's authority cannot be used.
    pub fn start(
        configuration: &Configuration,
        mappers: Vec<Mapper>,
        algorithms: &[String],
        egress: &Egress,
        clock: &Clock,
        server: &str,
    ) -> Result<Self, String> {
        let authenticators = configuration.jwt.iter().zip(mappers).map(|(one, mapper)| {
            JwtAuthenticator::start(
                one.clone(),
                mapper,
                algorithms,
                egress,
                clock.clone(),
                server,
            )
        });
        authenticators.collect::<Result<_, _>>().map(Self)
    }

    /// Returns the user that a token names; `None` if it is none of these issuers'.
    ///
    /// # Errors
    /// It claims to be one's, and is not valid.
    pub async fn authenticate(&self, token: &str) -> Result<Option<User>, AuthnError> {
        let Some(issuer) = verifier::untrusted_issuer(token) else {
            return Ok(None);
        };
        let Some(one) = self.0.iter().find(|one| one.issuer() == issuer) else {
            return Ok(None);
        };
        let start = Instant::now();
        let outcome = one.authenticate(token).await;
        metrics::authenticated(&issuer, outcome.is_ok(), start.elapsed());
        outcome.map(Some).map_err(AuthnError::new)
    }

    /// Waits until the keys of all issuers are known.
    ///
    /// # Errors
    /// They are not within that time; the text says why.
    pub async fn ready(&self, within: Duration) -> Result<(), String> {
        let deadline = tokio::time::Instant::now() + within;
        let mut errors = Vec::new();
        for one in &self.0 {
            if let Err(why) = one.ready(deadline).await {
                errors.push(why);
            }
        }
        match errors.is_empty() {
            true => Ok(()),
            false => Err(crate::auth::authz::aggregate(&errors)),
        }
    }
}
