//! The Webhook authorizer: it asks a remote service with a SubjectAccessReview, and keeps the
//! answers for a while (apiserver `plugin/pkg/authorizer/webhook`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use aws_lc_rs::digest;
use bytes::Bytes;
use jiff::Timestamp;

use super::configuration::{FailurePolicy, ReviewVersion, WebhookConfiguration};
use super::review::{self, Spec};
use super::{Attributes, Authorizer, Decision, UserRules, Verdict, aggregate, metrics};
use crate::auth::User;
use crate::auth::cel::{self, Expression, Returns, Variable};
use crate::base::clock::Clock;
use crate::base::dial::Dial;
use crate::meta::{Value, bool_at, str_at};
use crate::webhook::{CallError, Expected, Remote};

/// The answers that are kept.
const MAX_ANSWERS: u64 = 8192;
/// The length of what a client chooses of a question beyond which its answer is not kept.
const MAX_CONTROLLED_BYTES: usize = 10_000;
const TYPE: &str = "Webhook";

/// A hash of a question.
type Key = [u8; digest::SHA256_OUTPUT_LEN];

/// The status of a review.
#[derive(Clone)]
struct Answer {
    allowed: bool,
    denied: bool,
    reason: String,
    until: Timestamp,
}

/// The authorizer.
pub struct WebhookAuthorizer {
    name: String,
    remote: Remote,
    version: ReviewVersion,
    on_error: Verdict,
    conditions: Vec<Expression>,
    authorized_ttl: Duration,
    unauthorized_ttl: Duration,
    answers: moka::sync::Cache<Key, Answer>,
    clock: Clock,
}

impl WebhookAuthorizer {
    /// # Errors
    /// The kubeconfig file cannot be read or understood.
    pub fn new(name: &str, config: &WebhookConfiguration, clock: Clock) -> Result<Self, String> {
        let compile = |text: &String| cel::compile(text, Variable::Request, Returns::Bool);
        let conditions: Result<_, _> = config.match_conditions.iter().map(compile).collect();
        Ok(Self {
            name: name.to_owned(),
            remote: Remote::read(&config.kubeconfig, config.timeout)?,
            version: config.review_version,
            on_error: match config.failure_policy {
                FailurePolicy::NoOpinion => Verdict::NoOpinion,
                FailurePolicy::Deny => Verdict::Deny,
            },
            conditions: conditions.map_err(|why| why.to_string())?,
            authorized_ttl: config.authorized_ttl,
            unauthorized_ttl: config.unauthorized_ttl,
            answers: moka::sync::Cache::new(MAX_ANSWERS),
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

    /// Reports whether the webhook is to be asked.
    ///
    /// # Errors
    /// A condition has no value, and none is false.
    fn matches(&self, attributes: &Attributes) -> Result<bool, String> {
        if self.conditions.is_empty() {
            return Ok(true);
        }
        let labels = [TYPE, self.name.as_str()];
        let start = Instant::now();
        let request = review::request(attributes);
        let mut errors = Vec::new();
        let mut excluded = false;
        for condition in &self.conditions {
            match condition.evaluate(&request) {
                Ok(crate::cel::Value::Bool(true)) => {}
                Ok(_) => {
                    excluded = true;
                    break;
                }
                Err(why) => errors.push(format!("cel evaluation error: {why}")),
            }
        }
        metrics::MATCH_SECONDS.observe(&labels, start.elapsed().as_secs_f64());
        if !errors.is_empty() {
            metrics::MATCH_ERRORS.inc(&labels);
        }
        if excluded {
            metrics::MATCH_EXCLUSIONS.inc(&labels);
            return Ok(false);
        }
        match errors.is_empty() {
            true => Ok(true),
            false => Err(aggregate(&errors)),
        }
    }

    /// Returns the webhook's answer to a question.
    async fn ask(&self, attributes: &Attributes) -> Result<Answer, CallError> {
        let body = Spec(attributes).review(self.version);
        let mut key = Key::default();
        key.copy_from_slice(digest::digest(&digest::SHA256, &body).as_ref());
        let now = self.clock.now();
        if let Some(known) = self.answers.get(&key).filter(|known| now < known.until) {
            return Ok(known);
        }
        let expected = Expected {
            api_version: self.version.api_version(),
            kind: review::KIND,
        };
        let count = |answer: &Result<Value, CallError>, took: Duration| {
            let labels = [self.name.as_str(), told(answer.as_ref().err())];
            metrics::WEBHOOK_EVALUATIONS.inc(&labels);
            metrics::WEBHOOK_SECONDS.observe(&labels, took.as_secs_f64());
        };
        let found = self.remote.post(Bytes::from(body), expected, count).await?;
        let status = |field: &str| bool_at(&found, &format!("/status/{field}"));
        let allowed = status("allowed");
        let ttl = match allowed {
            true => self.authorized_ttl,
            false => self.unauthorized_ttl,
        };
        let now = self.clock.now();
        let answer = Answer {
            allowed,
            denied: status("denied"),
            reason: str_at(&found, "/status/reason").to_owned(),
            until: now.checked_add(ttl).unwrap_or(now),
        };
        let bytes = controlled_bytes(attributes) + answer.reason.len();
        if !ttl.is_zero() && bytes < MAX_CONTROLLED_BYTES {
            self.answers.insert(key, answer.clone());
        }
        Ok(answer)
    }
}

/// The result of a call as it is counted.
fn told(error: Option<&CallError>) -> &'static str {
    match error {
        None => "success",
        Some(why) if why.timed_out => "timeout",
        Some(_) => "error",
    }
}

/// The length of what a client chooses of a question.
fn controlled_bytes(asked: &Attributes) -> usize {
    [
        &asked.namespace,
        &asked.verb,
        &asked.group,
        &asked.version,
        &asked.resource,
        &asked.subresource,
        &asked.name,
        &asked.path,
    ]
    .map(String::len)
    .iter()
    .sum()
}

#[async_trait]
impl Authorizer for WebhookAuthorizer {
    async fn authorize(&self, attributes: &Attributes) -> Decision {
        match self.matches(attributes) {
            Ok(true) => {}
            Ok(false) => return Decision::no_opinion(""),
            Err(why) => return Decision::failed(self.on_error, why),
        }
        let answer = match self.ask(attributes).await {
            Ok(answer) => answer,
            Err(why) => {
                tracing::error!("the authorization webhook {}: {}", self.name, why.text);
                if self.on_error == Verdict::NoOpinion {
                    metrics::WEBHOOK_FAIL_OPEN.inc(&[&self.name, told(Some(&why))]);
                }
                return Decision::failed(self.on_error, why.text);
            }
        };
        match (answer.denied, answer.allowed) {
            (true, true) => Decision {
                error: Some(
                    "webhook subject access review returned both allow and deny response"
                        .to_owned(),
                ),
                ..Decision::deny(answer.reason)
            },
            (true, false) => Decision::deny(answer.reason),
            (false, true) => Decision::allow(answer.reason),
            (false, false) => Decision::no_opinion(answer.reason),
        }
    }

    async fn rules_for(&self, _user: &User, _namespace: &str) -> UserRules {
        let error = "webhook authorizer does not support user rule resolution".to_owned();
        UserRules {
            rules: Vec::new(),
            incomplete: true,
            errors: vec![error],
        }
    }
}
