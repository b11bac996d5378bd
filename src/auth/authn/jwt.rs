//! JSON Web Tokens of service accounts: their claims, signatures and times (RFC 7519;
//! kube-apiserver `serviceaccount/claims.go`). The `jsonwebtoken` crate has no ES512, which
//! upstream accepts; the cryptography is aws-lc's.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::Deserialize;

use super::keys::{KeySet, SigningKey};
use crate::meta::Map;

/// A longer text is no token of ours.
pub const MAX_TOKEN_BYTES: usize = 64 * 1024;
/// The difference that clocks may have (go-jose's `DefaultLeeway`).
pub const LEEWAY_SECONDS: f64 = 60.0;

/// A name and UID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Ref {
    pub name: String,
    pub uid: String,
}

/// The claims of a service account token.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Claims {
    pub iss: String,
    pub sub: String,
    #[serde(deserialize_with = "one_or_many")]
    pub aud: Vec<String>,
    /// Seconds since 1970, as all times here.
    pub exp: Option<f64>,
    pub nbf: Option<f64>,
    pub iat: Option<f64>,
    pub jti: String,
    #[serde(rename = "kubernetes.io")]
    pub kubernetes: Kubernetes,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.name")]
    pub legacy_account_name: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.uid")]
    pub legacy_account_uid: String,
    #[serde(rename = "kubernetes.io/serviceaccount/secret.name")]
    pub legacy_secret: String,
    #[serde(rename = "kubernetes.io/serviceaccount/namespace")]
    pub legacy_namespace: String,
}

/// The claims that are Kubernetes' own.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Kubernetes {
    pub namespace: String,
    pub serviceaccount: Ref,
    pub pod: Option<Ref>,
    pub secret: Option<Ref>,
    pub node: Option<Ref>,
    pub warnafter: Option<f64>,
}

fn one_or_many<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Audience {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Audience::deserialize(deserializer)? {
        Audience::One(one) => vec![one],
        Audience::Many(many) => many,
    })
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: String,
    /// Extensions that must be understood; none are.
    #[serde(default)]
    crit: Option<serde_json::Value>,
}

/// A token whose signature has not been checked.
pub struct Unverified<'a> {
    pub claims: Claims,
    header: Header,
    /// The signed part: header and payload.
    message: &'a str,
    signature: Vec<u8>,
}

/// Splits a token; `None` if it is no JWT.
pub fn parse(token: &str) -> Option<Unverified<'_>> {
    if token.len() > MAX_TOKEN_BYTES {
        return None;
    }
    let (message, signature) = token.rsplit_once('.')?;
    let (header, payload) = message.split_once('.')?;
    let decode = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).ok();
    let claims = serde_json::from_slice(&decode(payload)?).ok()?;
    let header = serde_json::from_slice(&decode(header)?).ok()?;
    Some(Unverified {
        claims,
        header,
        message,
        signature: decode(signature)?,
    })
}

impl Unverified<'_> {
    /// The key that the token names; empty for none.
    pub fn key_id(&self) -> &str {
        &self.header.kid
    }

    /// The claims, if one of the keys signed them.
    ///
    /// # Errors
    /// The reason, in the words of upstream's log and TokenReview.
    pub fn verify(self, keys: &KeySet) -> Result<Claims, String> {
        let mut candidates = keys.candidates(&self.header.kid).peekable();
        if candidates.peek().is_none() {
            return Err("invalid signature, no keys found".to_owned());
        }
        if self.header.crit.is_none()
            && candidates
                .any(|key| key.verifies(&self.header.alg, self.message.as_bytes(), &self.signature))
        {
            Ok(self.claims)
        } else {
            Err("go-jose/go-jose: error in cryptographic primitive".to_owned())
        }
    }
}

impl Claims {
    /// Checks whether the token is valid at a moment.
    ///
    /// # Errors
    /// It is not yet, or no longer, in the words that TokenReview shows.
    pub fn check_times(&self, now: Timestamp) -> Result<(), &'static str> {
        let now = now.as_second() as f64;
        if self.nbf.is_some_and(|start| now + LEEWAY_SECONDS < start) {
            return Err("service account token is not valid yet");
        }
        if self.exp.is_some_and(|end| now - LEEWAY_SECONDS > end) {
            return Err("service account token has expired");
        }
        if self.iat.is_some_and(|made| now + LEEWAY_SECONDS < made) {
            return Err("service account token is issued in the future");
        }
        Ok(())
    }
}

/// Signs claims; `None` if the cryptographic library fails.
pub fn sign(key: &SigningKey, claims: &Map) -> Option<String> {
    let header = format!(r#"{{"alg":"{}","kid":"{}"}}"#, key.algorithm, key.id);
    let payload = serde_json::to_vec(claims).ok()?;
    let message = format!(
        "{}.{}",
        BASE64_URL_SAFE_NO_PAD.encode(header),
        BASE64_URL_SAFE_NO_PAD.encode(payload)
    );
    let signature = BASE64_URL_SAFE_NO_PAD.encode(key.sign(message.as_bytes())?);
    Some(format!("{message}.{signature}"))
}

#[cfg(test)]
mod tests {
    use super::super::keys::tests::private_keys;
    use super::*;
    use crate::meta::json;

    fn claims(value: crate::meta::Value) -> Map {
        value.as_object().cloned().expect("an object")
    }

    #[test]
    fn jwt_signature_is_verified() {
        for (name, pem) in private_keys() {
            let key = SigningKey::from_pem(pem.as_bytes()).expect(name);
            let keys = KeySet::from_pem(&[&pem]).expect(name);
            let token =
                sign(&key, &claims(json!({"iss": "me", "aud": "a", "exp": 5.0}))).expect(name);
            let verified = parse(&token).expect(name).verify(&keys).expect(name);
            assert_eq!(
                (verified.iss.as_str(), verified.aud, verified.exp),
                ("me", vec!["a".to_owned()], Some(5.0))
            );
            // Another payload under the same signature.
            let other = sign(&key, &claims(json!({"iss": "you"}))).expect(name);
            let (message, _) = other.rsplit_once('.').expect("three parts");
            let (_, signature) = token.rsplit_once('.').expect("three parts");
            assert!(
                parse(&format!("{message}.{signature}"))
                    .expect(name)
                    .verify(&keys)
                    .is_err()
            );
            assert_eq!(
                parse(&token).expect(name).verify(&KeySet::default()),
                Err("invalid signature, no keys found".to_owned())
            );
        }
    }

    #[test]
    fn jwt_without_signature_is_refused() {
        let (_, pem) = private_keys().remove(0);
        let encode = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
        let token = format!(
            "{}.{}.",
            encode(r#"{"alg":"none"}"#),
            encode(r#"{"iss":"me"}"#)
        );
        assert!(
            parse(&token)
                .expect("a token")
                .verify(&KeySet::from_pem(&[pem]).expect("keys"))
                .is_err()
        );
    }

    #[test]
    fn jwt_parse_refuses_other_text() {
        for text in ["", "a", "a.b", "a.b.c", "..", "e30.e30.e30", "{}.{}.{}"] {
            assert!(parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn jwt_times_have_a_leeway() {
        let claims = Claims {
            nbf: Some(1000.0),
            exp: Some(2000.0),
            iat: Some(1000.0),
            ..Claims::default()
        };
        for (now, outcome) in [
            (939, Err("service account token is not valid yet")),
            (940, Ok(())),
            (2060, Ok(())),
            (2061, Err("service account token has expired")),
        ] {
            assert_eq!(
                claims.check_times(Timestamp::from_second(now).expect("a time")),
                outcome,
                "{now}"
            );
        }
    }
}
