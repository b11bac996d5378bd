//! Plugins for volumes: the default class of claims, protection of volumes in use, and expansion of
//! claims (`plugin/pkg/admission/storage`).

use std::sync::Arc;

use crate::meta::Value;
use async_trait::async_trait;

use super::ingress_class::newest_default;
use super::taints::list_mut;
use super::{Attributes, Objects, Operation, Plugin};
use crate::meta::go::quantity::Quantity;
use crate::meta::status::Result;
use crate::meta::{Gvr, Object};

const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

fn classes() -> Gvr {
    Gvr::new("storage.k8s.io", "v1", "storageclasses")
}

/// The class that a claim asks for, by annotation or field; `None` where it leaves the choice.
fn class_of(claim: &Object) -> Option<&str> {
    let annotated = claim
        .annotations()
        .and_then(|all| all.get(CLASS_ANNOTATION))
        .and_then(Value::as_str);
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
        let Some(claim) = attributes.object_mut() else {
            return Ok(());
        };
        if class_of(claim).is_some() {
            return Ok(());
        }
        const MARKS: [&str; 2] = [
            "storageclass.kubernetes.io/is-default-class",
            "storageclass.beta.kubernetes.io/is-default-class",
        ];
        if let Some(class) = newest_default(self.0.list(&classes(), "").await?, &MARKS) {
            claim
                .section_mut("spec")
                .insert("storageClassName", class.name().into());
        }
        Ok(())
    }
}

/// Gives volumes and claims the finalizer that keeps them while they are used.
pub struct StorageObjectInUseProtection;

impl StorageObjectInUseProtection {
    fn finalizer(attributes: &Attributes<'_>) -> Option<&'static str> {
        match (
            attributes.gvr.group.as_str(),
            attributes.gvr.resource.as_str(),
        ) {
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
        attributes.operation == Operation::Create
            && attributes.subresource.is_empty()
            && Self::finalizer(attributes).is_some()
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

/// Allows a bound claim to grow only if its class allows expansion.
pub struct PersistentVolumeClaimResize(pub Arc<dyn Objects>);

#[async_trait]
impl Plugin for PersistentVolumeClaimResize {
    fn name(&self) -> &'static str {
        "PersistentVolumeClaimResize"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Update && attributes.is("", "persistentvolumeclaims")
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<()> {
        let (Some(claim), Some(old)) = (attributes.object(), attributes.old) else {
            return Ok(());
        };
        let size = |claim: &Object| {
            Quantity::parse(claim.str_at("/spec/resources/requests/storage")).unwrap_or_default()
        };
        if size(claim) <= size(old) {
            return Ok(());
        }
        if old.str_at("/status/phase") != "Bound" {
            return Err(attributes.forbidden("Only bound persistent volume claims can be expanded"));
        }
        let class = match (class_of(claim), class_of(old)) {
            (Some(new), Some(before)) if new == before && !new.is_empty() => {
                self.0.get(&classes(), "", new).await?
            }
            _ => None,
        };
        match class.is_some_and(|class| class.bool_at("/allowVolumeExpansion")) {
            true => Ok(()),
            false => Err(attributes.forbidden(
                "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
            )),
        }
    }
}
