//! The namespaces that a controller keeps something in.

use std::sync::Arc;

use super::ControllerDeps;
use super::client::{Client, Failure, Result};
use crate::base::work_queue::WorkQueue;
use crate::controlplane::informer::EventHandler;
use crate::meta::Object;
use crate::storage::Revision;

/// The cause of a refusal in a namespace that is being deleted.
const TERMINATING: &str = "NamespaceTerminating";

/// Puts the namespaces that are new or have changed into the queue.
struct Live(Arc<WorkQueue>);

impl EventHandler for Live {
    fn fields(&self) -> Option<&'static [&'static str]> {
        Some(&["metadata.name", "metadata.deletionTimestamp"])
    }

    fn replace(&self, objects: &[Object], _revision: Revision) {
        objects.iter().for_each(|object| self.upsert(object));
    }

    fn upsert(&self, object: &Object) {
        if object.deletion_timestamp().is_none() {
            self.0.add(object.name());
        }
    }

    fn remove(&self, object: &Object) {
        self.0.forget(object.name());
    }
}

/// Puts the namespaces that there are, and those that come or change, into the queue.
///
/// # Errors
/// The store's, of the first list.
pub async fn follow(deps: &ControllerDeps, client: &Client, queue: &Arc<WorkQueue>) -> Result<()> {
    let namespaces = client.store("", "v1", "namespaces")?;
    let live = Arc::new(Live(queue.clone()));
    Ok(deps.informers.start(namespaces, live).await?)
}

/// Reports whether a namespace is there, and is to stay.
///
/// # Errors
/// The store's.
pub async fn is_active(client: &Client, name: &str) -> Result<bool> {
    let namespaces = client.store("", "v1", "namespaces")?;
    let namespace = client.get(&namespaces, "", name).await?;
    let stays = |namespace: &Object| namespace.deletion_timestamp().is_none();
    Ok(namespace.as_ref().is_some_and(stays))
}

/// Reports whether a creation failed because its namespace goes or is gone.
pub fn is_ending(why: &Failure) -> bool {
    why.is_not_found() || why.causes.iter().any(|cause| cause == TERMINATING)
}
