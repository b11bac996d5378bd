//! The condition `Dangling` of FlowSchemas: whether the priority level that they name exists
//! (apiserver `util/flowcontrol/apf_controller.go`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::{guarded, pause};
use crate::base::clock::Clock;
use crate::base::latch::Latch;
use crate::controlplane::bootstrap::flowcontrol::{GROUP, dangling};
use crate::controlplane::bootstrap::{FLOW_STATUS_MANAGER, ObjectClient};
use crate::controlplane::informer::{EventHandler, Informers};
use crate::controlplane::loopback_client::LoopbackClient;
use crate::meta::status::Result;
use crate::meta::{Gvr, Object, Status, Value, json, time};
use crate::registry::Registry;
use crate::storage::Revision;

/// The pause after a pass that failed.
const RETRY: Duration = Duration::from_secs(1);
/// The priority levels that a server imagines where they are missing.
const MANDATORY: [&str; 2] = ["exempt", "catch-all"];

/// Wakes the reconciler with every change.
struct Wake(Arc<Notify>);

impl EventHandler for Wake {
    fn replace(&self, _objects: &[Object], _revision: Revision) {
        self.0.notify_one();
    }

    fn upsert(&self, _object: &Object) {
        self.0.notify_one();
    }

    fn remove(&self, _object: &Object) {
        self.0.notify_one();
    }
}

/// Keeps the condition true.
pub struct FlowSchemaReconciler {
    client: Arc<LoopbackClient>,
    changed: Arc<Notify>,
    clock: Clock,
}

impl FlowSchemaReconciler {
    /// Follows the FlowSchemas and the priority levels.
    ///
    /// # Errors
    /// The store's, of the first lists.
    pub async fn start(
        registry: &Registry,
        client: Arc<LoopbackClient>,
        informers: &Informers,
        clock: &Clock,
    ) -> Result<Self> {
        let changed = Arc::new(Notify::new());
        for gvr in [schemas(), levels()] {
            let store = registry
                .get(&gvr)
                .ok_or_else(|| Status::internal(format!("{} are not served", gvr.resource)))?;
            informers
                .start(store, Arc::new(Wake(changed.clone())))
                .await?;
        }
        Ok(Self {
            client,
            changed,
            clock: clock.clone(),
        })
    }

    /// Reconciles after every change until the server stops.
    pub async fn run(self, stopping: Latch) {
        loop {
            tokio::select! {
                () = self.changed.notified() => {}
                () = stopping.wait() => return,
            }
            let done = guarded("the conditions of FlowSchemas", self.run_once()).await;
            if done.is_none() && pause(RETRY, &stopping).await {
                self.changed.notify_one();
            }
        }
    }

    async fn run_once(&self) -> Result<()> {
        let levels = self.client.list(&levels(), "").await?;
        let levels: BTreeSet<&str> = levels.iter().map(Object::name).chain(MANDATORY).collect();
        let now = time::format(self.clock.now().as_second());
        for schema in self.client.list(&schemas(), "").await? {
            let level = schema.str_at("/spec/priorityLevelConfiguration/name");
            let wanted = dangling(level, levels.contains(level), &now);
            if has(&schema, &wanted) {
                continue;
            }
            let status = json!({"conditions": [wanted]});
            let gvr = schemas();
            let applied = self
                .client
                .apply_status(&gvr, &schema, status, FLOW_STATUS_MANAGER);
            match applied.await {
                // It has changed or is gone, which wakes the reconciler again.
                Err(Status {
                    code: 404 | 409, ..
                }) => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }
}

/// Reports whether a FlowSchema has the condition, of whatever time.
fn has(schema: &Object, wanted: &Value) -> bool {
    let is_it = |condition: &Value| {
        ["type", "status", "reason", "message"]
            .iter()
            .all(|key| condition.get(key) == wanted.get(key))
    };
    schema.array_at("/status/conditions").iter().any(is_it)
}

fn schemas() -> Gvr {
    Gvr::new(GROUP, "v1", "flowschemas")
}

fn levels() -> Gvr {
    Gvr::new(GROUP, "v1", "prioritylevelconfigurations")
}
