//! The addresses of proxied pods, services and nodes: `name`, `name:port` or `scheme:name:port`.

use std::net::IpAddr;

use crate::base::random;
use crate::endpoints::kubelet::join_host_port;
use crate::meta::status::Result;
use crate::meta::{Gvr, Status, Value, go};
use crate::proxy::{Location, Scheme};
use crate::registry::Store;
use crate::registry::validation::Fields;

use super::{RequestContext, find};

/// The name of a proxied object with its scheme and port (apimachinery `SplitSchemeNamePort`).
#[derive(Debug)]
pub struct Address<'a> {
    pub scheme: Scheme,
    pub name: &'a str,
    /// Empty where there is none.
    pub port: &'a str,
}

impl<'a> Address<'a> {
    /// Reads the name of a request for something that is named in its refusal.
    ///
    /// # Errors
    /// 400 for a scheme that is none, or no name.
    pub fn parse(text: &'a str, what: &str) -> Result<Self> {
        let parts: Vec<&str> = text.split(':').collect();
        let (scheme, name, port) = match parts[..] {
            [name] => ("", name, ""),
            [name, port] => ("", name, port),
            [scheme, name, port] => (scheme, name, port),
            _ => ("", "", ""),
        };
        let scheme = match scheme {
            "" | "http" => Some(Scheme::Http),
            "https" => Some(Scheme::Https),
            _ => None,
        };
        match scheme {
            Some(scheme) if !name.is_empty() => Ok(Self { scheme, name, port }),
            _ => Err(Status::bad_request(format!(
                "invalid {what} request {}",
                go::quote(text)
            ))),
        }
    }

    fn location(&self, authority: String) -> Location {
        Location {
            scheme: self.scheme,
            authority,
            path: String::new(),
            query: String::new(),
        }
    }
}

/// Returns the place of a pod: its first address, if that is one that others can reach, and the
/// port that is asked for or its first one (core/pod `ResourceLocation`).
///
/// # Errors
/// There is no such pod, or none that can be reached.
pub async fn pod(ctx: &RequestContext<'_>) -> Result<Location> {
    let address = Address::parse(ctx.request.info.url_name(), "pod")?;
    let pod = find(ctx, address.name).await?;
    let ports = pod.array_at("/spec/containers").iter();
    let first = ports
        .filter_map(|container| container.list("ports").first())
        .find_map(|port| port.int("containerPort"));
    let port = match (address.port, first) {
        ("", Some(first)) => first.to_string(),
        (asked, _) => asked.to_owned(),
    };
    let ip = pod.str_at("/status/podIPs/0/ip");
    if !ip.parse().is_ok_and(is_global_unicast) {
        return Err(Status::bad_request("address not allowed"));
    }
    let authority = match (port.as_str(), ip.contains(':')) {
        ("", true) => format!("[{ip}]"),
        ("", false) => ip.to_owned(),
        (port, _) => join_host_port(ip, port),
    };
    Ok(address.location(authority))
}

/// Go's `IP.IsGlobalUnicast`.
pub fn is_global_unicast(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !link_local && !ip.is_loopback() && !ip.is_multicast() && !ip.is_unspecified()
}

/// Returns the place of a service: that of one of its endpoints, a random one (core/service/storage
/// `ResourceLocation`).
///
/// # Errors
/// There is no such service, or no endpoint of it that is a pod.
pub async fn service(ctx: &RequestContext<'_>) -> Result<Location> {
    let text = ctx.request.info.url_name();
    let address = Address::parse(text, "service")?;
    let port = port_name(ctx, &address).await?;
    let endpoints = store(ctx, "endpoints")?;
    // Upstream names the resource of the request.
    let endpoints = endpoints
        .cached_get(ctx.namespace(), address.name)
        .await?
        .ok_or_else(|| Status::not_found(&ctx.store.resource.gvr, address.name))?;
    let none = |of: &str| {
        Status::unavailable(format!(
            "no endpoints available for service {}",
            go::quote(of)
        ))
    };
    let mut subsets: Vec<&Value> = endpoints.array_at("/subsets").iter().collect();
    if subsets.is_empty() {
        return Err(none(address.name));
    }
    random::shuffle(&mut subsets);
    let pods = store(ctx, "pods")?;
    for subset in subsets {
        let mut ports = subset.list("ports").iter();
        let number = ports
            .find(|one| one.str("name") == port)
            .and_then(|one| one.int("port"));
        let Some(number) = number else { continue };
        let mut addresses: Vec<&Value> = subset.list("addresses").iter().collect();
        random::shuffle(&mut addresses);
        for endpoint in addresses {
            if is_pod(ctx, &pods, endpoint).await? {
                let ip = endpoint.str("ip");
                return Ok(address.location(join_host_port(ip, &number.to_string())));
            }
        }
    }
    Err(none(text))
}

/// The name of the port that is asked for by its name or number.
async fn port_name(ctx: &RequestContext<'_>, address: &Address<'_>) -> Result<String> {
    let Ok(number) = address.port.parse::<i64>() else {
        return Ok(address.port.to_owned());
    };
    let service = find(ctx, address.name).await?;
    let mut ports = service.array_at("/spec/ports").iter();
    let found = ports.find(|one| one.int("port") == Some(number));
    found.map(|one| one.str("name").to_owned()).ok_or_else(|| {
        Status::unavailable(format!(
            "no service port {number} found for service {}",
            go::quote(address.name)
        ))
    })
}

/// Reports whether an address of a service is that of a pod of its namespace. Others are not
/// proxied to: whoever writes endpoints could have the server connect to anywhere.
async fn is_pod(ctx: &RequestContext<'_>, pods: &Store, address: &Value) -> Result<bool> {
    let Some(target) = address.get("targetRef").filter(|target| target.is_object()) else {
        return Ok(false);
    };
    if target.str("namespace") != ctx.namespace() {
        return Ok(false);
    }
    let pod = pods.cached_get(ctx.namespace(), target.str("name")).await?;
    Ok(pod.is_some_and(|pod| {
        let mut ips = pod.array_at("/status/podIPs").iter();
        ips.any(|ip| ip.str("ip") == address.str("ip"))
    }))
}

fn store(ctx: &RequestContext<'_>, resource: &str) -> Result<std::sync::Arc<Store>> {
    let found = ctx.api.registry.get(&Gvr::new("", "v1", resource));
    found.ok_or_else(Status::no_such_path)
}

/// Checks that the proxy may reach the host of a node (core/node `isProxyableHostname`).
///
/// # Errors
/// It leads to this machine, or nowhere.
pub async fn check_host(host: &str) -> Result<()> {
    let found = match host.parse::<IpAddr>() {
        Ok(ip) => vec![ip],
        Err(_) => match tokio::net::lookup_host((host, 0)).await {
            Ok(found) => found.map(|address| address.ip()).collect(),
            Err(_) => {
                return Err(Status::bad_request(format!("lookup {host}: no such host")));
            }
        },
    };
    match found.as_slice() {
        [] => Err(Status::bad_request("no addresses for hostname")),
        found if found.iter().all(|ip| is_global_unicast(*ip)) => Ok(()),
        _ => Err(Status::bad_request("address not allowed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_scheme_a_name_and_a_port() {
        let parse = |text: &'static str| {
            Address::parse(text, "service")
                .map(|one| (one.scheme, one.name, one.port))
                .map_err(|status| status.message)
        };
        assert_eq!(parse("a"), Ok((Scheme::Http, "a", "")));
        assert_eq!(parse("a:http"), Ok((Scheme::Http, "a", "http")));
        assert_eq!(parse("https:a:443"), Ok((Scheme::Https, "a", "443")));
        for text in ["", ":80", "ftp:a:21", "a:b:c:d"] {
            assert_eq!(
                parse(text),
                Err(format!("invalid service request {}", go::quote(text)))
            );
        }
    }

    #[tokio::test]
    async fn proxy_reaches_only_global_addresses() {
        let global = |text: &str| is_global_unicast(text.parse().expect("an address"));
        assert!(global("10.244.0.1") && global("fd00::1"));
        assert!(
            ![
                "127.0.0.1",
                "169.254.169.254",
                "224.0.0.1",
                "0.0.0.0",
                "255.255.255.255",
                "::1",
                "fe80::1",
                "::ffff:127.0.0.1"
            ]
            .into_iter()
            .any(global)
        );
        let refused = check_host("localhost").await.expect_err("a refusal");
        assert_eq!(refused.message, "address not allowed");
        assert_eq!(check_host("10.0.0.1").await, Ok(()));
    }
}
