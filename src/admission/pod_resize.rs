//! PodResizeValidator: limits the resize of a pod to the capacity of its node
//! (`plugin/pkg/admission/podresize`).

use std::sync::Arc;

use async_trait::async_trait;

use super::{Attributes, Objects, Operation, Plugin, resource_list};
use crate::meta::go::quantity::{Format, Quantity};
use crate::meta::status::{Cause, Result};
use crate::meta::{Gvr, Object, Value};

/// The label of a node that names its operating system.
const OS_LABEL: &str = "kubernetes.io/os";

/// Refuses resizes of a pod beyond the allocatable resources of its node, and those on nodes that
/// do not run Linux.
pub struct PodResizeValidator(pub Arc<dyn Objects>);

#[async_trait]
impl Plugin for PodResizeValidator {
    fn name(&self) -> &'static str {
        "PodResizeValidator"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Update
            && attributes.is_any("", "pods")
            && attributes.subresource == "resize"
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<()> {
        let (Some(pod), Some(old)) = (attributes.object(), attributes.old) else {
            return Ok(());
        };
        let name = pod.str_at("/spec/nodeName");
        // The generation rises with every change of the spec.
        if name.is_empty() || pod.generation() == old.generation() {
            return Ok(());
        }
        let nodes = Gvr::new("", "v1", "nodes");
        let node = match self.0.get(&nodes, "", name).await {
            Ok(Some(node)) => node,
            Ok(None) => return Err(attributes.forbidden(&format!("node {name:?} not found"))),
            Err(status) => {
                let why = format!("failed to get node {name:?}: {}", status.message);
                return Err(attributes.forbidden(&why));
            }
        };
        let refused = wrong_platform(&node)
            .map(|why| ("UnsupportedPlatform", why))
            .or_else(|| over_capacity(pod, &node).map(|why| ("NodeCapacity", why)));
        let Some((reason, why)) = refused else {
            return Ok(());
        };
        let mut status = attributes.forbidden(&why);
        status.details.get_or_insert_default().causes.push(Cause {
            reason: reason.to_owned(),
            ..Cause::default()
        });
        Err(status)
    }
}

/// Returns the reason pods on the node cannot be resized at all. A node without the label runs
/// Linux.
fn wrong_platform(node: &Object) -> Option<String> {
    let os = node.labels()?.get(OS_LABEL).and_then(Value::as_str)?;
    (os != "linux").then(|| {
        format!(
            "pod resize is only supported on linux nodes, node {:?} is {os:?}",
            node.name()
        )
    })
}

/// Returns the requests of the pod that exceed the capacity of its node.
fn over_capacity(pod: &Object, node: &Object) -> Option<String> {
    let mut requests = resource_list::of_pod(pod, "requests");
    resource_list::add(&mut requests, &resource_list::overhead(pod));
    let allocatable = node
        .get("status")
        .map(|status| resource_list::read(status, "/allocatable"))
        .unwrap_or_default();
    let zero = Quantity::new(0, Format::DecimalSi);
    let over = |resource: &str, shown: fn(&Quantity) -> i64| {
        let requested = requests.get(resource).unwrap_or(&zero);
        let available = allocatable.get(resource).unwrap_or(&zero);
        (requested > available).then(|| {
            format!(
                "{resource}, requested: {}, allocatable: {}",
                shown(requested),
                shown(available)
            )
        })
    };
    let over: Vec<String> = [
        over("cpu", Quantity::milli_value),
        over("memory", Quantity::value),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!over.is_empty()).then(|| {
        format!(
            "node didn't have enough allocatable resources: {}",
            over.join("; ")
        )
    })
}
