//! Plugins about the namespace of an object: NamespaceAutoProvision creates it, NamespaceExists
//! requires it (`plugin/pkg/admission/namespace`). NamespaceLifecycle, which is on by default, has
//! a file of its own.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Attributes, Objects, Operation, Plugin};
use crate::meta::status::Result;
use crate::meta::{Gvr, Object, Status, json};

fn namespaces() -> Gvr {
    Gvr::new("", "v1", "namespaces")
}

/// Reports whether the request is in a namespace, and not about one.
fn is_namespaced(attributes: &Attributes<'_>) -> bool {
    !attributes.namespace.is_empty()
        && (!attributes.gvk.group.is_empty() || attributes.gvk.kind != "Namespace")
}

/// Makes the namespace of a new object where there is none.
pub struct NamespaceAutoProvision(pub Arc<dyn Objects>);

#[async_trait]
impl Plugin for NamespaceAutoProvision {
    fn name(&self) -> &'static str {
        "NamespaceAutoProvision"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create
            && !attributes.dry_run
            && is_namespaced(attributes)
    }

    async fn admit(&self, attributes: &mut Attributes<'_>) -> Result<()> {
        let refused = |why: Status| attributes.forbidden(&why.message);
        if self
            .0
            .get(&namespaces(), "", attributes.namespace)
            .await
            .map_err(refused)?
            .is_some()
        {
            return Ok(());
        }
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": attributes.namespace}});
        match self
            .0
            .create(
                &namespaces(),
                Object::from_value(namespace).unwrap_or_default(),
            )
            .await
        {
            Err(why) if why.reason != "AlreadyExists" => Err(refused(why)),
            _ => Ok(()),
        }
    }
}

/// Refuses every write in a namespace that does not exist.
pub struct NamespaceExists(pub Arc<dyn Objects>);

#[async_trait]
impl Plugin for NamespaceExists {
    fn name(&self) -> &'static str {
        "NamespaceExists"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation != Operation::Connect && is_namespaced(attributes)
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<()> {
        match self.0.get(&namespaces(), "", attributes.namespace).await? {
            Some(_) => Ok(()),
            None => Err(Status::not_found(&namespaces(), attributes.namespace)),
        }
    }
}
