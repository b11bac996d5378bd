//! Logging: tracing events to stderr, at the verbosity of `-v`, which can be changed while the
//! server runs.

mod format;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use format::Format;

/// Overrides `-v`, in the syntax of tracing-subscriber's EnvFilter.
pub const FILTER_VARIABLE: &str = "KEELSON_LOG";

/// The target of the line of each request.
pub const REQUEST_TARGET: &str = "httplog";
/// The target of the traces of slow requests, which have several lines.
pub const TRACE_TARGET: &str = "trace";

/// klog's verbosity from which on there is a line for each request (apiserver `server/httplog`).
const REQUESTS: i64 = 3;
/// The verbosity from which on there are lines for developers.
const DEBUG: i64 = 4;

/// klog's verbosity, of the process.
static VERBOSITY: AtomicI64 = AtomicI64::new(0);
/// The filter of the process's log, once it has been started.
static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// Returns klog's verbosity.
pub fn verbosity() -> i64 {
    VERBOSITY.load(Ordering::Relaxed)
}

/// Reports whether each request is to be logged.
pub fn logs_requests() -> bool {
    verbosity() >= REQUESTS
}

/// Starts logging for the process, with klog's verbosity (0 to 10), as lines of text or JSON. A
/// second call changes nothing.
pub fn start(verbosity: i64, json: bool) {
    VERBOSITY.store(verbosity, Ordering::Relaxed);
    let (filter, handle) = reload::Layer::new(filter(verbosity));
    let format = if json { Format::Json } else { Format::Text };
    let lines = fmt::layer()
        .event_format(format)
        .with_writer(std::io::stderr);
    let started = tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .try_init();
    // An error means that logging has been started already.
    if started.is_ok() {
        let _ = FILTER.set(handle);
    }
}

/// Changes the verbosity of the running process.
///
/// # Errors
/// The log has not been started.
pub fn set_verbosity(verbosity: i64) -> Result<(), String> {
    let handle = FILTER.get().ok_or("the log has not been started")?;
    handle
        .reload(filter(verbosity))
        .map_err(|why| why.to_string())?;
    VERBOSITY.store(verbosity, Ordering::Relaxed);
    Ok(())
}

fn filter(verbosity: i64) -> EnvFilter {
    EnvFilter::builder()
        .with_default_directive(level(verbosity).into())
        .with_env_var(FILTER_VARIABLE)
        .from_env_lossy()
}

/// klog's levels, roughly: 0 to 3 report what an operator should know (3 also each request), from 4
/// on debugging. Release builds have no more: HTTP/2 would ask a hundred times for each frame
/// whether to.
fn level(verbosity: i64) -> LevelFilter {
    match verbosity {
        ..DEBUG => LevelFilter::INFO,
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
