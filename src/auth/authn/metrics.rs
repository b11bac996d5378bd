//! Metrics of client certificates and of the cache of tokens (apiserver
//! `authentication/request/x509`, apiserver `authentication/token/cache/stats.go`).

use std::sync::LazyLock;
use std::time::Instant;

use crate::telemetry::metrics::{
    Counter, CounterSeries, DEFAULT_SECONDS, Declared, Gauge, GaugeSeries, Histogram,
    HistogramSeries,
};

static REQUESTS: Counter = Counter::new(
    "authentication_token_cache_request_total",
    "[ALPHA] ",
    &["status"],
);
static SECONDS: Histogram = Histogram::new(
    "authentication_token_cache_request_duration_seconds",
    "[ALPHA] ",
    &["status"],
    DEFAULT_SECONDS,
);
static FETCHES: Counter = Counter::new(
    "authentication_token_cache_fetch_total",
    "[ALPHA] ",
    &["status"],
);

static ACTIVE_FETCHES: Gauge = Gauge::new(
    "authentication_token_cache_active_fetch_count",
    "[ALPHA] ",
    &["status"],
);
static CERTIFICATE_EXPIRATION: Histogram = Histogram::new(
    "apiserver_client_certificate_expiration_seconds",
    "[ALPHA] Distribution of the remaining lifetime on the certificate used to authenticate a request.",
    &[],
    &[
        0.0,
        1800.0,
        3600.0,
        7200.0,
        21_600.0,
        43_200.0,
        86_400.0,
        172_800.0,
        345_600.0,
        604_800.0,
        2_592_000.0,
        7_776_000.0,
        15_552_000.0,
        31_104_000.0,
    ],
);

pub static METRICS: &[&dyn Declared] = &[
    &REQUESTS,
    &SECONDS,
    &FETCHES,
    &ACTIVE_FETCHES,
    &CERTIFICATE_EXPIRATION,
];

/// The series of the cache of tokens and of certificates.
struct Series {
    hits: (CounterSeries, HistogramSeries),
    misses: (CounterSeries, HistogramSeries),
    fetches: [CounterSeries; 2],
    active: GaugeSeries,
    expiration: HistogramSeries,
}

static SERIES: LazyLock<Series> = LazyLock::new(|| {
    let request = |status| (REQUESTS.series(&[status]), SECONDS.series(&[status]));
    Series {
        hits: request("hit"),
        misses: request("miss"),
        fetches: ["ok", "error"].map(|status| FETCHES.series(&[status])),
        active: ACTIVE_FETCHES.series(&["in_flight"]),
        expiration: CERTIFICATE_EXPIRATION.series(&[]),
    }
});

/// Records a token that was found.
pub fn token_hit() {
    let (requests, seconds) = &SERIES.hits;
    requests.inc();
    seconds.observe(0.0);
}

/// A token that is looked up.
pub struct Fetch(Instant);

/// Records that a token is looked up.
pub fn fetch_token() -> Fetch {
    SERIES.active.add(1);
    Fetch(Instant::now())
}

impl Fetch {
    /// Records the outcome.
    pub fn end(self, succeeded: bool) {
        let (requests, seconds) = &SERIES.misses;
        requests.inc();
        seconds.observe(self.0.elapsed().as_secs_f64());
        SERIES.fetches[usize::from(!succeeded)].inc();
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        SERIES.active.add(-1);
    }
}

/// Records the time that the certificate of a client has left.
pub fn certificate_expires(seconds: i64) {
    SERIES.expiration.observe(seconds as f64);
}
