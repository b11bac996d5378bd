//! The usage of pods (`pkg/quota/v1/evaluator/core/pods.go`).

use std::collections::{BTreeMap, BTreeSet};

use super::configuration::Requirement;
use super::usage::{DEVICE_CLASS, one};
use crate::admission::resource_list::{self, ResourceList};
use crate::meta::names::qualified_name;
use crate::meta::time::{self, Timestamp};
use crate::meta::{Object, Value, array_at, map_at, str_at};

/// Compute resources that a quota may name besides those with a prefix.
const RESOURCES: [&str; 11] = [
    "count/pods",
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
];
/// Those that each container must ask for once a quota names them.
const REQUIRED: [&str; 6] = [
    "cpu",
    "memory",
    "requests.cpu",
    "requests.memory",
    "limits.cpu",
    "limits.memory",
];

/// Reports whether a limit is about pods.
pub fn matches_resource(resource: &str) -> bool {
    RESOURCES.contains(&resource)
        || resource.starts_with("hugepages-")
        || resource.starts_with("requests.hugepages-")
        || is_extended_request(resource)
}

/// Reports whether a resource is Kubernetes' own.
fn is_native(resource: &str) -> bool {
    !resource.contains('/') || resource.contains("kubernetes.io/")
}

/// Reports whether a limit is on requests for a resource that is not Kubernetes' own, or for the
/// devices of a class.
pub fn is_extended_request(limit: &str) -> bool {
    limit
        .strip_prefix("requests.")
        .is_some_and(|resource| !is_native(limit) || resource.starts_with(DEVICE_CLASS))
}

/// Reports whether a pod that requests the resource requests an extended one, or the devices of a
/// class (scheduler `IsDRAExtendedResourceName`).
fn is_extended(resource: &str) -> bool {
    let quota = || qualified_name(&format!("requests.{resource}"));
    resource.starts_with(DEVICE_CLASS)
        || !is_native(resource) && !resource.starts_with("requests.") && quota().is_empty()
}

/// Reports whether a pod ends by itself after a while.
pub fn is_terminating(pod: &Object) -> bool {
    pod.i64_at("/spec/activeDeadlineSeconds")
        .is_some_and(|seconds| seconds >= 0)
}

/// Reports whether a pod is in a scope.
pub fn in_scope(pod: &Object, requirement: &Requirement) -> bool {
    match requirement.scope.as_str() {
        "Terminating" => is_terminating(pod),
        "NotTerminating" => !is_terminating(pod),
        "BestEffort" => resource_list::is_best_effort(pod),
        "NotBestEffort" => !resource_list::is_best_effort(pod),
        "PriorityClass" => requirement.selects(pod.str_at("/spec/priorityClassName")),
        "CrossNamespacePodAffinity" => reaches_other_namespaces(pod),
        _ => false,
    }
}

/// Reports whether an affinity or anti-affinity of the pod looks beyond its namespace.
fn reaches_other_namespaces(pod: &Object) -> bool {
    let beyond = |term: &Value| {
        !array_at(term, "/namespaces").is_empty()
            || term.get("namespaceSelector").is_some_and(Value::is_object)
    };
    [
        "/spec/affinity/podAffinity",
        "/spec/affinity/podAntiAffinity",
    ]
    .iter()
    .any(|path| {
        let Some(affinity) = pod.at(path) else {
            return false;
        };
        let required = array_at(affinity, "/requiredDuringSchedulingIgnoredDuringExecution").iter();
        let preferred =
            array_at(affinity, "/preferredDuringSchedulingIgnoredDuringExecution").iter();
        required
            .chain(preferred.filter_map(|term| term.get("podAffinityTerm")))
            .any(beyond)
    })
}

/// Returns the amounts that the pod lacks to be counted against limits, in the words of the answer.
/// One with amounts for the pod as a whole lacks none.
pub fn missing(limits: &[String], pod: &Object) -> Option<String> {
    let whole = |path: &str| {
        let amounts = pod.get("spec").and_then(|spec| map_at(spec, path));
        amounts.is_some_and(|amounts| {
            amounts
                .keys()
                .any(|name| resource_list::for_whole_pod(name))
        })
    };
    if whole("/resources/requests") || whole("/resources/limits") {
        return None;
    }
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for container in ["/spec/containers", "/spec/initContainers"]
        .into_iter()
        .flat_map(|path| pod.array_at(path))
    {
        let requests = resource_list::read(container, "/resources/requests");
        let caps = resource_list::read(container, "/resources/limits");
        let given = compute_usage(&requests, &caps);
        for required in limits
            .iter()
            .filter(|name| REQUIRED.contains(&name.as_str()) && !given.contains_key(*name))
        {
            let containers = missing.entry(required).or_default();
            containers.insert(str_at(container, "/name"));
        }
    }
    if missing.is_empty() {
        return None;
    }
    let each = missing.into_iter().map(|(name, of)| {
        let of: Vec<&str> = of.into_iter().collect();
        format!("{name} for: {}", of.join(","))
    });
    Some(format!(
        "must specify {}",
        each.collect::<Vec<_>>().join("; ")
    ))
}

/// Requests and limits under the names by which quotas know them.
fn compute_usage(requests: &ResourceList, limits: &ResourceList) -> ResourceList {
    let mut out = ResourceList::from([("pods".to_owned(), one())]);
    let is_compute = |name: &str| matches!(name, "cpu" | "memory" | "ephemeral-storage");
    for (name, amount) in requests {
        let counts_plainly = is_compute(name) || name.starts_with("hugepages-");
        if counts_plainly {
            out.insert(name.clone(), *amount);
        }
        if counts_plainly || is_extended(name) {
            out.insert(format!("requests.{name}"), *amount);
        }
    }
    for (name, amount) in limits.iter().filter(|(name, _)| is_compute(name)) {
        out.insert(format!("limits.{name}"), *amount);
    }
    out
}

/// Reports whether a pod counts by number only: it is done, or should be gone since a while. The
/// time is in seconds.
fn is_over(pod: &Object, now: i64) -> bool {
    if matches!(pod.str_at("/status/phase"), "Succeeded" | "Failed") {
        return true;
    }
    let deleted = time::parse(pod.str_at("/metadata/deletionTimestamp"));
    let grace = pod.i64_at("/metadata/deletionGracePeriodSeconds");
    let ends = |(deleted, grace): (Timestamp, i64)| deleted.seconds.saturating_add(grace);
    deleted.ok().zip(grace).is_some_and(|it| ends(it) < now)
}

/// Returns the usage of a pod.
pub fn usage(pod: &Object, now: i64) -> ResourceList {
    let mut out = ResourceList::from([("count/pods".to_owned(), one())]);
    if is_over(pod, now) {
        return out;
    }
    let mut requests = resource_list::of_running_pod(pod, "requests");
    let mut limits = resource_list::of_running_pod(pod, "limits");
    let overhead = resource_list::overhead(pod);
    resource_list::add(&mut requests, &overhead);
    // What has no limit has none with the overhead either.
    let limited = |name: &String| limits.get(name).is_some_and(|limit| !limit.is_zero());
    let limited = overhead
        .into_iter()
        .filter(|(name, _)| limited(name))
        .collect();
    resource_list::add(&mut limits, &limited);
    out.extend(compute_usage(&requests, &limits));
    out
}
