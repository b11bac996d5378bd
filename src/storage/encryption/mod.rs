//! Encryption at rest: a [`Storage`](super::Storage) in front of another that encrypts the values
//! of the resources that an EncryptionConfiguration names. The stored bytes are kube-apiserver's.
//!
//! - [`Configuration`]: the providers of a file, checked.
//! - [`Transformers`]: the configuration that is in force now.
//! - [`EncryptedStorage`]: the store.

mod cipher;
mod config;
mod error;
mod kms;
pub mod metrics;
mod providers;
mod resources;
mod storage;
#[cfg(test)]
mod tests;
mod transformer;
mod validation;

/// The prefix of every encrypted value.
const ENCRYPTED: &[u8] = b"k8s:enc:";

pub use cipher::Cipher;
pub use error::TransformError;
pub use kms::EncryptedObject;
pub use metrics::{hash, record_configuration, record_reload};
pub use providers::{
    Configuration, Settings, Transformers, check_configuration, is_encrypted, read_file,
};
pub use storage::EncryptedStorage;
