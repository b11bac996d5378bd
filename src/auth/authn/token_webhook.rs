//! Tokens that a remote service knows: it is asked with a TokenReview, and its answers are kept for
//! a while (apiserver `plugin/pkg/authenticator/token/webhook`).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use super::cache::{self, Key, MAX_TOKENS, MAX_USER_BYTES};
use super::{AuthnError, TokenUser};
use crate::auth::User;
use crate::base::clock::Clock;
use crate::base::dial::Dial;
use crate::codec::json::encode_value;
use crate::meta::{Map, Value, array_at, bool_at, json, map_at, str_at};
use crate::webhook::{Expected, Remote};

const KIND: &str = "TokenReview";
/// The time that the service has to answer (apiserver `webhook.defaultRequestTimeout`).
const TIMEOUT: Duration = Duration::from_secs(30);

/// The version of the reviews that the service gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    V1,
    V1Beta1,
}

impl ReviewVersion {
    const fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "authentication.k8s.io/v1",
            Self::V1Beta1 => "authentication.k8s.io/v1beta1",
        }
    }
}

/// The answer about a token: its user, or that it has none.
#[derive(Clone)]
struct Known {
    user: Option<Arc<TokenUser>>,
    until: Timestamp,
}

/// The authenticator.
pub struct TokenWebhook {
    remote: Remote,
    version: ReviewVersion,
    /// The audiences that an answer without any is for.
    api_audiences: Vec<String>,
    ttl: Duration,
    known: moka::sync::Cache<Key, Known>,
    clock: Clock,
}

impl TokenWebhook {
    /// # Errors
    /// The kubeconfig file cannot be read or understood.
    pub fn new(
        kubeconfig: &Path,
        version: ReviewVersion,
        ttl: Duration,
        api_audiences: Vec<String>,
        clock: Clock,
    ) -> Result<Self, String> {
        Ok(Self {
            remote: Remote::read(kubeconfig, TIMEOUT)?,
            version,
            api_audiences,
            ttl,
            known: moka::sync::Cache::new(MAX_TOKENS as u64),
            clock,
        })
    }

    /// Connects as a dialer does.
    pub fn with_dialer(self, dialer: Option<Arc<dyn Dial>>) -> Self {
        Self {
            remote: self.remote.with_dialer(dialer),
            ..self
        }
    }

    /// Returns the user of a token that is for one of `audiences` (any if there are none); `None`
    /// if the service knows none.
    ///
    /// # Errors
    /// The service says why not, or cannot be asked.
    pub async fn authenticate(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<Option<Arc<TokenUser>>, AuthnError> {
        let key = cache::key(token, audiences);
        let now = self.clock.now();
        if let Some(known) = self.known.get(&key).filter(|known| now < known.until) {
            return Ok(known.user);
        }
        let user = self.ask(token, audiences).await?.map(Arc::new);
        let bytes = user.as_ref().map_or(0, |user| user.user.bytes());
        if !self.ttl.is_zero() && bytes <= MAX_USER_BYTES {
            let now = self.clock.now();
            let known = Known {
                user: user.clone(),
                until: now.checked_add(self.ttl).unwrap_or(now),
            };
            self.known.insert(key, known);
        }
        Ok(user)
    }

    async fn ask(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<Option<TokenUser>, AuthnError> {
        let body = review(self.version, token, audiences);
        let expected = Expected {
            api_version: self.version.api_version(),
            kind: KIND,
        };
        let answer = self
            .remote
            .post(Bytes::from(body), expected, |_, _| ())
            .await;
        let answer = answer.map_err(|why| {
            tracing::error!("the token webhook: {}", why.text);
            AuthnError::new(why.text)
        })?;
        let told = strings(array_at(&answer, "/status/audiences"));
        let theirs = match told.is_empty() {
            true => &self.api_audiences,
            false => &told,
        };
        let common: Vec<String> = audiences
            .iter()
            .filter(|one| theirs.contains(one))
            .cloned()
            .collect();
        if common.is_empty() && !audiences.is_empty() {
            return Ok(None);
        }
        if !bool_at(&answer, "/status/authenticated") {
            return match str_at(&answer, "/status/error") {
                "" => Ok(None),
                why => Err(AuthnError::new(why)),
            };
        }
        Ok(Some(TokenUser {
            user: user(&answer).into(),
            audiences: common,
            ..TokenUser::default()
        }))
    }
}

/// Returns the review of a token, as Go writes it.
fn review(version: ReviewVersion, token: &str, audiences: &[String]) -> Vec<u8> {
    let mut spec = Map::new();
    spec.insert("token", token.into());
    if !audiences.is_empty() {
        spec.insert("audiences", audiences.iter().cloned().collect());
    }
    let review = json!({
        "kind": KIND,
        "apiVersion": version.api_version(),
        "metadata": {},
        "spec": spec,
        "status": {"user": {}},
    });
    let mut out = Vec::new();
    encode_value(&review, &mut out);
    out
}

fn strings(values: &[Value]) -> Vec<String> {
    let texts = values.iter().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

fn user(answer: &Value) -> User {
    let extra = map_at(answer, "/status/user/extra").into_iter();
    User {
        name: str_at(answer, "/status/user/username").to_owned(),
        uid: str_at(answer, "/status/user/uid").to_owned(),
        groups: strings(array_at(answer, "/status/user/groups")),
        extra: extra
            .flat_map(Map::iter)
            .map(|(key, values)| {
                let values = values.as_array().map_or(&[][..], Vec::as_slice);
                (key.to_string(), strings(values))
            })
            .collect(),
    }
}
