//! Something that comes once, such as the end of a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

/// A moment that everyone can wait for. Clones share it. Whether it has come is cheap to ask, even for thousands at once: the token
/// would take a lock to tell.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    has_come: Arc<AtomicBool>,
    token: CancellationToken,
}

impl Moment {
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
