//! Metrics, tracing and health registries; each module declares its own metrics next to its code.

pub mod config_reloads;
pub mod exposition;
pub mod health;
pub mod log;
pub mod metrics;
pub mod panics;
pub mod process;
pub mod requests;
pub mod summary;
pub mod timing_histogram;
