//! Amounts of resources by name, and the total requests of a pod (component-helpers `resource`).

use std::collections::{BTreeMap, HashMap};

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

/// Raises each amount to that of `other`, and returns the result.
fn most(mut list: ResourceList, other: &ResourceList) -> ResourceList {
    raise(&mut list, other);
    list
}

/// Returns the requests or limits of a pod (`which`) by its spec: the sum over the containers that
/// run together, or what an init container needs before them where that is more. Amounts for the
/// pod as a whole win.
pub fn of_pod(pod: &Object, which: &str) -> ResourceList {
    let path = format!("/resources/{which}");
    total(pod, which, |container| read(container, &path))
}

/// Returns the requests or limits of a pod like [`of_pod`], but those that its containers have
/// until a resize is done where they are more (`UseStatusResources`).
pub fn of_running_pod(pod: &Object, which: &str) -> ResourceList {
    let path = format!("/resources/{which}");
    let lists = ["/status/containerStatuses", "/status/initContainerStatuses"];
    let statuses = lists.into_iter().flat_map(|list| pod.array_at(list));
    let statuses: HashMap<&str, &Value> = statuses
        .filter(|status| status.get("resources").is_some_and(Value::is_object))
        .map(|status| (str_at(status, "/name"), status))
        .collect();
    let mut conditions = pod.array_at("/status/conditions").iter();
    let is_infeasible = conditions
        .find(|one| str_at(one, "/type") == "PodResizePending")
        .is_some_and(|one| str_at(one, "/reason") == "Infeasible");
    total(pod, which, |container| {
        let wanted = read(container, &path);
        let Some(status) = statuses.get(str_at(container, "/name")) else {
            return wanted;
        };
        let mut had = read(status, &path);
        if which == "requests" {
            had = most(had, &read(status, "/allocatedResources"));
        }
        match is_infeasible {
            true => had,
            false => most(wanted, &had),
        }
    })
}

fn total(pod: &Object, which: &str, of: impl Fn(&Value) -> ResourceList) -> ResourceList {
    let path = format!("/resources/{which}");
    let mut sum = ResourceList::new();
    for container in pod.array_at("/spec/containers") {
        add(&mut sum, &of(container));
    }
    let mut sidecars = ResourceList::new();
    let mut init = ResourceList::new();
    for container in pod.array_at("/spec/initContainers") {
        if str_at(container, "/restartPolicy") == "Always" {
            let own = of(container);
            add(&mut sum, &own);
            add(&mut sidecars, &own);
            raise(&mut init, &sidecars);
        } else {
            // One that ends has what its spec says, also while it is resized.
            let mut together = read(container, &path);
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
pub fn for_whole_pod(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

/// Returns the overhead of running the pod beyond its containers.
pub fn overhead(pod: &Object) -> ResourceList {
    pod.get("spec")
        .map(|spec| read(spec, "/overhead"))
        .unwrap_or_default()
}

/// Reports whether nothing of the pod requests or limits CPU or memory; amounts for the pod as a
/// whole count alone. The class that its status names wins (`pkg/apis/core/v1/helper/qos`).
pub fn is_best_effort(pod: &Object) -> bool {
    match pod.str_at("/status/qosClass") {
        "" => {}
        class => return class == "BestEffort",
    }
    let asks = |holder: &Value| {
        ["/resources/requests", "/resources/limits"]
            .iter()
            .any(|path| {
                let list = read(holder, path);
                let has = |name: &str| list.get(name).is_some_and(|amount| amount.sign() > 0);
                has("cpu") || has("memory")
            })
    };
    match pod
        .get("spec")
        .filter(|spec| spec.get("resources").is_some_and(Value::is_object))
    {
        Some(spec) => !asks(spec),
        None => !["/spec/initContainers", "/spec/containers"]
            .into_iter()
            .flat_map(|path| pod.array_at(path))
            .any(asks),
    }
}
