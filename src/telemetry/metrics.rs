//! Metrics in Prometheus' text format. A metric is a static beside the code that counts; it
//! registers itself when first used.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

/// The media type of [`render`]'s text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
/// At most so many combinations of labels per metric; what comes later is counted under empty
/// labels.
pub const MAX_SERIES: usize = 20_000;
/// What separates label values in a key. It is in no valid UTF-8 text's values that we count by (a
/// control character).
const SEPARATOR: char = '\u{1f}';

/// The buckets of request durations in seconds (apiserver `endpoints/metrics`).
pub const REQUEST_SECONDS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];

static REGISTRY: Mutex<Vec<&'static (dyn Collect + Sync)>> = Mutex::new(Vec::new());

/// Something that can write itself as text.
pub trait Collect {
    fn name(&self) -> &'static str;
    fn collect(&self, out: &mut String);
}

/// All metrics that have been used, by name.
pub fn render() -> String {
    let mut metrics: Vec<_> = REGISTRY.lock().clone();
    metrics.sort_by_key(|metric| metric.name());
    let mut out = String::with_capacity(16 * 1024);
    for metric in metrics {
        metric.collect(&mut out);
    }
    super::process::collect(&mut out);
    out
}

/// What all kinds of metrics share: names, and one cell per combination of label values.
struct Family<T: 'static> {
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    cells: RwLock<BTreeMap<String, Arc<T>>>,
    registered: AtomicBool,
}

impl<T> Family<T> {
    const fn new(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Self {
        Self {
            name,
            help,
            labels,
            cells: RwLock::new(BTreeMap::new()),
            registered: AtomicBool::new(false),
        }
    }

    fn register(&self, metric: &'static (dyn Collect + Sync)) {
        if !self.registered.load(Ordering::Relaxed)
            && !self.registered.swap(true, Ordering::Relaxed)
        {
            REGISTRY.lock().push(metric);
        }
    }

    /// Runs `work` on the cell of these label values. Costs a look-up, no allocation once the cell
    /// exists.
    fn with(&self, values: &[&str], make: impl FnOnce() -> T, work: impl FnOnce(&Arc<T>)) {
        thread_local!(static KEY: RefCell<String> = const { RefCell::new(String::new()) });
        debug_assert_eq!(values.len(), self.labels.len(), "labels of {}", self.name);
        KEY.with_borrow_mut(|key| {
            key.clear();
            for (at, value) in values.iter().enumerate() {
                if at > 0 {
                    key.push(SEPARATOR);
                }
                key.push_str(value);
            }
            if let Some(cell) = self.cells.read().get(key.as_str()) {
                return work(cell);
            }
            let mut cells = self.cells.write();
            if cells.len() >= MAX_SERIES && !cells.contains_key(key.as_str()) {
                key.clear();
                key.extend(std::iter::repeat_n(
                    SEPARATOR,
                    self.labels.len().saturating_sub(1),
                ));
            }
            let cell = cells
                .entry(key.clone())
                .or_insert_with(|| Arc::new(make()))
                .clone();
            drop(cells);
            work(&cell);
        });
    }

    fn head(&self, kind: &str, out: &mut String) {
        let _ = writeln!(
            out,
            "# HELP {0} {1}\n# TYPE {0} {kind}",
            self.name, self.help
        );
    }

    /// Calls `write` with each cell and its labels: `a="b",c="d"`.
    fn each(&self, mut write: impl FnMut(&str, &T)) {
        let cells: Vec<(String, Arc<T>)> = self
            .cells
            .read()
            .iter()
            .map(|(key, cell)| (key.clone(), cell.clone()))
            .collect();
        let mut labels = String::new();
        for (key, cell) in cells {
            labels.clear();
            for (name, value) in self.labels.iter().zip(key.split(SEPARATOR)) {
                let comma = if labels.is_empty() { "" } else { "," };
                let _ = write!(labels, "{comma}{name}=\"{}\"", escape(value));
            }
            write(&labels, &cell);
        }
    }
}

fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('\n', "\\n")
        .replace('"', "\\\"")
}

fn sample(out: &mut String, name: &str, suffix: &str, labels: &str, value: impl std::fmt::Display) {
    let _ = match labels {
        "" => writeln!(out, "{name}{suffix} {value}"),
        labels => writeln!(out, "{name}{suffix}{{{labels}}} {value}"),
    };
}

/// Counts up.
pub struct Counter(Family<AtomicU64>);

impl Counter {
    pub const fn new(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
    ) -> Self {
        Self(Family::new(name, help, labels))
    }

    /// One more, for these values of the labels.
    pub fn inc(&'static self, values: &[&str]) {
        self.add(values, 1);
    }

    pub fn add(&'static self, values: &[&str], by: u64) {
        self.0.register(self);
        self.0.with(values, AtomicU64::default, |cell| {
            cell.fetch_add(by, Ordering::Relaxed);
        });
    }
}

impl Collect for Counter {
    fn name(&self) -> &'static str {
        self.0.name
    }

    fn collect(&self, out: &mut String) {
        self.0.head("counter", out);
        self.0.each(|labels, cell| {
            sample(out, self.0.name, "", labels, cell.load(Ordering::Relaxed))
        });
    }
}

/// Goes up and down.
pub struct Gauge(Family<AtomicU64>);

impl Gauge {
    pub const fn new(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
    ) -> Self {
        Self(Family::new(name, help, labels))
    }

    pub fn set(&'static self, values: &[&str], to: i64) {
        self.0.register(self);
        self.0.with(values, AtomicU64::default, |cell| {
            cell.store(to as u64, Ordering::Relaxed)
        });
    }

    /// Adds `by`, which may be negative.
    #[cfg(test)]
    pub fn add(&'static self, values: &[&str], by: i64) {
        self.0.register(self);
        self.0.with(values, AtomicU64::default, |cell| {
            cell.fetch_add(by as u64, Ordering::Relaxed);
        });
    }
}

/// One more on a gauge, until it is dropped.
#[derive(Debug)]
pub struct Raised(Arc<AtomicU64>);

impl Drop for Raised {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Gauge {
    /// Adds one, and takes it away when what is returned is dropped.
    pub fn raise(&'static self, values: &[&str]) -> Raised {
        self.0.register(self);
        let mut raised = None;
        self.0.with(values, AtomicU64::default, |cell| {
            raised = Some(cell.clone())
        });
        let cell = raised.unwrap_or_default();
        cell.fetch_add(1, Ordering::Relaxed);
        Raised(cell)
    }

    /// The sum over all labels.
    pub fn total(&self) -> u64 {
        self.0
            .cells
            .read()
            .values()
            .map(|cell| cell.load(Ordering::Relaxed))
            .fold(0, u64::wrapping_add)
    }
}

impl Collect for Gauge {
    fn name(&self) -> &'static str {
        self.0.name
    }

    fn collect(&self, out: &mut String) {
        self.0.head("gauge", out);
        self.0.each(|labels, cell| {
            sample(
                out,
                self.0.name,
                "",
                labels,
                cell.load(Ordering::Relaxed) as i64,
            )
        });
    }
}

/// Counts observations in buckets.
pub struct Histogram {
    family: Family<Distribution>,
    bounds: &'static [f64],
}

struct Distribution {
    /// One for each bound, and one for what is above the last.
    counts: Vec<AtomicU64>,
    /// In millionths, so that it can be added to atomically.
    sum: AtomicU64,
}

/// The resolution of a histogram's sum.
const MILLIONTHS: f64 = 1e6;

impl Histogram {
    /// `bounds` are the upper (inclusive) bounds of the buckets, ascending.
    pub const fn new(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        bounds: &'static [f64],
    ) -> Self {
        Self {
            family: Family::new(name, help, labels),
            bounds,
        }
    }

    pub fn observe(&'static self, values: &[&str], value: f64) {
        self.family.register(self);
        let make = || Distribution {
            counts: (0..=self.bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
        };
        self.family.with(values, make, |cell| {
            let bucket = self.bounds.partition_point(|bound| *bound < value);
            if let Some(count) = cell.counts.get(bucket) {
                count.fetch_add(1, Ordering::Relaxed);
            }
            cell.sum
                .fetch_add((value.max(0.0) * MILLIONTHS) as u64, Ordering::Relaxed);
        });
    }
}

impl Collect for Histogram {
    fn name(&self) -> &'static str {
        self.family.name
    }

    fn collect(&self, out: &mut String) {
        self.family.head("histogram", out);
        let name = self.family.name;
        self.family.each(|labels, cell| {
            let comma = if labels.is_empty() { "" } else { "," };
            let mut total = 0;
            for (at, count) in cell.counts.iter().enumerate() {
                total += count.load(Ordering::Relaxed);
                let bound = self
                    .bounds
                    .get(at)
                    .map_or("+Inf".to_owned(), f64::to_string);
                sample(
                    out,
                    name,
                    "_bucket",
                    &format!("{labels}{comma}le=\"{bound}\""),
                    total,
                );
            }
            sample(
                out,
                name,
                "_sum",
                labels,
                cell.sum.load(Ordering::Relaxed) as f64 / MILLIONTHS,
            );
            sample(out, name, "_count", labels, total);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static REQUESTS: Counter = Counter::new("test_requests_total", "Requests.", &["verb", "code"]);
    static OPEN: Gauge = Gauge::new("test_open", "Open things.", &[]);
    static SECONDS: Histogram =
        Histogram::new("test_seconds", "Durations.", &["verb"], &[0.5, 1.0]);

    #[test]
    fn metrics_are_written_as_prometheus_reads_them() {
        REQUESTS.inc(&["get", "200"]);
        REQUESTS.add(&["get", "200"], 2);
        REQUESTS.inc(&["a\"b", "500"]);
        OPEN.add(&[], 3);
        OPEN.add(&[], -5);
        for value in [0.25, 0.5, 0.75, 2.0] {
            SECONDS.observe(&["list"], value);
        }
        let text = render();
        for expected in [
            "# HELP test_requests_total Requests.\n# TYPE test_requests_total counter\ntest_requests_total{verb=\"a\\\"b\",code=\"500\"} 1\ntest_requests_total{verb=\"get\",code=\"200\"} 3\n",
            "# TYPE test_open gauge\ntest_open -2\n",
            "test_seconds_bucket{verb=\"list\",le=\"0.5\"} 2\ntest_seconds_bucket{verb=\"list\",le=\"1\"} 3\ntest_seconds_bucket{verb=\"list\",le=\"+Inf\"} 4\ntest_seconds_sum{verb=\"list\"} 3.5\ntest_seconds_count{verb=\"list\"} 4\n",
        ] {
            assert!(text.contains(expected), "{expected}\nis not in\n{text}");
        }
    }
}
