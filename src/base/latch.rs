//! A one-way latch that many tasks can wait for, such as the start of a shutdown.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// A latch that is triggered once and stays so. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Latch {
    token: CancellationToken,
    /// Milliseconds over which the waiters should spread their reactions.
    spread: Arc<AtomicU64>,
}

impl Latch {
    /// Triggers the latch.
    pub fn trigger(&self) {
        self.token.cancel();
    }

    /// Triggers the latch and has the waiters spread their reactions over `spread`.
    pub fn trigger_within(&self, spread: Duration) {
        let millis = u64::try_from(spread.as_millis()).unwrap_or(u64::MAX);
        self.spread.store(millis, Ordering::Release);
        self.trigger();
    }

    /// Returns the time over which waiters should spread their reactions; zero until the latch is
    /// triggered.
    pub fn spread(&self) -> Duration {
        Duration::from_millis(self.spread.load(Ordering::Acquire))
    }

    /// Reports whether the latch has been triggered.
    pub fn is_triggered(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Waits until the latch is triggered.
    pub async fn wait(&self) {
        self.token.cancelled().await;
    }
}
