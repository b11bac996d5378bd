//! The end of a server, in two steps that everyone can wait for: it is no longer ready, then it takes no more requests.

use crate::base::moment::Moment;

/// The two steps. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    stopping: Moment,
    draining: Moment,
}

impl Shutdown {
    /// A server that goes on until someone stops it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Step one: `/readyz` fails, requests are still served.
    pub fn stop(&self) {
        self.stopping.come();
    }

    /// Step two: no more connections; watches should end. Implies step one.
    pub fn drain(&self) {
        self.stopping.come();
        self.draining.come();
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.has_come()
    }

    /// Waits for step one.
    pub async fn stopped(&self) {
        self.stopping.wait().await;
    }

    /// Waits for step two.
    pub async fn drained(&self) {
        self.draining.wait().await;
    }

    /// Step two, for code that does not know of servers, such as watches.
    pub fn draining(&self) -> Moment {
        self.draining.clone()
    }
}

/// Waits until the process is told to end: SIGTERM or SIGINT.
pub async fn signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            return;
        }
    }
    if tokio::signal::ctrl_c().await.is_err() {
        // Without signals the process runs until it is killed.
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn draining_implies_stopping() {
        let shutdown = Shutdown::new();
        assert!(!shutdown.is_stopping());
        shutdown.stop();
        assert!(shutdown.is_stopping() && !shutdown.draining().has_come());
        shutdown.clone().drain();
        shutdown.drained().await;
        shutdown.stopped().await;
    }
}
