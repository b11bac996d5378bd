//! Streams to nodes, pods and services: logs, exec, attach, portforward, proxy. There is no proxy
//! yet: the handlers validate the request and its target, and then report that the backend cannot
//! be reached.

use std::net::IpAddr;

use http::{Response, StatusCode};

use super::{RequestContext, stream_options};
use crate::auth::authz::Attributes;
use crate::endpoints::body::{self, Body};
use crate::meta::go;
use crate::meta::options::Query;
use crate::meta::status::Result;
use crate::meta::{ErrorList, Gvk, Gvr, Object, Path, Status, Value};
use crate::registry::validation::Fields;

/// The schemes that the name of a proxied object may begin with, before a colon.
const SCHEMES: [&str; 3] = ["", "http", "https"];

/// Answers a request for a stream.
///
/// # Errors
/// Always, but for the log of a pod that no node runs yet: that is empty.
pub async fn handle(ctx: &RequestContext<'_>) -> Result<Response<Body>> {
    let (info, query) = (&ctx.request.info, &ctx.request.query);
    let subresource = info.subresource.as_str();
    if matches!(
        (ctx.store.resource.gvr.resource.as_str(), subresource),
        ("pods", "exec" | "attach" | "portforward")
    ) {
        ensure_may_create(ctx).await?;
    }
    if subresource != "log" {
        stream_options::admit(ctx).await?;
    }
    match (ctx.store.resource.gvr.resource.as_str(), subresource) {
        ("pods", "proxy") => pod_address(ctx).await?,
        ("services", _) => service_address(ctx).await?,
        ("pods", "log") => {
            check_log_options(query, info.url_name())?;
            let pod = find(ctx, info.url_name()).await?;
            check_container(&pod, query)?;
            if pod.str_at("/spec/nodeName").is_empty() {
                let mut response = Response::new(body::empty());
                *response.status_mut() = StatusCode::NO_CONTENT;
                return Ok(response);
            }
            find_node(ctx, &pod).await?;
        }
        ("pods", _) => {
            let pod = find(ctx, info.url_name()).await?;
            if subresource != "portforward" {
                check_container(&pod, query)?;
            }
            if pod.str_at("/spec/nodeName").is_empty() {
                return Err(Status::bad_request(format!(
                    "pod {} does not have a host assigned",
                    pod.name()
                )));
            }
            find_node(ctx, &pod).await?;
        }
        _ => {
            let name = Address::parse(info.url_name(), "node")?.name;
            find(ctx, name).await?;
        }
    }
    Err(Status::unavailable(format!(
        "the {subresource} subresource has no node to reach"
    )))
}

/// Checks the permission to create, which connecting to a pod needs with any method: WebSockets
/// begin with a GET, and to read is not to run commands (`ensureAuthorizedForVerb`).
async fn ensure_may_create(ctx: &RequestContext<'_>) -> Result<()> {
    let info = &ctx.request.info;
    if info.verb == "create" {
        return Ok(());
    }
    let asked = Attributes {
        verb: "create".to_owned(),
        ..ctx.request.attributes()
    };
    let decision = ctx.api.authorizer.authorize(&asked).await;
    match decision.is_allowed() {
        true => Ok(()),
        false => Err(Status::forbidden(
            &ctx.store.resource.gvr,
            &info.name,
            &decision.reason,
        )),
    }
}

/// Checks that the node of a pod exists. Upstream names it with the resource of the request.
async fn find_node(ctx: &RequestContext<'_>, pod: &Object) -> Result<()> {
    let (nodes, name) = (Gvr::new("", "v1", "nodes"), pod.str_at("/spec/nodeName"));
    let Some(nodes) = ctx.api.registry.get(&nodes) else {
        return Ok(());
    };
    let node = nodes.cached_get_stored("", name).await?;
    node.map(drop)
        .ok_or_else(|| Status::not_found(&ctx.store.resource.gvr, name))
}

async fn find(ctx: &RequestContext<'_>, name: &str) -> Result<Object> {
    ctx.store
        .cached_get(ctx.namespace(), name)
        .await?
        .ok_or_else(|| Status::not_found(&ctx.store.resource.gvr, name))
}

/// `name`, `name:port` or `scheme:name:port` (apimachinery `SplitSchemeNamePort`).
struct Address<'a> {
    name: &'a str,
    port: &'a str,
}

impl<'a> Address<'a> {
    fn parse(text: &'a str, what: &str) -> Result<Self> {
        let parts: Vec<&str> = text.split(':').collect();
        let (scheme, name, port) = match parts[..] {
            [name] => ("", name, ""),
            [name, port] => ("", name, port),
            [scheme, name, port] => (scheme, name, port),
            _ => ("", "", ""),
        };
        if name.is_empty() || !SCHEMES.contains(&scheme) {
            return Err(Status::bad_request(format!(
                "invalid {what} request {}",
                go::quote(text)
            )));
        }
        Ok(Self { name, port })
    }
}

/// A pod is reached at its first address, if that is one that others can reach (core/pod
/// `ResourceLocation`).
async fn pod_address(ctx: &RequestContext<'_>) -> Result<()> {
    let address = Address::parse(ctx.request.info.url_name(), "pod")?;
    let pod = find(ctx, address.name).await?;
    let ip = pod.str_at("/status/podIPs/0/ip").parse().ok();
    if ip.is_some_and(is_global_unicast) {
        Ok(())
    } else {
        Err(Status::bad_request("address not allowed"))
    }
}

/// Go's `IP.IsGlobalUnicast`.
fn is_global_unicast(ip: IpAddr) -> bool {
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !link_local && !ip.is_loopback() && !ip.is_multicast() && !ip.is_unspecified()
}

/// A service is reached at one of its endpoints (core/service/storage `ResourceLocation`).
async fn service_address(ctx: &RequestContext<'_>) -> Result<()> {
    let text = ctx.request.info.url_name();
    let Address { name, port } = Address::parse(text, "service")?;
    let mut port = port.to_owned();
    if let Ok(number) = port.parse::<i64>() {
        let service = find(ctx, name).await?;
        let found = service
            .array_at("/spec/ports")
            .iter()
            .find(|one| one.int("port") == Some(number));
        let none = || {
            Status::unavailable(format!(
                "no service port {number} found for service {}",
                go::quote(name)
            ))
        };
        port = found
            .map(|one| one.str("name").to_owned())
            .ok_or_else(none)?;
    }
    let endpoints = ctx
        .api
        .registry
        .get(&Gvr::new("", "v1", "endpoints"))
        .ok_or_else(Status::no_such_path)?;
    // Upstream names the resource of the request.
    let endpoints = endpoints
        .cached_get(ctx.namespace(), name)
        .await?
        .ok_or_else(|| Status::not_found(&ctx.store.resource.gvr, name))?;
    let subsets = endpoints.array_at("/subsets");
    let none = |of: &str| {
        Status::unavailable(format!(
            "no endpoints available for service {}",
            go::quote(of)
        ))
    };
    if subsets.is_empty() {
        return Err(none(name));
    }
    let serves = |subset: &Value| {
        !subset.list("addresses").is_empty()
            && subset
                .list("ports")
                .iter()
                .any(|one| one.str("name") == port)
    };
    if subsets.iter().any(serves) {
        Ok(())
    } else {
        Err(none(text))
    }
}

/// The container must be one of the pod's, and may be left out where the pod has but one (core/pod
/// `validateContainer`).
fn check_container(pod: &Object, query: &Query) -> Result<()> {
    let lists = [
        "/spec/initContainers",
        "/spec/containers",
        "/spec/ephemeralContainers",
    ];
    let names: Vec<&str> = lists
        .iter()
        .flat_map(|path| pod.array_at(path))
        .map(|one| one.str("name"))
        .collect();
    match query.get("container").unwrap_or("") {
        "" => match pod.array_at("/spec/containers").len() {
            1 => Ok(()),
            _ => {
                let text = format!(
                    "a container name must be specified for pod {}, choose one of: [{}]",
                    pod.name(),
                    names.join(" ")
                );
                Err(Status::bad_request(text))
            }
        },
        name if names.contains(&name) => Ok(()),
        name => Err(Status::bad_request(format!(
            "container {name} is not valid for pod {}",
            pod.name()
        ))),
    }
}

/// A parameter of a query; an empty one is none.
fn given<'a>(query: &'a Query, key: &str) -> Option<&'a str> {
    query.get(key).filter(|value| !value.is_empty())
}

/// A parameter that must be a number in Go's syntax.
fn integer(query: &Query, key: &str) -> Result<Option<i64>> {
    let parse = |text: &str| {
        text.parse::<i64>().map_err(|_| {
            Status::bad_request(format!(
                "strconv.ParseInt: parsing {}: invalid syntax",
                go::quote(text)
            ))
        })
    };
    given(query, key).map(parse).transpose()
}

/// Rules of PodLogOptions (core/validation `ValidatePodLogOptions`).
fn check_log_options(query: &Query, name: &str) -> Result<()> {
    let (tail, limit, since) = (
        integer(query, "tailLines")?,
        integer(query, "limitBytes")?,
        integer(query, "sinceSeconds")?,
    );
    let mut errors = ErrorList::new();
    if let Some(tail) = tail.filter(|tail| *tail < 0) {
        errors.invalid(
            &Path::new("tailLines"),
            tail,
            "must be greater than or equal to 0",
        );
    }
    if let Some(limit) = limit.filter(|limit| *limit < 1) {
        errors.invalid(&Path::new("limitBytes"), limit, "must be greater than 0");
    }
    match since {
        Some(_) if given(query, "sinceTime").is_some() => {
            errors.forbidden(
                &Path::new(""),
                "at most one of `sinceTime` or `sinceSeconds` may be specified",
            );
        }
        Some(since) if since < 1 => {
            errors.invalid(&Path::new("sinceSeconds"), since, "must be greater than 0")
        }
        _ => {}
    }
    // The gate PodLogsQuerySplitStreams is off.
    if given(query, "stream").is_some() {
        errors.forbidden(&Path::new("stream"), "may not be specified");
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Status::invalid(
            &Gvk::new("", "", "PodLogOptions"),
            name,
            errors,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    fn message(result: Result<()>) -> String {
        result.map_or_else(|status| status.message, |()| String::new())
    }

    #[test]
    fn addresses_have_a_scheme_a_name_and_a_port() {
        let parse = |text: &'static str| {
            Address::parse(text, "service")
                .map(|one| (one.name, one.port))
                .map_err(|status| status.message)
        };
        assert_eq!(parse("a"), Ok(("a", "")));
        assert_eq!(parse("a:http"), Ok(("a", "http")));
        assert_eq!(parse("https:a:443"), Ok(("a", "443")));
        for text in ["", ":80", "ftp:a:21", "a:b:c:d"] {
            assert_eq!(
                parse(text),
                Err(format!("invalid service request {}", go::quote(text)))
            );
        }
    }

    #[test]
    fn stream_container_must_be_the_pods_own() {
        let pod = |containers: &[&str]| {
            let list: Vec<Value> = containers
                .iter()
                .map(|name| json!({"name": name}))
                .collect();
            let spec = json!({"containers": list, "initContainers": [{"name": "first"}]});
            Object::from_value(json!({"metadata": {"name": "a"}, "spec": spec})).expect("an object")
        };
        let check = |containers: &[&str], query: &str| {
            message(check_container(&pod(containers), &Query::parse(query)))
        };
        assert_eq!(check(&["c"], ""), "");
        assert_eq!(check(&["c", "d"], "container=first"), "");
        assert_eq!(
            check(&["c", "d"], ""),
            "a container name must be specified for pod a, choose one of: [first c d]"
        );
        assert_eq!(
            check(&["c"], "container=d"),
            "container d is not valid for pod a"
        );
    }

    #[test]
    fn log_options_are_checked() {
        let check = |query: &str| message(check_log_options(&Query::parse(query), "a"));
        assert_eq!(
            check("tailLines=3&limitBytes=1&sinceSeconds=1&follow=true"),
            ""
        );
        assert_eq!(
            check("tailLines=x"),
            r#"strconv.ParseInt: parsing "x": invalid syntax"#
        );
        for (query, why) in [
            (
                "tailLines=-1",
                "tailLines: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                "limitBytes=0",
                "limitBytes: Invalid value: 0: must be greater than 0",
            ),
            (
                "sinceSeconds=0",
                "sinceSeconds: Invalid value: 0: must be greater than 0",
            ),
            (
                "sinceSeconds=1&sinceTime=2020-01-01T00:00:00Z",
                "[]: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified",
            ),
            ("stream=All", "stream: Forbidden: may not be specified"),
            (
                "stream=Stdout&tailLines=1",
                "stream: Forbidden: may not be specified",
            ),
        ] {
            assert_eq!(
                check(query),
                format!("PodLogOptions \"a\" is invalid: {why}")
            );
        }
    }

    #[test]
    fn proxy_reaches_only_global_addresses() {
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
                "fe80::1"
            ]
            .into_iter()
            .any(global)
        );
    }
}
