//! An HTTPS server that answers as a test tells it, and remembers what it was asked.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// An answer of the server.
#[derive(Clone, Debug)]
pub enum Reply {
    /// 200 with a JSON document.
    Json(Value),
    /// An answer as it is.
    Raw(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// 200 with so many bytes, which are made as they are read.
    Endless(usize),
    /// The connection is closed.
    Close,
    /// Nothing, ever.
    Hang,
}

/// A request that the server got.
#[derive(Clone, Debug)]
pub struct Seen {
    pub uri: String,
    pub headers: HeaderMap,
    pub version: http::Version,
    pub body: Value,
    /// The number of the connection that it came by.
    pub connection: usize,
}

type Answer = dyn Fn(&Seen) -> Reply + Send + Sync;

/// The server. Dropping it closes its connections.
pub struct Webhook {
    pub port: u16,
    /// The certificate of its authority.
    pub ca: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    task: tokio::task::JoinHandle<()>,
}

/// A certificate and the authority that signed it.
pub struct Identity {
    pub ca: String,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// A certificate for some names by an authority of its own.
    pub fn new(names: &[&str]) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "webhook-ca");
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"));
        let authority = authority.expect("an authority");
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(names).expect("names");
        let cert = params.signed_by(&key, &authority).expect("a certificate");
        Self {
            ca: authority.pem(),
            chain: vec![cert.der().clone()],
            key: PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
        }
    }

    /// A certificate that signed itself and is an authority too.
    pub fn self_signed(name: &str) -> Self {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let cert = params.self_signed(&key).expect("a certificate");
        Self {
            ca: cert.pem(),
            chain: vec![cert.der().clone()],
            key: PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
        }
    }
}

impl Webhook {
    /// A server for `localhost` and this machine's address.
    pub async fn start(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_as(Identity::new(&["localhost", "127.0.0.1"]), answer).await
    }

    /// A server with that certificate.
    pub async fn start_as(
        identity: Identity,
        answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(identity.chain, identity.key)
            .expect("a certificate");
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let task = tokio::spawn(accept(listener, acceptor, Arc::new(answer), seen.clone()));
        Self {
            port,
            ca: identity.ca,
            seen,
            task,
        }
    }

    /// The requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("no panic").clone()
    }

    /// Forgets the requests so far, and returns them.
    pub fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.seen.lock().expect("no panic"))
    }

    /// The `clientConfig` of a webhook at a path of this server.
    pub fn client_config(&self, path: &str) -> Value {
        json!({
            "url": format!("https://localhost:{}{path}", self.port),
            "caBundle": BASE64_STANDARD.encode(&self.ca),
        })
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    answer: Arc<Answer>,
    seen: Arc<Mutex<Vec<Seen>>>,
) {
    let mut connections = tokio::task::JoinSet::new();
    let mut number = 0;
    while let Ok((stream, _)) = listener.accept().await {
        number += 1;
        let (acceptor, answer, seen) = (acceptor.clone(), answer.clone(), seen.clone());
        connections.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let service =
                service_fn(move |request| serve(request, number, answer.clone(), seen.clone()));
            // A client may leave when it likes, and `Close` is an error here.
            let _ = auto::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn serve(
    request: Request<Incoming>,
    connection: usize,
    answer: Arc<Answer>,
    seen: Arc<Mutex<Vec<Seen>>>,
) -> Result<Response<Payload>, std::io::Error> {
    let (head, body) = request.into_parts();
    let body = body
        .collect()
        .await
        .map_err(std::io::Error::other)?
        .to_bytes();
    let one = Seen {
        uri: head
            .uri
            .path_and_query()
            .map_or_else(String::new, ToString::to_string),
        headers: head.headers,
        version: head.version,
        body: serde_json::from_slice(&body).unwrap_or_default(),
        connection,
    };
    seen.lock().expect("no panic").push(one.clone());
    let respond = |code: u16, headers: Vec<(&str, String)>, payload: Payload| {
        let mut response = Response::builder().status(code);
        for (name, value) in headers {
            response = response.header(name, value);
        }
        Ok(response.body(payload).expect("a response"))
    };
    let json_type = || vec![("Content-Type", "application/json".to_owned())];
    match answer(&one) {
        Reply::Json(value) => respond(
            200,
            json_type(),
            Payload::of(value.to_string().into_bytes()),
        ),
        Reply::Raw(code, headers, body) => respond(code, headers, Payload::of(body)),
        Reply::Endless(bytes) => respond(200, json_type(), Payload::Endless(bytes)),
        Reply::Close => Err(std::io::Error::other("closed")),
        Reply::Hang => std::future::pending().await,
    }
}

/// The body of an answer.
enum Payload {
    Whole(Option<Bytes>),
    Endless(usize),
}

impl Payload {
    fn of(bytes: Vec<u8>) -> Self {
        Self::Whole(Some(bytes.into()))
    }
}

impl http_body::Body for Payload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        const PART: &[u8] = &[b' '; 64 * 1024];
        Poll::Ready(match &mut *self {
            Self::Whole(bytes) => bytes.take().map(|bytes| Ok(Frame::data(bytes))),
            Self::Endless(0) => None,
            Self::Endless(left) => {
                let part = PART.len().min(*left);
                *left -= part;
                Some(Ok(Frame::data(Bytes::from_static(&PART[..part]))))
            }
        })
    }
}
