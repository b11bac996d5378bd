//! PodTopologyLabels: copies the zone and region of a node to its pods
//! (`plugin/pkg/admission/podtopologylabels`).

use std::sync::Arc;

use async_trait::async_trait;

use super::{Attributes, Objects, Operation, Plugin};
use crate::meta::status::Result;
use crate::meta::{Gvr, Map, json};

/// The labels that are copied.
const LABELS: [&str; 2] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];

/// Copies the topology labels of a node to the pods created on it, and to the Bindings that assign
/// pods to it, whose labels the pods get.
pub struct PodTopologyLabels(pub Arc<dyn Objects>);

impl PodTopologyLabels {
    /// Returns the topology labels of a node; none where there is no such node.
    async fn labels_of(&self, node: &str) -> Result<Map> {
        let nodes = Gvr::new("", "v1", "nodes");
        let node = self.0.get(&nodes, "", node).await?;
        let labels = node.as_ref().and_then(|node| node.labels());
        let copied = LABELS.iter().filter_map(|label| {
            let value = labels?.get(label)?;
            Some(((*label).to_owned(), value.clone()))
        });
        Ok(copied.collect())
    }
}

#[async_trait]
impl Plugin for PodTopologyLabels {
    fn name(&self) -> &'static str {
        "PodTopologyLabels"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create
            && attributes.is_any("", "pods")
            && matches!(attributes.subresource, "" | "binding")
    }

    async fn admit(&self, attributes: &mut Attributes<'_>) -> Result<()> {
        let binds = attributes.subresource == "binding";
        let Some(object) = attributes.object_mut() else {
            return Ok(());
        };
        let node = match binds {
            true if object.str_at("/target/kind") == "Node" => object.str_at("/target/name"),
            true => "",
            false => object.str_at("/spec/nodeName"),
        };
        if node.is_empty() {
            return Ok(());
        }
        let copied = self.labels_of(node).await?;
        if copied.is_empty() {
            return Ok(());
        }
        let labels = object
            .metadata_mut()
            .entry("labels")
            .or_insert_with(|| json!({}));
        if !labels.is_object() {
            *labels = json!({});
        }
        if let Some(labels) = labels.as_object_mut() {
            labels.extend(copied);
        }
        Ok(())
    }
}
