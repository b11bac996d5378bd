//! Metrics of the cache of tokens (apiserver `authentication/token/cache/stats.go`).

use std::time::Duration;

use crate::telemetry::metrics::{Counter, Histogram};

static REQUESTS: Counter = Counter::new(
    "authentication_token_cache_request_total",
    "[ALPHA] ",
    &["status"],
);
static SECONDS: Histogram = Histogram::new(
    "authentication_token_cache_request_duration_seconds",
    "[ALPHA] ",
    &["status"],
    &[
        0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    ],
);
static FETCHES: Counter = Counter::new(
    "authentication_token_cache_fetch_total",
    "[ALPHA] ",
    &["status"],
);

/// Records a token that was found.
pub fn token_hit() {
    REQUESTS.inc(&["hit"]);
    SECONDS.observe(&["hit"], 0.0);
}

/// Records a token that had to be looked up.
pub fn token_fetched(succeeded: bool, took: Duration) {
    REQUESTS.inc(&["miss"]);
    SECONDS.observe(&["miss"], took.as_secs_f64());
    FETCHES.inc(&[if succeeded { "ok" } else { "error" }]);
}
