//! The metrics of requests, under upstream's names (apiserver `endpoints/metrics`).

use std::sync::atomic::{AtomicUsize, Ordering};

use super::metrics::{Counter, Gauge, GaugeGuard, Histogram, REQUEST_SECONDS};

/// The labels of most metrics: those of [`Labels::scoped`], and the component.
#[rustfmt::skip]
const SCOPED: &[&str] =
    &["verb", "group", "version", "resource", "subresource", "scope", "component"];
static REQUESTS: Counter = Counter::new(
    "apiserver_request_total",
    "[STABLE] Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, component, and HTTP response code.",
    &[
        "verb",
        "dry_run",
        "group",
        "version",
        "resource",
        "subresource",
        "scope",
        "component",
        "code",
    ],
);
static SECONDS: Histogram = Histogram::new(
    "apiserver_request_duration_seconds",
    "[STABLE] Response latency distribution in seconds for each verb, dry run value, group, version, resource, subresource, scope and component.",
    &[
        "verb",
        "dry_run",
        "group",
        "version",
        "resource",
        "subresource",
        "scope",
        "component",
    ],
    REQUEST_SECONDS,
);
static SIZES: Histogram = Histogram::new(
    "apiserver_response_sizes",
    "[STABLE] Response size distribution in bytes for each group, version, verb, resource, subresource, scope and component.",
    SCOPED,
    &[1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9],
);
static LONG_RUNNING: Gauge = Gauge::new(
    "apiserver_longrunning_requests",
    "[STABLE] Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, scope and component. Not all requests are tracked this way.",
    SCOPED,
);
static IN_FLIGHT: Gauge = Gauge::new(
    "apiserver_current_inflight_requests",
    "[STABLE] Maximal number of currently used inflight request limit of this apiserver per request kind in last second.",
    &["request_kind"],
);
static IN_QUEUE: Gauge = Gauge::new(
    "apiserver_current_inqueue_requests",
    "[ALPHA] Maximal number of queued requests in this apiserver per request kind in last second.",
    &["request_kind"],
);
static TERMINATIONS: Counter = Counter::new(
    "apiserver_request_terminations_total",
    "[ALPHA] Number of requests which apiserver terminated in self-defense.",
    &[
        "verb",
        "group",
        "version",
        "resource",
        "subresource",
        "scope",
        "component",
        "code",
    ],
);
static ABORTS: Counter = Counter::new(
    "apiserver_request_aborts_total",
    "[ALPHA] Number of requests which apiserver aborted possibly due to a timeout, for each group, version, verb, resource, subresource and scope",
    &[
        "verb",
        "group",
        "version",
        "resource",
        "subresource",
        "scope",
    ],
);

/// Requests in flight, reads first: each change writes here, which costs less than a metric.
static IN_FLIGHT_NOW: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// Requests that wait to be answered, reads first.
static IN_QUEUE_NOW: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// The part of the program that answers, as upstream's label has it.
const COMPONENT: &str = "apiserver";
/// Verbs that are counted by name; any other is counted as `OTHER`.
const VERBS: &[&str] = &[
    "APPLY",
    "CONNECT",
    "DELETE",
    "DELETECOLLECTION",
    "GET",
    "HEAD",
    "LIST",
    "OPTIONS",
    "PATCH",
    "POST",
    "PUT",
    "WATCH",
];

/// The labels of a request. The values come from tables of what is served, never from the client:
/// each combination is a time series.
#[derive(Clone, Copy, Debug, Default)]
pub struct Labels<'a> {
    /// One of those that [`verb`] returns.
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

impl<'a> Labels<'a> {
    fn scoped(&self) -> [&'a str; 6] {
        #[rustfmt::skip]
        let Self { verb, group, version, resource, subresource, scope, .. } = *self;
        [verb, group, version, resource, subresource, scope]
    }
}

/// Counts an answered request.
pub fn answered(labels: &Labels<'_>, code: u16, seconds: f64) {
    let [verb, group, version, resource, sub, scope] = labels.scoped();
    let dry_run = labels.dry_run;
    // Three digits need no allocation.
    let digits = [100, 10, 1].map(|unit| b'0' + (code / unit % 10) as u8);
    let code = std::str::from_utf8(&digits).unwrap_or("");
    REQUESTS.inc(&[
        verb, dry_run, group, version, resource, sub, scope, COMPONENT, code,
    ]);
    SECONDS.observe(
        &[
            verb, dry_run, group, version, resource, sub, scope, COMPONENT,
        ],
        seconds,
    );
}

/// Counts a request that was rejected for want of capacity among those that were answered.
pub fn dropped(labels: &Labels<'_>) {
    let [verb, group, version, resource, sub, scope] = labels.scoped();
    let dry_run = labels.dry_run;
    REQUESTS.inc(&[
        verb, dry_run, group, version, resource, sub, scope, COMPONENT, "429",
    ]);
}

/// Notes the size of an answer that has been sent. As upstream, that of reads only.
pub fn sized(labels: &Labels<'_>, bytes: u64) {
    let [verb, group, version, resource, sub, scope] = labels.scoped();
    if matches!(verb, "GET" | "LIST") {
        SIZES.observe(
            &[verb, group, version, resource, sub, scope, COMPONENT],
            bytes as f64,
        );
    }
}

/// Notes that a watch or stream is open, until what is returned is dropped.
pub fn long_running(labels: &Labels<'_>) -> GaugeGuard {
    let [verb, group, version, resource, sub, scope] = labels.scoped();
    LONG_RUNNING.raise(&[verb, group, version, resource, sub, scope, COMPONENT])
}

/// Returns the number of open watches and streams.
pub fn open_long_running() -> u64 {
    LONG_RUNNING.total()
}

/// Notes that a request begins (true) or ends (false) to be answered.
pub fn in_flight(mutating: bool, begins: bool) {
    note(&IN_FLIGHT_NOW[usize::from(mutating)], begins);
}

/// Notes that a request begins (true) or ends (false) to wait in a queue.
pub fn in_queue(mutating: bool, begins: bool) {
    note(&IN_QUEUE_NOW[usize::from(mutating)], begins);
}

fn note(now: &AtomicUsize, begins: bool) {
    if begins {
        now.fetch_add(1, Ordering::Relaxed);
    } else {
        now.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Brings the gauges up to date that are not written at each change.
pub fn refresh() {
    for (gauge, counts) in [(&IN_FLIGHT, &IN_FLIGHT_NOW), (&IN_QUEUE, &IN_QUEUE_NOW)] {
        for (kind, now) in ["readOnly", "mutating"].iter().zip(counts) {
            let now = now.load(Ordering::Relaxed);
            gauge.set(&[kind], i64::try_from(now).unwrap_or(i64::MAX));
        }
    }
}

/// Counts a request that was refused for lack of capacity, or timed out.
pub fn terminated(labels: &Labels<'_>, code: u16) {
    let [verb, group, version, resource, sub, scope] = labels.scoped();
    TERMINATIONS.inc(&[
        verb,
        group,
        version,
        resource,
        sub,
        scope,
        COMPONENT,
        if code == 429 { "429" } else { "504" },
    ]);
}

/// Counts a request whose answer was cut off.
pub fn aborted(labels: &Labels<'_>) {
    let [verb, group, version, resource, sub, scope] = labels.scoped();
    ABORTS.inc(&[verb, group, version, resource, sub, scope]);
}

/// The verb as it is counted: from that of request info (`get`, `create`, ...), with the method
/// where that is none.
pub fn verb(verb: &str) -> &'static str {
    let method = match verb {
        "create" => "POST",
        "update" => "PUT",
        other => other,
    };
    VERBS
        .iter()
        .find(|known| known.eq_ignore_ascii_case(method))
        .copied()
        .unwrap_or("OTHER")
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
        let labels = Labels {
            verb: "LIST",
            version: "v1",
            resource: "pods",
            scope: "namespace",
            ..Labels::default()
        };
        answered(&labels, 200, 0.01);
        sized(&labels, 12);
        aborted(&labels);
        terminated(&labels, 429);
        let open = long_running(&Labels {
            verb: "WATCH",
            ..labels
        });
        in_flight(true, true);
        refresh();
        let text = super::super::exposition::render();
        for line in [
            r#"apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="namespace",subresource="",verb="LIST",version="v1"} 1"#,
            r#"apiserver_current_inflight_requests{request_kind="mutating"} 1"#,
            r#"apiserver_response_sizes_sum{component="apiserver",group="",resource="pods",scope="namespace",subresource="",verb="LIST",version="v1"} 12"#,
            r#"apiserver_request_aborts_total{group="",resource="pods",scope="namespace",subresource="",verb="LIST",version="v1"} 1"#,
            r#"apiserver_longrunning_requests{component="apiserver",group="",resource="pods",scope="namespace",subresource="",verb="WATCH",version="v1"} 1"#,
        ] {
            assert!(text.contains(line), "{line}\nis not in\n{text}");
        }
        assert_eq!(open_long_running(), 1);
        drop(open);
        assert_eq!(open_long_running(), 0);
    }
}
