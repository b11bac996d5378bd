//! The usage of PersistentVolumeClaims
//! (`pkg/quota/v1/evaluator/core/persistent_volume_claims.go`).

use super::configuration::Requirement;
use super::usage::one;
use crate::admission::resource_list::ResourceList;
use crate::meta::go::quantity::Quantity;
use crate::meta::{Object, Value};

const COUNT: &str = "count/persistentvolumeclaims";
const RESOURCES: [&str; 2] = ["persistentvolumeclaims", "requests.storage"];
/// Between a storage class and what is limited of it.
const OF_STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";

/// Reports whether a limit is about claims.
pub fn matches_resource(resource: &str) -> bool {
    let of_class = |limited: &&str| {
        resource
            .strip_suffix(*limited)
            .is_some_and(|class| class.ends_with(OF_STORAGE_CLASS))
    };
    resource == COUNT || RESOURCES.contains(&resource) || RESOURCES.iter().any(of_class)
}

/// Reports whether a claim is in a scope: one of the volume attributes classes that it has, had or
/// is about to have is.
pub fn in_scope(claim: &Object, requirement: &Requirement) -> bool {
    if requirement.scope != "VolumeAttributesClass" {
        return false;
    }
    let classes = [
        "/spec/volumeAttributesClassName",
        "/status/currentVolumeAttributesClassName",
        "/status/modifyVolumeStatus/targetVolumeAttributesClassName",
    ]
    .map(|path| claim.str_at(path));
    let mut named = classes
        .into_iter()
        .filter(|class| !class.is_empty())
        .peekable();
    match named.peek() {
        None => requirement.selects(""),
        Some(_) => named.any(|class| requirement.selects(class)),
    }
}

/// Returns the usage of a claim.
pub fn usage(claim: &Object) -> ResourceList {
    let mut out: ResourceList = [COUNT, RESOURCES[0]]
        .map(|name| (name.to_owned(), one()))
        .into();
    let annotated = claim
        .annotations()
        .and_then(|all| all.get("volume.beta.kubernetes.io/storage-class"))
        .and_then(Value::as_str);
    let class = annotated.unwrap_or_else(|| claim.str_at("/spec/storageClassName"));
    let mut count = |name: &str, amount: Quantity| {
        out.insert(name.to_owned(), amount);
        if !class.is_empty() {
            out.insert(format!("{class}{OF_STORAGE_CLASS}{name}"), amount);
        }
    };
    count(RESOURCES[0], one());
    let amount = |path: &str| Quantity::parse(claim.str_at(path)).ok();
    if let Some(mut storage) = amount("/spec/resources/requests/storage") {
        storage.round_up(0);
        if let Some(mut allocated) = amount("/status/allocatedResources/storage")
            && allocated > storage
        {
            allocated.round_up(0);
            storage = allocated;
        }
        count(RESOURCES[1], storage);
    }
    out
}
