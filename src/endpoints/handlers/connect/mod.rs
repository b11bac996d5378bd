//! Streams to nodes, pods and services: logs, exec, attach, portforward, proxy.

mod address;
mod inbound;
pub mod log;
mod log_options;
mod node;
mod proxy;
pub mod stream;

use http::Response;

use super::{RequestContext, stream_options};
use crate::auth::authz::Attributes;
use crate::endpoints::body::Body;
use crate::meta::status::Result;
use crate::meta::{Object, Status};
use crate::registry::validation::Fields;

/// Answers a request for a stream.
///
/// # Errors
/// Those of the stream: the request is wrong, its target is not there or cannot be reached.
pub async fn handle(ctx: &RequestContext<'_>) -> Result<Response<Body>> {
    let subresource = ctx.request.info.subresource.as_str();
    if subresource == "log" {
        return log::handle(ctx).await;
    }
    if ctx.request.query.get("dryRun").is_some() {
        return Err(Status::bad_request("dryRun is not supported"));
    }
    let options = stream_options::admit(ctx).await?;
    match subresource {
        "proxy" => proxy::handle(ctx, &options).await,
        _ => {
            ensure_may_create(ctx).await?;
            stream::handle(ctx, &options).await
        }
    }
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

/// Returns an object of the resource of the request.
async fn find(ctx: &RequestContext<'_>, name: &str) -> Result<Object> {
    ctx.store
        .cached_get(ctx.namespace(), name)
        .await?
        .ok_or_else(|| Status::not_found(&ctx.store.resource.gvr, name))
}

/// Returns the container that a stream is of: the one that is asked for, which must be one of the
/// pod's, or the only one of the pod (core/pod `validateContainer`).
fn container<'a>(pod: &'a Object, asked: &'a str) -> Result<&'a str> {
    let containers = pod.array_at("/spec/containers");
    let lists = [
        "/spec/initContainers",
        "/spec/containers",
        "/spec/ephemeralContainers",
    ];
    let names = || {
        let all = lists.iter().flat_map(|path| pod.array_at(path));
        all.map(|one| one.str("name"))
    };
    match (asked, containers) {
        ("", [only]) => Ok(only.str("name")),
        ("", []) => Err(Status::bad_request(format!(
            "a container name must be specified for pod {}",
            pod.name()
        ))),
        ("", _) => {
            let names: Vec<_> = names().collect();
            let text = format!(
                "a container name must be specified for pod {}, choose one of: [{}]",
                pod.name(),
                names.join(" ")
            );
            Err(Status::bad_request(text))
        }
        (name, _) if names().any(|one| one == name) => Ok(name),
        (name, _) => Err(Status::bad_request(format!(
            "container {name} is not valid for pod {}",
            pod.name()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::{Value, json};

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
        let check = |containers: &[&str], asked: &str| {
            let pod = pod(containers);
            let found = container(&pod, asked).map(str::to_owned);
            found.unwrap_or_else(|status| status.message)
        };
        assert_eq!(check(&["c"], ""), "c");
        assert_eq!(check(&["c", "d"], "first"), "first");
        assert_eq!(
            check(&["c", "d"], ""),
            "a container name must be specified for pod a, choose one of: [first c d]"
        );
        assert_eq!(check(&["c"], "d"), "container d is not valid for pod a");
        assert_eq!(
            check(&[], ""),
            "a container name must be specified for pod a"
        );
    }
}
