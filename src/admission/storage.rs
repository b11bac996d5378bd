//! Volumes: the default class of claims, and protection of what is in use (`plugin/pkg/admission/storage`).

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use super::ingress_class::newest_default;
use super::taints::list_mut;
use super::{Attributes, Objects, Operation, Plugin};
use crate::meta::status::Result;
use crate::meta::{Gvr, Object};

const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

fn classes() -> Gvr {
    Gvr::new("storage.k8s.io", "v1", "storageclasses")
}

/// The class that a claim asks for, by annotation or field; `None` where it leaves the choice.
fn class_of(claim: &Object) -> Option<&str> {
    let annotated = claim.annotations().and_then(|all| all.get(CLASS_ANNOTATION)).and_then(Value::as_str);
    annotated.or_else(|| claim.at("/spec/storageClassName").and_then(Value::as_str))
}

pub struct DefaultStorageClass(pub Arc<dyn Objects>);

#[async_trait]
impl Plugin for DefaultStorageClass {
    fn name(&self) -> &'static str {
        "DefaultStorageClass"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create && attributes.is("", "persistentvolumeclaims")
    }

    async fn admit(&self, attributes: &mut Attributes<'_>) -> Result<()> {
        let Some(claim) = attributes.object_mut() else { return Ok(()) };
        if class_of(claim).is_some() {
            return Ok(());
        }
        const MARKS: [&str; 2] = ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
        if let Some(class) = newest_default(self.0.list(&classes(), "").await?, &MARKS) {
            claim.section_mut("spec").insert("storageClassName".to_owned(), class.name().into());
        }
        Ok(())
    }
}

/// Gives volumes and claims the finalizer that keeps them while they are used.
pub struct StorageObjectInUseProtection;

impl StorageObjectInUseProtection {
    fn finalizer(attributes: &Attributes<'_>) -> Option<&'static str> {
        match (attributes.gvr.group.as_str(), attributes.gvr.resource.as_str()) {
            ("", "persistentvolumes") => Some("kubernetes.io/pv-protection"),
            ("", "persistentvolumeclaims") => Some("kubernetes.io/pvc-protection"),
            ("storage.k8s.io", "volumeattributesclasses") => Some("kubernetes.io/vac-protection"),
            _ => None,
        }
    }
}

#[async_trait]
impl Plugin for StorageObjectInUseProtection {
    fn name(&self) -> &'static str {
        "StorageObjectInUseProtection"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create && attributes.subresource.is_empty() && Self::finalizer(attributes).is_some()
    }

    async fn admit(&self, attributes: &mut Attributes<'_>) -> Result<()> {
        let finalizer = Self::finalizer(attributes);
        if let (Some(finalizer), Some(object)) = (finalizer, attributes.object_mut())
            && !object.finalizers().iter().any(|one| one == finalizer)
        {
            list_mut(object.metadata_mut(), "finalizers").push(finalizer.into());
        }
        Ok(())
    }
}
