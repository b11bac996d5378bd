//! The usage of Services (`pkg/quota/v1/evaluator/core/services.go`).

use crate::admission::resource_list::ResourceList;
use crate::meta::go::quantity::{Format, Quantity};
use crate::meta::{Object, Value};

const RESOURCES: [&str; 4] = [
    "count/services",
    "services",
    "services.nodeports",
    "services.loadbalancers",
];

/// Reports whether a limit is about services.
pub fn matches_resource(resource: &str) -> bool {
    RESOURCES.contains(&resource)
}

/// Returns the usage of a service.
pub fn usage(service: &Object) -> ResourceList {
    let ports = service.array_at("/spec/ports");
    let balanced = service.str_at("/spec/type") == "LoadBalancer";
    let allocates = service
        .at("/spec/allocateLoadBalancerNodePorts")
        .and_then(Value::as_bool)
        .unwrap_or(true);
    let is_set = |port: &&Value| port.get("nodePort").and_then(Value::as_i64).unwrap_or(0) != 0;
    let node_ports = match service.str_at("/spec/type") {
        "NodePort" => ports.len(),
        "LoadBalancer" if allocates => ports.len(),
        "LoadBalancer" => ports.iter().filter(is_set).count(),
        _ => 0,
    };
    let amounts = [1, 1, node_ports, usize::from(balanced)];
    let amounts = amounts.map(|count| Quantity::new(count as i64, Format::DecimalSi));
    RESOURCES
        .map(str::to_owned)
        .into_iter()
        .zip(amounts)
        .collect()
}
