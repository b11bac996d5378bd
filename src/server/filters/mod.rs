//! The filters that every request passes, in order, and what stands behind them (apiserver
//! `DefaultBuildHandlerChain`).

mod max_in_flight;
mod request_log;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use http::{HeaderName, HeaderValue, Method, Response, Uri, header};
use http_body::Body as _;
use hyper::body::Incoming;
use parking_lot::Mutex;

use crate::auth::authn::oidc;
use crate::auth::authn::{self, Authenticator, Credentials};
use crate::auth::authz::node::NODES;
use crate::auth::authz::{self, Authorizer};
use crate::auth::{ANONYMOUS, MASTERS, User};
use crate::base::random;
use crate::endpoints::body::{self, Body};
use crate::endpoints::negotiate::{self, Output};
use crate::endpoints::request_info::RequestInfo;
use crate::endpoints::{Api, Request, handlers, respond};
use crate::meta::options::Query;
use crate::meta::status::Result;
use crate::meta::{Gvr, Status};
use crate::registry::Registry;

use crate::auth::impersonation::{self, Impersonation};
use crate::server::connections::Connection;
use crate::server::documents::Discovery;
use crate::server::health;
use crate::server::listener::Handler;
use crate::server::request_body::{BoundedBody, Room};
use crate::server::request_guard::{Held, RequestGuard, ResponseBody, SLICE};
use crate::telemetry::panics::{self, Panic};
use crate::telemetry::{self, health::Health, log, requests};

pub use max_in_flight::{InFlight, Permit};
pub use request_log::RequestLog;

/// The header by which a request is found in logs.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// How the media types of server-side apply begin.
const APPLY_MEDIA_PREFIX: &str = "application/apply-patch+";
/// The components of a control plane, besides administrators and nodes.
const ESSENTIAL_USERS: [&str; 2] = ["system:kube-controller-manager", "system:kube-scheduler"];
/// The longest that a user's name is logged, in bytes.
const MAX_LOGGED_NAME: usize = 256;

/// Everything behind the listener.
pub struct Chain {
    pub authenticator: Arc<authn::Chain>,
    pub impersonation: Impersonation,
    pub in_flight: InFlight,
    pub authorizer: Arc<dyn Authorizer>,
    pub api: Api,
    pub documents: Discovery,
    /// The OpenID discovery documents of the token issuer; new ones where its keys are.
    pub oidc: Arc<ArcSwapOption<oidc::Documents>>,
    pub health: Arc<Health>,
    /// The room for bodies of requests.
    pub room: Room,
    /// How long a request may take that is neither a watch nor a stream, until its answer has been
    /// read.
    pub request_timeout: Duration,
    pub goaway: Goaway,
}

/// Which HTTP/2 clients are told to open another connection.
#[derive(Clone, Copy, Debug)]
pub struct Goaway {
    /// How likely any is, with a request.
    pub chance: f64,
    /// Those that are not authenticated (apiserver `endpoints/filters/authentication.go`, for
    /// CVE-2023-44487).
    pub unauthenticated: bool,
}

/// What is said in logs of a request that went wrong.
struct Subject {
    method: Method,
    uri: Uri,
    audit_id: HeaderValue,
    user: OnceLock<String>,
}

impl Subject {
    fn new(request: &http::Request<Incoming>) -> Self {
        // A client may name its request (apiserver `endpoints/filters/audit_init.go`).
        let given = request
            .headers()
            .get(&AUDIT_ID)
            .filter(|id| !id.is_empty())
            .cloned();
        let audit_id = given.or_else(|| HeaderValue::try_from(random::uuid()).ok());
        Self {
            method: request.method().clone(),
            uri: request.uri().clone(),
            audit_id: audit_id.unwrap_or_else(|| HeaderValue::from_static("")),
            user: OnceLock::new(),
        }
    }

    /// What the request is counted as, without what its headers say.
    fn counted(&self, registry: &Registry) -> Counted {
        let query = Query::parse(self.uri.query().unwrap_or(""));
        let info = RequestInfo::new(&self.method, self.uri.path(), &query);
        Counted::of(&info, &http::HeaderMap::new(), &query, registry)
    }

    fn log(&self, panic: &Panic) {
        let Panic {
            message,
            location,
            backtrace,
        } = panic;
        tracing::error!(
            method = %self.method,
            URI = ?request_log::shown(&self.uri),
            user = ?request_log::cut(self.user.get().map_or("", String::as_str), MAX_LOGGED_NAME),
            "audit-ID" = ?self.audit_id,
            location,
            backtrace,
            "a request panicked: {message}"
        );
    }
}

/// An answer, and as what it is counted, where it is.
struct Answer {
    response: Response<Body>,
    counted: Option<Box<Counted>>,
}

impl From<Response<Body>> for Answer {
    fn from(response: Response<Body>) -> Self {
        Self {
            response,
            counted: None,
        }
    }
}

#[async_trait]
impl Handler for Chain {
    /// The outermost filters: audit ID, panics, the log, the balance of connections; and what goes
    /// with the answer while it is sent.
    async fn handle(
        &self,
        request: http::Request<Incoming>,
        connection: &Connection,
        guard: Arc<RequestGuard>,
    ) -> Response<ResponseBody> {
        let received = Instant::now();
        let subject = Subject::new(&request);
        let mut log = log::logs_requests()
            .then(|| Box::new(request_log(&request, &subject, connection, received)));
        let query = Query::parse(request.uri().query().unwrap_or(""));
        let info = RequestInfo::new(request.method(), request.uri().path(), &query);
        let long_running = max_in_flight::is_long_running(&info);
        if self.goaway.chance > 0.0 && rand::random::<f64>() < self.goaway.chance {
            connection.go_away();
        }
        if let Some(log) = &mut log {
            log.verb = counted_verb(&info, request.headers());
        }
        let served =
            panics::guard(self.serve(request, info, query, connection, &guard, &subject, received))
                .await;
        let answer = served.unwrap_or_else(|panic| {
            subject.log(&panic);
            requests::aborted(&subject.counted(&self.api.registry).labels());
            respond::text(
                500,
                "This request caused apiserver to panic. Look in the logs for details.\n",
            )
            .into()
        });
        guard.give_room_back();
        let (mut parts, body) = answer.response.into_parts();
        if body
            .size_hint()
            .exact()
            .is_some_and(|bytes| bytes <= SLICE as u64)
        {
            guard.give_place_back();
        }
        parts.headers.insert(AUDIT_ID, subject.audit_id);
        let mut held = Held::new(guard);
        if long_running && (parts.status.is_success() || parts.status.is_informational()) {
            held.long_running = answer
                .counted
                .map(|counted| requests::long_running(&counted.labels()));
            held.stall = Some(self.request_timeout);
        } else {
            held.deadline = Some((received + self.request_timeout).into());
            held.counted = answer.counted;
        }
        if let Some(log) = &mut log {
            log.status = parts.status.as_u16();
        }
        held.log = log;
        Response::from_parts(parts, ResponseBody::new(body, held))
    }
}

impl Chain {
    /// The filters with a deadline: authentication, impersonation, the limit of requests in flight,
    /// authorization, then the handler.
    #[allow(clippy::too_many_arguments)] // what the outermost filters have found out
    async fn serve(
        &self,
        request: http::Request<Incoming>,
        info: RequestInfo,
        query: Query,
        connection: &Connection,
        guard: &Arc<RequestGuard>,
        subject: &Subject,
        received: Instant,
    ) -> Answer {
        let (mut parts, body) = request.into_parts();
        let upgrade = Mutex::new(parts.extensions.remove());
        let (method, headers, user) = (parts.method, parts.headers, User::default());
        let mut request = Request {
            info,
            method,
            query,
            headers,
            user,
            upgrade,
            guard: Some(guard.clone()),
        };
        let output = negotiate::fallback_output(
            &request.header(header::ACCEPT),
            request.user_agent(),
            &request.query,
        );
        let timeout = match self.timeout(&request) {
            Ok(timeout) => timeout,
            Err(status) => return respond::status(&status, output).into(),
        };
        let long_running = max_in_flight::is_long_running(&request.info);
        let deadline = tokio::time::Instant::from(received + timeout);
        let admitted = tokio::time::timeout_at(
            deadline,
            self.admit(&mut request, connection, guard, output, subject),
        )
        .await;
        let counted = match admitted {
            Ok(Ok(())) => Box::new(Counted::new(&request, &self.api.registry)),
            Ok(Err(response)) => return response.into(),
            Err(_) => {
                return self
                    .too_late(&Counted::new(&request, &self.api.registry), output)
                    .into();
            }
        };
        let begun = Instant::now();
        let body = self
            .room
            .body(body, guard.clone(), is_essential(&request.user));
        let work = self.dispatch(request, body, parts.uri.query().unwrap_or(""));
        let response = if long_running {
            work.await
        } else {
            tokio::time::timeout_at(deadline, work)
                .await
                .unwrap_or_else(|_| self.too_late(&counted, output))
        };
        requests::answered(
            &counted.labels(),
            response.status().as_u16(),
            begun.elapsed().as_secs_f64(),
        );
        Answer {
            response,
            counted: Some(counted),
        }
    }

    /// Settles who makes the request and as whom, whether there is room for it, and whether that
    /// user may make it.
    async fn admit(
        &self,
        request: &mut Request,
        connection: &Connection,
        guard: &RequestGuard,
        output: Output,
        subject: &Subject,
    ) -> std::result::Result<(), Response<Body>> {
        let refused = |status: Status| respond::status(&status, output);
        request.user = self
            .authenticate(request, connection)
            .await
            .map_err(refused)?;
        let _ = subject.user.set(request.user.name.clone());
        let requested = impersonation::requested_user(&mut request.headers).map_err(refused)?;
        if let Some(requested) = requested {
            let attributes = request.attributes();
            request.user = self
                .impersonation
                .impersonate(&requested, &attributes)
                .await
                .map_err(refused)?;
        }
        match self.in_flight.admit(&request.info, &request.user) {
            Ok(Some(permit)) => guard.hold(permit),
            Ok(None) => {}
            Err(response) => {
                requests::terminated(&Counted::new(request, &self.api.registry).labels(), 429);
                return Err(response);
            }
        }
        authz::require(self.authorizer.as_ref(), &request.attributes())
            .await
            .map_err(refused)
    }

    /// Finds out who makes the request. Who stays unknown is to keep no HTTP/2 connection.
    async fn authenticate(&self, request: &mut Request, connection: &Connection) -> Result<User> {
        let credentials = Credentials {
            headers: &request.headers,
            peer: &connection.peer,
        };
        let authenticated = self.authenticator.authenticate(&credentials).await;
        self.authenticator.strip(&mut request.headers);
        match authenticated {
            Ok(Some(user)) if user.name != ANONYMOUS => {
                connection.authenticated();
                Ok(user)
            }
            other => {
                if self.goaway.unauthenticated {
                    connection.go_away();
                }
                other.ok().flatten().ok_or_else(Status::unauthorized)
            }
        }
    }

    /// How long the request may take: what it asks for, within the limit (apiserver
    /// `endpoints/filters/request_deadline.go`).
    fn timeout(&self, request: &Request) -> Result<Duration> {
        let limit = self.request_timeout;
        let asked = request
            .query
            .get("timeout")
            .filter(|text| !text.is_empty() && !max_in_flight::is_long_running(&request.info));
        let Some(asked) = asked else { return Ok(limit) };
        let asked = crate::options::flags::parse_duration(asked).map_err(|why| {
            Status::bad_request(format!(
                "invalid timeout specified in the request URL - {why}"
            ))
        })?;
        Ok(if asked.is_zero() {
            limit
        } else {
            asked.min(limit)
        })
    }

    fn too_late(&self, counted: &Counted, output: Output) -> Response<Body> {
        requests::terminated(&counted.labels(), 504);
        respond::status(
            &Status::timeout("request did not complete within the allotted timeout", 0),
            output,
        )
    }

    async fn dispatch(
        &self,
        request: Request,
        body: BoundedBody<Incoming>,
        query: &str,
    ) -> Response<Body> {
        if request.info.path.starts_with("//") {
            return respond::page_not_found();
        }
        if request.info.is_resource {
            let info = &request.info;
            let gvr = Gvr::new(&info.group, &info.version, &info.resource);
            if self.api.registry.served(&gvr).is_none() {
                self.api.extensions.resolve(&gvr).await;
            }
            if !self.api.registry.has_group(&info.group) && self.api.registry.served(&gvr).is_none()
            {
                return respond::page_not_found();
            }
            return handlers::handle(&self.api, request, body).await;
        }
        let path = request.info.path.as_str();
        if path == "/metrics" {
            return metrics();
        }
        if let Some(answer) = self.health.answer(path, query).await {
            return health::response(answer);
        }
        if let Some(response) = self
            .oidc
            .load()
            .as_deref()
            .and_then(|documents| openid(documents, path))
        {
            return response;
        }
        if let Some(response) = self.documents.openapi(path, query, &request.headers) {
            return response.map(body::full);
        }
        let custom = self.documents.is_custom(path);
        if !custom && !matches!(request.method, Method::GET | Method::HEAD) {
            let output = negotiate::fallback_output(
                &request.header(header::ACCEPT),
                request.user_agent(),
                &request.query,
            );
            let known = self
                .documents
                .answer(path, query, &request.headers)
                .is_some();
            return if known {
                respond::status(&handlers::method_not_allowed(), output)
            } else {
                respond::page_not_found()
            };
        }
        match self.documents.answer(path, query, &request.headers) {
            Some(Ok(document)) => document.map(body::full),
            Some(Err(status)) if custom && status.code == 404 => respond::page_not_found(),
            Some(Err(status)) => {
                let output = negotiate::fallback_output(
                    &request.header(header::ACCEPT),
                    request.user_agent(),
                    &request.query,
                );
                respond::status(&status, output)
            }
            None => respond::page_not_found(),
        }
    }
}

/// Whether the cluster stands still without this user: bodies of its requests have room of their
/// own.
fn is_essential(user: &User) -> bool {
    user.groups
        .iter()
        .any(|group| matches!(group.as_str(), MASTERS | NODES))
        || ESSENTIAL_USERS.contains(&user.name.as_str())
}

/// A request as it is counted. What is not served is counted without its names, which are the
/// client's.
#[derive(Debug)]
pub struct Counted {
    verb: &'static str,
    gvr: Gvr,
    subresource: String,
    scope: &'static str,
    dry_run: bool,
}

impl Counted {
    fn new(request: &Request, registry: &Registry) -> Self {
        Self::of(&request.info, &request.headers, &request.query, registry)
    }

    fn of(
        info: &RequestInfo,
        headers: &http::HeaderMap,
        query: &Query,
        registry: &Registry,
    ) -> Self {
        let gvr = Gvr::new(&info.group, &info.version, &info.resource);
        let verb = counted_verb(info, headers);
        let Some(store) = registry.served(&gvr).filter(|_| info.is_resource) else {
            return Self {
                verb,
                gvr: Gvr::default(),
                subresource: String::new(),
                scope: "",
                dry_run: false,
            };
        };
        let known = store
            .resource
            .decl
            .subresources
            .iter()
            .any(|sub| sub.name == info.subresource);
        let scope = match (info.url_name().is_empty(), info.namespace.is_empty()) {
            (false, _) => "resource",
            (true, false) => "namespace",
            (true, true) => "cluster",
        };
        let subresource = if known {
            info.subresource.clone()
        } else {
            String::new()
        };
        Self {
            verb,
            gvr,
            subresource,
            scope,
            dry_run: query.get("dryRun").is_some(),
        }
    }

    pub fn labels(&self) -> requests::Labels<'_> {
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

/// The verb that a request is counted as: server-side apply is one of its own.
fn counted_verb(info: &RequestInfo, headers: &http::HeaderMap) -> &'static str {
    let media = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("");
    match info.verb.as_str() {
        "patch" if media.starts_with(APPLY_MEDIA_PREFIX) => "APPLY",
        verb => requests::verb(verb),
    }
}

fn request_log(
    request: &http::Request<Incoming>,
    subject: &Subject,
    connection: &Connection,
    begun: Instant,
) -> RequestLog {
    let text = |value: Option<&HeaderValue>| {
        String::from_utf8_lossy(value.map_or(b"", HeaderValue::as_bytes)).into_owned()
    };
    RequestLog {
        begun,
        verb: "",
        uri: request.uri().clone(),
        user_agent: text(request.headers().get(header::USER_AGENT)),
        audit_id: text(Some(&subject.audit_id)),
        remote: connection.remote,
        status: 0,
    }
}

/// What the server has counted, for Prometheus.
fn metrics() -> Response<Body> {
    requests::refresh();
    let mut response = Response::new(body::full(telemetry::metrics::render()));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(telemetry::metrics::CONTENT_TYPE),
    );
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
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response.headers_mut().insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static(oidc::CACHE_CONTROL),
    );
    Some(response)
}
