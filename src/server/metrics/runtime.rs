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
static LIMITS: Gauge = Gauge::new(
    "keelson_memory_budget_bytes",
    "Bytes of memory that requests may hold, by what it is for.",
    &["budget"],
);
static USED: Gauge = Gauge::new(
    "keelson_memory_budget_used_bytes",
    "Bytes of memory that requests hold, by what it is for.",
    &["budget"],
);
pub static METRICS: &[&dyn Declared] = &[&WORKERS, &TASKS, &QUEUED, &BUSY, &LIMITS, &USED];

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
    for budget in bodies.all() {
        LIMITS.set(&[budget.name()], number(budget.limit()));
        USED.set(&[budget.name()], number(budget.used()));
    }
}
