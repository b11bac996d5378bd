//! A request as the proxy gets it, and the proxy's answer as the client gets it.

use http::Response;

use super::RequestContext;
use crate::endpoints::body::{self, Body};
use crate::proxy::{Inbound, Lifetime, ResponseBody};

/// Hands the request over to the proxy, with its body and its connection.
pub fn inbound(ctx: &RequestContext<'_>) -> Inbound {
    let request = ctx.request;
    Inbound {
        method: request.method.clone(),
        uri: request.uri.clone(),
        headers: request.headers.clone(),
        body: request.body.stream(),
        client: request.client,
        upgrade: request.upgrade.lock().take(),
        lifetime: lifetime(ctx),
    }
}

/// The bounds of a connection that goes on after the request.
pub fn lifetime(ctx: &RequestContext<'_>) -> Lifetime {
    Lifetime {
        hold: ctx.request.guard.clone().map(|guard| guard as _),
        tasks: ctx.api.tasks.clone(),
        draining: ctx.api.draining.clone(),
    }
}

/// The answer of the proxy, for the client.
pub fn outbound(response: Response<ResponseBody>) -> Response<Body> {
    response.map(body::stream)
}
