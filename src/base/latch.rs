//! Something that comes once, such as the end of a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// A moment that everyone can wait for. Clones share it. Whether it has come is cheap to ask, even
/// for thousands at once: the token would take a lock to tell.
#[derive(Clone, Debug, Default)]
pub struct Latch {
    is_triggered: Arc<AtomicBool>,
    /// Milliseconds over which what it starts is spread.
    spread: Arc<AtomicU64>,
    token: CancellationToken,
}

impl Latch {
    /// It is here, and what it starts is to begin within so much time.
    pub fn trigger_within(&self, spread: Duration) {
        self.spread.store(
            u64::try_from(spread.as_millis()).unwrap_or(u64::MAX),
            Ordering::Release,
        );
        self.trigger();
    }

    /// Over how much time to spread what it starts; nothing before it has come.
    pub fn spread(&self) -> Duration {
        Duration::from_millis(self.spread.load(Ordering::Acquire))
    }

    /// It is here; it never goes.
    pub fn trigger(&self) {
        self.is_triggered.store(true, Ordering::Release);
        self.token.cancel();
    }

    pub fn is_triggered(&self) -> bool {
        self.is_triggered.load(Ordering::Acquire)
    }

    pub async fn wait(&self) {
        self.token.cancelled().await;
    }
}
