//! Summaries: quantiles of what was observed in the last hours, which the `prometheus` crate has
//! none of.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use prometheus::core::{Collector, Desc};
use prometheus::proto::{self, LabelPair, MetricFamily, MetricType, Quantile};

use super::family::{Reset, add_resettable};
use super::metric_options;
use super::metrics::{Declared, family};

/// The quantiles that are told (component-base `metrics`, `DefObjectives`).
const QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];
/// The parts of the window; the oldest goes as a whole (Prometheus' `DefAgeBuckets`).
const PARTS: usize = 5;
/// Observations are kept in classes whose bounds are this far apart, which is the error of a
/// quantile.
const GROWTH: f64 = 1.02;
/// The least that is told apart, a microsecond where seconds are observed.
const LEAST: f64 = 1e-6;
/// Classes up to about 1 000 seconds.
const CLASSES: usize = 1048;

/// Quantiles of observations, by label values.
pub struct Summary {
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    window: Duration,
    /// `None` if the metric is not shown.
    registered: OnceLock<Option<Registered>>,
}

struct Registered {
    desc: Option<Desc>,
    series: RwLock<HashMap<Vec<String>, SummarySeries>>,
}

/// The observations for one combination of label values.
#[derive(Clone)]
pub struct SummarySeries(Arc<Mutex<Window>>);

struct Window {
    part: Duration,
    /// The start of the newest part.
    since: Instant,
    /// The observations of each class, newest part first.
    parts: [Vec<u32>; PARTS],
    count: u64,
    sum: f64,
}

impl Window {
    fn new(window: Duration, now: Instant) -> Self {
        Self {
            part: window / PARTS as u32,
            since: now,
            parts: Default::default(),
            count: 0,
            sum: 0.0,
        }
    }

    /// Lets parts go whose time is over.
    fn advance(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.since).as_nanos();
        let parts = usize::try_from(passed / self.part.as_nanos().max(1)).unwrap_or(usize::MAX);
        for _ in 0..parts.min(PARTS) {
            self.parts.rotate_right(1);
            self.parts[0].clear();
        }
        if parts > 0 {
            let over = passed % self.part.as_nanos().max(1);
            self.since = now - Duration::from_nanos(u64::try_from(over).unwrap_or(0));
        }
    }

    fn observe(&mut self, value: f64, now: Instant) {
        self.advance(now);
        self.count += 1;
        self.sum += value;
        let class = (value.max(LEAST) / LEAST).ln() / GROWTH.ln();
        let class = (class.round() as usize).min(CLASSES - 1);
        let newest = &mut self.parts[0];
        if newest.is_empty() {
            newest.resize(CLASSES, 0);
        }
        newest[class] = newest[class].saturating_add(1);
    }

    /// Returns a quantile of the window; no number where nothing was observed.
    fn quantile(&self, quantile: f64) -> f64 {
        let in_class = |class: usize| -> u64 {
            let counts = self.parts.iter().filter_map(|part| part.get(class));
            counts.map(|count| u64::from(*count)).sum()
        };
        let all: u64 = (0..CLASSES).map(in_class).sum();
        let rank = ((all as f64) * quantile).ceil().max(1.0) as u64;
        let mut seen = 0;
        for class in 0..CLASSES {
            seen += in_class(class);
            if seen >= rank {
                return LEAST * GROWTH.powi(class as i32);
            }
        }
        f64::NAN
    }
}

impl SummarySeries {
    /// Adds an observation.
    pub fn observe(&self, value: f64) {
        self.0.lock().observe(value, Instant::now());
    }

    fn metric(&self, labels: &[&str], values: &[String]) -> proto::Metric {
        let mut window = self.0.lock();
        window.advance(Instant::now());
        let quantiles = QUANTILES.iter().map(|quantile| {
            let mut told = Quantile::default();
            told.set_quantile(*quantile);
            told.set_value(window.quantile(*quantile));
            told
        });
        let mut summary = proto::Summary::default();
        summary.set_quantile(quantiles.collect());
        summary.set_sample_count(window.count);
        summary.set_sample_sum(window.sum);
        let pairs = labels.iter().zip(values).map(|(name, value)| {
            let mut pair = LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value(value.clone());
            pair
        });
        let mut metric = proto::Metric::default();
        metric.set_label(pairs.collect());
        metric.set_summary(summary);
        metric
    }
}

impl Summary {
    /// Declares a summary over a window of time. The values of its labels come from tables: nothing
    /// bounds their number. The labels are in the order of their names.
    pub const fn new(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        window: Duration,
    ) -> Self {
        Self {
            name,
            help,
            labels,
            window,
            registered: OnceLock::new(),
        }
    }

    fn registered(&'static self) -> Option<&'static Registered> {
        let mut is_first = false;
        let registered = self.registered.get_or_init(|| {
            is_first = true;
            if !metric_options::admit(self.name, self.help, None) {
                return None;
            }
            let labels = self.labels.iter().map(|label| (*label).to_owned());
            let (name, help) = (self.name.to_owned(), self.help.to_owned());
            Some(Registered {
                desc: Desc::new(name, help, labels.collect(), HashMap::new()).ok(),
                series: RwLock::default(),
            })
        });
        let registered = registered.as_ref()?;
        if is_first {
            if let Err(why) = prometheus::register(Box::new(self)) {
                tracing::error!("the metric {}: {why}", self.name);
            }
            add_resettable(self);
        }
        Some(registered)
    }

    /// Returns the series of these values of the labels.
    pub fn series(&'static self, values: &[&str]) -> SummarySeries {
        let window = || Arc::new(Mutex::new(Window::new(self.window, Instant::now())));
        let Some(registered) = self.registered() else {
            return SummarySeries(window());
        };
        let allowed = metric_options::allowed_values(self.name);
        let values = self
            .labels
            .iter()
            .zip(values)
            .map(|(label, value)| match allowed {
                Some(allowed) => metric_options::constrain(allowed, label, value).into_owned(),
                None => (*value).to_owned(),
            });
        let mut series = registered.series.write();
        series
            .entry(values.collect())
            .or_insert_with(|| SummarySeries(window()))
            .clone()
    }
}

impl Declared for Summary {
    #[cfg(test)]
    fn name(&self) -> &'static str {
        self.name
    }

    fn declare(&'static self) {
        self.registered();
    }
}

impl Reset for Summary {
    fn reset(&self) {
        if let Some(Some(registered)) = self.registered.get() {
            registered.series.write().clear();
        }
    }
}

impl Collector for &'static Summary {
    fn desc(&self) -> Vec<&Desc> {
        let registered = self.registered.get().and_then(Option::as_ref);
        let desc = registered.and_then(|it| it.desc.as_ref());
        desc.into_iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Some(Some(registered)) = self.registered.get() else {
            return Vec::new();
        };
        let series = registered.series.read();
        let series = series
            .iter()
            .map(|(values, one)| one.metric(self.labels, values));
        vec![family(
            self.name,
            self.help,
            MetricType::SUMMARY,
            series.collect(),
        )]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::exposition;

    static SECONDS: Summary = Summary::new(
        "test_summary_seconds",
        "[ALPHA] Durations.",
        &["rejected", "verb"],
        Duration::from_secs(3600),
    );

    #[test]
    fn quantiles_are_those_of_the_window() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut window = Window::new(Duration::from_secs(50), start);
        assert!(window.quantile(0.5).is_nan());
        for value in 1..=100 {
            window.observe(f64::from(value) / 1000.0, at(u64::from(value > 90) * 10));
        }
        for (quantile, value) in [(0.5, 0.050), (0.9, 0.090), (0.99, 0.099)] {
            let found = window.quantile(quantile);
            assert!((found / value - 1.0).abs() < 0.02, "{quantile}: {found}");
        }
        // The first part of the window is over, the second is not.
        window.advance(at(50));
        assert!(window.quantile(0.01) > 0.09);
        window.observe(1e9, at(1_000_000));
        assert!(window.quantile(0.01) > 900.0);
        assert_eq!((window.count, window.sum.round()), (101, 1_000_000_005.0));
    }

    #[test]
    fn a_summary_is_rendered_in_prometheus_text_format() {
        SECONDS.series(&["false", "get"]).observe(0.5);
        let text = exposition::render(exposition::Format::Text);
        assert!(
            text.contains("# TYPE test_summary_seconds summary\n"),
            "{text}"
        );
        assert!(
            text.contains(
                "test_summary_seconds{rejected=\"false\",verb=\"get\",quantile=\"0.99\"} 0.50"
            ),
            "{text}"
        );
        assert!(
            text.contains("test_summary_seconds_count{rejected=\"false\",verb=\"get\"} 1\n"),
            "{text}"
        );
    }
}
