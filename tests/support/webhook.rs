//! An HTTPS server that answers as a test tells it, and remembers what it was asked. It asks
//! clients for a certificate and takes any.

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
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{OwnedMutexGuard, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::crypto::{
    WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{
    DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
};
use x509_parser::prelude::{FromDer, X509Certificate};

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
    /// 200 with the parts that the test sends, as they come, until it drops the sender.
    Parts(Arc<tokio::sync::Mutex<mpsc::Receiver<Bytes>>>),
    /// The protocol is switched, and what the client sends is sent back.
    Echo,
}

/// A request that the server got.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: String,
    pub uri: String,
    pub headers: HeaderMap,
    pub version: http::Version,
    pub body: Value,
    /// The number of the connection that it came by.
    pub connection: usize,
    /// The common name of the client's certificate, empty without one.
    pub client: String,
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
        let algorithms = provider.signature_verification_algorithms;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_client_cert_verifier(Arc::new(AnyClient(algorithms)))
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
            let client = common_name(stream.get_ref().1.peer_certificates());
            let service = service_fn(move |request| {
                let from = (number, client.clone());
                serve(request, from, answer.clone(), seen.clone())
            });
            // A client may leave when it likes, and `Close` is an error here.
            let _ = auto::Builder::new(TokioExecutor::new())
                .serve_connection_with_upgrades(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// Takes any certificate of a client, and none.
#[derive(Debug)]
struct AnyClient(WebPkiSupportedAlgorithms);

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, tokio_rustls::rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, tokio_rustls::rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, tokio_rustls::rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// The common name in a client's certificate.
fn common_name(chain: Option<&[CertificateDer<'_>]>) -> String {
    let cert = chain.and_then(<[_]>::first);
    let parsed = cert.and_then(|cert| X509Certificate::from_der(cert).ok());
    let name = parsed.as_ref().and_then(|(_, cert)| {
        let mut names = cert.subject().iter_common_name();
        names.next().and_then(|name| name.as_str().ok())
    });
    name.unwrap_or_default().to_owned()
}

async fn serve(
    mut request: Request<Incoming>,
    (connection, client): (usize, String),
    answer: Arc<Answer>,
    seen: Arc<Mutex<Vec<Seen>>>,
) -> Result<Response<Payload>, std::io::Error> {
    let upgrade = hyper::upgrade::on(&mut request);
    let (head, body) = request.into_parts();
    let body = body
        .collect()
        .await
        .map_err(std::io::Error::other)?
        .to_bytes();
    let one = Seen {
        method: head.method.to_string(),
        uri: head
            .uri
            .path_and_query()
            .map_or_else(String::new, ToString::to_string),
        headers: head.headers,
        version: head.version,
        body: serde_json::from_slice(&body).unwrap_or_default(),
        connection,
        client,
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
        Reply::Parts(parts) => respond(200, json_type(), Payload::Parts(parts.lock_owned().await)),
        Reply::Echo => {
            tokio::spawn(async move {
                let Ok(connection) = upgrade.await else {
                    return;
                };
                let (mut reader, mut writer) = tokio::io::split(TokioIo::new(connection));
                // It ends when the client does.
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
            });
            let switch = vec![
                ("Connection", "Upgrade".to_owned()),
                ("Upgrade", "echo".to_owned()),
            ];
            respond(101, switch, Payload::Whole(None))
        }
    }
}

/// The body of an answer.
enum Payload {
    Whole(Option<Bytes>),
    Endless(usize),
    Parts(OwnedMutexGuard<mpsc::Receiver<Bytes>>),
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
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        const PART: &[u8] = &[b' '; 64 * 1024];
        Poll::Ready(match &mut *self {
            Self::Parts(parts) => {
                return parts
                    .poll_recv(cx)
                    .map(|part| part.map(|part| Ok(Frame::data(part))));
            }
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
