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
pub const HEALTHY_TTL: Duration = Duration::from_secs(20);
pub const UNHEALTHY_TTL: Duration = Duration::from_secs(3);
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use bytes::Bytes;
    use jiff::Timestamp;
    use tokio::net::UnixListener;
    use tonic::{Request, Response, Status};

    use super::super::client::generated::key_management_service_server::{
        KeyManagementService, KeyManagementServiceServer,
    };
    use super::super::client::generated::{
        DecryptRequest, DecryptResponse, EncryptRequest, EncryptResponse, StatusRequest,
    };
    use super::*;
    use crate::base::clock::Clock;
    use crate::storage::encryption::transformer::{Context, Transform};

    const CX: Context<'_> = Context {
        key: "/registry/secrets/default/a",
        resource: "secrets",
        may_wait: true,
    };

    /// A plugin whose keys and faults are set by a test.
    #[derive(Default)]
    struct Plugin {
        key: AtomicU64,
        /// The key of encryption is another than that of the status.
        changes: AtomicBool,
        lies: AtomicBool,
        hangs: AtomicBool,
        encrypted: AtomicU64,
        decrypted: AtomicU64,
    }

    fn is(flag: &AtomicBool) -> bool {
        flag.load(Ordering::Relaxed)
    }

    #[tonic::async_trait]
    impl KeyManagementService for Arc<Plugin> {
        async fn status(
            &self,
            _: Request<StatusRequest>,
        ) -> Result<Response<StatusResponse>, Status> {
            if is(&self.hangs) {
                std::future::pending::<()>().await;
            }
            Ok(Response::new(StatusResponse {
                version: "v2".to_owned(),
                healthz: "ok".to_owned(),
                key_id: self.key.load(Ordering::Relaxed).to_string(),
            }))
        }

        async fn encrypt(
            &self,
            request: Request<EncryptRequest>,
        ) -> Result<Response<EncryptResponse>, Status> {
            self.encrypted.fetch_add(1, Ordering::Relaxed);
            let key = self.key.load(Ordering::Relaxed) + u64::from(is(&self.changes));
            Ok(Response::new(EncryptResponse {
                ciphertext: request.into_inner().plaintext,
                key_id: key.to_string(),
                annotations: Default::default(),
            }))
        }

        async fn decrypt(
            &self,
            request: Request<DecryptRequest>,
        ) -> Result<Response<DecryptResponse>, Status> {
            self.decrypted.fetch_add(1, Ordering::Relaxed);
            let plaintext = match is(&self.lies) {
                true => Bytes::from_static(&[7; 32]),
                false => request.into_inner().ciphertext,
            };
            Ok(Response::new(DecryptResponse { plaintext }))
        }
    }

    /// A plugin, and a server that uses it.
    struct World {
        plugin: Arc<Plugin>,
        kms: Arc<Kms>,
        clock: Clock,
        socket: tempfile::TempDir,
    }

    impl World {
        fn start() -> Self {
            let (plugin, socket) = (Arc::new(Plugin::default()), tempfile::tempdir());
            let socket = socket.expect("a folder");
            let listener = UnixListener::bind(socket.path().join("kms")).expect("a socket");
            let incoming = futures::stream::unfold(listener, async |listener| {
                let stream = listener.accept().await.map(|(stream, _)| stream);
                Some((stream, listener))
            });
            let service = KeyManagementServiceServer::new(plugin.clone());
            let serving = tonic::transport::Server::builder()
                .add_service(service)
                .serve_with_incoming(Box::pin(incoming));
            tokio::spawn(serving);
            let clock = Clock::manual(Timestamp::UNIX_EPOCH);
            let kms = Self::server(&socket, &clock);
            Self {
                plugin,
                kms,
                clock,
                socket,
            }
        }

        /// A server that has not asked the plugin yet.
        fn server(socket: &tempfile::TempDir, clock: &Clock) -> Arc<Kms> {
            let endpoint = format!("unix://{}/kms", socket.path().display());
            let timeout = Duration::from_millis(500);
            Kms::new("vault", &endpoint, timeout, "", clock.clone()).expect("an endpoint")
        }

        /// Asks the plugin, however recently it was asked.
        async fn check(&self) -> Result<(), String> {
            self.kms.probe.lock().await.outcome = None;
            self.kms.check().await
        }

        async fn encrypt(&self) -> Result<Bytes, String> {
            let mut out = Vec::new();
            let encrypted = self.kms.encrypt(b"text", &mut out, CX).await;
            encrypted
                .map(|()| out.into())
                .map_err(|why| why.to_string())
        }
    }

    #[tokio::test]
    async fn a_seed_is_used_until_the_plugin_is_silent_for_too_long() {
        let world = World::start();
        assert_eq!(
            world.encrypt().await,
            Err("got unexpected nil transformer".to_owned())
        );
        world.check().await.expect("healthy");
        for _ in 0..100 {
            world.encrypt().await.expect("encrypted");
        }
        // Each confirmation of the key lengthens the life of the seed.
        for _ in 0..3 {
            world.clock.advance(Duration::from_secs(170));
            world.check().await.expect("healthy");
            world.encrypt().await.expect("encrypted");
        }
        let encrypted = world.plugin.encrypted.load(Ordering::Relaxed);
        assert_eq!(encrypted, 1, "the seed is used again");
        world.plugin.hangs.store(true, Ordering::Relaxed);
        let why = world.check().await.expect_err("it hangs");
        assert!(
            why.ends_with(
                "error: rpc error: code = DeadlineExceeded desc = context deadline exceeded"
            ),
            "{why}"
        );
        world.clock.advance(Duration::from_secs(180));
        let stored = world.encrypt().await.expect("to the second");
        world.clock.advance(Duration::from_secs(1));
        let why = world.encrypt().await.expect_err("expired");
        assert!(
            why.ends_with("expired at 1970-01-01T00:11:30Z (current time is 1970-01-01T00:11:31Z)"),
            "{why}"
        );
        let read = world.kms.decrypt(stored, CX).await.expect("still readable");
        assert_eq!((&read.value[..], read.stale), (&b"text"[..], false));
        assert_eq!(world.plugin.decrypted.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_new_key_makes_a_new_seed_unless_the_plugin_changes_it_midway() {
        let world = World::start();
        world.check().await.expect("healthy");
        let before = world.encrypt().await.expect("encrypted");
        world.plugin.key.store(5, Ordering::Relaxed);
        world.plugin.changes.store(true, Ordering::Relaxed);
        let why = world.check().await.expect_err("two keys");
        assert!(why.contains("failed to rotate DEK"), "{why}");
        let read = world
            .kms
            .decrypt(world.encrypt().await.expect("the old seed"), CX);
        assert!(!read.await.expect("readable").stale);
        world.plugin.changes.store(false, Ordering::Relaxed);
        world.check().await.expect("one key");
        let read = world.kms.decrypt(before, CX).await.expect("readable");
        assert!(read.stale, "it is to be written with the new key");
        world.encrypt().await.expect("encrypted");
        assert_eq!(world.plugin.encrypted.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn a_plugin_that_answers_other_bytes_is_not_believed() {
        let world = World::start();
        world.check().await.expect("healthy");
        let stored = world.encrypt().await.expect("encrypted");
        let other = World::server(&world.socket, &world.clock);
        other.check().await.expect("healthy");
        world.plugin.lies.store(true, Ordering::Relaxed);
        let why = other.decrypt(stored.clone(), CX).await.expect_err("a lie");
        assert_eq!(why.to_string(), "cipher: message authentication failed");
        world.plugin.lies.store(false, Ordering::Relaxed);
        for _ in 0..3 {
            let read = other.decrypt(stored.clone(), CX).await.expect("the truth");
            assert_eq!(&read.value[..], b"text");
        }
        assert_eq!(world.plugin.decrypted.load(Ordering::Relaxed), 2);
    }
}
