//! Supervision of background tasks: panics are caught and logged, and a lasting failure is logged
//! when it starts, when its cause changes and when it ends.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use parking_lot::Mutex;

/// Runs a part of the background task named `task` and turns a panic into an error. The caller is
/// expected to restart the work and to repair the state that it left behind.
///
/// # Errors
/// Returns the panic message, which has been logged with the name of the task.
pub async fn catch_panic<T>(task: &str, work: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(work)
        .catch_unwind()
        .await
        .map_err(|panic| panicked(task, panic.as_ref()))
}

/// [`catch_panic`] for synchronous work.
///
/// # Errors
/// Returns the panic message, which has been logged with the name of the task.
pub fn catch_panic_sync<T>(task: &str, work: impl FnOnce() -> T) -> Result<T, String> {
    std::panic::catch_unwind(AssertUnwindSafe(work)).map_err(|panic| panicked(task, panic.as_ref()))
}

fn panicked(task: &str, panic: &(dyn Any + Send)) -> String {
    let message = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    tracing::error!(
        task,
        "a background task panicked and is restarted: {message}"
    );
    format!("{task} panicked: {message}")
}

/// The maximum number of causes of one failure that are remembered and logged: a long outage has
/// many messages.
const MAX_CAUSES: usize = 8;

/// The health of one operation that is attempted again and again. Only changes are logged.
#[derive(Debug)]
pub struct FailureTracker {
    operation: String,
    /// The first causes of the present failure and the last one; empty while the operation works.
    causes: Mutex<Vec<String>>,
}

impl FailureTracker {
    /// Tracks `operation`, a gerund such as "writing to the store" that log messages start with.
    pub fn new(operation: impl Into<String>) -> Self {
        Self {
            operation: operation.into(),
            causes: Mutex::default(),
        }
    }

    /// Records a failed attempt. Logs it if the operation worked before or the cause is new.
    pub fn record_failure(&self, cause: &str) {
        let mut causes = self.causes.lock();
        if let Some(at) = causes.iter().position(|known| known == cause) {
            causes[at..].rotate_left(1);
            return;
        }
        if causes.len() < MAX_CAUSES {
            tracing::warn!("{} fails: {cause}", self.operation);
        } else {
            causes.pop();
        }
        causes.push(cause.to_owned());
    }

    /// Records a successful attempt. Logs it if the operation failed before.
    pub fn record_success(&self) {
        let mut causes = self.causes.lock();
        if !causes.is_empty() {
            tracing::info!("{} works again", self.operation);
            causes.clear();
        }
    }

    /// Returns the operation and the last cause of its failure; `None` while it works.
    pub fn failure(&self) -> Option<String> {
        self.causes
            .lock()
            .last()
            .map(|cause| format!("{}: {cause}", self.operation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_becomes_an_error() {
        assert_eq!(catch_panic("counting", async { 7 }).await, Ok(7));
        let text = "of the second kind".to_owned();
        assert_eq!(
            catch_panic("counting", async { panic!("too far") }).await,
            Err::<(), _>("counting panicked: too far".to_owned())
        );
        assert_eq!(
            catch_panic_sync("counting", || panic!("{text}")),
            Err::<(), _>("counting panicked: of the second kind".to_owned())
        );
    }

    #[test]
    fn a_failure_tracker_remembers_the_last_cause_until_success() {
        let tracker = FailureTracker::new("counting");
        assert_eq!(tracker.failure(), None);
        tracker.record_failure("no fingers");
        assert_eq!(tracker.failure().as_deref(), Some("counting: no fingers"));
        tracker.record_failure("no toes");
        tracker.record_failure("no fingers");
        assert_eq!(tracker.failure().as_deref(), Some("counting: no fingers"));
        (0..100).for_each(|n| tracker.record_failure(&n.to_string()));
        assert_eq!(tracker.failure().as_deref(), Some("counting: 99"));
        assert_eq!(tracker.causes.lock().len(), MAX_CAUSES);
        tracker.record_success();
        assert_eq!(tracker.failure(), None);
    }
}
