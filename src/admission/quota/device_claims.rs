//! The usage of ResourceClaims: devices by class, also under the names by which pods request them
//! (`pkg/quota/v1/evaluator/core/resource_claims.go`).

use std::collections::{BTreeMap, BTreeSet};

use super::pods;
use super::usage::{DEVICE_CLASS, one};
use crate::admission::Objects;
use crate::admission::resource_list::{self, ResourceList};
use crate::meta::go::quantity::{Format, Quantity};
use crate::meta::status::Result;
use crate::meta::{Gvr, Object, Value, array_at, i64_at, str_at};

const GROUP: &str = "resource.k8s.io";
const COUNT: &str = "count/resourceclaims.resource.k8s.io";
/// After a class, where its devices are limited.
const OF_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
/// The annotation of claims that the scheduler makes for the extended resources of a pod.
const EXTENDED: &str = "resource.kubernetes.io/extended-resource-claim";
/// The devices of a request for all there are, at worst (`AllocationResultsMaxSize`).
const MAX_DEVICES: i64 = 32;

/// The device classes that stand for extended resources: the name of the resource by class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceClasses {
    resources: BTreeMap<String, String>,
    names: BTreeSet<String>,
}

impl DeviceClasses {
    /// Reads the classes of the cluster.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn read(objects: &dyn Objects) -> Result<Self> {
        let classes = objects
            .list(&Gvr::new(GROUP, "v1", "deviceclasses"), "")
            .await?;
        let mut found = Self::default();
        for class in classes {
            let resource = class.str_at("/spec/extendedResourceName");
            if !resource.is_empty() {
                let resource = resource.to_owned();
                found.resources.insert(class.name().to_owned(), resource);
            }
            found.names.insert(class.name().to_owned());
        }
        Ok(found)
    }

    /// Reports whether pods can request devices by the name of a resource.
    fn have(&self, resource: &str) -> bool {
        resource
            .strip_prefix(DEVICE_CLASS)
            .is_some_and(|class| self.names.contains(class))
            || self.resources.values().any(|name| name == resource)
    }

    /// Reports whether a limit is about claims.
    pub fn matches_resource(&self, limit: &str) -> bool {
        if limit == COUNT || limit.ends_with(OF_CLASS) {
            return true;
        }
        let Some(resource) = limit.strip_prefix("requests.") else {
            return false;
        };
        let of_class = |class| self.resources.contains_key(class);
        resource.strip_prefix(DEVICE_CLASS).is_some_and(of_class)
            || pods::is_extended_request(limit) && self.have(resource)
    }

    /// Returns the usage of a claim. `pod` is that of the pod that it was made for: what the pod
    /// requests is counted there.
    pub fn usage(&self, claim: &Object, pod: &ResourceList) -> ResourceList {
        let devices = devices(claim);
        let mut out = ResourceList::from([(COUNT.to_owned(), one())]);
        let mut requests = ResourceList::new();
        for (class, amount) in devices {
            requests.insert(format!("requests.{DEVICE_CLASS}{class}"), amount);
            if let Some(resource) = self.resources.get(&class) {
                requests.insert(format!("requests.{resource}"), amount);
            }
            out.insert(format!("{class}{OF_CLASS}"), amount);
        }
        for (name, mut amount) in requests {
            if let Some(counted) = pod.get(&name) {
                amount.sub(counted);
            }
            if amount.sign() > 0 {
                out.insert(name, amount);
            }
        }
        out
    }
}

/// The devices that a claim can get, by class.
fn devices(claim: &Object) -> ResourceList {
    let number = |count: i64| Quantity::new(count, Format::DecimalSi);
    let count = |request: &Value| match str_at(request, "/allocationMode") {
        "ExactCount" => i64_at(request, "/count").unwrap_or(0),
        "All" => MAX_DEVICES,
        _ => 0,
    };
    let mut sum = ResourceList::new();
    for request in claim.array_at("/spec/devices/requests") {
        let alternatives = array_at(request, "/firstAvailable");
        let exactly = request.get("exactly").filter(|exactly| exactly.is_object());
        let mut most = ResourceList::new();
        if !alternatives.is_empty() {
            // One of them is taken: for each class the one with most devices counts.
            for one in alternatives.iter().filter(|one| count(one) > 0) {
                let amount = number(count(one));
                let entry = most.entry(str_at(one, "/deviceClassName").to_owned());
                entry
                    .and_modify(|most| *most = (*most).max(amount))
                    .or_insert(amount);
            }
        } else if let Some(one) = exactly {
            most.insert(
                str_at(one, "/deviceClassName").to_owned(),
                number(count(one)),
            );
        }
        resource_list::add(&mut sum, &most);
    }
    sum
}

/// Returns the usage of the pod that a claim was made for, because the pod requests extended
/// resources; nothing where the claim only says so.
///
/// # Errors
/// The objects cannot be read.
pub async fn pod_usage(
    objects: &dyn Objects,
    claim: &Object,
    namespace: &str,
    now: i64,
) -> Result<ResourceList> {
    let Some((name, uid)) = owner(claim) else {
        return Ok(ResourceList::new());
    };
    let pod = objects
        .get(&Gvr::new("", "v1", "pods"), namespace, name)
        .await?;
    let Some(pod) = pod.filter(|pod| pod.uid() == uid) else {
        return Ok(ResourceList::new());
    };
    let is_its_claim = match pod.at("/status/extendedResourceClaimStatus") {
        Some(status) if status.is_object() => str_at(status, "/resourceClaimName") == claim.name(),
        _ => {
            // The first claim of the pod is the one.
            let claims = Gvr::new(GROUP, "v1", "resourceclaims");
            let all = objects.list(&claims, namespace).await?;
            let age = |claim: &Object| {
                let created = claim.str_at("/metadata/creationTimestamp").to_owned();
                (created, claim.name().to_owned())
            };
            let own = age(claim);
            let mut others = all.iter().filter(|other| {
                owner(other).is_some_and(|(_, of)| of == uid) && other.name() != claim.name()
            });
            !others.any(|other| age(other) < own)
        }
    };
    Ok(match is_its_claim {
        true => pods::usage(&pod, now),
        false => ResourceList::new(),
    })
}

/// The name and uid of the pod that a claim says that it was made for.
fn owner(claim: &Object) -> Option<(&str, &str)> {
    let annotation = claim.annotations().and_then(|all| all.get(EXTENDED));
    if annotation.and_then(Value::as_str) != Some("true") {
        return None;
    }
    let is_controller = |one: &&Value| one.get("controller").and_then(Value::as_bool) == Some(true);
    let mut owners = claim.array_at("/metadata/ownerReferences").iter();
    let controller = owners.find(is_controller)?;
    let is_pod = str_at(controller, "/kind") == "Pod" && str_at(controller, "/apiVersion") == "v1";
    is_pod.then(|| (str_at(controller, "/name"), str_at(controller, "/uid")))
}
