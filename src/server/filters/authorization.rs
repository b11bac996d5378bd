//! Authorization of requests (apiserver `endpoints/filters/authorization.go`).

use std::sync::LazyLock;

use http::Response;

use super::{Filter, FilterContext, Next};
use crate::audit::Audit;
use crate::auth::authz::{self, Decision, Verdict};
use crate::endpoints::body::Body;
use crate::telemetry::latency::{self, Layer};
use crate::telemetry::metrics::{
    Counter, CounterSeries, DOUBLED_MILLISECONDS, Declared, Histogram, HistogramSeries,
};
use crate::telemetry::requests::FilterName;

static ATTEMPTS: Counter = Counter::new(
    "authorization_attempts_total",
    "[ALPHA] Counter of authorization attempts broken down by result. It can be either 'allowed', 'denied', 'no-opinion' or 'error'.",
    &["result"],
);
static SECONDS: Histogram = Histogram::new(
    "authorization_duration_seconds",
    "[ALPHA] Authorization duration in seconds broken out by result.",
    &["result"],
    DOUBLED_MILLISECONDS,
);
pub static METRICS: &[&dyn Declared] = &[&ATTEMPTS, &SECONDS];

/// The results as they are counted (apiserver `endpoints/filters/metrics.go`).
const RESULTS: [&str; 4] = ["allowed", "error", "denied", "no-opinion"];
static SERIES: LazyLock<[(CounterSeries, HistogramSeries); 4]> =
    LazyLock::new(|| RESULTS.map(|result| (ATTEMPTS.series(&[result]), SECONDS.series(&[result]))));

/// The annotations of audit events.
const DECISION: &str = "authorization.k8s.io/decision";
const REASON: &str = "authorization.k8s.io/reason";

/// Answers 403 unless an authorizer allows the request, and 500 if it is not known whether one
/// does.
pub struct Authorization;

impl Filter for Authorization {
    const SPAN: Option<&'static str> = Some("authorization");

    async fn handle<N: Next>(ctx: &mut FilterContext<'_>) -> Response<Body> {
        let (attributes, chain) = (ctx.request.attributes(), ctx.chain);
        let decision = chain.authorizer.authorize(&attributes).await;
        let took = match decision.is_allowed() {
            true => ctx.end_filter(FilterName::Authorization),
            false => ctx.filter_began.elapsed(),
        };
        let (attempts, seconds) = &SERIES[told(&decision)];
        attempts.inc();
        seconds.observe(took.as_secs_f64());
        latency::record(Layer::Authorization, took);
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

/// The result of a decision among those that are counted.
fn told(decision: &Decision) -> usize {
    match (decision.verdict, &decision.error) {
        (Verdict::Allow, _) => 0,
        (_, Some(_)) => 1,
        (Verdict::Deny, None) => 2,
        (Verdict::NoOpinion, None) => 3,
    }
}
