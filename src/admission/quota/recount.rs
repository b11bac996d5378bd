//! The usage of everything that a quota counts, from the objects themselves
//! (`pkg/quota/v1/resources.go`, `CalculateUsage`).

use std::collections::BTreeSet;

use super::device_claims::{self, DeviceClasses};
use super::usage::{Evaluator, Usage, scopes};
use crate::admission::Objects;
use crate::admission::resource_list::{self, ResourceList};
use crate::base::coop::CoopBudget;
use crate::meta::go::quantity::Quantity;
use crate::meta::{Gvr, Object, Status, Value};

/// A status, and what kept parts of it from being counted.
#[derive(Debug)]
pub struct Recount {
    /// `None` if the status is right as it is.
    pub status: Option<Value>,
    pub failures: Vec<Status>,
}

/// Counts what a quota limits. `resources` are those whose objects are in namespaces, each once.
pub async fn recount(
    quota: &Object,
    resources: &[Gvr],
    objects: &dyn Objects,
    now: i64,
) -> Recount {
    let spec = Value::Object(quota.0.clone());
    let hard = resource_list::read(&spec, "/spec/hard");
    let before = resource_list::read(&spec, "/status/used");
    let (mut used, mut failures) = (before.clone(), Vec::new());
    for resource in resources {
        match of_resource(quota, &hard, resource, objects, now).await {
            Ok(counted) => used.extend(counted),
            Err(status) => failures.push(status),
        }
    }
    used.retain(|name, _| hard.contains_key(name));
    let is_known = quota.at("/status/hard").is_some() && quota.at("/status/used").is_some();
    let same = is_known && resource_list::read(&spec, "/status/hard") == hard && before == used;
    let status = || {
        let mut status = crate::meta::Map::new();
        status.insert("hard", resource_list::to_value(&hard));
        status.insert("used", resource_list::to_value(&used));
        Value::Object(status)
    };
    Recount {
        status: (!same).then(status),
        failures,
    }
}

/// The usage of the objects of a resource; empty if the quota does not limit them.
async fn of_resource(
    quota: &Object,
    hard: &ResourceList,
    resource: &Gvr,
    objects: &dyn Objects,
    now: i64,
) -> Result<ResourceList, Status> {
    let evaluator = Evaluator::of(resource);
    let counts_devices = evaluator == Evaluator::DeviceClaims;
    let classes = if counts_devices {
        DeviceClasses::read(objects).await?
    } else {
        DeviceClasses::default()
    };
    let none = Object::default();
    let any = Usage::counting(evaluator.clone(), &none, &classes, ResourceList::new(), now);
    let names: BTreeSet<&String> = hard
        .keys()
        .filter(|name| any.matches_resource(name))
        .collect();
    let mut total: ResourceList = names
        .iter()
        .map(|name| ((*name).clone(), Quantity::default()))
        .collect();
    if names.is_empty() {
        return Ok(total);
    }
    let (scopes, mut budget) = (scopes(quota), CoopBudget::default());
    let namespace = quota.namespace();
    for object in objects.list(resource, namespace).await? {
        if !scopes
            .iter()
            .all(|scope| evaluator.in_scope(&object, scope))
        {
            continue;
        }
        let pod = if counts_devices {
            device_claims::pod_usage(objects, &object, namespace, now).await?
        } else {
            ResourceList::new()
        };
        let usage = Usage::counting(evaluator.clone(), &object, &classes, pod, now);
        let mut usage = usage.of_object();
        usage.retain(|name, _| names.contains(name));
        resource_list::add(&mut total, &usage);
        budget.step().await;
    }
    Ok(total)
}
