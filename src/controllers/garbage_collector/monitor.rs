//! The informers of the garbage collector: one for each resource whose objects can be deleted.

use std::sync::Arc;

use super::Shared;
use super::graph::Source;
use crate::controllers::monitors::has_verb;
use crate::controlplane::informer::EventHandler;
use crate::meta::Object;
use crate::registry::Store;
use crate::storage::Revision;

/// The resources that are no garbage, and own none (`DefaultIgnoredResources`).
const IGNORED: [&str; 2] = ["events", "events.events.k8s.io"];

/// The parts of an object that the graph is made of.
const FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "metadata.resourceVersion",
    "metadata.deletionTimestamp",
    "metadata.finalizers",
    "metadata.ownerReferences",
];

/// A handler that tells the graph of the objects of one resource.
pub struct Monitor {
    source: Arc<Source>,
    shared: Arc<Shared>,
}

impl Monitor {
    pub fn new(store: &Store, shared: &Arc<Shared>) -> Self {
        let source = Source {
            gvr: store.resource.gvr.clone(),
            kind: store.resource.gvk.kind.clone(),
        };
        Self {
            source: Arc::new(source),
            shared: shared.clone(),
        }
    }
}

impl EventHandler for Monitor {
    fn fields(&self) -> Option<&'static [&'static str]> {
        Some(FIELDS)
    }

    fn replace(&self, objects: &[Object], _revision: Revision) {
        self.shared
            .change(|graph, work| graph.replace(&self.source, objects, work));
    }

    fn upsert(&self, object: &Object) {
        self.shared
            .change(|graph, work| graph.observe(&self.source, object, work));
    }

    fn remove(&self, object: &Object) {
        let (source, uid) = (&self.source, object.uid());
        self.shared.change(|graph, work| {
            if uid.is_empty() {
                graph.forget_named(source, object.namespace(), object.name(), work);
            } else {
                graph.forget(uid, work);
            }
        });
    }

    // It is there, with the owners that it had.
    fn unreadable(&self, _object: &Object) {}
}

/// Reports whether the objects of a resource may be garbage.
pub fn is_collected(store: &Store) -> bool {
    ["delete", "list", "watch"]
        .into_iter()
        .all(|verb| has_verb(store, verb))
        && !IGNORED.contains(&store.resource.gvr.group_resource().as_str())
}
