//! The service account controller: each namespace has a default account
//! (`pkg/controller/serviceaccount/serviceaccounts_controller.go`).

use std::sync::Arc;
use std::time::Duration;

use super::client::{Client, Result};
use super::{ControllerDeps, Retry, namespaces, workers};
use crate::base::work_queue::WorkQueue;
use crate::controlplane::informer::EventHandler;
use crate::meta::{Object, json};
use crate::storage::Revision;
use crate::telemetry::work_queues::QueueMetrics;

/// The service account of the controller.
const ACCOUNT: &str = "service-account-controller";
/// The account that each namespace has.
const DEFAULT: &str = "default";
/// Namespaces that are worked on at the same time.
const WORKERS: usize = 5;
/// The first and the longest wait before a namespace is worked on again after a failure.
const FIRST_DELAY: Duration = Duration::from_millis(20);
const MAX_DELAY: Duration = Duration::from_secs(60);

/// Puts the namespaces that have lost their account into the queue.
struct Deleted(Arc<WorkQueue>);

impl EventHandler for Deleted {
    fn fields(&self) -> Option<&'static [&'static str]> {
        Some(&["metadata.name", "metadata.namespace"])
    }

    // What is missing is found by way of the namespaces.
    fn replace(&self, _objects: &[Object], _revision: Revision) {}

    fn upsert(&self, _object: &Object) {}

    fn remove(&self, object: &Object) {
        if object.name() == DEFAULT {
            self.0.add(object.namespace());
        }
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
    let queue = Arc::new(
        WorkQueue::new(FIRST_DELAY, MAX_DELAY).observed_by(QueueMetrics::new("serviceaccount")),
    );
    let accounts = client.store("", "v1", "serviceaccounts")?;
    let deleted = Arc::new(Deleted(queue.clone()));
    deps.informers.start(accounts.clone(), deleted).await?;
    namespaces::follow(deps, &client, &queue).await?;
    workers(
        deps,
        "service accounts",
        &queue,
        WORKERS,
        move |namespace| {
            let (client, accounts) = (client.clone(), accounts.clone());
            async move {
                if !namespaces::is_active(&client, &namespace).await?
                    || client.get(&accounts, &namespace, DEFAULT).await?.is_some()
                {
                    return Ok(());
                }
                let account = json!({"metadata": {"name": DEFAULT, "namespace": namespace}});
                let account = Object::from_value(account).unwrap_or_default();
                match client.create(&accounts, &account).await {
                    Err(why) if !why.is_conflict() && !namespaces::is_ending(&why) => {
                        Err(Retry::Failed(why))
                    }
                    _ => Ok(()),
                }
            }
        },
    );
    Ok(())
}
