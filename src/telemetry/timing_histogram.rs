//! A histogram of how long a ratio spends in ranges, as if it were observed at the end of every
//! nanosecond (component-base `metrics/prometheusextension`).

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use prometheus::Opts;
use prometheus::core::Metric;
use prometheus::proto::{self, LabelPair, MetricType};

use super::family::{Family, Series};
use super::metrics::Declared;

/// Declares a histogram of ratios over time.
pub struct TimingHistogram(Family<TimingSeries>);

impl TimingHistogram {
    /// Declares a histogram; `buckets` are the inclusive upper bounds, ascending, without `+Inf`.
    /// The help text begins with `EXPERIMENTAL: `, as upstream's.
    pub const fn new(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        buckets: &'static [f64],
    ) -> Self {
        Self(Family::new(name, help, labels, buckets, None))
    }

    /// Returns the ratio of these values of the labels. It counts from the first call on.
    pub fn ratio(&'static self, values: &[&str]) -> Ratio {
        Ratio(self.0.with(values, TimingSeries::clone))
    }
}

impl Declared for TimingHistogram {
    #[cfg(test)]
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn declare(&'static self) {
        self.0.declare();
    }
}

/// A ratio of which the history is kept.
#[derive(Clone)]
pub struct Ratio(Option<TimingSeries>);

impl Ratio {
    /// Returns a ratio that is not exposed.
    pub fn unexposed() -> Self {
        Self(None)
    }

    pub fn set(&self, now: Instant, numerator: f64) {
        self.update(now, |state| state.numerator = numerator);
    }

    pub fn add(&self, now: Instant, by: f64) {
        self.update(now, |state| state.numerator += by);
    }

    pub fn set_denominator(&self, now: Instant, denominator: f64) {
        self.update(now, |state| state.denominator = denominator);
    }

    fn update(&self, now: Instant, change: impl FnOnce(&mut State)) {
        if let Some(series) = &self.0 {
            let mut state = series.state.lock();
            state.observe_until(now);
            change(&mut state);
        }
    }
}

#[derive(Clone)]
struct TimingSeries {
    labels: Vec<LabelPair>,
    state: Arc<Mutex<State>>,
}

struct State {
    numerator: f64,
    denominator: f64,
    since: Instant,
    bounds: Vec<f64>,
    /// The nanoseconds in each range, with one above the last bound.
    nanos: Vec<u64>,
    /// The integral of the ratio over nanoseconds.
    sum: f64,
}

impl State {
    fn observe_until(&mut self, now: Instant) {
        let nanos = now.saturating_duration_since(self.since).as_nanos() as u64;
        if nanos == 0 {
            return;
        }
        self.since = now;
        let ratio = self.numerator / self.denominator;
        let range = self.bounds.partition_point(|bound| *bound < ratio);
        if let Some(count) = self.nanos.get_mut(range) {
            *count += nanos;
        }
        self.sum += nanos as f64 * ratio;
    }
}

impl Series for TimingSeries {
    const TYPE: MetricType = MetricType::HISTOGRAM;

    fn create(opts: Opts, buckets: &[f64]) -> prometheus::Result<Self> {
        // A gauge knows how labels are written.
        let labels = prometheus::Gauge::with_opts(opts)?.metric();
        Ok(Self {
            labels: labels.get_label().to_vec(),
            state: Arc::new(Mutex::new(State {
                numerator: 0.0,
                denominator: 1.0,
                since: Instant::now(),
                bounds: buckets.to_vec(),
                nanos: vec![0; buckets.len() + 1],
                sum: 0.0,
            })),
        })
    }
}

impl Metric for TimingSeries {
    fn metric(&self) -> proto::Metric {
        let mut state = self.state.lock();
        state.observe_until(Instant::now());
        let mut total = 0;
        let mut buckets = Vec::with_capacity(state.bounds.len());
        for (bound, nanos) in state.bounds.iter().zip(&state.nanos) {
            total += nanos;
            let mut bucket = proto::Bucket::default();
            bucket.set_upper_bound(*bound);
            bucket.set_cumulative_count(total);
            buckets.push(bucket);
        }
        let mut histogram = proto::Histogram::default();
        histogram.set_bucket(buckets);
        histogram.set_sample_count(total + state.nanos.last().copied().unwrap_or(0));
        histogram.set_sample_sum(state.sum);
        let mut metric = proto::Metric::default();
        metric.set_label(self.labels.clone());
        metric.set_histogram(histogram);
        metric
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::telemetry::exposition;

    static SEATS: TimingHistogram = TimingHistogram::new(
        "test_seat_utilization",
        "EXPERIMENTAL: [ALPHA] Seats.",
        &["level"],
        &[0.0, 0.5, 1.0],
    );

    #[test]
    fn time_is_counted_in_the_range_of_the_ratio() {
        let seats = SEATS.ratio(&["a"]);
        let state = seats.0.as_ref().expect("a series").state.clone();
        // In the future: the exposition adds what has passed since.
        let begin = Instant::now() + Duration::from_secs(3600);
        let at = |nanos| begin + Duration::from_nanos(nanos);
        state.lock().since = begin;
        seats.set_denominator(at(5), 10.0);
        seats.add(at(5), 4.0);
        seats.add(at(8), 3.0);
        seats.set(at(10), 20.0);
        seats.set(at(20), 0.0);
        let text = exposition::render(exposition::Format::Text);
        for line in [
            "# TYPE test_seat_utilization histogram",
            "test_seat_utilization_bucket{level=\"a\",le=\"0\"} 5",
            "test_seat_utilization_bucket{level=\"a\",le=\"0.5\"} 8",
            "test_seat_utilization_bucket{level=\"a\",le=\"1\"} 10",
            "test_seat_utilization_bucket{level=\"a\",le=\"+Inf\"} 20",
            "test_seat_utilization_count{level=\"a\"} 20",
        ] {
            assert!(text.contains(line), "{line}\nis not in\n{text}");
        }
        assert!((state.lock().sum - 22.6).abs() < 1e-9);
    }
}
