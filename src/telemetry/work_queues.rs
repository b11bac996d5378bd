//! The metrics of queues of work (component-base `metrics/prometheus/workqueue`).

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::base::work_queue::QueueObserver;

use super::metrics::{
    Counter, CounterSeries, Declared, FloatGauge, Gauge, GaugeSeries, Histogram, HistogramSeries,
};

const NAME: &[&str] = &["name"];
/// The buckets of durations: ten, each ten times the one before.
const SECONDS: &[f64] = &[
    1e-8,
    1e-7,
    1e-6,
    9.999_999_999_999_999e-6,
    9.999_999_999_999_999e-5,
    0.001,
    0.01,
    0.1,
    1.0,
    10.0,
];

static DEPTH: Gauge = Gauge::new("workqueue_depth", "[BETA] Current depth of workqueue", NAME);
static ADDS: Counter = Counter::new(
    "workqueue_adds_total",
    "[BETA] Total number of adds handled by workqueue",
    NAME,
);
static QUEUE_SECONDS: Histogram = Histogram::new(
    "workqueue_queue_duration_seconds",
    "[BETA] How long in seconds an item stays in workqueue before being requested.",
    NAME,
    SECONDS,
);
static WORK_SECONDS: Histogram = Histogram::new(
    "workqueue_work_duration_seconds",
    "[BETA] How long in seconds processing an item from workqueue takes.",
    NAME,
    SECONDS,
);
static UNFINISHED: FloatGauge = FloatGauge::new(
    "workqueue_unfinished_work_seconds",
    "[BETA] How many seconds of work has done that is in progress and hasn't been observed by work_duration. Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases.",
    NAME,
);
static LONGEST: FloatGauge = FloatGauge::new(
    "workqueue_longest_running_processor_seconds",
    "[BETA] How many seconds has the longest running processor for workqueue been running.",
    NAME,
);
static RETRIES: Counter = Counter::new(
    "workqueue_retries_total",
    "[BETA] Total number of retries handled by workqueue",
    NAME,
);
pub static METRICS: &[&dyn Declared] = &[
    &DEPTH,
    &ADDS,
    &QUEUE_SECONDS,
    &WORK_SECONDS,
    &UNFINISHED,
    &LONGEST,
    &RETRIES,
];

/// The queues whose work in progress is shown.
static QUEUES: Mutex<Vec<Weak<InProgress>>> = Mutex::new(Vec::new());

/// The times at which the work that is under way began.
struct InProgress {
    name: &'static str,
    began: Mutex<Vec<Instant>>,
}

/// The series of one queue.
pub struct QueueMetrics {
    depth: GaugeSeries,
    adds: CounterSeries,
    queue_seconds: HistogramSeries,
    work_seconds: HistogramSeries,
    retries: CounterSeries,
    in_progress: Arc<InProgress>,
}

impl QueueMetrics {
    /// The series of the queue of a name.
    pub fn new(name: &'static str) -> Self {
        let labels = [name];
        let in_progress = Arc::new(InProgress {
            name,
            began: Mutex::default(),
        });
        let mut queues = QUEUES.lock();
        queues.retain(|queue| queue.strong_count() > 0);
        queues.push(Arc::downgrade(&in_progress));
        let metrics = Self {
            depth: DEPTH.series(&labels),
            adds: ADDS.series(&labels),
            queue_seconds: QUEUE_SECONDS.series(&labels),
            work_seconds: WORK_SECONDS.series(&labels),
            retries: RETRIES.series(&labels),
            in_progress,
        };
        // Seen before anything is added, as upstream's are.
        metrics.depth.add(0);
        metrics.adds.add(0);
        metrics.retries.add(0);
        QUEUE_SECONDS.touch(&labels);
        WORK_SECONDS.touch(&labels);
        metrics
    }
}

impl QueueObserver for QueueMetrics {
    fn added(&self, items: usize) {
        self.adds.add(items as u64);
        self.depth.add(i64::try_from(items).unwrap_or(i64::MAX));
    }

    fn taken(&self, waited: Duration, began: Instant) {
        self.depth.add(-1);
        self.queue_seconds.observe(waited.as_secs_f64());
        self.in_progress.began.lock().push(began);
    }

    fn done(&self, began: Instant) {
        self.work_seconds.observe(began.elapsed().as_secs_f64());
        let mut all = self.in_progress.began.lock();
        if let Some(at) = all.iter().position(|one| *one == began) {
            all.swap_remove(at);
        }
    }

    fn retried(&self) {
        self.retries.inc();
    }
}

/// Brings the gauges of work in progress up to date.
pub fn refresh() {
    let queues: Vec<_> = QUEUES.lock().iter().filter_map(Weak::upgrade).collect();
    for queue in queues {
        let seconds = |at: &Instant| at.elapsed().as_secs_f64();
        let running: Vec<f64> = queue.began.lock().iter().map(seconds).collect();
        UNFINISHED.set(&[queue.name], running.iter().sum());
        LONGEST.set(&[queue.name], running.iter().copied().fold(0.0, f64::max));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::exposition::{Format, render};

    #[test]
    fn items_are_counted_from_their_coming_to_their_end() {
        let queue = QueueMetrics::new("test_queue");
        let text = render(Format::Text);
        assert!(
            text.contains("workqueue_depth{name=\"test_queue\"} 0\n"),
            "{text}"
        );
        queue.added(3);
        let began = Instant::now();
        queue.taken(Duration::from_secs(2), began);
        queue.taken(Duration::ZERO, began + Duration::from_nanos(1));
        queue.done(began);
        queue.retried();
        refresh();
        let text = render(Format::Text);
        for line in [
            "workqueue_depth{name=\"test_queue\"} 1\n",
            "workqueue_adds_total{name=\"test_queue\"} 3\n",
            "workqueue_retries_total{name=\"test_queue\"} 1\n",
            "workqueue_queue_duration_seconds_bucket{name=\"test_queue\",le=\"1e-08\"} 1\n",
            "workqueue_queue_duration_seconds_sum{name=\"test_queue\"} 2\n",
            "workqueue_work_duration_seconds_bucket{name=\"test_queue\",le=\"10\"} 1\n",
            "workqueue_unfinished_work_seconds{name=\"test_queue\"} ",
            "workqueue_longest_running_processor_seconds{name=\"test_queue\"} ",
        ] {
            assert!(text.contains(line), "{line}\nis not in\n{text}");
        }
        assert_eq!(queue.in_progress.began.lock().len(), 1);
    }
}
