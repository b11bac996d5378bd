//! The namespace controller: empties namespaces that are deleted, and lets them go
//! (`pkg/controller/namespace`).

mod conditions;
mod deletion;

use std::sync::Arc;
use std::time::Duration;

use super::client::{Client, Result};
use super::{ControllerDeps, workers};
use crate::base::work_queue::WorkQueue;
use crate::controlplane::informer::EventHandler;
use crate::meta::Object;
use crate::storage::Revision;
use crate::telemetry::work_queues::QueueMetrics;
use deletion::{Deleter, Progress};

/// The service account.
const ACCOUNT: &str = "namespace-controller";
/// Namespaces that are emptied at the same time (`--concurrent-namespace-syncs`).
const WORKERS: usize = 10;
/// The wait before a namespace is emptied: what was admitted before it was deleted is to be stored
/// by then (`namespaceDeletionGracePeriod`), also by other servers on the same store.
const GRACE: Duration = Duration::from_millis(50);
const SHARED_GRACE: Duration = Duration::from_secs(5);
/// The wait before a namespace that is not empty yet is looked at again; doubles each time.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// The longest such wait: about what upstream waits for finalizers.
const MAX_DELAY: Duration = Duration::from_secs(8);

/// Puts the namespaces that are being deleted into the queue.
struct Terminating {
    queue: Arc<WorkQueue>,
    grace: Duration,
}

impl EventHandler for Terminating {
    fn fields(&self) -> Option<&'static [&'static str]> {
        Some(&["metadata.name", "metadata.deletionTimestamp"])
    }

    fn replace(&self, objects: &[Object], _revision: Revision) {
        objects.iter().for_each(|object| self.upsert(object));
    }

    fn upsert(&self, object: &Object) {
        if object.deletion_timestamp().is_some() {
            self.queue.add_after(object.name(), self.grace);
        }
    }

    fn remove(&self, object: &Object) {
        self.queue.forget(object.name());
    }
}

/// Starts the controller.
///
/// # Errors
/// The store's, of the first list.
pub async fn start(deps: &ControllerDeps) -> Result<()> {
    let client = Client::new(&deps.api, ACCOUNT);
    let queue = Arc::new(
        WorkQueue::new(FIRST_DELAY, MAX_DELAY).observed_by(QueueMetrics::new("namespace")),
    );
    let grace = if deps.shared_store {
        SHARED_GRACE
    } else {
        GRACE
    };
    let handler = Arc::new(Terminating {
        queue: queue.clone(),
        grace,
    });
    let namespaces = client.store("", "v1", "namespaces")?;
    deps.informers.start(namespaces.clone(), handler).await?;
    let deleter = Arc::new(Deleter {
        client,
        namespaces,
        clock: deps.api.clock.clone(),
    });
    workers(deps, "namespace", &queue, WORKERS, move |name| {
        let deleter = deleter.clone();
        async move {
            match deleter.delete(&name).await? {
                Progress::Done => Ok(()),
                Progress::Remaining(seconds) => Err(super::Retry::Later(format!(
                    "some content remains in the namespace, estimate {seconds} seconds before it is removed"
                ))),
            }
        }
    });
    Ok(())
}
