//! Metrics of this program's own: the threads and tasks of its runtime, and its memory budgets.

use std::time::Duration;

use tokio::runtime::Handle;

use crate::endpoints::request_body::BodyBudget;
use crate::telemetry::metrics::{Declared, FloatGauge, Gauge};

static WORKERS: Gauge = Gauge::new(
    "keelson_runtime_workers",
    "Number of threads that answer requests.",
    &[],
);
static TASKS: Gauge = Gauge::new(
    "keelson_runtime_alive_tasks",
    "Number of tasks that have begun and not ended.",
    &[],
);
static QUEUED: Gauge = Gauge::new(
    "keelson_runtime_global_queue_depth",
    "Number of tasks that wait for any of the threads.",
    &[],
);
static BUSY: FloatGauge = FloatGauge::new(
    "keelson_runtime_busy_seconds",
    "Time that the threads have spent running tasks since the server started.",
    &[],
);
static BODY_BYTES: Gauge = Gauge::new(
    "keelson_request_bodies_bytes",
    "Bytes of memory that bodies of requests take now.",
    &[],
);
static BODY_LIMIT: Gauge = Gauge::new(
    "keelson_request_bodies_limit_bytes",
    "Bytes of memory that bodies of requests may take at the same time.",
    &[],
);
pub static METRICS: &[&dyn Declared] =
    &[&WORKERS, &TASKS, &QUEUED, &BUSY, &BODY_BYTES, &BODY_LIMIT];

/// Brings the gauges up to date.
pub fn refresh(bodies: &BodyBudget) {
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    if let Ok(runtime) = Handle::try_current() {
        let metrics = runtime.metrics();
        WORKERS.set(&[], number(metrics.num_workers()));
        TASKS.set(&[], number(metrics.num_alive_tasks()));
        QUEUED.set(&[], number(metrics.global_queue_depth()));
        let busy =
            (0..metrics.num_workers()).map(|worker| metrics.worker_total_busy_duration(worker));
        BUSY.set(&[], busy.sum::<Duration>().as_secs_f64());
    }
    BODY_BYTES.set(&[], number(bodies.taken()));
    BODY_LIMIT.set(&[], number(bodies.limit()));
}
