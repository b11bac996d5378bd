//! The metrics of pod security (pod-security-admission `metrics`).

use super::LevelVersion;
use crate::admission::{Attributes, Operation};
use crate::telemetry::metric_options::MINOR;
use crate::telemetry::metrics::{Counter, Declared};

static EVALUATIONS: Counter = Counter::new(
    "pod_security_evaluations_total",
    "[ALPHA] Number of policy evaluations that occurred, not counting ignored or exempt requests.",
    &[
        "decision",
        "policy_level",
        "policy_version",
        "mode",
        "request_operation",
        "resource",
        "subresource",
    ],
);
static EXEMPTIONS: Counter = Counter::new(
    "pod_security_exemptions_total",
    "[ALPHA] Number of exempt requests, not counting ignored or out of scope requests.",
    &["request_operation", "resource", "subresource"],
);
static ERRORS: Counter = Counter::new(
    "pod_security_errors_total",
    "[ALPHA] Number of errors preventing normal evaluation. Non-fatal errors may result in the latest restricted profile being used for evaluation.",
    &["fatal", "request_operation", "resource", "subresource"],
);
pub static METRICS: &[&dyn Declared] = &[&EVALUATIONS, &EXEMPTIONS, &ERRORS];

/// The labels of a request: its operation, what it is about, the subresource.
fn labels<'a>(attributes: &'a Attributes<'_>) -> [&'a str; 3] {
    let operation = match attributes.operation {
        Operation::Create => "create",
        Operation::Update => "update",
        Operation::Delete | Operation::Connect => "unknown",
    };
    let resource = match attributes.gvr.resource.as_str() {
        "pods" => "pod",
        "namespaces" => "namespace",
        _ => "controller",
    };
    [operation, resource, attributes.subresource]
}

/// Counts a judgement: `mode` is `enforce`, `audit` or `warn`.
pub fn evaluated(
    attributes: &Attributes<'_>,
    mode: &'static str,
    policy: LevelVersion,
    is_allowed: bool,
) {
    let decision = if is_allowed { "allow" } else { "deny" };
    let (level, version) = (policy.level.as_str(), policy.counted_version(MINOR));
    let [operation, resource, subresource] = labels(attributes);
    EVALUATIONS.inc(&[
        decision,
        level,
        &version,
        mode,
        operation,
        resource,
        subresource,
    ]);
}

/// Counts a request that is not judged.
pub fn exempt(attributes: &Attributes<'_>) {
    EXEMPTIONS.inc(&labels(attributes));
}

/// Counts a request that could not be judged, or by the strictest policy only.
pub fn failed(attributes: &Attributes<'_>, is_fatal: bool) {
    let [operation, resource, subresource] = labels(attributes);
    let fatal = if is_fatal { "true" } else { "false" };
    ERRORS.inc(&[fatal, operation, resource, subresource]);
}
