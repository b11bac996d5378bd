//! The health of a KMS plugin, and the rotation of the seed when the plugin has another key
//! (apiserver `server/options/encryptionconfig/config.go`).

use std::sync::{Arc, Weak};
use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::{Instant, sleep};

use crate::base::grpc::error_text;
use crate::base::supervise::{FailureTracker, catch_panic};
use crate::meta::time;
use crate::storage::encryption::TransformError;
use crate::storage::encryption::metrics;

use super::client::StatusResponse;
use super::envelope::check_key_id;
use super::{Kms, State};

/// The time between two questions of a healthy plugin, and of one that is not.
const HEALTHY_INTERVAL: Duration = Duration::from_secs(60);
const UNHEALTHY_INTERVAL: Duration = Duration::from_secs(10);
/// The time for which an answer of a healthy plugin serves the health checks, and of another.
const HEALTHY_TTL: Duration = Duration::from_secs(20);
const UNHEALTHY_TTL: Duration = Duration::from_secs(3);
/// The time for which values are encrypted with a seed after the plugin has last confirmed its key.
const SEED_TTL: SignedDuration = SignedDuration::from_mins(3);
/// The versions of the interface, which are the same.
const VERSIONS: [&str; 2] = ["v2", "v2beta1"];

/// The last probe of a plugin.
#[derive(Debug, Default)]
pub struct LastProbe {
    outcome: Option<(Result<(), String>, Instant)>,
    /// The version that the plugin told first.
    version: String,
}

impl LastProbe {
    /// Returns the outcome if it is recent.
    fn recent(&self) -> Option<Result<(), String>> {
        let (outcome, at) = self.outcome.as_ref()?;
        let ttl = match outcome {
            Ok(()) => HEALTHY_TTL,
            Err(_) => UNHEALTHY_TTL,
        };
        (at.elapsed() < ttl).then(|| outcome.clone())
    }
}

impl Kms {
    /// Asks the plugin for its health, unless it was asked just now, and takes a new seed if its
    /// key has changed.
    ///
    /// # Errors
    /// The reason why it is not healthy.
    pub async fn check(&self) -> Result<(), String> {
        let mut probe = self.probe.lock().await;
        if let Some(outcome) = probe.recent() {
            return outcome;
        }
        let outcome = match self.client.status().await {
            Ok(status) => self.check_status(&status, &mut probe.version).await,
            Err(status) => Err(format!(
                "failed to perform status section of the healthz check for KMS Provider {}, error: {}",
                self.name,
                error_text(&status)
            )),
        };
        probe.outcome = Some((outcome.clone(), Instant::now()));
        outcome
    }

    async fn check_status(
        &self,
        status: &StatusResponse,
        version: &mut String,
    ) -> Result<(), String> {
        let mut errors = Vec::new();
        let mut failed = |why: String| errors.push(TransformError::permanent(why));
        if status.healthz != "ok" {
            failed(format!("got unexpected healthz status: {}", status.healthz));
        }
        if VERSIONS.contains(&status.version.as_str()) {
            if version.is_empty() {
                version.clone_from(&status.version);
            }
            if *version != status.version {
                failed(format!(
                    "KMSv2 API version should not change after the initial status response version {version}, got {}",
                    status.version
                ));
            }
        } else {
            failed(format!(
                "expected KMSv2 API version v2, got {}",
                status.version
            ));
        }
        match check_key_id(&status.key_id) {
            Err((label, why)) => {
                metrics::record_invalid_key_id(&self.name, label);
                failed(format!(
                    "got invalid KMSv2 KeyID hash {:?}: {why}",
                    metrics::hash(&status.key_id)
                ));
            }
            Ok(()) => {
                let (name, server, now) = (&self.name, &self.server_hash, self.now());
                metrics::record_key_id_status(name, &status.key_id, server, now);
                if let Err(why) = self.rotate(&status.key_id).await {
                    failed(why);
                }
            }
        }
        match TransformError::aggregate(errors) {
            Some(why) => Err(format!(
                "kmsv2 Provider {} is not healthy, error: {why}",
                self.name
            )),
            None => Ok(()),
        }
    }

    /// Extends the life of the seed if the plugin still has its key, else takes another. A seed
    /// that cannot be replaced is used on until it expires.
    async fn rotate(&self, key_id: &str) -> Result<(), String> {
        let state = self.state.load_full();
        // Begun before the plugin is asked: it is an upper bound.
        let expires = self.clock.now() + SEED_TTL;
        if let Some(state) = state
            .as_ref()
            .filter(|state| state.template.key_id == key_id)
        {
            self.state.store(Some(Arc::new(State {
                cipher: state.cipher.clone(),
                template: state.template.clone(),
                source: state.source,
                expires,
            })));
            return Ok(());
        }
        let generated = self.generate().await;
        if let Ok((cipher, template)) = &generated
            && template.key_id == key_id
        {
            self.state.store(Some(Arc::new(State {
                cipher: cipher.clone(),
                source: template.source_id(),
                template: template.clone(),
                expires,
            })));
            tracing::info!(plugin = self.name, "values are encrypted with a new key");
            return Ok(());
        }
        let encrypted = generated.as_ref().map_or("", |(_, object)| &object.key_id);
        Err(format!(
            "failed to rotate DEK uid=\"\", useSeed=true, errState={}, errGen={}, statusKeyIDHash={:?}, \
             encryptKeyIDHash={:?}, stateKeyIDHash={:?}, expirationTimestamp={}",
            state
                .as_ref()
                .map_or("got unexpected nil transformer", |_| "<nil>"),
            generated
                .as_ref()
                .err()
                .map_or_else(|| "<nil>".to_owned(), ToString::to_string),
            metrics::hash(key_id),
            metrics::hash(encrypted),
            metrics::hash(state.as_ref().map_or("", |state| &state.template.key_id)),
            state.as_ref().map_or_else(
                || "0001-01-01T00:00:00Z".to_owned(),
                |state| time::format(state.expires.as_second())
            ),
        ))
    }

    /// Asks the plugin once, so that one that works can be used at once, and from then on again
    /// and again in the background until this is dropped.
    pub async fn start(self: &Arc<Self>) {
        let tracker = FailureTracker::new(format!("probing the KMS plugin {}", self.name));
        let healthy = record(&tracker, &self.check().await);
        let poll = poll(Arc::downgrade(self), tracker, healthy);
        *self.poll.lock() = Some(tokio::spawn(poll).abort_handle());
    }
}

async fn poll(kms: Weak<Kms>, tracker: FailureTracker, mut healthy: bool) {
    loop {
        sleep(if healthy {
            HEALTHY_INTERVAL
        } else {
            UNHEALTHY_INTERVAL
        })
        .await;
        let Some(kms) = kms.upgrade() else {
            return;
        };
        let checked = catch_panic("the probe of a KMS plugin", kms.check()).await;
        healthy = record(&tracker, &checked.flatten());
    }
}

fn record(tracker: &FailureTracker, outcome: &Result<(), String>) -> bool {
    match outcome {
        Ok(()) => tracker.record_success(),
        Err(why) => tracker.record_failure(why),
    }
    outcome.is_ok()
}
