//! Authorization of requests (apiserver `endpoints/filters/authorization.go`).

use std::time::Instant;

use http::Response;

use super::{Filter, FilterContext, Next};
use crate::audit::Audit;
use crate::auth::authz::{self, Decision, Verdict};
use crate::endpoints::body::Body;
use crate::telemetry::metrics::{Counter, Histogram};

static ATTEMPTS: Counter = Counter::new(
    "authorization_attempts_total",
    "[ALPHA] Counter of authorization attempts broken down by result. It can be either 'allowed', 'denied', 'no-opinion' or 'error'.",
    &["result"],
);
static SECONDS: Histogram = Histogram::new(
    "authorization_duration_seconds",
    "[ALPHA] Authorization duration in seconds broken out by result.",
    &["result"],
    &[
        0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
        8.192, 16.384,
    ],
);

/// The annotations of audit events.
const DECISION: &str = "authorization.k8s.io/decision";
const REASON: &str = "authorization.k8s.io/reason";

/// Answers 403 unless an authorizer allows the request, and 500 if it is not known whether one
/// does.
pub struct Authorization;

impl Filter for Authorization {
    async fn handle<N: Next>(ctx: &mut FilterContext<'_>) -> Response<Body> {
        let (attributes, chain) = (ctx.request.attributes(), ctx.chain);
        let start = Instant::now();
        let decision = chain.authorizer.authorize(&attributes).await;
        let result = [told(&decision)];
        ATTEMPTS.inc(&result);
        SECONDS.observe(&result, start.elapsed().as_secs_f64());
        if let Some(audit) = &ctx.audit {
            annotate(audit, &decision);
        }
        match decision {
            decision if decision.is_allowed() => N::handle(ctx).await,
            Decision {
                error: Some(why), ..
            } => super::internal_error(&ctx.request.uri, &why),
            decision => ctx.status(&authz::forbidden(&attributes, &decision.reason)),
        }
    }
}

/// Records a decision in the audit event.
fn annotate(audit: &Audit, decision: &Decision) {
    let told = match (decision.is_allowed(), &decision.error) {
        (true, _) => "allow",
        (false, None) => "forbid",
        (false, Some(_)) => return audit.annotate(REASON, "internal error"),
    };
    audit.annotate(DECISION, told);
    audit.annotate(REASON, &decision.reason);
}

/// The result as it is counted (apiserver `endpoints/filters/metrics.go`).
fn told(decision: &Decision) -> &'static str {
    match (decision.verdict, &decision.error) {
        (Verdict::Allow, _) => "allowed",
        (_, Some(_)) => "error",
        (Verdict::Deny, None) => "denied",
        (Verdict::NoOpinion, None) => "no-opinion",
    }
}
