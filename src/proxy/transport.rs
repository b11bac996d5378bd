//! The way to a group of servers, with connections that are kept for their next requests.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::connector::{Connector, Dial, Direct, Io};
use super::error;
use super::inbound::RequestBody;
use super::location::Location;
use crate::webhook::connector::{ConnectError, HTTP_1_1};
use crate::webhook::tls::{self, ClientCert, Trust};

/// Connections to a server that are kept while nobody uses them (client-go `idleConnsPerHost`).
const MAX_IDLE: usize = 25;
/// The time that such a connection is kept (apimachinery `util/net`).
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// The bytes of the head of an answer.
pub const MAX_HEADER_BYTES: usize = 1 << 20;
/// The headers of an answer.
pub const MAX_HEADERS: usize = 1024;

/// The way to a group of servers.
pub struct TransportConfig {
    pub trust: Trust,
    /// Presented to servers that ask for one.
    pub cert: Option<ClientCert>,
    /// The name that a server's certificate must have, where it is not that of its URL.
    pub server_name: Option<String>,
    pub dialer: Arc<dyn Dial>,
}

impl TransportConfig {
    /// The way to servers that are connected to directly.
    pub fn new(trust: Trust) -> Self {
        Self {
            trust,
            cert: None,
            server_name: None,
            dialer: Arc::new(Direct),
        }
    }
}

/// Sends requests to servers. HTTP/1.1 only: each request in progress has a connection of its own,
/// so that no stream waits for another, and a server has no say in how many there are.
pub struct Transport {
    connector: Connector,
    http: legacy::Client<Connector, RequestBody>,
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Transport")
    }
}

impl Transport {
    /// Returns a transport without connections.
    ///
    /// # Errors
    /// Go's text: the bundle or the client certificate is none.
    pub fn new(config: TransportConfig) -> Result<Self, String> {
        let tls = tls::client_config(&config.trust, config.cert.as_ref(), &[HTTP_1_1])?;
        let connector = Connector {
            dialer: config.dialer,
            tls: Arc::new(tls),
            server_name: config.server_name,
        };
        let http = legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE)
            .http1_max_buf_size(MAX_HEADER_BYTES)
            .http1_max_headers(MAX_HEADERS)
            .build(connector.clone());
        Ok(Self { connector, http })
    }

    /// Sends a request to the server of its URL; returns the head of the answer, with the rest to
    /// be read. Redirects are answers.
    ///
    /// # Errors
    /// Go's text: the server cannot be reached, or does not answer with HTTP.
    pub async fn send(&self, request: Request<RequestBody>) -> Result<Response<Incoming>, String> {
        let answer = self.http.request(request).await;
        answer.map_err(|why| error::round_trip_text(&why))
    }

    /// Opens a connection for one use.
    ///
    /// # Errors
    /// There is no connection, or the server is not to be trusted; with Go's text.
    pub async fn connect(&self, location: &Location) -> Result<Box<dyn Io>, ConnectError> {
        self.connector.connect(location).await
    }
}
