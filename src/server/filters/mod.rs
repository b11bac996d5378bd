//! The filters that every request passes, and the context that they share.

mod audit;
mod audit_id;
pub mod authentication;
pub mod authorization;
mod cors;
mod goaway;
mod hsts;
mod impersonation;
mod labels;
mod max_in_flight;
mod panic_recovery;
mod priority_and_fairness;
mod request_info;
mod request_log;
mod retry_after;
mod timeout;
mod traces;
mod wait_group;

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use http::{HeaderValue, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use parking_lot::Mutex;

use crate::aggregator::Aggregator;
use crate::audit::{Audit, Auditor};
use crate::auth::authn::{self, oidc};
use crate::auth::authz::Authorizer;
use crate::auth::impersonation::Impersonation;
use crate::endpoints::body::Body;
use crate::endpoints::request_body::RequestBody;
use crate::endpoints::{Api, Request, respond};
use crate::flowcontrol;
use crate::meta::status::Result;
use crate::meta::{Status, go};
use crate::options::browsers::Browsers;
use crate::options::config;
use crate::server::connections::Connection;
use crate::server::discovery::DiscoveryHandler;
use crate::server::listener::Handler;
use crate::server::metrics::Caches;
use crate::server::request_guard::RequestGuard;
use crate::server::response_body::{ResponseBody, ResponseState, SLICE};
use crate::server::routes::Router;
use crate::server::shutdown::Shutdown;
use crate::server::storage_metrics::StorageSizes;
use crate::server::zpages::ZPages;
use crate::telemetry::health::Health;
use crate::telemetry::requests::{self, FilterName, RequestSeries};
use crate::telemetry::trace;

pub use goaway::Goaway;
pub use labels::is_from_api_server;
pub use max_in_flight::{InFlight, Permit, too_many_requests};
pub use request_log::RequestLog;
pub use traces::end_span;

/// The type of a list of filters in front of the router.
macro_rules! Chain {
    ($last:ty $(,)?) => { $last };
    ($filter:ty, $($rest:ty),+ $(,)?) => { Layer<$filter, Chain![$($rest),+]> };
}

/// The filters in the order in which a request passes them, and the router behind them (apiserver
/// `DefaultBuildHandlerChain`).
type Filters = Chain![
    audit_id::AuditId,
    panic_recovery::PanicRecovery,
    request_info::ResolveRequestInfo,
    request_log::LogRequests,
    retry_after::RetryAfter,
    hsts::Hsts,
    goaway::ProbabilisticGoaway,
    wait_group::WaitGroup,
    timeout::Timeout,
    cors::Cors,
    authentication::Authentication,
    traces::TraceRequests,
    audit::AuditRequests,
    impersonation::Impersonate,
    priority_and_fairness::PriorityAndFairness,
    authorization::Authorization,
    Router,
];

/// The longest that a client may leave the data of a stream unread: people pause logs.
const STREAM_STALL: Duration = Duration::from_secs(4 * 60 * 60);

/// A step that a request passes on its way to the router.
pub trait Filter {
    /// The name of its span (apiserver `server/config.go`).
    const SPAN: Option<&'static str> = None;

    /// Answers the request: by itself, or with what `N`, which is behind it, answers.
    fn handle<N: Next>(ctx: &mut FilterContext<'_>) -> impl Future<Output = Response<Body>> + Send;
}

/// A filter or the router behind another filter.
pub trait Next {
    fn handle(ctx: &mut FilterContext<'_>) -> impl Future<Output = Response<Body>> + Send;
}

/// A filter with the rest of the chain. The list is a type: no filter costs an allocation.
pub struct Layer<F, N>(PhantomData<(F, N)>);

impl<F: Filter, N: Next> Next for Layer<F, N> {
    fn handle(ctx: &mut FilterContext<'_>) -> impl Future<Output = Response<Body>> + Send {
        let tracer = &ctx.chain.tracer;
        trace::in_filter(tracer, F::SPAN, F::handle::<N>(ctx))
    }
}

/// Everything behind the listener: the state that filters and router share.
pub struct HandlerChain {
    pub authenticator: Arc<authn::Chain>,
    /// `None` if nothing is audited.
    pub auditor: Option<Arc<Auditor>>,
    pub impersonation: Impersonation,
    pub in_flight: InFlight,
    /// `None` where the flags limit requests by their number instead.
    pub flow_control: Option<Arc<flowcontrol::Controller>>,
    pub authorizer: Arc<dyn Authorizer>,
    pub api: Arc<Api>,
    pub aggregator: Arc<Aggregator>,
    pub documents: DiscoveryHandler,
    /// The OpenID discovery documents of the token issuer; new ones where its keys are.
    pub oidc: Arc<ArcSwapOption<oidc::Documents>>,
    pub health: Arc<Health>,
    pub zpages: ZPages,
    /// True if `/debug/flags` and `/debug/pprof` are served.
    pub profiling: bool,
    pub storage_sizes: StorageSizes,
    pub caches: Caches,
    pub tracer: trace::Tracer,
    /// The longest that a request may take until its answer has been read, unless it is a watch or
    /// a stream.
    pub request_timeout: Duration,
    pub goaway: Goaway,
    pub browsers: Browsers,
    pub shutdown: Shutdown,
    pub leaving: config::Shutdown,
}

/// A request on its way through the filters.
pub struct FilterContext<'a> {
    pub chain: &'a HandlerChain,
    pub connection: &'a Connection,
    pub guard: Arc<RequestGuard>,
    pub received: Instant,
    /// The time that the request may take, or that of a watch until it has passed all filters.
    pub timeout: Duration,
    /// The header by which the request is found in logs.
    pub audit_id: HeaderValue,
    /// Shared with the handler that answers.
    pub request: Arc<Request>,
    /// It is a watch or a stream.
    pub is_long_running: bool,
    /// True once it has passed all filters.
    pub is_routed: bool,
    /// The time at which the latest filter began.
    filter_began: Instant,
    /// The time that it spent waiting for seats.
    pub queued: Duration,
    pub log: Option<Box<RequestLog>>,
    /// The time that authentication took.
    pub authentication: Duration,
    /// The span of the request.
    pub span: Option<Box<trace::Span>>,
    /// The annotations about the credentials for the event.
    pub annotations: authn::Annotations,
    /// The event that tells of the request; `None` where it is not audited.
    pub audit: Option<Arc<Audit>>,
}

impl<'a> FilterContext<'a> {
    fn new(
        chain: &'a HandlerChain,
        connection: &'a Connection,
        guard: Arc<RequestGuard>,
        request: http::Request<Incoming>,
    ) -> Self {
        let (mut parts, body) = request.into_parts();
        let received = Instant::now();
        let request = Request {
            method: parts.method,
            version: parts.version,
            uri: parts.uri,
            headers: parts.headers,
            client: Some(connection.remote.ip()),
            body: RequestBody::new(body),
            upgrade: Mutex::new(parts.extensions.remove()),
            guard: Some(guard.clone()),
            ..Request::default()
        };
        Self {
            chain,
            connection,
            guard,
            received,
            timeout: chain.request_timeout,
            audit_id: HeaderValue::from_static(""),
            request: Arc::new(request),
            is_long_running: false,
            is_routed: false,
            filter_began: received,
            queued: Duration::ZERO,
            log: None,
            authentication: Duration::ZERO,
            span: None,
            annotations: Vec::new(),
            audit: None,
        }
    }

    /// The request, to be changed.
    ///
    /// # Errors
    /// It has been handed to its handler.
    pub fn request_mut(&mut self) -> Result<&mut Request> {
        Arc::get_mut(&mut self.request)
            .ok_or_else(|| Status::internal("the request is being answered"))
    }

    /// The series that the request is counted in, and whether it is when it is answered.
    pub fn series(&self) -> (Arc<RequestSeries>, bool) {
        labels::series(&self.request, &self.chain.api.registry)
    }

    /// The verb of the request in metrics.
    pub fn verb(&self) -> &'static str {
        labels::normalized_verb(&self.request)
    }

    /// Notes that a filter is done, and that the next one begins. Returns the time that it took.
    fn end_filter(&mut self, filter: FilterName) -> Duration {
        let now = Instant::now();
        let took = now - self.filter_began;
        self.filter_began = now;
        requests::filtered(filter, took);
        took
    }

    /// The time that the request spent waiting for seats and webhooks.
    pub fn waited(&self) -> Duration {
        self.queued + self.request.webhook_time.total()
    }

    /// Counts the request as answered, unless it is one that upstream does not count.
    pub fn count_answer(&self, code: u16) {
        let (series, is_counted) = self.series();
        if is_counted {
            let (took, waited) = (self.received.elapsed(), self.waited());
            series.answered(code, took.as_secs_f64(), waited.as_secs_f64());
        }
    }

    /// A Status as the client reads it.
    pub fn status(&self, status: &Status) -> Response<Body> {
        respond::status(status, self.request.status_output())
    }

    /// Reports the answer to the audit backend: that it begins if it lasts, else that it is
    /// complete.
    async fn audit(&self, response: &mut Response<Body>) {
        let status = response.extensions_mut().remove::<Status>();
        let Some(audit) = &self.audit else { return };
        if let Some(status) = &status {
            audit.response_status(status);
            if audit.tells_response() {
                audit.response_object(status.to_value().to_string().into());
            }
        }
        let code = response.status().as_u16();
        if self.is_long_running {
            audit.start(code).await;
        } else {
            audit.complete(code).await;
        }
    }

    /// Wraps the answer in what goes with it while it is sent.
    fn finish(self, response: Response<Body>) -> Response<ResponseBody> {
        let series = self.is_routed.then(|| self.series());
        let (received, waited) = (self.received, self.waited());
        let is_watch = self.request.info.verb == "watch";
        let Self { chain, guard, .. } = self;
        // What the body of the request took is free, unless a write goes on.
        drop(self.request);
        let (mut parts, body) = response.into_parts();
        if body
            .size_hint()
            .exact()
            .is_some_and(|bytes| bytes <= SLICE as u64)
        {
            guard.release_early();
        }
        parts.headers.insert(audit_id::HEADER, self.audit_id);
        let mut state = ResponseState::new(guard.clone());
        let switches = parts.status == StatusCode::SWITCHING_PROTOCOLS;
        if self.is_long_running && (parts.status.is_success() || switches) {
            let code = if switches { 0 } else { parts.status.as_u16() };
            let open = series.map(|(series, is_counted)| {
                series.long_running(is_counted.then_some(code), received, waited)
            });
            match open {
                // It is open for as long as its connection.
                Some(open) if switches => guard.keep_open(open, self.audit.clone()),
                open => state.long_running = open,
            }
            state.stall = Some(match is_watch {
                true => chain.request_timeout,
                false => STREAM_STALL,
            });
        } else {
            let begun = match self.is_long_running {
                true => Instant::now(),
                false => self.received,
            };
            state.deadline = Some((begun + chain.request_timeout).into());
            state.series = series.map(|(series, _)| series);
        }
        state.log = self.log;
        state.span = self.span;
        if let Some(span) = &state.span {
            traces::answered(span, parts.status);
        }
        // The guard has that of a stream behind an upgrade.
        let lasts = self.is_long_running && parts.status != StatusCode::SWITCHING_PROTOCOLS;
        state.audit = self.audit.filter(|_| lasts);
        if let Some(log) = &mut state.log {
            log.status = parts.status.as_u16();
        }
        Response::from_parts(parts, ResponseBody::new(body, state))
    }
}

/// The answer to a request that cannot be handled because of an error of the server (apiserver
/// `responsewriters.InternalError`).
fn internal_error(uri: &http::Uri, why: &str) -> Response<Body> {
    let uri = go::quote(&uri.to_string());
    // As upstream, so that no browser takes a part of the path for markup.
    let escaped = format!("Internal Server Error: {uri}: {why}\n")
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    respond::text(500, escaped)
}

impl Handler for HandlerChain {
    async fn handle(
        &self,
        request: http::Request<Incoming>,
        connection: &Connection,
        guard: Arc<RequestGuard>,
    ) -> Response<ResponseBody> {
        let mut ctx = FilterContext::new(self, connection, guard, request);
        let mut response = Filters::handle(&mut ctx).await;
        ctx.audit(&mut response).await;
        ctx.finish(response)
    }
}
