//! What is counted of every request, under upstream's names (apiserver `endpoints/metrics`).

use super::metrics::{Counter, Gauge, Histogram, REQUEST_SECONDS};

static REQUESTS: Counter = Counter::new(
    "apiserver_request_total",
    "Requests that were answered.",
    &["verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component", "code"],
);
static SECONDS: Histogram = Histogram::new(
    "apiserver_request_duration_seconds",
    "How long requests took to be answered, in seconds.",
    &["verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component"],
    REQUEST_SECONDS,
);
static SIZES: Histogram = Histogram::new(
    "apiserver_response_sizes",
    "The sizes of answers, in bytes.",
    &["verb", "group", "version", "resource", "subresource", "scope", "component"],
    &[1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9],
);
static LONG_RUNNING: Gauge = Gauge::new(
    "apiserver_longrunning_requests",
    "Watches and streams that are open.",
    &["verb", "group", "version", "resource", "subresource", "scope", "component"],
);
static IN_FLIGHT: Gauge =
    Gauge::new("apiserver_current_inflight_requests", "Requests that are being answered, without watches and streams.", &["request_kind"]);
static TERMINATIONS: Counter = Counter::new(
    "apiserver_request_terminations_total",
    "Requests that the server ended to protect itself.",
    &["verb", "group", "version", "resource", "subresource", "scope", "component", "code"],
);
static ABORTS: Counter = Counter::new(
    "apiserver_request_aborts_total",
    "Requests that a bug in the server ended.",
    &["verb", "group", "version", "resource", "subresource", "scope"],
);

/// The part of the program that answers, as upstream's label has it.
const COMPONENT: &str = "apiserver";
/// Verbs that are counted by name; any other is counted as `OTHER`.
const VERBS: &[&str] =
    &["APPLY", "CONNECT", "DELETE", "DELETECOLLECTION", "GET", "HEAD", "LIST", "OPTIONS", "PATCH", "POST", "PUT", "WATCH"];

/// What a request is about. The values come from tables of what is served, never from the client: each is a time series.
#[derive(Clone, Copy, Debug, Default)]
pub struct Labels<'a> {
    /// As in [`verb`].
    pub verb: &'a str,
    pub group: &'a str,
    pub version: &'a str,
    /// The resource; for what is none, the path if it is one that is served.
    pub resource: &'a str,
    pub subresource: &'a str,
    /// `cluster`, `namespace`, `resource` or empty.
    pub scope: &'a str,
    /// `All`, or empty.
    pub dry_run: &'a str,
}

/// Counts an answered request.
pub fn answered(labels: &Labels<'_>, code: u16, seconds: f64) {
    let Labels { verb, group, version, resource, subresource, scope, dry_run } = *labels;
    // Three digits need no allocation.
    let digits = [100, 10, 1].map(|unit| b'0' + (code / unit % 10) as u8);
    let code = std::str::from_utf8(&digits).unwrap_or("");
    REQUESTS.inc(&[verb, dry_run, group, version, resource, subresource, scope, COMPONENT, code]);
    SECONDS.observe(&[verb, dry_run, group, version, resource, subresource, scope, COMPONENT], seconds);
}

/// Notes the size of an answer whose length is known.
pub fn sized(labels: &Labels<'_>, bytes: u64) {
    let Labels { verb, group, version, resource, subresource, scope, .. } = *labels;
    SIZES.observe(&[verb, group, version, resource, subresource, scope, COMPONENT], bytes as f64);
}

/// Notes that watches or streams begin (1) or end (-1).
pub fn long_running(labels: &Labels<'_>, change: i64) {
    let Labels { verb, group, version, resource, subresource, scope, .. } = *labels;
    LONG_RUNNING.add(&[verb, group, version, resource, subresource, scope, COMPONENT], change);
}

/// Notes that requests begin (1) or end (-1).
pub fn in_flight(mutating: bool, change: i64) {
    IN_FLIGHT.add(&[if mutating { "mutating" } else { "readOnly" }], change);
}

/// Counts a request that was turned away for want of capacity, or took too long.
pub fn terminated(labels: &Labels<'_>, code: u16) {
    let Labels { verb, group, version, resource, subresource, scope, .. } = *labels;
    TERMINATIONS.inc(&[verb, group, version, resource, subresource, scope, COMPONENT, if code == 429 { "429" } else { "504" }]);
}

/// Counts a request whose handler panicked.
pub fn panicked(labels: &Labels<'_>) {
    let Labels { verb, group, version, resource, subresource, scope, .. } = *labels;
    ABORTS.inc(&[verb, group, version, resource, subresource, scope]);
}

/// The verb as it is counted: from that of request info (`get`, `create`, ...), with the method where that is none.
pub fn verb(verb: &str) -> &'static str {
    let method = match verb {
        "create" => "POST",
        "update" => "PUT",
        other => other,
    };
    VERBS.iter().find(|known| known.eq_ignore_ascii_case(method)).copied().unwrap_or("OTHER")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_are_upstreams() {
        for (given, counted) in [
            ("create", "POST"),
            ("update", "PUT"),
            ("list", "LIST"),
            ("deletecollection", "DELETECOLLECTION"),
            ("GET", "GET"),
            ("brew", "OTHER"),
        ] {
            assert_eq!(verb(given), counted);
        }
    }

    #[test]
    fn requests_are_counted_under_upstreams_names() {
        let labels = Labels { verb: "LIST", version: "v1", resource: "pods", scope: "namespace", ..Labels::default() };
        answered(&labels, 200, 0.01);
        long_running(&labels, 1);
        in_flight(true, 1);
        let text = super::super::metrics::render();
        for line in [
            r#"apiserver_request_total{verb="LIST",dry_run="",group="",version="v1",resource="pods",subresource="",scope="namespace",component="apiserver",code="200"} 1"#,
            r#"apiserver_current_inflight_requests{request_kind="mutating"} 1"#,
        ] {
            assert!(text.contains(line), "{line}\nis not in\n{text}");
        }
        assert!(text.contains("# TYPE apiserver_longrunning_requests gauge"));
    }
}
