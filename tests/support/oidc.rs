//! An OpenID provider: discovery, keys, and tokens with real signatures.

use std::sync::{Arc, Mutex};

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PSS_SHA384,
    RsaKeyPair,
};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::webhook::{Reply, Webhook};

/// A key of a provider.
pub enum Key {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
}

pub fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// The JSON in a part of a token.
pub fn decode(part: &str) -> Value {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(part).expect("base64");
    serde_json::from_slice(&bytes).expect("JSON")
}

impl Key {
    pub fn rsa() -> Self {
        Self::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).expect("a key"))
    }

    pub fn ec() -> Self {
        Self::Ec(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key"))
    }

    /// The public key, as a key set has it.
    pub fn jwk(&self, id: &str) -> Value {
        match self {
            Self::Rsa(pair) => {
                let public = pair.public_key();
                let (n, e) = (public.modulus(), public.exponent());
                json!({"kty": "RSA", "use": "sig", "kid": id, "alg": "RS256",
                    "n": encode(n.big_endian_without_leading_zero()),
                    "e": encode(e.big_endian_without_leading_zero())})
            }
            Self::Ec(pair) => {
                let point = pair.public_key().as_ref();
                json!({"kty": "EC", "crv": "P-256", "kid": id,
                    "x": encode(&point[1..33]), "y": encode(&point[33..])})
            }
        }
    }

    /// The public key in DER, which an attacker knows.
    pub fn public_der(&self) -> Vec<u8> {
        let der: Result<aws_lc_rs::encoding::PublicKeyX509Der<'_>, _> = match self {
            Self::Rsa(pair) => pair.public_key().as_der(),
            Self::Ec(pair) => pair.public_key().as_der(),
        };
        der.expect("a key").as_ref().to_vec()
    }

    /// A token with these claims and header.
    pub fn sign(&self, header: &Value, claims: &Value) -> String {
        let message = format!(
            "{}.{}",
            encode(header.to_string()),
            encode(claims.to_string())
        );
        let bytes = message.as_bytes();
        let signature = match self {
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                let random = SystemRandom::new();
                let signed = match header["alg"].as_str() {
                    Some("PS384") => pair.sign(&RSA_PSS_SHA384, &random, bytes, &mut signature),
                    _ => pair.sign(&RSA_PKCS1_SHA256, &random, bytes, &mut signature),
                };
                signed.expect("a signature");
                signature
            }
            Self::Ec(pair) => {
                let signature = pair.sign(&SystemRandom::new(), bytes);
                signature.expect("a signature").as_ref().to_vec()
            }
        };
        format!("{message}.{}", encode(signature))
    }
}

/// The answers of a provider, by path.
pub type Pages = Arc<Mutex<std::collections::HashMap<String, Reply>>>;

/// The provider.
pub struct Provider {
    pub server: Webhook,
    pub pages: Pages,
}

impl Provider {
    pub async fn start() -> Self {
        let pages = Pages::default();
        let shown = pages.clone();
        let server = Webhook::start(move |seen| {
            let path = seen.uri.split('?').next().unwrap_or_default();
            let found = shown.lock().expect("no panic").get(path).cloned();
            found.unwrap_or(Reply::Raw(404, vec![], b"nothing here".to_vec()))
        })
        .await;
        let provider = Self { server, pages };
        provider.discover();
        provider
    }

    pub fn issuer(&self) -> String {
        format!("https://localhost:{}", self.server.port)
    }

    pub fn page(&self, path: &str, reply: Reply) {
        let mut pages = self.pages.lock().expect("no panic");
        pages.insert(path.to_owned(), reply);
    }

    /// Shows the discovery document.
    pub fn discover(&self) {
        let issuer = self.issuer();
        let document = json!({"issuer": issuer, "jwks_uri": format!("{issuer}/keys")});
        self.page("/.well-known/openid-configuration", Reply::Json(document));
    }

    /// Shows these keys.
    pub fn keys(&self, keys: &[(&str, &Key)]) {
        let keys: Vec<Value> = keys.iter().map(|(id, key)| key.jwk(id)).collect();
        self.page("/keys", Reply::Json(json!({ "keys": keys })));
    }

    /// The number of times that the keys were fetched since this was last asked.
    pub fn fetches(&self) -> usize {
        let seen = self.server.take();
        seen.iter().filter(|seen| seen.uri == "/keys").count()
    }
}
