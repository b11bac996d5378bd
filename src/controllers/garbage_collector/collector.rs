//! The decisions of the garbage collector (`pkg/controller/garbagecollector/garbagecollector.go`,
//! `operations.go`).

use std::sync::Arc;

use super::Shared;
use super::graph::{FOREGROUND, Node, ORPHAN, OwnerReference, Uid, has_finalizer};
use super::patches;
use crate::controllers::Retry;
use crate::controllers::client::{Client, Failure, Patch, Result, Target};
use crate::controllers::monitors::Followed;
use crate::meta::{Gvk, Gvr, Map, Object, Value};
use crate::registry::Store;

/// The attempts to take a finalizer away while others change the object.
const MAX_CONFLICTS: usize = 10;

/// The state of an owner that a reference names.
enum Owner {
    /// It is there, and stays.
    Solid,
    /// It is gone, or another object has its name.
    Absent,
    /// It waits for its dependents to go.
    Waiting,
}

/// The owners of an object, by their state.
#[derive(Default)]
struct Owners {
    solid: usize,
    dangling: Vec<Uid>,
    waiting: Vec<Uid>,
}

/// Deletes garbage.
pub struct Collector {
    pub client: Client,
    pub followed: Followed,
    pub shared: Arc<Shared>,
}

impl Collector {
    fn node(&self, uid: &str) -> Option<Node> {
        self.shared.graph.lock().get(uid).cloned()
    }

    /// The store of a resource, if it is still served.
    fn store(&self, gvr: &Gvr) -> Option<Arc<Store>> {
        self.client.api().registry.get(gvr)
    }

    /// Deletes an object if it has no owner left, and lets go one that has waited for its last
    /// dependent.
    ///
    /// # Errors
    /// What keeps it from being decided or done.
    pub async fn attempt_to_delete(&self, uid: &str) -> std::result::Result<(), Retry> {
        let Some(node) = self.node(uid) else {
            return Ok(());
        };
        let Some(store) = self.store(&node.source.gvr) else {
            return Ok(());
        };
        if node.is_going() {
            return Ok(());
        }
        let Some(latest) = self.latest(&store, &node, uid).await? else {
            // Its informer will tell, and its dependents are looked at then.
            return Ok(());
        };
        if node.deletes_dependents {
            self.check_followed()?;
            return Ok(self.delete_dependents(&store, uid, &node).await?);
        }
        let references = OwnerReference::of(&latest);
        if references.is_empty() {
            return Ok(());
        }
        let Some(owners) = self.classify(&references, &node).await? else {
            tracing::warn!(
                "{} {}: namespaced owners of a cluster-scoped object are ignored, and it stays",
                node.source.gvr.group_resource(),
                node.name
            );
            return Ok(());
        };
        Ok(self.decide(&store, &node, &latest, owners).await?)
    }

    /// Checks that no dependent can be of a resource that is not followed yet.
    fn check_followed(&self) -> std::result::Result<(), Retry> {
        if self.followed.is_current(self.client.api()) {
            Ok(())
        } else {
            Err(Retry::Later(
                "not all resources are followed yet".to_owned(),
            ))
        }
    }

    /// The object as it is now; `None` if it is gone, or another one has its name.
    async fn latest(&self, store: &Store, node: &Node, uid: &str) -> Result<Option<Object>> {
        let latest = self.client.get(store, &node.namespace, &node.name).await?;
        Ok(latest.filter(|object| object.uid() == uid))
    }

    async fn decide(
        &self,
        store: &Arc<Store>,
        node: &Node,
        latest: &Object,
        owners: Owners,
    ) -> Result<()> {
        let uid = latest.uid();
        let mut gone = owners.dangling;
        if owners.solid > 0 {
            gone.extend(owners.waiting.iter().cloned());
            if gone.is_empty() {
                return Ok(());
            }
            let gone: Vec<&str> = gone.iter().map(|uid| &**uid).collect();
            return self.remove_owners(store, node, latest, &gone).await;
        }
        let dependents: Vec<bool> = {
            let graph = self.shared.graph.lock();
            let dependents = graph.dependents(uid).into_iter();
            dependents
                .map(|(_, node)| node.deletes_dependents)
                .collect()
        };
        if !owners.waiting.is_empty() && !dependents.is_empty() {
            // A circle of objects that wait for each other would wait forever.
            if dependents.contains(&true) {
                self.unblock_owners(store, node, latest).await?;
            }
            return self.delete(store, node, latest, "Foreground").await;
        }
        let policy = if has_finalizer(latest, ORPHAN) {
            "Orphan"
        } else if has_finalizer(latest, FOREGROUND) {
            "Foreground"
        } else {
            "Background"
        };
        self.delete(store, node, latest, policy).await
    }

    /// Looks up all owners. `None` for an object that is not in a namespace and has an owner that
    /// would be in one.
    async fn classify(
        &self,
        references: &[OwnerReference],
        node: &Node,
    ) -> std::result::Result<Option<Owners>, Retry> {
        let mut owners = Owners::default();
        for reference in references {
            match self.owner(reference, node).await? {
                None => return Ok(None),
                Some(Owner::Solid) => owners.solid += 1,
                Some(Owner::Absent) => owners.dangling.push(reference.uid.clone()),
                Some(Owner::Waiting) => owners.waiting.push(reference.uid.clone()),
            }
        }
        Ok(Some(owners))
    }

    /// Looks up an owner; `None` if it would be in a namespace, and the object is not.
    async fn owner(
        &self,
        reference: &OwnerReference,
        node: &Node,
    ) -> std::result::Result<Option<Owner>, Retry> {
        let gvk = Gvk::from_api_version(&reference.api_version, &reference.kind);
        let kinds = &self.client.api().references.kinds;
        let found = kinds.resource_of(&gvk);
        // Its definition may come, or come back.
        let unknown = || {
            Retry::Later(format!(
                "unable to get REST mapping for {}/{}.",
                reference.api_version, reference.kind
            ))
        };
        let resource = found.ok_or_else(unknown)?;
        if resource.namespaced && node.namespace.is_empty() {
            return Ok(None);
        }
        let namespace = if resource.namespaced {
            node.namespace.as_str()
        } else {
            ""
        };
        let store = self.store(&resource.gvr).ok_or_else(unknown)?;
        let owner = self.client.get(&store, namespace, &reference.name).await?;
        let owner = owner.filter(|owner| owner.uid() == &*reference.uid);
        Ok(Some(match owner {
            None => Owner::Absent,
            Some(owner)
                if owner.deletion_timestamp().is_some() && has_finalizer(&owner, FOREGROUND) =>
            {
                Owner::Waiting
            }
            Some(_) => Owner::Solid,
        }))
    }

    /// Sees to the dependents of an object that waits for them, or lets it go if it waits for none.
    async fn delete_dependents(&self, store: &Arc<Store>, uid: &str, node: &Node) -> Result<()> {
        let blocking: Vec<(Uid, bool)> = {
            let graph = self.shared.graph.lock();
            let dependents = graph.dependents(uid).into_iter();
            dependents
                .filter(|(_, dependent)| dependent.blocks(uid))
                .map(|(uid, dependent)| (uid, dependent.deletes_dependents))
                .collect()
        };
        if blocking.is_empty() {
            return self.remove_finalizer(store, uid, node, FOREGROUND).await;
        }
        for (dependent, has_begun) in blocking {
            if !has_begun {
                self.shared.delete.add(&dependent);
            }
        }
        Ok(())
    }

    /// Takes the dependents of an object away from it, which is what its deletion waits for.
    ///
    /// # Errors
    /// What keeps one of them from being changed.
    pub async fn attempt_to_orphan(&self, uid: &str) -> std::result::Result<(), Retry> {
        let Some(node) = self.node(uid) else {
            return Ok(());
        };
        let Some(store) = self.store(&node.source.gvr) else {
            return Ok(());
        };
        self.check_followed()?;
        let dependents: Vec<(Uid, Node)> = {
            let graph = self.shared.graph.lock();
            let dependents = graph.dependents(uid).into_iter();
            dependents.map(|(uid, node)| (uid, node.clone())).collect()
        };
        for (dependent, of) in dependents {
            let Some(store) = self.store(&of.source.gvr) else {
                continue;
            };
            if let Some(latest) = self.latest(&store, &of, &dependent).await? {
                self.remove_owners(&store, &of, &latest, &[uid]).await?;
            }
        }
        Ok(self.remove_finalizer(&store, uid, &node, ORPHAN).await?)
    }

    async fn remove_owners(
        &self,
        store: &Arc<Store>,
        node: &Node,
        latest: &Object,
        owners: &[&str],
    ) -> Result<()> {
        let patch = if store.resource.custom.is_some() {
            Patch::Merge(patches::merge_removal(latest, owners))
        } else {
            Patch::Strategic(patches::strategic_removal(latest.uid(), owners))
        };
        self.patch(store, node, patch).await
    }

    async fn unblock_owners(&self, store: &Arc<Store>, node: &Node, latest: &Object) -> Result<()> {
        let patch = if store.resource.custom.is_some() {
            Patch::Merge(patches::merge_unblocking(latest))
        } else {
            Patch::Strategic(patches::strategic_unblocking(latest))
        };
        self.patch(store, node, patch).await
    }

    async fn patch(&self, store: &Arc<Store>, node: &Node, patch: Patch) -> Result<()> {
        let target = Target::new(store, &node.namespace, &node.name);
        match self.client.patch(target, &patch).await {
            Err(why) if why.is_not_found() => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    async fn remove_finalizer(
        &self,
        store: &Arc<Store>,
        uid: &str,
        node: &Node,
        finalizer: &str,
    ) -> Result<()> {
        for _ in 0..MAX_CONFLICTS {
            let Some(latest) = self.latest(store, node, uid).await? else {
                return Ok(());
            };
            if !has_finalizer(&latest, finalizer) {
                return Ok(());
            }
            let patch = Patch::Merge(patches::finalizer_removal(&latest, finalizer));
            match self.patch(store, node, patch).await {
                Err(why) if why.is_conflict() => {}
                outcome => return outcome,
            }
        }
        Err(Failure::internal(format!(
            "{} {} changes all the time",
            node.source.gvr.group_resource(),
            node.name
        )))
    }

    /// Deletes the object if it is as it was read. If it has changed meanwhile, but not its owners,
    /// it is deleted all the same.
    async fn delete(
        &self,
        store: &Arc<Store>,
        node: &Node,
        latest: &Object,
        policy: &'static str,
    ) -> Result<()> {
        let target = Target::new(store, &node.namespace, &node.name);
        let (uid, version) = (latest.uid(), latest.resource_version());
        let strict = options(uid, Some(version), policy);
        match self.client.delete(target, strict).await {
            Err(why) if why.is_not_found() => return Ok(()),
            Err(why) if why.is_conflict() => {
                let Some(now) = self.client.get(store, &node.namespace, &node.name).await? else {
                    return Ok(());
                };
                let same_owners = OwnerReference::of(&now) == OwnerReference::of(latest);
                if now.uid() != uid || now.resource_version() == version || !same_owners {
                    return Err(why);
                }
            }
            outcome => return outcome,
        }
        match self.client.delete(target, options(uid, None, policy)).await {
            Err(why) if why.is_not_found() => Ok(()),
            outcome => outcome,
        }
    }
}

/// The options of a delete of this object, perhaps in this state alone.
fn options(uid: &str, version: Option<&str>, policy: &'static str) -> Map {
    let mut preconditions = Map::new();
    preconditions.insert("uid", uid.into());
    if let Some(version) = version {
        preconditions.insert("resourceVersion", version.into());
    }
    let mut options = Map::new();
    options.insert("preconditions", Value::Object(preconditions));
    options.insert("propagationPolicy", policy.into());
    options
}
