//! The metrics of requests to other servers (component-base `metrics/prometheus/restclient`,
//! apiserver `util/webhook/metrics.go`).

use std::time::Duration;

use super::tls::Deprecated;
use crate::telemetry::metrics::{Counter, Declared, FloatGauge, Gauge, GaugeGuard, Histogram};

const BYTES: &[f64] = &[
    64.0,
    256.0,
    512.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
];
const LABELS: &[&str] = &["verb", "host"];

static REQUESTS: Counter = Counter::new(
    "rest_client_requests_total",
    "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.",
    &["code", "method", "host"],
);
static SECONDS: Histogram = Histogram::new(
    "rest_client_request_duration_seconds",
    "[ALPHA] Request latency in seconds. Broken down by verb, and host.",
    LABELS,
    &[
        0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
    ],
);
static REQUEST_BYTES: Histogram = Histogram::new(
    "rest_client_request_size_bytes",
    "[ALPHA] Request size in bytes. Broken down by verb and host.",
    LABELS,
    BYTES,
);
static RESPONSE_BYTES: Histogram = Histogram::new(
    "rest_client_response_size_bytes",
    "[ALPHA] Response size in bytes. Broken down by verb and host.",
    LABELS,
    BYTES,
);
static RETRIES: Counter = Counter::new(
    "rest_client_request_retries_total",
    "[ALPHA] Number of request retries, partitioned by status code, verb, and host.",
    &["code", "verb", "host"],
);
static TRANSPORTS: Gauge = Gauge::new(
    "rest_client_transport_cache_entries",
    "[ALPHA] Number of transport entries in the internal cache.",
    &[],
);
static TRANSPORTS_MADE: Counter = Counter::new(
    "rest_client_transport_create_calls_total",
    "[ALPHA] Number of calls to get a new transport, partitioned by the result of the operation hit: obtained from the cache, miss: created and added to the cache, miss-gc: recreated and added back to the cache after being garbage collected, uncacheable: created and not cached",
    &["result"],
);
static EXEC_TTL: FloatGauge = FloatGauge::new(
    "rest_client_exec_plugin_ttl_seconds",
    "[ALPHA] Gauge of the shortest TTL (time-to-live) of the client certificate(s) managed by the auth exec plugin. The value is in seconds until certificate expiry (negative if already expired). If auth exec plugins are unused or manage no TLS certificates, the value will be +INF.",
    &[],
);
static EXEC_ROTATION_AGE: Histogram = Histogram::new(
    "rest_client_exec_plugin_certificate_rotation_age",
    "[ALPHA] Histogram of the number of seconds the last auth exec plugin client certificate lived before being rotated. If auth exec plugin client certificates are unused, histogram will contain no data.",
    &[],
    &[
        600.0,
        1800.0,
        3600.0,
        14_400.0,
        86_400.0,
        604_800.0,
        2_592_000.0,
        7_776_000.0,
        15_552_000.0,
        31_104_000.0,
        124_416_000.0,
    ],
);
static NO_NAMES: Counter = Counter::new(
    "apiserver_webhooks_x509_missing_san_total",
    "[ALPHA] Counts the number of requests to servers missing SAN extension in their serving certificate OR the number of connection failures due to the lack of x509 certificate SAN extension missing (either/or, based on the runtime environment)",
    &[],
);
static SHA1: Counter = Counter::new(
    "apiserver_webhooks_x509_insecure_sha1_total",
    "[ALPHA] Counts the number of requests to servers with insecure SHA1 signatures in their serving certificate OR the number of connection failures due to the insecure SHA1 signatures (either/or, based on the runtime environment)",
    &[],
);

pub static METRICS: &[&dyn Declared] = &[
    &REQUESTS,
    &SECONDS,
    &REQUEST_BYTES,
    &RESPONSE_BYTES,
    &RETRIES,
    &TRANSPORTS,
    &TRANSPORTS_MADE,
    &EXEC_TTL,
    &EXEC_ROTATION_AGE,
    &NO_NAMES,
    &SHA1,
];

/// A request to a host, whose name comes from a configuration.
#[derive(Clone, Copy, Debug)]
pub struct Sent<'a> {
    pub method: &'a str,
    pub host: &'a str,
}

impl Sent<'_> {
    /// Counts the request with its answer's code; `None` where there was no answer.
    pub fn answered(&self, code: Option<u16>) {
        let code = code.map_or_else(|| "<error>".to_owned(), |code| code.to_string());
        REQUESTS.inc(&[&code, self.method, self.host]);
    }

    /// Notes the time from the request to the end of its answer, and their sizes.
    pub fn done(&self, took: Duration, request_bytes: usize, response_bytes: usize) {
        let labels = [self.method, self.host];
        SECONDS.observe(&labels, took.as_secs_f64());
        REQUEST_BYTES.observe(&labels, request_bytes as f64);
        RESPONSE_BYTES.observe(&labels, response_bytes as f64);
    }

    /// Counts a request that is sent again because of an answer.
    pub fn retried(&self, code: u16) {
        RETRIES.inc(&[&code.to_string(), self.method, self.host]);
    }
}

/// Counts connections that are kept for a server, until what is returned is dropped.
pub(super) fn transport() -> GaugeGuard {
    TRANSPORTS_MADE.inc(&["miss"]);
    TRANSPORTS.raise(&[])
}

/// Shows that no plugin has certificates for this server: kubeconfig files that name one are
/// refused.
pub fn show_no_plugins() {
    EXEC_TTL.set(&[], f64::INFINITY);
}

/// Counts a request that failed for this reason, if it is one of those that are counted.
pub(super) fn failed(why: &str) {
    Deprecated::count(why, &NO_NAMES, &SHA1);
}
