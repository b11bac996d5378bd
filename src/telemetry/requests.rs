//! The metrics of requests, under upstream's names (apiserver `endpoints/metrics`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::RwLock;

use super::metrics::{
    Counter, CounterSeries, Declared, Gauge, GaugeGuard, Histogram, HistogramSeries,
    REQUEST_SECONDS,
};

/// The labels of most metrics: those of [`Labels::scoped`], and the component.
#[rustfmt::skip]
const SCOPED: &[&str] =
    &["verb", "group", "version", "resource", "subresource", "scope", "component"];
/// The buckets of the service level indicator.
const SLI_SECONDS: &[f64] = &[
    0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0,
    30.0, 45.0, 60.0,
];
const SLI_HELP: &str = "[ALPHA] Response latency distribution (not counting webhook duration and priority & fairness queue wait times) in seconds for each verb, group, version, resource, subresource, scope and component.";

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
static SLO: Histogram = Histogram::deprecated(
    "apiserver_request_slo_duration_seconds",
    "1.27.0",
    SLI_HELP,
    SCOPED,
    SLI_SECONDS,
);
static SLI: Histogram = Histogram::new(
    "apiserver_request_sli_duration_seconds",
    SLI_HELP,
    SCOPED,
    SLI_SECONDS,
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
static FILTER_SECONDS: Histogram = Histogram::new(
    "apiserver_request_filter_duration_seconds",
    "[ALPHA] Request filter latency distribution in seconds, for each filter type",
    &["filter"],
    &[
        0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 5.0, 10.0, 15.0, 30.0,
    ],
);
static SELF_REQUESTS: Counter = Counter::new(
    "apiserver_selfrequest_total",
    "[ALPHA] Counter of apiserver self-requests broken out for each verb, API resource and subresource.",
    &["verb", "group", "resource", "subresource"],
);
static DEPRECATED: Gauge = Gauge::new(
    "apiserver_requested_deprecated_apis",
    "[STABLE] Gauge of deprecated APIs that have been requested, broken out by API group, version, resource, subresource, and removed_release.",
    &[
        "group",
        "version",
        "resource",
        "subresource",
        "removed_release",
    ],
);
static POST_TIMEOUT: Counter = Counter::new(
    "apiserver_request_post_timeout_total",
    "[ALPHA] Tracks the activity of the request handlers after the associated requests have been timed out by the apiserver",
    &["source", "status"],
);
static FIELD_VALIDATION: Histogram = Histogram::new(
    "field_validation_request_duration_seconds",
    "[ALPHA] Response latency distribution in seconds for each field validation value",
    &["field_validation"],
    SLI_SECONDS,
);

pub static METRICS: &[&dyn Declared] = &[
    &REQUESTS,
    &SECONDS,
    &SLO,
    &SLI,
    &SIZES,
    &LONG_RUNNING,
    &IN_FLIGHT,
    &IN_QUEUE,
    &TERMINATIONS,
    &ABORTS,
    &FILTER_SECONDS,
    &SELF_REQUESTS,
    &DEPRECATED,
    &POST_TIMEOUT,
    &FIELD_VALIDATION,
];

/// Requests in flight, reads first: each change writes here, which costs less than a metric.
static IN_FLIGHT_NOW: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// Requests that wait to be answered, reads first.
static IN_QUEUE_NOW: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// Watches and streams that are open.
static LONG_RUNNING_NOW: AtomicU64 = AtomicU64::new(0);

/// The part of the program that answers, as upstream's label has it.
const COMPONENT: &str = "apiserver";
/// Verbs that are counted by name; any other is counted as the last of these.
pub const VERBS: [&str; 10] = [
    "APPLY", "CONNECT", "DELETE", "GET", "LIST", "PATCH", "POST", "PUT", "WATCH", "other",
];
/// The scopes of requests.
pub const SCOPES: [&str; 4] = ["", "cluster", "namespace", "resource"];
/// The values of `dryRun`.
pub const DRY_RUNS: [&str; 3] = ["", "All", "invalid"];
/// The values of `fieldValidation`.
pub const FIELD_VALIDATIONS: [&str; 5] = ["", "Ignore", "Warn", "Strict", "invalid"];
/// Codes whose series are found without a look-up.
const CODES: [u16; 16] = [
    200, 201, 0, 304, 400, 401, 403, 404, 405, 409, 410, 422, 429, 500, 503, 504,
];

/// The labels of a request. The values come from tables of what is served, never from the client:
/// each combination is a time series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Labels<'a> {
    /// One of [`VERBS`].
    pub verb: &'a str,
    pub group: &'a str,
    pub version: &'a str,
    /// The resource; empty for what is none.
    pub resource: &'a str,
    /// The subresource; the path for what is no resource.
    pub subresource: &'a str,
    /// One of [`SCOPES`].
    pub scope: &'a str,
    /// One of [`DRY_RUNS`].
    pub dry_run: &'a str,
}

/// The series of requests that are alike in all labels but the code.
pub struct RequestSeries {
    /// The labels in the order of [`SCOPED`], without the component, then `dry_run`.
    labels: [Box<str>; 7],
    codes: [OnceLock<CounterSeries>; CODES.len()],
    seconds: HistogramSeries,
    slo: HistogramSeries,
    sli: HistogramSeries,
    sizes: HistogramSeries,
}

impl RequestSeries {
    fn new(labels: &Labels<'_>) -> Self {
        #[rustfmt::skip]
        let Labels { verb, group, version, resource, subresource: sub, scope, dry_run } = *labels;
        let scoped = [verb, group, version, resource, sub, scope, COMPONENT];
        Self {
            labels: [verb, group, version, resource, sub, scope, dry_run].map(Into::into),
            codes: [const { OnceLock::new() }; CODES.len()],
            seconds: SECONDS.series(&[
                verb, dry_run, group, version, resource, sub, scope, COMPONENT,
            ]),
            slo: SLO.series(&scoped),
            sli: SLI.series(&scoped),
            sizes: SIZES.series(&scoped),
        }
    }

    fn labels(&self) -> [&str; 7] {
        self.labels.each_ref().map(AsRef::as_ref)
    }

    /// Counts a request that took so many seconds, of which so many were spent waiting for seats
    /// and webhooks.
    pub fn answered(&self, code: u16, seconds: f64, waited: f64) {
        self.count(code);
        self.seconds.observe(seconds);
        let [.., dry_run] = self.labels();
        if dry_run.is_empty() {
            self.slo.observe(seconds - waited);
            self.sli.observe(seconds - waited);
        }
    }

    /// Counts a request that was rejected for want of capacity among those that were answered.
    pub fn dropped(&self) {
        self.count(429);
    }

    fn count(&self, code: u16) {
        let [verb, group, version, resource, sub, scope, dry_run] = self.labels();
        // Three digits need no allocation.
        let digits = [100, 10, 1].map(|unit| b'0' + (code / unit % 10) as u8);
        let text = match code {
            0 => "0",
            _ => std::str::from_utf8(&digits).unwrap_or(""),
        };
        let labels = [
            verb, dry_run, group, version, resource, sub, scope, COMPONENT, text,
        ];
        let series = CODES.iter().position(|known| *known == code);
        match series.and_then(|at| self.codes.get(at)) {
            Some(series) => series.get_or_init(|| REQUESTS.series(&labels)).inc(),
            None => REQUESTS.inc(&labels),
        }
    }

    /// Notes the size of an answer that has been sent. As upstream, that of reads only.
    pub fn sized(&self, bytes: u64) {
        let [verb, ..] = self.labels();
        if matches!(verb, "GET" | "LIST") {
            self.sizes.observe(bytes as f64);
        }
    }

    /// Notes that a watch or stream is open, until what is returned is dropped: it has been
    /// answered then, unless there is no code. The code is 0 if it has taken over its connection.
    pub fn long_running(
        self: Arc<Self>,
        code: Option<u16>,
        received: Instant,
        waited: Duration,
    ) -> LongRunning {
        let [verb, group, version, resource, sub, scope, _] = self.labels();
        LONG_RUNNING_NOW.fetch_add(1, Ordering::Relaxed);
        let labels = [verb, group, version, resource, sub, scope, COMPONENT];
        LongRunning {
            _gauge: LONG_RUNNING.raise(&labels),
            series: self,
            code,
            received,
            waited,
        }
    }

    /// Counts a request that was refused for lack of capacity, that timed out, or whose server
    /// could not be reached.
    pub fn terminated(&self, code: u16) {
        let [verb, group, version, resource, sub, scope, _] = self.labels();
        TERMINATIONS.inc(&[
            verb,
            group,
            version,
            resource,
            sub,
            scope,
            COMPONENT,
            &code.to_string(),
        ]);
    }

    /// Counts a request whose answer was cut off.
    pub fn aborted(&self) {
        let [verb, group, version, resource, sub, scope, _] = self.labels();
        ABORTS.inc(&[verb, group, version, resource, sub, scope]);
    }

    /// Counts a request of an API server.
    pub fn count_api_server(&self) {
        let [verb, group, _, resource, sub, ..] = self.labels();
        SELF_REQUESTS.inc(&[verb, group, resource, sub]);
    }
}

impl std::fmt::Debug for RequestSeries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RequestSeries({:?})", self.labels)
    }
}

/// The series of the requests to one resource, by what else tells them apart.
#[derive(Debug, Default)]
pub struct SeriesCache(RwLock<HashMap<u32, Arc<RequestSeries>>>);

impl SeriesCache {
    /// Returns the series of a request. `subresource` is the number of that of the labels.
    pub fn of(&self, labels: &Labels<'_>, subresource: usize) -> Arc<RequestSeries> {
        let at = |values: &[&str], value: &str| {
            let found = values.iter().position(|known| *known == value);
            found.unwrap_or(values.len()) as u32
        };
        let verb = at(&VERBS, labels.verb);
        let scope = at(&SCOPES, labels.scope);
        let dry_run = at(&DRY_RUNS, labels.dry_run);
        let key = verb | scope << 8 | dry_run << 12 | (subresource as u32) << 16;
        if let Some(series) = self.0.read().get(&key) {
            return series.clone();
        }
        let mut all = self.0.write();
        let new = || Arc::new(RequestSeries::new(labels));
        all.entry(key).or_insert_with(new).clone()
    }
}

/// The paths that are no resources and whose requests are counted.
const PATHS: [&str; 3] = ["/healthz", "/livez", "/readyz"];

/// Returns the series of a request for what is no resource, and whether it is counted when it is
/// answered: upstream counts those for health only.
pub fn of_path(verb: &str, path: &str) -> (Arc<RequestSeries>, bool) {
    static SERIES: LazyLock<SeriesCache> = LazyLock::new(SeriesCache::default);
    let known = PATHS.iter().position(|known| *known == path);
    let labels = Labels {
        verb,
        subresource: known.and_then(|at| PATHS.get(at)).copied().unwrap_or(""),
        ..Labels::default()
    };
    let series = SERIES.of(&labels, known.unwrap_or(PATHS.len()));
    (series, known.is_some())
}

/// An open watch or stream.
#[derive(Debug)]
pub struct LongRunning {
    _gauge: GaugeGuard,
    series: Arc<RequestSeries>,
    code: Option<u16>,
    received: Instant,
    waited: Duration,
}

impl Drop for LongRunning {
    fn drop(&mut self) {
        if let Some(code) = self.code {
            let (took, waited) = (self.received.elapsed(), self.waited);
            let (took, waited) = (took.as_secs_f64(), waited.as_secs_f64());
            self.series.answered(code, took, waited);
        }
        LONG_RUNNING_NOW.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the number of open watches and streams.
pub fn open_long_running() -> u64 {
    LONG_RUNNING_NOW.load(Ordering::Relaxed)
}

/// The filters whose time is taken.
#[derive(Clone, Copy, Debug)]
pub enum FilterName {
    Authentication,
    Audit,
    Impersonation,
    PriorityAndFairness,
    MaxInFlight,
    Authorization,
}

/// Notes the time that a filter took before it let a request through.
pub fn filtered(filter: FilterName, took: Duration) {
    static SERIES: LazyLock<[HistogramSeries; 6]> = LazyLock::new(|| {
        [
            "authentication",
            "audit",
            "impersonation",
            "priorityandfairness",
            "maxinflight",
            "authorization",
        ]
        .map(|name| FILTER_SECONDS.series(&[name]))
    });
    SERIES[filter as usize].observe(took.as_secs_f64());
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

/// Counts a request for another server that was not handed on. Version and group are those of the
/// other server.
pub fn not_forwarded(verb: &str, group: &str, version: &str, code: u16) {
    let code = code.to_string();
    TERMINATIONS.inc(&[verb, group, version, "", "", "", "aggregator", &code]);
}

/// Notes that a version of a resource was asked for that will go.
pub fn deprecated(group: &str, version: &str, resource: &str, subresource: &str) {
    DEPRECATED.set(&[group, version, resource, subresource, ""], 1);
}

/// Notes what has become of a request that had timed out: `ok`, `error` or `panic`.
pub fn ended_after_timeout(status: &'static str) {
    POST_TIMEOUT.inc(&["timeout-handler", status]);
}

/// Notes the `fieldValidation` of a request. As upstream, nothing is observed: there is a series
/// for each value that has been asked for.
pub fn field_validation(asked: Option<&str>) {
    static SEEN: [OnceLock<()>; FIELD_VALIDATIONS.len()] =
        [const { OnceLock::new() }; FIELD_VALIDATIONS.len()];
    let asked = asked.unwrap_or("");
    let known = FIELD_VALIDATIONS.iter().position(|known| *known == asked);
    let at = known.unwrap_or(FIELD_VALIDATIONS.len() - 1);
    SEEN[at].get_or_init(|| FIELD_VALIDATION.touch(&[FIELD_VALIDATIONS[at]]));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::exposition::{Format, render};

    #[test]
    fn requests_are_counted_under_upstreams_names() {
        let labels = Labels {
            verb: "LIST",
            version: "v1",
            resource: "pods",
            scope: "namespace",
            ..Labels::default()
        };
        let cache = SeriesCache::default();
        let series = cache.of(&labels, 0);
        assert!(Arc::ptr_eq(&series, &cache.of(&labels, 0)));
        series.answered(200, 0.75, 0.5);
        series.answered(418, 0.75, 0.5);
        series.sized(12);
        series.aborted();
        series.terminated(429);
        let watch = Labels {
            verb: "WATCH",
            ..labels
        };
        let before = open_long_running();
        let open = cache
            .of(&watch, 0)
            .long_running(Some(0), Instant::now(), Duration::ZERO);
        in_flight(true, true);
        refresh();
        field_validation(Some("Strict"));
        field_validation(Some("no such"));
        deprecated("", "v1", "endpoints", "");
        let text = render(Format::Text);
        for line in [
            r#"apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="namespace",subresource="",verb="LIST",version="v1"} 1"#,
            r#"apiserver_request_total{code="418",component="apiserver",dry_run="",group="",resource="pods",scope="namespace",subresource="",verb="LIST",version="v1"} 1"#,
            r#"apiserver_request_duration_seconds_sum{component="apiserver",dry_run="",group="",resource="pods",scope="namespace",subresource="",verb="LIST",version="v1"} 1.5"#,
            r#"apiserver_request_sli_duration_seconds_sum{component="apiserver",group="",resource="pods",scope="namespace",subresource="",verb="LIST",version="v1"} 0.5"#,
            r#"apiserver_current_inflight_requests{request_kind="mutating"} 1"#,
            r#"apiserver_response_sizes_sum{component="apiserver",group="",resource="pods",scope="namespace",subresource="",verb="LIST",version="v1"} 12"#,
            r#"apiserver_request_aborts_total{group="",resource="pods",scope="namespace",subresource="",verb="LIST",version="v1"} 1"#,
            r#"apiserver_request_terminations_total{code="429",component="apiserver",group="",resource="pods",scope="namespace",subresource="",verb="LIST",version="v1"} 1"#,
            r#"apiserver_longrunning_requests{component="apiserver",group="",resource="pods",scope="namespace",subresource="",verb="WATCH",version="v1"} 1"#,
            r#"apiserver_requested_deprecated_apis{group="",removed_release="",resource="endpoints",subresource="",version="v1"} 1"#,
            r#"field_validation_request_duration_seconds_count{field_validation="Strict"} 0"#,
            r#"field_validation_request_duration_seconds_count{field_validation="invalid"} 0"#,
        ] {
            assert!(text.contains(line), "{line}\nis not in\n{text}");
        }
        // It is hidden since v1.27.
        assert!(!text.contains("apiserver_request_slo_duration_seconds"));
        assert_eq!(open_long_running(), before + 1);
        drop(open);
        assert_eq!(open_long_running(), before);
        let text = render(Format::Text);
        let closed = r#"code="0",component="apiserver",dry_run="",group="",resource="pods",scope="namespace",subresource="",verb="WATCH",version="v1"} 1"#;
        assert!(text.contains(closed), "{text}");
    }

    #[test]
    fn dry_runs_are_no_service_level_indicators() {
        let labels = Labels {
            verb: "POST",
            resource: "dryruns",
            dry_run: "All",
            ..Labels::default()
        };
        SeriesCache::default()
            .of(&labels, 0)
            .answered(201, 0.5, 0.0);
        let text = render(Format::Text);
        let total = r#"code="201",component="apiserver",dry_run="All",group="",resource="dryruns""#;
        assert!(text.contains(total), "{text}");
        let sli = text.lines().filter(|line| line.contains("_sli_"));
        assert_eq!(sli.filter(|line| line.contains("dryruns")).count(), 0);
    }

    #[test]
    fn paths_of_clients_are_not_counted() {
        assert!(of_path("GET", "/livez").1);
        let (series, counted) = of_path("GET", "/livez/../a");
        assert_eq!((series.labels()[4], counted), ("", false));
    }
}
