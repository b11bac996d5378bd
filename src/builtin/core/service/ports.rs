//! The node ports of a service: which it has, and which it takes when it is written
//! (`pkg/registry/core/service/storage/alloc.go`).

use std::collections::{BTreeMap, BTreeSet};

use super::families;
use super::node_ports::{Operation, number};
use super::spec::{kind, needs_health_check_port, needs_node_port, spec};
use crate::meta::status::Result;
use crate::meta::{FieldError, Map, Object, Path, Status, Value};
use crate::registry::validation::Fields;

/// The node ports that the service has: those that its type makes its own. Others may be named, and
/// are nobody's by that.
pub fn owned(service: &Object) -> BTreeSet<u16> {
    let mut ports = had(service);
    if needs_health_check_port(service) {
        ports.extend(spec(service).int("healthCheckNodePort").and_then(number));
    }
    ports
}

/// The node ports that the service's ports have.
fn had(service: &Object) -> BTreeSet<u16> {
    if needs_node_port(service) {
        of_ports(service)
    } else {
        BTreeSet::new()
    }
}

/// The node ports that the service's ports name.
pub fn of_ports(service: &Object) -> BTreeSet<u16> {
    spec(service)
        .list("ports")
        .iter()
        .filter_map(|port| port.int("nodePort"))
        .filter_map(number)
        .collect()
}

/// Reports whether every node port was the old service's.
pub fn subset(service: &Object, old: &Object) -> bool {
    of_ports(service).is_subset(&of_ports(old))
}

/// Reports whether ports that name no node port get one.
fn allocates(service: &Object) -> bool {
    needs_node_port(service)
        && !(kind(service) == "LoadBalancer"
            && spec(service).opt_flag("allocateLoadBalancerNodePorts") == Some(false))
}

/// Gives ports without a node port the one that the port of the same name had, if nobody uses it
/// now (upstream's `patchAllocatedValues`).
pub fn keep(service: &mut Object, old: &Object) {
    if !allocates(old) || !allocates(service) {
        return;
    }
    let used: BTreeSet<u16> = of_ports(old)
        .intersection(&of_ports(service))
        .copied()
        .collect();
    // The last of a name counts.
    let had: BTreeMap<String, u16> = spec(old)
        .list("ports")
        .iter()
        .filter_map(|port| Some((port.str("name").to_owned(), number(port.int("nodePort")?)?)))
        .collect();
    let Some(Value::Array(ports)) = service.at_mut("/spec/ports") else {
        return;
    };
    for port in ports.iter_mut().filter_map(Value::as_object_mut) {
        if port.int("nodePort").unwrap_or(0) != 0 {
            continue;
        }
        if let Some(kept) = had
            .get(port.str("name"))
            .filter(|kept| !used.contains(kept))
        {
            port.insert("nodePort", (*kept).into());
        }
    }
}

/// Takes what the service needs and `old` did not have.
///
/// # Errors
/// 422 for a port that cannot be had, and the store's errors.
pub async fn take(
    service: &mut Object,
    old: Option<&Object>,
    operation: &mut Operation<'_>,
) -> Result<()> {
    if needs_node_port(service) {
        let mut ports = spec(service).list("ports").to_vec();
        match old {
            None => take_new(service, &mut ports, operation).await?,
            Some(old) => take_changed(service, &had(old), &mut ports, operation).await?,
        }
        service
            .section_mut("spec")
            .insert("ports", Value::Array(ports));
    }
    if needs_health_check_port(service) && !old.is_some_and(needs_health_check_port) {
        take_health_check(service, operation).await?;
    }
    Ok(())
}

/// Of a new service, ports of the same number (TCP and UDP) share a node port.
async fn take_new(
    service: &Object,
    ports: &mut [Value],
    operation: &mut Operation<'_>,
) -> Result<()> {
    let mut asked: BTreeMap<i64, i64> = BTreeMap::new();
    for port in ports.iter().filter(|port| node_port(port) != 0) {
        asked
            .entry(number_of(port))
            .or_insert_with(|| node_port(port));
    }
    let mut taken: BTreeMap<i64, i64> = BTreeMap::new();
    for (index, port) in ports.iter_mut().enumerate() {
        let (number, named) = (number_of(port), node_port(port));
        if named == 0 && !allocates(service) {
            continue;
        }
        let node = match (taken.get(&number), asked.get(&number)) {
            (Some(shared), _) if named == 0 || named == *shared => *shared,
            (Some(_), _) => take_one(service, index, named, operation).await?,
            (None, Some(asked)) => take_one(service, index, *asked, operation).await?,
            (None, None) => take_any(operation).await?,
        };
        taken.entry(number).or_insert(node);
        set_node_port(port, node);
    }
    Ok(())
}

/// Of a service that changes, each port has a node port of its own, unless the client says
/// otherwise.
async fn take_changed(
    service: &Object,
    had: &BTreeSet<u16>,
    ports: &mut [Value],
    operation: &mut Operation<'_>,
) -> Result<()> {
    let (mut asked, mut seen): (BTreeSet<i64>, BTreeSet<(String, i64)>) =
        (BTreeSet::new(), BTreeSet::new());
    for (index, port) in ports.iter_mut().enumerate() {
        let named = node_port(port);
        let node = match named {
            0 if !allocates(service) => continue,
            0 => take_any(operation).await?,
            _ if self::number(named).is_some_and(|named| had.contains(&named))
                || !asked.insert(named) =>
            {
                named
            }
            _ => take_one(service, index, named, operation).await?,
        };
        let protocol = port.as_object().map_or("", |port| port.str("protocol"));
        if !seen.insert((protocol.to_owned(), node)) {
            return Err(Status::failure(
                500,
                "",
                format!("duplicate nodePort: {{{protocol} {node}}}"),
            ));
        }
        set_node_port(port, node);
    }
    Ok(())
}

async fn take_health_check(service: &mut Object, operation: &mut Operation<'_>) -> Result<()> {
    let asked = spec(service).int("healthCheckNodePort").unwrap_or(0);
    if asked != 0 {
        let refuse = |why| {
            Status::internal(format!(
                "failed to allocate requested HealthCheck NodePort {asked}: {why}"
            ))
        };
        return operation.allocate(asked).await.map_err(refuse);
    }
    let refuse = |why| {
        Status::internal(format!(
            "failed to allocate a HealthCheck NodePort 0: {why}"
        ))
    };
    let port = operation.allocate_next().await.map_err(refuse)?;
    service
        .section_mut("spec")
        .insert("healthCheckNodePort", port.into());
    Ok(())
}

async fn take_one(
    service: &Object,
    index: usize,
    asked: i64,
    operation: &mut Operation<'_>,
) -> Result<i64> {
    let refuse = |why| {
        let path = Path::new("spec.ports").index(index).child("nodePort");
        families::invalid(service, [FieldError::invalid(&path, asked, why)].into())
    };
    operation
        .allocate(asked)
        .await
        .map_err(refuse)
        .map(|()| asked)
}

async fn take_any(operation: &mut Operation<'_>) -> Result<i64> {
    let port = operation.allocate_next().await;
    port.map(i64::from)
        .map_err(|why| Status::internal(format!("failed to allocate a nodePort: {why}")))
}

fn member(port: &Value, key: &str) -> i64 {
    port.as_object().and_then(|port| port.int(key)).unwrap_or(0)
}

fn node_port(port: &Value) -> i64 {
    member(port, "nodePort")
}

fn number_of(port: &Value) -> i64 {
    member(port, "port")
}

fn set_node_port(port: &mut Value, node: i64) {
    if let Some(port) = port.as_object_mut() {
        let port: &mut Map = port;
        port.insert("nodePort", node.into());
    }
}
