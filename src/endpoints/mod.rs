//! The request path: request info, routing, negotiation and one handler per verb.

pub mod body;
pub mod compress;
pub mod encode;
pub mod handlers;
pub mod kubelet;
pub mod memory_budget;
pub mod negotiate;
pub mod request_body;
pub mod request_info;
pub mod respond;
mod websocket;

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Uri, Version, header};
use hyper::upgrade::OnUpgrade;
use parking_lot::Mutex;
use tokio_util::task::TaskTracker;

use crate::admission::Chain;
use crate::admission::policy::references::Resolver;
use crate::audit::Audit;
use crate::auth::User;
use crate::auth::authz::rbac::RbacStore;
use crate::auth::authz::{self, Authorizer};
use crate::base::clock::Clock;
use crate::base::latch::Latch;
use crate::builtin::authentication::TokenReviewer;
use crate::cacher::EncodingCache;
use crate::extensions::Extensions;
use crate::flowcontrol::Seat;
use crate::meta::options::Query;
use crate::meta::selector::fields::{self, FieldSelector};
use crate::meta::selector::labels::{self, LabelSelector};
use crate::registry::{Registry, Store};

use kubelet::Kubelets;
use negotiate::Output;
use request_body::{BodyBudget, RequestBody};
use request_info::RequestInfo;

/// The parts of the server that handlers use.
pub struct Api {
    pub registry: Arc<Registry>,
    pub extensions: Arc<Extensions>,
    pub admission: Arc<Chain>,
    pub authorizer: Arc<dyn Authorizer>,
    /// Resolves what admission policies and their bindings refer to.
    pub references: Resolver,
    /// The rules that RBAC objects grant; `None` where RBAC does not authorize.
    pub rbac: Option<Arc<RbacStore>>,
    pub token_reviewer: Arc<dyn TokenReviewer>,
    /// The way to nodes and pods.
    pub kubelets: Kubelets,
    /// True if kubelets that declare it get the newer protocols over WebSocket as they are (feature
    /// gate ExtendWebSocketsToKubelet).
    pub websockets_at_kubelets: bool,
    pub clock: Clock,
    /// The memory for the bodies of requests.
    pub bodies: BodyBudget,
    /// The budget of the encodings that objects in the watch cache carry.
    pub encodings: Arc<EncodingCache>,
    /// True if large answers are compressed (feature gate APIResponseCompression).
    pub compresses: bool,
    /// Triggered when the server is about to end: watches end then.
    pub draining: Latch,
    /// Tasks that may outlive the connection's own: writes, and those of WebSockets. A shutdown
    /// waits for them.
    pub tasks: TaskTracker,
    /// The most objects of a collection that are deleted at the same time.
    pub delete_collection_workers: usize,
    /// The shortest time that a watch without a timeout of its own lasts, in seconds.
    pub min_request_timeout: u64,
    /// Issues service account tokens; `None` without a signing key.
    pub tokens: Option<Arc<dyn handlers::token::TokenIssuer>>,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Api")
    }
}

/// A request, as far as the filters have come with it.
#[derive(Debug, Default)]
pub struct Request {
    pub method: Method,
    pub version: Version,
    pub uri: Uri,
    pub headers: HeaderMap,
    /// The address of the client.
    pub client: Option<IpAddr>,
    /// The ID by which the request is found in logs.
    pub audit_id: Option<HeaderValue>,
    pub body: RequestBody,
    pub query: Query,
    pub info: Arc<RequestInfo>,
    pub user: Arc<User>,
    /// The event that tells of it; `None` where it is not audited.
    pub audit: Option<Arc<Audit>>,
    /// The store of the resource; `None` until the request is routed, and for what is no resource.
    pub store: Option<Arc<Store>>,
    /// The connection itself, after a response that switches protocols. For one handler to take.
    pub upgrade: Mutex<Option<OnUpgrade>>,
    /// The server's capacity that it holds. Work that goes on when the client has gone keeps the
    /// request, and so this.
    pub guard: Guard,
    /// The capacity that a watch holds until it has sent what there is. For its handler to take.
    pub initializing: Mutex<Guard>,
    pub webhook_time: WebhookTime,
}

/// The time that a request waited for webhooks, which no service level is about (apiserver
/// `endpoints/request/webhook_duration.go`).
#[derive(Debug, Default)]
pub struct WebhookTime {
    mutating_nanos: AtomicU64,
    /// Of those that are asked at the same time, the one that took longest.
    validating_nanos: AtomicU64,
}

impl WebhookTime {
    /// Notes the time that a mutating or else a validating webhook took.
    pub fn add(&self, mutating: bool, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        match mutating {
            true => self.mutating_nanos.fetch_add(nanos, Ordering::Relaxed),
            false => self.validating_nanos.fetch_max(nanos, Ordering::Relaxed),
        };
    }

    pub fn total(&self) -> Duration {
        let nanos = [&self.mutating_nanos, &self.validating_nanos];
        let nanos = nanos.map(|nanos| Duration::from_nanos(nanos.load(Ordering::Relaxed)));
        nanos.into_iter().sum()
    }
}

/// Something that a request holds.
pub trait Held: Any + Send + Sync {
    /// Reports whether the request has timed out.
    fn has_timed_out(&self) -> bool {
        false
    }
}

impl Held for Seat {}

impl fmt::Debug for dyn Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Held")
    }
}

/// The capacity that a request holds until it and all clones of this are dropped.
pub type Guard = Option<Arc<dyn Held>>;

impl Request {
    /// The first value of a header, empty where absent. What is not UTF-8 in it is replaced: a
    /// header that cannot be read is not one that is absent.
    pub fn header(&self, name: header::HeaderName) -> Cow<'_, str> {
        self.headers.get(name).map_or(Cow::Borrowed(""), |value| {
            String::from_utf8_lossy(value.as_bytes())
        })
    }

    /// All values of a header, joined by commas.
    pub fn header_list(&self, name: header::HeaderName) -> String {
        let values = self.headers.get_all(name).into_iter();
        let values: Vec<_> = values
            .map(|value| String::from_utf8_lossy(value.as_bytes()))
            .collect();
        values.join(",")
    }

    /// The question to the authorizers about the request.
    pub fn attributes(&self) -> authz::Attributes {
        let info = &self.info;
        let (field_selector, label_selector) = self.selectors();
        authz::Attributes {
            user: self.user.clone(),
            verb: info.verb.clone(),
            group: info.group.clone(),
            version: info.version.clone(),
            resource: info.resource.clone(),
            subresource: info.subresource.clone(),
            namespace: info.namespace.clone(),
            name: info.name.clone(),
            resource_request: info.is_resource,
            path: info.path.clone(),
            field_selector,
            label_selector,
        }
    }

    /// The requirements of the selectors, for authorizers that look at them. Not where the path
    /// begins with a verb: what selectors do there depends on the path.
    fn selectors(&self) -> (Vec<fields::Term>, Vec<labels::Requirement>) {
        let selects = matches!(
            self.info.verb.as_str(),
            "list" | "watch" | "deletecollection"
        );
        if self.info.watch_path || !selects {
            return Default::default();
        }
        let given = |name| self.query.get(name).unwrap_or("");
        let fields = FieldSelector::parse(given("fieldSelector")).unwrap_or_default();
        let labels = LabelSelector::parse(given("labelSelector")).unwrap_or_default();
        (fields.terms, labels.requirements)
    }

    /// The representation of a Status: the one that the client accepts first, else JSON.
    pub fn status_output(&self) -> Output {
        negotiate::fallback_output(&self.header(header::ACCEPT), self.user_agent(), &self.query)
    }

    /// The User-Agent header, empty where there is none or it is not text.
    pub fn user_agent(&self) -> &str {
        self.headers
            .get(header::USER_AGENT)
            .and_then(|value| value.to_str().ok())
            .unwrap_or("")
    }
}
