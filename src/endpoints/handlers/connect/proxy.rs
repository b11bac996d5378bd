//! Requests to pods, services and nodes that are handed on (core `ProxyREST` of pods, services and
//! nodes).

use http::Response;

use super::address::{self, Address};
use super::inbound::{inbound, outbound};
use super::{RequestContext, node};
use crate::endpoints::body::Body;
use crate::endpoints::kubelet::join_host_port;
use crate::meta::Object;
use crate::meta::go::url;
use crate::meta::status::Result;
use crate::proxy::{self, Front, Location, Options, Transport};

use std::sync::Arc;

/// Hands the request on, and answers with what the pod, service or node answers.
///
/// # Errors
/// It cannot be reached, or may not be.
pub async fn handle(ctx: &RequestContext<'_>, options: &Object) -> Result<Response<Body>> {
    let pods = || ctx.api.kubelets.pod_transport();
    let (mut location, transport) = match ctx.store.resource.gvr.resource.as_str() {
        "pods" => (address::pod(ctx).await?, pods()),
        "services" => (address::service(ctx).await?, pods()),
        _ => node(ctx).await?,
    };
    location.path = url::join_paths("", options.str_at("/path"));
    let options = Options {
        front: Some(Front {
            path: ctx.request.info.path.clone(),
            ..Front::default()
        }),
        ..Options::default()
    };
    let answer = proxy::forward(inbound(ctx), &location, &transport, &options).await;
    Ok(outbound(answer?))
}

/// The place of a node: its kubelet, or another port of its host (core/node `ResourceLocation`).
async fn node(ctx: &RequestContext<'_>) -> Result<(Location, Arc<Transport>)> {
    let asked = Address::parse(ctx.request.info.url_name(), "node")?;
    let kubelet = node::kubelet(ctx, asked.name).await?;
    address::check_host(&kubelet.host).await?;
    let kubelets = &ctx.api.kubelets;
    if asked.port.is_empty() || asked.port == kubelet.port {
        let location = kubelet.location(String::new(), String::new());
        return Ok((location, kubelets.transport()));
    }
    let location = Location {
        scheme: asked.scheme,
        authority: join_host_port(&kubelet.host, asked.port),
        path: String::new(),
        query: String::new(),
    };
    Ok((location, kubelets.pod_transport()))
}
