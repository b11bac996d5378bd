//! The quota controller: counts anew what quotas limit, when objects go and from time to time
//! (`pkg/controller/resourcequota`).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::client::{Client, Failure, Result, Target};
use super::monitors::{Monitors, has_verb};
use super::{ControllerDeps, Retry, workers};
use crate::admission::quota::recount::recount;
use crate::base::latch::Latch;
use crate::base::work_queue::WorkQueue;
use crate::controlplane::informer::EventHandler;
use crate::endpoints::Api;
use crate::meta::{Gvr, Object};
use crate::registry::Store;
use crate::storage::Revision;
use crate::telemetry::work_queues::QueueMetrics;

/// The service account of the controller.
const ACCOUNT: &str = "resourcequota-controller";
/// Quotas that are counted at the same time (`--concurrent-resource-quota-syncs`).
const WORKERS: usize = 5;
/// The wait before a quota is counted after objects have changed: many of them change together.
const GATHER: Duration = Duration::from_millis(100);
/// The time after which every quota is counted anew (`--resource-quota-sync-period`).
const RESYNC: Duration = Duration::from_secs(5 * 60);
/// The first and the longest wait before a quota is counted again after a failure.
const FIRST_DELAY: Duration = Duration::from_millis(20);
const MAX_DELAY: Duration = Duration::from_secs(60);

/// The resources whose objects may be counted differently after a change; others only count.
const CHANGING: [&str; 3] = [
    "services",
    "persistentvolumeclaims",
    "resourceclaims.resource.k8s.io",
];
/// The resources that no quota counts (`DefaultIgnoredResources`).
const IGNORED: [&str; 2] = ["events", "events.events.k8s.io"];

/// The quotas that are known, and those that are to be counted (`NAMESPACE/NAME`).
struct Quotas {
    known: Mutex<HashMap<String, BTreeSet<String>>>,
    queue: Arc<WorkQueue>,
}

impl Quotas {
    /// Puts the quotas of a namespace into the queue.
    fn count(&self, namespace: &str) {
        let known = self.known.lock();
        for name in known.get(namespace).into_iter().flatten() {
            self.queue.add_after(&format!("{namespace}/{name}"), GATHER);
        }
    }

    fn count_all(&self) {
        let namespaces: Vec<String> = self.known.lock().keys().cloned().collect();
        namespaces
            .iter()
            .for_each(|namespace| self.count(namespace));
    }
}

/// Follows the quotas themselves.
struct Limits(Arc<Quotas>);

impl EventHandler for Limits {
    fn fields(&self) -> Option<&'static [&'static str]> {
        Some(&["metadata.name", "metadata.namespace"])
    }

    fn replace(&self, objects: &[Object], _revision: Revision) {
        self.0.known.lock().clear();
        objects.iter().for_each(|object| self.upsert(object));
    }

    fn upsert(&self, object: &Object) {
        let (namespace, name) = (object.namespace(), object.name());
        let mut known = self.0.known.lock();
        let quotas = known.entry(namespace.to_owned()).or_default();
        quotas.insert(name.to_owned());
        drop(known);
        self.0.queue.add(&format!("{namespace}/{name}"));
    }

    fn remove(&self, object: &Object) {
        let mut known = self.0.known.lock();
        if let Some(quotas) = known.get_mut(object.namespace()) {
            quotas.remove(object.name());
            if quotas.is_empty() {
                known.remove(object.namespace());
            }
        }
    }
}

/// Follows the objects of a resource.
struct Counted {
    quotas: Arc<Quotas>,
    are_pods: bool,
    changes: bool,
}

impl EventHandler for Counted {
    fn fields(&self) -> Option<&'static [&'static str]> {
        Some(&["metadata.name", "metadata.namespace", "status.phase"])
    }

    fn replace(&self, _objects: &[Object], _revision: Revision) {
        self.quotas.count_all();
    }

    fn upsert(&self, object: &Object) {
        let has_ended = || matches!(object.str_at("/status/phase"), "Succeeded" | "Failed");
        if self.changes || (self.are_pods && has_ended()) {
            self.quotas.count(object.namespace());
        }
    }

    fn remove(&self, object: &Object) {
        self.quotas.count(object.namespace());
    }

    // It is there.
    fn unreadable(&self, _object: &Object) {}
}

/// Starts the controller.
///
/// # Errors
/// The store's, of the first lists.
pub async fn start(deps: &ControllerDeps) -> Result<()> {
    let client = Client::new(&deps.api, ACCOUNT);
    let quotas = Arc::new(Quotas {
        known: Mutex::default(),
        queue: Arc::new(
            WorkQueue::new(FIRST_DELAY, MAX_DELAY)
                .observed_by(QueueMetrics::new("resourcequota_primary")),
        ),
    });
    let store = client.store("", "v1", "resourcequotas")?;
    let limits = Arc::new(Limits(quotas.clone()));
    deps.informers.start(store.clone(), limits).await?;
    let of = quotas.clone();
    let mut monitors = Monitors::new(&deps.api, &deps.informers, is_counted, move |store| {
        let name = store.resource.gvr.group_resource();
        Arc::new(Counted {
            quotas: of.clone(),
            are_pods: name == "pods",
            changes: CHANGING.contains(&name.as_str()),
        })
    });
    monitors.follow_all().await?;
    tokio::spawn(monitors.run(deps.stopping.clone()));
    tokio::spawn(count_regularly(quotas.clone(), deps.stopping.clone()));
    workers(deps, "quotas", &quotas.queue, WORKERS, move |name| {
        let (client, store) = (client.clone(), store.clone());
        async move {
            let (namespace, name) = name.split_once('/').unwrap_or_default();
            Ok::<(), Retry>(sync(&client, &store, namespace, name).await?)
        }
    });
    Ok(())
}

async fn count_regularly(quotas: Arc<Quotas>, stopping: Latch) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(RESYNC) => quotas.count_all(),
            () = stopping.wait() => return,
        }
    }
}

/// Counts what a quota limits, and writes its status if that has changed.
async fn sync(client: &Client, store: &Arc<Store>, namespace: &str, name: &str) -> Result<()> {
    let Some(mut quota) = client.get(store, namespace, name).await? else {
        return Ok(());
    };
    let api = client.api();
    let now = api.clock.now().as_second();
    let counted = recount(&quota, &resources(api), &*api.references.objects, now).await;
    if let Some(status) = counted.status {
        quota.insert("status", status);
        let target = Target::new(store, namespace, name).subresource("status");
        match client.update(target, &quota).await {
            Err(why) if !why.is_not_found() => return Err(why),
            _ => {}
        }
    }
    match counted.failures.into_iter().next() {
        Some(status) => Err(Failure::from(status)),
        None => Ok(()),
    }
}

/// The resources that quotas may count.
fn resources(api: &Api) -> Vec<Gvr> {
    let stores = api.registry.stores().into_iter();
    stores
        .filter(|store| is_counted(store))
        .map(|store| store.resource.gvr.clone())
        .collect()
}

/// Reports whether quotas may count the objects of a resource.
fn is_counted(store: &Store) -> bool {
    store.resource.decl.namespaced
        && ["create", "delete", "list", "watch"]
            .into_iter()
            .all(|verb| has_verb(store, verb))
        && !IGNORED.contains(&store.resource.gvr.group_resource().as_str())
}
