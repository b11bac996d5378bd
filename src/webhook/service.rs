//! The addresses of Services (apiserver `util/proxy`).

use std::net::IpAddr;

use async_trait::async_trait;

use crate::base::dial::Egress;
use crate::base::random;
use crate::meta::{Object, Value, go, i64_at, str_at, value_at};

/// Knows where a port of a Service is.
#[async_trait]
pub trait ServiceResolver: Send + Sync {
    /// The host and port to connect to.
    ///
    /// # Errors
    /// The text of the reason: there is no such Service, or nothing that one could connect to.
    async fn resolve(&self, namespace: &str, name: &str, port: u16) -> Result<String, String>;

    /// The ways to Services, and to other servers.
    fn egress(&self) -> Egress {
        Egress::default()
    }
}

/// Knows of no Services.
#[cfg(test)]
pub struct NoServices;

#[cfg(test)]
#[async_trait]
impl ServiceResolver for NoServices {
    async fn resolve(&self, _: &str, name: &str, _: u16) -> Result<String, String> {
        Err(format!("service {} not found", go::quote(name)))
    }
}

/// Returns the address that stands for all endpoints of a Service.
///
/// # Errors
/// It has none, or not this port.
pub fn cluster_address(service: &Object, port: u16) -> Result<String, String> {
    let cluster_ip = service.str_at("/spec/clusterIP");
    match service.str_at("/spec/type") {
        "ClusterIP" if cluster_ip == "None" => {
            Err(r#"cannot route to service with ClusterIP "None""#.to_owned())
        }
        "ClusterIP" | "LoadBalancer" | "NodePort" => {
            find_port(service, port)?;
            Ok(join(cluster_ip, i64::from(port)))
        }
        "ExternalName" => Ok(join(service.str_at("/spec/externalName"), i64::from(port))),
        other => Err(format!("unsupported service type {}", go::quote(other))),
    }
}

/// Returns the address of an endpoint of a Service, a random one of those that are ready: of the
/// family that the Service prefers, if there is one.
///
/// # Errors
/// It has none, or not this port.
pub fn endpoint_address<'a>(
    service: &Object,
    slices: impl Iterator<Item = &'a Object>,
    port: u16,
) -> Result<String, String> {
    match service.str_at("/spec/type") {
        "ClusterIP" | "LoadBalancer" | "NodePort" => {}
        other => return Err(format!("unsupported service type {}", go::quote(other))),
    }
    let port = str_at(find_port(service, port)?, "/name");
    let preferred = service.str_at("/spec/ipFamilies/0");
    let mut slices: Vec<_> = slices.collect();
    random::shuffle(&mut slices);
    slices.sort_by_key(|slice| slice.str_at("/addressType") != preferred);
    for slice in slices {
        let number = slice
            .array_at("/ports")
            .iter()
            .find(|one| str_at(one, "/name") == port)
            .and_then(|one| i64_at(one, "/port"));
        let ready = |endpoint: &&Value| {
            value_at(endpoint, "/conditions/ready").and_then(Value::as_bool) != Some(false)
        };
        let mut endpoints: Vec<_> = slice.array_at("/endpoints").iter().filter(ready).collect();
        random::shuffle(&mut endpoints);
        if let (Some(number), Some(endpoint)) = (number, endpoints.first()) {
            return Ok(join(str_at(endpoint, "/addresses/0"), number));
        }
    }
    Err(format!(
        "no endpoints available for service {}",
        go::quote(service.name())
    ))
}

fn find_port(service: &Object, port: u16) -> Result<&Value, String> {
    let mut ports = service.array_at("/spec/ports").iter();
    ports
        .find(|one| i64_at(one, "/port") == Some(i64::from(port)))
        .ok_or_else(|| {
            format!(
                "no service port {port} found for service {}",
                go::quote(service.name())
            )
        })
}

/// A host and a port as one text (Go's `net.JoinHostPort`).
fn join(host: &str, port: i64) -> String {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(_)) => format!("[{host}]:{port}"),
        _ => format!("{host}:{port}"),
    }
}
