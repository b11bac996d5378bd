//! The verification of an ID token: who issued it, who signed it, whom it is for, and when it is
//! valid (go-oidc `verify.go`).

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::Deserialize;

use super::claims::Claims;
use super::provider::Provider;
use crate::meta::go;

/// A longer text is no token of an issuer.
pub const MAX_TOKEN_BYTES: usize = 64 * 1024;
/// The time for which a token may not be valid yet.
const NOT_BEFORE_LEEWAY_SECONDS: f64 = 60.0;
const GOOGLE: &str = "https://accounts.google.com";
const GOOGLE_WITHOUT_SCHEME: &str = "accounts.google.com";

/// The part of a header that is looked at.
#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: String,
    /// Extensions that must be understood; none are.
    #[serde(default)]
    crit: Option<serde_json::Value>,
}

/// Splits a token in its three parts.
fn parts(token: &str) -> Option<[&str; 3]> {
    if token.len() > MAX_TOKEN_BYTES {
        return None;
    }
    let mut parts = token.split('.');
    let three = [parts.next()?, parts.next()?, parts.next()?];
    parts.next().is_none().then_some(three)
}

/// Returns the issuer that a token claims to be of, before anything is verified; `None` if it is no
/// JWT.
pub fn untrusted_issuer(token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Issuer {
        #[serde(default)]
        iss: String,
    }
    let [_, payload, _] = parts(token)?;
    let payload = BASE64_URL_SAFE_NO_PAD.decode(payload).ok()?;
    let claims: Issuer = serde_json::from_slice(&payload).ok()?;
    Some(match claims.iss.as_str() {
        GOOGLE_WITHOUT_SCHEME => GOOGLE.to_owned(),
        _ => claims.iss,
    })
}

/// The conditions on tokens of an issuer.
#[derive(Clone, Debug)]
pub struct Conditions {
    pub audiences: Vec<String>,
    pub algorithms: Vec<String>,
}

impl Conditions {
    /// Returns the claims of a token that `provider` has signed.
    ///
    /// # Errors
    /// Upstream's text.
    pub async fn verify(
        &self,
        token: &str,
        provider: &Provider,
        now: Timestamp,
    ) -> Result<Claims, String> {
        let malformed = || "oidc: malformed jwt".to_owned();
        let [header, payload, signature] = parts(token).ok_or_else(malformed)?;
        let decode = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| malformed());
        let found: Header = serde_json::from_slice(&decode(header)?)
            .map_err(|why| format!("{}: {why}", malformed()))?;
        if !self.algorithms.contains(&found.alg) {
            return Err(format!(
                "oidc: id token signed with unsupported algorithm, expected {} got {}",
                go::quote_all(&self.algorithms),
                go::quote(&found.alg)
            ));
        }
        if found.crit.is_some() {
            return Err(
                "failed to verify signature: failed to verify id token signature".to_owned(),
            );
        }
        let message = &token[..header.len() + 1 + payload.len()];
        let (payload, signature) = (decode(payload)?, decode(signature)?);
        provider
            .verify(&found.kid, &found.alg, message.as_bytes(), &signature)
            .await
            .map_err(|why| format!("failed to verify signature: {why}"))?;
        let claims = Claims::parse(&payload)
            .map_err(|why| format!("oidc: failed to unmarshal claims: {why}"))?;
        claims.check_sources()?;
        self.check_issuer(&claims, provider.issuer())?;
        self.check_audience(&claims)?;
        check_times(&claims, now)?;
        Ok(claims)
    }

    fn check_issuer(&self, claims: &Claims, expected: &str) -> Result<(), String> {
        let issuer = claims.text("iss").unwrap_or_default();
        let is_google = expected == GOOGLE && issuer == GOOGLE_WITHOUT_SCHEME;
        match issuer == expected || is_google {
            true => Ok(()),
            false => Err(format!(
                "oidc: id token issued by a different provider, expected {} got {}",
                go::quote(expected),
                go::quote(issuer)
            )),
        }
    }

    fn check_audience(&self, claims: &Claims) -> Result<(), String> {
        let found = claims.audiences()?;
        if found.iter().any(|one| self.audiences.contains(one)) {
            return Ok(());
        }
        let found = go::quote_all(&found);
        Err(match self.audiences.as_slice() {
            [one] => format!("oidc: expected audience {} got {found}", go::quote(one)),
            many => {
                let mut sorted = many.to_vec();
                sorted.sort_unstable();
                format!(
                    "oidc: expected audience in {} got {found}",
                    go::quote_all(&sorted)
                )
            }
        })
    }
}

fn check_times(claims: &Claims, now: Timestamp) -> Result<(), String> {
    let shown = |seconds: f64| match Timestamp::from_second(seconds as i64) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S +0000 UTC").to_string(),
        Err(_) => seconds.to_string(),
    };
    let seconds = now.as_second() as f64 + f64::from(now.subsec_nanosecond()) / 1e9;
    // A token without an end has ended.
    let expiry = claims.number("exp")?.unwrap_or(-62_135_596_800.0);
    if expiry < seconds {
        return Err(format!(
            "oidc: token is expired (Token Expiry: {})",
            shown(expiry)
        ));
    }
    match claims.number("nbf")? {
        Some(start) if seconds + NOT_BEFORE_LEEWAY_SECONDS < start => Err(format!(
            "oidc: current time {} before the nbf (not before) time: {}",
            shown(seconds),
            shown(start)
        )),
        _ => Ok(()),
    }
}
