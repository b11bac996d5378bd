//! The garbage collector: deletes what has no owner left, in the background, in the foreground or
//! not at all (`pkg/controller/garbagecollector`).
//!
//! - [`graph`]: who owns whom, as the objects tell.
//! - [`monitor`]: the handlers of informers, which tell the graph of all objects.
//! - [`collector`]: the decisions, which look at the latest state of an object and its owners.

mod collector;
mod graph;
mod monitor;
mod patches;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::client::{Client, Result};
use super::monitors::Monitors;
use super::{ControllerDeps, workers};
use crate::base::work_queue::WorkQueue;
use crate::registry::Store;
use crate::telemetry::work_queues::QueueMetrics;
use collector::Collector;
use graph::{Graph, Work};
use monitor::{Monitor, is_collected};

/// The service account.
const ACCOUNT: &str = "generic-garbage-collector";
/// Objects that are looked at at the same time (`--concurrent-gc-syncs`).
const WORKERS: usize = 20;
/// The wait before an object is looked at again after a failure; doubles each time.
const FIRST_DELAY: Duration = Duration::from_millis(20);
/// The longest such wait.
const MAX_DELAY: Duration = Duration::from_secs(30);

/// The state that informers and workers share.
pub(super) struct Shared {
    graph: Mutex<Graph>,
    /// The UIDs of objects that may have to be deleted.
    delete: Arc<WorkQueue>,
    /// The UIDs of objects whose dependents are to be left alone.
    orphan: Arc<WorkQueue>,
}

impl Shared {
    /// Changes the graph, and queues the work that comes of it.
    fn change(&self, change: impl FnOnce(&mut Graph, &mut Work)) {
        let mut work = Work::default();
        change(&mut self.graph.lock(), &mut work);
        work.delete.iter().for_each(|uid| self.delete.add(uid));
        work.orphan.iter().for_each(|uid| self.orphan.add(uid));
    }
}

/// Starts the controller. It decides nothing before it knows all objects.
///
/// # Errors
/// The store's, of the first lists.
pub async fn start(deps: &ControllerDeps) -> Result<()> {
    let client = Client::new(&deps.api, ACCOUNT);
    let queue = |name| {
        let queue = WorkQueue::new(FIRST_DELAY, MAX_DELAY);
        Arc::new(queue.observed_by(QueueMetrics::new(name)))
    };
    let shared = Arc::new(Shared {
        graph: Mutex::default(),
        delete: queue("garbage_collector_attempt_to_delete"),
        orphan: queue("garbage_collector_attempt_to_orphan"),
    });
    let of = shared.clone();
    let handler = move |store: &Store| Arc::new(Monitor::new(store, &of));
    let mut monitors = Monitors::new(&deps.api, &deps.informers, is_collected, handler);
    monitors.follow_all().await?;
    let collector = Arc::new(Collector {
        client,
        followed: monitors.followed(),
        shared: shared.clone(),
    });
    tokio::spawn(monitors.run(deps.stopping.clone()));
    let deleting = collector.clone();
    workers(
        deps,
        "garbage collector",
        &shared.delete,
        WORKERS,
        move |uid| {
            let collector = deleting.clone();
            async move { collector.attempt_to_delete(&uid).await }
        },
    );
    workers(
        deps,
        "garbage collector",
        &shared.orphan,
        WORKERS,
        move |uid| {
            let collector = collector.clone();
            async move { collector.attempt_to_orphan(&uid).await }
        },
    );
    Ok(())
}
