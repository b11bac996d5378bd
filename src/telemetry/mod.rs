//! Metrics, tracing and health registries; each module declares its own metrics next to its code.

pub mod config_reloads;
pub mod exposition;
mod family;
pub mod health;
pub mod latency;
pub mod log;
pub mod metric_options;
pub mod metrics;
pub mod panics;
pub mod process;
pub mod requests;
mod samples;
pub mod summary;
pub mod timing_histogram;
pub mod trace;
pub mod work_queues;
