//! The deletion of everything in a namespace, pods first
//! (`pkg/controller/namespace/deletion/namespaced_resources_deleter.go`).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::conditions::Conditions;
use crate::base::clock::Clock;
use crate::controllers::client::{Client, Failure, Result, Target};
use crate::meta::{Map, Object, Value, str_at, time};
use crate::registry::Store;

/// The finalizer that this controller takes away.
const FINALIZER: &str = "kubernetes";
/// The seconds that finalizers of objects are thought to take (`finalizerEstimateSeconds`).
const FINALIZER_SECONDS: i64 = 15;
/// The attempts at a write that conflicts with others.
const MAX_CONFLICTS: usize = 100;

/// The outcome of one look at a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is gone, or not this controller's to empty.
    Done,
    /// Objects remain, for an estimated number of seconds.
    Remaining(i64),
}

/// The objects that remain of a resource, or of all.
#[derive(Debug, Default)]
pub struct Remaining {
    /// The seconds until it is gone, where there is an estimate.
    estimate: i64,
    /// The number of objects of each resource (`pods.`).
    pub resources: BTreeMap<String, usize>,
    /// The number of objects that wait for each finalizer.
    pub finalizers: BTreeMap<String, usize>,
}

impl Remaining {
    fn add(&mut self, other: Self) {
        self.estimate = self.estimate.max(other.estimate);
        self.resources.extend(other.resources);
        for (finalizer, count) in other.finalizers {
            *self.finalizers.entry(finalizer).or_default() += count;
        }
    }
}

/// Empties namespaces.
pub struct Deleter {
    pub client: Client,
    pub namespaces: Arc<Store>,
    pub clock: Clock,
}

impl Deleter {
    /// Takes the next step in the deletion of a namespace.
    ///
    /// # Errors
    /// What keeps objects from being deleted.
    pub async fn delete(&self, name: &str) -> Result<Progress> {
        let Some(namespace) = self.client.get(&self.namespaces, "", name).await? else {
            return Ok(Progress::Done);
        };
        if namespace.deletion_timestamp().is_none() {
            return Ok(Progress::Done);
        }
        let Some(namespace) = self.changed(namespace, "status", terminating).await? else {
            return Ok(Progress::Done);
        };
        if namespace.array_at("/spec/finalizers").is_empty() {
            return Ok(Progress::Done);
        }
        let estimate = self.delete_content(&namespace).await?;
        if estimate > 0 {
            return Ok(Progress::Remaining(estimate));
        }
        self.changed(namespace, "finalize", finalized).await?;
        Ok(Progress::Done)
    }

    /// Changes a subresource of a namespace, on top of others' changes; `None` if it is gone.
    async fn changed(
        &self,
        mut namespace: Object,
        subresource: &str,
        change: impl Fn(&Object) -> Option<Object>,
    ) -> Result<Option<Object>> {
        for _ in 0..MAX_CONFLICTS {
            let Some(changed) = change(&namespace) else {
                return Ok(Some(namespace));
            };
            let target =
                Target::new(&self.namespaces, "", namespace.name()).subresource(subresource);
            match self.client.update(target, &changed).await {
                Ok(object) => return Ok(Some(object)),
                Err(why) if why.is_not_found() => return Ok(None),
                Err(why) if why.is_conflict() => {}
                Err(why) => return Err(why),
            }
            let latest = self.client.get(&self.namespaces, "", namespace.name());
            let Some(latest) = latest.await? else {
                return Ok(None);
            };
            if latest.uid() != namespace.uid() {
                return Err(Failure::internal(
                    "namespace uid has changed across retries",
                ));
            }
            namespace = latest;
        }
        Err(Failure::internal(format!(
            "namespace {} changes all the time",
            namespace.name()
        )))
    }

    /// Deletes everything in a namespace, and returns the seconds that what remains is thought to
    /// take.
    async fn delete_content(&self, namespace: &Object) -> Result<i64> {
        let mut conditions = Conditions::default();
        let (mut total, mut failures) = (Remaining::default(), Vec::new());
        let unreachable = self.unreachable_group_versions().await?;
        if !unreachable.is_empty() {
            failures.push(conditions.undiscovered(&unreachable));
        }
        let (pods, others): (Vec<_>, Vec<_>) = self
            .client
            .api()
            .registry
            .stores()
            .into_iter()
            .filter(|store| is_deletable(store))
            .partition(|store| store.resource.gvr.group_resource() == "pods");
        for (first, stores) in [(true, pods), (false, others)] {
            for store in stores {
                match self.delete_resource(&store, namespace).await {
                    (remaining, None) => total.add(remaining),
                    (remaining, Some(why)) => {
                        total.add(remaining);
                        conditions.failures.push(why.message.clone());
                        failures.push(if first {
                            let name = namespace.name();
                            format!("failed to delete pods for namespace: {name}, err: {why}")
                        } else {
                            why.message
                        });
                    }
                }
            }
            // What pods use stays for as long as they do.
            if first && !total.resources.is_empty() {
                break;
            }
            if !first {
                conditions.count(&total);
            }
        }
        self.publish(namespace, &conditions).await;
        if failures.is_empty() {
            Ok(total.estimate)
        } else {
            Err(Failure::internal(aggregate(failures)))
        }
    }

    /// The groups and versions of extension servers that do not answer: what they have in the
    /// namespace is not known, so that it stays until they do, or are no longer registered.
    async fn unreachable_group_versions(&self) -> Result<Vec<String>> {
        let services = self
            .client
            .store("apiregistration.k8s.io", "v1", "apiservices")?;
        let services = self.client.list(&services, "").await?;
        let unreachable = services.iter().filter(|service| {
            let mut conditions = service.array_at("/status/conditions").iter();
            service.at("/spec/service").is_some_and(Value::is_object)
                && !conditions.any(|condition| {
                    str_at(condition, "/type") == "Available"
                        && str_at(condition, "/status") == "True"
                })
        });
        let named = |service: &Object| {
            let (group, version) = (
                service.str_at("/spec/group"),
                service.str_at("/spec/version"),
            );
            format!("{group}/{version}")
        };
        Ok(unreachable.map(named).collect())
    }

    /// Updates the conditions of a namespace. A failure is only logged: the next look tries again.
    async fn publish(&self, namespace: &Object, conditions: &Conditions) {
        let now = time::format(self.clock.now().as_second());
        let Some(changed) = conditions.applied(namespace, &now) else {
            return;
        };
        let target = Target::new(&self.namespaces, "", namespace.name()).subresource("status");
        if let Err(why) = self.client.update(target, &changed).await {
            tracing::warn!(
                "couldn't update status condition for namespace {}: {why}",
                namespace.name()
            );
        }
    }

    /// Deletes the objects of a resource in a namespace, and returns what remains, with the failure
    /// that stopped it.
    async fn delete_resource(
        &self,
        store: &Arc<Store>,
        namespace: &Object,
    ) -> (Remaining, Option<Failure>) {
        let mut remaining = Remaining::default();
        let outcome = self.delete_all(store, namespace, &mut remaining).await;
        (remaining, outcome.err())
    }

    async fn delete_all(
        &self,
        store: &Arc<Store>,
        namespace: &Object,
        remaining: &mut Remaining,
    ) -> Result<()> {
        let name = namespace.name();
        let found = self.client.list(store, name).await?;
        if found.is_empty() {
            return Ok(());
        }
        let gvr = &store.resource.gvr;
        if gvr.group_resource() == "pods" {
            remaining.estimate = self.graceful_seconds(&found, namespace);
        }
        let collection = Target::new(store, name, "");
        match self.client.delete(collection, in_background()).await {
            Err(why) if why.code == 405 || why.is_not_found() => {
                self.delete_each(store, name, &found).await?;
            }
            outcome => outcome?,
        }
        let left = self.client.list(store, name).await?;
        if left.is_empty() {
            remaining.estimate = 0;
            return Ok(());
        }
        remaining
            .resources
            .insert(format!("{}.{}", gvr.resource, gvr.group), left.len());
        for finalizer in left.iter().flat_map(Object::finalizers) {
            let finalizer = finalizer.as_str().unwrap_or_default().to_owned();
            *remaining.finalizers.entry(finalizer).or_default() += 1;
        }
        if remaining.estimate != 0 {
            return Ok(());
        }
        if !remaining.finalizers.is_empty() {
            remaining.estimate = FINALIZER_SECONDS;
            return Ok(());
        }
        Err(Failure::internal(format!(
            "unexpected items still remain in namespace: {name} for gvr: {}, Resource={}",
            if gvr.group.is_empty() {
                format!("/{}", gvr.version)
            } else {
                gvr.api_version()
            },
            gvr.resource
        )))
    }

    async fn delete_each(
        &self,
        store: &Arc<Store>,
        namespace: &str,
        objects: &[Object],
    ) -> Result<()> {
        for object in objects {
            let target = Target::new(store, namespace, object.name());
            match self.client.delete(target, in_background()).await {
                Err(why) if why.is_not_found() || why.code == 405 => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }

    /// The longest grace period of pods that have not ended, unless it must be over.
    fn graceful_seconds(&self, pods: &[Object], namespace: &Object) -> i64 {
        let has_ended =
            |pod: &&Object| !matches!(pod.str_at("/status/phase"), "Succeeded" | "Failed");
        let seconds = pods
            .iter()
            .filter(has_ended)
            .filter_map(|pod| pod.i64_at("/spec/terminationGracePeriodSeconds"));
        let longest = seconds.max().unwrap_or(0);
        let deleted = namespace.deletion_timestamp().unwrap_or_default();
        let deleted = time::parse(deleted).map_or(0, |at| at.seconds);
        if self.clock.now().as_second() - deleted >= longest {
            0
        } else {
            longest
        }
    }
}

/// Reports whether the objects of a resource are in namespaces and can be deleted.
fn is_deletable(store: &Store) -> bool {
    let decl = &store.resource.decl;
    decl.namespaced && decl.verbs.iter().any(|verb| verb == "delete")
}

/// The options of deletions: dependents do not keep the namespace.
fn in_background() -> Map {
    let mut options = Map::new();
    options.insert("propagationPolicy", "Background".into());
    options
}

/// Sets the phase, where it is not set.
fn terminating(namespace: &Object) -> Option<Object> {
    if namespace.deletion_timestamp().is_none()
        || namespace.str_at("/status/phase") == "Terminating"
    {
        return None;
    }
    let mut changed = namespace.clone();
    changed
        .section_mut("status")
        .insert("phase", "Terminating".into());
    Some(changed)
}

/// Takes this controller's finalizer away.
fn finalized(namespace: &Object) -> Option<Object> {
    let mut changed = namespace.clone();
    let mut others: Vec<Value> = namespace.array_at("/spec/finalizers").to_vec();
    others.retain(|finalizer| finalizer.as_str() != Some(FINALIZER));
    others.sort_by(|one, other| one.as_str().cmp(&other.as_str()));
    changed
        .section_mut("spec")
        .insert("finalizers", Value::Array(others));
    Some(changed)
}

/// One text of several errors, as `utilerrors.Aggregate` has it.
fn aggregate(mut messages: Vec<String>) -> String {
    messages.dedup();
    match messages.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}
