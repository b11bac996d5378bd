//! Connections to servers: dialled directly or by way of a proxy, with or without TLS.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio_rustls::TlsConnector;
use tower_service::Service;

use super::location::{Location, Scheme};
use crate::base::dial::{ConnectError, Dial, Io};
use crate::webhook::connector::{HTTP_2, dial, handshake};

/// The silence of a server after which TCP probes it (client-go `transport/cache.go`).
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// Connects to the address itself.
#[derive(Clone, Copy, Debug)]
pub struct Direct;

#[async_trait]
impl Dial for Direct {
    async fn dial(&self, address: &str) -> Result<Box<dyn Io>, ConnectError> {
        let stream = dial(address).await?;
        let keepalive = TcpKeepalive::new()
            .with_time(TCP_KEEPALIVE)
            .with_interval(TCP_KEEPALIVE);
        // An error means that the connection is gone, which its first use tells.
        let _ = SockRef::from(&stream).set_tcp_keepalive(&keepalive);
        Ok(Box::new(stream))
    }
}

/// Connects to servers.
#[derive(Clone)]
pub struct Connector {
    pub dialer: Arc<dyn Dial>,
    pub tls: Arc<ClientConfig>,
    /// The name that a server's certificate must have, where it is not that of its URL.
    pub server_name: Option<String>,
}

impl Connector {
    /// Connects to the server of a URL.
    ///
    /// # Errors
    /// There is no connection, or the server is not to be trusted; with Go's text.
    pub async fn connect(&self, location: &Location) -> Result<Box<dyn Io>, ConnectError> {
        let (stream, _) = self.open(location).await?;
        Ok(stream)
    }

    /// Connects to the server of a URL, and tells whether it is to be spoken to by HTTP/2.
    async fn open(&self, location: &Location) -> Result<(Box<dyn Io>, bool), ConnectError> {
        let address = location.address();
        let stream = self.dialer.dial(&address).await?;
        if location.scheme == Scheme::Http {
            return Ok((stream, false));
        }
        let name = self.server_name.as_deref().unwrap_or(location.host());
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| ConnectError(format!("dial tcp: lookup {name}: no such host")))?;
        let tls = TlsConnector::from(self.tls.clone());
        let stream = handshake(&tls, name, stream).await?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP_2);
        Ok((Box::new(stream), is_http2))
    }
}

impl Service<Uri> for Connector {
    type Response = Pooled;
    type Error = ConnectError;
    type Future = BoxFuture<'static, Result<Pooled, ConnectError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            let location = Location {
                scheme: match uri.scheme_str() {
                    Some("http") => Scheme::Http,
                    _ => Scheme::Https,
                },
                authority: uri
                    .authority()
                    .map(|authority| authority.as_str().to_owned())
                    .unwrap_or_default(),
                path: String::new(),
                query: String::new(),
            };
            let (stream, is_http2) = connector.open(&location).await?;
            let stream = TokioIo::new(stream);
            Ok(Pooled { stream, is_http2 })
        })
    }
}

/// An open connection, which may serve several requests one after another, or at the same time.
pub struct Pooled {
    stream: TokioIo<Box<dyn Io>>,
    is_http2: bool,
}

impl Connection for Pooled {
    fn connected(&self) -> Connected {
        match self.is_http2 {
            true => Connected::new().negotiated_h2(),
            false => Connected::new(),
        }
    }
}

impl Read for Pooled {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl Write for Pooled {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
