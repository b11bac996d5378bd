//! Shutdown in phases that tasks can wait for: stopping (no longer ready), draining (no new
//! requests), closing (no connections) (apiserver `server/genericapiserver.go`).

use std::process;
use std::time::Duration;

use tokio_util::task::TaskTracker;

use crate::base::latch::Latch;
use crate::options::config;
use crate::telemetry::requests;

/// The fewest watches that end in a second when a shutdown spreads their ends.
const WATCHES_PER_SECOND: f64 = 200.0;

/// The phases. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    stopping: Latch,
    /// The rest of the cluster does not count on this server any more.
    deregistered: Latch,
    draining: Latch,
    closing: Latch,
    tasks: TaskTracker,
    /// The requests that are to finish before connections close, and the watches.
    requests: TaskTracker,
    watches: TaskTracker,
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

    /// Notes that this server is no endpoint of its cluster any more.
    pub fn set_deregistered(&self) {
        self.deregistered.trigger();
    }

    /// Step two: new requests are turned away; watches should end. Implies step one. The ends of
    /// `watches` watches are spread over `grace`, or less if there are few, so that their clients
    /// do not all reconnect at once.
    pub fn drain(&self, grace: Duration, watches: u64) {
        self.stopping.trigger();
        let spread = Duration::from_secs_f64(watches as f64 / WATCHES_PER_SECOND);
        self.draining.trigger_within(grace.min(spread), watches);
    }

    /// Step three: no more connections. Implies the others.
    pub fn close(&self) {
        self.stopping.trigger();
        self.draining.trigger();
        self.closing.trigger();
    }

    /// Shuts down: stops, drains after the delay of the configuration, and closes; where new
    /// requests are to be told to go elsewhere, when those that run have finished or had
    /// `request_timeout`.
    pub async fn leave(&self, config: &config::Shutdown, request_timeout: Duration) {
        tracing::info!("shutting down");
        self.stop();
        // Requests come in for as long as others take this server for an endpoint.
        tokio::join!(tokio::time::sleep(config.delay), self.deregistered.wait());
        self.drain(config.watch_grace, requests::open_long_running());
        if config.send_retry_after {
            let longest = request_timeout.max(config.watch_grace);
            if tokio::time::timeout(longest, self.finished())
                .await
                .is_err()
            {
                tracing::warn!("requests were still running after {longest:?}");
            }
        }
        self.close();
    }

    /// [`Shutdown::leave`] at the first signal. A second signal exits the process at once.
    pub async fn on_signals(
        self,
        mut signals: Signals,
        config: config::Shutdown,
        request_timeout: Duration,
    ) {
        signals.next().await;
        tokio::select! {
            () = self.leave(&config, request_timeout) => {}
            () = signals.next() => process::exit(1),
        }
        signals.next().await;
        process::exit(1);
    }

    /// Waits until the requests that have begun are finished, and the watches for which there is a
    /// grace period.
    async fn finished(&self) {
        for tracker in [&self.requests, &self.watches] {
            tracker.close();
            tracker.wait().await;
        }
    }

    /// The tasks that a shutdown waits for: connections, and what they become.
    pub fn tasks(&self) -> TaskTracker {
        self.tasks.clone()
    }

    /// The requests that run and are not watches or streams.
    pub fn requests(&self) -> &TaskTracker {
        &self.requests
    }

    /// The watches that have a grace period.
    pub fn watches(&self) -> &TaskTracker {
        &self.watches
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.is_triggered()
    }

    pub fn is_draining(&self) -> bool {
        self.draining.is_triggered()
    }

    /// Waits for step one.
    pub async fn stopped(&self) {
        self.stopping.wait().await;
    }

    /// Waits for step two.
    pub async fn drained(&self) {
        self.draining.wait().await;
    }

    /// Waits for step three.
    pub async fn closed(&self) {
        self.closing.wait().await;
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
        shutdown.clone().drain(Duration::ZERO, 0);
        shutdown.drained().await;
        shutdown.stopped().await;
    }

    #[test]
    fn few_watches_end_soon_and_many_within_the_grace_period() {
        for (grace, watches, millis) in [
            (10, 0, 0),
            (10, 100, 495),
            (10, 100_000, 9_999),
            (0, 100_000, 0),
        ] {
            let shutdown = Shutdown::new();
            shutdown.drain(Duration::from_secs(grace), watches);
            let turns = (0..watches).map(|_| shutdown.draining().next_turn());
            let last = turns.max().unwrap_or_default();
            assert_eq!(last.as_millis(), millis, "{grace} {watches}");
        }
    }
}
