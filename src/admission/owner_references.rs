//! OwnerReferencesPermissionEnforcement: who names owners must be allowed to delete the object, and
//! who keeps an owner from going must be allowed to set its finalizers (`plugin/pkg/admission/gc`).

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;

use super::kinds::{KindResource, Kinds};
use super::{Attributes, Operation, Plugin};
use crate::auth::authz::{self, Authorizer};
use crate::meta::status::Result;
use crate::meta::{Gvk, Object, Value, bool_at, go, str_at};

const REFERENCES: &str = "/metadata/ownerReferences";

/// The plugin.
pub struct OwnerReferencesPermissionEnforcement {
    pub authorizer: Arc<dyn Authorizer>,
    pub kinds: Arc<dyn Kinds>,
}

impl OwnerReferencesPermissionEnforcement {
    /// Returns the reason why an authorizer does not allow something.
    async fn refusal(&self, asked: authz::Attributes) -> Option<String> {
        let decision = self.authorizer.authorize(&asked).await;
        let error = decision.error.as_deref().unwrap_or("<nil>");
        (!decision.is_allowed()).then(|| format!("{}, {error}", decision.reason))
    }

    /// Returns the resource of an owner's kind.
    fn resource(&self, reference: &Value) -> std::result::Result<KindResource, String> {
        let (version, kind) = (str_at(reference, "/apiVersion"), str_at(reference, "/kind"));
        if version.matches('/').count() > 1 {
            return Err(format!("unexpected GroupVersion string: {version}"));
        }
        let gvk = Gvk::from_api_version(version, kind);
        self.kinds.resource_of(&gvk).ok_or_else(|| {
            let (kind, version) = (go::quote(kind), go::quote(version));
            format!("no matches for kind {kind} in version {version}")
        })
    }

    async fn check_owner(&self, attributes: &Attributes<'_>, reference: &Value) -> Result<()> {
        let found = self.resource(reference).map_err(|why| {
            let (version, kind) = (str_at(reference, "/apiVersion"), str_at(reference, "/kind"));
            attributes.forbidden(&format!(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {version} Kind {kind}: {why}"
            ))
        })?;
        // An owner in a namespace is in the one of the object.
        let namespace = match found.namespaced {
            true => attributes.namespace,
            false => "",
        };
        let asked = authz::Attributes {
            group: found.gvr.group,
            version: found.gvr.version,
            resource: found.gvr.resource,
            namespace: namespace.to_owned(),
            name: str_at(reference, "/name").to_owned(),
            ..finalizers(attributes)
        };
        match self.refusal(asked).await {
            None => Ok(()),
            Some(reason) => Err(attributes.forbidden(&format!(
                "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: {reason}"
            ))),
        }
    }
}

/// The permission to set the finalizers of every object.
fn finalizers(attributes: &Attributes<'_>) -> authz::Attributes {
    authz::Attributes {
        user: attributes.user.clone(),
        verb: "update".to_owned(),
        group: "*".to_owned(),
        version: "*".to_owned(),
        resource: "*".to_owned(),
        subresource: "finalizers".to_owned(),
        name: "*".to_owned(),
        resource_request: true,
        ..authz::Attributes::default()
    }
}

fn is_blocking(reference: &Value) -> bool {
    bool_at(reference, "/blockOwnerDeletion")
}

/// The references that keep their owner from going and did not before.
fn new_blocking<'a>(object: &'a Object, old: Option<&Object>) -> Vec<&'a Value> {
    let before = old.map_or(&[][..], |old| old.array_at(REFERENCES));
    let before: HashMap<&str, bool> = before
        .iter()
        .map(|one| (str_at(one, "/uid"), is_blocking(one)))
        .collect();
    let references = object.array_at(REFERENCES).iter();
    references
        .filter(|one| is_blocking(one) && before.get(str_at(one, "/uid")) != Some(&true))
        .collect()
}

#[async_trait]
impl Plugin for OwnerReferencesPermissionEnforcement {
    fn name(&self) -> &'static str {
        "OwnerReferencesPermissionEnforcement"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        let new = attributes
            .object()
            .map_or(&[][..], |object| object.array_at(REFERENCES));
        let old = attributes
            .old
            .map_or(&[][..], |old| old.array_at(REFERENCES));
        matches!(attributes.operation, Operation::Create | Operation::Update)
            && new != old
            // Old kubelets corrupt references there; the strategy restores them.
            && !(attributes.is_any("", "pods") && attributes.subresource == "status")
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<()> {
        let Some(object) = attributes.object() else {
            return Ok(());
        };
        if attributes.operation != Operation::Create {
            let asked = authz::Attributes {
                user: attributes.user.clone(),
                verb: "delete".to_owned(),
                group: attributes.gvr.group.clone(),
                version: attributes.gvr.version.clone(),
                resource: attributes.gvr.resource.clone(),
                subresource: attributes.subresource.to_owned(),
                namespace: attributes.namespace.to_owned(),
                name: attributes.name.to_owned(),
                resource_request: true,
                ..authz::Attributes::default()
            };
            if let Some(reason) = self.refusal(asked).await {
                return Err(attributes.forbidden(&format!(
                    "cannot set an ownerRef on a resource you can't delete: {reason}"
                )));
            }
        }
        let blocking = new_blocking(object, attributes.old);
        // One question answers for all where the user may do everything.
        if blocking.is_empty() || self.refusal(finalizers(attributes)).await.is_none() {
            return Ok(());
        }
        for reference in blocking {
            self.check_owner(attributes, reference).await?;
        }
        Ok(())
    }
}
