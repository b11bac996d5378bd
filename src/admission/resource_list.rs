//! Amounts of resources by name, and the total requests of a pod (component-helpers `resource`).

use std::collections::BTreeMap;

use crate::meta::Value;

use crate::meta::go::quantity::Quantity;
use crate::meta::{Object, map_at, str_at};

/// Amounts by resource name.
pub type ResourceList = BTreeMap<String, Quantity>;

/// The amounts at a JSON pointer below `value`; what is no quantity is left out.
pub fn read(value: &Value, path: &str) -> ResourceList {
    let entries = map_at(value, path).into_iter().flatten();
    entries
        .filter_map(|(name, amount)| {
            Some((name.to_string(), Quantity::parse(amount.as_str()?).ok()?))
        })
        .collect()
}

/// The amounts as JSON.
pub fn to_value(list: &ResourceList) -> Value {
    Value::Object(
        list.iter()
            .map(|(name, amount)| (name.clone(), amount.to_string().into()))
            .collect(),
    )
}

/// Adds each amount of `more`.
pub fn add(list: &mut ResourceList, more: &ResourceList) {
    for (name, amount) in more {
        list.entry(name.clone())
            .and_modify(|sum| sum.add(amount))
            .or_insert(*amount);
    }
}

/// Raises each amount to that of `other`.
fn raise(list: &mut ResourceList, other: &ResourceList) {
    for (name, amount) in other {
        list.entry(name.clone())
            .and_modify(|most| *most = (*most).max(*amount))
            .or_insert(*amount);
    }
}

/// Returns the requests or limits of a pod (`which`): the sum over the containers that run
/// together, or what an init container needs before them where that is more. Amounts for the pod as
/// a whole win.
pub fn of_pod(pod: &Object, which: &str) -> ResourceList {
    let path = format!("/resources/{which}");
    let mut sum = ResourceList::new();
    for container in pod.array_at("/spec/containers") {
        add(&mut sum, &read(container, &path));
    }
    let mut sidecars = ResourceList::new();
    let mut init = ResourceList::new();
    for container in pod.array_at("/spec/initContainers") {
        let own = read(container, &path);
        if str_at(container, "/restartPolicy") == "Always" {
            add(&mut sum, &own);
            add(&mut sidecars, &own);
            raise(&mut init, &sidecars);
        } else {
            let mut together = own;
            add(&mut together, &sidecars);
            raise(&mut init, &together);
        }
    }
    raise(&mut sum, &init);
    if let Some(spec) = pod.get("spec") {
        sum.extend(
            read(spec, &path)
                .into_iter()
                .filter(|(name, _)| for_whole_pod(name)),
        );
    }
    sum
}

/// Reports whether a resource can be requested for a pod as a whole.
fn for_whole_pod(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

/// Returns the overhead of running the pod beyond its containers.
pub fn overhead(pod: &Object) -> ResourceList {
    pod.get("spec")
        .map(|spec| read(spec, "/overhead"))
        .unwrap_or_default()
}

/// Reports whether a container requests or limits CPU or memory.
pub fn asks_for_compute(pod: &Object) -> bool {
    let containers = ["/spec/initContainers", "/spec/containers"]
        .into_iter()
        .flat_map(|path| pod.array_at(path));
    let lists = containers.flat_map(|container| {
        ["/resources/requests", "/resources/limits"].map(|path| read(container, path))
    });
    let whole = pod
        .get("spec")
        .into_iter()
        .flat_map(|spec| ["/resources/requests", "/resources/limits"].map(|path| read(spec, path)));
    lists.chain(whole).any(|list| {
        ["cpu", "memory"]
            .iter()
            .any(|name| list.get(*name).is_some_and(|amount| !amount.is_zero()))
    })
}
