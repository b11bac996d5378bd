//! Metrics of authorizers (apiserver `authorization/{metrics,cel}`,
//! `plugin/pkg/authorizer/webhook/metrics`).

use crate::telemetry::metrics::{Counter, Declared, Histogram};

pub static DECISIONS: Counter = Counter::new(
    "apiserver_authorization_decisions_total",
    "[ALPHA] Total number of terminal decisions made by an authorizer split by authorizer type, name, and decision.",
    &["type", "name", "decision"],
);
pub static MATCH_ERRORS: Counter = Counter::new(
    "apiserver_authorization_match_condition_evaluation_errors_total",
    "[ALPHA] Total number of errors when an authorization webhook encounters a match condition error split by authorizer type and name.",
    &["type", "name"],
);
pub static MATCH_EXCLUSIONS: Counter = Counter::new(
    "apiserver_authorization_match_condition_exclusions_total",
    "[ALPHA] Total number of exclusions when an authorization webhook is skipped because match conditions exclude it.",
    &["type", "name"],
);
pub static MATCH_SECONDS: Histogram = Histogram::new(
    "apiserver_authorization_match_condition_evaluation_seconds",
    "[ALPHA] Authorization match condition evaluation time in seconds, split by authorizer type and name.",
    &["type", "name"],
    &[0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25],
);
pub static WEBHOOK_EVALUATIONS: Counter = Counter::new(
    "apiserver_authorization_webhook_evaluations_total",
    "[ALPHA] Round-trips to authorization webhooks.",
    &["name", "result"],
);
pub static WEBHOOK_SECONDS: Histogram = Histogram::new(
    "apiserver_authorization_webhook_duration_seconds",
    "[ALPHA] Request latency in seconds.",
    &["name", "result"],
    &[
        0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    ],
);
pub static WEBHOOK_FAIL_OPEN: Counter = Counter::new(
    "apiserver_authorization_webhook_evaluations_fail_open_total",
    "[ALPHA] NoOpinion results due to webhook timeout or error.",
    &["name", "result"],
);

pub static METRICS: &[&dyn Declared] = &[
    &DECISIONS,
    &MATCH_ERRORS,
    &MATCH_EXCLUSIONS,
    &MATCH_SECONDS,
    &WEBHOOK_EVALUATIONS,
    &WEBHOOK_SECONDS,
    &WEBHOOK_FAIL_OPEN,
];
