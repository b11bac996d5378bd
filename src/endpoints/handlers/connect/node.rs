//! The kubelet that a stream goes to.

use super::RequestContext;
use crate::endpoints::kubelet::Kubelet;
use crate::meta::status::Result;
use crate::meta::{Gvr, Object, Status};

/// Returns the kubelet of a node. A node that does not exist is named with the resource of the
/// request, as upstream names it.
///
/// # Errors
/// There is no such node, or it has no address.
pub async fn kubelet(ctx: &RequestContext<'_>, node: &str) -> Result<Kubelet> {
    let nodes = ctx.api.registry.get(&Gvr::new("", "v1", "nodes"));
    let nodes = nodes.ok_or_else(Status::no_such_path)?;
    let found = nodes.cached_get("", node).await?;
    let found = found.ok_or_else(|| Status::not_found(&ctx.store.resource.gvr, node))?;
    ctx.api.kubelets.of(&found)
}

/// Returns the node that a pod has been assigned to.
///
/// # Errors
/// It has not been assigned to any.
pub fn node_of(pod: &Object) -> Result<&str> {
    match pod.str_at("/spec/nodeName") {
        "" => Err(Status::bad_request(format!(
            "pod {} does not have a host assigned",
            pod.name()
        ))),
        node => Ok(node),
    }
}
