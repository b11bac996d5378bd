//! The metrics of what is stored: the objects of each resource and the sizes of the stores
//! (apiserver `storage/etcd3/metrics`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;

use super::shutdown::Shutdown;
use crate::base::supervise::catch_panic;
use crate::flowcontrol::{Controller, Stats};
use crate::registry::Registry;
use crate::storage::Storage;
use crate::telemetry::metrics::{Declared, Gauge};

/// The time that a store has to tell its size when the metrics are asked for.
const SIZE_TIMEOUT: Duration = Duration::from_secs(1);

static OBJECTS: Gauge = Gauge::new(
    "apiserver_resource_objects",
    "[ALPHA] Number of stored objects at the time of last check split by kind. In case of a fetching error, the value will be -1.",
    &["group", "resource"],
);
static OBJECTS_BY_NAME: Gauge = Gauge::deprecated(
    "apiserver_storage_objects",
    "1.34.0",
    "[STABLE] [DEPRECATED, consider using apiserver_resource_objects instead] Number of stored objects at the time of last check split by kind. In case of a fetching error, the value will be -1.",
    &["resource"],
);
static BYTES: Gauge = Gauge::new(
    "apiserver_resource_size_estimate_bytes",
    "[ALPHA] Estimated size of stored objects in database. Estimate is based on sum of last observed sizes of serialized objects. In case of a fetching error, the value will be -1.",
    &["group", "resource"],
);
static OLD_DATABASE_BYTES: Gauge = Gauge::deprecated(
    "apiserver_storage_db_total_size_in_bytes",
    "1.28.0",
    "[ALPHA] Total size of the storage database file physically allocated in bytes.",
    &["endpoint"],
);
static DATABASE_BYTES: Gauge = Gauge::new(
    "apiserver_storage_size_bytes",
    "[STABLE] Size of the storage database file physically allocated in bytes.",
    &["storage_cluster_id"],
);

pub static METRICS: &[&dyn Declared] = &[
    &OBJECTS,
    &OBJECTS_BY_NAME,
    &BYTES,
    &DATABASE_BYTES,
    &OLD_DATABASE_BYTES,
];

/// A resource by group and plural.
type Name = (String, String);

/// Counts the objects of every resource each `period` until the server ends.
/// Priority and fairness estimates the work of lists by that.
pub async fn count_objects(
    registry: Arc<Registry>,
    flow_control: Option<Arc<Controller>>,
    period: Duration,
    shutdown: Shutdown,
) {
    let mut counted = BTreeSet::new();
    loop {
        // A panic is logged, and the next round comes all the same.
        let round = catch_panic(
            "counting the stored objects",
            count(&registry, flow_control.as_deref()),
        );
        let now = round.await.unwrap_or_default();
        for (group, resource) in counted.difference(&now) {
            OBJECTS.remove(&[group, resource]);
            OBJECTS_BY_NAME.remove(&[&qualified(group, resource)]);
            BYTES.remove(&[group, resource]);
        }
        counted = now;
        tokio::select! {
            () = tokio::time::sleep(period) => {}
            () = shutdown.drained() => return,
        }
    }
}

/// Counts the objects of every resource; returns the resources.
async fn count(registry: &Registry, flow_control: Option<&Controller>) -> BTreeSet<Name> {
    let mut counted = BTreeSet::new();
    for store in registry.stores() {
        let (group, resource) = (&store.resource.gvr.group, &store.resource.gvr.resource);
        let (objects, bytes) = match store.stats().await {
            Ok(stats) => (stats.objects, stats.bytes.unwrap_or(-1)),
            Err(status) => {
                tracing::debug!("counting {resource}: {}", status.message);
                (-1, -1)
            }
        };
        if let (Some(controller), Ok(objects)) = (flow_control, u64::try_from(objects)) {
            let bytes = u64::try_from(bytes).unwrap_or(0);
            let average_bytes = bytes.checked_div(objects).unwrap_or(0);
            let stats = Stats {
                objects,
                average_bytes,
            };
            let counts = &controller.estimator.counts;
            counts.set(Instant::now(), group, resource, stats);
        }
        OBJECTS.set(&[group, resource], objects);
        OBJECTS_BY_NAME.set(&[&qualified(group, resource)], objects);
        BYTES.set(&[group, resource], bytes);
        counted.insert((group.clone(), resource.clone()));
    }
    counted
}

/// The name of a resource with its group (`schema.GroupResource.String`).
fn qualified(group: &str, resource: &str) -> String {
    if group.is_empty() {
        resource.to_owned()
    } else {
        format!("{resource}.{group}")
    }
}

/// The stores of a server, which are asked for their sizes with each request for the metrics.
#[derive(Clone)]
pub struct StorageSizes(Vec<Arc<dyn Storage>>);

impl StorageSizes {
    pub fn new(stores: impl IntoIterator<Item = Arc<dyn Storage>>) -> Self {
        Self(stores.into_iter().collect())
    }

    /// Measures the stores. One that does not answer has no size.
    pub async fn refresh(&self) {
        join_all(self.0.iter().enumerate().map(async |(at, store)| {
            let id = format!("etcd-{at}");
            match tokio::time::timeout(SIZE_TIMEOUT, store.size()).await {
                Ok(Ok(bytes)) => {
                    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
                    DATABASE_BYTES.set(&[&id], bytes);
                    OLD_DATABASE_BYTES.set(&[&id], bytes);
                }
                Ok(Err(_)) | Err(_) => DATABASE_BYTES.remove(&[&id]),
            }
        }))
        .await;
    }
}
