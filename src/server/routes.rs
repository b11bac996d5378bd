//! The routes: resources by look-up in the registry, anything else by a table.

use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};

use super::filters::{FilterContext, HandlerChain, Next, is_from_api_server, too_many_requests};
use super::zpages::Page;
use super::{debug_flags, health, metrics, profiling};
use crate::aggregator::{Forwarded, Route};
use crate::auth::authn::oidc;
use crate::endpoints::body::{self, Body};
use crate::endpoints::{Request, handlers, respond};
use crate::meta::{Gvr, Status};
use crate::proxy::{self, Inbound, Lifetime};
use crate::telemetry::requests;

/// The handlers of paths that are not those of resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoint {
    Metrics,
    /// The service level indicators.
    Slis,
    Health,
    OpenId,
    OpenApi,
    ZPage(Page),
    /// The flags that can be changed at run time.
    DebugFlags,
    /// Profiles of the process.
    Profiling,
    Discovery,
    /// The state of priority and fairness.
    FlowControl,
}

/// The paths that an endpoint is at.
#[derive(Clone, Copy, Debug)]
enum PathPattern {
    /// This one.
    One(&'static str),
    /// This one, and all below it.
    Below(&'static str),
    All,
}

impl PathPattern {
    fn include(self, path: &str) -> bool {
        match self {
            Self::One(one) => path == one,
            Self::Below(top) => path
                .strip_prefix(top)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
            Self::All => true,
        }
    }
}

/// The path of the pages about priority and fairness.
const DUMPS: &str = "/debug/api_priority_and_fairness";

/// The routes of requests that are not for resources, tried in order: the first route that has its
/// path and knows the document that it asks for. Those behind go-restful in the Go server refuse
/// methods other than GET; the rest take any.
const ROUTES: [(PathPattern, Endpoint); 14] = [
    (PathPattern::One("/metrics"), Endpoint::Metrics),
    (PathPattern::One("/metrics/slis"), Endpoint::Slis),
    (PathPattern::Below("/healthz"), Endpoint::Health),
    (PathPattern::Below("/livez"), Endpoint::Health),
    (PathPattern::Below("/readyz"), Endpoint::Health),
    (PathPattern::One(oidc::CONFIGURATION_PATH), Endpoint::OpenId),
    (PathPattern::One(oidc::KEYS_PATH), Endpoint::OpenId),
    (PathPattern::Below("/openapi"), Endpoint::OpenApi),
    (PathPattern::Below(DUMPS), Endpoint::FlowControl),
    (PathPattern::One("/statusz"), Endpoint::ZPage(Page::Statusz)),
    (PathPattern::One("/flagz"), Endpoint::ZPage(Page::Flagz)),
    (PathPattern::Below(debug_flags::INDEX), Endpoint::DebugFlags),
    (PathPattern::Below(profiling::INDEX), Endpoint::Profiling),
    // `/`, `/index.html`, `/version`, `/api` and `/apis` with what is below them.
    (PathPattern::All, Endpoint::Discovery),
];

/// Hands a request that has passed all filters to what answers it, and counts it.
pub struct Router;

impl Next for Router {
    fn handle(ctx: &mut FilterContext<'_>) -> impl Future<Output = Response<Body>> + Send {
        // Apart, so that the futures of filters, which are moved as they are made, are small.
        Box::pin(route(ctx))
    }
}

async fn route(ctx: &mut FilterContext<'_>) -> Response<Body> {
    ctx.is_routed = true;
    ctx.guard.set_routed();
    if is_from_api_server(&ctx.request) {
        ctx.series().0.count_api_server();
    }
    let info = &ctx.request.info;
    let route = ctx.chain.aggregator.route(&info.path);
    let is_handed_on = route.is_some() || info.is_resource && handlers::is_stream(info);
    let response = if info.path.starts_with("//") {
        respond::page_not_found()
    } else if is_handed_on && ctx.guard.hand_on(&ctx.request.user).is_err() {
        ctx.series().0.terminated(429);
        too_many_requests(1)
    } else if let Some(route) = route {
        // It is counted where it is answered.
        return Box::pin(aggregated(ctx, &route)).await;
    } else if info.is_resource {
        resource(ctx).await
    } else {
        non_resource(ctx.chain, &ctx.request).await
    };
    let status = response.status();
    let lasts = status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS;
    // What lasts is counted when it ends.
    if !(ctx.is_long_running && lasts) {
        ctx.count_answer(status.as_u16());
    }
    response
}

async fn resource(ctx: &mut FilterContext<'_>) -> Response<Body> {
    let (api, info) = (&ctx.chain.api, &ctx.request.info);
    let gvr = Gvr::new(&info.group, &info.version, &info.resource);
    let mut store = api.registry.served(&gvr);
    if store.is_none() {
        // Another server may have just made its definition.
        api.extensions.resolve(&gvr).await;
        store = api.registry.served(&gvr);
    }
    if store.is_none() && !api.registry.has_group(&gvr.group) {
        return respond::page_not_found();
    }
    match ctx.request_mut() {
        Ok(request) => request.store = store,
        Err(status) => return ctx.status(&status),
    }
    handlers::handle(&ctx.chain.api, ctx.request.clone()).await
}

/// Hands a request on to the server behind an APIService.
async fn aggregated(ctx: &FilterContext<'_>, route: &Route) -> Response<Body> {
    let (api, request) = (&ctx.chain.api, &ctx.request);
    // A watch begins at the other server: here it needs no seats (`RequestDelegated`).
    drop(request.initializing.lock().take());
    let inbound = Inbound {
        method: request.method.clone(),
        uri: request.uri.clone(),
        headers: request.headers.clone(),
        body: match request.body.take() {
            Some(body) => proxy::incoming(body),
            None => proxy::empty(),
        },
        client: Some(ctx.connection.remote.ip()),
        upgrade: request.upgrade.lock().take(),
        lifetime: Lifetime {
            hold: request.guard.clone().map(|guard| guard as _),
            tasks: api.tasks.clone(),
            draining: api.draining.clone(),
        },
    };
    let forwarded = Forwarded {
        inbound,
        user: &request.user,
        path: &request.info.path,
        is_resource: request.info.is_resource,
        audit_id: &ctx.audit_id,
    };
    match ctx.chain.aggregator.forward(route, forwarded).await {
        Ok(answer) => answer.map(body::stream),
        // As Go's `http.Error` writes it.
        Err(refused) => {
            let code = refused.status.as_u16();
            let info = &request.info;
            requests::not_forwarded(ctx.verb(), &info.group, &info.version, code);
            respond::text(code, format!("{}\n", refused.text))
        }
    }
}

async fn non_resource(chain: &HandlerChain, request: &Request) -> Response<Body> {
    let path = request.info.path.as_str();
    for (_, endpoint) in ROUTES.iter().filter(|(paths, _)| paths.include(path)) {
        if let Some(response) = answer(*endpoint, chain, request, path).await {
            return response;
        }
    }
    respond::page_not_found()
}

/// The answer of an endpoint; `None` for a document that it does not have.
async fn answer(
    endpoint: Endpoint,
    chain: &HandlerChain,
    request: &Request,
    path: &str,
) -> Option<Response<Body>> {
    let query = request.uri.query().unwrap_or("");
    match endpoint {
        Endpoint::Metrics => Some(metrics::page(chain, request).await),
        Endpoint::Slis => Some(metrics::slis(request).await),
        Endpoint::Health => chain.health.answer(path, query).await.map(health::response),
        Endpoint::OpenId => {
            let documents = chain.oidc.load();
            let documents = documents.as_deref()?;
            let refused = if request.method != Method::GET {
                Status::no_such_method()
            } else if let Some(media) = refused_media(path, &request.headers) {
                let mut refused = Status::not_acceptable(format!(
                    "406: Not Acceptable\n\nAvailable representations: {media}"
                ));
                refused.details_mut();
                refused
            } else {
                return openid(documents, path);
            };
            Some(respond::status(&refused, request.status_output()))
        }
        Endpoint::OpenApi => chain
            .documents
            .openapi(path, query, &request.headers)
            .map(|response| response.map(body::full)),
        Endpoint::ZPage(page) => {
            let pages = &chain.zpages;
            pages
                .has(page)
                .then(|| pages.answer(page, request, chain.api.clock.now()))
        }
        Endpoint::DebugFlags if chain.profiling => {
            Some(debug_flags::answer(request, path, &chain.api.bodies).await)
        }
        Endpoint::Profiling if chain.profiling => {
            let (limit, bodies) = (chain.request_timeout, &chain.api.bodies);
            Some(profiling::answer(request, path, limit, bodies).await)
        }
        Endpoint::DebugFlags | Endpoint::Profiling => None,
        Endpoint::Discovery => discovery(chain, request, path),
        Endpoint::FlowControl => flow_control(chain, request, path),
    }
}

/// A page about priority and fairness.
fn flow_control(chain: &HandlerChain, request: &Request, path: &str) -> Option<Response<Body>> {
    let controller = chain.flow_control.as_ref()?;
    let page = match path.strip_prefix(DUMPS)? {
        "/dump_priority_levels" => controller.dump_priority_levels(),
        "/dump_queues" => controller.dump_queues(),
        "/dump_requests" => {
            let details = request.query.get("includeRequestDetails");
            let with_details = details.is_some_and(|value| !value.is_empty());
            controller.dump_requests(chain.api.clock.now(), with_details)
        }
        _ => return None,
    };
    let mut response = Response::new(body::full(page));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    Some(response)
}

fn discovery(chain: &HandlerChain, request: &Request, path: &str) -> Option<Response<Body>> {
    let query = request.uri.query().unwrap_or("");
    // Documents of groups with custom resources only are served for any method.
    let is_custom = chain.documents.is_custom(path);
    let method = if is_custom {
        &Method::GET
    } else {
        &request.method
    };
    let answer = match chain
        .documents
        .answer(method, path, query, &request.headers)?
    {
        Err(Status { code: 404, .. }) if is_custom => return None,
        answer => answer,
    };
    Some(match answer {
        Ok(document) => document.map(body::full),
        Err(status) => respond::status(&status, request.status_output()),
    })
}

/// The media type of an OpenID discovery document.
fn openid_media(path: &str) -> &'static str {
    if path == oidc::KEYS_PATH {
        oidc::KEYS_TYPE
    } else {
        "application/json"
    }
}

/// Returns the media type of an OpenID discovery document if the client does not accept it, as
/// go-restful decides it.
fn refused_media(path: &str, headers: &HeaderMap) -> Option<&'static str> {
    let media = openid_media(path);
    let header = headers.get(header::ACCEPT)?.to_str().unwrap_or("");
    let mut accepted = header.split(',').map(|part| {
        let (media, _) = part.split_once(';').unwrap_or((part, ""));
        media.trim()
    });
    let takes = |accepted: &str| accepted == "*/*" || accepted.is_empty() || accepted == media;
    (!accepted.any(takes)).then_some(media)
}

/// An OpenID discovery document.
fn openid(documents: &oidc::Documents, path: &str) -> Option<Response<Body>> {
    let text = match path {
        oidc::CONFIGURATION_PATH => &documents.configuration,
        oidc::KEYS_PATH => &documents.keys,
        _ => return None,
    };
    let media = openid_media(path);
    let mut response = Response::new(body::full(text.clone()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static(oidc::CACHE_CONTROL),
    );
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_their_endpoints() {
        for (path, first) in [
            ("/metrics", Endpoint::Metrics),
            ("/metrics/", Endpoint::Discovery),
            ("/metrics/slis", Endpoint::Slis),
            ("/readyz/etcd", Endpoint::Health),
            ("/readyzy", Endpoint::Discovery),
            ("/openapi/v3/apis/apps/v1", Endpoint::OpenApi),
            ("/openid/v1/jwks", Endpoint::OpenId),
            ("/statusz", Endpoint::ZPage(Page::Statusz)),
            ("/flagz/", Endpoint::Discovery),
            ("/debug/flags/v", Endpoint::DebugFlags),
            ("/debug/pprof", Endpoint::Profiling),
            ("/debug/pprof/profile", Endpoint::Profiling),
            ("/version", Endpoint::Discovery),
        ] {
            let found = ROUTES.iter().find(|(paths, _)| paths.include(path));
            assert_eq!(found.map(|(_, endpoint)| *endpoint), Some(first), "{path}");
        }
    }
}
