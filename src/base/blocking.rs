//! CPU-bound work inside async tasks.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// The maximum number of threads that run blocking work at once, besides the runtime's workers.
/// Each of them holds its result in memory. Work beyond that runs on the worker and delays its
/// other tasks.
const MAX_BLOCKING_THREADS: usize = 16;

/// The size in bytes from which a request body or an object counts as large. Work on it may take
/// milliseconds and goes through [`run_blocking`].
pub const LARGE_BYTES: usize = 64 * 1024;

static BLOCKING_THREADS: AtomicUsize = AtomicUsize::new(0);

/// A slot among the blocking threads, released on drop.
struct Permit(&'static AtomicUsize);

impl Permit {
    /// Takes a slot; `None` if all are in use.
    fn try_acquire(counter: &'static AtomicUsize) -> Option<Self> {
        let acquired = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
            (count < MAX_BLOCKING_THREADS).then_some(count + 1)
        });
        acquired.ok().map(|_| Self(counter))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs CPU-bound work in place via `block_in_place`, so that another thread takes over the other
/// tasks of this worker. On a current-thread runtime, or outside of one, it just runs the work.
pub fn run_blocking<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => match Permit::try_acquire(&BLOCKING_THREADS) {
            Some(_permit) => block_in_place(work),
            None => work(),
        },
        _ => work(),
    }
}

/// Runs work through [`run_blocking`] if `large`, else directly: handing over the worker's tasks
/// costs the wake-up of a thread.
pub fn run_blocking_if<T>(large: bool, work: impl FnOnce() -> T) -> T {
    if large { run_blocking(work) } else { work() }
}

/// Awaits a future whose work is CPU-bound if `slow` through `block_in_place`, like
/// [`run_blocking`], else directly.
pub async fn run_future_blocking_if<T>(slow: bool, work: impl Future<Output = T>) -> T {
    if slow
        && let Ok(handle) = Handle::try_current()
        && handle.runtime_flavor() == RuntimeFlavor::MultiThread
        && let Some(_permit) = Permit::try_acquire(&BLOCKING_THREADS)
    {
        return block_in_place(|| handle.block_on(work));
    }
    work.await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    /// Time limit for the other thread, after which the test fails.
    const LIMIT: Duration = Duration::from_secs(30);

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_run_during_blocking_work() {
        let (sender, receiver) = mpsc::channel();
        let waiting = tokio::spawn(async move {
            let other = tokio::spawn(async move { sender.send(7) });
            let received = run_blocking(|| receiver.recv_timeout(LIMIT));
            (received, other.await.expect("it ends"))
        });
        assert_eq!(waiting.await.expect("it ends"), (Ok(7), Ok(())));
    }

    #[test]
    fn permits_are_bounded_and_released() {
        static COUNTER: AtomicUsize = AtomicUsize::new(0);
        let permits: Vec<_> = (0..2 * MAX_BLOCKING_THREADS)
            .map_while(|_| Permit::try_acquire(&COUNTER))
            .collect();
        assert_eq!(permits.len(), MAX_BLOCKING_THREADS);
        drop(permits);
        assert!(Permit::try_acquire(&COUNTER).is_some());
    }

    #[tokio::test]
    async fn a_current_thread_runtime_runs_the_work_inline() {
        assert_eq!(run_blocking(|| 7), 7);
    }

    #[test]
    fn work_runs_inline_without_a_runtime() {
        assert_eq!(run_blocking(|| 7), 7);
    }
}
