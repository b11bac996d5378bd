//! Default taints and tolerations: DefaultTolerationSeconds for pods, TaintNodesByCondition for
//! nodes.

use async_trait::async_trait;

use super::{Attributes, Operation, Plugin, Settings};
use crate::meta::status::Result;
use crate::meta::{Map, Value, json, str_at};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// The list under `key`, made where it is absent.
pub(super) fn list_mut<'a>(map: &'a mut Map, key: &'static str) -> &'a mut Vec<Value> {
    let slot = map.entry(key).or_insert(Value::Null);
    if !slot.is_array() {
        *slot = Value::Array(Vec::new());
    }
    slot.as_array_mut().expect("just made an array")
}

/// Lets pods stay for a while on a node that is not ready or cannot be reached.
pub struct DefaultTolerationSeconds([(&'static str, i64); 2]);

impl DefaultTolerationSeconds {
    pub fn new(settings: &Settings) -> Self {
        Self([
            (NOT_READY, settings.not_ready_toleration_seconds),
            (UNREACHABLE, settings.unreachable_toleration_seconds),
        ])
    }
}

#[async_trait]
impl Plugin for DefaultTolerationSeconds {
    fn name(&self) -> &'static str {
        "DefaultTolerationSeconds"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        matches!(attributes.operation, Operation::Create | Operation::Update)
            && attributes.is("", "pods")
    }

    async fn admit(&self, attributes: &mut Attributes<'_>) -> Result<()> {
        let Some(pod) = attributes.object_mut() else {
            return Ok(());
        };
        for (taint, seconds) in self.0 {
            let tolerated = pod.array_at("/spec/tolerations").iter().any(|toleration| {
                let (key, effect) = (str_at(toleration, "/key"), str_at(toleration, "/effect"));
                (key == taint || key.is_empty()) && (effect == "NoExecute" || effect.is_empty())
            });
            if !tolerated {
                let toleration = json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
                list_mut(pod.section_mut("spec"), "tolerations").push(toleration);
            }
        }
        Ok(())
    }
}

/// Taints a new node as not ready, until the node controller has seen that it is.
pub struct TaintNodesByCondition;

#[async_trait]
impl Plugin for TaintNodesByCondition {
    fn name(&self) -> &'static str {
        "TaintNodesByCondition"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create && attributes.is("", "nodes")
    }

    async fn admit(&self, attributes: &mut Attributes<'_>) -> Result<()> {
        let Some(node) = attributes.object_mut() else {
            return Ok(());
        };
        let same = |taint: &Value| {
            str_at(taint, "/key") == NOT_READY && str_at(taint, "/effect") == "NoSchedule"
        };
        if !node.array_at("/spec/taints").iter().any(same) {
            list_mut(node.section_mut("spec"), "taints")
                .push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
        }
        Ok(())
    }
}
