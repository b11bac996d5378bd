//! Events in batches, written in the background (apiserver `plugin/pkg/audit/buffered`).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use crate::base::supervise::catch_panic;

use super::backend::{Backend, Exporter, Outcome};
use super::event::Event;
use super::metrics::record_failure;

const PLUGIN: &str = "buffered";
/// The time that the events which are left have when the server ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of batches that are being written at the same time. Beyond that, the buffer
/// fills.
const MAX_CONCURRENT_BATCHES: usize = 64;

/// The settings of batches (`--audit-*-batch-*`).
#[derive(Clone, Debug, PartialEq)]
pub struct BatchSettings {
    /// The events that wait at most; further ones are lost.
    pub buffer_size: usize,
    pub max_size: usize,
    pub max_wait: Duration,
    /// Batches a second, and how many may come at once; `None` for any number.
    pub throttle: Option<(f64, f64)>,
    /// Batches are written beside each other.
    pub concurrent: bool,
}

/// A backend that collects events.
pub struct Buffered {
    sender: Mutex<Option<mpsc::Sender<Event>>>,
    task: Mutex<Option<JoinHandle<()>>>,
    exporter: &'static str,
}

impl Buffered {
    /// Starts to collect. Must be called in a runtime.
    pub fn start(exporter: impl Exporter + 'static, settings: BatchSettings) -> Self {
        let (sender, receiver) = mpsc::channel(settings.buffer_size.max(1));
        let name = exporter.name();
        let task = Task {
            exporter: Arc::new(exporter),
            throttle: settings
                .throttle
                .map(|(qps, burst)| Throttle::new(qps, burst)),
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT_BATCHES)),
            writing: JoinSet::new(),
            receiver,
            settings,
        };
        Self {
            sender: Mutex::new(Some(sender)),
            task: Mutex::new(Some(tokio::spawn(task.run()))),
            exporter: name,
        }
    }
}

#[async_trait]
impl Backend for Buffered {
    fn process(&self, event: &Event) -> Outcome {
        let why = match &*self.sender.lock() {
            Some(sender) => match sender.try_send(event.clone()) {
                Ok(()) => return Outcome::Done(true),
                Err(_) => "audit buffer queue blocked",
            },
            None => "audit backend shut down",
        };
        record_failure(PLUGIN, why, std::slice::from_ref(event));
        Outcome::Done(true)
    }

    async fn shut_down(&self) {
        // The task ends when it has handed over what is left.
        drop(self.sender.lock().take());
        let task = self.task.lock().take();
        if let Some(mut task) = task
            && timeout(SHUTDOWN_TIMEOUT, &mut task).await.is_err()
        {
            tracing::error!("audit events are lost: they could not be written in time");
            task.abort();
        }
    }

    fn name(&self) -> String {
        format!("{PLUGIN}<{}>", self.exporter)
    }
}

/// The task behind a [`Buffered`].
struct Task<E> {
    receiver: mpsc::Receiver<Event>,
    exporter: Arc<E>,
    settings: BatchSettings,
    throttle: Option<Throttle>,
    permits: Arc<Semaphore>,
    writing: JoinSet<()>,
}

impl<E: Exporter + 'static> Task<E> {
    async fn run(mut self) {
        loop {
            let (batch, ended) = self.collect().await;
            if !batch.is_empty() {
                self.write(batch).await;
            }
            while self.writing.try_join_next().is_some() {}
            if ended {
                break;
            }
        }
        self.writing.join_all().await;
    }

    /// Collects a batch. Reports whether it is the last.
    async fn collect(&mut self) -> (Vec<Event>, bool) {
        let (max, end) = (
            self.settings.max_size.max(1),
            Instant::now() + self.settings.max_wait,
        );
        let mut batch = Vec::new();
        while batch.len() < max {
            tokio::select! {
                biased;
                event = self.receiver.recv() => match event {
                    Some(event) => batch.push(event),
                    None => return (batch, true),
                },
                () = sleep_until(end), if max > 1 && !batch.is_empty() => break,
            }
        }
        (batch, false)
    }

    async fn write(&mut self, batch: Vec<Event>) {
        if let Some(throttle) = &mut self.throttle {
            throttle.wait().await;
        }
        let exporter = self.exporter.clone();
        if !self.settings.concurrent {
            // A panic has been logged; the events are lost.
            let _ = catch_panic("the audit backend", exporter.export(batch)).await;
            return;
        }
        // The semaphore is never closed.
        let permit = self.permits.clone().acquire_owned().await;
        self.writing.spawn(async move {
            let _ = catch_panic("the audit backend", exporter.export(batch)).await;
            drop(permit);
        });
    }
}

/// A bucket of tokens, which refills steadily (client-go `util/flowcontrol`).
struct Throttle {
    per_second: f64,
    burst: f64,
    tokens: f64,
    filled: Instant,
}

impl Throttle {
    fn new(per_second: f64, burst: f64) -> Self {
        Self {
            per_second,
            burst,
            tokens: burst,
            filled: Instant::now(),
        }
    }

    /// Waits for a token, and takes it.
    async fn wait(&mut self) {
        let now = Instant::now();
        let new = (now - self.filled).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + new).min(self.burst) - 1.0;
        self.filled = now;
        if self.tokens < 0.0 {
            let missing = -self.tokens / self.per_second;
            sleep_until(now + Duration::from_secs_f64(missing)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes of the batches, and when they came.
    #[derive(Clone, Default)]
    struct Batches(Arc<Mutex<Vec<(usize, Duration)>>>, Option<Instant>);

    #[async_trait]
    impl Exporter for Batches {
        async fn export(&self, events: Vec<Event>) -> bool {
            let at = self.1.map_or(Duration::ZERO, |start| start.elapsed());
            self.0.lock().push((events.len(), at));
            true
        }

        fn export_now(&self, _: &Event) -> Option<bool> {
            None
        }

        fn name(&self) -> &'static str {
            "test"
        }
    }

    async fn run(settings: BatchSettings, events: usize) -> Vec<(usize, Duration)> {
        let batches = Batches(Arc::default(), Some(Instant::now()));
        let buffered = Buffered::start(batches.clone(), settings);
        for _ in 0..events {
            assert!(buffered.process(&Event::default()).wait().await);
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        buffered.shut_down().await;
        assert!(
            buffered.process(&Event::default()).wait().await,
            "it is lost"
        );
        let batches = batches.0.lock();
        batches.clone()
    }

    fn settings(max_size: usize) -> BatchSettings {
        BatchSettings {
            buffer_size: 1000,
            max_size,
            max_wait: Duration::from_secs(30),
            throttle: None,
            concurrent: false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn batches_are_full_or_late() {
        let sizes = run(settings(4), 10).await;
        let late = Duration::from_secs(30);
        let zero = Duration::ZERO;
        assert_eq!(sizes.len(), 3, "{sizes:?}");
        assert_eq!(sizes[..2], [(4, zero), (4, zero)]);
        assert!(sizes[2].0 == 2 && sizes[2].1 >= late, "{sizes:?}");
        assert_eq!(run(settings(1), 3).await, [(1, zero); 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn batches_are_throttled() {
        let throttled = BatchSettings {
            throttle: Some((2.0, 3.0)),
            ..settings(1)
        };
        let times: Vec<u64> = run(throttled, 6)
            .await
            .iter()
            .map(|(_, at)| u64::try_from(at.as_millis()).expect("a time") / 100)
            .collect();
        assert_eq!(times, [0, 0, 0, 5, 10, 15]);
    }

    #[tokio::test(start_paused = true)]
    async fn events_beyond_the_buffer_are_lost() {
        let small = BatchSettings {
            buffer_size: 5,
            ..settings(1)
        };
        assert_eq!(run(small, 8).await.len(), 5);
    }
}
