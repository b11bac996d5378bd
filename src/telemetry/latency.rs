//! The time that a request spends in each part of the server, for its audit event (apiserver
//! `endpoints/request/webhook_duration.go`). Parts that know nothing of requests record theirs for
//! the request that the current task answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::futures::TaskLocalFuture;

/// A part of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    Authentication,
    Authorization,
    Impersonation,
    /// The queues of priority and fairness.
    QueueWait,
    MutatingWebhooks,
    ValidatingWebhooks,
    Storage,
}

impl Layer {
    const ALL: [Self; 7] = [
        Self::Authentication,
        Self::Authorization,
        Self::Impersonation,
        Self::QueueWait,
        Self::MutatingWebhooks,
        Self::ValidatingWebhooks,
        Self::Storage,
    ];

    /// Returns the name of the layer in upstream's annotations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Authentication => "authentication",
            Self::Authorization => "authorization",
            Self::Impersonation => "impersonation",
            Self::QueueWait => "apf-queue-wait",
            Self::MutatingWebhooks => "mutating-webhook",
            Self::ValidatingWebhooks => "validating-webhook",
            Self::Storage => "etcd",
        }
    }

    /// Reports whether the longest time counts, not the sum: its parts are passed side by side.
    fn is_parallel(self) -> bool {
        matches!(
            self,
            Self::Authorization | Self::QueueWait | Self::ValidatingWebhooks
        )
    }
}

/// The times of one request, in nanoseconds.
#[derive(Debug, Default)]
pub struct Latencies([AtomicU64; Layer::ALL.len()]);

impl Latencies {
    /// Adds time.
    pub fn add(&self, layer: Layer, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let Some(known) = self.0.get(layer as usize) else {
            return;
        };
        if layer.is_parallel() {
            known.fetch_max(nanos, Ordering::Relaxed);
        } else {
            known.fetch_add(nanos, Ordering::Relaxed);
        }
    }

    /// Returns the nanoseconds of each layer that took any.
    pub fn all(&self) -> Vec<(Layer, u64)> {
        let times = self.0.iter().map(|time| time.load(Ordering::Relaxed));
        let all = Layer::ALL.into_iter().zip(times);
        all.filter(|(_, nanos)| *nanos > 0).collect()
    }
}

tokio::task_local! {
    static CURRENT: Arc<Latencies>;
}

/// Runs what answers a request, whose times are recorded.
pub fn scope<F: Future>(
    latencies: Arc<Latencies>,
    answer: F,
) -> TaskLocalFuture<Arc<Latencies>, F> {
    CURRENT.scope(latencies, answer)
}

/// Records time of the request that the current task answers, if anybody wants to know.
pub fn record(layer: Layer, took: Duration) {
    // No request, or one of which nothing is recorded.
    let _ = CURRENT.try_with(|latencies| latencies.add(layer, took));
}

/// Awaits something, and records how long it took.
pub async fn measure<F: Future>(layer: Layer, work: F) -> F::Output {
    let start = Instant::now();
    let output = work.await;
    record(layer, start.elapsed());
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn times_belong_to_the_request_of_the_task() {
        let mine = Arc::new(Latencies::default());
        record(Layer::Storage, Duration::from_secs(9));
        scope(mine.clone(), async {
            for seconds in [2, 1] {
                record(Layer::Storage, Duration::from_secs(seconds));
                record(Layer::ValidatingWebhooks, Duration::from_secs(seconds));
            }
            measure(Layer::QueueWait, std::future::ready(())).await;
        })
        .await;
        let all = mine.all();
        let of = |wanted: Layer| {
            let found = all.iter().find(|(layer, _)| *layer == wanted);
            found.map(|(_, nanos)| nanos / 1_000_000_000)
        };
        assert_eq!(of(Layer::Storage), Some(3));
        assert_eq!(of(Layer::ValidatingWebhooks), Some(2));
        assert_eq!(of(Layer::Authentication), None);
        assert_eq!(of(Layer::QueueWait), Some(0));
    }
}
