//! Claims that another server has (OpenID Connect Core 5.6.2): of tokens that name the groups of
//! their users so.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

use super::claims::Claims;
use super::metrics::KeySetMetrics;
use super::provider::Provider;
use super::verifier::{Conditions, untrusted_issuer};
use crate::meta::go;
use crate::webhook::Fetcher;

/// The issuers of such claims that are remembered.
const MAX_ISSUERS: usize = 16;

/// The providers that have been found, by issuer.
type Providers = HashMap<String, Arc<Provider>>;

/// The resolver of one claim.
pub struct DistributedClaims {
    claim: String,
    fetcher: Fetcher,
    conditions: Conditions,
    providers: Mutex<Providers>,
    server: String,
}

impl DistributedClaims {
    pub fn new(claim: &str, fetcher: Fetcher, conditions: Conditions, server: &str) -> Self {
        Self {
            claim: claim.to_owned(),
            fetcher,
            conditions,
            providers: Mutex::default(),
            server: server.to_owned(),
        }
    }

    /// Puts the claim in if another server has it: in a token of its own, which is verified by the
    /// same conditions.
    ///
    /// # Errors
    /// It is not to be had, or not valid.
    pub async fn expand(&self, claims: &mut Claims, now: Timestamp) -> Result<(), String> {
        let Some(source) = claims.source_of(&self.claim)? else {
            return Ok(());
        };
        let claim = &self.claim;
        let endpoint = &source.endpoint;
        let token = Some(source.access_token.as_str()).filter(|token| !token.is_empty());
        let failed = |why| {
            let claim = go::quote(claim);
            format!("while getting distributed claim {claim}: {why}")
        };
        let found = self.fetcher.get(endpoint, token).await.map_err(failed)?;
        if !(200..=226).contains(&found.status.as_u16()) {
            let why = format!(
                "error while getting distributed claim JWT: {}",
                found.status
            );
            return Err(failed(why));
        }
        let token = String::from_utf8_lossy(&found.body);
        let issuer = untrusted_issuer(&token).ok_or_else(|| {
            format!("getting untrusted issuer from endpoint {endpoint} failed for claim {}: malformed token", go::quote(claim))
        })?;
        let provider = self.provider(&issuer).await.map_err(|why| {
            format!("verifying untrusted issuer {issuer} failed: verifier not initialized for issuer: {}: {why}", go::quote(&issuer))
        })?;
        let verified = self.conditions.verify(&token, &provider, now).await;
        let verified = verified.map_err(|why| format!("verify distributed claim token: {why}"))?;
        let value = verified.get(claim).cloned().ok_or_else(|| {
            format!(
                "jwt returned by distributed claim endpoint {} did not contain claim: {claim}",
                go::quote(endpoint)
            )
        })?;
        claims.insert(claim, value);
        Ok(())
    }

    /// The provider of an issuer. Nobody waits while that of another issuer is looked for.
    async fn provider(&self, issuer: &str) -> Result<Arc<Provider>, String> {
        let known = |providers: &Providers| match providers.get(issuer) {
            Some(known) => Ok(Some(known.clone())),
            None if providers.len() < MAX_ISSUERS => Ok(None),
            None => Err(format!("more than {MAX_ISSUERS} issuers have claims")),
        };
        if let Some(known) = known(&self.providers.lock())? {
            return Ok(known);
        }
        let metrics = KeySetMetrics::new(issuer, &self.server);
        let found = Provider::discover(issuer, "", &self.fetcher, metrics).await?;
        let mut providers = self.providers.lock();
        if let Some(known) = known(&providers)? {
            return Ok(known);
        }
        let found = Arc::new(found);
        providers.insert(issuer.to_owned(), found.clone());
        Ok(found)
    }
}
