//! The way to a group of servers, with connections that are kept for their next requests.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::connector::{Connector, Direct};
use super::error;
use super::inbound::{RequestBody, ResponseBody};
use super::lanes::Lanes;
use super::location::Location;
use crate::base::dial::{ConnectError, Dial, Io};
use crate::webhook::connector::{HTTP_1_1, HTTP_2};
use crate::webhook::tls::{self, ClientCert, Trust};

/// Connections to a server that are kept while nobody uses them (client-go `idleConnsPerHost`).
const MAX_IDLE: usize = 25;
/// The time that such a connection is kept (apimachinery `util/net`).
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// The bytes of the head of an answer.
pub const MAX_HEADER_BYTES: usize = 1 << 20;
/// The headers of an answer.
pub const MAX_HEADERS: usize = 1024;
/// The silence of an HTTP/2 connection after which the server is asked whether it is there, and the
/// time that it has to say so (apimachinery `util/net/http.go`).
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// The bytes of an HTTP/2 stream that are taken before its reader has had those before.
const STREAM_WINDOW: u32 = 128 << 10;
/// The streams of an HTTP/2 connection. Go's servers take 100 and more; further ones have a
/// connection of their own, so that none waits for another.
const MAX_STREAMS: u32 = 100;

/// The way to a group of servers.
pub struct TransportConfig {
    pub trust: Trust,
    /// Presented to servers that ask for one.
    pub cert: Option<ClientCert>,
    /// The name that a server's certificate must have, where it is not that of its URL.
    pub server_name: Option<String>,
    pub dialer: Arc<dyn Dial>,
    /// HTTP/2 is spoken with servers that can; upgrades are asked for by HTTP/1.1.
    pub speaks_http2: bool,
    /// False where each request is to have a connection of its own: a client that can name ports
    /// could otherwise have any number of idle ones kept.
    pub keeps_connections: bool,
}

impl TransportConfig {
    /// The way to servers that are connected to directly.
    pub fn new(trust: Trust) -> Self {
        Self {
            trust,
            cert: None,
            server_name: None,
            dialer: Arc::new(Direct),
            speaks_http2: false,
            keeps_connections: true,
        }
    }
}

/// Sends requests to servers. No stream waits for another: over HTTP/1.1, each request in progress
/// has a connection of its own, and over HTTP/2 each has room for what its reader does not take.
pub struct Transport {
    /// Opens connections for one use.
    connector: Connector,
    lanes: Lanes<legacy::Client<Connector, RequestBody>>,
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
        let connector = |protocols: &[&[u8]]| {
            let tls = tls::client_config(&config.trust, config.cert.as_ref(), protocols)?;
            Ok::<_, String>(Connector {
                dialer: config.dialer.clone(),
                tls: Arc::new(tls),
                server_name: config.server_name.clone(),
            })
        };
        let pooled = match config.speaks_http2 {
            true => connector(&[HTTP_2, HTTP_1_1])?,
            false => connector(&[HTTP_1_1])?,
        };
        let max_idle = match config.keeps_connections {
            true => MAX_IDLE,
            false => 0,
        };
        let lanes = Lanes::new(MAX_STREAMS as usize, move || {
            client(pooled.clone(), max_idle)
        });
        Ok(Self {
            connector: connector(&[HTTP_1_1])?,
            lanes,
        })
    }

    /// Sends a request to the server of its URL; returns the head of the answer, with the rest to
    /// be read. Redirects are answers.
    ///
    /// # Errors
    /// Go's text: the server cannot be reached, or does not answer with HTTP.
    pub async fn send(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, String> {
        let (http, seat) = self.lanes.take();
        let answer = http.request(request).await;
        let answer = answer.map_err(|why| error::round_trip_text(&why))?;
        // Over HTTP/2 only their bytes are limited, and a map of headers can be full.
        if answer.headers().len() > MAX_HEADERS {
            return Err(error::large_head());
        }
        Ok(answer.map(|body| seat.hold(body)))
    }

    /// Opens a connection for one use.
    ///
    /// # Errors
    /// There is no connection, or the server is not to be trusted; with Go's text.
    pub async fn connect(&self, location: &Location) -> Result<Box<dyn Io>, ConnectError> {
        self.connector.connect(location).await
    }
}

fn client(connector: Connector, max_idle: usize) -> legacy::Client<Connector, RequestBody> {
    legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(max_idle)
        .http1_max_buf_size(MAX_HEADER_BYTES)
        .http1_max_headers(MAX_HEADERS)
        .http2_max_header_list_size(MAX_HEADER_BYTES as u32)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(STREAM_WINDOW * MAX_STREAMS)
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .build(connector)
}
