//! Something that comes once, such as the end of a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// A moment that everyone can wait for. Clones share it. Whether it has come is cheap to ask, even
/// for thousands at once: the token would take a lock to tell.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    has_come: Arc<AtomicBool>,
    /// Milliseconds over which what it starts is spread.
    spread: Arc<AtomicU64>,
    token: CancellationToken,
}

impl Moment {
    /// It is here, and what it starts is to begin within so much time.
    pub fn come_within(&self, spread: Duration) {
        self.spread.store(
            u64::try_from(spread.as_millis()).unwrap_or(u64::MAX),
            Ordering::Release,
        );
        self.come();
    }

    /// Over how much time to spread what it starts; nothing before it has come.
    pub fn spread(&self) -> Duration {
        Duration::from_millis(self.spread.load(Ordering::Acquire))
    }

    /// It is here; it never goes.
    pub fn come(&self) {
        self.has_come.store(true, Ordering::Release);
        self.token.cancel();
    }

    pub fn has_come(&self) -> bool {
        self.has_come.load(Ordering::Acquire)
    }

    pub async fn wait(&self) {
        self.token.cancelled().await;
    }
}
