//! The metrics of a store: its requests, lists and watches (apiserver `endpoints/metrics`,
//! `handlers/metrics`, `storage/{etcd3,cacher}/metrics`).

use std::time::Duration;

use crate::meta::Gvr;
use crate::telemetry::metrics::{Counter, CounterSeries, Declared, Histogram, HistogramSeries};
use crate::telemetry::requests::SeriesCache;

const RESOURCE: &[&str] = &["group", "resource"];
const INDEXED: &[&str] = &["group", "resource", "index"];
const VERSIONED: &[&str] = &["group", "version", "resource"];
/// The label of lists that an index of the cache finds.
const INDEX: &str = "selector";

static CACHE_LISTS: Counter = Counter::new(
    "apiserver_cache_list_total",
    "[ALPHA] Number of LIST requests served from watch cache",
    INDEXED,
);
static CACHE_FETCHED: Counter = Counter::new(
    "apiserver_cache_list_fetched_objects_total",
    "[ALPHA] Number of objects read from watch cache in the course of serving a LIST request",
    INDEXED,
);
static CACHE_RETURNED: Counter = Counter::new(
    "apiserver_cache_list_returned_objects_total",
    "[ALPHA] Number of objects returned for a LIST request from watch cache",
    RESOURCE,
);
static STORAGE_LISTS: Counter = Counter::new(
    "apiserver_storage_list_total",
    "[ALPHA] Number of LIST requests served from storage",
    RESOURCE,
);
static STORAGE_FETCHED: Counter = Counter::new(
    "apiserver_storage_list_fetched_objects_total",
    "[ALPHA] Number of objects read from storage in the course of serving a LIST request",
    RESOURCE,
);
static STORAGE_EVALUATED: Counter = Counter::new(
    "apiserver_storage_list_evaluated_objects_total",
    "[ALPHA] Number of objects tested in the course of serving a LIST request from storage",
    RESOURCE,
);
static STORAGE_RETURNED: Counter = Counter::new(
    "apiserver_storage_list_returned_objects_total",
    "[ALPHA] Number of objects returned for a LIST request from storage",
    RESOURCE,
);
static DECODE_ERRORS: Counter = Counter::new(
    "apiserver_storage_decode_errors_total",
    "[ALPHA] Number of stored object decode errors split by object type",
    RESOURCE,
);
static CONSISTENT_READS: Counter = Counter::new(
    "apiserver_watch_cache_consistent_read_total",
    "[ALPHA] Counter for consistent reads from cache.",
    &["group", "resource", "success", "fallback"],
);
static WATCH_EVENTS: Counter = Counter::new(
    "apiserver_watch_events_total",
    "[ALPHA] Number of events sent in watch clients",
    VERSIONED,
);
static WATCH_EVENT_SIZES: Histogram = Histogram::new(
    "apiserver_watch_events_sizes",
    "[ALPHA] Watch event size distribution in bytes",
    VERSIONED,
    &[
        1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0, 65536.0, 131_072.0,
    ],
);
static WATCH_LISTS: Histogram = Histogram::new(
    "apiserver_watch_list_duration_seconds",
    "[BETA] Response latency distribution in seconds for watch list requests broken by group, version, resource and scope.",
    &["group", "version", "resource", "scope"],
    &[
        0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
    ],
);
static BODY_SIZES: Histogram = Histogram::new(
    "apiserver_request_body_size_bytes",
    "[ALPHA] Apiserver request body size in bytes broken out by resource and verb.",
    &["group", "resource", "verb"],
    &BODY_BYTES,
);

pub static METRICS: &[&dyn Declared] = &[
    &CACHE_LISTS,
    &CACHE_FETCHED,
    &CACHE_RETURNED,
    &STORAGE_LISTS,
    &STORAGE_FETCHED,
    &STORAGE_EVALUATED,
    &STORAGE_RETURNED,
    &DECODE_ERRORS,
    &CONSISTENT_READS,
    &WATCH_EVENTS,
    &WATCH_EVENT_SIZES,
    &WATCH_LISTS,
    &BODY_SIZES,
];

/// The buckets of the sizes of bodies: from 50 kB on, each 100 kB more.
const BODY_BYTES: [f64; 31] = {
    let mut bounds = [50_000.0; 31];
    let mut at = 1;
    while at < bounds.len() {
        bounds[at] = bounds[at - 1] + 100_000.0;
        at += 1;
    }
    bounds
};

/// The verbs of requests with bodies: of requests, and as they are counted.
const BODY_VERBS: [(&str, &str); 5] = [
    ("create", "create"),
    ("update", "update"),
    ("patch", "patch"),
    ("delete", "delete"),
    ("deletecollection", "delete_collection"),
];

/// The series of a store.
pub struct StoreMetrics {
    gvr: Gvr,
    pub requests: SeriesCache,
    /// Lists from the cache and the objects that they looked at, without and with an index.
    cache_lists: [(CounterSeries, CounterSeries); 2],
    cache_returned: CounterSeries,
    storage_lists: CounterSeries,
    storage_fetched: CounterSeries,
    storage_evaluated: CounterSeries,
    storage_returned: CounterSeries,
    /// Reads that the cache could and could not answer.
    consistent_reads: [CounterSeries; 2],
    watch_events: CounterSeries,
    watch_event_sizes: HistogramSeries,
    body_sizes: [HistogramSeries; BODY_VERBS.len()],
}

impl StoreMetrics {
    pub fn new(gvr: &Gvr) -> Self {
        let (group, version, resource) = (&*gvr.group, &*gvr.version, &*gvr.resource);
        let labels = [group, resource];
        let list = |index| {
            let labels = [group, resource, index];
            (CACHE_LISTS.series(&labels), CACHE_FETCHED.series(&labels))
        };
        let read =
            |success, fallback| CONSISTENT_READS.series(&[group, resource, success, fallback]);
        Self {
            gvr: gvr.clone(),
            requests: SeriesCache::default(),
            cache_lists: [list(""), list(INDEX)],
            cache_returned: CACHE_RETURNED.series(&labels),
            storage_lists: STORAGE_LISTS.series(&labels),
            storage_fetched: STORAGE_FETCHED.series(&labels),
            storage_evaluated: STORAGE_EVALUATED.series(&labels),
            storage_returned: STORAGE_RETURNED.series(&labels),
            consistent_reads: [read("true", "false"), read("false", "true")],
            watch_events: WATCH_EVENTS.series(&[group, version, resource]),
            watch_event_sizes: WATCH_EVENT_SIZES.series(&[group, version, resource]),
            body_sizes: BODY_VERBS.map(|(_, verb)| BODY_SIZES.series(&[group, resource, verb])),
        }
    }

    /// Counts a list that the cache answers.
    pub(super) fn cache_list(&self, is_indexed: bool) {
        self.cache_lists[usize::from(is_indexed)].0.inc();
    }

    /// Counts objects that a list from the cache looked at, and those that it returns.
    pub(super) fn cache_objects(&self, is_indexed: bool, fetched: usize, returned: usize) {
        self.cache_lists[usize::from(is_indexed)]
            .1
            .add(fetched as u64);
        self.cache_returned.add(returned as u64);
    }

    /// Counts a list that storage answers, with the objects that it read, tested and returned.
    pub(super) fn storage_list(&self, fetched: usize, evaluated: usize, returned: usize) {
        self.storage_lists.inc();
        self.storage_fetched.add(fetched as u64);
        self.storage_evaluated.add(evaluated as u64);
        self.storage_returned.add(returned as u64);
    }

    /// Counts a read of the latest state, which the cache answers or leaves to storage.
    pub(super) fn consistent_read(&self, from_cache: bool) {
        self.consistent_reads[usize::from(!from_cache)].inc();
    }

    /// Counts an object that cannot be decoded.
    pub(super) fn decode_error(gvr: &Gvr) {
        DECODE_ERRORS.inc(&[&gvr.group, &gvr.resource]);
    }

    /// Counts an event that is sent to the client of a watch.
    pub fn watch_event(&self, bytes: usize) {
        self.watch_events.inc();
        self.watch_event_sizes.observe(bytes as f64);
    }

    /// Notes the time after which a watch had sent all objects that there were.
    pub fn watch_list(&self, scope: &str, took: Duration) {
        let Gvr {
            group,
            version,
            resource,
        } = &self.gvr;
        WATCH_LISTS.observe(&[group, version, resource, scope], took.as_secs_f64());
    }

    /// Notes the size of the body of a request with this verb.
    pub fn body(&self, verb: &str, bytes: usize) {
        let known = BODY_VERBS.iter().position(|(given, _)| *given == verb);
        if let Some(sizes) = known.and_then(|at| self.body_sizes.get(at)) {
            sizes.observe(bytes as f64);
        }
    }
}
