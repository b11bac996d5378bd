//! The metrics of impersonation (apiserver `endpoints/filters/impersonation/metrics`).

use std::time::Duration;

use crate::telemetry::metrics::{Counter, DOUBLED_MILLISECONDS, Declared, Histogram};

const LABELS: &[&str] = &["mode", "decision"];

static ATTEMPTS: Counter = Counter::new(
    "apiserver_impersonation_attempts_total",
    "[ALPHA] Total number of impersonation attempts split by mode and decision.",
    LABELS,
);
static ATTEMPT_SECONDS: Histogram = Histogram::new(
    "apiserver_impersonation_attempts_duration_seconds",
    "[ALPHA] Latency of impersonation attempts in seconds split by mode and decision.",
    LABELS,
    DOUBLED_MILLISECONDS,
);
static AUTHORIZATIONS: Counter = Counter::new(
    "apiserver_impersonation_authorization_attempts_total",
    "[ALPHA] Total number of authorization checks made by the impersonation handler split by mode and decision.",
    LABELS,
);
static AUTHORIZATION_SECONDS: Histogram = Histogram::new(
    "apiserver_impersonation_authorization_attempts_duration_seconds",
    "[ALPHA] Latency of authorization checks made by the impersonation handler in seconds split by mode and decision.",
    LABELS,
    DOUBLED_MILLISECONDS,
);

pub static METRICS: &[&dyn Declared] = &[
    &ATTEMPTS,
    &ATTEMPT_SECONDS,
    &AUTHORIZATIONS,
    &AUTHORIZATION_SECONDS,
];

fn decision(allowed: bool) -> &'static str {
    if allowed { "allowed" } else { "denied" }
}

/// Counts a request for another user; the mode is empty where none allowed it.
pub fn attempted(mode: &str, allowed: bool, took: Duration) {
    let labels = [mode, decision(allowed)];
    ATTEMPTS.inc(&labels);
    ATTEMPT_SECONDS.observe(&labels, took.as_secs_f64());
}

/// Counts a question to the authorizers.
pub fn asked(mode: &str, allowed: bool, took: Duration) {
    let labels = [mode, decision(allowed)];
    AUTHORIZATIONS.inc(&labels);
    AUTHORIZATION_SECONDS.observe(&labels, took.as_secs_f64());
}
