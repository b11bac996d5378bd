//! Requests to one webhook: retries, redirects, and the meaning of its answers (client-go `rest`,
//! Go's `net/http`).

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, LOCATION, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::{sleep, timeout_at};

use super::connector::{Connector, cause};
use super::metrics::Sent;
use super::remote::Expected;
use super::{AuthInfo, CallError, Limits, metrics};
use crate::base::blocking::{LARGE_BYTES, run_blocking_if};
use crate::codec::json::Document;
use crate::meta::{Value, go, str_at};
use crate::telemetry::metrics::GaugeGuard;
use crate::telemetry::trace;

/// Connections to a webhook that are kept while nobody uses them (client-go `idleConnsPerHost`).
pub const MAX_IDLE: usize = 25;
/// The time that such a connection is kept.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// The interval at which HTTP/2 connections are checked, and the time that an answer may take
/// (apimachinery `util/net`).
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// Attempts at a webhook that asks to be called again (client-go `maxRetries`).
const MAX_RETRIES: usize = 10;
/// The bytes of a text that an error quotes (client-go `maxUnstructuredResponseTextBytes`).
const MAX_QUOTED: usize = 2048;
/// The requests that a chain of redirects may lead to (Go's `defaultCheckRedirect`).
const MAX_REDIRECTS: usize = 10;

/// A webhook, with connections to it.
pub struct Endpoint {
    /// Without a query.
    url: String,
    agent: &'static str,
    auth: Option<AuthInfo>,
    http: legacy::Client<Connector, Full<Bytes>>,
    _counted: GaugeGuard,
}

/// A request on its way through redirects.
struct Journey {
    method: Method,
    uri: Uri,
    body: Bytes,
    requests: usize,
}

impl Endpoint {
    pub fn new(
        url: String,
        agent: &'static str,
        auth: Option<AuthInfo>,
        connector: Connector,
    ) -> Self {
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
            _counted: metrics::transport(),
        }
    }

    /// Posts to the URL with a query, and reads the answer: an object that has a kind, that of
    /// `expected` where it says none.
    ///
    /// # Errors
    /// Upstream's text.
    pub async fn post(
        &self,
        query: &str,
        body: Bytes,
        limits: Limits,
        expected: Option<Expected>,
    ) -> Result<Value, CallError> {
        let (status, headers, body) = self.exchange(query, body, limits).await?;
        let large = body.len() > LARGE_BYTES;
        run_blocking_if(large, || decode(status, &headers, &body, expected))
    }

    /// Posts to the URL with a query. Any answer with a code of success will do.
    ///
    /// # Errors
    /// Another answer, or none.
    pub async fn deliver(&self, query: &str, body: Bytes, limits: Limits) -> Result<(), CallError> {
        let (status, headers, body) = self.exchange(query, body, limits).await?;
        match status.is_success() {
            true => Ok(()),
            false => decode(status, &headers, &body, None).map(drop),
        }
    }

    /// Posts to the URL with a query, and returns the answer as it is.
    async fn exchange(
        &self,
        query: &str,
        body: Bytes,
        limits: Limits,
    ) -> Result<(StatusCode, HeaderMap, Bytes), CallError> {
        let deadline = Instant::now() + limits.timeout;
        let late = || CallError::late("context deadline exceeded");
        let url = format!("{}{query}", self.url);
        let failed = |why: CallError| why.wrap(|text| format!("Post {}: {text}", go::quote(&url)));
        let (begun, request_bytes, mut retries) = (Instant::now(), body.len(), 0);
        let counted = Sent {
            method: "POST",
            host: host(&self.url),
        };
        loop {
            let sent = timeout_at(deadline.into(), self.travel(&url, &body)).await;
            let answer = sent.unwrap_or_else(|_| Err(late()));
            counted.answered(answer.as_ref().ok().map(|answer| answer.status().as_u16()));
            let (head, body) = answer.map_err(failed)?.into_parts();
            let wait = wait(head.status, &head.headers).filter(|_| retries < MAX_RETRIES);
            if let Some(wait) = wait {
                retries += 1;
                counted.retried(head.status.as_u16());
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
            counted.done(begun.elapsed(), request_bytes, read.len());
            return Ok((head.status, head.headers, read));
        }
    }

    /// Sends a request and follows redirects, as Go's client does: 307 and 308 have the document
    /// posted again, the others ask with GET. Credentials go to the webhook's own host only, and
    /// nothing goes anywhere unencrypted: there upstream is more trusting.
    async fn travel(&self, url: &str, body: &Bytes) -> Result<Response<Incoming>, CallError> {
        let mut journey = Journey {
            method: Method::POST,
            uri: Uri::try_from(url).map_err(|why| CallError::new(why.to_string()))?,
            body: body.clone(),
            requests: 0,
        };
        let home = journey.uri.authority().cloned();
        loop {
            let is_home = journey.uri.authority() == home.as_ref();
            let answer = self.send(&journey, is_home).await?;
            journey.requests += 1;
            let Some(location) = redirection(&answer) else {
                return Ok(answer);
            };
            if journey.requests >= MAX_REDIRECTS {
                let why = format!("stopped after {MAX_REDIRECTS} redirects");
                return Err(CallError::new(why));
            }
            journey.uri = resolve(&journey.uri, location).map_err(CallError::new)?;
            if !matches!(answer.status().as_u16(), 307 | 308) {
                journey.method = Method::GET;
                journey.body = Bytes::new();
            }
        }
    }

    async fn send(
        &self,
        journey: &Journey,
        is_home: bool,
    ) -> Result<Response<Incoming>, CallError> {
        let mut request = Request::builder()
            .method(journey.method.clone())
            .uri(journey.uri.clone())
            .body(Full::new(journey.body.clone()))
            .map_err(|why| CallError::new(why.to_string()))?;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(self.agent));
        if let Some(auth) = self.auth.as_ref().filter(|_| is_home) {
            auth.authorize(headers).await.map_err(CallError::new)?;
        }
        let headers = request.headers_mut();
        let span = trace::http_client_span(&journey.method, &journey.uri, headers);
        let answer = self.http.request(request).await;
        if let Some(span) = span {
            match &answer {
                Ok(answer) => span.answered(answer.status()),
                Err(why) => span.fail(why.to_string()),
            }
        }
        answer.map_err(|why| {
            let why = cause(&why);
            metrics::failed(&why);
            CallError::of_transport(why)
        })
    }
}

/// The host of a URL, with its port, and without the user.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default()
}

fn text(headers: &HeaderMap, name: HeaderName) -> &str {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default()
}

/// The place that an answer leads to.
fn redirection(answer: &Response<Incoming>) -> Option<&str> {
    if !matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    Some(text(answer.headers(), LOCATION)).filter(|location| !location.is_empty())
}

/// Returns the place that a `Location` means, seen from another place.
fn resolve(from: &Uri, location: &str) -> Result<Uri, String> {
    let location = location.split('#').next().unwrap_or_default();
    let scheme = from.scheme_str().unwrap_or("https");
    let authority = from.authority().map_or("", |authority| authority.as_str());
    let absolute = match location {
        _ if location.starts_with("//") => format!("{scheme}:{location}"),
        _ if location.starts_with('/') => format!("{scheme}://{authority}{location}"),
        _ if location.contains("://") => location.to_owned(),
        _ => {
            let folder = from
                .path()
                .rsplit_once('/')
                .map_or("", |(folder, _)| folder);
            format!("{scheme}://{authority}{folder}/{location}")
        }
    };
    let uri = Uri::try_from(absolute.as_str());
    let uri = uri.map_err(|why| {
        let location = go::quote(location);
        format!("failed to parse Location header {location}: {why}")
    })?;
    match uri.scheme_str() {
        Some("https") => Ok(uri),
        Some("http") if scheme == "http" => Ok(uri),
        Some("http") => Err(format!(
            "a redirect to {absolute} is not followed: it is not encrypted"
        )),
        other => {
            let scheme = go::quote(other.unwrap_or_default());
            Err(format!("unsupported protocol scheme {scheme}"))
        }
    }
}

/// Reads an answer (client-go `Request.transformResponse`, `Result.Into`).
fn decode(
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    expected: Option<Expected>,
) -> Result<Value, CallError> {
    let content_type = text(headers, CONTENT_TYPE);
    if !(200..=206).contains(&status.as_u16()) {
        let told = failure(body).unwrap_or_else(|| {
            CallError::of_code(status.as_u16(), status_text(status, content_type, body))
        });
        return Err(told.with_code(status.as_u16()));
    }
    if body.is_empty() {
        let content_type = match content_type {
            "" => "application/json",
            other => other,
        };
        return Err(CallError::new(format!(
            "0-length response with status code: {} and content type: {content_type}",
            status.as_u16()
        )));
    }
    if let Some(told) = failure(body) {
        return Err(told);
    }
    review(body, expected).map_err(CallError::new)
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
