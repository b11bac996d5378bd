//! Shutdown in two phases that tasks can wait for: stopping (no longer ready), then draining (no
//! new requests).

use std::process;
use std::time::Duration;

use tokio_util::task::TaskTracker;

use crate::base::latch::Latch;
use crate::telemetry::requests;

/// The fewest watches that end in a second when a shutdown spreads their ends (apiserver
/// `server/genericapiserver.go`).
const WATCHES_PER_SECOND: f64 = 200.0;

/// The two phases. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    stopping: Latch,
    draining: Latch,
    tasks: TaskTracker,
}

impl Shutdown {
    /// A server that runs until [`Shutdown::stop`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Step one: `/readyz` fails, requests are still served.
    pub fn stop(&self) {
        self.stopping.trigger();
    }

    /// Step two: no more connections; watches should end. Implies step one.
    #[cfg(test)]
    pub fn drain(&self) {
        self.drain_within(Duration::ZERO, 0);
    }

    /// Step two, in which the ends of `watches` watches are spread over `grace`, or less if there
    /// are few, so that their clients do not all reconnect at once.
    pub fn drain_within(&self, grace: Duration, watches: u64) {
        self.stopping.trigger();
        self.draining.trigger_within(
            grace.min(Duration::from_secs_f64(watches as f64 / WATCHES_PER_SECOND)),
        );
    }

    /// Shuts down at the first signal: stops, and drains after `delay`, ending watches within
    /// `grace`. A second signal exits the process at once.
    pub async fn on_signals(self, mut signals: Signals, delay: Duration, grace: Duration) {
        signals.next().await;
        tracing::info!("shutting down");
        self.stop();
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = signals.next() => process::exit(1),
        }
        self.drain_within(grace, requests::open_long_running());
        signals.next().await;
        process::exit(1);
    }

    /// The tasks that a shutdown waits for: connections, and what they become.
    pub fn tasks(&self) -> TaskTracker {
        self.tasks.clone()
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.is_triggered()
    }

    /// Waits for step one.
    pub async fn stopped(&self) {
        self.stopping.wait().await;
    }

    /// Waits for step two.
    pub async fn drained(&self) {
        self.draining.wait().await;
    }

    /// Step one, for code that does not know of servers, such as reconcilers.
    pub fn stopping(&self) -> Latch {
        self.stopping.clone()
    }

    /// Step two, for code that does not know of servers, such as watches.
    pub fn draining(&self) -> Latch {
        self.draining.clone()
    }
}

/// The signals that end the process, SIGTERM and SIGINT. From its creation on none is lost.
#[derive(Debug)]
pub struct Signals {
    #[cfg(unix)]
    unix: Option<(tokio::signal::unix::Signal, tokio::signal::unix::Signal)>,
}

impl Signals {
    pub fn new() -> Self {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            Self {
                unix: signal(SignalKind::terminate())
                    .ok()
                    .zip(signal(SignalKind::interrupt()).ok()),
            }
        }
        #[cfg(not(unix))]
        Self {}
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        #[cfg(unix)]
        if let Some((terminate, interrupt)) = &mut self.unix {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            return;
        }
        if tokio::signal::ctrl_c().await.is_err() {
            // Without signals the process runs until it is killed.
            std::future::pending::<()>().await;
        }
    }
}

impl Default for Signals {
    fn default() -> Self {
        Self::new()
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
        assert!(shutdown.is_stopping() && !shutdown.draining().is_triggered());
        shutdown.clone().drain();
        shutdown.drained().await;
        shutdown.stopped().await;
    }

    #[test]
    fn few_watches_end_soon_and_many_within_the_grace_period() {
        for (grace, watches, millis) in [
            (10, 0, 0),
            (10, 100, 500),
            (10, 100_000, 10_000),
            (0, 100_000, 0),
        ] {
            let shutdown = Shutdown::new();
            shutdown.drain_within(Duration::from_secs(grace), watches);
            assert_eq!(
                shutdown.draining().spread().as_millis(),
                millis,
                "{grace} {watches}"
            );
        }
    }
}
