//! The client of webhooks: it posts a review to an HTTPS server and reads the answer (apiserver
//! `util/webhook`, client-go `rest`).
//!
//! Connections are kept and used again. As upstream, HTTP/2 is offered to servers on this machine
//! only, because its one connection would send all requests to the same one of a Service's pods.

mod auth_info;
mod call_error;
pub mod connector;
mod kubeconfig;
mod remote;
mod service;
pub mod tls;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, LOCATION, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::{sleep, timeout_at};
use tokio_rustls::TlsConnector;

pub use auth_info::{AuthInfo, AuthInfos};
pub use call_error::CallError;
pub use remote::{Expected, Remote};
#[cfg(test)]
pub use service::NoServices;
pub use service::{ServiceResolver, cluster_address, endpoint_address};

use crate::base::blocking::{LARGE_BYTES, run_blocking_if};
use crate::codec::json::Document;
use crate::meta::go::{self, url};
use crate::meta::{Value, i64_at, str_at, value_at};
use connector::{Connector, HTTP_1_1, HTTP_2, Proxy, cause, is_local};

/// The webhooks to which connections are kept (apiserver `defaultCacheSize`).
const MAX_ENDPOINTS: u64 = 200;
/// The time after which a webhook's certificates and credentials are read again (client-go
/// `CertCallbackRefreshDuration`).
const ENDPOINT_LIFETIME: Duration = Duration::from_secs(5 * 60);
/// Connections to a webhook that are kept while nobody uses them (client-go `idleConnsPerHost`).
const MAX_IDLE: usize = 25;
/// The time that such a connection is kept.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// The interval at which HTTP/2 connections are checked, and the time that an answer may take
/// (apimachinery `util/net`).
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// Attempts at a webhook that asks to be called again (client-go `maxRetries`).
const MAX_RETRIES: usize = 10;
/// The bytes of a text that an error quotes (client-go `maxUnstructuredResponseTextBytes`).
const MAX_QUOTED: usize = 2048;
/// The client's name.
const AGENT: &str = "kube-apiserver-admission";

/// A port of a Service, and the path of its webhook.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServiceReference {
    pub namespace: String,
    pub name: String,
    pub port: u16,
    pub path: String,
}

/// The place of a webhook.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    Url(String),
    Service(ServiceReference),
    /// It says neither.
    Nowhere,
}

/// The place of a webhook and whom to trust there (`WebhookClientConfig`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientConfig {
    pub place: Place,
    /// PEM certificates; the system's count where it is empty.
    pub ca_bundle: Vec<u8>,
}

impl ClientConfig {
    /// Reads a `clientConfig`.
    pub fn read(value: &Value) -> Self {
        let service = value_at(value, "/service").filter(|service| service.is_object());
        let place = match (service, str_at(value, "/url")) {
            (Some(service), _) => Place::Service(ServiceReference {
                namespace: str_at(service, "/namespace").to_owned(),
                name: str_at(service, "/name").to_owned(),
                port: i64_at(service, "/port")
                    .and_then(|port| u16::try_from(port).ok())
                    .filter(|port| *port != 0)
                    .unwrap_or(443),
                path: str_at(service, "/path").to_owned(),
            }),
            (None, "") => Place::Nowhere,
            (None, url) => Place::Url(url.to_owned()),
        };
        Self {
            place,
            ca_bundle: go::base64::decode(str_at(value, "/caBundle")),
        }
    }
}

/// The limits of a call.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The time until the whole answer is there. The webhook is told of it.
    pub timeout: Duration,
    pub answer_bytes: usize,
}

/// An error of a call, with upstream's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    /// The webhook cannot be called as it is configured.
    #[error("{0}")]
    Configuration(String),
    /// It did not answer, or not with what it should have.
    #[error("{0}")]
    Call(String),
}

/// The client. Its copies share their connections.
#[derive(Clone)]
pub struct Client {
    auth: Arc<AuthInfos>,
    services: Arc<dyn ServiceResolver>,
    proxies: Arc<Matcher>,
    endpoints: moka::sync::Cache<ClientConfig, Arc<Endpoint>>,
}

/// A webhook, with connections to it.
struct Endpoint {
    /// Without a query.
    url: String,
    agent: &'static str,
    auth: Option<AuthInfo>,
    http: legacy::Client<Connector, Full<Bytes>>,
}

impl Client {
    /// Returns a client that presents some credentials.
    pub fn new(auth: AuthInfos, services: Arc<dyn ServiceResolver>) -> Self {
        Self {
            auth: Arc::new(auth),
            services,
            proxies: Arc::new(Matcher::from_env()),
            endpoints: moka::sync::Cache::builder()
                .max_capacity(MAX_ENDPOINTS)
                .time_to_live(ENDPOINT_LIFETIME)
                .build(),
        }
    }

    /// Posts a JSON document to a webhook; returns the JSON object that it answers with, which has
    /// a kind and an apiVersion. Dropping the future ends the request.
    ///
    /// # Errors
    /// Those of [`WebhookError`].
    pub async fn post(
        &self,
        config: &ClientConfig,
        body: Bytes,
        limits: Limits,
    ) -> Result<Value, WebhookError> {
        let endpoint = self
            .endpoints
            .try_get_with_by_ref(config, || self.open(config).map(Arc::new))
            .map_err(|why| WebhookError::Configuration((*why).clone()))?;
        let query = format!("?timeout={}", seconds(limits.timeout));
        let answer = endpoint.post(&query, body, limits, None).await;
        answer.map_err(|why| WebhookError::Call(why.text))
    }

    fn open(&self, config: &ClientConfig) -> Result<Endpoint, String> {
        let (host, port, path, service) = match &config.place {
            Place::Service(service) => {
                let host = format!("{}.{}.svc", service.name, service.namespace);
                let of_service = Some((service.clone(), self.services.clone()));
                (host, Some(service.port), service.path.clone(), of_service)
            }
            Place::Url(text) => {
                let parsed = url::parse_request_uri(text);
                let parsed = parsed.map_err(|why| format!("Unparsable URL: {why}"))?;
                if parsed.scheme != "https" || parsed.host.is_empty() {
                    return Err(format!("unsupported URL {}", go::quote(text)));
                }
                (parsed.host, None, parsed.path, None)
            }
            Place::Nowhere => {
                return Err("webhook configuration must have either service or URL".to_owned());
            }
        };
        let host = match port {
            Some(port) => format!("{host}:{port}"),
            None => host,
        };
        let url = format!(
            "https://{host}{}",
            url::escape_path(&url::clean_path(&path))
        );
        let uri = http::Uri::try_from(&url).map_err(|why| format!("Unparsable URL: {why}"))?;
        let name = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let with_port = match uri.port() {
            Some(_) => host.clone(),
            None => format!("{host}:443"),
        };
        let auth = self.auth.of(&with_port).cloned();
        let cert = auth.as_ref().map(AuthInfo::client_cert).transpose()?;
        let protocols: &[&[u8]] = match service.is_none() && is_local(name) {
            true => &[HTTP_2, HTTP_1_1],
            false => &[HTTP_1_1],
        };
        let trust = match config.ca_bundle.is_empty() {
            true => tls::Trust::System,
            false => tls::Trust::Bundle(config.ca_bundle.clone()),
        };
        let tls = tls::client_config(&trust, cert.flatten().as_ref(), protocols)?;
        let connector = Connector {
            service,
            server_name: None,
            tls: TlsConnector::from(Arc::new(tls)),
            proxy: Proxy::FromEnvironment(self.proxies.clone()),
        };
        Ok(Endpoint::new(url, AGENT, auth, connector))
    }
}

impl Endpoint {
    fn new(url: String, agent: &'static str, auth: Option<AuthInfo>, connector: Connector) -> Self {
        let http = legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE)
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            .build(connector);
        Self {
            url,
            agent,
            auth,
            http,
        }
    }

    /// Posts to the URL with a query, and reads the answer: an object that has a kind, that of
    /// `expected` where it says none.
    async fn post(
        &self,
        query: &str,
        body: Bytes,
        limits: Limits,
        expected: Option<Expected>,
    ) -> Result<Value, CallError> {
        let deadline = Instant::now() + limits.timeout;
        let late = || CallError::late("context deadline exceeded");
        let url = format!("{}{query}", self.url);
        let failed = |why: CallError| why.wrap(|text| format!("Post {}: {text}", go::quote(&url)));
        let mut retries = 0;
        let (status, headers, body) = loop {
            let sent = timeout_at(deadline.into(), self.send(&url, &body)).await;
            let answer = sent.unwrap_or_else(|_| Err(late())).map_err(failed)?;
            let (head, body) = answer.into_parts();
            let wait = wait(head.status, &head.headers).filter(|_| retries < MAX_RETRIES);
            if let Some(wait) = wait {
                retries += 1;
                let waited = timeout_at(deadline.into(), sleep(wait)).await;
                waited.map_err(|_| failed(late()))?;
                continue;
            }
            let read = Limited::new(body, limits.answer_bytes).collect();
            let read = timeout_at(deadline.into(), read).await;
            let read = match read {
                Ok(Ok(body)) => Ok(body.to_bytes()),
                Ok(Err(why)) if why.is::<LengthLimitError>() => Err(CallError::new(format!(
                    "the answer is larger than {} bytes",
                    limits.answer_bytes
                ))),
                Ok(Err(why)) => Err(match cause(&*why) {
                    text if text == "EOF" => CallError::new("unexpected EOF"),
                    text => CallError::of_transport(text),
                }),
                Err(_) => Err(late()),
            };
            let read = read.map_err(|why| {
                why.wrap(|text| {
                    format!(
                        "unexpected error when reading response body. Please retry. Original error: {text}"
                    )
                })
            })?;
            break (head.status, head.headers, read);
        };
        let large = body.len() > LARGE_BYTES;
        run_blocking_if(large, || decode(status, &headers, &body, expected)).map_err(
            |why| match why {
                DecodeError::Redirect(to) => failed(CallError::new(format!(
                    "{status} to {} is not followed",
                    go::quote(&to)
                ))),
                DecodeError::Answer(why) => why,
            },
        )
    }

    async fn send(&self, url: &str, body: &Bytes) -> Result<Response<Incoming>, CallError> {
        let mut request = Request::post(url)
            .body(Full::new(body.clone()))
            .map_err(|why| CallError::new(why.to_string()))?;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(self.agent));
        if let Some(auth) = &self.auth {
            auth.authorize(headers).await.map_err(CallError::new)?;
        }
        let answer = self.http.request(request).await;
        answer.map_err(|why| CallError::of_transport(cause(&why)))
    }
}

enum DecodeError {
    Redirect(String),
    Answer(CallError),
}

/// Reads an answer (client-go `Request.transformResponse`, `Result.Into`).
fn decode(
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    expected: Option<Expected>,
) -> Result<Value, DecodeError> {
    let text = |name| {
        let value: Option<&HeaderValue> = headers.get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    if status.is_redirection() && !text(LOCATION).is_empty() {
        return Err(DecodeError::Redirect(text(LOCATION).to_owned()));
    }
    let content_type = text(CONTENT_TYPE);
    if !(200..=206).contains(&status.as_u16()) {
        let told = failure(body).unwrap_or_else(|| {
            CallError::of_code(status.as_u16(), status_text(status, content_type, body))
        });
        return Err(DecodeError::Answer(told.with_code(status.as_u16())));
    }
    if body.is_empty() {
        let content_type = match content_type {
            "" => "application/json",
            other => other,
        };
        return Err(DecodeError::Answer(CallError::new(format!(
            "0-length response with status code: {} and content type: {content_type}",
            status.as_u16()
        ))));
    }
    if let Some(told) = failure(body) {
        return Err(DecodeError::Answer(told));
    }
    review(body, expected).map_err(|why| DecodeError::Answer(CallError::new(why)))
}

/// Reads an object that has a kind and an apiVersion, or is taken for one of `expected`.
fn review(body: &[u8], expected: Option<Expected>) -> Result<Value, String> {
    let wrong =
        |why: &dyn std::fmt::Display| format!("couldn't get version/kind; json parse error: {why}");
    let document = Document::new(body).map_err(|why| wrong(&why.0))?;
    let mut meta = document.type_meta().map_err(|why| wrong(&why.0))?;
    if let Some(expected) = expected {
        expected.check(&mut meta)?;
    }
    let quoted = || String::from_utf8_lossy(&body[..body.len().min(MAX_QUOTED)]).into_owned();
    if meta.kind.is_empty() {
        return Err(format!("Object 'Kind' is missing in '{}'", quoted()));
    }
    if meta.api_version.is_empty() {
        return Err(format!("Object 'apiVersion' is missing in '{}'", quoted()));
    }
    document.value().map_err(|why| wrong(&why.0))
}

/// The message of a Status that reports a failure; `None` for anything else.
fn failure(body: &[u8]) -> Option<CallError> {
    let meta = Document::new(body).ok()?.type_meta().ok()?;
    if meta.kind != "Status" || !matches!(meta.api_version.as_str(), "" | "v1") {
        return None;
    }
    let status = Document::new(body).ok()?.value().ok()?;
    (str_at(&status, "/status") != "Success").then(|| CallError::of_status(&status))
}

/// The text for an answer that is no success (apimachinery `errors.NewGenericServerResponse`).
fn status_text(status: StatusCode, content_type: &str, body: &[u8]) -> String {
    let is_text = content_type.is_empty() || content_type.trim_start().starts_with("text/");
    let told = match is_text {
        true => String::from_utf8_lossy(&body[..body.len().min(MAX_QUOTED)])
            .trim()
            .to_owned(),
        false => "unknown".to_owned(),
    };
    let fixed = match status.as_u16() {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        403 | 415 => return told,
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        406 if told.is_empty() || told == "unknown" => {
            "the server was unable to respond with a content type that the client supports"
        }
        406 => return told,
        409 => "the server reported a conflict",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        500.. => {
            return format!(
                "an error on the server ({}) has prevented the request from succeeding",
                go::quote(&told)
            );
        }
        code => {
            return format!(
                "the server responded with the status code {code} but did not return more information"
            );
        }
    };
    fixed.to_owned()
}

/// The time after which a webhook wants to be called again (client-go `checkWait`).
fn wait(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    if status != StatusCode::TOO_MANY_REQUESTS && !status.is_server_error() {
        return None;
    }
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// A time in whole seconds, rounded up, as Go prints it.
fn seconds(time: Duration) -> String {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests;
