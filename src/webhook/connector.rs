//! Connections to webhooks: the address behind a Service, proxies of the environment, TLS.

use std::error::Error as StdError;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower_service::Service;

use super::ServiceReference;
use super::proxy::Proxies;
use super::service::ServiceResolver;
use super::tls::error_text;
pub use crate::base::dial::ConnectError;
use crate::base::dial::{Dial, Io, bare_host};

/// The time that a TCP connection may take (client-go `transport/cache.go`).
const DIAL_TIMEOUT: Duration = Duration::from_secs(30);
/// The time that the handshake of TLS may take (client-go `transport/cache.go`).
const TLS_TIMEOUT: Duration = Duration::from_secs(10);
/// The protocol name of HTTP/2.
pub const HTTP_2: &[u8] = b"h2";
/// The protocol name of HTTP/1.1.
pub const HTTP_1_1: &[u8] = b"http/1.1";

/// The proxies to connect through.
#[derive(Clone)]
pub enum Proxy {
    /// Those that the environment names, which are not asked for this machine.
    FromEnvironment(Arc<Proxies>),
    /// One for every address.
    Always(Arc<Matcher>),
}

impl Proxy {
    fn of(&self, uri: &Uri) -> Option<Intercept> {
        match self {
            Self::FromEnvironment(proxies) => proxies.of(uri),
            Self::Always(proxies) => proxies.intercept(uri),
        }
    }
}

/// Connects to one webhook: by TLS, unless its URL is one of plain HTTP.
#[derive(Clone)]
pub struct Connector {
    pub service: Option<(ServiceReference, Arc<dyn ServiceResolver>)>,
    /// The name that the certificate must be for; `None` for the host's.
    pub server_name: Option<String>,
    pub tls: TlsConnector,
    pub proxy: Proxy,
    /// The dialer, of proxies too; `None` where connections are direct.
    pub dialer: Option<Arc<dyn Dial>>,
}

impl Connector {
    async fn connect(self, uri: Uri) -> Result<WebhookConnection, ConnectError> {
        let host = uri.host().unwrap_or_default();
        let host = bare_host(host);
        let plain = uri.scheme_str() == Some("http");
        let port = uri.port_u16().unwrap_or(if plain { 80 } else { 443 });
        let name = self.server_name.as_deref().unwrap_or(host);
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| ConnectError(format!("dial tcp: lookup {host}: no such host")))?;
        // A redirect may lead away from the Service.
        let service = self
            .service
            .as_ref()
            .filter(|(service, _)| (host, port) == (service.host().as_str(), service.port));
        let stream = match (self.proxy.of(&uri), service) {
            (Some(proxy), _) => {
                let mut tunnel = Tunnel::new(proxy.uri().clone(), ToProxy(self.dialer.clone()));
                if let Some(auth) = proxy.basic_auth() {
                    tunnel = tunnel.with_auth(auth.clone());
                }
                let target = format!("https://{}", authority(host, port));
                let target = Uri::try_from(target).map_err(|why| ConnectError(why.to_string()))?;
                let tunnelled = tunnel.call(target).await;
                tunnelled
                    .map_err(|why| ConnectError(format!("proxyconnect tcp: {}", cause(&why))))?
                    .into_inner()
            }
            (None, Some((service, resolver))) => {
                let found = resolver.resolve(&service.namespace, &service.name, port);
                open(self.dialer.as_ref(), &found.await.map_err(ConnectError)?).await?
            }
            (None, None) => open(self.dialer.as_ref(), &authority(host, port)).await?,
        };
        if plain {
            return Ok(WebhookConnection::Plain(TokioIo::new(stream)));
        }
        let stream = handshake(&self.tls, name, stream).await?;
        Ok(WebhookConnection::Tls(Box::new(TokioIo::new(stream))))
    }
}

/// Secures a connection to a server of a name.
///
/// # Errors
/// The server is not to be trusted, or takes too long; with Go's text.
pub async fn handshake<S: Io>(
    tls: &TlsConnector,
    name: ServerName<'static>,
    stream: S,
) -> Result<TlsStream<S>, ConnectError> {
    match timeout(TLS_TIMEOUT, tls.connect(name, stream)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(why)) => Err(ConnectError(io_text(&why))),
        Err(_) => Err(ConnectError("net/http: TLS handshake timeout".to_owned())),
    }
}

fn authority(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// Connects to an address as a dialer does, or directly.
async fn open(dialer: Option<&Arc<dyn Dial>>, address: &str) -> Result<Box<dyn Io>, ConnectError> {
    match dialer {
        Some(dialer) => dialer.dial(address).await,
        None => Ok(Box::new(dial(address).await?)),
    }
}

/// Connects to the first address of a host that takes connections.
///
/// # Errors
/// There is none, with the text of the last one's reason.
pub async fn dial(address: &str) -> Result<TcpStream, ConnectError> {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    check_port(port)?;
    let found: Vec<SocketAddr> = match lookup_host(address).await {
        Ok(found) => found.collect(),
        Err(_) => Vec::new(),
    };
    let mut failed = format!("dial tcp: lookup {host}: no such host");
    for address in found {
        let why = match timeout(DIAL_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // An error means that the connection is gone, which its first use tells.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(why)) => format!("connect: {}", io_text(&why)),
            Err(_) => "i/o timeout".to_owned(),
        };
        failed = format!("dial tcp {address}: {why}");
    }
    Err(ConnectError(failed))
}

/// Checks a port. Names of services are not looked up.
fn check_port(port: &str) -> Result<(), ConnectError> {
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    match port.parse::<u16>() {
        Ok(_) if is_number => Ok(()),
        _ if is_number => Err(ConnectError(format!(
            "dial tcp: address {port}: invalid port"
        ))),
        _ => Err(ConnectError(format!(
            "dial tcp: lookup tcp/{port}: unknown port"
        ))),
    }
}

impl Service<Uri> for Connector {
    type Response = WebhookConnection;
    type Error = ConnectError;
    type Future = BoxFuture<'static, Result<WebhookConnection, ConnectError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().connect(uri))
    }
}

/// Connects to a proxy.
#[derive(Clone)]
struct ToProxy(Option<Arc<dyn Dial>>);

impl Service<Uri> for ToProxy {
    type Response = TokioIo<Box<dyn Io>>;
    type Error = ConnectError;
    type Future = BoxFuture<'static, Result<Self::Response, ConnectError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let dialer = self.0.clone();
        Box::pin(async move {
            if uri.scheme_str() != Some("http") {
                let why = format!("proxies are connected to by http only, not by {uri}");
                return Err(ConnectError(why));
            }
            let host = uri.host().unwrap_or_default();
            let host = bare_host(host);
            let address = authority(host, uri.port_u16().unwrap_or(80));
            open(dialer.as_ref(), &address).await.map(TokioIo::new)
        })
    }
}

/// An open connection.
pub enum WebhookConnection {
    Tls(Box<TokioIo<TlsStream<Box<dyn Io>>>>),
    Plain(TokioIo<Box<dyn Io>>),
}

impl Connection for WebhookConnection {
    fn connected(&self) -> Connected {
        match self {
            Self::Tls(stream) if stream.inner().get_ref().1.alpn_protocol() == Some(HTTP_2) => {
                Connected::new().negotiated_h2()
            }
            _ => Connected::new(),
        }
    }
}

impl Read for WebhookConnection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl Write for WebhookConnection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// The text of an error as Go has it, where Go has one: that of its innermost cause.
pub fn cause(error: &(dyn StdError + 'static)) -> String {
    let mut current = error;
    loop {
        if let Some(known) = current.downcast_ref::<ConnectError>() {
            return known.to_string();
        }
        if let Some(known) = current.downcast_ref::<io::Error>() {
            return io_text(known);
        }
        if let Some(known) = current.downcast_ref::<hyper::Error>()
            && (known.is_incomplete_message() || known.is_closed())
        {
            return "EOF".to_owned();
        }
        match current.source() {
            Some(source) => current = source,
            None => return current.to_string(),
        }
    }
}

/// The text of an I/O error as Go has it.
pub fn io_text(error: &io::Error) -> String {
    if let Some(known) = error.get_ref().and_then(|inner| inner.downcast_ref()) {
        return error_text(known);
    }
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        _ => {
            // `Connection refused (os error 111)`.
            let text = error.to_string();
            let mut text = text
                .split(" (os error")
                .next()
                .unwrap_or_default()
                .to_owned();
            if let Some(first) = text.get_mut(..1) {
                first.make_ascii_lowercase();
            }
            text
        }
    }
}
