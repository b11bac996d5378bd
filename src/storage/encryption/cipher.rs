//! The ciphers of stored values, byte for byte those of kube-apiserver (apiserver
//! `storage/value/encrypt`).

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::{
    self, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext, UnboundCipherKey,
};
use aws_lc_rs::hkdf;
use aws_lc_rs::iv::FixedLength;
use crypto_secretbox::aead::AeadInPlace;
use crypto_secretbox::{KeyInit, XSalsa20Poly1305};

use crate::base::random;

use super::TransformError;

/// The length of a seed, and of the part of a value that its key is derived with.
pub const SEED_BYTES: usize = 32;
const AES_BLOCK_BYTES: usize = 16;
const SECRETBOX_NONCE_BYTES: usize = 24;
const SECRETBOX_TAG_BYTES: usize = 16;

/// An error of Go's `crypto/cipher`.
const NOT_AUTHENTIC: &str = "cipher: message authentication failed";
const TOO_SHORT: &str = "the stored data was shorter than the required size";

type Result<T> = std::result::Result<T, TransformError>;

/// A key with the cipher that it is for.
pub enum Cipher {
    /// A random nonce, then the ciphertext with its tag. The key in the store is authenticated.
    AesGcm(LessSafeKey),
    /// A random vector, then the ciphertext. Nothing is authenticated.
    AesCbc(Box<CbcKeys>),
    /// A random nonce, then the tag and the ciphertext.
    Secretbox(Box<XSalsa20Poly1305>),
    /// Random bytes, then AES-GCM with the key that a seed and these bytes give.
    DerivedAesGcm(Seed),
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::AesGcm(_) => "AesGcm",
            Self::AesCbc(_) => "AesCbc",
            Self::Secretbox(_) => "Secretbox",
            Self::DerivedAesGcm(_) => "DerivedAesGcm",
        })
    }
}

/// The two directions of one key.
pub struct CbcKeys {
    encrypting: EncryptingKey,
    decrypting: DecryptingKey,
}

/// A seed of keys, each of which encrypts one value.
pub struct Seed(Vec<u8>);

impl Cipher {
    /// AES-GCM with a key of 16, 24 or 32 bytes.
    ///
    /// # Errors
    /// The key has another length.
    pub fn aes_gcm(key: &[u8]) -> Result<Self> {
        Ok(Self::AesGcm(gcm_key(key)?))
    }

    /// AES-CBC with a key of 16, 24 or 32 bytes.
    ///
    /// # Errors
    /// The key has another length.
    pub fn aes_cbc(key: &[u8]) -> Result<Self> {
        let algorithm = match key.len() {
            16 => &cipher::AES_128,
            24 => &cipher::AES_192,
            32 => &cipher::AES_256,
            length => return Err(invalid_key_size(length)),
        };
        let unbound =
            || UnboundCipherKey::new(algorithm, key).map_err(|_| invalid_key_size(key.len()));
        let failed = |_| TransformError::permanent("AES-CBC is not available");
        Ok(Self::AesCbc(Box::new(CbcKeys {
            encrypting: EncryptingKey::cbc(unbound()?).map_err(failed)?,
            decrypting: DecryptingKey::cbc(unbound()?).map_err(failed)?,
        })))
    }

    /// XSalsa20-Poly1305 with a key of 32 bytes.
    ///
    /// # Errors
    /// The key has another length.
    pub fn secretbox(key: &[u8]) -> Result<Self> {
        let cipher = XSalsa20Poly1305::new_from_slice(key).map_err(|_| {
            TransformError::permanent(format!(
                "expected key size 32 for secretbox provider, got {}",
                key.len()
            ))
        })?;
        Ok(Self::Secretbox(Box::new(cipher)))
    }

    /// AES-GCM with keys that are derived from a seed.
    ///
    /// # Errors
    /// The seed is too short, or longer than a key derivation takes.
    pub fn derived_aes_gcm(seed: &[u8]) -> Result<Self> {
        if !(SEED_BYTES..=hkdf_limit()).contains(&seed.len()) {
            return Err(TransformError::permanent(format!(
                "invalid seed length {} used for key generation",
                seed.len()
            )));
        }
        Ok(Self::DerivedAesGcm(Seed(seed.to_vec())))
    }

    /// Appends the encrypted value to `out`. `key` is that of the value in the store.
    ///
    /// # Errors
    /// The cipher fails.
    pub fn encrypt(&self, key: &str, value: &[u8], out: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::AesGcm(cipher) => encrypt_gcm(cipher, key, value, out),
            Self::AesCbc(keys) => encrypt_cbc(&keys.encrypting, value, out),
            Self::Secretbox(cipher) => encrypt_secretbox(cipher, value, out),
            Self::DerivedAesGcm(seed) => {
                let mut info = [0; SEED_BYTES];
                random::fill(&mut info);
                out.extend_from_slice(&info);
                encrypt_gcm(&seed.derive(&info)?, key, value, out)
            }
        }
    }

    /// Returns the decrypted value.
    ///
    /// # Errors
    /// The bytes were not made by this cipher with this key.
    pub fn decrypt(&self, key: &str, data: &[u8]) -> Result<Vec<u8>> {
        match self {
            Self::AesGcm(cipher) => decrypt_gcm(cipher, key, data),
            Self::AesCbc(keys) => decrypt_cbc(&keys.decrypting, data),
            Self::Secretbox(cipher) => decrypt_secretbox(cipher, data),
            Self::DerivedAesGcm(seed) => {
                let (info, data) = data
                    .split_first_chunk::<SEED_BYTES>()
                    .ok_or_else(too_short)?;
                decrypt_gcm(&seed.derive(info)?, key, data)
            }
        }
    }
}

fn invalid_key_size(length: usize) -> TransformError {
    TransformError::permanent(format!("crypto/aes: invalid key size {length}"))
}

fn too_short() -> TransformError {
    TransformError::permanent(TOO_SHORT)
}

fn gcm_key(key: &[u8]) -> Result<LessSafeKey> {
    let algorithm = match key.len() {
        16 => &aead::AES_128_GCM,
        24 => &aead::AES_192_GCM,
        32 => &aead::AES_256_GCM,
        length => return Err(invalid_key_size(length)),
    };
    let unbound = UnboundKey::new(algorithm, key).map_err(|_| invalid_key_size(key.len()))?;
    Ok(LessSafeKey::new(unbound))
}

fn encrypt_gcm(cipher: &LessSafeKey, key: &str, value: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let mut nonce = [0; aead::NONCE_LEN];
    random::fill(&mut nonce);
    out.reserve(nonce.len() + value.len() + cipher.algorithm().tag_len());
    out.extend_from_slice(&nonce);
    let start = out.len();
    out.extend_from_slice(value);
    let body = out.get_mut(start..).unwrap_or_default();
    let tag = cipher
        .seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(key.as_bytes()),
            body,
        )
        .map_err(|_| TransformError::permanent("AES-GCM failed"))?;
    out.extend_from_slice(tag.as_ref());
    Ok(())
}

fn decrypt_gcm(cipher: &LessSafeKey, key: &str, data: &[u8]) -> Result<Vec<u8>> {
    let (nonce, sealed) = data
        .split_first_chunk::<{ aead::NONCE_LEN }>()
        .ok_or_else(too_short)?;
    let mut value = sealed.to_vec();
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let length = cipher
        .open_in_place(nonce, Aad::from(key.as_bytes()), &mut value)
        .map_err(|_| TransformError::permanent(NOT_AUTHENTIC))?
        .len();
    value.truncate(length);
    Ok(value)
}

fn encrypt_cbc(cipher: &EncryptingKey, value: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let mut vector = [0; AES_BLOCK_BYTES];
    random::fill(&mut vector);
    let padding = AES_BLOCK_BYTES - value.len() % AES_BLOCK_BYTES;
    out.reserve(vector.len() + value.len() + padding);
    out.extend_from_slice(&vector);
    let start = out.len();
    out.extend_from_slice(value);
    // PKCS#7: as many bytes as are missing, each of that number. It is at most 16.
    out.resize(out.len() + padding, padding as u8);
    let body = out.get_mut(start..).unwrap_or_default();
    let context = EncryptionContext::Iv128(FixedLength::from(vector));
    cipher
        .less_safe_encrypt(body, context)
        .map_err(|_| TransformError::permanent("AES-CBC failed"))?;
    Ok(())
}

fn decrypt_cbc(cipher: &DecryptingKey, data: &[u8]) -> Result<Vec<u8>> {
    let (vector, sealed) = data
        .split_first_chunk::<AES_BLOCK_BYTES>()
        .ok_or_else(too_short)?;
    if !sealed.len().is_multiple_of(AES_BLOCK_BYTES) {
        let why = "the stored data is not a multiple of the block size";
        return Err(TransformError::permanent(why));
    }
    let mut value = sealed.to_vec();
    let context = DecryptionContext::Iv128(FixedLength::from(*vector));
    cipher
        .decrypt(&mut value, context)
        .map_err(|_| TransformError::permanent("AES-CBC failed"))?;
    let padding = value.last().copied().unwrap_or(0);
    let length = value.len().checked_sub(usize::from(padding));
    let Some(length) = length.filter(|_| padding > 0) else {
        let why = "invalid PKCS7 data (empty or not padded)";
        return Err(TransformError::permanent(why));
    };
    if value.iter().skip(length).any(|byte| *byte != padding) {
        return Err(TransformError::permanent("invalid padding on input"));
    }
    value.truncate(length);
    Ok(value)
}

fn encrypt_secretbox(cipher: &XSalsa20Poly1305, value: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let mut nonce = [0; SECRETBOX_NONCE_BYTES];
    random::fill(&mut nonce);
    let mut body = value.to_vec();
    let tag = cipher
        .encrypt_in_place_detached(&nonce.into(), b"", &mut body)
        .map_err(|_| TransformError::permanent("secretbox failed"))?;
    out.reserve(nonce.len() + tag.len() + body.len());
    out.extend_from_slice(&nonce);
    out.extend_from_slice(&tag);
    out.extend_from_slice(&body);
    Ok(())
}

fn decrypt_secretbox(cipher: &XSalsa20Poly1305, data: &[u8]) -> Result<Vec<u8>> {
    let (nonce, sealed) = data
        .split_first_chunk::<SECRETBOX_NONCE_BYTES>()
        .ok_or_else(too_short)?;
    let (tag, sealed) = sealed
        .split_first_chunk::<SECRETBOX_TAG_BYTES>()
        .ok_or_else(too_short)?;
    let mut value = sealed.to_vec();
    let (nonce, tag) = ((*nonce).into(), (*tag).into());
    cipher
        .decrypt_in_place_detached(&nonce, b"", &mut value, &tag)
        // Upstream's text for this failure.
        .map_err(|_| {
            TransformError::permanent("output array was not large enough for encryption")
        })?;
    Ok(value)
}

/// The length of the longest seed that can be expanded.
const fn hkdf_limit() -> usize {
    64
}

/// The length of a derived key, for [`hkdf::Prk::expand`].
struct KeyLength;

impl hkdf::KeyType for KeyLength {
    fn len(&self) -> usize {
        SEED_BYTES
    }
}

impl Seed {
    /// Derives the key of one value (HKDF-SHA256, without the extraction).
    fn derive(&self, info: &[u8; SEED_BYTES]) -> Result<LessSafeKey> {
        let failed = |_| TransformError::permanent("failed to KDF expand seed with info");
        let mut key = [0; SEED_BYTES];
        hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, &self.0)
            .expand(&[info], KeyLength)
            .and_then(|expanded| expanded.fill(&mut key))
            .map_err(failed)?;
        gcm_key(&key)
    }
}
