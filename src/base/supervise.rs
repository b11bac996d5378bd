//! Background work that must go on: a panic in it is caught and logged, and a failure that lasts is
//! logged when it begins, when its cause changes and when it is over.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use parking_lot::Mutex;

/// Runs a part of a task that begins it anew after a panic. What the work changes must be put right
/// by whoever begins anew.
///
/// # Errors
/// The message of the panic, which has been logged with the name of the task.
pub async fn catch_panic<T>(task: &str, work: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(work)
        .catch_unwind()
        .await
        .map_err(|panic| panicked(task, panic.as_ref()))
}

/// [`catch_panic`] for work that waits for nothing.
///
/// # Errors
/// As of [`catch_panic`].
pub fn catch_panic_sync<T>(task: &str, work: impl FnOnce() -> T) -> Result<T, String> {
    std::panic::catch_unwind(AssertUnwindSafe(work)).map_err(|panic| panicked(task, panic.as_ref()))
}

fn panicked(task: &str, panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let why = text.unwrap_or("no message");
    tracing::error!(task, "a background task panicked and begins anew: {why}");
    format!("{task} panicked: {why}")
}

/// Causes of one failure that are logged, at most: what goes on for long finds many words for it.
const CAUSES: usize = 8;

/// Something that works or does not. Only changes are logged.
#[derive(Debug)]
pub struct FailureTracker {
    what: String,
    /// Why it does not work, the first causes and the last; empty while it does.
    causes: Mutex<Vec<String>>,
}

impl FailureTracker {
    /// `what` fails, or works again, is what the log will say.
    pub fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            causes: Mutex::default(),
        }
    }

    /// It does not work. Logged where it did before, and for another cause than those before.
    pub fn record_failure(&self, cause: &str) {
        let mut causes = self.causes.lock();
        if let Some(at) = causes.iter().position(|known| known == cause) {
            causes[at..].rotate_left(1);
            return;
        }
        if causes.len() < CAUSES {
            tracing::warn!("{} fails: {cause}", self.what);
        } else {
            causes.pop();
        }
        causes.push(cause.to_owned());
    }

    /// It works. Logged where it did not before.
    pub fn record_success(&self) {
        let mut causes = self.causes.lock();
        if !causes.is_empty() {
            tracing::info!("{} works again", self.what);
            causes.clear();
        }
    }

    /// What does not work and why; `None` where it works.
    pub fn failure(&self) -> Option<String> {
        self.causes
            .lock()
            .last()
            .map(|cause| format!("{}: {cause}", self.what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_told_and_others_go_on() {
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
    fn a_condition_remembers_its_cause_until_it_works() {
        let condition = FailureTracker::new("counting");
        assert_eq!(condition.failure(), None);
        condition.record_failure("no fingers");
        assert_eq!(condition.failure().as_deref(), Some("counting: no fingers"));
        condition.record_failure("no toes");
        condition.record_failure("no fingers");
        assert_eq!(condition.failure().as_deref(), Some("counting: no fingers"));
        (0..100).for_each(|n| condition.record_failure(&n.to_string()));
        assert_eq!(condition.failure().as_deref(), Some("counting: 99"));
        assert_eq!(condition.causes.lock().len(), CAUSES);
        condition.record_success();
        assert_eq!(condition.failure(), None);
    }
}
