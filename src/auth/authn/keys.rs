//! Keys that sign and verify service account tokens: read from PEM, named by their hash.

use aws_lc_rs::digest;
use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{PublicEncryptingKey, PublicKeyComponents as RsaPublicKeyComponents};
use aws_lc_rs::signature::{
    self as sig, EcdsaKeyPair, KeyPair, ParsedPublicKey, RsaKeyPair, VerificationAlgorithm,
};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rustls_pki_types::pem::{PemObject, SectionKind};
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use super::x509;
use crate::meta::{Map, Value, json};

/// The reason a key cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("data does not contain any valid RSA or ECDSA {0} keys")]
    None(&'static str),
    #[error("the key is neither RSA of 2048 bits or more nor ECDSA on P-256, P-384 or P-521")]
    Unsupported,
}

/// The kinds of keys; each has one algorithm (kube-apiserver `serviceaccount/jwt.go`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Rsa,
    P256,
    P384,
    P521,
}

impl Kind {
    /// The JOSE name of the algorithm that keys of this kind sign with.
    fn algorithm(self) -> &'static str {
        match self {
            Kind::Rsa => "RS256",
            Kind::P256 => "ES256",
            Kind::P384 => "ES384",
            Kind::P521 => "ES512",
        }
    }

    /// The algorithms that signatures of such keys are accepted in.
    fn accepted(self) -> &'static [(&'static str, &'static dyn VerificationAlgorithm)] {
        match self {
            Kind::Rsa => &[
                ("RS256", &sig::RSA_PKCS1_2048_8192_SHA256),
                ("RS384", &sig::RSA_PKCS1_2048_8192_SHA384),
                ("RS512", &sig::RSA_PKCS1_2048_8192_SHA512),
                ("PS256", &sig::RSA_PSS_2048_8192_SHA256),
                ("PS384", &sig::RSA_PSS_2048_8192_SHA384),
                ("PS512", &sig::RSA_PSS_2048_8192_SHA512),
            ],
            Kind::P256 => &[("ES256", &sig::ECDSA_P256_SHA256_FIXED)],
            Kind::P384 => &[("ES384", &sig::ECDSA_P384_SHA384_FIXED)],
            Kind::P521 => &[("ES512", &sig::ECDSA_P521_SHA512_FIXED)],
        }
    }
}

impl Kind {
    /// Reads a key of this kind for each of its algorithms.
    fn parse(self, key: &[u8]) -> Result<Vec<(&'static str, ParsedPublicKey)>, KeyError> {
        let parse = |(name, algorithm): &(&'static str, &'static dyn VerificationAlgorithm)| {
            ParsedPublicKey::new(*algorithm, key)
                .map(|key| (*name, key))
                .map_err(|_| KeyError::Unsupported)
        };
        self.accepted().iter().map(parse).collect()
    }
}

/// The uncompressed point of two coordinates, whose leading zeros may be absent.
fn point(x: &[u8], y: &[u8], length: usize) -> Result<Vec<u8>, KeyError> {
    let mut point = vec![4];
    for coordinate in [x, y] {
        let missing = length.checked_sub(coordinate.len());
        let missing = missing.ok_or(KeyError::Unsupported)?;
        point.extend(std::iter::repeat_n(0, missing));
        point.extend(coordinate);
    }
    Ok(point)
}

fn rsa_der(components: RsaPublicKeyComponents<Vec<u8>>) -> Result<Vec<u8>, KeyError> {
    let key: PublicEncryptingKey = components.try_into().map_err(|_| KeyError::Unsupported)?;
    let der: Result<PublicKeyX509Der<'_>, _> = key.as_der();
    der.map(|der| der.as_ref().to_vec())
        .map_err(|_| KeyError::Unsupported)
}

/// A key that tokens are verified with.
#[derive(Clone)]
pub struct VerifyingKey {
    /// The hash of the key, as `kid` in tokens names it.
    pub id: String,
    kind: Kind,
    parsed: Vec<(&'static str, ParsedPublicKey)>,
    /// The parameters that a key set shows beyond its id, use and algorithm (RFC 7517).
    parameters: Vec<(&'static str, String)>,
}

impl VerifyingKey {
    /// Reads a SubjectPublicKeyInfo.
    fn from_spki(der: &[u8]) -> Result<Self, KeyError> {
        let (_, spki) = SubjectPublicKeyInfo::from_der(der).map_err(|_| KeyError::Unsupported)?;
        let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        let (kind, parameters) = match spki.parsed().map_err(|_| KeyError::Unsupported)? {
            PublicKey::RSA(key) => {
                let strip = |bytes: &[u8]| {
                    encode(
                        bytes
                            .get(bytes.iter().take_while(|byte| **byte == 0).count()..)
                            .unwrap_or_default(),
                    )
                };
                (
                    Kind::Rsa,
                    vec![
                        ("kty", "RSA".to_owned()),
                        ("n", strip(key.modulus)),
                        ("e", strip(key.exponent)),
                    ],
                )
            }
            PublicKey::EC(point) => {
                // An uncompressed point: 4, x, y.
                let point = point.data().get(1..).ok_or(KeyError::Unsupported)?;
                let (kind, curve) = match point.len() {
                    64 => (Kind::P256, "P-256"),
                    96 => (Kind::P384, "P-384"),
                    132 => (Kind::P521, "P-521"),
                    _ => return Err(KeyError::Unsupported),
                };
                let (x, y) = point.split_at(point.len() / 2);
                (
                    kind,
                    vec![
                        ("kty", "EC".to_owned()),
                        ("crv", curve.to_owned()),
                        ("x", encode(x)),
                        ("y", encode(y)),
                    ],
                )
            }
            _ => return Err(KeyError::Unsupported),
        };
        let hash = digest::digest(&digest::SHA256, der);
        Ok(Self {
            id: encode(hash.as_ref()),
            kind,
            parsed: kind.parse(der)?,
            parameters,
        })
    }

    /// Reads a SubjectPublicKeyInfo of a key that has a name.
    ///
    /// # Errors
    /// It is of a kind that cannot verify tokens, or broken.
    pub fn named(id: &str, der: &[u8]) -> Result<Self, KeyError> {
        Ok(Self {
            id: id.to_owned(),
            ..Self::from_spki(der)?
        })
    }

    /// Reads a JSON Web Key, named as it names itself.
    ///
    /// # Errors
    /// It is of a kind that cannot verify tokens, or broken.
    pub fn from_jwk(jwk: &Value) -> Result<Self, KeyError> {
        let text = |field: &str| jwk.get(field).and_then(Value::as_str).unwrap_or_default();
        let bytes = |field: &str| {
            let text = text(field).trim_end_matches('=');
            BASE64_URL_SAFE_NO_PAD
                .decode(text)
                .map_err(|_| KeyError::Unsupported)
        };
        let (kind, key) = match (text("kty"), text("crv")) {
            ("RSA", _) => {
                let components = RsaPublicKeyComponents {
                    n: bytes("n")?,
                    e: bytes("e")?,
                };
                (Kind::Rsa, rsa_der(components)?)
            }
            ("EC", "P-256") => (Kind::P256, point(&bytes("x")?, &bytes("y")?, 32)?),
            ("EC", "P-384") => (Kind::P384, point(&bytes("x")?, &bytes("y")?, 48)?),
            ("EC", "P-521") => (Kind::P521, point(&bytes("x")?, &bytes("y")?, 66)?),
            _ => return Err(KeyError::Unsupported),
        };
        Ok(Self {
            id: text("kid").to_owned(),
            kind,
            parsed: kind.parse(&key)?,
            parameters: Vec::new(),
        })
    }

    /// Reports whether a signature in a JOSE algorithm is this key's.
    pub fn verifies(&self, algorithm: &str, message: &[u8], signature: &[u8]) -> bool {
        let key = self.parsed.iter().find(|(name, _)| *name == algorithm);
        key.is_some_and(|(_, key)| key.verify_sig(message, signature).is_ok())
    }

    /// The JOSE algorithm that this key's owner signs with.
    pub fn algorithm(&self) -> &'static str {
        self.kind.algorithm()
    }

    /// The key as a JSON Web Key.
    pub fn to_jwk(&self) -> Value {
        let mut jwk = Map::new();
        jwk.insert("use", "sig".into());
        let (kty, rest) = self.parameters.split_at(1);
        let insert = |jwk: &mut Map, pairs: &[(&'static str, String)]| {
            for (name, value) in pairs {
                jwk.insert((*name).to_owned(), value.as_str().into());
            }
        };
        insert(&mut jwk, kty);
        jwk.insert("kid", self.id.as_str().into());
        jwk.insert("alg", self.algorithm().into());
        insert(&mut jwk, rest);
        Value::Object(jwk)
    }
}

/// The keys that tokens are verified with.
#[derive(Clone, Default)]
pub struct KeySet(Vec<VerifyingKey>);

impl KeySet {
    /// Reads the public and private keys and the certificates of PEM files.
    ///
    /// # Errors
    /// A file without a key, or one with a key of a kind that cannot be used.
    pub fn from_pem<T: AsRef<[u8]>>(files: &[T]) -> Result<Self, KeyError> {
        let mut keys: Vec<VerifyingKey> = Vec::new();
        for file in files {
            let before = keys.len();
            for section in sections(file.as_ref()) {
                let spki = match section {
                    (SectionKind::PublicKey, der) => der,
                    (SectionKind::Certificate, der) => {
                        x509::public_key(&der).map_err(|_| KeyError::Unsupported)?
                    }
                    (
                        SectionKind::RsaPrivateKey
                        | SectionKind::EcPrivateKey
                        | SectionKind::PrivateKey,
                        der,
                    ) => PrivateKey::from_der(&der)?.spki()?,
                    _ => continue,
                };
                keys.push(VerifyingKey::from_spki(&spki)?);
            }
            if keys.len() == before {
                return Err(KeyError::None("public"));
            }
        }
        Ok(Self(keys))
    }

    /// Adds a key.
    pub fn push(&mut self, key: VerifyingKey) {
        self.0.push(key);
    }

    /// Adds the keys of another set.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// The keys that a token may be signed with: those of the id it names, or all if it names none.
    pub fn candidates<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a VerifyingKey> {
        self.0
            .iter()
            .filter(move |key| id.is_empty() || key.id == id)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The algorithms that tokens are signed with, sorted.
    pub fn algorithms(&self) -> Vec<&'static str> {
        let mut algorithms: Vec<_> = self.0.iter().map(VerifyingKey::algorithm).collect();
        algorithms.sort_unstable();
        algorithms.dedup();
        algorithms
    }

    /// The JSON Web Key Set.
    pub fn to_jwks(&self) -> Value {
        json!({ "keys": self.0.iter().map(VerifyingKey::to_jwk).collect::<Vec<_>>() })
    }
}

/// The key that signs tokens.
pub struct SigningKey {
    pair: PrivateKey,
    pub id: String,
    pub algorithm: &'static str,
}

enum PrivateKey {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
}

impl PrivateKey {
    /// Reads PKCS#8, PKCS#1 or SEC 1.
    fn from_der(der: &[u8]) -> Result<Self, KeyError> {
        if let Ok(pair) = RsaKeyPair::from_pkcs8(der).or_else(|_| RsaKeyPair::from_der(der)) {
            return Ok(PrivateKey::Rsa(pair));
        }
        let curves = [
            &sig::ECDSA_P256_SHA256_FIXED_SIGNING,
            &sig::ECDSA_P384_SHA384_FIXED_SIGNING,
            &sig::ECDSA_P521_SHA512_FIXED_SIGNING,
        ];
        let pair = curves
            .into_iter()
            .find_map(|curve| EcdsaKeyPair::from_private_key_der(curve, der).ok());
        pair.map(PrivateKey::Ec).ok_or(KeyError::Unsupported)
    }

    fn spki(&self) -> Result<Vec<u8>, KeyError> {
        let der: Result<PublicKeyX509Der<'_>, _> = match self {
            PrivateKey::Rsa(pair) => pair.public_key().as_der(),
            PrivateKey::Ec(pair) => pair.public_key().as_der(),
        };
        der.map(|der| der.as_ref().to_vec())
            .map_err(|_| KeyError::Unsupported)
    }
}

impl SigningKey {
    /// Reads the first private key of a PEM file.
    ///
    /// # Errors
    /// There is none, or it is of a kind that cannot sign tokens.
    pub fn from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        let is_private = |kind| {
            matches!(
                kind,
                SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey | SectionKind::PrivateKey
            )
        };
        let (_, der) = sections(pem)
            .find(|(kind, _)| is_private(*kind))
            .ok_or(KeyError::None("private"))?;
        let pair = PrivateKey::from_der(&der)?;
        let public = VerifyingKey::from_spki(&pair.spki()?)?;
        Ok(Self {
            pair,
            algorithm: public.algorithm(),
            id: public.id,
        })
    }

    /// Signs a message; `None` if the cryptographic library fails, which it does only for want of
    /// memory.
    pub fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        match &self.pair {
            PrivateKey::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(
                    &sig::RSA_PKCS1_SHA256,
                    &SystemRandom::new(),
                    message,
                    &mut signature,
                )
                .ok()?;
                Some(signature)
            }
            PrivateKey::Ec(pair) => Some(
                pair.sign(&SystemRandom::new(), message)
                    .ok()?
                    .as_ref()
                    .to_vec(),
            ),
        }
    }
}

/// The blocks of a PEM file that are not broken.
fn sections(pem: &[u8]) -> impl Iterator<Item = (SectionKind, Vec<u8>)> {
    <(SectionKind, Vec<u8>)>::pem_slice_iter(pem).filter_map(Result::ok)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A fresh key of each kind, in PEM.
    pub fn private_keys() -> Vec<(&'static str, String)> {
        [
            ("ES256", &rcgen::PKCS_ECDSA_P256_SHA256),
            ("ES384", &rcgen::PKCS_ECDSA_P384_SHA384),
            ("ES512", &rcgen::PKCS_ECDSA_P521_SHA512),
        ]
        .into_iter()
        .map(|(name, algorithm)| {
            (
                name,
                rcgen::KeyPair::generate_for(algorithm)
                    .expect("a key")
                    .serialize_pem(),
            )
        })
        .chain([("RS256", rsa_key())])
        .collect()
    }

    fn rsa_key() -> String {
        let key =
            rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048);
        key.expect("a key").serialize_pem()
    }

    #[test]
    fn every_kind_of_key_signs_and_verifies() {
        for (algorithm, pem) in private_keys() {
            let signing = SigningKey::from_pem(pem.as_bytes()).expect(algorithm);
            let keys = KeySet::from_pem(&[&pem]).expect(algorithm);
            assert_eq!(
                (signing.algorithm, keys.algorithms()),
                (algorithm, vec![algorithm])
            );
            let signature = signing.sign(b"message").expect("a signature");
            let key = keys.candidates(&signing.id).next().expect("the same id");
            assert!(key.verifies(algorithm, b"message", &signature));
            assert!(!key.verifies(algorithm, b"massage", &signature));
            assert!(!key.verifies("none", b"message", &signature));
        }
    }

    #[test]
    fn jwks_is_upstreams() {
        let keys = KeySet::from_pem(&[include_str!("testdata/rsa.pub")]).expect("a key");
        // `openssl pkey -pubin -outform DER | sha256sum`, in base64url.
        let jwk = keys.to_jwks();
        assert_eq!(
            jwk["keys"][0]["kid"],
            include_str!("testdata/rsa.kid").trim()
        );
        let names: Vec<&crate::meta::Key> = jwk["keys"][0]
            .as_object()
            .expect("an object")
            .keys()
            .collect();
        assert_eq!(names, ["use", "kty", "kid", "alg", "n", "e"]);
        assert_eq!(jwk["keys"][0]["e"], "AQAB");
        assert_eq!(keys.candidates("").count(), 1);
        assert_eq!(keys.candidates("other").count(), 0);
    }

    #[test]
    fn key_file_without_keys_is_an_error() {
        assert_eq!(
            KeySet::from_pem(&[b"nothing"]).err(),
            Some(KeyError::None("public"))
        );
        assert_eq!(
            SigningKey::from_pem(include_bytes!("testdata/rsa.pub")).err(),
            Some(KeyError::None("private"))
        );
    }
}
