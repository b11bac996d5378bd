//! Connections through a proxy that is asked for them with CONNECT (apiserver
//! `server/egressselector/egress_selector.go`).

use std::error::Error;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::HOST;
use http::{Request, StatusCode, Uri};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper::ext::ReasonPhrase;
use hyper_util::rt::TokioIo;
use opentelemetry::KeyValue;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use super::configuration::{Tcp, Tls, Transport};
use super::metrics::{Dialling, Stage};
use crate::base::dial::{ConnectError, Dial, Io, bare_host};
use crate::telemetry::trace;
use crate::webhook::connector::{cause, dial, handshake, io_text};
use crate::webhook::tls::{self, ClientCert, Trust};

/// The bytes of the head of a proxy's answer (Go's `DefaultMaxHeaderBytes`).
const MAX_HEADER_BYTES: usize = 1 << 20;
/// The time in which a proxy must have connected, which is as long as a direct connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// A proxy.
pub struct HttpConnect {
    place: Place,
    /// The address as errors name it.
    address: String,
}

enum Place {
    Tcp(Option<Secured>),
    Uds,
}

/// TLS to a proxy of a name.
struct Secured {
    tls: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl HttpConnect {
    /// # Errors
    /// The URL or the certificates cannot be used.
    pub fn new(transport: Transport) -> Result<Self, String> {
        let tcp = match transport {
            Transport::Uds(address) => {
                let place = Place::Uds;
                return Ok(Self { place, address });
            }
            Transport::Tcp(tcp) => tcp,
        };
        let (address, host) = authority(&tcp)?;
        let secured = tcp.tls.map(|tls| secure(&tls, &host)).transpose()?;
        Ok(Self {
            place: Place::Tcp(secured),
            address,
        })
    }

    async fn connect(&self) -> Result<Box<dyn Io>, ConnectError> {
        let secured = match &self.place {
            Place::Uds => {
                let stream = UnixStream::connect(&self.address).await.map_err(|why| {
                    let (address, why) = (&self.address, io_text(&why));
                    ConnectError(format!("dial unix {address}: connect: {why}"))
                })?;
                return Ok(Box::new(stream));
            }
            Place::Tcp(secured) => secured,
        };
        let stream = dial(&self.address).await?;
        let Some(secured) = secured else {
            return Ok(Box::new(stream));
        };
        let connector = TlsConnector::from(secured.tls.clone());
        let stream = handshake(&connector, secured.name.clone(), stream).await?;
        Ok(Box::new(stream))
    }

    /// Asks the proxy for a connection to an address.
    async fn ask(&self, stream: Box<dyn Io>, to: &str) -> Result<Box<dyn Io>, ConnectError> {
        let proxy = &self.address;
        let failed = |why: &(dyn Error + 'static)| {
            ConnectError(format!(
                "reading HTTP response from CONNECT to {to} via proxy {proxy} failed: {}",
                response_text(why)
            ))
        };
        let handshake = http1::Builder::new()
            .max_buf_size(MAX_HEADER_BYTES)
            .handshake(TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.map_err(|why| failed(&why))?;
        let _driver = AbortOnDropHandle::new(tokio::spawn(connection.with_upgrades()));
        let request = Request::connect(to)
            .header(HOST, "127.0.0.1")
            .body(Empty::<Bytes>::new())
            .map_err(|why| failed(&why))?;
        let answer = sender.send_request(request).await;
        let answer = answer.map_err(|why| failed(&why))?;
        let status = answer.status();
        if status != StatusCode::OK {
            let code = status.as_u16();
            let reason = match answer.extensions().get::<ReasonPhrase>() {
                Some(reason) => String::from_utf8_lossy(reason.as_bytes()).into_owned(),
                None => status.canonical_reason().unwrap_or_default().to_owned(),
            };
            return Err(ConnectError(format!(
                "proxy error from {proxy} while dialing {to}, code {code}: {code} {reason}"
            )));
        }
        let upgraded = hyper::upgrade::on(answer).await;
        let upgraded = upgraded.map_err(|why| failed(&why))?;
        let parts = upgraded
            .downcast::<TokioIo<Box<dyn Io>>>()
            .map_err(|_| ConnectError("the connection to the proxy is another".to_owned()))?;
        // Whoever is behind the proxy is spoken to first.
        match parts.read_buf.len() {
            0 => Ok(parts.io.into_inner()),
            early => Err(ConnectError(format!(
                "unexpected {early} bytes of buffered data from CONNECT proxy {}",
                crate::meta::go::quote(proxy)
            ))),
        }
    }
}

#[async_trait]
impl Dial for HttpConnect {
    async fn dial(&self, address: &str) -> Result<Box<dyn Io>, ConnectError> {
        let (transport, name) = match &self.place {
            Place::Tcp(_) => ("tcp", "Proxy via http_connect protocol over tcp"),
            Place::Uds => ("uds", "Proxy via http_connect protocol over uds"),
        };
        let dialling = Dialling::start(transport);
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        let late = |_| {
            let proxy = &self.address;
            ConnectError(format!("dial {address} via proxy {proxy}: i/o timeout"))
        };
        let connected = async {
            let in_time = timeout_at(deadline, self.connect()).await;
            let stream = in_time.map_err(late).flatten();
            let stream = stream.inspect_err(|_| dialling.failed(Stage::Connect))?;
            let in_time = timeout_at(deadline, self.ask(stream, address)).await;
            let stream = in_time.map_err(late).flatten();
            stream.inspect_err(|_| dialling.failed(Stage::Proxy))
        };
        let told = || vec![KeyValue::new("address", address.to_owned())];
        let stream = trace::in_span(name, trace::SLOW, told, connected).await?;
        dialling.succeeded();
        Ok(stream)
    }
}

/// The address of a proxy, and its host.
fn authority(tcp: &Tcp) -> Result<(String, String), String> {
    let wrong = |why: &dyn std::fmt::Display| {
        let url = crate::meta::go::quote(&tcp.url);
        format!("invalid proxy server url {url}: {why}")
    };
    let uri = Uri::try_from(&tcp.url).map_err(|why| wrong(&why))?;
    let host = uri.host().ok_or_else(|| wrong(&"no host"))?;
    let default = if uri.scheme_str() == Some("https") {
        443
    } else {
        80
    };
    let port = uri.port_u16().unwrap_or(default);
    let name = bare_host(host);
    Ok((format!("{host}:{port}"), name.to_owned()))
}

fn secure(config: &Tls, host: &str) -> Result<Secured, String> {
    let read = |file: &String| fs::read(file).map_err(|why| format!("open {file}: {why}"));
    let pair = |why: String| {
        let (cert, key) = (&config.client_cert, &config.client_key);
        format!("failed to read key pair {cert} & {key}, got {why}")
    };
    let cert = ClientCert {
        chain: read(&config.client_cert).map_err(pair)?,
        key: read(&config.client_key).map_err(pair)?,
    };
    let trust = match &config.ca_bundle {
        bundle if bundle.is_empty() => Trust::System,
        bundle => Trust::Bundle(
            read(bundle).map_err(|why| format!("failed to read cert file {bundle}, got {why}"))?,
        ),
    };
    let tls = tls::client_config(&trust, Some(&cert), &[]).map_err(pair)?;
    let name = match config.server_name.as_str() {
        "" => host,
        name => name,
    };
    let name = ServerName::try_from(name.to_owned()).map_err(|why| why.to_string())?;
    Ok(Secured {
        tls: Arc::new(tls),
        name,
    })
}

/// The error of an answer in Go's words.
fn response_text(error: &(dyn Error + 'static)) -> String {
    match error.downcast_ref::<hyper::Error>() {
        Some(error) if error.is_parse_too_large() => "unexpected EOF".to_owned(),
        Some(error) if error.is_parse() => "malformed HTTP response".to_owned(),
        _ => match cause(error) {
            text if text == "EOF" => "unexpected EOF".to_owned(),
            text => text,
        },
    }
}
