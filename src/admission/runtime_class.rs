//! RuntimeClass: copies the overhead and scheduling constraints of its class to a pod
//! (`plugin/pkg/admission/runtimeclass`).

use std::sync::Arc;

use crate::meta::Value;
use async_trait::async_trait;

use super::taints::list_mut;
use super::tolerations::merge_tolerations;
use super::{Attributes, Objects, Operation, Plugin};
use crate::meta::go;
use crate::meta::status::Result;
use crate::meta::{Gvr, Object};

pub struct RuntimeClass(pub Arc<dyn Objects>);

const MISMATCH: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

impl RuntimeClass {
    async fn class(&self, attributes: &Attributes<'_>) -> Result<Option<Arc<Object>>> {
        let name = attributes
            .object()
            .and_then(|pod| pod.at("/spec/runtimeClassName"))
            .and_then(Value::as_str);
        let Some(name) = name else { return Ok(None) };
        match self
            .0
            .get(&Gvr::new("node.k8s.io", "v1", "runtimeclasses"), "", name)
            .await?
        {
            None => Err(attributes.forbidden(&format!(
                "pod rejected: RuntimeClass {} not found",
                go::quote(name)
            ))),
            found => Ok(found),
        }
    }
}

/// A map that is there and not empty.
fn filled<'a>(object: &'a Object, path: &str) -> Option<&'a Value> {
    object
        .at(path)
        .filter(|value| value.as_object().is_some_and(|map| !map.is_empty()))
}

fn set_node_selector(attributes: &mut Attributes<'_>, class: &Object) -> Result<()> {
    let Some(wanted) = class
        .at("/scheduling/nodeSelector")
        .and_then(Value::as_object)
    else {
        return Ok(());
    };
    for (key, value) in wanted {
        let given = attributes
            .object()
            .and_then(|pod| pod.at("/spec/nodeSelector"))
            .and_then(|map| map.get(key));
        if let (Some(given), Some(wanted)) = (given.and_then(Value::as_str), value.as_str())
            && given != wanted
        {
            let why = format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {wanted}; pod.spec.nodeSelector[{key}] = {given}"
            );
            return Err(attributes.forbidden(&why));
        }
    }
    let Some(pod) = attributes.object_mut() else {
        return Ok(());
    };
    let slot = pod
        .section_mut("spec")
        .entry("nodeSelector")
        .or_insert(Value::Null);
    match slot.as_object_mut() {
        None => *slot = Value::Object(wanted.clone()),
        Some(map) => {
            map.extend(
                wanted
                    .iter()
                    .map(|(key, value)| (key.clone(), value.clone())),
            );
            map.sort_keys();
        }
    }
    Ok(())
}

#[async_trait]
impl Plugin for RuntimeClass {
    fn name(&self) -> &'static str {
        "RuntimeClass"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create && attributes.is("", "pods")
    }

    async fn admit(&self, attributes: &mut Attributes<'_>) -> Result<()> {
        let Some(class) = self.class(attributes).await? else {
            return Ok(());
        };
        if class.get("overhead").is_some_and(Value::is_object) {
            let overhead = class.at("/overhead/podFixed");
            let given = attributes
                .object()
                .and_then(|pod| filled(pod, "/spec/overhead"));
            if given.is_some() && given != overhead {
                return Err(attributes.forbidden(MISMATCH));
            }
            if let (Some(overhead), Some(pod)) = (overhead, attributes.object_mut()) {
                pod.section_mut("spec").insert("overhead", overhead.clone());
            }
        }
        if class.get("scheduling").is_some_and(Value::is_object) {
            set_node_selector(attributes, &class)?;
            if let Some(pod) = attributes.object_mut() {
                let tolerations = list_mut(pod.section_mut("spec"), "tolerations");
                *tolerations = merge_tolerations(
                    std::mem::take(tolerations),
                    class.array_at("/scheduling/tolerations"),
                );
                if tolerations.is_empty() {
                    pod.section_mut("spec").shift_remove("tolerations");
                }
            }
        }
        Ok(())
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<()> {
        let class = self.class(attributes).await?;
        let given = attributes
            .object()
            .and_then(|pod| filled(pod, "/spec/overhead"));
        match class.filter(|class| class.get("overhead").is_some_and(Value::is_object)) {
            Some(class) if given != filled(&class, "/overhead/podFixed") => Err(attributes.forbidden(MISMATCH)),
            None if given.is_some() => {
                Err(attributes.forbidden("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"))
            }
            _ => Ok(()),
        }
    }
}
