//! NamespaceLifecycle: refuses new objects in missing or terminating namespaces, and the deletion
//! of system namespaces (apiserver `admission/plugin/namespace/lifecycle`).

use std::sync::Arc;

use async_trait::async_trait;

use super::{Attributes, Objects, Operation, Plugin};
use crate::meta::status::{Cause, Result};
use crate::meta::{Gvr, Status};

/// Namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

pub struct NamespaceLifecycle(pub Arc<dyn Objects>);

#[async_trait]
impl Plugin for NamespaceLifecycle {
    fn name(&self) -> &'static str {
        "NamespaceLifecycle"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        if attributes.is_any("", "namespaces") {
            return attributes.operation == Operation::Delete && attributes.subresource.is_empty();
        }
        // The result of a review must not depend on the existence of its namespace.
        let review = attributes.is("authorization.k8s.io", "localsubjectaccessreviews");
        let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
        writes && !attributes.namespace.is_empty() && !review
    }

    async fn admit(&self, attributes: &mut Attributes<'_>) -> Result<()> {
        if attributes.operation == Operation::Delete {
            return match IMMORTAL.contains(&attributes.name) {
                true => Err(Status::forbidden(
                    attributes.gvr,
                    attributes.name,
                    "this namespace may not be deleted",
                )),
                false => Ok(()),
            };
        }
        let namespaces = Gvr::new("", "v1", "namespaces");
        let name = attributes.namespace;
        let Some(namespace) = self.0.get(&namespaces, "", name).await? else {
            return Err(Status::not_found(&namespaces, name));
        };
        if attributes.operation == Operation::Create
            && namespace.str_at("/status/phase") == "Terminating"
        {
            let why = format!(
                "unable to create new content in namespace {name} because it is being terminated"
            );
            let mut status = attributes.forbidden(&why);
            status.details_mut().causes.push(Cause {
                reason: "NamespaceTerminating".to_owned(),
                message: format!("namespace {name} is being terminated"),
                field: "metadata.namespace".to_owned(),
            });
            return Err(status);
        }
        Ok(())
    }
}
