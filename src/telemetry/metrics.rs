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
//! combination is a time series, and [`super::family::MAX_SERIES`] bounds them.

use prometheus::{IntCounter, IntGauge};

use super::family::{Bound, Family};

pub use super::family::reset;
pub use super::samples::family;

/// The buckets of request durations in seconds (apiserver `endpoints/metrics`).
pub const REQUEST_SECONDS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];

/// The buckets that Prometheus' libraries have where none are named (`DefBuckets`).
pub const DEFAULT_SECONDS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Buckets from a millisecond to 16 seconds, each twice the one before.
pub const DOUBLED_MILLISECONDS: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
    8.192, 16.384,
];

/// A metric as it is declared in the source.
pub trait Declared: Sync {
    #[cfg(test)]
    fn name(&self) -> &'static str;

    /// Begins to expose the metric, unless the flags keep it back. One with labels shows nothing
    /// until it is used.
    fn declare(&'static self);
}

/// Implements what all metrics have.
macro_rules! declared {
    ($($metric:ty),+) => {$(
        impl Declared for $metric {
            #[cfg(test)]
            fn name(&self) -> &'static str {
                self.0.name()
            }

            fn declare(&'static self) {
                self.0.declare();
            }
        }
    )+};
}

declared!(Counter, Gauge, FloatGauge, Histogram);

/// A count that only rises.
pub struct Counter(Family<IntCounter>);

impl Counter {
    /// Declares a counter; its name ends in `_total`.
    pub const fn new(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
    ) -> Self {
        Self(Family::new(name, help, labels, &[], None))
    }

    /// Declares a counter that is deprecated since a version of Kubernetes (`1.34.0`). It is hidden
    /// some versions later, by its stability.
    pub const fn deprecated(
        name: &'static str,
        since: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
    ) -> Self {
        Self(Family::new(name, help, labels, &[], Some(since)))
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
        self.add(1);
    }

    /// Adds `by`.
    pub fn add(&self, by: u64) {
        self.0.with(|series| series.inc_by(by));
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
        Self(Family::new(name, help, labels, &[], None))
    }

    /// Declares a gauge that is deprecated since a version of Kubernetes (`1.34.0`). It is hidden
    /// some versions later, by its stability.
    pub const fn deprecated(
        name: &'static str,
        since: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
    ) -> Self {
        Self(Family::new(name, help, labels, &[], Some(since)))
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

    /// Adds `by`, for these values of the labels.
    pub fn add(&'static self, values: &[&str], by: i64) {
        self.0.with(values, |series| series.add(by));
    }

    /// Adds one until the guard is dropped.
    pub fn raise(&'static self, values: &[&str]) -> GaugeGuard {
        let series = self.0.with(values, IntGauge::clone);
        if let Some(series) = &series {
            series.inc();
        }
        GaugeGuard(series)
    }
}

/// The series of a [`Gauge`].
pub struct GaugeSeries(Bound<IntGauge>);

impl GaugeSeries {
    /// Adds `by`, which may be negative.
    pub fn add(&self, by: i64) {
        self.0.with(|series| series.add(by));
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
        Self(Family::new(name, help, labels, &[], None))
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
        self.0.with(|series| series.set(to));
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
        Self(Family::new(name, help, labels, buckets, None))
    }

    /// Declares a histogram that is deprecated since a version of Kubernetes (`1.27.0`).
    pub const fn deprecated(
        name: &'static str,
        since: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        buckets: &'static [f64],
    ) -> Self {
        Self(Family::new(name, help, labels, buckets, Some(since)))
    }

    /// Exposes the series of these values of the labels, without an observation.
    pub fn touch(&'static self, values: &[&str]) {
        self.0.with(values, |_| ());
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
        self.0.with(|series| series.observe(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::exposition;
    use crate::telemetry::family::MAX_SERIES;

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
        let text = exposition::render(exposition::Format::Text);
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
        let text = exposition::render(exposition::Format::Text);
        assert!(text.contains("test_many_total{a=\"ab\",b=\"c\"} 1\n"));
        assert!(text.contains("test_many_total{a=\"\",b=\"\"} 2\n"));
        let mut series = 0;
        MANY.0.for_each(|_| series += 1);
        assert!(series <= MAX_SERIES + 1);
    }
}
