//! An HTTP/1.1 client that sends what it is told to the byte, and hides nothing of the answer. One
//! connection per request.

use std::net::Ipv4Addr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use kube::client::ConfigExt;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Trusts any server: the tests know whom they started.
static TLS: LazyLock<TlsConnector> = LazyLock::new(|| {
    let mut config = kube::Config::new(http::Uri::from_static("https://127.0.0.1"));
    config.accept_invalid_certs = true;
    TlsConnector::from(Arc::new(
        config.rustls_client_config().expect("a TLS configuration"),
    ))
});

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: http::HeaderMap,
    pub body: Bytes,
}

/// A TLS connection.
pub async fn connect(port: u16) -> Result<TlsStream<TcpStream>, Error> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    Ok(TLS
        .connect(ServerName::try_from("127.0.0.1")?, stream)
        .await?)
}

/// A TLS connection to a server of that name, which its authority (in PEM) has to confirm.
pub async fn connect_named(
    port: u16,
    name: &str,
    ca: &[u8],
) -> Result<TlsStream<TcpStream>, Error> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca)?)?;
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::aws_lc_rs::default_provider(),
    ))
    .with_safe_default_protocol_versions()?
    .with_root_certificates(roots)
    .with_no_client_auth();
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let name = ServerName::try_from(name.to_owned())?;
    Ok(TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await?)
}

/// A TLS connection from a socket with options of its own.
pub async fn connect_on(socket: TcpSocket, port: u16) -> Result<TlsStream<TcpStream>, Error> {
    let stream = socket.connect((Ipv4Addr::LOCALHOST, port).into()).await?;
    Ok(TLS
        .connect(ServerName::try_from("127.0.0.1")?, stream)
        .await?)
}

/// Sends a request over TLS; the answer's body is still to come.
pub async fn send(port: u16, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Error> {
    send_on(connect(port).await?, request).await
}

async fn send_on(
    stream: TlsStream<TcpStream>,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, Error> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // Drives the connection until the body is read or dropped.
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?)
}

/// Sends a request over TLS and reads the whole answer, which must come within the time.
pub async fn call(
    port: u16,
    request: Request<Full<Bytes>>,
    within: Duration,
) -> Result<Answer, Error> {
    let stream = tokio::time::timeout(within, connect(port)).await??;
    call_on(stream, request, within).await
}

/// [`call`] on a connection.
pub async fn call_on(
    stream: TlsStream<TcpStream>,
    request: Request<Full<Bytes>>,
    within: Duration,
) -> Result<Answer, Error> {
    tokio::time::timeout(within, async {
        let (parts, body) = send_on(stream, request).await?.into_parts();
        Ok(Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: body.collect().await?.to_bytes(),
        })
    })
    .await?
}

/// The status of a GET over TLS; none without an answer.
pub async fn get_status(port: u16, path: &str) -> Option<u16> {
    let request = Request::get(path)
        .header("Host", "127.0.0.1")
        .body(Full::default())
        .ok()?;
    Some(send(port, request).await.ok()?.status().as_u16())
}
