//! The series of a metric by the values of its labels.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use parking_lot::{Mutex, RwLock};
use prometheus::core::{Collector, Desc, Metric};
use prometheus::proto::{MetricFamily, MetricType};
use prometheus::{HistogramOpts, IntCounter, IntGauge, Opts};

use super::metric_options::{self, AllowedValues};
use super::samples::family;

/// The maximum number of series of one metric; further ones are counted under empty labels.
pub const MAX_SERIES: usize = 20_000;
/// The separator of label values in a key: a control character, which no label value contains.
const SEPARATOR: char = '\u{1f}';

/// The number of times that the metrics have been reset.
static RESETS: AtomicU32 = AtomicU32::new(0);
/// The metrics that a reset empties.
static RESETTABLE: Mutex<Vec<&'static dyn Reset>> = Mutex::new(Vec::new());

/// A metric whose series go when metrics are reset.
pub(super) trait Reset: Sync {
    fn reset(&self);
}

/// Lets a metric be emptied by [`reset`].
pub(super) fn add_resettable(metric: &'static dyn Reset) {
    RESETTABLE.lock().push(metric);
}

/// Drops all series of metrics that have labels (component-base `kubeRegistry.Reset`).
pub fn reset() {
    for metric in RESETTABLE.lock().iter() {
        metric.reset();
    }
    RESETS.fetch_add(1, Ordering::Release);
}

/// A kind of metric: what one combination of label values counts.
pub(super) trait Series: Metric + Clone + Send + Sync + 'static {
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
    deprecated: Option<&'static str>,
    /// `None` if the metric is not shown.
    registered: OnceLock<Option<Registered<S>>>,
}

/// A family that is shown.
struct Registered<S> {
    desc: Option<Desc>,
    help: String,
    /// The values of labels that are told apart, where flags say so.
    allowed: Option<&'static AllowedValues>,
    series: RwLock<HashMap<String, S>>,
}

impl<S: Series> Family<S> {
    pub(super) const fn new(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        buckets: &'static [f64],
        deprecated: Option<&'static str>,
    ) -> Self {
        Self {
            name,
            help,
            labels,
            buckets,
            deprecated,
            registered: OnceLock::new(),
        }
    }

    #[cfg(test)]
    pub(super) const fn name(&self) -> &'static str {
        self.name
    }

    /// Begins to expose the metric, unless it is not to be shown. One without labels has its
    /// series from then on.
    pub(super) fn declare(&'static self) {
        self.registered();
    }

    /// Returns the metric as it is exposed; `None` if it is not shown.
    fn registered(&'static self) -> Option<&'static Registered<S>> {
        if let Some(registered) = self.registered.get() {
            return registered.as_ref();
        }
        let mut is_first = false;
        let registered = self.registered.get_or_init(|| {
            is_first = true;
            if !metric_options::admit(self.name, self.help, self.deprecated) {
                return None;
            }
            let help = metric_options::annotated(self.help, self.deprecated);
            let labels = self.labels.iter().map(|label| (*label).to_owned());
            let desc = Desc::new(
                self.name.to_owned(),
                help.clone(),
                labels.collect(),
                HashMap::new(),
            );
            Some(Registered {
                desc: desc.ok(),
                help,
                allowed: metric_options::allowed_values(self.name),
                series: RwLock::default(),
            })
        });
        let registered = registered.as_ref()?;
        if is_first {
            if let Err(why) = prometheus::register(Box::new(self)) {
                tracing::error!("the metric {}: {why}", self.name);
            }
            if self.labels.is_empty() {
                self.with(&[], |_| ());
            } else {
                add_resettable(self);
            }
        }
        Some(registered)
    }

    /// Runs `work` on the series of these label values. Costs a look-up, and no allocation once
    /// the series exists.
    pub(super) fn with<R>(&'static self, values: &[&str], work: impl FnOnce(&S) -> R) -> Option<R> {
        thread_local!(static KEY: RefCell<String> = const { RefCell::new(String::new()) });
        debug_assert_eq!(values.len(), self.labels.len(), "labels of {}", self.name);
        let registered = self.registered()?;
        let all = &registered.series;
        KEY.with_borrow_mut(|key| {
            key.clear();
            for (at, (label, value)) in self.labels.iter().zip(values).enumerate() {
                if at > 0 {
                    key.push(SEPARATOR);
                }
                let value = match registered.allowed {
                    Some(allowed) => metric_options::constrain(allowed, label, value),
                    None => Cow::Borrowed(*value),
                };
                key.push_str(&value);
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
                all.insert(key.clone(), self.create(key, &registered.help)?);
            }
            all.get(key.as_str()).map(work)
        })
    }

    /// Removes the series of these label values, if there is one.
    pub(super) fn remove(&'static self, values: &[&str]) {
        if let Some(registered) = self.registered() {
            let key = values.join(&SEPARATOR.to_string());
            registered.series.write().remove(&key);
        }
    }

    /// Runs `work` on all series.
    #[cfg(test)]
    pub(super) fn for_each(&'static self, work: impl FnMut(&S)) {
        if let Some(registered) = self.registered() {
            registered.series.read().values().for_each(work);
        }
    }

    /// Returns the series of a key, unless the names of its labels are not valid.
    fn create(&self, key: &str, help: &str) -> Option<S> {
        let values = key.split(SEPARATOR).map(str::to_owned);
        let names = self.labels.iter().map(|label| (*label).to_owned());
        let opts = Opts::new(self.name, help).const_labels(names.zip(values).collect());
        S::create(opts, self.buckets).ok()
    }
}

impl<S: Series> Reset for Family<S> {
    fn reset(&self) {
        if let Some(Some(registered)) = self.registered.get() {
            registered.series.write().clear();
        }
    }
}

impl<S: Series> Collector for &'static Family<S> {
    fn desc(&self) -> Vec<&Desc> {
        let registered = self.registered.get().and_then(Option::as_ref);
        registered
            .and_then(|family| family.desc.as_ref())
            .into_iter()
            .collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Some(Some(registered)) = self.registered.get() else {
            return Vec::new();
        };
        let series = registered.series.read();
        let series = series.values().map(Metric::metric).collect();
        vec![family(self.name, &registered.help, S::TYPE, series)]
    }
}

/// A series that is looked up when it is first used, and again after a reset. For what changes
/// often.
pub(super) struct Bound<S: 'static> {
    family: &'static Family<S>,
    values: Box<[Box<str>]>,
    found: ArcSwapOption<Found<S>>,
}

/// A series as it was found; `None` where the metric is not shown.
struct Found<S> {
    resets: u32,
    series: Option<S>,
}

impl<S: Series> Bound<S> {
    pub(super) fn new(family: &'static Family<S>, values: &[&str]) -> Self {
        Self {
            family,
            values: values.iter().map(|value| (*value).into()).collect(),
            found: ArcSwapOption::empty(),
        }
    }

    /// Runs `work` on the series, if the metric is shown.
    pub(super) fn with<R>(&self, work: impl FnOnce(&S) -> R) -> Option<R> {
        let resets = RESETS.load(Ordering::Acquire);
        if let Some(found) = &*self.found.load()
            && found.resets == resets
        {
            return found.series.as_ref().map(work);
        }
        let values: Vec<&str> = self.values.iter().map(AsRef::as_ref).collect();
        let series = self.family.with(&values, S::clone);
        let result = series.as_ref().map(work);
        self.found.store(Some(Arc::new(Found { resets, series })));
        result
    }
}
