//! Metrics of admission: its two steps, its plugins, webhooks and match conditions (apiserver
//! `admission/metrics`).

use std::sync::OnceLock;
use std::time::Duration;

use super::Operation;
use crate::telemetry::metrics::{Counter, Declared, Histogram, HistogramSeries};
use crate::telemetry::summary::{Summary, SummarySeries};

const SECONDS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5];

static STEPS: Histogram = Histogram::new(
    "apiserver_admission_step_admission_duration_seconds",
    "[STABLE] Admission sub-step latency histogram in seconds, broken out for each operation and API resource and step type (validate or admit).",
    &["operation", "rejected", "type"],
    SECONDS,
);
static STEP_SUMMARIES: Summary = Summary::new(
    "apiserver_admission_step_admission_duration_seconds_summary",
    "[ALPHA] Admission sub-step latency summary in seconds, broken out for each operation and API resource and step type (validate or admit).",
    &["operation", "rejected", "type"],
    Duration::from_secs(5 * 60 * 60),
);
static PLUGINS: Histogram = Histogram::new(
    "apiserver_admission_controller_admission_duration_seconds",
    "[STABLE] Admission controller latency histogram in seconds, identified by name and broken out for each operation and API resource and type (validate or admit).",
    &["name", "operation", "rejected", "type"],
    SECONDS,
);
static WEBHOOK_SECONDS: Histogram = Histogram::new(
    "apiserver_admission_webhook_admission_duration_seconds",
    "[STABLE] Admission webhook latency histogram in seconds, identified by name and broken out for each operation and API resource and type (validate or admit).",
    &["name", "operation", "rejected", "type"],
    &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0],
);
static WEBHOOK_REJECTIONS: Counter = Counter::new(
    "apiserver_admission_webhook_rejection_count",
    "[ALPHA] Admission webhook rejection count, identified by name and broken out for each admission type (validating or admit) and operation. Additional labels specify an error type (calling_webhook_error or apiserver_internal_error if an error occurred; no_error otherwise) and optionally a non-zero rejection code if the webhook rejects the request with an HTTP status code (honored by the apiserver when the code is greater or equal to 400). Codes greater than 600 are truncated to 600, to keep the metrics cardinality bounded.",
    &["error_type", "name", "operation", "rejection_code", "type"],
);
static WEBHOOKS_FAILED_OPEN: Counter = Counter::new(
    "apiserver_admission_webhook_fail_open_count",
    "[ALPHA] Admission webhook fail open count, identified by name and broken out for each admission type (validating or admit).",
    &["name", "type"],
);
static WEBHOOK_REQUESTS: Counter = Counter::new(
    "apiserver_admission_webhook_request_total",
    "[ALPHA] Admission webhook request total, identified by name and broken out for each admission type (validating or admit) and operation. Additional labels specify whether the request was rejected or not and an HTTP status code. Codes greater than 600 are truncated to 600, to keep the metrics cardinality bounded.",
    &["code", "name", "operation", "rejected", "type"],
);
const CONDITION_LABELS: &[&str] = &["kind", "name", "operation", "type"];
static CONDITION_ERRORS: Counter = Counter::new(
    "apiserver_admission_match_condition_evaluation_errors_total",
    "[ALPHA] Admission match condition evaluation errors count, identified by name of resource containing the match condition and broken out for each kind containing matchConditions (webhook or policy), operation and admission type (validate or admit).",
    CONDITION_LABELS,
);
static CONDITION_EXCLUSIONS: Counter = Counter::new(
    "apiserver_admission_match_condition_exclusions_total",
    "[ALPHA] Admission match condition evaluation exclusions count, identified by name of resource containing the match condition and broken out for each kind containing matchConditions (webhook or policy), operation and admission type (validate or admit).",
    CONDITION_LABELS,
);
static CONDITION_SECONDS: Histogram = Histogram::new(
    "apiserver_admission_match_condition_evaluation_seconds",
    "[ALPHA] Admission match condition evaluation time in seconds, identified by name and broken out for each kind containing matchConditions (webhook or policy), operation and type (validate or admit).",
    CONDITION_LABELS,
    &[0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25],
);

pub static METRICS: &[&dyn Declared] = &[
    &STEPS,
    &STEP_SUMMARIES,
    &PLUGINS,
    &WEBHOOK_SECONDS,
    &WEBHOOK_REJECTIONS,
    &WEBHOOKS_FAILED_OPEN,
    &WEBHOOK_REQUESTS,
    &CONDITION_ERRORS,
    &CONDITION_EXCLUSIONS,
    &CONDITION_SECONDS,
];

/// A half of admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Admit,
    Validate,
}

impl Step {
    fn label(self) -> &'static str {
        match self {
            Self::Admit => "admit",
            Self::Validate => "validate",
        }
    }
}

fn flag(is_rejected: bool) -> &'static str {
    match is_rejected {
        true => "true",
        false => "false",
    }
}

/// The series of one name for each step, operation and outcome. Each is looked up once: they are
/// observed with every write.
struct Timings<S>([[[OnceLock<S>; 2]; 4]; 2]);

impl<S> Timings<S> {
    const fn new() -> Self {
        Self([const { [const { [const { OnceLock::new() }; 2] }; 4] }; 2])
    }

    fn of(&self, step: Step, operation: Operation, is_rejected: bool) -> &OnceLock<S> {
        &self.0[step as usize][operation as usize][usize::from(is_rejected)]
    }
}

static STEP_TIMINGS: Timings<(HistogramSeries, SummarySeries)> = Timings::new();

/// Counts a half of the admission of a request.
pub fn step_done(step: Step, operation: Operation, is_rejected: bool, elapsed: Duration) {
    let labels = [operation.as_str(), flag(is_rejected), step.label()];
    let found = || (STEPS.series(&labels), STEP_SUMMARIES.series(&labels));
    let series = STEP_TIMINGS
        .of(step, operation, is_rejected)
        .get_or_init(found);
    series.0.observe(elapsed.as_secs_f64());
    series.1.observe(elapsed.as_secs_f64());
}

/// The steps and operations that a plugin is called for, a bit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls {
    pub steps: u8,
    pub operations: u8,
}

impl Calls {
    fn include(self, step: Step, operation: Operation) -> bool {
        self.steps & (1 << step as u8) != 0 && self.operations & (1 << operation as u8) != 0
    }
}

/// The timings of a plugin.
pub struct PluginTimings {
    name: &'static str,
    calls: Calls,
    timings: Timings<HistogramSeries>,
}

impl PluginTimings {
    pub fn new(name: &'static str, calls: Calls) -> Self {
        Self {
            name,
            calls,
            timings: Timings::new(),
        }
    }

    /// Counts a request that the plugin has nothing to say about.
    pub fn pass(&self, step: Step, operation: Operation) {
        self.observe(step, operation, false, Duration::ZERO);
    }

    /// Counts a request that the plugin was asked about, if upstream's is asked about it.
    pub fn observe(&self, step: Step, operation: Operation, is_rejected: bool, elapsed: Duration) {
        if !self.calls.include(step, operation) {
            return;
        }
        let labels = [
            self.name,
            operation.as_str(),
            flag(is_rejected),
            step.label(),
        ];
        let series = self.timings.of(step, operation, is_rejected);
        series
            .get_or_init(|| PLUGINS.series(&labels))
            .observe(elapsed.as_secs_f64());
    }
}

/// The end of a call of a webhook, by its effect on the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallResult {
    Allowed,
    /// The webhook refuses, with this code.
    Rejected(u16),
    /// It could not be asked, and the request is refused.
    FailedClosed(u16),
    /// It could not be asked, and the request goes on.
    FailedOpen(u16),
    /// This server could not do what the webhook says.
    Internal,
}

/// Codes from here on are counted as one.
const MAX_CODE: u16 = 600;

/// Counts a call of an admission webhook. The kind is `admit` or `validating`.
pub fn webhook_called(
    (name, kind): (&str, &str),
    operation: Operation,
    result: CallResult,
    elapsed: Duration,
) {
    let (code, error) = match result {
        CallResult::Allowed => (200, None),
        CallResult::Rejected(code) => (code, Some("no_error")),
        CallResult::FailedClosed(code) => (code, Some("calling_webhook_error")),
        CallResult::FailedOpen(code) => (code, None),
        CallResult::Internal => (0, Some("apiserver_internal_error")),
    };
    let (operation, rejected) = (operation.as_str(), flag(error.is_some()));
    let code = code.min(MAX_CODE).to_string();
    if let Some(error) = error {
        WEBHOOK_REJECTIONS.inc(&[error, name, operation, &code, kind]);
    }
    if matches!(result, CallResult::FailedOpen(_)) {
        WEBHOOKS_FAILED_OPEN.inc(&[name, kind]);
    }
    WEBHOOK_REQUESTS.inc(&[&code, name, operation, rejected, kind]);
    let labels = [name, operation, rejected, kind];
    WEBHOOK_SECONDS.observe(&labels, elapsed.as_secs_f64());
}

/// The holder of match conditions, in the labels of their metrics.
#[derive(Clone, Copy, Debug)]
pub struct ConditionLabels<'a> {
    /// `webhook` or `policy`.
    pub kind: &'static str,
    pub name: &'a str,
    pub operation: Operation,
    /// `admit` and `validating` for webhooks, `mutate` and `validate` for policies.
    pub step: &'static str,
}

impl ConditionLabels<'_> {
    fn values(&self) -> [&str; 4] {
        [self.kind, self.name, self.operation.as_str(), self.step]
    }

    /// Counts an evaluation, and its conditions that failed.
    pub fn evaluated(&self, errors: usize, elapsed: Duration) {
        CONDITION_SECONDS.observe(&self.values(), elapsed.as_secs_f64());
        if errors > 0 {
            CONDITION_ERRORS.add(&self.values(), errors as u64);
        }
    }

    /// Counts a request that a webhook is not asked about.
    pub fn excluded(&self) {
        CONDITION_EXCLUSIONS.inc(&self.values());
    }
}
