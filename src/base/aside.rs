//! Work that takes long and does not wait.

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// Does something that takes long where it stands, while another thread takes over the other tasks of this one. It costs waking that
/// thread. Where there are no threads to take over, as in most tests, or no tasks at all, it is just done.
pub fn aside<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => block_in_place(work),
        _ => work(),
    }
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
            let heard = aside(|| told.recv_timeout(LIMIT));
            (heard, other.await.expect("it ends"))
        });
        assert_eq!(waiting.await.expect("it ends"), (Ok(7), Ok(())));
    }

    #[tokio::test]
    async fn one_thread_does_it_itself() {
        assert_eq!(aside(|| 7), 7);
    }

    #[test]
    fn it_needs_no_runtime() {
        assert_eq!(aside(|| 7), 7);
    }
}
