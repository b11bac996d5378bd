//! Metrics in Prometheus' text format, on the `prometheus` crate.
//!
//! A metric is a static beside the code that counts. It is exposed from its first use on:
//!
//! ```text
//! static EVICTIONS: Counter = Counter::new(
//!     "apiserver_cache_evictions_total",
//!     "[ALPHA] Number of objects evicted from the cache, by resource.",
//!     &["resource"],
//! );
//! EVICTIONS.inc(&["pods"]);
//! ```
//!
//! Names, labels and buckets are upstream's where it has the metric, and so is the help text with
//! the level of stability in front. Label values come from tables, never from a client: each
//! combination is a time series, and [`MAX_SERIES`] bounds them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::OnceLock;

use parking_lot::RwLock;
use prometheus::core::{Collector, Desc, Metric};
use prometheus::proto::{MetricFamily, MetricType};
use prometheus::{HistogramOpts, IntCounter, IntGauge, Opts};

/// The maximum number of series of one metric; further ones are counted under empty labels.
pub const MAX_SERIES: usize = 20_000;
/// The separator of label values in a key: a control character, which no label value contains.
const SEPARATOR: char = '\u{1f}';

/// The buckets of request durations in seconds (apiserver `endpoints/metrics`).
pub const REQUEST_SECONDS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];

/// Returns a metric family for the encoder.
pub fn family(
    name: &str,
    help: &str,
    kind: MetricType,
    series: Vec<prometheus::proto::Metric>,
) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(kind);
    family.set_metric(series);
    family
}

/// A kind of metric: what one combination of label values counts.
pub(super) trait Series: Metric + Clone + Send + 'static {
    const TYPE: MetricType;

    fn create(opts: Opts, buckets: &[f64]) -> prometheus::Result<Self>;
}

impl Series for IntCounter {
    const TYPE: MetricType = MetricType::COUNTER;

    fn create(opts: Opts, _buckets: &[f64]) -> prometheus::Result<Self> {
        Self::with_opts(opts)
    }
}

impl Series for IntGauge {
    const TYPE: MetricType = MetricType::GAUGE;

    fn create(opts: Opts, _buckets: &[f64]) -> prometheus::Result<Self> {
        Self::with_opts(opts)
    }
}

impl Series for prometheus::Gauge {
    const TYPE: MetricType = MetricType::GAUGE;

    fn create(opts: Opts, _buckets: &[f64]) -> prometheus::Result<Self> {
        Self::with_opts(opts)
    }
}

impl Series for prometheus::Histogram {
    const TYPE: MetricType = MetricType::HISTOGRAM;

    fn create(opts: Opts, buckets: &[f64]) -> prometheus::Result<Self> {
        Self::with_opts(HistogramOpts::from(opts).buckets(buckets.to_vec()))
    }
}

/// The series of one metric by their label values.
///
/// The crate's own `MetricVec` has no bound, and finds a series by a hash of the values run
/// together, in which `ab`, `c` and `a`, `bc` are the same.
pub(super) struct Family<S: 'static> {
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    buckets: &'static [f64],
    registered: OnceLock<Registered<S>>,
}

/// A family that has been used.
struct Registered<S> {
    desc: Option<Desc>,
    series: RwLock<HashMap<String, S>>,
}

impl<S: Series> Family<S> {
    pub(super) const fn new(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        buckets: &'static [f64],
    ) -> Self {
        Self {
            name,
            help,
            labels,
            buckets,
            registered: OnceLock::new(),
        }
    }

    fn registered(&'static self) -> &'static Registered<S> {
        if let Some(registered) = self.registered.get() {
            return registered;
        }
        let registered = self.registered.get_or_init(|| {
            let labels = self.labels.iter().map(|label| (*label).to_owned());
            let (name, help) = (self.name.to_owned(), self.help.to_owned());
            Registered {
                desc: Desc::new(name, help, labels.collect(), HashMap::new()).ok(),
                series: RwLock::default(),
            }
        });
        match prometheus::register(Box::new(self)) {
            // Another thread was faster.
            Ok(()) | Err(prometheus::Error::AlreadyReg) => {}
            Err(why) => tracing::error!("the metric {}: {why}", self.name),
        }
        registered
    }

    /// Runs `work` on the series of these label values. Costs a look-up, and no allocation once
    /// the series exists.
    pub(super) fn with<R>(&'static self, values: &[&str], work: impl FnOnce(&S) -> R) -> Option<R> {
        thread_local!(static KEY: RefCell<String> = const { RefCell::new(String::new()) });
        debug_assert_eq!(values.len(), self.labels.len(), "labels of {}", self.name);
        let all = &self.registered().series;
        KEY.with_borrow_mut(|key| {
            key.clear();
            for (at, value) in values.iter().enumerate() {
                if at > 0 {
                    key.push(SEPARATOR);
                }
                key.push_str(value);
            }
            if let Some(series) = all.read().get(key.as_str()) {
                return Some(work(series));
            }
            let mut all = all.write();
            if all.len() >= MAX_SERIES && !all.contains_key(key.as_str()) {
                let separators = self.labels.len().saturating_sub(1);
                *key = SEPARATOR.to_string().repeat(separators);
            }
            if !all.contains_key(key.as_str()) {
                all.insert(key.clone(), self.create(key)?);
            }
            all.get(key.as_str()).map(work)
        })
    }

    /// Removes the series of these label values, if there is one.
    fn remove(&'static self, values: &[&str]) {
        let key = values.join(&SEPARATOR.to_string());
        self.registered().series.write().remove(&key);
    }

    /// Returns the series of a key, unless the names of its labels are not valid.
    fn create(&self, key: &str) -> Option<S> {
        let values = key.split(SEPARATOR).map(str::to_owned);
        let names = self.labels.iter().map(|label| (*label).to_owned());
        let opts = Opts::new(self.name, self.help).const_labels(names.zip(values).collect());
        S::create(opts, self.buckets).ok()
    }
}

impl<S: Series> Collector for &'static Family<S> {
    fn desc(&self) -> Vec<&Desc> {
        let registered = self.registered.get();
        registered
            .and_then(|family| family.desc.as_ref())
            .into_iter()
            .collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let series = self
            .registered()
            .series
            .read()
            .values()
            .map(Metric::metric)
            .collect();
        vec![family(self.name, self.help, S::TYPE, series)]
    }
}

/// A series that is looked up when it is first used, and only then. For what changes often.
struct Bound<S: 'static> {
    family: &'static Family<S>,
    values: Vec<String>,
    series: OnceLock<Option<S>>,
}

impl<S: Series> Bound<S> {
    fn new(family: &'static Family<S>, values: &[&str]) -> Self {
        Self {
            family,
            values: values.iter().map(|value| (*value).to_owned()).collect(),
            series: OnceLock::new(),
        }
    }

    fn get(&self) -> Option<&S> {
        let found = self.series.get_or_init(|| {
            let values: Vec<&str> = self.values.iter().map(String::as_str).collect();
            self.family.with(&values, S::clone)
        });
        found.as_ref()
    }
}

/// A count that only rises.
pub struct Counter(Family<IntCounter>);

impl Counter {
    /// Declares a counter; its name ends in `_total`.
    pub const fn new(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
    ) -> Self {
        Self(Family::new(name, help, labels, &[]))
    }

    /// Adds one, for these values of the labels.
    pub fn inc(&'static self, values: &[&str]) {
        self.add(values, 1);
    }

    /// Adds `by`, for these values of the labels.
    pub fn add(&'static self, values: &[&str], by: u64) {
        self.0.with(values, |series| series.inc_by(by));
    }

    /// Removes the series of these values of the labels, if there is one.
    pub fn remove(&'static self, values: &[&str]) {
        self.0.remove(values);
    }

    /// Returns the series of these values of the labels.
    pub fn series(&'static self, values: &[&str]) -> CounterSeries {
        CounterSeries(Bound::new(&self.0, values))
    }
}

/// The series of a [`Counter`].
pub struct CounterSeries(Bound<IntCounter>);

impl CounterSeries {
    /// Adds one.
    pub fn inc(&self) {
        if let Some(series) = self.0.get() {
            series.inc();
        }
    }
}

/// A value that rises and falls.
pub struct Gauge(Family<IntGauge>);

impl Gauge {
    /// Declares a gauge.
    pub const fn new(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
    ) -> Self {
        Self(Family::new(name, help, labels, &[]))
    }

    /// Sets the value, for these values of the labels.
    pub fn set(&'static self, values: &[&str], to: i64) {
        self.0.with(values, |series| series.set(to));
    }

    /// Removes the series of these values of the labels, if there is one.
    pub fn remove(&'static self, values: &[&str]) {
        self.0.remove(values);
    }

    /// Returns the series of these values of the labels.
    pub fn series(&'static self, values: &[&str]) -> GaugeSeries {
        GaugeSeries(Bound::new(&self.0, values))
    }

    /// Adds one until the guard is dropped.
    pub fn raise(&'static self, values: &[&str]) -> GaugeGuard {
        let series = self.0.with(values, IntGauge::clone);
        if let Some(series) = &series {
            series.inc();
        }
        GaugeGuard(series)
    }

    /// Returns the sum over all label values.
    pub fn total(&'static self) -> u64 {
        let series = self.0.registered().series.read();
        let total: i64 = series.values().map(IntGauge::get).sum();
        u64::try_from(total).unwrap_or(0)
    }
}

/// The series of a [`Gauge`].
pub struct GaugeSeries(Bound<IntGauge>);

impl GaugeSeries {
    /// Adds `by`, which may be negative.
    pub fn add(&self, by: i64) {
        if let Some(series) = self.0.get() {
            series.add(by);
        }
    }
}

/// A value with a fraction that rises and falls.
pub struct FloatGauge(Family<prometheus::Gauge>);

impl FloatGauge {
    /// Declares a gauge.
    pub const fn new(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
    ) -> Self {
        Self(Family::new(name, help, labels, &[]))
    }

    /// Sets the value, for these values of the labels.
    pub fn set(&'static self, values: &[&str], to: f64) {
        self.0.with(values, |series| series.set(to));
    }

    /// Returns the series of these values of the labels.
    pub fn series(&'static self, values: &[&str]) -> FloatGaugeSeries {
        FloatGaugeSeries(Bound::new(&self.0, values))
    }
}

/// The series of a [`FloatGauge`].
pub struct FloatGaugeSeries(Bound<prometheus::Gauge>);

impl FloatGaugeSeries {
    pub fn set(&self, to: f64) {
        if let Some(series) = self.0.get() {
            series.set(to);
        }
    }
}

/// One more on a gauge, until it is dropped.
#[derive(Debug)]
pub struct GaugeGuard(Option<IntGauge>);

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        if let Some(series) = &self.0 {
            series.dec();
        }
    }
}

/// A distribution of observations over buckets.
pub struct Histogram(Family<prometheus::Histogram>);

impl Histogram {
    /// Declares a histogram; `buckets` are the inclusive upper bounds, ascending, without `+Inf`.
    pub const fn new(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        buckets: &'static [f64],
    ) -> Self {
        Self(Family::new(name, help, labels, buckets))
    }

    /// Adds an observation, for these values of the labels.
    pub fn observe(&'static self, values: &[&str], value: f64) {
        self.0.with(values, |series| series.observe(value));
    }

    /// Returns the series of these values of the labels.
    pub fn series(&'static self, values: &[&str]) -> HistogramSeries {
        HistogramSeries(Bound::new(&self.0, values))
    }
}

/// The series of a [`Histogram`].
pub struct HistogramSeries(Bound<prometheus::Histogram>);

impl HistogramSeries {
    /// Adds an observation.
    pub fn observe(&self, value: f64) {
        if let Some(series) = self.0.get() {
            series.observe(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::exposition;

    static REQUESTS: Counter = Counter::new(
        "test_requests_total",
        "[ALPHA] Requests.",
        &["verb", "code"],
    );
    static OPEN: Gauge = Gauge::new("test_open", "Open things.", &[]);
    static SECONDS: Histogram =
        Histogram::new("test_seconds", "Durations.", &["verb"], &[0.5, 1.0]);
    static MANY: Counter = Counter::new("test_many_total", "Many.", &["a", "b"]);

    #[test]
    fn metrics_are_rendered_in_prometheus_text_format() {
        REQUESTS.inc(&["get", "200"]);
        REQUESTS.add(&["get", "200"], 2);
        REQUESTS.inc(&["a\"b", "500"]);
        OPEN.set(&[], -2);
        for value in [0.25, 0.5, 0.75, 2.0] {
            SECONDS.observe(&["list"], value);
        }
        let text = exposition::render();
        for expected in [
            "# HELP test_requests_total [ALPHA] Requests.\n# TYPE test_requests_total counter\ntest_requests_total{code=\"200\",verb=\"get\"} 3\ntest_requests_total{code=\"500\",verb=\"a\\\"b\"} 1\n",
            "# TYPE test_open gauge\ntest_open -2\n",
            "test_seconds_bucket{verb=\"list\",le=\"0.5\"} 2\ntest_seconds_bucket{verb=\"list\",le=\"1\"} 3\ntest_seconds_bucket{verb=\"list\",le=\"+Inf\"} 4\ntest_seconds_sum{verb=\"list\"} 3.5\ntest_seconds_count{verb=\"list\"} 4\n",
            "# TYPE process_open_fds gauge\nprocess_open_fds ",
        ] {
            assert!(text.contains(expected), "{expected}\nis not in\n{text}");
        }
        assert!(!text.contains("# EOF"), "{text}");
    }

    #[test]
    fn series_are_told_apart_by_each_label_and_are_bounded() {
        MANY.inc(&["ab", "c"]);
        MANY.inc(&["a", "bc"]);
        for at in 0..MAX_SERIES {
            MANY.inc(&["x", &at.to_string()]);
        }
        let text = exposition::render();
        assert!(text.contains("test_many_total{a=\"ab\",b=\"c\"} 1\n"));
        assert!(text.contains("test_many_total{a=\"\",b=\"\"} 2\n"));
        assert!(MANY.0.registered().series.read().len() <= MAX_SERIES + 1);
    }
}
