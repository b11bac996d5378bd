//! Values that are encrypted with keys which a KMS plugin keeps (KMS v2). This server makes a seed
//! and has the plugin encrypt it; every value gets a key that is derived from the seed, and is
//! stored with the encrypted seed (apiserver `storage/value/encrypt/envelope/kmsv2`,
//! `server/options/encryptionconfig`).

mod client;
mod envelope;
mod probe;
mod v1;

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use jiff::Timestamp;
use moka::sync::Cache;
use opentelemetry::KeyValue;
use prost::Message;
use tokio::sync::Mutex;
use tokio::task::AbortHandle;

use crate::base::clock::Clock;
use crate::base::random;
use crate::meta::time;
use crate::telemetry::trace;

use super::TransformError;
use super::cipher::{Cipher, SEED_BYTES};
use super::metrics::{self, Direction};
use super::transformer::{Context, Decrypted, Transform};

use client::Client;
pub use envelope::EncryptedObject;
use envelope::{EncryptedDekSourceType, SourceId};
use probe::LastProbe;
pub use v1::KmsV1;

/// The maximum number of decrypted keys and seeds that are kept. There is one for each start of
/// each server since its objects were last written.
const MAX_SOURCES: u64 = 10_000;
/// The time that a decrypted key or seed is kept after its last use.
const SOURCE_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// A plugin, and the seed that values are encrypted with at present.
pub struct Kms {
    name: String,
    client: Client,
    /// `None` until the plugin has answered once.
    state: ArcSwapOption<State>,
    /// Ciphers by the names of their keys and seeds.
    sources: Cache<SourceId, Arc<Cipher>>,
    probe: Mutex<LastProbe>,
    /// The task that asks the plugin for its health.
    poll: parking_lot::Mutex<Option<AbortHandle>>,
    /// The hash of this server's identity, for metrics.
    server_hash: String,
    clock: Clock,
}

impl std::fmt::Debug for Kms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kms({})", self.name)
    }
}

impl Drop for Kms {
    fn drop(&mut self) {
        if let Some(poll) = self.poll.get_mut().take() {
            poll.abort();
        }
    }
}

/// The seed that values are encrypted with.
struct State {
    cipher: Arc<Cipher>,
    /// A stored value without its data.
    template: EncryptedObject,
    source: SourceId,
    /// The time from which the plugin has been silent for too long.
    expires: Timestamp,
}

impl State {
    /// Checks that values may be encrypted with the seed.
    fn check_fresh(&self, now: Timestamp) -> Result<(), TransformError> {
        if now <= self.expires {
            return Ok(());
        }
        let shown = |at: Timestamp| time::format(at.as_second());
        Err(TransformError::temporary(format!(
            "encryptedDEKSource with keyID hash {:?} expired at {} (current time is {})",
            metrics::hash(&self.template.key_id),
            shown(self.expires),
            shown(now)
        )))
    }
}

impl Kms {
    /// A plugin that has not been asked yet.
    ///
    /// # Errors
    /// The endpoint is wrong.
    pub fn new(
        name: &str,
        endpoint: &str,
        timeout: Duration,
        server_hash: &str,
        clock: Clock,
    ) -> Result<Arc<Self>, String> {
        let client = Client::new(name, endpoint, timeout).map_err(|why| {
            format!("could not configure KMSv2-Plugin's probe {name:?}, error: {why}")
        })?;
        Ok(Arc::new(Self {
            name: name.to_owned(),
            client,
            state: ArcSwapOption::empty(),
            sources: Cache::builder()
                .max_capacity(MAX_SOURCES)
                .time_to_idle(SOURCE_TTL)
                .build(),
            probe: Mutex::default(),
            poll: parking_lot::Mutex::default(),
            server_hash: server_hash.to_owned(),
            clock,
        }))
    }

    fn state(&self) -> Result<Arc<State>, TransformError> {
        self.state
            .load_full()
            .ok_or_else(|| TransformError::temporary("got unexpected nil transformer"))
    }

    fn now(&self) -> i64 {
        self.clock.now().as_second()
    }

    /// Makes a seed and has it encrypted.
    async fn generate(&self) -> Result<(Arc<Cipher>, EncryptedObject), TransformError> {
        let (start, mut seed) = (Instant::now(), [0; SEED_BYTES]);
        random::fill(&mut seed);
        metrics::record_key_generation(start.elapsed());
        let cipher =
            Cipher::derived_aes_gcm(&seed).inspect_err(|_| metrics::record_key_failure())?;
        let cipher = Arc::new(cipher);
        let answer = self
            .client
            .encrypt(&seed)
            .await
            .map_err(|status| TransformError::call("failed to encrypt DEK", &status))?;
        let mut object = EncryptedObject {
            // What it is to hold comes later.
            encrypted_data: Bytes::from_static(&[0]),
            key_id: answer.key_id,
            encrypted_dek_source: answer.ciphertext,
            annotations: answer.annotations,
            encrypted_dek_source_type: EncryptedDekSourceType::HkdfSha256XnonceAesGcmSeed.into(),
        };
        object.validate()?;
        object.encrypted_data = Bytes::new();
        Ok((cipher, object))
    }

    /// Lets the plugin decrypt the key of a stored value.
    async fn ask_for_cipher(
        &self,
        object: &EncryptedObject,
        cx: Context<'_>,
    ) -> Result<Arc<Cipher>, TransformError> {
        metrics::record_cache_miss();
        if !cx.may_wait {
            return Err(TransformError::temporary(
                "the key is not known before the KMS plugin is asked",
            ));
        }
        let key = self
            .client
            .decrypt(
                object.encrypted_dek_source.clone(),
                object.key_id.clone(),
                object.annotations.clone(),
            )
            .await
            .map_err(|status| TransformError::call("failed to decrypt DEK", &status))?;
        let is_seed = object.encrypted_dek_source_type()
            == EncryptedDekSourceType::HkdfSha256XnonceAesGcmSeed;
        Ok(Arc::new(if is_seed {
            Cipher::derived_aes_gcm(&key)?
        } else {
            Cipher::aes_gcm(&key)?
        }))
    }

    fn remember(&self, source: SourceId, cipher: Arc<Cipher>) {
        self.sources.insert(source, cipher);
        metrics::record_dek_sources(&self.name, self.sources.entry_count());
    }

    fn record_use(&self, direction: Direction, key_id: &str) {
        let now = self.now();
        metrics::record_key_id(direction, &self.name, key_id, &self.server_hash, now);
    }
}

impl Transform for Kms {
    async fn decrypt(&self, data: Bytes, cx: Context<'_>) -> Result<Decrypted, TransformError> {
        let name = "TransformFromStorage with envelopeTransformer";
        let work = self.read(data, cx);
        trace::in_span(name, trace::SLOW, || self.span_attributes(), work).await
    }

    async fn encrypt(
        &self,
        value: &[u8],
        out: &mut Vec<u8>,
        cx: Context<'_>,
    ) -> Result<(), TransformError> {
        let name = "TransformToStorage with envelopeTransformer";
        let work = || self.write(value, out, cx);
        trace::in_span_sync(name, trace::SLOW, || self.span_attributes(), work)
    }
}

impl Kms {
    fn span_attributes(&self) -> Vec<KeyValue> {
        vec![KeyValue::new(
            "transformer.provider.name",
            self.name.clone(),
        )]
    }

    /// Decrypts a stored value.
    async fn read(&self, data: Bytes, cx: Context<'_>) -> Result<Decrypted, TransformError> {
        trace::step("About to decode encrypted object");
        let object = EncryptedObject::decode(data)
            .map_err(|why| TransformError::permanent(format!("proto: {why}")))
            .and_then(|object| object.validate().map(|()| object))
            .inspect_err(|_| trace::step("Decoding encrypted object failed"))?;
        trace::step("Decoded encrypted object");
        let state = self.state()?;
        let source = object.source_id();
        let known = self.sources.get(&source);
        let cipher = match &known {
            Some(cipher) => cipher.clone(),
            None => {
                trace::step("About to decrypt DEK using remote service");
                let asked = self.ask_for_cipher(&object, cx).await;
                trace::step(match asked.is_ok() {
                    true => "DEK decryption succeeded",
                    false => "DEK decryption failed",
                });
                asked?
            }
        };
        self.record_use(Direction::FromStorage, &object.key_id);
        trace::step("About to decrypt data using DEK");
        let value = cipher
            .decrypt(cx.key, &object.encrypted_data)
            .inspect_err(|_| trace::step("Data decryption failed"))?;
        trace::step("Data decryption succeeded");
        // Only a key that has proved right: the plugin may have been wrong.
        if known.is_none() {
            self.remember(source, cipher);
        }
        let (now, then) = (&state.template, &object);
        Ok(Decrypted {
            value: value.into(),
            stale: then.key_id != now.key_id
                || then.encrypted_dek_source_type != now.encrypted_dek_source_type,
        })
    }

    /// Encrypts a value that is to be stored.
    fn write(
        &self,
        value: &[u8],
        out: &mut Vec<u8>,
        cx: Context<'_>,
    ) -> Result<(), TransformError> {
        let state = self.state()?;
        state.check_fresh(self.clock.now())?;
        if !self.sources.contains_key(&state.source) {
            self.remember(state.source, state.cipher.clone());
        }
        let mut data = Vec::new();
        trace::step("About to encrypt data using DEK");
        state
            .cipher
            .encrypt(cx.key, value, &mut data)
            .inspect_err(|_| trace::step("Data encryption failed"))?;
        trace::step("Data encryption succeeded");
        self.record_use(Direction::ToStorage, &state.template.key_id);
        let object = EncryptedObject {
            encrypted_data: data.into(),
            ..state.template.clone()
        };
        object
            .encode(out)
            .map_err(|why| TransformError::permanent(why.to_string()))
    }
}
