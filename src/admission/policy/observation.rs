//! Metrics of policies (apiserver `admission/plugin/policy/{validating,mutating}/metrics`).

use std::time::Duration;

use crate::telemetry::metrics::{Counter, Declared, Histogram};

const VALIDATION_LABELS: &[&str] = &[
    "policy",
    "policy_binding",
    "error_type",
    "enforcement_action",
];
const MUTATION_LABELS: &[&str] = &["policy", "policy_binding", "error_type"];
const SECONDS: &[f64] = &[5e-7, 0.001, 0.01, 0.1, 1.0];

static VALIDATIONS: Counter = Counter::new(
    "apiserver_validating_admission_policy_check_total",
    "[BETA] Validation admission policy check total, labeled by policy and further identified by binding and enforcement action taken.",
    VALIDATION_LABELS,
);
static VALIDATION_SECONDS: Histogram = Histogram::new(
    "apiserver_validating_admission_policy_check_duration_seconds",
    "[BETA] Validation admission latency for individual validation expressions in seconds, labeled by policy and further including binding and enforcement action taken.",
    VALIDATION_LABELS,
    SECONDS,
);
static MUTATIONS: Counter = Counter::new(
    "apiserver_mutating_admission_policy_check_total",
    "[ALPHA] Mutation admission policy check total, labeled by policy and further identified by binding.",
    MUTATION_LABELS,
);
static MUTATION_SECONDS: Histogram = Histogram::new(
    "apiserver_mutating_admission_policy_check_duration_seconds",
    "[ALPHA] Mutation admission latency for individual mutation expressions in seconds, labeled by policy and binding.",
    MUTATION_LABELS,
    SECONDS,
);

pub static METRICS: &[&dyn Declared] = &[
    &VALIDATIONS,
    &VALIDATION_SECONDS,
    &MUTATIONS,
    &MUTATION_SECONDS,
];

/// The effect of a validation on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforcement {
    /// The request went on.
    Allow,
    Deny,
    Audit,
    Warn,
}

impl Enforcement {
    fn label(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Audit => "audit",
            Self::Warn => "warn",
        }
    }
}

/// The type of an error by its text; `None` for an evaluation that worked.
fn error_type(error: Option<&str>) -> &'static str {
    match error {
        None => "no_error",
        Some(text) if text.starts_with("compilation") => "compile_error",
        Some(text) if text.starts_with("validation failed due to running out of cost budget") => {
            "out_of_budget"
        }
        Some(_) => "invalid_error",
    }
}

/// Counts a decision of a policy, as it is bound.
pub fn validated(
    (policy, binding): (&str, &str),
    enforcement: Enforcement,
    error: Option<&str>,
    elapsed: Duration,
) {
    let labels = [policy, binding, error_type(error), enforcement.label()];
    VALIDATIONS.inc(&labels);
    VALIDATION_SECONDS.observe(&labels, elapsed.as_secs_f64());
}

/// Counts a mutation of a policy, as it is bound.
pub fn mutated((policy, binding): (&str, &str), error: Option<&str>, elapsed: Duration) {
    let labels = [policy, binding, error_type(error)];
    MUTATIONS.inc(&labels);
    MUTATION_SECONDS.observe(&labels, elapsed.as_secs_f64());
}
