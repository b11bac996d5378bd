//! The filters that every request passes, in order, and what stands behind them (apiserver `DefaultBuildHandlerChain`).

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::FutureExt;
use http::{HeaderValue, Method, Response, header};
use hyper::body::Incoming;
use parking_lot::Mutex;

use crate::auth::User;
use crate::auth::authn::oidc;
use crate::auth::authn::{self, Authenticator, Credentials};
use crate::auth::authz::{self, Authorizer};
use crate::base::random;
use crate::endpoints::body::{self, Body};
use crate::endpoints::negotiate;
use crate::endpoints::request_info::RequestInfo;
use crate::endpoints::{Api, Request, handlers, respond};
use crate::meta::options::Query;
use crate::meta::status::Result;
use crate::meta::{Gvr, Status};
use crate::registry::Registry;

use super::documents::Discovery;
use super::health;
use super::impersonation::Impersonation;
use super::listener::{Connection, Handler};
use crate::telemetry::{self, health::Health, requests};

/// How long a request may take that is neither a watch nor a stream.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Everything behind the listener.
pub struct Chain {
    pub authenticator: Arc<authn::Chain>,
    pub impersonation: Impersonation,
    pub authorizer: Arc<dyn Authorizer>,
    pub api: Api,
    pub documents: Discovery,
    /// The OpenID discovery documents of the token issuer.
    pub oidc: Option<oidc::Documents>,
    pub health: Arc<Health>,
}

#[async_trait]
impl Handler for Chain {
    async fn handle(&self, request: http::Request<Incoming>, connection: &Connection) -> Response<Body> {
        let guarded = AssertUnwindSafe(self.serve(request, connection)).catch_unwind().await;
        let mut response = guarded.unwrap_or_else(|_| {
            tracing::error!("a request panicked");
            respond::text(500, "This request caused apiserver to panic. Look in the logs for details.\n")
        });
        if let Ok(id) = HeaderValue::from_str(&random::uuid()) {
            response.headers_mut().insert("audit-id", id);
        }
        response
    }
}

impl Chain {
    /// Request info, timeout, authentication, impersonation, authorization, then the handler.
    async fn serve(&self, request: http::Request<Incoming>, connection: &Connection) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query().unwrap_or(""));
        let info = RequestInfo::new(&parts.method, parts.uri.path(), &query);
        let credentials = Credentials { headers: &parts.headers, peer: &connection.peer };
        let authenticated = self.authenticator.authenticate(&credentials).await;
        self.authenticator.strip(&mut parts.headers);
        let upgrade = Mutex::new(parts.extensions.remove());
        let mut request = Request { info, method: parts.method, query, headers: parts.headers, user: User::default(), upgrade };
        let output = negotiate::output_or_json(&request.header(header::ACCEPT), request.user_agent(), &request.query);
        request.user = match authenticated {
            Ok(Some(user)) => user,
            Ok(None) | Err(_) => return respond::status(&Status::unauthorized(), output),
        };
        let timeout = match timeout(&request) {
            Ok(timeout) => timeout,
            Err(status) => return respond::status(&status, output),
        };
        if let Err(status) = self.authorize(&mut request).await {
            return respond::status(&status, output);
        }
        let path_query = parts.uri.query().unwrap_or("").to_owned();
        let (begun, counted) = (Instant::now(), Counted::new(&request, &self.api.registry));
        let work = self.dispatch(request, body, &path_query);
        let response = match timeout {
            None => work.await,
            Some(limit) => tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
                let message = "request did not complete within the allotted timeout";
                respond::status(&Status::timeout(message, 0), output)
            }),
        };
        requests::answered(&counted.labels(), response.status().as_u16(), begun.elapsed().as_secs_f64());
        response
    }

    /// Settles as whom the request is made, and whether that user may.
    async fn authorize(&self, request: &mut Request) -> Result<()> {
        if let Some(user) = self.impersonation.apply(request).await? {
            request.user = user;
        }
        authz::demand(self.authorizer.as_ref(), &request.attributes()).await
    }

    async fn dispatch(&self, request: Request, body: Incoming, query: &str) -> Response<Body> {
        if request.info.path.starts_with("//") {
            return respond::page_not_found();
        }
        if request.info.is_resource {
            let info = &request.info;
            let gvr = Gvr::new(&info.group, &info.version, &info.resource);
            if self.api.registry.get(&gvr).is_none() {
                self.api.extensions.resolve(&gvr).await;
            }
            if !self.api.registry.has_group(&info.group) && self.api.registry.get(&gvr).is_none() {
                return respond::page_not_found();
            }
            return handlers::handle(&self.api, &request, body).await;
        }
        let path = request.info.path.as_str();
        if path == "/metrics" {
            return metrics();
        }
        if let Some(answer) = self.health.answer(path, query).await {
            return health::response(answer);
        }
        if let Some(response) = self.oidc.as_ref().and_then(|documents| openid(documents, path)) {
            return response;
        }
        if let Some(response) = self.documents.openapi(path, query, &request.headers) {
            return response.map(body::full);
        }
        let custom = self.documents.is_custom(path);
        if !custom && !matches!(request.method, Method::GET | Method::HEAD) {
            let output = negotiate::output_or_json(&request.header(header::ACCEPT), request.user_agent(), &request.query);
            let known = self.documents.answer(path, query, &request.headers).is_some();
            return if known { respond::status(&handlers::method_not_allowed(), output) } else { respond::page_not_found() };
        }
        match self.documents.answer(path, query, &request.headers) {
            Some(Ok(document)) => document.map(body::full),
            Some(Err(status)) if custom && status.code == 404 => respond::page_not_found(),
            Some(Err(status)) => {
                let output = negotiate::output_or_json(&request.header(header::ACCEPT), request.user_agent(), &request.query);
                respond::status(&status, output)
            }
            None => respond::page_not_found(),
        }
    }
}

/// A request as it is counted. What is not served is counted without its names, which are the client's.
struct Counted {
    verb: &'static str,
    gvr: Gvr,
    subresource: String,
    scope: &'static str,
    dry_run: bool,
}

impl Counted {
    fn new(request: &Request, registry: &Registry) -> Self {
        let info = &request.info;
        let gvr = Gvr::new(&info.group, &info.version, &info.resource);
        let verb = requests::verb(&info.verb);
        let Some(store) = registry.get(&gvr).filter(|_| info.is_resource) else {
            return Self { verb, gvr: Gvr::default(), subresource: String::new(), scope: "", dry_run: false };
        };
        let known = store.resource.decl.subresources.iter().any(|sub| sub.name == info.subresource);
        let scope = match (info.url_name().is_empty(), info.namespace.is_empty()) {
            (false, _) => "resource",
            (true, false) => "namespace",
            (true, true) => "cluster",
        };
        let subresource = if known { info.subresource.clone() } else { String::new() };
        Self { verb, gvr, subresource, scope, dry_run: request.query.get("dryRun").is_some() }
    }

    fn labels(&self) -> requests::Labels<'_> {
        requests::Labels {
            verb: self.verb,
            group: &self.gvr.group,
            version: &self.gvr.version,
            resource: &self.gvr.resource,
            subresource: &self.subresource,
            scope: self.scope,
            dry_run: if self.dry_run { "All" } else { "" },
        }
    }
}

/// How long the request may take; `None` for watches and streams, which end by themselves.
fn timeout(request: &Request) -> Result<Option<Duration>> {
    let streams =
        request.info.verb == "watch" || ["log", "exec", "attach", "portforward", "proxy"].contains(&request.info.subresource.as_str());
    if streams {
        return Ok(None);
    }
    let Some(asked) = request.query.get("timeout").filter(|text| !text.is_empty()) else { return Ok(Some(REQUEST_TIMEOUT)) };
    let asked = super::flags::parse_duration(asked)
        .map_err(|why| Status::bad_request(format!("invalid timeout specified in the request URL - {why}")))?;
    Ok(Some(if asked.is_zero() { REQUEST_TIMEOUT } else { asked.min(REQUEST_TIMEOUT) }))
}

/// What the server has counted, for Prometheus.
fn metrics() -> Response<Body> {
    let mut response = Response::new(body::full(telemetry::metrics::render()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(telemetry::metrics::CONTENT_TYPE));
    response
}

/// The OpenID discovery documents.
fn openid(documents: &oidc::Documents, path: &str) -> Option<Response<Body>> {
    let (media, text) = match path {
        oidc::CONFIGURATION_PATH => ("application/json", &documents.configuration),
        oidc::KEYS_PATH => (oidc::KEYS_TYPE, &documents.keys),
        _ => return None,
    };
    let mut response = Response::new(body::full(text.clone()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static(oidc::CACHE_CONTROL));
    Some(response)
}
