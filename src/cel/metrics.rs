//! The metrics of expressions (apiserver `cel/metrics`).

use std::sync::LazyLock;
use std::time::Instant;

use crate::telemetry::metrics::{DEFAULT_SECONDS, Declared, Histogram, HistogramSeries};

static COMPILATIONS: Histogram = Histogram::new(
    "apiserver_cel_compilation_duration_seconds",
    "[BETA] CEL compilation time in seconds.",
    &[],
    DEFAULT_SECONDS,
);
static EVALUATIONS: Histogram = Histogram::new(
    "apiserver_cel_evaluation_duration_seconds",
    "[BETA] CEL evaluation time in seconds.",
    &[],
    DEFAULT_SECONDS,
);

pub static METRICS: &[&dyn Declared] = &[&COMPILATIONS, &EVALUATIONS];

/// Takes the time of a compilation that began at a time.
pub(super) fn compiled(begun: Instant) {
    static SERIES: LazyLock<HistogramSeries> = LazyLock::new(|| COMPILATIONS.series(&[]));
    SERIES.observe(begun.elapsed().as_secs_f64());
}

/// Takes the time of what began at a time: the evaluation of all expressions about one object.
pub fn evaluated(begun: Instant) {
    static SERIES: LazyLock<HistogramSeries> = LazyLock::new(|| EVALUATIONS.series(&[]));
    SERIES.observe(begun.elapsed().as_secs_f64());
}
