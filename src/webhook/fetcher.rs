//! A client that gets documents from servers whose addresses the configuration, or what it trusts,
//! names (Go's `http.Client` as kubernetes uses it for OpenID providers).

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{AUTHORIZATION, LOCATION};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::timeout_at;
use tokio_rustls::TlsConnector;

use super::connector::{Connector, HTTP_1_1, HTTP_2, Proxy, cause};
use super::endpoint::{IDLE_TIMEOUT, MAX_IDLE};
use super::proxy::Proxies;
use super::tls;
use crate::base::dial::Dial;
use crate::meta::go;

/// Redirects that are followed (Go's `http.Client`).
const MAX_REDIRECTS: usize = 10;
/// The time until a document is there.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The size of a document.
const MAX_DOCUMENT_BYTES: usize = 1024 * 1024;

/// The client. Its copies share their connections.
#[derive(Clone)]
pub struct Fetcher {
    http: legacy::Client<Connector, Full<Bytes>>,
}

/// A document.
#[derive(Clone, Debug)]
pub struct Fetched {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Fetcher {
    /// Returns a client that trusts a bundle of PEM certificates, or those of the system where it
    /// is empty.
    ///
    /// # Errors
    /// A bundle without certificates.
    pub fn new(ca_bundle: &[u8], dialer: Option<Arc<dyn Dial>>) -> Result<Self, String> {
        let trust = match ca_bundle {
            [] => tls::Trust::System,
            bundle => tls::Trust::Bundle(bundle.to_vec()),
        };
        let tls = tls::client_config(&trust, None, &[HTTP_2, HTTP_1_1])?;
        let connector = Connector {
            service: None,
            server_name: None,
            tls: TlsConnector::from(Arc::new(tls)),
            proxy: Proxy::FromEnvironment(Arc::new(Proxies::from_env())),
            dialer,
        };
        let http = legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE)
            .build(connector);
        Ok(Self { http })
    }

    /// Gets a document, with a bearer token where there is one: it is not sent to where a redirect
    /// leads.
    ///
    /// # Errors
    /// The text of the reason: there is no answer in time, or it is too large.
    pub async fn get(&self, url: &str, token: Option<&str>) -> Result<Fetched, String> {
        let deadline = Instant::now() + TIMEOUT;
        let failed = |why: String| format!("Get {}: {why}", go::quote(url));
        let late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
        let got = timeout_at(deadline.into(), self.follow(url, token)).await;
        got.unwrap_or_else(|_| Err(late.to_owned())).map_err(failed)
    }

    async fn follow(&self, url: &str, mut token: Option<&str>) -> Result<Fetched, String> {
        let mut uri = url.parse::<Uri>().map_err(|why| why.to_string())?;
        for _ in 0..=MAX_REDIRECTS {
            let document = self.once(&uri, token).await?;
            let location = document.headers.get(LOCATION);
            let Some(location) = location.filter(|_| document.status.is_redirection()) else {
                return Ok(document);
            };
            let next = resolve(&uri, location.to_str().unwrap_or_default())?;
            if uri.scheme_str() == Some("https") && next.scheme_str() != Some("https") {
                return Err(format!("a redirect from https to {next} is not followed"));
            }
            token = token.filter(|_| next.authority() == uri.authority());
            uri = next;
        }
        Err(format!("stopped after {MAX_REDIRECTS} redirects"))
    }

    async fn once(&self, uri: &Uri, token: Option<&str>) -> Result<Fetched, String> {
        let mut request = Request::get(uri.clone())
            .body(Full::default())
            .map_err(|why| why.to_string())?;
        if let Some(token) = token {
            let mut value = HeaderValue::try_from(format!("Bearer {token}"))
                .map_err(|_| "net/http: invalid header field value for \"Authorization\"")?;
            value.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        let answer = self.http.request(request).await;
        let (head, body) = answer.map_err(|why| cause(&why))?.into_parts();
        let body = Limited::new(body, MAX_DOCUMENT_BYTES).collect().await;
        let body = body.map_err(|why| format!("unable to read response body: {why}"))?;
        Ok(Fetched {
            status: head.status,
            headers: head.headers,
            body: body.to_bytes(),
        })
    }
}

/// The target of a redirect.
fn resolve(from: &Uri, location: &str) -> Result<Uri, String> {
    let wrong = |why: &dyn std::fmt::Display| {
        format!(
            "failed to parse Location header {}: {why}",
            go::quote(location)
        )
    };
    let parsed = location.parse::<Uri>().map_err(|why| wrong(&why))?;
    if parsed.scheme().is_some() {
        return Ok(parsed);
    }
    let mut parts = from.clone().into_parts();
    parts.path_and_query = parsed.path_and_query().cloned();
    Uri::from_parts(parts).map_err(|why| wrong(&why))
}
