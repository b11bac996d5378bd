//! Logging: tracing events to stderr, at the verbosity of `-v`.

use std::sync::atomic::{AtomicBool, Ordering};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

/// Overrides `-v`, in the syntax of tracing-subscriber's EnvFilter.
pub const FILTER_VARIABLE: &str = "KEELSON_LOG";

/// klog's verbosity from which on there is a line for each request (apiserver `server/httplog`).
const REQUESTS: i64 = 3;

/// True if each request is logged.
static LOGS_REQUESTS: AtomicBool = AtomicBool::new(false);

/// Reports whether each request is to be logged.
pub fn logs_requests() -> bool {
    LOGS_REQUESTS.load(Ordering::Relaxed)
}

/// Starts logging for the process, with klog's verbosity (0 to 10), as lines of text or JSON. A
/// second call changes nothing.
pub fn start(verbosity: i64, json: bool) {
    LOGS_REQUESTS.store(verbosity >= REQUESTS, Ordering::Relaxed);
    let filter = EnvFilter::builder()
        .with_default_directive(level(verbosity).into())
        .with_env_var(FILTER_VARIABLE)
        .from_env_lossy();
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(verbosity >= 4);
    // An error means that logging has been started already.
    let _ = if json {
        lines.json().try_init()
    } else {
        lines.with_ansi(false).try_init()
    };
}

/// klog's levels, roughly: 0 to 3 report what an operator should know (3 also each request), from 4
/// on debugging. Release builds have no more: HTTP/2 would ask a hundred times for each frame
/// whether to.
fn level(verbosity: i64) -> LevelFilter {
    match verbosity {
        ..=3 => LevelFilter::INFO,
        _ => LevelFilter::DEBUG,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbosity_is_monotonic() {
        assert_eq!(
            [0, 3, 4, 10].map(level),
            [
                LevelFilter::INFO,
                LevelFilter::INFO,
                LevelFilter::DEBUG,
                LevelFilter::DEBUG
            ]
        );
    }
}
