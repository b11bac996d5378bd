//! Privilege escalation checks on writes of roles and bindings (`pkg/registry/rbac/*/policybased`).

use super::rule::{self, Rule};
use super::{Attributes, Authorizer, RbacStore, aggregate};
use crate::auth::{MASTERS, User};
use crate::base::blocking::run_blocking;
use crate::meta::go;
use crate::meta::status::Result;
use crate::meta::{Gvr, Map, Object, Status};

const GROUP: &str = "rbac.authorization.k8s.io";

/// A write of a Role, ClusterRole, RoleBinding or ClusterRoleBinding.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    pub gvr: &'a Gvr,
    /// Empty for the kinds of the cluster.
    pub namespace: &'a str,
    /// The name in the request, empty for creates.
    pub name: &'a str,
    pub object: &'a Object,
    /// The stored object of an update.
    pub old: Option<&'a Object>,
    pub user: &'a User,
}

/// Refuses a write that would grant what the user does not hold: 403, or 404 for a binding to a
/// missing role. Other resources pass. Call it after admission and before the write.
///
/// # Errors
/// 403 if the user lacks a right that the write would grant, 404 for a missing role.
pub async fn check(
    write: &Write<'_>,
    store: &RbacStore,
    authorizer: &dyn Authorizer,
) -> Result<()> {
    if write.gvr.group != GROUP || write.user.groups.iter().any(|group| group == MASTERS) {
        return Ok(());
    }
    match write.gvr.resource.as_str() {
        "roles" | "clusterroles" => check_role(write, store, authorizer).await,
        "rolebindings" | "clusterrolebindings" => check_binding(write, store, authorizer).await,
        _ => Ok(()),
    }
}

async fn check_role(
    write: &Write<'_>,
    store: &RbacStore,
    authorizer: &dyn Authorizer,
) -> Result<()> {
    if may(
        write,
        authorizer,
        "escalate",
        &write.gvr.resource,
        write.name,
    )
    .await
        || only_garbage_collection(write)
    {
        return Ok(());
    }
    let missing = missing_rights(write, store, &Rule::list(write.object.array_at("/rules")));
    if let Some(why) = missing {
        return Err(Status::forbidden(write.gvr, write.object.name(), &why));
    }
    let aggregates = |object: &Object| {
        !object
            .array_at("/aggregationRule/clusterRoleSelectors")
            .is_empty()
    };
    let aggregated = aggregates(write.object) || write.old.is_some_and(aggregates);
    if aggregated && missing_rights(write, store, &Rule::everything()).is_some() {
        let why = "must have cluster-admin privileges to use the aggregationRule";
        return Err(Status::forbidden(write.gvr, write.object.name(), why));
    }
    Ok(())
}

async fn check_binding(
    write: &Write<'_>,
    store: &RbacStore,
    authorizer: &dyn Authorizer,
) -> Result<()> {
    if only_garbage_collection(write) {
        return Ok(());
    }
    let (kind, name) = (
        write.object.str_at("/roleRef/kind"),
        write.object.str_at("/roleRef/name"),
    );
    let resource = match kind {
        "ClusterRole" => "clusterroles",
        "Role" => "roles",
        _ => {
            return Err(Status::internal(format!(
                "unsupported role reference kind: {}",
                go::quote(kind)
            )));
        }
    };
    if may(write, authorizer, "bind", resource, name).await {
        return Ok(());
    }
    let Some(rules) = store.role_rules(kind, write.namespace, name) else {
        return Err(Status::not_found(write.gvr, name));
    };
    match missing_rights(write, store, &rules) {
        Some(why) => Err(Status::forbidden(write.gvr, write.object.name(), &why)),
        None => Ok(()),
    }
}

/// Reports whether the user holds the special `verb` on a role.
async fn may(
    write: &Write<'_>,
    authorizer: &dyn Authorizer,
    verb: &str,
    resource: &str,
    name: &str,
) -> bool {
    let attributes = Attributes {
        user: write.user.clone().into(),
        verb: verb.to_owned(),
        group: GROUP.to_owned(),
        version: "*".to_owned(),
        resource: resource.to_owned(),
        namespace: write.namespace.to_owned(),
        name: name.to_owned(),
        resource_request: true,
        ..Attributes::default()
    };
    authorizer.authorize(&attributes).await.is_allowed()
}

/// Returns the message about the rules of `wanted` that the user lacks; `None` where nothing.
fn missing_rights(write: &Write<'_>, store: &RbacStore, wanted: &[Rule]) -> Option<String> {
    let held = store.rules_for_user(write.user, write.namespace);
    let Some(missing) = run_blocking(|| rule::uncovered(&held.rules, wanted)) else {
        return Some("the rules are too many to be checked against those of the user: grant them in smaller roles".to_owned());
    };
    if missing.is_empty() {
        return None;
    }
    let mut why = format!(
        "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        go::quote(&write.user.name),
        go::quote_all(&write.user.groups),
        rule::describe(missing)
    );
    if !held.errors.is_empty() {
        why = format!("{why}; resolution errors: [{}]", aggregate(&held.errors));
    }
    Some(why)
}

/// Reports whether an update changes nothing but finalizers, owners and bookkeeping, so that
/// garbage collection always can.
fn only_garbage_collection(write: &Write<'_>) -> bool {
    const IGNORED: [&str; 3] = ["finalizers", "ownerReferences", "managedFields"];
    let same = |one: &Map, other: &Map, ignored: &[&str]| {
        let keys = one
            .keys()
            .chain(other.keys())
            .filter(|key| !ignored.contains(&key.as_str()));
        keys.into_iter().all(|key| one.get(key) == other.get(key))
    };
    let Some(old) = write.old else { return false };
    let metadata = match (write.object.metadata(), old.metadata()) {
        (Some(new), Some(old)) => same(new, old, &IGNORED),
        (new, old) => new == old,
    };
    metadata && same(&write.object.0, &old.0, &["metadata"])
}
