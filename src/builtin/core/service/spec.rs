//! Accessors of a Service's spec and what its type needs.

use crate::meta::{Map, Object, Value};
use crate::registry::validation::Fields;

pub fn spec(service: &Object) -> &Map {
    static NONE: std::sync::LazyLock<Map> = std::sync::LazyLock::new(Map::new);
    service
        .get("spec")
        .and_then(Value::as_object)
        .unwrap_or(&NONE)
}

pub fn kind(service: &Object) -> &str {
    spec(service).str("type")
}

/// No cluster IP, on purpose.
pub fn headless(service: &Object) -> bool {
    let spec = spec(service);
    match spec.list("clusterIPs") {
        [only] => only == "None",
        [] => spec.str("clusterIP") == "None",
        _ => false,
    }
}

/// The cluster IPs that the service has: of a type that has any, and not headless.
pub fn cluster_ips(service: &Object) -> Vec<String> {
    if needs_cluster_ip(service) && !headless(service) {
        strings(service, "clusterIPs")
    } else {
        Vec::new()
    }
}

pub fn needs_cluster_ip(service: &Object) -> bool {
    kind(service) != "ExternalName"
}

pub fn needs_node_port(service: &Object) -> bool {
    matches!(kind(service), "NodePort" | "LoadBalancer")
}

pub fn needs_health_check_port(service: &Object) -> bool {
    kind(service) == "LoadBalancer" && spec(service).str("externalTrafficPolicy") == "Local"
}

/// Reachable from outside: by node port, load balancer, or an external IP of a ClusterIP service.
pub fn externally_accessible(service: &Object) -> bool {
    needs_node_port(service)
        || (matches!(kind(service), "ClusterIP" | "")
            && !spec(service).list("externalIPs").is_empty())
}

/// The strings of a list in spec.
pub fn strings(service: &Object, key: &str) -> Vec<String> {
    spec(service)
        .list(key)
        .iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

pub fn set_strings(service: &mut Object, key: &str, values: &[String]) {
    let spec = service.section_mut("spec");
    if values.is_empty() {
        spec.shift_remove(key);
    } else {
        spec.insert(
            key.to_owned(),
            values
                .iter()
                .map(|value| Value::from(value.as_str()))
                .collect(),
        );
    }
}
