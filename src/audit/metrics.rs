//! The metrics of auditing (apiserver `audit/metrics.go`).

use crate::telemetry::metrics::{Counter, Declared};

use super::event::{Event, Level};

/// The maximum number of events that the log names for one failure.
const MAX_LOGGED: usize = 10;

static EVENTS: Counter = Counter::new(
    "apiserver_audit_event_total",
    "[ALPHA] Counter of audit events generated and sent to the audit backend.",
    &[],
);
static ERRORS: Counter = Counter::new(
    "apiserver_audit_error_total",
    "[ALPHA] Counter of audit events that failed to be audited properly. Plugin identifies the plugin affected by the error.",
    &["plugin"],
);
static LEVELS: Counter = Counter::new(
    "apiserver_audit_level_total",
    "[ALPHA] Counter of policy levels for audit events (1 per request).",
    &["level"],
);
static REJECTED: Counter = Counter::new(
    "apiserver_audit_requests_rejected_total",
    "[ALPHA] Counter of apiserver requests rejected due to an error in audit logging backend.",
    &[],
);

pub static METRICS: &[&dyn Declared] = &[&EVENTS, &ERRORS, &LEVELS, &REJECTED];

/// Records an event.
pub fn record_event() {
    EVENTS.inc(&[]);
}

/// Records the level of a request.
pub fn record_level(level: Level) {
    LEVELS.inc(&[level.name()]);
}

/// Records a request that was refused because its event could not be stored.
pub fn record_rejected() {
    REJECTED.inc(&[]);
}

/// Records and logs events that a plugin could not handle.
pub fn record_failure(plugin: &str, why: &str, events: &[Event]) {
    ERRORS.add(&[plugin], events.len() as u64);
    let shown: Vec<String> = events.iter().take(MAX_LOGGED).map(Event::legacy).collect();
    tracing::error!(
        "Error in audit plugin '{plugin}' affecting {} audit events: {why}; impacted events: {}",
        events.len(),
        shown.join("; ")
    );
}
