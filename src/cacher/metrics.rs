//! The metrics of watch caches (apiserver `storage/cacher/metrics`).

use std::time::Duration;

use crate::storage::metered::Operation;
use crate::telemetry::metrics::{
    Counter, CounterSeries, Declared, Gauge, Histogram, HistogramSeries,
};

const LABELS: &[&str] = &["group", "resource"];

static INIT_EVENTS: Counter = Counter::new(
    "apiserver_init_events_total",
    "[ALPHA] Counter of init events processed in watch cache broken by resource type.",
    LABELS,
);
static RECEIVED: Counter = Counter::new(
    "apiserver_watch_cache_events_received_total",
    "[ALPHA] Counter of events received in watch cache broken by resource type.",
    LABELS,
);
static DISPATCHED: Counter = Counter::new(
    "apiserver_watch_cache_events_dispatched_total",
    "[ALPHA] Counter of events dispatched in watch cache broken by resource type.",
    LABELS,
);
static STORAGE_EVENTS: Counter = Counter::new(
    "apiserver_storage_events_received_total",
    "[BETA] Number of etcd events received split by kind.",
    LABELS,
);
static TERMINATED: Counter = Counter::new(
    "apiserver_terminated_watchers_total",
    "[ALPHA] Counter of watchers closed due to unresponsiveness broken by resource type.",
    LABELS,
);
static INITIALIZATIONS: Counter = Counter::new(
    "apiserver_watch_cache_initializations_total",
    "[ALPHA] Counter of watch cache initializations broken by resource type.",
    LABELS,
);
static READ_WAIT: Histogram = Histogram::new(
    "apiserver_watch_cache_read_wait_seconds",
    "[ALPHA] Histogram of time spent waiting for a watch cache to become fresh.",
    LABELS,
    &[
        0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0,
    ],
);
static RESOURCE_VERSION: Gauge = Gauge::new(
    "apiserver_watch_cache_resource_version",
    "[ALPHA] Current resource version of watch cache broken by resource type. This is truncated to the 15 least significant digits.",
    LABELS,
);
static CAPACITY: Gauge = Gauge::new(
    "watch_cache_capacity",
    "[ALPHA] Total capacity of watch cache broken by resource type.",
    LABELS,
);
static CAPACITY_INCREASES: Counter = Counter::new(
    "watch_cache_capacity_increase_total",
    "[ALPHA] Total number of watch cache capacity increase events broken by resource type.",
    LABELS,
);
static CHANGES: Gauge = Gauge::new(
    "keelson_watch_cache_changes",
    "Number of recent changes that the watch cache of a resource holds for watches.",
    LABELS,
);
static OBJECTS: Gauge = Gauge::new(
    "keelson_watch_cache_objects",
    "Number of objects in the watch cache of a resource.",
    LABELS,
);
static READY: Gauge = Gauge::new(
    "keelson_watch_cache_ready",
    "1 if the watch cache of a resource is filled and follows the store, else 0.",
    LABELS,
);
static BOOKMARKS: Counter = Counter::new(
    "etcd_bookmark_total",
    "[ALPHA] Number of etcd bookmarks (progress notify events) split by kind.",
    LABELS,
);
static BOOKMARK_COUNTS: Gauge = Gauge::deprecated(
    "etcd_bookmark_counts",
    "1.36.0",
    "[ALPHA] Number of etcd bookmarks (progress notify events) split by kind.",
    LABELS,
);

pub static METRICS: &[&dyn Declared] = &[
    &INIT_EVENTS,
    &RECEIVED,
    &DISPATCHED,
    &STORAGE_EVENTS,
    &TERMINATED,
    &INITIALIZATIONS,
    &READ_WAIT,
    &RESOURCE_VERSION,
    &CAPACITY,
    &CAPACITY_INCREASES,
    &CHANGES,
    &OBJECTS,
    &READY,
    &BOOKMARKS,
    &BOOKMARK_COUNTS,
];

/// Revisions are told without what is before their last 15 digits.
const REVISIONS: i64 = 1_000_000_000_000_000;

/// The series of one cache.
pub struct CacherMetrics {
    group: String,
    resource: String,
    init_events: CounterSeries,
    received: CounterSeries,
    storage_events: CounterSeries,
    dispatched: CounterSeries,
    initializations: CounterSeries,
    read_wait: HistogramSeries,
    /// The lists that fill the cache.
    pub fills: Operation,
}

/// A cache in figures.
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheSize {
    pub is_ready: bool,
    pub revision: i64,
    pub objects: usize,
    pub changes: usize,
    pub capacity: usize,
}

impl CacherMetrics {
    /// The series of the cache of a resource.
    pub fn new(group: &str, resource: &str) -> Self {
        let labels = [group, resource];
        Self {
            group: group.to_owned(),
            resource: resource.to_owned(),
            init_events: INIT_EVENTS.series(&labels),
            received: RECEIVED.series(&labels),
            storage_events: STORAGE_EVENTS.series(&labels),
            dispatched: DISPATCHED.series(&labels),
            initializations: INITIALIZATIONS.series(&labels),
            read_wait: READ_WAIT.series(&labels),
            fills: Operation::new("list", group, resource),
        }
    }

    /// Counts events that came from the store.
    pub fn received(&self, events: usize) {
        self.received.add(events as u64);
        self.storage_events.add(events as u64);
    }

    /// Counts changes that are there for watches.
    pub fn dispatched(&self, changes: u64) {
        self.dispatched.add(changes);
    }

    /// Counts an initial event of a watch.
    pub fn initial_event(&self) {
        self.init_events.inc();
    }

    /// Counts that there is more room for changes.
    pub fn grown(&self) {
        CAPACITY_INCREASES.inc(&[&self.group, &self.resource]);
    }

    /// Counts a watch that was too slow.
    pub fn terminated(&self) {
        TERMINATED.inc(&[&self.group, &self.resource]);
    }

    /// Counts a list that filled the cache.
    pub fn filled(&self) {
        self.initializations.inc();
    }

    /// Notes the time that a read waited for the cache to be as new as it asks for.
    pub fn waited(&self, time: Duration) {
        self.read_wait.observe(time.as_secs_f64());
    }

    /// Shows the size of the cache.
    pub fn show(&self, size: CacheSize) {
        let labels = [self.group.as_str(), self.resource.as_str()];
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        RESOURCE_VERSION.set(&labels, size.revision % REVISIONS);
        CAPACITY.set(&labels, number(size.capacity));
        CHANGES.set(&labels, number(size.changes));
        OBJECTS.set(&labels, number(size.objects));
        READY.set(&labels, i64::from(size.is_ready));
    }

    /// Removes what [`Self::show`] has shown, for a resource that is gone.
    pub fn hide(&self) {
        let labels = [self.group.as_str(), self.resource.as_str()];
        for gauge in [&RESOURCE_VERSION, &CAPACITY, &CHANGES, &OBJECTS, &READY] {
            gauge.remove(&labels);
        }
    }
}

/// Counts a notification of progress. There is one watch of the store for all resources.
pub fn bookmark() {
    let labels = ["", ""];
    BOOKMARKS.inc(&labels);
    BOOKMARK_COUNTS.add(&labels, 1);
}
