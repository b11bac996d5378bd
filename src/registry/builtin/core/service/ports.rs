//! The node ports of a service's ports.

use std::collections::BTreeSet;

use crate::meta::Value;

use super::spec;
use crate::meta::Object;
use crate::registry::validation::Fields;

/// The node ports that are set, health check port included.
pub fn all(service: &Object) -> BTreeSet<u16> {
    let mut ports = of_ports(service);
    ports.extend(spec(service).int("healthCheckNodePort").and_then(number));
    ports
}

/// The node ports of the service's ports.
pub fn of_ports(service: &Object) -> BTreeSet<u16> {
    spec(service).list("ports").iter().filter_map(|port| port.int("nodePort")).filter_map(number).collect()
}

/// Whether every node port was the old service's.
pub fn subset(service: &Object, old: &Object) -> bool {
    of_ports(service).is_subset(&of_ports(old))
}

/// A port that is set and fits.
pub fn number(port: i64) -> Option<u16> {
    u16::try_from(port).ok().filter(|port| *port != 0)
}

/// Gives ports without a node port the one that the port of the same name had, if nobody uses it now
/// (upstream's `patchAllocatedValues`).
pub fn keep(service: &mut Object, old: &Object) {
    let used: BTreeSet<u16> = of_ports(old).intersection(&of_ports(service)).copied().collect();
    let had: Vec<(String, u16)> =
        spec(old).list("ports").iter().filter_map(|port| Some((port.str("name").to_owned(), number(port.int("nodePort")?)?))).collect();
    let Some(Value::Array(ports)) = service.at_mut("/spec/ports") else { return };
    for port in ports.iter_mut().filter_map(Value::as_object_mut) {
        if port.int("nodePort").unwrap_or(0) != 0 {
            continue;
        }
        let name = port.str("name").to_owned();
        if let Some((_, kept)) = had.iter().rev().find(|(one, kept)| *one == name && !used.contains(kept)) {
            port.insert("nodePort", (*kept).into());
        }
    }
}
