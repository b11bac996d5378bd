//! The authenticator of one issuer's tokens.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::claims;
use super::configuration::{self, Issuer};
use super::distributed_claims::DistributedClaims;
use super::metrics::KeySetMetrics;
use super::provider::Provider;
use super::validation::Mapper;
use super::verifier::Conditions;
use crate::auth::User;
use crate::base::clock::Clock;
use crate::base::dial::{Dial, Egress, Network};
use crate::meta::go;
use crate::webhook::Fetcher;

/// The time between two attempts at a discovery document.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(10);

/// The provider, or why it is not known yet.
type Discovered = Result<Arc<Provider>, String>;

/// The authenticator. A task looks for its issuer's discovery document until it is there.
pub struct JwtAuthenticator {
    config: configuration::JwtAuthenticator,
    mapper: Mapper,
    conditions: Conditions,
    distributed: Option<DistributedClaims>,
    provider: watch::Receiver<Discovered>,
    clock: Clock,
    _task: AbortOnDropHandle<()>,
}

/// Returns the dialer of an issuer's network; `None` where connections are direct.
///
/// # Errors
/// There is no such way out of this server.
fn dialer(
    issuer: &configuration::Issuer,
    egress: &Egress,
) -> Result<Option<Arc<dyn Dial>>, String> {
    let name = issuer.egress_selector_type.as_str();
    let network = match name {
        "" => return Ok(None),
        "controlplane" => Network::ControlPlane,
        _ => Network::Cluster,
    };
    if egress.is_empty() {
        return Err(format!(
            "oidc: egress lookup required with egress selector type \"{name}\""
        ));
    }
    if !egress.has(network) {
        return Err(format!(
            "oidc: egress lookup for \"{name}\" is not configured"
        ));
    }
    Ok(egress.dialer(network))
}

impl JwtAuthenticator {
    /// # Errors
    /// The certificates of the issuer's authority cannot be used.
    pub fn start(
        config: configuration::JwtAuthenticator,
        mapper: Mapper,
        algorithms: &[String],
        egress: &Egress,
        clock: Clock,
        server: &str,
    ) -> Result<Self, String> {
        let issuer = &config.issuer;
        let fetcher = Fetcher::new(
            issuer.certificate_authority.as_bytes(),
            dialer(issuer, egress)?,
        )
        .map_err(|why| format!("Failed to read the CA contents: {why}"))?;
        let conditions = Conditions {
            audiences: issuer.audiences.clone(),
            algorithms: algorithms.to_vec(),
        };
        let groups = config.groups.claim.as_str();
        let distributed = (!groups.is_empty())
            .then(|| DistributedClaims::new(groups, fetcher.clone(), conditions.clone(), server));
        let initial = format!(
            "oidc: authenticator for issuer {} is not initialized",
            go::quote(&issuer.url)
        );
        let (sender, provider) = watch::channel(Err(initial));
        let metrics = KeySetMetrics::new(&issuer.url, server);
        let task = tokio::spawn(discover(issuer.clone(), fetcher, metrics, sender));
        Ok(Self {
            config,
            mapper,
            conditions,
            distributed,
            provider,
            clock,
            _task: AbortOnDropHandle::new(task),
        })
    }

    pub fn issuer(&self) -> &str {
        &self.config.issuer.url
    }

    /// Returns the user that a token of the issuer names.
    ///
    /// # Errors
    /// Upstream's text.
    pub async fn authenticate(&self, token: &str) -> Result<User, String> {
        let provider = self.provider.borrow().clone();
        let provider = provider.map_err(|_| "oidc: authenticator not initialized".to_owned())?;
        let now = self.clock.now();
        let verified = self.conditions.verify(token, &provider, now).await;
        let mut claims = verified.map_err(|why| format!("oidc: verify token: {why}"))?;
        if let Some(distributed) = &self.distributed {
            let expanded = distributed.expand(&mut claims, now).await;
            expanded.map_err(|why| format!("oidc: could not expand distributed claims: {why}"))?;
        }
        claims::user(&claims, &self.config, &self.mapper)
    }

    /// Waits until the provider is known.
    ///
    /// # Errors
    /// It is not by then; the text says why.
    pub async fn ready(&self, deadline: Instant) -> Result<(), String> {
        let mut provider = self.provider.clone();
        let known = timeout_at(deadline, provider.wait_for(Result::is_ok)).await;
        let known = known.is_ok_and(|known| known.is_ok());
        if known {
            return Ok(());
        }
        let why = provider.borrow().as_ref().err().cloned();
        Err(format!(
            "oidc: authenticator for issuer {} is not healthy: {}",
            go::quote(self.issuer()),
            why.unwrap_or_default()
        ))
    }
}

async fn discover(
    issuer: Issuer,
    fetcher: Fetcher,
    metrics: KeySetMetrics,
    sender: watch::Sender<Discovered>,
) {
    loop {
        let metrics = metrics.clone();
        match Provider::discover(&issuer.url, &issuer.discovery_url, &fetcher, metrics).await {
            Ok(provider) => {
                sender.send_modify(|known| *known = Ok(Arc::new(provider)));
                return;
            }
            Err(why) => {
                tracing::error!("oidc authenticator: initializing plugin: {why}");
                sender.send_modify(|known| *known = Err(why));
            }
        }
        sleep(DISCOVERY_INTERVAL).await;
    }
}
