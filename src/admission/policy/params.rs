//! The parameters that a binding gives to its policy (apiserver
//! `admission/plugin/policy/generic.CollectParams`).

use std::sync::Arc;

use super::definition::{Binding, Evaluator, Policy};
use crate::admission::Objects;
use crate::admission::kinds::Kinds;
use crate::meta::{Gvk, Object};

/// The error of a policy whose kind of parameters is not served.
pub fn unknown_kind(gvk: &Gvk) -> String {
    // As Go prints a kind: the core group is empty and has its slash.
    format!(
        "failed to find resource referenced by paramKind: '{}/{}, Kind={}'",
        gvk.group, gvk.version, gvk.kind
    )
}

/// Returns the parameters for a request in a namespace; one that is `None` where the policy is to
/// be evaluated without.
///
/// # Errors
/// The binding cannot be used for this request.
pub async fn collect<E: Evaluator>(
    policy: &Policy<E>,
    binding: &Binding,
    namespace: &str,
    objects: &dyn Objects,
    kinds: &dyn Kinds,
) -> Result<Vec<Option<Arc<Object>>>, String> {
    let (Some(gvk), Some(reference)) = (&policy.spec.param_kind, &binding.params) else {
        return Ok(vec![None]);
    };
    let resource = policy
        .param_resource(kinds, gvk)
        .ok_or_else(|| unknown_kind(gvk))?;
    let namespace = match (resource.namespaced, reference.namespace.as_str()) {
        (true, "") if namespace.is_empty() => {
            return Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".to_owned(),
            );
        }
        (true, "") => namespace,
        (true, named) => named,
        (false, "") => "",
        (false, _) => {
            return Err(
                "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
                    .to_owned(),
            );
        }
    };
    let found = match (&*reference.name, &reference.selector) {
        ("", None) => return Err("one of name or selector must be provided".to_owned()),
        (_, Some(_)) if !reference.name.is_empty() => {
            return Err("paramRef.name and paramRef.selector are mutually exclusive".to_owned());
        }
        (_, Some(selector)) => {
            let selector = selector.as_ref().map_err(Clone::clone)?;
            objects.select(&resource.gvr, namespace, selector).await
        }
        (name, None) => {
            let found = objects.known(&resource.gvr, namespace, name).await;
            found.map(|found| found.into_iter().collect())
        }
    };
    let found = found.map_err(|why| why.message)?;
    if found.is_empty() && reference.required {
        return Err(
            "no params found for policy binding with `Deny` parameterNotFoundAction".to_owned(),
        );
    }
    Ok(found.into_iter().map(Some).collect())
}
