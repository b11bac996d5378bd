//! Certificates with their private keys, of this server or of a client.

use rustls::crypto::KeyProvider;
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The half of a pair that is wrong, with Go's text where it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPairError {
    Certificate(String),
    Key(String),
}

impl KeyPairError {
    /// Returns the text alone.
    pub fn into_text(self) -> String {
        match self {
            Self::Certificate(text) | Self::Key(text) => text,
        }
    }
}

/// Joins a chain of certificates with the key of its first. Certificates of X.509 version 1, such
/// as `openssl x509 -req` makes them, are as good as others: it is the peer that has to like them.
///
/// # Errors
/// There is no certificate, or one that cannot be read, or the key is of another kind or another's.
pub fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    keys: &dyn KeyProvider,
) -> Result<CertifiedKey, KeyPairError> {
    let of_certificate = |why: String| KeyPairError::Certificate(why);
    let key = keys
        .load_private_key(key)
        .map_err(|why| KeyPairError::Key(format!("tls: {why}")))?;
    let leaf = chain
        .first()
        .ok_or_else(|| of_certificate("no certificate found".to_owned()))?;
    let (rest, parsed) = X509Certificate::from_der(leaf)
        .map_err(|why| of_certificate(format!("x509: malformed certificate: {why}")))?;
    if !rest.is_empty() {
        return Err(of_certificate("x509: trailing data".to_owned()));
    }
    let public = key.public_key();
    if public.is_some_and(|public| public.as_ref() != parsed.public_key().raw) {
        let why = "tls: private key does not match public key";
        return Err(KeyPairError::Key(why.to_owned()));
    }
    Ok(CertifiedKey::new(chain, key))
}
