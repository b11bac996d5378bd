//! NodeDeclaredFeatureValidator: refuses updates of pods that need features which their node does
//! not declare (`plugin/pkg/admission/nodedeclaredfeatures`, component-helpers
//! `nodedeclaredfeatures`).

use std::sync::Arc;

use async_trait::async_trait;

use super::{Attributes, Objects, Operation, Plugin};
use crate::meta::status::Result;
use crate::meta::{Gvr, Object, Value, go, str_at};

/// A feature of nodes, and the updates that need it.
struct Feature {
    name: &'static str,
    is_needed: fn(new: &Object, old: &Object) -> bool,
}

/// The features that an update can need, by name. Others matter to the scheduler only.
const FEATURES: [Feature; 2] = [
    Feature {
        name: "InPlacePodLevelResourcesVerticalScaling",
        is_needed: |new, old| new.at("/spec/resources") != old.at("/spec/resources"),
    },
    Feature {
        name: "InPlacePodVerticalScalingInitContainers",
        is_needed: resizes_init_containers,
    },
];

/// Reports whether an init container that ends has other resources than before.
fn resizes_init_containers(new: &Object, old: &Object) -> bool {
    const INIT: &str = "/spec/initContainers";
    let resources = |container: &Value| container.get("resources").cloned().unwrap_or_default();
    let pairs = old.array_at(INIT).iter().zip(new.array_at(INIT));
    let mut ended = pairs.filter(|(old, _)| str_at(old, "/restartPolicy") != "Always");
    ended.any(|(old, new)| resources(old) != resources(new))
}

/// The plugin.
pub struct NodeDeclaredFeatureValidator(pub Arc<dyn Objects>);

#[async_trait]
impl Plugin for NodeDeclaredFeatureValidator {
    fn name(&self) -> &'static str {
        "NodeDeclaredFeatureValidator"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Update
            && attributes.is_any("", "pods")
            && matches!(attributes.subresource, "" | "resize")
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
        let needed: Vec<&str> = FEATURES
            .iter()
            .filter(|feature| (feature.is_needed)(pod, old))
            .map(|feature| feature.name)
            .collect();
        if needed.is_empty() {
            return Ok(());
        }
        let quoted = go::quote(name);
        let node = match self.0.get(&Gvr::new("", "v1", "nodes"), "", name).await {
            Ok(Some(node)) => node,
            Ok(None) => return Err(attributes.forbidden(&format!("node {quoted} not found"))),
            Err(status) => {
                let why = format!("failed to get node {quoted}: {}", status.message);
                return Err(attributes.forbidden(&why));
            }
        };
        let declared = node.array_at("/status/declaredFeatures");
        let is_declared = |name: &&str| declared.iter().any(|one| one.as_str() == Some(name));
        let missing: Vec<&str> = needed
            .into_iter()
            .filter(|name| !is_declared(name))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(attributes.forbidden(&format!(
            "pod update requires features {} which are not available on node {quoted}",
            missing.join(", ")
        )))
    }
}
