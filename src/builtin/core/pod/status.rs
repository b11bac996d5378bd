//! The status of a pod, as kubelets report it.

use std::collections::{HashMap, HashSet};

use crate::builtin::pod_spec::security::check_linux_user;
use crate::meta::{ErrorList, Map, Object, Path, Value, names};
use crate::registry::validation::{Fields, IMMUTABLE, invalid_each};

/// Conditions that are Kubernetes' own and so need no qualified name.
const SYSTEM_CONDITIONS: [&str; 3] = ["PodScheduled", "Ready", "Initialized"];
const CONTAINER_STATUSES: [&str; 3] = [
    "containerStatuses",
    "initContainerStatuses",
    "ephemeralContainerStatuses",
];

/// Puts a condition into a status in the place of the one of its type. Its transition is as old as
/// its state.
pub fn set_condition(status: &mut Map, mut condition: Value) {
    let slot = status.entry("conditions").or_insert(Value::Null);
    if !slot.is_array() {
        *slot = Value::Array(Vec::new());
    }
    let Value::Array(conditions) = slot else {
        return;
    };
    let same = |one: &&mut Value| one.get("type") == condition.get("type");
    match conditions.iter_mut().find(same) {
        Some(old) => {
            if old.get("status") == condition.get("status") {
                condition["lastTransitionTime"] =
                    old.get("lastTransitionTime").cloned().unwrap_or_default();
            }
            *old = condition;
        }
        None => conditions.push(condition),
    }
}

/// Checks a new status against the one it replaces.
pub fn check_status(errors: &mut ErrorList, object: &Object, old: &Object) {
    let (status, old_status) = (object.section("status"), old.section("status"));
    let path = Path::new("status");
    check_conditions(errors, &path.child("conditions"), status.list("conditions"));
    let (nominated, was) = (
        status.str("nominatedNodeName"),
        old_status.str("nominatedNodeName"),
    );
    if nominated != was && !nominated.is_empty() {
        let path = path.child("nominatedNodeName");
        invalid_each(
            errors,
            &path,
            nominated,
            names::dns1123_subdomain(nominated),
        );
        if !old.str_at("/spec/nodeName").is_empty() {
            errors.forbidden(
                &path,
                "may not be set on pods that are already bound to a node",
            );
        }
    }
    let generation = status.int("observedGeneration").unwrap_or(0);
    if generation < 0 {
        errors.invalid(
            &path.child("observedGeneration"),
            generation,
            "must be a non-negative integer",
        );
    }
    if status.str("qosClass") != old_status.str("qosClass") {
        errors.invalid(&path.child("qosClass"), status.str("qosClass"), IMMUTABLE);
    }
    let spec = old.section("spec");
    for key in CONTAINER_STATUSES {
        check_transitions(
            errors,
            &path.child(key),
            key,
            status.list(key),
            old_status.list(key),
            spec,
        );
    }
    check_claims(errors, &path.child("resourceClaimStatuses"), status, object);
    if let Some(claim) = status.map("extendedResourceClaimStatus") {
        check_extended_claim(
            errors,
            &path.child("extendedResourceClaimStatus"),
            claim,
            object,
        );
    }
    check_addresses(errors, &path, status, old_status);
    check_users(errors, &path, status, object);
}

fn check_conditions(errors: &mut ErrorList, path: &Path, conditions: &[Value]) {
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        let generation = condition.int("observedGeneration").unwrap_or(0);
        if generation < 0 {
            errors.invalid(
                &path.child("observedGeneration"),
                generation,
                "must be a non-negative integer",
            );
        }
        let kind = condition.str("type");
        if !SYSTEM_CONDITIONS.contains(&kind) {
            invalid_each(
                errors,
                &path.child("Type"),
                kind,
                names::qualified_name(kind),
            );
        }
    }
}

/// Checks the users that containers run as.
fn check_users(errors: &mut ErrorList, path: &Path, status: &Map, object: &Object) {
    let windows = object.str_at("/spec/os/name") == "windows";
    for key in CONTAINER_STATUSES {
        for (index, container) in status.list(key).iter().enumerate() {
            let Some(user) = container.map("user").and_then(|user| user.map("linux")) else {
                continue;
            };
            let path = path.child(key).index(index).child("user").child("linux");
            if windows {
                errors.forbidden(&path, "cannot be set for a windows pod");
            } else {
                check_linux_user(errors, &path, user);
            }
        }
    }
}

/// Checks the claim that was made for the extended resources of a pod.
fn check_extended_claim(errors: &mut ErrorList, path: &Path, claim: &Map, object: &Object) {
    let containers = ["/spec/initContainers", "/spec/containers"]
        .into_iter()
        .flat_map(|path| object.array_at(path));
    let containers: HashMap<&str, &Value> = containers.map(|one| (one.str("name"), one)).collect();
    let (mappings, mappings_path) = (claim.list("requestMappings"), path.child("requestMappings"));
    if mappings.is_empty() {
        let detail = "at least one request mapping is required";
        errors.required(&mappings_path, detail);
    }
    let mut seen = HashSet::new();
    for (index, mapping) in mappings.iter().enumerate() {
        let path_of = |key: &str| mappings_path.index(index).child(key);
        let keys = ["containerName", "resourceName", "requestName"];
        let id @ [container, resource, request] = keys.map(|key| mapping.str(key));
        match containers.get(container).map(|one| one.map("resources")) {
            None => {
                let detail = "must match the name of an entry in spec.initContainers.name or spec.containers.name";
                errors.invalid(&path_of(keys[0]), container, detail);
            }
            Some(resources) => {
                let requests = resources.and_then(|resources| resources.map("requests"));
                if !requests.is_some_and(|requests| requests.contains_key(resource)) {
                    let detail = "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests";
                    errors.invalid(&path_of(keys[1]), resource, detail);
                }
            }
        }
        let problems = names::dns1123_label(request);
        invalid_each(errors, &path.child("requestName"), request, problems);
        if !seen.insert(id) {
            for (key, value) in keys.into_iter().zip(id) {
                errors.duplicate(&path_of(key), value);
            }
        }
    }
    let (name, path) = (
        claim.str("resourceClaimName"),
        path.child("resourceClaimName"),
    );
    if name.is_empty() {
        errors.required(&path, "");
    } else {
        invalid_each(errors, &path, name, names::dns1123_subdomain(name));
    }
}

/// Items by a text in them, of several with the same the first.
fn first_by<'a>(items: &'a [Value], key: &str) -> HashMap<&'a str, &'a Value> {
    items
        .iter()
        .rev()
        .map(|item| (item.str(key), item))
        .collect()
}

/// A container that ended does not run again, unless it was to restart.
fn check_transitions(
    errors: &mut ErrorList,
    path: &Path,
    key: &str,
    new: &[Value],
    old: &[Value],
    spec: &Map,
) {
    let containers = match key {
        "containerStatuses" => spec.list("containers"),
        "initContainerStatuses" => spec.list("initContainers"),
        _ => &[],
    };
    let (statuses, containers) = (first_by(new, "name"), first_by(containers, "name"));
    for (index, was) in old.iter().enumerate() {
        let Some(ended) = was
            .pointer("/state/terminated")
            .filter(|state| state.is_object())
        else {
            continue;
        };
        let Some(now) = statuses.get(was.str("name")) else {
            continue;
        };
        if now
            .pointer("/state/terminated")
            .is_some_and(Value::is_object)
        {
            continue;
        }
        let container = containers.get(was.str("name"));
        let code = ended.int("exitCode").unwrap_or(0);
        if !container.is_some_and(|container| may_restart(container, spec, code)) {
            errors.forbidden(
                &path.index(index).child("state"),
                "may not be transitioned to non-terminated state",
            );
        }
    }
}

/// Reports whether a container that ended with this code may run again: by its rules, its policy,
/// the policy of the pod.
fn may_restart(container: &Value, spec: &Map, code: i64) -> bool {
    for rule in container.list("restartPolicyRules") {
        let Some(codes) = rule.map("exitCodes") else {
            continue;
        };
        let listed = codes
            .list("values")
            .iter()
            .any(|one| one.as_i64() == Some(code));
        if listed == (codes.str("operator") == "In") {
            return true;
        }
    }
    let policy = container
        .opt_str("restartPolicy")
        .unwrap_or(spec.str("restartPolicy"));
    match policy {
        "Always" => true,
        "OnFailure" => code != 0,
        _ => false,
    }
}

fn check_claims(errors: &mut ErrorList, path: &Path, status: &Map, object: &Object) {
    let known = first_by(object.array_at("/spec/resourceClaims"), "name");
    let mut seen = HashSet::new();
    for (index, claim) in status.list("resourceClaimStatuses").iter().enumerate() {
        let path = path.index(index);
        let name = claim.str("name");
        if !known.contains_key(name) {
            let detail = "must match the name of an entry in `spec.resourceClaims`";
            errors.invalid(&path.child("name"), name, detail);
        }
        if !seen.insert(name) {
            errors.duplicate(&path.child("name"), name);
        }
        if let Some(name) = claim.opt_str("resourceClaimName") {
            invalid_each(
                errors,
                &path.child("resourceClaimName"),
                name,
                names::dns1123_subdomain(name),
            );
        }
    }
}

/// The addresses of the pod and its host: well formed unless they were there before, and one for
/// each family at most.
fn check_addresses(errors: &mut ErrorList, path: &Path, status: &Map, old: &Map) {
    for key in ["podIPs", "hostIPs"] {
        let (addresses, path) = (status.list(key), path.child(key));
        if let (Some(first), "hostIPs") = (addresses.first(), key)
            && first.str("ip") != status.str("hostIP")
        {
            errors.invalid(
                &path.index(0).child("ip"),
                first.str("ip"),
                "must be equal to `hostIP`",
            );
        }
        let before = first_by(old.list(key), "ip");
        for (index, address) in addresses.iter().enumerate() {
            let ip = address.str("ip");
            if !before.contains_key(ip) {
                invalid_each(errors, &path.index(index), ip, names::legacy_ip(ip));
            }
        }
        let bad = addresses
            .iter()
            .map(|one| one.str("ip"))
            .enumerate()
            .find(|(_, ip)| names::parse_ip_sloppy(ip).is_none());
        if let (Some((index, ip)), true) = (bad, addresses.len() > 1) {
            let detail =
                format!("failed to check for dual stack with error:invalid IP[{index}]: {ip}");
            errors.internal(&path, detail);
        }
        let families: Vec<bool> = addresses
            .iter()
            .filter_map(|one| names::parse_ip_sloppy(one.str("ip")))
            .map(|ip| ip.is_ipv6())
            .collect();
        let dual = families.contains(&true) && families.contains(&false);
        if addresses.len() > 1 && (!dual || addresses.len() > 2) {
            let shown: Value = addresses
                .iter()
                .map(|one| crate::meta::json!({"IP": one.str("ip")}))
                .collect();
            errors.invalid(
                &path,
                shown,
                "may specify no more than one IP for each IP family",
            );
        }
    }
}
