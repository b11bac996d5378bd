//! The request path: request info, routing, negotiation and one handler per verb.

pub mod body;
mod compress;
pub mod encode;
pub mod handlers;
pub mod negotiate;
pub mod request_body;
pub mod request_info;
pub mod respond;
mod websocket;

use std::any::Any;
use std::sync::Arc;

use http::{HeaderMap, Method, Uri, header};
use hyper::upgrade::OnUpgrade;
use parking_lot::Mutex;
use tokio_util::task::TaskTracker;

use crate::admission::Chain;
use crate::admission::policy::references::Resolver;
use crate::auth::User;
use crate::auth::authz::rbac::RbacStore;
use crate::auth::authz::{self, Authorizer};
use crate::base::clock::Clock;
use crate::base::latch::Latch;
use crate::builtin::authentication::TokenReviewer;
use crate::cacher::EncodingCache;
use crate::extensions::Extensions;
use crate::meta::options::Query;
use crate::meta::selector::fields::FieldSelector;
use crate::registry::{Registry, Store};

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
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: RequestBody,
    pub query: Query,
    pub info: RequestInfo,
    pub user: Arc<User>,
    /// The store of the resource; `None` until the request is routed, and for what is no resource.
    pub store: Option<Arc<Store>>,
    /// The connection itself, after a response that switches protocols. For one handler to take.
    pub upgrade: Mutex<Option<OnUpgrade>>,
    /// The server's capacity that it holds. Work that goes on when the client has gone keeps the
    /// request, and so this.
    pub guard: Guard,
}

/// The capacity that a request holds until it and all clones of this are dropped.
pub type Guard = Option<Arc<dyn Any + Send + Sync>>;

impl Request {
    /// A header as text, empty where absent. A repeated header is one, joined by commas.
    pub fn header(&self, name: header::HeaderName) -> String {
        let values: Vec<&str> = self
            .headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .collect();
        values.join(",")
    }

    /// The question to the authorizers about the request.
    pub fn attributes(&self) -> authz::Attributes {
        let info = &self.info;
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
            field_equals: self.field_equals(),
        }
    }

    /// The exact matches of the field selector, for authorizers that look at them. Not where the
    /// path begins with a verb: what selectors do there depends on the path.
    fn field_equals(&self) -> Vec<(String, String)> {
        if self.info.watch_path
            || !matches!(
                self.info.verb.as_str(),
                "list" | "watch" | "deletecollection"
            )
        {
            return Vec::new();
        }
        let selector =
            FieldSelector::parse(self.query.get("fieldSelector").unwrap_or("")).unwrap_or_default();
        selector
            .terms
            .into_iter()
            .filter(|term| !term.negated)
            .map(|term| (term.field, term.value))
            .collect()
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
