//! A request as the proxy gets it.

use std::any::Any;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderMap, Method, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use tokio_util::task::TaskTracker;

use crate::base::latch::Latch;

/// The body of a request to a server.
pub type RequestBody = UnsyncBoxBody<Bytes, io::Error>;
/// The body of an answer to a client.
pub type ResponseBody = UnsyncBoxBody<Bytes, io::Error>;

/// A request, with its connection.
pub struct Inbound {
    pub method: Method,
    pub uri: Uri,
    /// Without the client's credentials.
    pub headers: HeaderMap,
    pub body: RequestBody,
    /// The address of the client.
    pub client: Option<IpAddr>,
    /// The connection itself, after an answer that switches protocols. HTTP/2 has none.
    pub upgrade: Option<OnUpgrade>,
    pub lifetime: Lifetime,
}

/// The bounds of a connection that goes on after its request has been answered.
#[derive(Clone, Default)]
pub struct Lifetime {
    /// The server's capacity that the connection holds until it ends.
    pub hold: Option<Arc<dyn Any + Send + Sync>>,
    /// The tasks that a shutdown waits for.
    pub tasks: TaskTracker,
    /// Triggered when the server is about to end; connections end then.
    pub draining: Latch,
}

impl Inbound {
    /// The host that the client asked.
    pub fn host(&self) -> String {
        let authority = self.uri.authority().map(|name| name.as_str().to_owned());
        let header = self.headers.get(HOST);
        authority
            .or_else(|| header.and_then(|value| value.to_str().ok().map(str::to_owned)))
            .unwrap_or_default()
    }
}

/// A body that is empty.
pub fn empty() -> RequestBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A body that is all there.
pub fn full(bytes: impl Into<Bytes>) -> RequestBody {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// A body that comes in over HTTP.
pub fn incoming(body: Incoming) -> RequestBody {
    body.map_err(io::Error::other).boxed_unsync()
}
