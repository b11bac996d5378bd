//! Priority: resolves the priority class of a pod, and allows one default class at most
//! (`plugin/pkg/admission/priority`).

use std::sync::Arc;

use crate::meta::Value;
use async_trait::async_trait;

use super::{Attributes, Objects, Operation, Plugin};
use crate::meta::status::Result;
use crate::meta::{Gvr, Object};

/// The preemption policy of pods whose class has none.
const PREEMPT: &str = "PreemptLowerPriority";

pub struct Priority(pub Arc<dyn Objects>);

fn classes() -> Gvr {
    Gvr::new("scheduling.k8s.io", "v1", "priorityclasses")
}

impl Priority {
    /// The class that pods without one are of: of several, that of the lowest value.
    async fn default_class(&self) -> Result<Option<Arc<Object>>> {
        let all = self.0.list(&classes(), "").await?;
        let defaults = all
            .into_iter()
            .filter(|class| class.bool_at("/globalDefault"));
        Ok(defaults.min_by_key(|class| class.i64_at("/value").unwrap_or(0)))
    }

    async fn admit_new_pod(&self, attributes: &mut Attributes<'_>) -> Result<()> {
        let Some(pod) = attributes.object() else {
            return Ok(());
        };
        let class = match pod.str_at("/spec/priorityClassName") {
            "" => self.default_class().await?,
            name => match self.0.get(&classes(), "", name).await? {
                None => {
                    return Err(attributes
                        .forbidden(&format!("no PriorityClass with name {name} was found")));
                }
                found => found,
            },
        };
        let (name, priority, policy) = match &class {
            None => ("", 0, PREEMPT),
            Some(class) => (
                class.name(),
                class.i64_at("/value").unwrap_or(0),
                class.str_at("/preemptionPolicy"),
            ),
        };
        const FROM_CLASS: &str = "from the given PriorityClass name";
        match pod.i64_at("/spec/priority") {
            Some(given) if given != priority => {
                let why = format!(
                    "the integer value of priority ({given}) must not be provided in pod spec; \
                     priority admission controller computed {priority} {FROM_CLASS}"
                );
                return Err(attributes.forbidden(&why));
            }
            _ => {}
        }
        let given = pod.str_at("/spec/preemptionPolicy");
        if !policy.is_empty() && !given.is_empty() && given != policy {
            let why = format!(
                "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; \
                 priority admission controller computed {policy} {FROM_CLASS}"
            );
            return Err(attributes.forbidden(&why));
        }
        let Some(pod) = attributes.object_mut() else {
            return Ok(());
        };
        let spec = pod.section_mut("spec");
        if !name.is_empty() {
            spec.insert("priorityClassName", name.into());
        }
        spec.insert("priority", priority.into());
        if !policy.is_empty() {
            spec.insert("preemptionPolicy", policy.into());
        }
        Ok(())
    }
}

/// Keeps what creation computed where an update leaves it out.
fn keep(attributes: &mut Attributes<'_>) {
    let old = attributes.old;
    let (Some(old), Some(pod)) = (old, attributes.object_mut()) else {
        return;
    };
    for key in ["priority", "preemptionPolicy"] {
        let before = old
            .get("spec")
            .and_then(|spec| spec.get(key))
            .filter(|value| !value.is_null());
        let spec = pod.section_mut("spec");
        if let (Some(before), None | Some(Value::Null)) = (before, spec.get(key)) {
            spec.insert(key.to_owned(), before.clone());
        }
    }
}

#[async_trait]
impl Plugin for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
        writes
            && (attributes.is("", "pods") || attributes.is("scheduling.k8s.io", "priorityclasses"))
    }

    async fn admit(&self, attributes: &mut Attributes<'_>) -> Result<()> {
        if !attributes.is("", "pods") {
            return Ok(());
        }
        if attributes.operation == Operation::Update {
            keep(attributes);
            return Ok(());
        }
        self.admit_new_pod(attributes).await
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<()> {
        let Some(class) = attributes.object() else {
            return Ok(());
        };
        if attributes.is("", "pods") || !class.bool_at("/globalDefault") {
            return Ok(());
        }
        match self.default_class().await? {
            Some(default)
                if attributes.operation == Operation::Create || default.name() != class.name() =>
            {
                let why = format!(
                    "PriorityClass {} is already marked as default. Only one default can exist",
                    default.name()
                );
                Err(attributes.forbidden(&why))
            }
            _ => Ok(()),
        }
    }
}
