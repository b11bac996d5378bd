//! A store whose requests are counted under the name of a resource (apiserver
//! `storage/etcd3/metrics`). The embedded store is counted under the same names as etcd.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;

use super::{ListPage, ListRequest, Result, Revision, Storage, Stored, WatchStream, WriteOutcome};
use crate::telemetry::metrics::{
    Counter, CounterSeries, Declared, Histogram, HistogramSeries, REQUEST_SECONDS,
};

const LABELS: &[&str] = &["operation", "group", "resource"];

static SECONDS: Histogram = Histogram::new(
    "etcd_request_duration_seconds",
    "[ALPHA] Etcd request latency in seconds for each operation and object type.",
    LABELS,
    REQUEST_SECONDS,
);
static REQUESTS: Counter = Counter::new(
    "etcd_requests_total",
    "[ALPHA] Etcd request counts for each operation and object type.",
    LABELS,
);
static ERRORS: Counter = Counter::new(
    "etcd_request_errors_total",
    "[ALPHA] Etcd failed request counts for each operation and object type.",
    LABELS,
);
pub static METRICS: &[&dyn Declared] = &[&SECONDS, &REQUESTS, &ERRORS];

/// The series of one operation on the objects of a resource.
pub struct Operation {
    seconds: HistogramSeries,
    requests: CounterSeries,
    errors: CounterSeries,
}

impl Operation {
    pub fn new(name: &str, group: &str, resource: &str) -> Self {
        let labels = [name, group, resource];
        Self {
            seconds: SECONDS.series(&labels),
            requests: REQUESTS.series(&labels),
            errors: ERRORS.series(&labels),
        }
    }

    /// Counts a request while it is made.
    ///
    /// # Errors
    /// Those of the request.
    pub async fn count<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        let begun = Instant::now();
        let outcome = request.await;
        self.seconds.observe(begun.elapsed().as_secs_f64());
        self.requests.inc();
        if outcome.is_err() {
            self.errors.inc();
        }
        outcome
    }
}

/// A [`Storage`] as one resource uses it.
pub struct MeteredStorage {
    inner: Arc<dyn Storage>,
    get: Operation,
    list: Operation,
    create: Operation,
    update: Operation,
    delete: Operation,
}

impl MeteredStorage {
    /// Counts the requests to `storage` under the name of a resource.
    pub fn wrap(storage: Arc<dyn Storage>, group: &str, resource: &str) -> Arc<dyn Storage> {
        let operation = |name| Operation::new(name, group, resource);
        Arc::new(Self {
            inner: storage,
            get: operation("get"),
            list: operation("list"),
            create: operation("create"),
            update: operation("update"),
            delete: operation("delete"),
        })
    }
}

#[async_trait]
impl Storage for MeteredStorage {
    async fn get(&self, key: &str) -> Result<Option<Stored>> {
        self.get.count(self.inner.get(key)).await
    }

    async fn get_with_revision(&self, key: &str) -> Result<(Option<Stored>, Revision)> {
        self.get.count(self.inner.get_with_revision(key)).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        self.list.count(self.inner.list(request)).await
    }

    async fn create(&self, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<WriteOutcome> {
        self.create.count(self.inner.create(key, value, ttl)).await
    }

    async fn update(
        &self,
        key: &str,
        value: Bytes,
        expected: Revision,
        ttl: Option<Duration>,
    ) -> Result<WriteOutcome> {
        let update = self.inner.update(key, value, expected, ttl);
        self.update.count(update).await
    }

    async fn delete(&self, key: &str, expected: Revision) -> Result<WriteOutcome> {
        self.delete.count(self.inner.delete(key, expected)).await
    }

    async fn is_stale(&self, key: &str) -> Result<bool> {
        self.inner.is_stale(key).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<WatchStream> {
        self.inner.watch(prefix, after).await
    }

    async fn watch_without_previous(&self, prefix: &str, after: Revision) -> Result<WatchStream> {
        self.inner.watch_without_previous(prefix, after).await
    }

    async fn request_progress(&self) -> Result<()> {
        self.inner.request_progress().await
    }

    fn has_reliable_progress(&self) -> bool {
        self.inner.has_reliable_progress()
    }

    async fn current_revision(&self) -> Result<Revision> {
        self.inner.current_revision().await
    }

    async fn compact(&self, revision: Revision) -> Result<()> {
        self.inner.compact(revision).await
    }

    async fn check_health(&self) -> Result<()> {
        self.inner.check_health().await
    }

    async fn size(&self) -> Result<u64> {
        self.inner.size().await
    }

    fn check_integrity(&self) -> Result<()> {
        self.inner.check_integrity()
    }
}
