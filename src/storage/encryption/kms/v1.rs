//! Values that are encrypted with a key each, which a plugin of version 1 encrypts. It is
//! deprecated, and behind a gate (apiserver `storage/value/encrypt/envelope`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use moka::sync::Cache;
use tokio::sync::Mutex;
use tonic::Status;
use tonic::transport::Channel;

use crate::base::grpc::{call_within, channel, error_text};
use crate::base::random;
use crate::storage::encryption::TransformError;
use crate::storage::encryption::cipher::Cipher;
use crate::storage::encryption::metrics;
use crate::storage::encryption::transformer::{Context, Decrypted, Transform};

use super::client::{MAX_ANSWER_BYTES, socket_path};
use super::probe::{HEALTHY_TTL, UNHEALTHY_TTL};
use generated::key_management_service_client::KeyManagementServiceClient;
use generated::{DecryptRequest, EncryptRequest, VersionRequest};

#[allow(clippy::all, dead_code)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/v1beta1.rs"));
}

/// The version of the interface.
const VERSION: &str = "v1beta1";
/// The bytes of a key.
const KEY_BYTES: usize = 32;
/// The text that a plugin has to encrypt to show that it is healthy.
const PING: &[u8] = b"ping";
/// The maximum number of keys that are kept, whatever the configuration says.
const MAX_KEYS: u64 = 1_000_000;

/// The key of a value, which is read as older servers wrote it, too.
struct DataKey {
    gcm: Cipher,
    cbc: Cipher,
}

impl DataKey {
    fn new(key: &[u8]) -> Result<Arc<Self>, TransformError> {
        Ok(Arc::new(Self {
            gcm: Cipher::aes_gcm(key)?,
            cbc: Cipher::aes_cbc(key)?,
        }))
    }

    fn decrypt(&self, key: &str, data: &[u8]) -> Result<Decrypted, TransformError> {
        let found = |value: Vec<u8>, stale| Decrypted {
            value: value.into(),
            stale,
        };
        let why = match self.gcm.decrypt(key, data) {
            Ok(value) => return Ok(found(value, false)),
            Err(why) => why,
        };
        match self.cbc.decrypt(key, data) {
            Ok(value) => Ok(found(value, true)),
            Err(other) => Err(TransformError::aggregate(vec![why.clone(), other]).unwrap_or(why)),
        }
    }
}

/// A plugin.
pub struct KmsV1 {
    name: String,
    client: KeyManagementServiceClient<Channel>,
    timeout: Duration,
    /// The plugin has told that it has the interface.
    knows_version: AtomicBool,
    /// Keys by their encrypted form; `None` if they are not to be kept.
    keys: Option<Cache<Bytes, Arc<DataKey>>>,
    cache_size: u64,
    probe: Mutex<Option<(Result<(), String>, Instant)>>,
}

impl std::fmt::Debug for KmsV1 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KmsV1({})", self.name)
    }
}

impl KmsV1 {
    /// A plugin that has not been asked yet, some of whose keys are kept.
    ///
    /// # Errors
    /// The endpoint is wrong.
    pub fn new(
        name: &str,
        endpoint: &str,
        timeout: Duration,
        cache_size: i64,
    ) -> Result<Arc<Self>, String> {
        let failed = |why: String| {
            format!("could not configure KMSv1-Plugin's probe {name:?}, error: {why}")
        };
        let channel = channel(&socket_path(endpoint).map_err(failed)?);
        let channel = channel.map_err(|why| {
            failed(format!(
                "failed to create connection to {endpoint}, error: {why}"
            ))
        })?;
        let cache_size = u64::try_from(cache_size).unwrap_or(0).min(MAX_KEYS);
        Ok(Arc::new(Self {
            name: name.to_owned(),
            client: KeyManagementServiceClient::new(channel)
                .max_decoding_message_size(MAX_ANSWER_BYTES),
            timeout,
            knows_version: AtomicBool::new(false),
            keys: (cache_size > 0).then(|| Cache::new(cache_size)),
            cache_size,
            probe: Mutex::default(),
        }))
    }

    /// Makes a call behind one that checks the version of the plugin.
    async fn call<T, F: Future<Output = Result<T, Status>> + Send>(
        &self,
        call: impl Fn() -> F + Send + Sync,
    ) -> Result<T, TransformError> {
        let end = tokio::time::Instant::now() + self.timeout;
        if !self.knows_version.load(Ordering::Relaxed) {
            let ask = || {
                let mut client = self.client.clone();
                let version = VERSION.to_owned();
                async move { client.version(VersionRequest { version }).await }
            };
            let answer = call_within(self.timeout, ask).await.map_err(|why| {
                let why = error_text(&why);
                TransformError::temporary(format!(
                    "failed get version from remote KMS provider: {why}"
                ))
            })?;
            let version = answer.into_inner().version;
            if version != VERSION {
                return Err(TransformError::temporary(format!(
                    "KMS provider api version {version} is not supported, only {VERSION} is supported now"
                )));
            }
            self.knows_version.store(true, Ordering::Relaxed);
        }
        let left = end.saturating_duration_since(tokio::time::Instant::now());
        let outcome = call_within(left, call).await;
        outcome.map_err(|status| TransformError::call("", &status))
    }

    async fn encrypt_key(&self, key: &[u8]) -> Result<Bytes, TransformError> {
        let request = EncryptRequest {
            version: VERSION.to_owned(),
            plain: Bytes::copy_from_slice(key),
        };
        let call = || {
            let (mut client, request) = (self.client.clone(), request.clone());
            async move { client.encrypt(request).await }
        };
        Ok(self.call(call).await?.into_inner().cipher)
    }

    async fn decrypt_key(&self, cipher: &Bytes) -> Result<Bytes, TransformError> {
        let request = DecryptRequest {
            version: VERSION.to_owned(),
            cipher: cipher.clone(),
        };
        let call = || {
            let (mut client, request) = (self.client.clone(), request.clone());
            async move { client.decrypt(request).await }
        };
        Ok(self.call(call).await?.into_inner().plain)
    }

    fn remember(&self, encrypted: Bytes, key: Arc<DataKey>) {
        if let Some(keys) = &self.keys {
            keys.insert(encrypted, key);
            metrics::record_dek_cache_fill(keys.entry_count() as f64 / self.cache_size as f64);
        }
    }

    /// Lets the plugin encrypt and decrypt something, unless it was asked just now.
    ///
    /// # Errors
    /// The reason why it is not healthy.
    pub async fn check(&self) -> Result<(), String> {
        let mut probe = self.probe.lock().await;
        if let Some((outcome, at)) = &*probe {
            let fresh = match outcome {
                Ok(()) => HEALTHY_TTL,
                Err(_) => UNHEALTHY_TTL,
            };
            if at.elapsed() < fresh {
                return outcome.clone();
            }
        }
        let failed = |section: &str, why: TransformError| {
            format!(
                "failed to perform {section} section of the healthz check for KMS Provider {}, error: {why}",
                self.name
            )
        };
        let outcome = match self.encrypt_key(PING).await {
            Ok(cipher) => {
                let decrypted = self.decrypt_key(&cipher).await;
                decrypted.map(drop).map_err(|why| failed("decrypt", why))
            }
            Err(why) => Err(failed("encrypt", why)),
        };
        *probe = Some((outcome.clone(), Instant::now()));
        outcome
    }
}

impl Transform for KmsV1 {
    async fn decrypt(&self, mut data: Bytes, cx: Context<'_>) -> Result<Decrypted, TransformError> {
        let length = data.try_get_u16().map(usize::from);
        let encrypted = length.ok().filter(|length| *length <= data.len());
        let encrypted = encrypted.map(|length| data.split_to(length)).ok_or_else(|| {
            TransformError::permanent(
                "invalid data encountered by envelope transformer: failed to read uint16 length prefixed data",
            )
        })?;
        if let Some(key) = self.keys.as_ref().and_then(|keys| keys.get(&encrypted)) {
            return key.decrypt(cx.key, &data);
        }
        metrics::record_cache_miss();
        if !cx.may_wait {
            return Err(TransformError::temporary(
                "the key is not known before the KMS plugin is asked",
            ));
        }
        let key = DataKey::new(&self.decrypt_key(&encrypted).await?)?;
        let decrypted = key.decrypt(cx.key, &data)?;
        // Only a key that has proved right: the plugin may have been wrong.
        self.remember(encrypted, key);
        Ok(decrypted)
    }

    async fn encrypt(
        &self,
        value: &[u8],
        out: &mut Vec<u8>,
        cx: Context<'_>,
    ) -> Result<(), TransformError> {
        let (start, mut key) = (Instant::now(), [0; KEY_BYTES]);
        random::fill(&mut key);
        metrics::record_key_generation(start.elapsed());
        let encrypted = self.encrypt_key(&key).await?;
        let length = u16::try_from(encrypted.len()).map_err(|_| {
            TransformError::permanent(format!(
                "cryptobyte: pending child length {} exceeds 2-byte length prefix",
                encrypted.len()
            ))
        })?;
        let key = DataKey::new(&key)?;
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&encrypted);
        key.gcm.encrypt(cx.key, value, out)?;
        self.remember(encrypted, key);
        Ok(())
    }
}
