//! The span of a request (apiserver `endpoints/filters/traces.go`, otelhttp `handler`).

use http::header::{CONTENT_LENGTH, HOST, USER_AGENT};
use http::{Response, StatusCode, Version};
use opentelemetry::KeyValue;

use super::request_log::redacted;
use super::{Filter, FilterContext, Next};
use crate::auth::MASTERS;
use crate::endpoints::Request;
use crate::endpoints::body::Body;
use crate::endpoints::request_info::RequestInfo;
use crate::telemetry::trace::{self, ServerRequest, Span, truncated};

/// The group of those who watch the server, who may ask for spans like its masters.
const MONITORING: &str = "system:monitoring";
/// The header of the first client that proxies have seen.
const FORWARDED_FOR: &str = "x-forwarded-for";

/// Runs the request in a span of its own: below that of the client, if the client is trusted.
pub struct TraceRequests;

impl Filter for TraceRequests {
    async fn handle<N: Next>(ctx: &mut FilterContext<'_>) -> Response<Body> {
        let remote = trace::extract(&ctx.request.headers);
        let tracer = &ctx.chain.tracer;
        if remote.is_none() && !tracer.has_provider() {
            return N::handle(ctx).await;
        }
        let groups = &ctx.request.user.groups;
        let span = tracer.server_span(ServerRequest {
            name: span_name(&ctx.request),
            received: ctx.received,
            remote,
            is_trusted: groups
                .iter()
                .any(|group| [MASTERS, MONITORING].contains(&group.as_str())),
            attributes: match tracer.has_provider() {
                true => attributes(ctx),
                false => Vec::new(),
            },
        });
        // Where the client goes, it ends with the context.
        let scope = ctx.span.insert(Box::new(span)).scope();
        // The next filter begins within the span.
        scope.run(async { N::handle(ctx).await }).await
    }
}

/// Sets the code of the answer.
pub fn answered(span: &Span, code: StatusCode) {
    let value = i64::from(code.as_u16());
    span.set_attributes([KeyValue::new("http.response.status_code", value)]);
    if code.is_server_error() {
        span.fail("");
    }
}

/// Ends the span of a request whose answer took so many bytes.
pub fn end_span(span: &Span, bytes: u64) {
    if bytes > 0 {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        span.set_attributes([KeyValue::new("http.response.body.size", bytes)]);
    }
}

/// The method and the path without names; the method alone for what is no resource.
fn span_name(request: &Request) -> String {
    let (info, method) = (&request.info, request.method.as_str());
    match info.is_resource {
        true => format!("{method} {}", route(info)),
        false => truncated(method),
    }
}

fn route(info: &RequestInfo) -> String {
    let mut route = match info.group.is_empty() {
        true => format!("/api/{}", info.version),
        false => format!("/apis/{}/{}", info.group, info.version),
    };
    if !info.namespace.is_empty() {
        route.push_str("/namespaces/{:namespace}");
    }
    route.push('/');
    route.push_str(&info.resource);
    if !info.name.is_empty() {
        route.push_str("/{:name}");
    }
    if !info.subresource.is_empty() {
        route.push('/');
        route.push_str(&info.subresource);
    }
    truncated(&route)
}

/// The attributes of otelhttp. Values of the query that may be secrets are left out.
fn attributes(ctx: &FilterContext<'_>) -> Vec<KeyValue> {
    let (request, remote) = (&*ctx.request, ctx.connection.remote);
    let authority = match request.uri.authority() {
        Some(authority) => authority.as_str().to_owned(),
        None => request.header(HOST).into_owned(),
    };
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse::<i64>().ok()),
        _ => (authority.as_str(), None),
    };
    let peer = remote.ip().to_canonical().to_string();
    let first = request.headers.get(FORWARDED_FOR);
    let first = first.and_then(|all| all.to_str().ok()?.split(',').next());
    let client = first.map_or_else(|| peer.clone(), |first| truncated(first.trim()));
    let mut attributes = vec![
        KeyValue::new("server.address", truncated(host)),
        KeyValue::new("http.request.method", truncated(request.method.as_str())),
        KeyValue::new("url.scheme", "https"),
        KeyValue::new("network.peer.address", peer),
        KeyValue::new("network.peer.port", i64::from(remote.port())),
        KeyValue::new("client.address", client),
        KeyValue::new("url.path", truncated(request.uri.path())),
        KeyValue::new("network.protocol.version", version(request.version)),
        KeyValue::new("http.target", redacted(&request.uri)),
        KeyValue::new("audit-id", super::request_log::audit_id(&ctx.audit_id)),
    ];
    if let Some(port) = port.filter(|port| *port != 443) {
        attributes.push(KeyValue::new("server.port", port));
    }
    let agent = request.header(USER_AGENT);
    if !agent.is_empty() {
        attributes.push(KeyValue::new("user_agent.original", truncated(&agent)));
    }
    let length = request.header(CONTENT_LENGTH).parse::<i64>();
    if let Ok(length @ 1..) = length {
        attributes.push(KeyValue::new("http.request.body.size", length));
    }
    attributes
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "2",
        Version::HTTP_10 => "1.0",
        _ => "1.1",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Method;

    use super::*;
    use crate::meta::options::Query;

    #[test]
    fn span_names_have_no_names_in_them() {
        for (method, path, wanted) in [
            (Method::GET, "/livez/ping", "GET"),
            (
                Method::POST,
                "/api/v1/namespaces/a/pods",
                "POST /api/v1/namespaces/{:namespace}/pods",
            ),
            (
                Method::PUT,
                "/apis/apps/v1/namespaces/a/deployments/b/scale",
                "PUT /apis/apps/v1/namespaces/{:namespace}/deployments/{:name}/scale",
            ),
            (Method::GET, "/api/v1/nodes/x", "GET /api/v1/nodes/{:name}"),
            (
                Method::GET,
                "/api/v1/namespaces/a",
                "GET /api/v1/namespaces/{:namespace}/namespaces/{:name}",
            ),
        ] {
            let request = Request {
                info: Arc::new(RequestInfo::new(&method, path, &Query::default())),
                method,
                ..Request::default()
            };
            assert_eq!(span_name(&request), wanted);
        }
    }
}
