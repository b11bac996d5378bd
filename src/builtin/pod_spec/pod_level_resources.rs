//! The resources of a pod as a whole: what its containers come to, its own requests and limits, and
//! its class of service.

use std::collections::BTreeMap;

use crate::builtin::compute_resources::is_huge_page;
use crate::builtin::defaulting::{part, part_or_new};
use crate::builtin::quantities::quantity;
use crate::meta::go::quantity::Quantity;
use crate::meta::{Key, Map, Value};
use crate::registry::validation::Fields;

type Amounts = BTreeMap<String, Quantity>;

/// Reports whether a resource may be given for a whole pod.
pub fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_huge_page(name)
}

/// Pod-level requests and limits that follow from those of its containers; only where the pod has
/// some of its own.
pub fn default_resources(spec: &mut Map) {
    let Some(resources) = spec.map("resources") else {
        return;
    };
    let (has_limits, has_requests) = (
        non_empty(resources, "limits"),
        non_empty(resources, "requests"),
    );
    if !has_limits && !has_requests {
        return;
    }
    let limits: Vec<(Key, Value)> = aggregate(spec, "limits")
        .into_iter()
        .filter(|(name, _)| is_huge_page(name))
        .filter(|(name, _)| !has(resources, "requests", name) && !has(resources, "limits", name))
        .map(|(name, amount)| (name.into(), amount.to_string().into()))
        .collect();
    let requests: Vec<(Key, Value)> = aggregate(spec, "requests")
        .into_iter()
        .filter(|(name, _)| {
            matches!(name.as_str(), "cpu" | "memory") && !has(resources, "requests", name)
        })
        .map(|(name, amount)| (name.into(), amount.to_string().into()))
        .collect();
    let Some(resources) = part(spec, "resources") else {
        return;
    };
    if !limits.is_empty() {
        part_or_new(resources, "limits").extend(limits);
    }
    if !non_empty(resources, "limits") {
        return;
    }
    let from_limits: Vec<(Key, Value)> = resources
        .entries("limits")
        .filter(|(name, _)| {
            is_pod_level(name)
                && !has(resources, "requests", name)
                && !requests.iter().any(|(one, _)| one == *name)
        })
        .map(|(name, amount)| (name.clone(), amount.clone()))
        .collect();
    if !requests.is_empty() || !from_limits.is_empty() {
        part_or_new(resources, "requests").extend(requests.into_iter().chain(from_limits));
    }
}

fn non_empty(resources: &Map, key: &str) -> bool {
    resources.map(key).is_some_and(|map| !map.is_empty())
}

fn has(resources: &Map, key: &str, name: &str) -> bool {
    resources.map(key).is_some_and(|map| map.contains_key(name))
}

/// Returns the need of all containers: the sum of those that run together, or what one step of
/// initialisation needs if more. Init containers that restart (sidecars) keep running and so are
/// part of both.
pub fn aggregate(spec: &Map, key: &str) -> Amounts {
    let mut running = Amounts::new();
    for container in spec.list("containers") {
        add(&mut running, container, key);
    }
    let mut sidecars = Amounts::new();
    let mut peak = Amounts::new();
    for container in spec.list("initContainers") {
        let mut step = sidecars.clone();
        add(&mut step, container, key);
        if container.str("restartPolicy") == "Always" {
            add(&mut running, container, key);
            sidecars = step.clone();
        }
        raise(&mut peak, step);
    }
    raise(&mut running, peak);
    running
}

fn add(sum: &mut Amounts, container: &Value, key: &str) {
    for (name, amount) in container
        .map("resources")
        .into_iter()
        .flat_map(|resources| resources.entries(key))
    {
        let amount = quantity(amount);
        sum.entry(name.to_string())
            .and_modify(|have| have.add(&amount))
            .or_insert(amount);
    }
}

fn raise(sum: &mut Amounts, other: Amounts) {
    for (name, amount) in other {
        sum.entry(name)
            .and_modify(|have| *have = (*have).max(amount))
            .or_insert(amount);
    }
}

/// The quality of service class: by the pod's own resources where it has some, else by its
/// containers'.
pub fn qos_class(spec: &Map) -> &'static str {
    let mut requests = Amounts::new();
    let mut limits = Amounts::new();
    let mut guaranteed = true;
    let mut count = |resources: &Map, needs_limits: bool| {
        for (name, amount) in compute(resources, "requests") {
            requests
                .entry(name.to_owned())
                .and_modify(|have| have.add(&amount))
                .or_insert(amount);
        }
        let mut limited = 0;
        for (name, amount) in compute(resources, "limits") {
            limited += 1;
            limits
                .entry(name.to_owned())
                .and_modify(|have| have.add(&amount))
                .or_insert(amount);
        }
        guaranteed &= limited == 2 || !needs_limits;
    };
    if let Some(resources) = spec.map("resources") {
        count(resources, non_empty(resources, "limits"));
    } else {
        let none = Map::new();
        for container in spec
            .list("containers")
            .iter()
            .chain(spec.list("initContainers"))
        {
            count(container.map("resources").unwrap_or(&none), true);
        }
    }
    if requests.is_empty() && limits.is_empty() {
        return "BestEffort";
    }
    let guaranteed = guaranteed
        && requests.len() == limits.len()
        && requests
            .iter()
            .all(|(name, amount)| limits.get(name) == Some(amount));
    if guaranteed {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// The amounts of CPU and memory that are more than nothing.
fn compute<'a>(resources: &'a Map, key: &'a str) -> impl Iterator<Item = (&'a str, Quantity)> {
    let amounts = resources
        .entries(key)
        .filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory"));
    amounts
        .map(|(name, value)| (name.as_str(), quantity(value)))
        .filter(|(_, amount)| amount.sign() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    #[test]
    fn classes_of_service() {
        let both = json!({"cpu": "1", "memory": "1Gi"});
        let cases = [
            (json!({"containers": [{}]}), "BestEffort"),
            (
                json!({"containers": [{"resources": {"requests": {"cpu": "1"}}}]}),
                "Burstable",
            ),
            (
                json!({"containers": [{"resources": {"requests": both, "limits": both}}]}),
                "Guaranteed",
            ),
            (
                json!({"containers": [{"resources": {"requests": both, "limits": both}}, {}]}),
                "Burstable",
            ),
            (
                json!({"containers": [{"resources": {"requests": {"cpu": "0"}}}]}),
                "BestEffort",
            ),
            (
                json!({"resources": {"requests": both, "limits": both}, "containers": [{}]}),
                "Guaranteed",
            ),
        ];
        for (spec, want) in cases {
            assert_eq!(qos_class(spec.as_object().expect("a map")), want, "{spec}");
        }
    }

    #[test]
    fn pod_requests_follow_containers_and_limits() {
        let mut spec = json!({
            "resources": {"limits": {"cpu": "2", "memory": "1Gi"}},
            "containers": [{"resources": {"requests": {"cpu": "500m"}}}, {"resources": {"requests": {"cpu": "500m"}}}],
        });
        default_resources(spec.as_object_mut().expect("a map"));
        assert_eq!(
            spec["resources"]["requests"],
            json!({"cpu": "1", "memory": "1Gi"})
        );
    }
}
