//! The listening socket: TCP, TLS and HTTP down to one call of a [`Handler`] per request.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::server::{StartHandshake, TlsStream};
use tokio_rustls::{Accept, TlsAcceptor};

use super::connections::{Close, Connection, ConnectionState, Connections, Deregistration};
use super::deadline::{DeadlineTimer, WithDeadline};
use super::limits::{Limits, descriptors};
use super::request_guard::RequestGuard;
use super::request_head;
use super::response_body::ResponseBody;
use super::shared_port::{self, Begun};
use super::shutdown::Shutdown;
use super::tls::HTTP_2;
use super::write_coalescing::coalesce;
use crate::auth::authn::Peer;
use crate::options::config::Serving;
use crate::telemetry::metrics::{Counter, Declared};

/// Connections that wait to be accepted.
pub const BACKLOG: u32 = 1024;
/// The headers of a request in bytes, as in Go (`http.DefaultMaxHeaderBytes`); more are answered
/// with 431.
pub const MAX_HEADER_BYTES: usize = 1 << 20;
/// The number of headers of an HTTP/1.1 request.
pub const MAX_HEADERS: usize = 1024;
/// The silence of a client after which TCP probes it, and the time between two probes (apiserver
/// `server/secure_serving.go`, `defaultKeepAlivePeriod`).
pub const TCP_KEEPALIVE: Duration = Duration::from_secs(3 * 60);
/// The flow-control windows: the bytes that a client may send before the server has read them, of
/// one request and of a connection.
pub const STREAM_WINDOW: u32 = 256 * 1024;
pub const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// The bytes of a response that are buffered for a client that is slow to read. The task that
/// encodes a list and that of its connection take turns for each of these buffers.
pub const MAX_SEND_BUFFER: usize = 256 * 1024;
/// The pause after accepting fails, for example for want of file descriptors.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

static TLS_ERRORS: Counter = Counter::new(
    "apiserver_tls_handshake_errors_total",
    "[ALPHA] Number of requests dropped with 'TLS handshake error from' error",
    &[],
);

pub static METRICS: &[&dyn Declared] = &[&TLS_ERRORS];

/// Answers requests.
pub trait Handler: Send + Sync + 'static {
    fn handle(
        &self,
        request: Request<Incoming>,
        connection: &Connection,
        guard: Arc<RequestGuard>,
    ) -> impl Future<Output = Response<ResponseBody>> + Send;
}

/// A bound socket that does not answer yet.
pub struct Listener {
    tcp: TcpListener,
    /// Connections from a port that it shares with others.
    named: Option<mpsc::Receiver<Begun>>,
    tls: TlsAcceptor,
    max_streams: u32,
    limits: Limits,
}

/// A connection that is to be served.
enum Accepted {
    New(TcpStream),
    Begun(StartHandshake<TcpStream>),
}

impl Accepted {
    /// Goes on with the handshake.
    fn accept(self, tls: &TlsAcceptor) -> Accept<TcpStream> {
        let tcp = match &self {
            Self::New(tcp) => tcp,
            Self::Begun(begun) => &begun.io,
        };
        // Small answers must not wait for more to send; an error here shows up again at the first
        // read.
        let _ = tcp.set_nodelay(true);
        match self {
            Self::New(tcp) => tls.accept(tcp),
            Self::Begun(begun) => begun.into_stream(tls.config().clone()),
        }
    }
}

/// Binds an address, and listens there.
///
/// # Errors
/// The address is taken or not this machine's.
pub fn listen(address: SocketAddr, reuse_port: bool) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    // A restarted server must not wait for the connections of its predecessor; Go sets this always,
    // too.
    socket.set_reuseaddr(true)?;
    #[cfg(unix)]
    if reuse_port {
        socket.set_reuseport(true)?;
    }
    socket.bind(address)?;
    // What is accepted inherits it.
    SockRef::from(&socket).set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(TCP_KEEPALIVE)
            .with_interval(TCP_KEEPALIVE),
    )?;
    socket.listen(BACKLOG)
}

impl Listener {
    /// Binds the address and port.
    ///
    /// # Errors
    /// The address is taken or not this machine's.
    pub fn bind(serving: &Serving, tls: ServerConfig) -> std::io::Result<Self> {
        let address = SocketAddr::new(serving.bind_address, serving.port);
        let tcp = listen(address, serving.reuse_port)?;
        let limits = Limits::of_descriptors(descriptors());
        Ok(Self {
            tcp,
            named: None,
            tls: TlsAcceptor::from(Arc::new(tls)),
            max_streams: serving.max_streams,
            limits,
        })
    }

    /// With other limits than those that the process has.
    #[cfg(test)]
    pub fn within(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Returns the way by which it gets connections from a shared port, too.
    pub fn share(&mut self) -> mpsc::Sender<Begun> {
        let (server, named) = shared_port::channel();
        self.named = Some(named);
        server
    }

    /// The address that it listens on, with the port that was chosen if 0 was asked for.
    ///
    /// # Errors
    /// The socket is broken.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Serves until `shutdown` closes; then lets the requests that run finish, for as long at most
    /// as `drain`.
    pub async fn serve<H: Handler>(mut self, handler: Arc<H>, shutdown: Shutdown, drain: Duration) {
        let tasks = shutdown.tasks();
        let connections = Connections::new(self.limits.clone());
        let protocols = Arc::new(Protocols::new(self.max_streams, &self.limits));
        loop {
            let accepted = tokio::select! {
                accepted = self.tcp.accept() => accepted.map(|(tcp, remote)| (Accepted::New(tcp), remote)),
                begun = next_named(&mut self.named) => Ok((Accepted::Begun(begun.handshake), begun.remote)),
                () = shutdown.closed() => break,
            };
            match accepted {
                Ok((accepted, remote)) => {
                    let Some(state) = connections.admit() else {
                        continue;
                    };
                    let (tls, protocols, handler, shutdown) = (
                        self.tls.clone(),
                        protocols.clone(),
                        handler.clone(),
                        shutdown.clone(),
                    );
                    let handshake = self.limits.handshake;
                    tasks.spawn(async move {
                        let _deregistration = Deregistration(state.clone());
                        tokio::select! {
                            () = connection(accepted, remote, &tls, handshake, &protocols, handler, &state, shutdown) => {}
                            () = state.aborted() => tracing::debug!("connection of {remote}: closed to make room for others"),
                        }
                    });
                }
                Err(why) => {
                    tracing::warn!("accepting a connection: {why}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(self.tcp);
        tasks.close();
        if tokio::time::timeout(drain, tasks.wait()).await.is_err() {
            tracing::warn!(
                "{} connections were still busy after {drain:?} and are cut",
                tasks.len()
            );
        }
    }
}

/// Runs each stream of an HTTP/2 connection as a task.
#[derive(Clone, Copy)]
struct Streams;

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        tokio::spawn(WithDeadline::new(stream));
    }
}

/// HTTP with the limits of this server.
struct Protocols {
    http1: http1::Builder,
    http2: http2::Builder<Streams>,
}

impl Protocols {
    fn new(max_streams: u32, limits: &Limits) -> Self {
        let mut http1 = http1::Builder::new();
        // It begins when the request before has been answered: `ConnectionState` tells waiting for
        // a header from reading one.
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(limits.idle + limits.header)
            .max_headers(MAX_HEADERS)
            .max_buf_size(MAX_HEADER_BYTES);
        let mut http2 = http2::Builder::new(Streams);
        http2
            .timer(TokioTimer::new())
            .max_concurrent_streams(max_streams)
            .max_header_list_size(MAX_HEADER_BYTES as u32)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(MAX_SEND_BUFFER)
            .keep_alive_interval(limits.ping)
            .keep_alive_timeout(limits.pong);
        Self { http1, http2 }
    }
}

/// Waits for a connection from a shared port.
async fn next_named(named: &mut Option<mpsc::Receiver<Begun>>) -> Begun {
    let next = match named {
        Some(named) => named.recv().await,
        None => None,
    };
    match next {
        Some(begun) => begun,
        // There is no such port.
        None => std::future::pending().await,
    }
}

/// One connection from its first byte to its last.
#[allow(clippy::too_many_arguments)] // it is where they come together
async fn connection<H: Handler>(
    accepted: Accepted,
    remote: SocketAddr,
    tls: &TlsAcceptor,
    handshake: Duration,
    protocols: &Protocols,
    handler: Arc<H>,
    state: &Arc<ConnectionState>,
    shutdown: Shutdown,
) {
    let stream = match tokio::time::timeout(handshake, accepted.accept(tls)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(why)) => {
            TLS_ERRORS.inc(&[]);
            tracing::debug!("TLS handshake with {remote}: {why}");
            return;
        }
        Err(_) => {
            TLS_ERRORS.inc(&[]);
            tracing::debug!("TLS handshake with {remote}: took longer than {handshake:?}");
            return;
        }
    };
    let session = stream.get_ref().1;
    let certificates = session
        .peer_certificates()
        .map(<[_]>::to_vec)
        .unwrap_or_default();
    let http2 = session.alpn_protocol() == Some(HTTP_2);
    let connection = Arc::new(Connection {
        remote,
        peer: Peer::new(certificates),
        http2,
        state: state.clone(),
    });
    let ended = if http2 {
        serve_http2(stream, connection, protocols, handler, shutdown).await
    } else {
        serve_http1(stream, connection, protocols, handler, shutdown).await
    };
    if let Err(why) = ended {
        tracing::debug!("connection of {remote}: {why}");
    }
}

async fn serve_http1<H: Handler>(
    stream: TlsStream<TcpStream>,
    connection: Arc<Connection>,
    protocols: &Protocols,
    handler: Arc<H>,
    shutdown: Shutdown,
) -> hyper::Result<()> {
    let state = connection.state.clone();
    // Boxed, or each idle connection would keep room for a request.
    let service =
        service_fn(move |request| Box::pin(answer(handler.clone(), connection.clone(), request)));
    let stream = MeteredStream {
        stream,
        state: state.clone(),
    };
    let mut serving = pin!(
        protocols
            .http1
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades()
    );
    // The handler runs in this task, and sets here the deadline for reading its response.
    let mut timer = DeadlineTimer::default();
    tokio::select! {
        ended = poll_fn(|cx| timer.poll(serving.as_mut(), cx)) => return ended.unwrap_or(Ok(())),
        close = state.until_close(false) => match close {
            Close::Gracefully => serving.as_mut().graceful_shutdown(),
            Close::Now => return Ok(()),
        },
        () = shutdown.closed() => {
            // A client that has just connected is about to send its request, which nobody else
            // would answer.
            let first = poll_fn(|cx| match timer.poll(serving.as_mut(), cx) {
                Poll::Ready(ended) => Poll::Ready(Some(ended)),
                Poll::Pending if state.has_requested() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            });
            let first = tokio::time::timeout(state.first_request_due(), first).await;
            if let Ok(Some(ended)) = first {
                return ended.unwrap_or(Ok(()));
            }
            serving.as_mut().graceful_shutdown();
        }
    }
    tokio::select! {
        ended = poll_fn(|cx| timer.poll(serving.as_mut(), cx)) => ended.unwrap_or(Ok(())),
        // Also where a header has begun to come, and does not go on.
        () = state.drained() => Ok(()),
    }
}

async fn serve_http2<H: Handler>(
    stream: TlsStream<TcpStream>,
    connection: Arc<Connection>,
    protocols: &Protocols,
    handler: Arc<H>,
    shutdown: Shutdown,
) -> hyper::Result<()> {
    let state = connection.state.clone();
    // Boxed, or each stream would keep room for it until it ends.
    let service =
        service_fn(move |request| Box::pin(answer(handler.clone(), connection.clone(), request)));
    let (stream, flusher) = coalesce(stream);
    let stream = MeteredStream {
        stream,
        state: state.clone(),
    };
    let mut serving = pin!(
        protocols
            .http2
            .serve_connection(TokioIo::new(stream), service)
    );
    flusher
        .run(async {
            tokio::select! {
                ended = serving.as_mut() => return ended,
                close = state.until_close(true) => match close {
                    Close::Gracefully => serving.as_mut().graceful_shutdown(),
                    Close::Now => return Ok(()),
                },
                () = shutdown.closed() => serving.as_mut().graceful_shutdown(),
            }
            tokio::select! {
                ended = serving => ended,
                () = state.drained() => Ok(()),
            }
        })
        .await
}

async fn answer<H: Handler>(
    handler: Arc<H>,
    connection: Arc<Connection>,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, h2::Error> {
    let guard = RequestGuard::new(connection.state.clone()).ok_or(h2::Reason::REFUSED_STREAM)?;
    if let Some(response) = request_head::refusal(&request) {
        return Ok(response.map(|body| ResponseBody::plain(body, guard)));
    }
    Ok(handler.handle(request, &connection, guard).await)
}

/// A stream that reports the number of received bytes to its connection.
struct MeteredStream<S> {
    stream: S,
    state: Arc<ConnectionState>,
}

impl<S: AsyncRead + Unpin> AsyncRead for MeteredStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let bytes = buffer.filled().len().saturating_sub(before);
        if bytes > 0 {
            self.state.bytes_received(bytes);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MeteredStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
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

#[cfg(test)]
mod tests {
    use super::*;
    use async_trait::async_trait;

    use crate::auth::authn::x509::CaBundle;
    use crate::auth::authz::{Attributes, Authorizer, Decision};
    use crate::endpoints::body::full;
    use crate::meta::tree::STACK_BYTES;
    use crate::options::certificates;
    use crate::options::config::Config;
    use crate::options::credential_files::ServingCert;
    use crate::options::flags::{Command, parse};
    use crate::server::reload::SighupListener;
    use crate::server::run::{Prepared, prepare};
    use crate::server::tls;
    use rustls_pki_types::pem::PemObject;
    use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::task::JoinHandle;

    const CLIENT_CA: &[u8] = include_bytes!("../auth/authn/testdata/v1-ca.crt");

    /// Answers with the path and the common name of the client's certificate.
    struct Echo;

    impl Handler for Echo {
        async fn handle(
            &self,
            request: Request<Incoming>,
            connection: &Connection,
            guard: Arc<RequestGuard>,
        ) -> Response<ResponseBody> {
            let bundle = CaBundle::from_pem(CLIENT_CA).expect("a bundle");
            let now = "2027-06-01T00:00:00Z".parse().expect("a time");
            let name = match bundle.verify(connection.peer.certificates(), now) {
                Ok(verified) => verified.common_name,
                Err(why) => why.to_string(),
            };
            Response::new(ResponseBody::plain(
                full(format!("{} {name}", request.uri().path())),
                guard,
            ))
        }
    }

    struct Running {
        address: SocketAddr,
        shutdown: Shutdown,
        task: JoinHandle<()>,
        _folder: tempfile::TempDir,
    }

    async fn start() -> Running {
        start_within(Limits::of_descriptors(1024)).await
    }

    async fn start_within(limits: Limits) -> Running {
        let folder = tempfile::tempdir().expect("a folder");
        let args = [
            "--secure-port=0".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--data-dir={}", folder.path().display()),
        ];
        let Ok(Command::Run(flags)) = parse(args) else {
            panic!("flags")
        };
        let config = Config::from_flags(&flags).expect("a configuration");
        let identity =
            certificates::prepare(&config, config.serving.bind_address, jiff::Timestamp::now())
                .expect("an identity");
        let listener = Listener::bind(
            &config.serving,
            tls::server_config(&config.serving, &identity.serving).expect("TLS"),
        )
        .expect("a port")
        .within(limits);
        let (address, shutdown) = (listener.address().expect("an address"), Shutdown::new());
        let task =
            tokio::spawn(listener.serve(Arc::new(Echo), shutdown.clone(), Duration::from_secs(20)));
        Running {
            address,
            shutdown,
            task,
            _folder: folder,
        }
    }

    /// Accepts any server, since these tests are about clients.
    #[derive(Debug)]
    struct Trusting;

    impl rustls::client::danger::ServerCertVerifier for Trusting {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: rustls_pki_types::UnixTime,
        ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
            Ok(rustls::client::danger::ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
            crate::auth::authn::x509::algorithms().supported_schemes()
        }
    }

    /// Always presents the same certificate, of any version.
    #[derive(Debug)]
    struct Show(Arc<rustls::sign::CertifiedKey>);

    impl rustls::client::ResolvesClientCert for Show {
        fn resolve(
            &self,
            _: &[&[u8]],
            _: &[rustls::SignatureScheme],
        ) -> Option<Arc<rustls::sign::CertifiedKey>> {
            Some(self.0.clone())
        }

        fn has_certs(&self) -> bool {
            true
        }
    }

    type ClientStream = tokio_rustls::client::TlsStream<TcpStream>;

    async fn connect(
        address: SocketAddr,
        version: &'static rustls::SupportedProtocolVersion,
        show: Option<ServingCert>,
    ) -> std::io::Result<ClientStream> {
        connect_as(address, version, show, Vec::new()).await
    }

    async fn connect_as(
        address: SocketAddr,
        version: &'static rustls::SupportedProtocolVersion,
        show: Option<ServingCert>,
        protocols: Vec<Vec<u8>>,
    ) -> std::io::Result<ClientStream> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[version])
            .expect("a version")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Trusting));
        let mut config = match show {
            None => builder.with_no_client_auth(),
            Some(cert) => {
                let key = provider
                    .key_provider
                    .load_private_key(cert.key)
                    .expect("a key");
                builder.with_client_cert_resolver(Arc::new(Show(Arc::new(
                    rustls::sign::CertifiedKey::new(cert.chain, key),
                ))))
            }
        };
        config.alpn_protocols = protocols;
        let name = ServerName::try_from("localhost").expect("a name");
        let tcp = TcpStream::connect(address).await?;
        tokio_rustls::TlsConnector::from(Arc::new(config))
            .connect(name, tcp)
            .await
    }

    async fn get(stream: &mut ClientStream, headers: &str) -> String {
        let request =
            format!("GET /path HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
        // A server that refuses the rest closes the connection.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn client_cert(key: &[u8]) -> ServingCert {
        ServingCert {
            chain: vec![
                CertificateDer::from_pem_slice(include_bytes!(
                    "../auth/authn/testdata/v1-leaf.crt"
                ))
                .expect("a certificate"),
            ],
            key: PrivateKeyDer::from_pem_slice(key).expect("a key"),
        }
    }

    #[tokio::test]
    async fn tls_accepts_client_certificates_of_version_1_and_none() {
        let server = start().await;
        let key = include_bytes!("../auth/authn/testdata/v1-leaf.key");
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let mut stream = connect(server.address, version, Some(client_cert(key)))
                .await
                .expect("a connection");
            let answer = get(&mut stream, "").await;
            assert!(answer.ends_with("/path admin"), "{answer}");
            let mut stream = connect(server.address, version, None)
                .await
                .expect("a connection");
            let answer = get(&mut stream, "").await;
            assert!(
                answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("no certificate"),
                "{answer}"
            );
        }
    }

    #[tokio::test]
    async fn tls_refuses_a_client_certificate_without_its_key() {
        let server = start().await;
        let other =
            rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048)
                .expect("a key")
                .serialize_pem();
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let answer =
                match connect(server.address, version, Some(client_cert(other.as_bytes()))).await {
                    Ok(mut stream) => get(&mut stream, "").await,
                    Err(_) => String::new(),
                };
            assert_eq!(answer, "");
        }
    }

    #[tokio::test]
    async fn too_large_headers_are_refused() {
        let server = start().await;
        let mut stream = connect(server.address, &rustls::version::TLS13, None)
            .await
            .expect("a connection");
        let answer = get(
            &mut stream,
            &format!("X-Large: {}\r\n", "a".repeat(10 << 20)),
        )
        .await;
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 431 "),
            "{answer}"
        );
        let mut stream = connect(server.address, &rustls::version::TLS13, None)
            .await
            .expect("a connection");
        let answer = get(
            &mut stream,
            &format!("X-Large: {}\r\n", "a".repeat(500_000)),
        )
        .await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    }

    #[tokio::test]
    async fn drain_closes_idle_and_half_open_connections() {
        let server = start_within(Limits {
            first_request: Duration::from_millis(50),
            ..Limits::of_descriptors(1024)
        })
        .await;
        // Neither an idle connection holds it up, nor one whose header does not go on.
        let mut idle = connect(server.address, &rustls::version::TLS13, None)
            .await
            .expect("a connection");
        let mut begun = connect(server.address, &rustls::version::TLS13, None)
            .await
            .expect("a connection");
        begun
            .write_all(b"GET / HTTP/1.1\r\nHost: x")
            .await
            .expect("sent");
        server.shutdown.close();
        server.task.await.expect("an end");
        assert!(TcpStream::connect(server.address).await.is_err());
        let mut rest = Vec::new();
        let _ = idle.read_to_end(&mut rest).await;
        assert!(rest.is_empty());
    }

    /// A TLS connection of a client that speaks HTTP/2.
    async fn connect_http2(address: SocketAddr) -> ClientStream {
        connect_as(
            address,
            &rustls::version::TLS13,
            None,
            vec![HTTP_2.to_vec()],
        )
        .await
        .expect("a connection")
    }

    /// Reads until the other side closes.
    async fn rest<S: AsyncRead + Unpin>(stream: &mut S) -> Vec<u8> {
        let mut rest = Vec::new();
        // A connection that is cut off is closed, too.
        let _ = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut rest))
            .await
            .expect("it is closed");
        rest
    }

    #[tokio::test]
    async fn silent_clients_are_disconnected() {
        let short = Duration::from_secs(1);
        let server = start_within(Limits {
            preface: short,
            header: short,
            ..Limits::of_descriptors(1024)
        })
        .await;
        let address = server.address;
        let plain = async |said: &[u8]| {
            let mut stream = connect(address, &rustls::version::TLS13, None)
                .await
                .expect("a connection");
            let _ = stream.write_all(said).await;
            rest(&mut stream).await
        };
        let http2 = async |said: &[u8]| {
            let mut stream = connect_http2(address).await;
            let _ = stream.write_all(said).await;
            rest(&mut stream).await
        };
        // Nothing; half a header; half a preface.
        let (silent, half, _, _) = tokio::join!(
            plain(b""),
            plain(b"GET / HTTP/1.1\r\nHost: local"),
            http2(b""),
            http2(b"PRI * HTTP/2.0")
        );
        assert!(silent.is_empty() && half.is_empty());
    }

    #[tokio::test]
    async fn idle_connections_are_closed() {
        let short = Duration::from_millis(50);
        let server = start_within(Limits {
            idle: short,
            linger: short,
            ..Limits::of_descriptors(1024)
        })
        .await;
        let mut stream = connect(server.address, &rustls::version::TLS13, None)
            .await
            .expect("a connection");
        stream
            .write_all(b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .await
            .expect("room");
        let answer = String::from_utf8(rest(&mut stream).await).expect("text");
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        // A preface, settings, and no requests: it is told to go away (frame type 7).
        let mut stream = connect_http2(server.address).await;
        stream
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
            .await
            .expect("room");
        let kinds = kinds(&rest(&mut stream).await);
        assert!(kinds.contains(&7), "{kinds:?}");
    }

    /// The types of HTTP/2 frames.
    fn kinds(frames: &[u8]) -> Vec<u8> {
        let (mut at, mut kinds) = (0, Vec::new());
        while let Some(head) = frames.get(at..at + 9) {
            kinds.push(head[3]);
            at += 9 + usize::from(head[1]) * 256 + usize::from(head[2]);
        }
        kinds
    }

    /// A peer that is gone without a word is found out by TCP.
    #[tokio::test]
    async fn accepted_connections_are_probed_by_tcp() {
        let args = ["--secure-port=0", "--bind-address=127.0.0.1"];
        let Ok(Command::Run(flags)) = parse(args.map(str::to_owned)) else {
            panic!("flags")
        };
        let config = Config::from_flags(&flags).expect("a configuration");
        let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a key");
        let chain = vec![key.cert.der().clone()];
        let key = PrivateKeyDer::try_from(key.signing_key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("a certificate");
        let listener = Listener::bind(&config.serving, tls).expect("a port");
        let _client = TcpStream::connect(listener.address().expect("an address")).await;
        let (accepted, _) = listener.tcp.accept().await.expect("a connection");
        let socket = SockRef::from(&accepted);
        assert!(socket.keepalive().expect("an option"));
        assert_eq!(
            socket.tcp_keepalive_time().expect("an option"),
            TCP_KEEPALIVE
        );
        assert_eq!(
            socket.tcp_keepalive_interval().expect("an option"),
            TCP_KEEPALIVE
        );
    }

    /// A client that does not answer pings is gone, whatever it has open.
    #[tokio::test]
    async fn http2_clients_that_answer_no_pings_are_cut_off() {
        let short = Duration::from_millis(50);
        let server = start_within(Limits {
            ping: short,
            pong: short,
            ..Limits::of_descriptors(1024)
        })
        .await;
        let mut stream = connect_http2(server.address).await;
        // A preface, settings, and nothing ever after.
        stream
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
            .await
            .expect("room");
        assert!(kinds(&rest(&mut stream).await).contains(&6), "it is pinged");
    }

    #[tokio::test]
    async fn unauthenticated_connections_displace_the_oldest() {
        let server = start_within(Limits {
            unauthenticated: 2,
            ..Limits::of_descriptors(1024)
        })
        .await;
        let mut first = connect(server.address, &rustls::version::TLS13, None)
            .await
            .expect("a connection");
        let mut others = Vec::new();
        for _ in 0..4 {
            others.push(
                connect(server.address, &rustls::version::TLS13, None)
                    .await
                    .expect("a connection"),
            );
        }
        assert!(rest(&mut first).await.is_empty());
        let answer = get(others.last_mut().expect("one"), "").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    }

    /// An authorizer with a bug.
    struct Panics;

    #[async_trait]
    impl Authorizer for Panics {
        async fn authorize(&self, attributes: &Attributes) -> Decision {
            panic!("of {}", attributes.verb)
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn panic_is_answered_and_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let args = [
            "--secure-port=0".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--data-dir={}", folder.path().display()),
        ];
        let Ok(Command::Run(flags)) = parse(args) else {
            panic!("flags")
        };
        let (config, shutdown) = (
            Config::from_flags(&flags).expect("a configuration"),
            Shutdown::new(),
        );
        // Trees are walked on a stack that is larger than this thread's.
        let prepared = std::thread::Builder::new().stack_size(STACK_BYTES).spawn({
            let (runtime, shutdown) = (tokio::runtime::Handle::current(), shutdown.clone());
            move || runtime.block_on(prepare(config, &shutdown, SighupListener::deaf()))
        });
        let prepared = tokio::task::spawn_blocking(|| prepared.expect("a thread").join())
            .await
            .expect("a thread")
            .expect("a thread");
        let Prepared {
            listener,
            mut chain,
            ..
        } = prepared.expect("a server");
        chain.authorizer = Arc::new(Panics);
        let address = listener.address().expect("an address");
        let serving = tokio::spawn(listener.serve(
            Arc::new(chain),
            shutdown.clone(),
            Duration::from_secs(20),
        ));
        for _ in 0..2 {
            let mut stream = connect(address, &rustls::version::TLS13, None)
                .await
                .expect("a connection");
            let answer = get(&mut stream, "Audit-ID: panicked\r\n")
                .await
                .to_lowercase();
            assert!(
                answer.starts_with("http/1.1 500 ") && answer.contains("audit-id: panicked"),
                "{answer}"
            );
            assert!(
                answer.ends_with(
                    "this request caused apiserver to panic. look in the logs for details.\n"
                ),
                "{answer}"
            );
        }
        let metrics =
            crate::telemetry::exposition::render(crate::telemetry::exposition::Format::Text);
        let aborts = r#"apiserver_request_aborts_total{group="",resource="",scope="",subresource="",verb="GET",version=""} 2"#;
        assert!(metrics.contains(aborts), "{metrics}");
        shutdown.close();
        serving.await.expect("an end");
    }
}
