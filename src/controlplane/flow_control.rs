//! Priority and fairness kept up to date: its configuration follows the FlowSchemas and
//! PriorityLevelConfigurations, its limits the demand, and the objects that a server makes itself
//! are put right (apiserver `util/flowcontrol/apf_controller.go`, kube-apiserver
//! `registry/flowcontrol/rest/storage_flowcontrol.go`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;

use super::bootstrap;
use super::bootstrap::flowcontrol::{self, GROUP};
use super::informer::{EventHandler, Informers};
use super::loopback_client::LoopbackClient;
use crate::base::clock::Clock;
use crate::base::latch::Latch;
use crate::base::supervise::{FailureTracker, catch_panic, catch_panic_sync};
use crate::flowcontrol::{ADJUSTMENT_PERIOD, Controller, FlowSchema, PriorityLevelConfiguration};
use crate::meta::status::Result;
use crate::meta::{Gvr, Object, Status};
use crate::registry::Registry;
use crate::storage::Revision;

/// The time between two looks at the objects that the server makes itself.
const REPAIR_INTERVAL: Duration = Duration::from_secs(60);

/// The resources of flow schemas and priority levels.
pub fn flow_schemas() -> Gvr {
    Gvr::new(GROUP, "v1", "flowschemas")
}

pub fn priority_levels() -> Gvr {
    Gvr::new(GROUP, "v1", "prioritylevelconfigurations")
}

/// The objects by name, as they were last seen.
struct Known<T> {
    all: Mutex<BTreeMap<String, T>>,
    /// Reads an object; `None` for one that cannot be meant, which does not exist then.
    read: fn(&Object) -> Option<T>,
    changed: Arc<Notify>,
}

impl<T: Clone + PartialEq> Known<T> {
    fn new(read: fn(&Object) -> Option<T>, changed: &Arc<Notify>) -> Arc<Self> {
        Arc::new(Self {
            all: Mutex::default(),
            read,
            changed: changed.clone(),
        })
    }

    fn all(&self) -> Vec<T> {
        self.all.lock().values().cloned().collect()
    }
}

impl<T: Clone + PartialEq + Send + 'static> EventHandler for Known<T> {
    fn replace(&self, objects: &[Object], _revision: Revision) {
        let read = |object: &Object| Some((object.name().to_owned(), (self.read)(object)?));
        *self.all.lock() = objects.iter().filter_map(read).collect();
        self.changed.notify_one();
    }

    fn upsert(&self, object: &Object) {
        let Some(new) = (self.read)(object) else {
            tracing::warn!("{} {} is broken and ignored", object.kind(), object.name());
            return self.remove(object);
        };
        let old = self
            .all
            .lock()
            .insert(object.name().to_owned(), new.clone());
        // A new status is no change.
        if old.as_ref() != Some(&new) {
            self.changed.notify_one();
        }
    }

    fn remove(&self, object: &Object) {
        if self.all.lock().remove(object.name()).is_some() {
            self.changed.notify_one();
        }
    }

    // What was in effect stays so.
    fn unreadable(&self, _object: &Object) {}
}

/// Keeps the configuration of priority and fairness.
pub struct FlowControlReconciler {
    controller: Arc<Controller>,
    schemas: Arc<Known<FlowSchema>>,
    levels: Arc<Known<PriorityLevelConfiguration>>,
    changed: Arc<Notify>,
}

impl FlowControlReconciler {
    /// Follows the objects, and puts those that there are into effect.
    ///
    /// # Errors
    /// The store's, of the first lists.
    pub async fn start(
        registry: &Registry,
        controller: Arc<Controller>,
        informers: &Informers,
    ) -> Result<Self> {
        let changed = Arc::new(Notify::new());
        let reconciler = Self {
            controller,
            schemas: Known::new(|object| Some(FlowSchema::from_object(object)), &changed),
            levels: Known::new(PriorityLevelConfiguration::from_object, &changed),
            changed,
        };
        let store = |gvr: Gvr| {
            registry
                .get(&gvr)
                .ok_or_else(|| Status::internal(format!("{} are not served", gvr.resource)))
        };
        let (levels, schemas) = (reconciler.levels.clone(), reconciler.schemas.clone());
        informers.start(store(priority_levels())?, levels).await?;
        informers.start(store(flow_schemas())?, schemas).await?;
        reconciler.configure();
        Ok(reconciler)
    }

    /// Puts changes into effect, and adjusts the limits to the demand, until the server ends.
    pub async fn run(self, draining: Latch) {
        let mut adjustments = tokio::time::interval(ADJUSTMENT_PERIOD);
        adjustments.set_missed_tick_behavior(MissedTickBehavior::Delay);
        adjustments.reset();
        loop {
            tokio::select! {
                () = self.changed.notified() => self.configure(),
                () = self.controller.drained() => self.configure(),
                _ = adjustments.tick() => {
                    // A panic is logged, and the next round comes all the same.
                    let adjusted = catch_panic_sync("flow control", || self.controller.adjust());
                    adjusted.unwrap_or_default();
                }
                () = draining.wait() => return,
            }
        }
    }

    fn configure(&self) {
        let (levels, schemas) = (self.levels.all(), self.schemas.all());
        let configured = catch_panic_sync("flow control", || {
            self.controller.configure(levels, schemas)
        });
        configured.unwrap_or_default();
    }
}

/// Puts right the objects that a server makes itself, each minute until it stops.
pub async fn keep_objects(client: Arc<LoopbackClient>, clock: Clock, stopping: Latch) {
    let health = FailureTracker::new("keeping the objects of flow control");
    loop {
        let round = catch_panic("flow control", keep_objects_once(&client, &clock));
        match round.await.map_err(Status::internal).flatten() {
            Ok(()) => health.record_success(),
            Err(why) => health.record_failure(&why.message),
        }
        tokio::select! {
            () = tokio::time::sleep(REPAIR_INTERVAL) => {}
            () = stopping.wait() => return,
        }
    }
}

/// Makes the objects that are missing, puts right those that have changed and are not an
/// operator's, and deletes those that an earlier version made.
async fn keep_objects_once(client: &LoopbackClient, clock: &Clock) -> Result<()> {
    bootstrap::ensure(bootstrap::flow_control_objects(clock.now()), client).await?;
    for gvr in [flow_schemas(), priority_levels()] {
        for object in client.list(&gvr, "").await? {
            if !flowcontrol::is_unwanted(&object) {
                continue;
            }
            match client.delete_unchanged(&gvr, &object).await {
                // It has changed or is gone; the next round sees it.
                Err(Status {
                    code: 404 | 409, ..
                }) => {}
                outcome => outcome?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;
    use crate::controlplane::bootstrap::ObjectClient;
    use crate::meta::{Value, json};
    use crate::registry::{Resource, Store};
    use crate::storage::embedded::Embedded;

    fn registry(folder: &std::path::Path) -> Arc<Registry> {
        let storage = Arc::new(Embedded::open(folder).expect("a store"));
        let decls = crate::schema::builtin().resources.iter();
        let stores = decls
            .filter(|decl| decl.group == GROUP && decl.version == "v1")
            .map(|decl| {
                let strategy = builtin::strategy(&decl.group, &decl.resource);
                let resource = Arc::new(Resource::builtin(decl, strategy));
                Store::new(resource, storage.clone(), Clock::system(), "/registry")
            });
        Arc::new(Registry::new(stores, []))
    }

    async fn names(client: &LoopbackClient, gvr: &Gvr) -> Vec<String> {
        let objects = client.list(gvr, "").await.expect("a list");
        let mut names: Vec<_> = objects.iter().map(|one| one.name().to_owned()).collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn objects_of_the_server_are_kept_and_those_of_operators_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let client = LoopbackClient::new(registry(folder.path()));
        let clock = Clock::system();
        let keep = async || keep_objects_once(&client, &clock).await.expect("kept");
        keep().await;
        let (schemas, levels) = (flow_schemas(), priority_levels());
        let before = (
            names(&client, &schemas).await,
            names(&client, &levels).await,
        );
        assert_eq!((before.0.len(), before.1.len()), (11, 8));

        let edit = async |gvr: &Gvr, name: &str, change: fn(&mut Object)| {
            let found = ObjectClient::get(&client, gvr, "", name)
                .await
                .expect("a read");
            let mut object = found.expect("it is there");
            change(&mut object);
            client
                .update(gvr, object, "operator")
                .await
                .expect("an update");
        };
        let spec = async |gvr: &Gvr, name: &str, path: &str| {
            let found = ObjectClient::get(&client, gvr, "", name)
                .await
                .expect("a read");
            found.and_then(|object| object.at(path).cloned())
        };
        // A mandatory one, one of the server's, and one that an operator has taken over.
        edit(&schemas, "probes", |object| {
            object
                .section_mut("spec")
                .insert("matchingPrecedence", 77.into());
        })
        .await;
        edit(&levels, "workload-low", |object| {
            object.metadata_mut().insert(
                "annotations",
                json!({"apf.kubernetes.io/autoupdate-spec": "false"}),
            );
            object.section_mut("spec").insert(
                "limited",
                json!({"nominalConcurrencyShares": 7, "limitResponse": {"type": "Reject"}}),
            );
        })
        .await;
        edit(&levels, "system", |object| {
            object.metadata_mut().insert("annotations", json!({}));
            object.section_mut("spec").insert(
                "limited",
                json!({"nominalConcurrencyShares": 8, "limitResponse": {"type": "Reject"}}),
            );
        })
        .await;
        for name in ["exempt", "service-accounts"] {
            client.delete(&schemas, "", name).await.expect("deleted");
        }
        client
            .delete(&levels, "", "catch-all")
            .await
            .expect("deleted");
        let level = |name: &str, annotation: Value| {
            let object = json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
                "metadata": {"name": name, "annotations": annotation},
                "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}});
            Object::from_value(object).expect("an object")
        };
        for (name, annotation) in [
            ("old", json!({"apf.kubernetes.io/autoupdate-spec": "true"})),
            (
                "mine",
                json!({"apf.kubernetes.io/autoupdate-spec": "false"}),
            ),
            ("odd", json!({"apf.kubernetes.io/autoupdate-spec": "maybe"})),
            ("own", json!({})),
        ] {
            ObjectClient::create(&client, &levels, level(name, annotation), "operator")
                .await
                .expect("created");
        }
        keep().await;
        let after = (
            names(&client, &schemas).await,
            names(&client, &levels).await,
        );
        let mut expected = before.1.clone();
        expected.extend(["mine", "odd", "own"].map(str::to_owned));
        expected.sort();
        assert_eq!((after.0, after.1), (before.0, expected));
        let shares = "/spec/limited/nominalConcurrencyShares";
        assert_eq!(
            spec(&schemas, "probes", "/spec/matchingPrecedence").await,
            Some(2.into())
        );
        assert_eq!(spec(&levels, "workload-low", shares).await, Some(7.into()));
        // Without the annotation an object that has been changed is the operator's, and says so.
        assert_eq!(spec(&levels, "system", shares).await, Some(8.into()));
        let annotations = spec(&levels, "system", "/metadata/annotations").await;
        assert_eq!(
            annotations,
            Some(json!({"apf.kubernetes.io/autoupdate-spec": "false"}))
        );
        // There is nothing to do any more.
        let versions = async || {
            let all = [
                client.list(&schemas, "").await,
                client.list(&levels, "").await,
            ];
            let all = all.into_iter().flat_map(|list| list.expect("a list"));
            all.map(|one| one.resource_version().to_owned())
                .collect::<Vec<_>>()
        };
        let settled = versions().await;
        keep().await;
        assert_eq!(versions().await, settled);
    }
}
