//! Work that takes long and does not wait.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// How many threads may do so at once, besides those that run tasks; more do it where they stand,
/// and hold up other tasks. Each needs what it makes in memory.
const MAX_RUNNING: usize = 16;

/// Those that do.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// One that does, until it is dropped.
struct Place(&'static AtomicUsize);

impl Place {
    fn take(all: &'static AtomicUsize) -> Option<Self> {
        let taken = all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            (taken < MAX_RUNNING).then_some(taken + 1)
        });
        taken.ok().map(|_| Self(all))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Does something that takes long where it stands, while another thread takes over the other tasks
/// of this one. It costs waking that thread. Where there are no threads to take over, as in most
/// tests, or no tasks at all, it is just done.
pub fn run_blocking<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => match Place::take(&RUNNING) {
            Some(_place) => block_in_place(work),
            None => work(),
        },
        _ => work(),
    }
}

/// The size in bytes from which the bodies and objects of requests are large: what is done with
/// them may take milliseconds, and is done [`run_blocking`].
pub const LARGE_BYTES: usize = 64 * 1024;

/// Does something [`run_blocking`] if what it works on is large, else right here.
pub fn run_blocking_if<T>(large: bool, work: impl FnOnce() -> T) -> T {
    if large { run_blocking(work) } else { work() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    /// How long the other thread may take before the test fails.
    const LIMIT: Duration = Duration::from_secs(30);

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn others_run_meanwhile() {
        let (tell, told) = mpsc::channel();
        let waiting = tokio::spawn(async move {
            let other = tokio::spawn(async move { tell.send(7) });
            let heard = run_blocking(|| told.recv_timeout(LIMIT));
            (heard, other.await.expect("it ends"))
        });
        assert_eq!(waiting.await.expect("it ends"), (Ok(7), Ok(())));
    }

    #[test]
    fn places_are_bounded_and_given_back() {
        static ALL: AtomicUsize = AtomicUsize::new(0);
        let places: Vec<_> = (0..2 * MAX_RUNNING)
            .map_while(|_| Place::take(&ALL))
            .collect();
        assert_eq!(places.len(), MAX_RUNNING);
        drop(places);
        assert!(Place::take(&ALL).is_some());
    }

    #[tokio::test]
    async fn one_thread_does_it_itself() {
        assert_eq!(run_blocking(|| 7), 7);
    }

    #[test]
    fn it_needs_no_runtime() {
        assert_eq!(run_blocking(|| 7), 7);
    }
}
