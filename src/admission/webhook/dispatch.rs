//! The steps that both kinds of webhooks have in common: matching, the call, and the consequences
//! of its answer (apiserver `admission/plugin/webhook/generic`).

use std::sync::Arc;
use std::time::Instant;

use opentelemetry::KeyValue;

use super::configuration::Hook;
use super::review::{self, Invalid, Response, Shown};
use crate::admission::cel::{self, Authorizations, Inputs, Match, Request};
use crate::admission::kinds::Kinds;
use crate::admission::matching::{Matched, RequestMatcher};
use crate::admission::observation::{CallResult, ConditionLabels};
use crate::admission::{Attributes, Objects};
use crate::auth::authz::Authorizer;
use crate::base::blocking::{LARGE_BYTES, run_blocking_if};
use crate::base::random;
use crate::meta::{Gvk, Gvr, Object, Status, Value, go, status, str_at};
use crate::telemetry::latency::{Layer, measure};
use crate::telemetry::trace;
use crate::webhook::{Client, Limits, WebhookError};

/// The bytes that the answer of a webhook may have: a patch of the largest object in base64, and
/// room for the rest.
const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// The dependencies of the plugins.
#[derive(Clone)]
pub struct Parts {
    pub objects: Arc<dyn Objects>,
    pub kinds: Arc<dyn Kinds>,
    pub authorizer: Arc<dyn Authorizer>,
    pub client: Client,
}

/// Reports whether no webhook is asked about a kind: not about those that configure admission, so
/// that what is wrong can be mended (apiserver `IsExemptAdmissionConfigurationResource`).
pub fn is_exempt(gvk: &Gvk) -> bool {
    gvk.group == "admissionregistration.k8s.io"
        && matches!(
            gvk.kind.as_str(),
            "ValidatingWebhookConfiguration"
                | "MutatingWebhookConfiguration"
                | "ValidatingAdmissionPolicy"
                | "ValidatingAdmissionPolicyBinding"
                | "MutatingAdmissionPolicy"
                | "MutatingAdmissionPolicyBinding"
        )
}

/// The end of a call that does not let the request through.
pub enum Failure {
    /// The webhook could not be asked; its failure policy decides. The code is that of metrics.
    Call { why: String, code: u16 },
    /// The webhook refuses the request.
    Rejected(Status),
    /// This server cannot do what the webhook says, or may not ask it.
    Internal(Status),
}

impl Failure {
    /// The failure of a webhook that could not be asked.
    fn unasked(why: WebhookError) -> Self {
        let (why, code) = match why {
            WebhookError::Configuration(why) => (format!("could not get REST client: {why}"), 500),
            WebhookError::Call(why) => {
                let code = why.code.unwrap_or(UNAVAILABLE);
                (format!("failed to call webhook: {why}"), code)
            }
        };
        Self::Call { why, code }
    }
}

/// The code for a webhook that did not answer, or not with what it should have.
pub const UNAVAILABLE: u16 = 503;

impl Failure {
    /// The answer to a request that a webhook could not be asked about and that depends on it.
    pub fn of_call(hook: &Hook, why: &str) -> Status {
        Status::internal(format!(
            "failed calling webhook {}: {why}",
            go::quote(&hook.name)
        ))
    }

    /// The result of the call in metrics.
    pub fn result(&self, hook: &Hook) -> CallResult {
        match self {
            Self::Call { code, .. } if hook.fails => CallResult::FailedClosed(*code),
            Self::Call { code, .. } => CallResult::FailedOpen(*code),
            Self::Rejected(status) => CallResult::Rejected(status.code),
            Self::Internal(_) => CallResult::Internal,
        }
    }
}

/// One request on its way through the webhooks.
pub struct Dispatch<'a> {
    pub parts: &'a Parts,
    matcher: RequestMatcher<'a>,
    authorizations: Authorizations,
    /// The options of the request.
    options: Option<Value>,
}

impl<'a> Dispatch<'a> {
    pub fn new(parts: &'a Parts, attributes: &Attributes<'_>) -> Self {
        Self {
            parts,
            matcher: RequestMatcher::new(&*parts.objects, &*parts.kinds),
            authorizations: Authorizations::new(parts.authorizer.clone(), attributes.user.clone()),
            options: attributes.options_value(),
        }
    }

    /// Returns the resource and kind in which a webhook is asked about the request; `None` if its
    /// rules and selectors leave it out.
    ///
    /// # Errors
    /// Its selectors cannot be compared.
    pub async fn matches(
        &self,
        hook: &Hook,
        attributes: &Attributes<'_>,
    ) -> status::Result<Option<Matched<'static>>> {
        let resources = hook.resources.as_ref().map_err(Status::internal)?;
        if resources.rules.is_empty() {
            return Ok(None);
        }
        let matched = self.matcher.matches(resources, attributes).await?;
        Ok(matched.map(Matched::into_owned))
    }

    /// Reports whether the conditions of a webhook hold. They see the resource that the request is
    /// about.
    ///
    /// # Errors
    /// 403 where they cannot be evaluated and the webhook must be asked.
    pub async fn meets_conditions(
        &self,
        hook: &Hook,
        attributes: &Attributes<'_>,
        shown: &Shown<'_>,
        kind: &'static str,
    ) -> status::Result<bool> {
        let Some((conditions, variables)) = hook.conditions() else {
            return Ok(true);
        };
        let request = Request {
            kind: &shown.matched.gvk,
            options: self.options.as_ref(),
            ..Request::of(attributes)
        };
        let inputs = Inputs {
            object: shown.object,
            old_object: shown.old,
            request: &request,
            params: None,
            namespace: None,
            authorizer: Some(&self.authorizations),
        };
        let labels = ConditionLabels {
            kind: "webhook",
            name: &hook.name,
            operation: attributes.operation,
            step: kind,
        };
        match cel::matches(conditions, variables, inputs, hook.fails, labels).await {
            Match::Matches => Ok(true),
            Match::DoesNotMatch(_) => {
                labels.excluded();
                Ok(false)
            }
            Match::Error(why) => {
                tracing::warn!(
                    "the conditions of webhook {} cannot be evaluated: {why}",
                    hook.name
                );
                Err(Status::forbidden(attributes.gvr, attributes.name, &why))
            }
        }
    }

    /// The objects of a request as a webhook sees them.
    pub fn shown<'s>(
        &'s self,
        matched: &'s Matched<'_>,
        object: Option<&'s Object>,
        old: Option<&'s Object>,
    ) -> Shown<'s> {
        Shown {
            matched,
            object,
            old,
            options: self.options.as_ref(),
        }
    }

    /// Asks a webhook; returns its answer if it lets the request through.
    ///
    /// # Errors
    /// It does not, or cannot be asked.
    pub async fn call(
        &self,
        hook: &Hook,
        attributes: &Attributes<'_>,
        shown: &Shown<'_>,
        mutating: bool,
    ) -> Result<Response, Failure> {
        if attributes.dry_run {
            let Some(takes_dry_runs) = hook.takes_dry_runs else {
                return Err(Failure::Call {
                    why: "Webhook SideEffects is nil".to_owned(),
                    code: 400,
                });
            };
            if !takes_dry_runs {
                let name = go::quote(&hook.name);
                return Err(Failure::Internal(Status::bad_request(format!(
                    "admission webhook {name} does not support dry run"
                ))));
            }
        }
        let Some(version) = hook.review else {
            let why = "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            return Err(Failure::Call {
                why: why.to_owned(),
                code: 400,
            });
        };
        let uid = random::uuid();
        let large = |object: &Object| object.is_larger_than(LARGE_BYTES);
        let is_large = shown.object.is_some_and(large) || shown.old.is_some_and(large);
        let body = run_blocking_if(is_large, || {
            review::request(version, &uid, attributes, shown)
        });
        let left = attributes
            .deadline
            .saturating_duration_since(Instant::now());
        let limits = Limits {
            timeout: hook.timeout.min(left),
            answer_bytes: MAX_ANSWER_BYTES,
        };
        let (layer, name) = match mutating {
            true => (Layer::MutatingWebhooks, "Call mutating webhook"),
            false => (Layer::ValidatingWebhooks, "Call validating webhook"),
        };
        let told = || span_attributes(hook, attributes, &uid);
        let call = self.parts.client.post(&hook.client, body.into(), limits);
        let answer = trace::in_span(name, trace::SLOW, told, async {
            let answer = measure(layer, call).await;
            trace::step("Request completed");
            answer
        });
        let answer = answer.await.map_err(Failure::unasked)?;
        let is_large = str_at(&answer, "/response/patch").len() > LARGE_BYTES;
        let response = run_blocking_if(is_large, || {
            Response::read(&answer, version, &uid, mutating)
        })
        .map_err(|why| {
            let why = match why {
                Invalid::Undecodable(why) => format!("failed to call webhook: {why}"),
                Invalid::Response(why) => format!("received invalid webhook response: {why}"),
            };
            let code = UNAVAILABLE;
            Failure::Call { why, code }
        })?;
        for (key, value) in &response.annotations {
            let key = format!("{}/{key}", hook.name);
            attributes.notes.annotate(key, value.clone());
        }
        for warning in &response.warnings {
            attributes.notes.warn(warning.clone());
        }
        match response.allowed {
            true => Ok(response),
            false => Err(Failure::Rejected(response.refusal(&hook.name))),
        }
    }
}

/// Returns the attributes of the span of a call.
fn span_attributes(hook: &Hook, attributes: &Attributes<'_>, uid: &str) -> Vec<KeyValue> {
    let gvr = attributes.gvr;
    let resource = format!("{}/{}, Resource={}", gvr.group, gvr.version, gvr.resource);
    vec![
        KeyValue::new("configuration", hook.configuration.clone()),
        KeyValue::new("webhook", hook.name.clone()),
        KeyValue::new("resource", resource),
        KeyValue::new("subresource", attributes.subresource.to_owned()),
        KeyValue::new("operation", attributes.operation.as_str()),
        KeyValue::new("UID", uid.to_owned()),
    ]
}

/// Returns the error of a request whose time is over; none while it is not.
///
/// # Errors
/// 504.
pub fn check_time(attributes: &Attributes<'_>) -> status::Result<()> {
    if Instant::now() < attributes.deadline {
        return Ok(());
    }
    let why = "request did not complete within requested timeout";
    Err(Status::timeout(why, 0))
}

/// Returns an object of a request in the kind that a webhook matched, which the request itself may
/// have.
///
/// # Errors
/// It cannot be converted.
pub async fn versioned<'o>(
    kinds: &dyn Kinds,
    object: Option<&'o Object>,
    (gvr, gvk): (&Gvr, &Gvk),
) -> status::Result<Option<std::borrow::Cow<'o, Object>>> {
    match object {
        None => Ok(None),
        Some(object) => match kinds.versioned(object, gvr, gvk).await {
            Ok(shown) => Ok(Some(shown)),
            Err(why) => Err(Status::internal(why.message)),
        },
    }
}
