//! The event handlers of the server's informers: the RBAC rules, the graph of the node authorizer
//! and the definitions of custom resources.

use std::sync::Arc;

use async_trait::async_trait;

use super::informer::{EventHandler, Informers};
use crate::admission::observed::Observer;
use crate::admission::{self, Registrations};
use crate::auth::authz::node::{self, NodeGraph};
use crate::auth::authz::rbac::RbacStore;
use crate::extensions::Extensions;
use crate::meta::selector::FieldReader;
use crate::meta::status::Result;
use crate::meta::{Gvr, Object, Status};
use crate::registry::resource::Hooks;
use crate::registry::{Registry, Store};
use crate::storage::Revision;

/// The resources of RBAC.
const RBAC_RESOURCES: [&str; 4] = [
    "clusterroles",
    "clusterrolebindings",
    "roles",
    "rolebindings",
];

/// The resources in the graph of the node authorizer.
const NODE_GRAPH_RESOURCES: [(&str, &str); 4] = [
    ("", "pods"),
    ("", "persistentvolumes"),
    ("storage.k8s.io", "volumeattachments"),
    ("resource.k8s.io", "resourceslices"),
];

fn store(registry: &Registry, group: &str, resource: &str) -> Result<Arc<Store>> {
    registry
        .get(&Gvr::new(group, "v1", resource))
        .ok_or_else(|| Status::internal(format!("{resource} are not served")))
}

/// Keeps the RBAC rules up to date.
///
/// # Errors
/// The store's, of the first list.
pub async fn watch_rbac(
    registry: &Registry,
    rbac: &Arc<RbacStore>,
    informers: &Informers,
) -> Result<()> {
    for resource in RBAC_RESOURCES {
        let store = store(registry, "rbac.authorization.k8s.io", resource)?;
        let handler = RbacHandler {
            rbac: rbac.clone(),
            kind: store.resource.gvk.kind.clone(),
        };
        informers.start(store, Arc::new(handler)).await?;
    }
    Ok(())
}

/// Keeps the graph of the node authorizer up to date.
///
/// # Errors
/// The store's, of the first list.
pub async fn watch_node_graph(
    registry: &Registry,
    graph: &Arc<NodeGraph>,
    informers: &Informers,
) -> Result<()> {
    for (group, resource) in NODE_GRAPH_RESOURCES {
        let store = store(registry, group, resource)?;
        let handler = NodeGraphHandler {
            graph: graph.clone(),
            kind: store.resource.gvk.kind.clone(),
        };
        informers.start(store, Arc::new(handler)).await?;
    }
    Ok(())
}

/// Keeps the custom resources up to date with their definitions, which are in `definitions`.
///
/// # Errors
/// The store's, of the first list.
pub async fn watch_definitions(
    definitions: Arc<Store>,
    extensions: &Arc<Extensions>,
    informers: &Informers,
) -> Result<()> {
    let handler = DefinitionHandler(extensions.clone());
    informers.start(definitions, Arc::new(handler)).await
}

/// Keeps admission policies and webhooks up to date with what other servers write.
///
/// # Errors
/// The store's, of the first list.
pub async fn watch_registrations(
    registry: &Registry,
    registrations: &Registrations,
    informers: &Informers,
) -> Result<()> {
    for (resource, observer) in registrations.observers() {
        let store = store(registry, admission::GROUP, resource)?;
        let handler = RegistrationHandler(observer);
        informers.start(store, Arc::new(handler)).await?;
    }
    Ok(())
}

/// Hands the objects of one resource to the admission plugin that they are for.
pub struct RegistrationHandler(pub Arc<dyn Observer>);

impl EventHandler for RegistrationHandler {
    fn replace(&self, objects: &[Object], revision: Revision) {
        self.0.replace(objects, revision);
    }

    fn upsert(&self, object: &Object) {
        self.0.observe(object);
    }

    fn remove(&self, object: &Object) {
        let revision = object.resource_version().parse().unwrap_or(0);
        self.0.forget(object.name(), revision);
    }

    // What was in effect stays so.
    fn unreadable(&self, _object: &Object) {}
}

/// The writes of this server take effect before clients get their answers.
#[async_trait]
impl Hooks for RegistrationHandler {
    async fn written(&self, object: &Object, _old: Option<&Object>) {
        self.upsert(object);
    }

    async fn deleted(&self, object: &Object) {
        self.remove(object);
    }
}

/// Passes the objects of one RBAC resource to the authorizer.
struct RbacHandler {
    rbac: Arc<RbacStore>,
    kind: String,
}

impl EventHandler for RbacHandler {
    fn replace(&self, objects: &[Object], _revision: Revision) {
        self.rbac.replace(&self.kind, objects);
    }

    fn upsert(&self, object: &Object) {
        self.rbac.upsert(object);
    }

    fn remove(&self, object: &Object) {
        self.rbac
            .remove(&self.kind, object.namespace(), object.name());
    }
}

/// Passes the objects of one resource to the graph of the node authorizer.
struct NodeGraphHandler {
    graph: Arc<NodeGraph>,
    kind: String,
}

impl EventHandler for NodeGraphHandler {
    fn fields(&self) -> Option<&'static [&'static str]> {
        (self.kind == "Pod").then_some(&node::POD_PATHS)
    }

    fn is_unchanged(&self, object: &dyn FieldReader) -> bool {
        self.kind == "Pod" && self.graph.knows_pod(object)
    }

    fn replace(&self, objects: &[Object], _revision: Revision) {
        self.graph.replace(&self.kind, objects);
    }

    fn upsert(&self, object: &Object) {
        self.graph.upsert(object);
    }

    fn remove(&self, object: &Object) {
        self.graph
            .remove(&self.kind, object.namespace(), object.name());
    }
}

/// Passes the definitions to the controller of custom resources.
struct DefinitionHandler(Arc<Extensions>);

impl EventHandler for DefinitionHandler {
    fn replace(&self, objects: &[Object], _revision: Revision) {
        self.0.replace(objects);
    }

    fn upsert(&self, object: &Object) {
        self.0.observe(object);
    }

    fn remove(&self, object: &Object) {
        self.0.forget(object);
    }
}
