//! Transformers in the order of the configuration, each for the values that begin with its prefix
//! (apiserver `storage/value/transformer.go`).

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::cipher::Cipher;
use super::kms::{Kms, KmsV1};
use super::metrics::{Direction, record_transformation};
use super::{ENCRYPTED, TransformError};

/// A value that is being transformed.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The key in the store, which some ciphers authenticate.
    pub key: &'a str,
    /// The resource (`deployments.apps`), for metrics.
    pub resource: &'a str,
    /// True if plugins may be asked for keys that are not known yet.
    pub may_wait: bool,
}

/// A decrypted value.
#[derive(Clone, Debug, PartialEq)]
pub struct Decrypted {
    pub value: Bytes,
    /// It would be encrypted differently now, and should be.
    pub stale: bool,
}

/// The two directions of a transformation.
pub trait Transform: Send + Sync {
    /// Decrypts the bytes behind the prefix.
    fn decrypt(
        &self,
        data: Bytes,
        cx: Context<'_>,
    ) -> impl Future<Output = Result<Decrypted, TransformError>> + Send;

    /// Appends the encrypted value to `out`, which ends with the prefix.
    fn encrypt(
        &self,
        value: &[u8],
        out: &mut Vec<u8>,
        cx: Context<'_>,
    ) -> impl Future<Output = Result<(), TransformError>> + Send;
}

impl Transform for Cipher {
    async fn decrypt(&self, data: Bytes, cx: Context<'_>) -> Result<Decrypted, TransformError> {
        Ok(Decrypted {
            value: self.decrypt(cx.key, &data)?.into(),
            stale: false,
        })
    }

    async fn encrypt(
        &self,
        value: &[u8],
        out: &mut Vec<u8>,
        cx: Context<'_>,
    ) -> Result<(), TransformError> {
        self.encrypt(cx.key, value, out)
    }
}

/// A provider of the configuration.
#[derive(Debug)]
pub enum Provider {
    /// Nothing is encrypted.
    Identity,
    /// Keys by their names.
    Keys(Prefixed<Cipher>),
    /// A plugin.
    Kms(Arc<Kms>),
    /// A plugin of version 1.
    KmsV1(Arc<KmsV1>),
}

impl Transform for Provider {
    async fn decrypt(&self, data: Bytes, cx: Context<'_>) -> Result<Decrypted, TransformError> {
        match self {
            Self::Identity if data.starts_with(ENCRYPTED) => Err(not_encrypted()),
            Self::Identity => Ok(Decrypted {
                value: data,
                stale: false,
            }),
            Self::Keys(keys) => keys.decrypt(data, cx).await,
            Self::Kms(kms) => kms.decrypt(data, cx).await,
            Self::KmsV1(kms) => kms.decrypt(data, cx).await,
        }
    }

    async fn encrypt(
        &self,
        value: &[u8],
        out: &mut Vec<u8>,
        cx: Context<'_>,
    ) -> Result<(), TransformError> {
        match self {
            Self::Identity => {
                out.extend_from_slice(value);
                Ok(())
            }
            Self::Keys(keys) => keys.encrypt(value, out, cx).await,
            Self::Kms(kms) => kms.encrypt(value, out, cx).await,
            Self::KmsV1(kms) => kms.encrypt(value, out, cx).await,
        }
    }
}

/// The error of a value that should not be encrypted and is.
pub fn not_encrypted() -> TransformError {
    TransformError::permanent("identity transformer tried to read encrypted data")
}

/// Transformers by prefix. The first one encrypts; the first that can decrypts, and unless it is
/// the first of all, what it returns is stale.
#[derive(Debug)]
pub struct Prefixed<T> {
    entries: Vec<(String, T)>,
    no_match: &'static str,
}

impl<T> Prefixed<T> {
    /// `no_match` is the error for values with another prefix.
    pub fn new(entries: Vec<(String, T)>, no_match: &'static str) -> Self {
        Self { entries, no_match }
    }

    /// Adds transformers behind the others.
    pub fn extend(&mut self, entries: impl IntoIterator<Item = (String, T)>) {
        self.entries.extend(entries);
    }
}

impl<T: Transform> Transform for Prefixed<T> {
    async fn decrypt(&self, data: Bytes, cx: Context<'_>) -> Result<Decrypted, TransformError> {
        let (start, mut errors) = (Instant::now(), Vec::new());
        let record = |prefix: &str, error: Option<&TransformError>| {
            let (direction, elapsed) = (Direction::FromStorage, start.elapsed());
            record_transformation(cx.resource, direction, prefix, elapsed, error);
        };
        for (at, (prefix, transformer)) in self.entries.iter().enumerate() {
            if !data.starts_with(prefix.as_bytes()) {
                continue;
            }
            let outcome = transformer.decrypt(data.slice(prefix.len()..), cx).await;
            if prefix.is_empty() && outcome.is_err() {
                continue;
            }
            let label = if prefix.is_empty() {
                "identity"
            } else {
                prefix
            };
            record(label, outcome.as_ref().err());
            match outcome {
                Ok(decrypted) => {
                    return Ok(Decrypted {
                        stale: decrypted.stale || at > 0,
                        ..decrypted
                    });
                }
                // A later provider may have the same prefix and another key.
                Err(error) => errors.push(error),
            }
        }
        Err(TransformError::aggregate(errors).unwrap_or_else(|| {
            let error = TransformError::permanent(self.no_match);
            record("unknown", Some(&error));
            error
        }))
    }

    async fn encrypt(
        &self,
        value: &[u8],
        out: &mut Vec<u8>,
        cx: Context<'_>,
    ) -> Result<(), TransformError> {
        let start = Instant::now();
        let Some((prefix, transformer)) = self.entries.first() else {
            return Err(TransformError::permanent(self.no_match));
        };
        out.extend_from_slice(prefix.as_bytes());
        let outcome = transformer.encrypt(value, out, cx).await;
        let (direction, elapsed) = (Direction::ToStorage, start.elapsed());
        let error = outcome.as_ref().err();
        record_transformation(cx.resource, direction, prefix, elapsed, error);
        outcome
    }
}
