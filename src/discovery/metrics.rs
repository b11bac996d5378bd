//! The metrics of aggregated discovery (apiserver `endpoints/discovery/aggregated`).

use crate::telemetry::metrics::{Counter, Declared};

static AGGREGATIONS: Counter = Counter::new(
    "aggregator_discovery_aggregation_count_total",
    "[ALPHA] Counter of number of times discovery was aggregated",
    &[],
);
static WITHOUT_PEERS: Counter = Counter::new(
    "aggregator_discovery_nopeer_requests_total",
    "[ALPHA] Counter of number of times no-peer (non peer-aggregated) discovery was requested",
    &[],
);
pub static METRICS: &[&dyn Declared] = &[&AGGREGATIONS, &WITHOUT_PEERS];

/// Counts documents that were made.
pub(super) fn aggregated() {
    AGGREGATIONS.inc(&[]);
}

/// Counts a request for what this server knows without its peers.
pub(super) fn asked_without_peers() {
    WITHOUT_PEERS.inc(&[]);
}
