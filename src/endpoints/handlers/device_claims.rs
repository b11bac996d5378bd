//! Authorization of changes to ResourceClaims: administrative access to devices, and the parts of a
//! status (`pkg/registry/resource/utils.go`, KEP-4817, KEP-5018).

use std::collections::{BTreeMap, BTreeSet};

use crate::auth::User;
use crate::auth::authn::service_account;
use crate::auth::authz::{self, Attributes};
use crate::meta::names::dns1123_subdomain;
use crate::meta::{ErrorList, FieldError, Gvr, Object, Path, Status, Value};
use crate::registry::Subresource;
use crate::registry::validation::{Fields, same};

use super::RequestContext;

const GROUP: &str = "resource.k8s.io";
/// The label of namespaces whose claims may have access as an administrator.
const ADMIN_NAMESPACE: &str = "resource.kubernetes.io/admin-access";

/// Returns the errors of a ResourceClaim or a template for its user; none with objects of other
/// kinds.
pub async fn errors(
    ctx: &RequestContext<'_>,
    sub: Subresource<'_>,
    new: &Object,
    old: Option<&Object>,
) -> ErrorList {
    let gvr = &ctx.store.resource.gvr;
    match (gvr.group.as_str(), gvr.resource.as_str(), sub, old) {
        (GROUP, "resourceclaims", Subresource::Main, None) => {
            admin_access(ctx, requested(new, "/spec/devices/requests")).await
        }
        // Upstream names the path that it has in a claim.
        (GROUP, "resourceclaimtemplates", Subresource::Main, None) => {
            admin_access(ctx, requested(new, "/spec/spec/devices/requests")).await
        }
        (GROUP, "resourceclaims", Subresource::Status, Some(old)) => {
            status_errors(ctx, new, old).await
        }
        _ => ErrorList::new(),
    }
}

async fn status_errors(ctx: &RequestContext<'_>, new: &Object, old: &Object) -> ErrorList {
    let mut errors = match granted(old) {
        // The allocation cannot change any more.
        Some(_) => ErrorList::new(),
        None => admin_access(ctx, granted(new)).await,
    };
    errors.extend(binding_error(ctx, new, old).await);
    // The status of devices is removed with the allocation.
    if new
        .at("/status/allocation")
        .is_some_and(|allocation| !allocation.is_null())
    {
        errors.extend(driver_errors(ctx, new, old).await);
    }
    errors
}

/// Returns the path at which a list of requests first asks for access as an administrator.
/// Alternatives of a request cannot.
fn requested(object: &Object, requests: &str) -> Option<Path> {
    let asks = |request: &Value| {
        request
            .field("exactly")
            .is_some_and(|exactly| exactly.flag("adminAccess"))
    };
    let index = object.array_at(requests).iter().position(asks)?;
    Some(
        Path::new("spec")
            .child("devices")
            .child("requests")
            .index(index)
            .child("adminAccess"),
    )
}

/// Returns the path at which an allocation first grants access as an administrator.
fn granted(object: &Object) -> Option<Path> {
    let index = object
        .array_at("/status/allocation/devices/results")
        .iter()
        .position(|result| result.flag("adminAccess"))?;
    Some(
        Path::new("status")
            .child("allocation")
            .child("devices")
            .child("results")
            .index(index)
            .child("adminAccess"),
    )
}

/// Only in namespaces that are labelled for it there is access as an administrator.
async fn admin_access(ctx: &RequestContext<'_>, asked: Option<Path>) -> ErrorList {
    let Some(path) = asked else {
        return ErrorList::new();
    };
    let gvr = Gvr::new("", "v1", "namespaces");
    let found = match ctx.api.registry.get(&gvr) {
        Some(namespaces) => namespaces.cached_get("", ctx.namespace()).await,
        None => Err(Status::no_such_path()),
    };
    match found.and_then(|found| found.ok_or_else(|| Status::not_found(&gvr, ctx.namespace()))) {
        Err(status) => ErrorList::from([FieldError::internal(
            &path,
            format!(
                "could not retrieve namespace to verify admin access: {}",
                status.message
            ),
        )]),
        Ok(namespace) => {
            let label = namespace
                .labels()
                .and_then(|labels| labels.get(ADMIN_NAMESPACE))
                .and_then(Value::as_str);
            let detail = format!(
                "admin access to devices requires the `{ADMIN_NAMESPACE}: true` label on the containing namespace"
            );
            if label == Some("true") {
                ErrorList::new()
            } else {
                ErrorList::from([FieldError::forbidden(&path, detail)])
            }
        }
    }
}

/// To allocate and to reserve needs the verb of the request on `resourceclaims/binding`, in all
/// namespaces.
async fn binding_error(ctx: &RequestContext<'_>, new: &Object, old: &Object) -> Option<FieldError> {
    if ["/status/allocation", "/status/reservedFor"]
        .iter()
        .all(|path| same(new.at(path), old.at(path)))
    {
        return None;
    }
    let asked = Attributes {
        subresource: "binding".to_owned(),
        namespace: String::new(),
        name: String::new(),
        ..ctx.request.attributes()
    };
    let refusal = authz::require(ctx.api.authorizer.as_ref(), &asked)
        .await
        .err()?;
    let detail = format!(
        "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"{}\" permission: {}",
        asked.verb, refusal.message
    );
    Some(FieldError::forbidden(
        &Path::new("status").child("allocation"),
        detail,
    ))
}

/// Reporting the status of a driver's devices needs a verb on `resourceclaims/driver` of that name:
/// one for drivers on the node of the allocation, another for all others.
async fn driver_errors(ctx: &RequestContext<'_>, new: &Object, old: &Object) -> ErrorList {
    let base = ctx.request.attributes();
    let mut verbs = vec![format!("arbitrary-node:{}", base.verb)];
    if allocated_node(new).is_some_and(|node| runs_on(&base.user, node)) {
        verbs.insert(0, format!("associated-node:{}", base.verb));
    }
    let path = Path::new("status").child("devices");
    let mut errors = ErrorList::new();
    for driver in changed_drivers(new, old) {
        let mut refusal = None;
        for verb in &verbs {
            let (verb, subresource) = (verb.clone(), "driver".to_owned());
            let asked = Attributes {
                verb,
                subresource,
                name: driver.to_owned(),
                ..base.clone()
            };
            match authz::require(ctx.api.authorizer.as_ref(), &asked).await {
                Ok(()) => {
                    refusal = None;
                    break;
                }
                Err(status) => drop(refusal.get_or_insert(status)),
            }
        }
        if let Some(status) = refusal {
            let detail = format!(
                "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[{}]\" permission: {}",
                verbs.join(" "),
                status.message
            );
            errors.forbidden(&path, detail);
        }
    }
    errors
}

/// The identity of a device: driver, pool, device and share.
fn device_key(device: &Value) -> [&str; 4] {
    ["driver", "pool", "device", "shareID"].map(|key| device.str(key))
}

/// The drivers whose device status is added, removed or changed.
fn changed_drivers<'a>(new: &'a Object, old: &'a Object) -> BTreeSet<&'a str> {
    let mut before: BTreeMap<_, &Value> = old
        .array_at("/status/devices")
        .iter()
        .map(|device| (device_key(device), device))
        .collect();
    let mut drivers = BTreeSet::new();
    for device in new.array_at("/status/devices") {
        let known = before.remove(&device_key(device));
        if known.is_none_or(|known| !same(Some(known), Some(device))) {
            drivers.insert(device.str("driver"));
        }
    }
    drivers.extend(before.into_keys().map(|[driver, ..]| driver));
    drivers
}

/// The one node that an allocation is for.
fn allocated_node(object: &Object) -> Option<&str> {
    let [term] = object.array_at("/status/allocation/nodeSelector/nodeSelectorTerms") else {
        return None;
    };
    let ([], [field]) = (term.list("matchExpressions"), term.list("matchFields")) else {
        return None;
    };
    let [node] = field.list("values") else {
        return None;
    };
    let named = field.str("key") == "metadata.name" && field.str("operator") == "In";
    node.as_str().filter(|node| named && !node.is_empty())
}

/// Reports whether a user is a service account by a token that was made for a pod on the node.
fn runs_on(user: &User, node: &str) -> bool {
    let on = user
        .extra
        .get(service_account::NODE_NAME)
        .map(Vec::as_slice);
    let valid =
        service_account::of_username(&user.name).is_some() && dns1123_subdomain(node).is_empty();
    valid && matches!(on, Some([name]) if name == node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    fn claim(status: Value) -> Object {
        Object::from_value(json!({"status": status})).expect("an object")
    }

    #[test]
    fn claim_status_changes_need_rights_on_their_drivers() {
        let device = |driver: &str, name: &str, share: &str, data: i64| json!({"driver": driver, "pool": "p", "device": name, "shareID": share, "data": {"n": data}});
        let old = claim(
            json!({"devices": [device("a", "1", "", 1), device("b", "1", "", 1), device("c", "1", "", 1)]}),
        );
        let new = claim(
            json!({"devices": [device("a", "1", "", 1), device("b", "1", "", 2), device("d", "1", "", 1)]}),
        );
        assert_eq!(
            changed_drivers(&new, &old).into_iter().collect::<Vec<_>>(),
            ["b", "c", "d"]
        );
        let shared = claim(json!({"devices": [device("a", "1", "s", 1)]}));
        assert_eq!(changed_drivers(&shared, &shared).len(), 0);
        assert_eq!(changed_drivers(&shared, &claim(json!({}))).len(), 1);
    }

    #[test]
    fn allocation_node_is_read_from_its_selector() {
        let node = |term: Value| {
            let claim =
                claim(json!({"allocation": {"nodeSelector": {"nodeSelectorTerms": [term]}}}));
            allocated_node(&claim).map(str::to_owned)
        };
        let field = |operator: &str, values: Value| json!({"key": "metadata.name", "operator": operator, "values": values});
        assert_eq!(
            node(json!({"matchFields": [field("In", json!(["n"]))]})).as_deref(),
            Some("n")
        );
        for term in [
            json!({"matchFields": [field("NotIn", json!(["n"]))]}),
            json!({"matchFields": [field("In", json!(["n", "m"]))]}),
            json!({"matchFields": [field("In", json!(["n"]))], "matchExpressions": [{"key": "a", "operator": "Exists"}]}),
            json!({}),
        ] {
            assert_eq!(node(term), None);
        }
    }
}
