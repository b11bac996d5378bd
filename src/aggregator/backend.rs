//! The server behind an APIService: the way to it, and the server's own requests to it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT, IF_NONE_MATCH, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::timeout_at;

use super::api_service::RemoteServer;
use super::remote_user;
use crate::auth::User;
use crate::base::dial::Dial;
use crate::meta::go;
use crate::proxy::{Location, RequestBody, Scheme, Transport, TransportConfig, empty};
use crate::webhook::ServiceResolver;
use crate::webhook::tls::{ClientCert, Trust};

/// The name of the server in its own requests.
const AGENT: &str = "kube-apiserver-aggregator";

/// A server, and connections to it.
#[derive(Debug)]
pub struct Backend {
    pub remote: RemoteServer,
    /// The text of the reason where the certificates cannot be used.
    transport: Result<Transport, String>,
}

/// A GET of the server itself.
pub struct Ask<'a> {
    pub path: &'a str,
    pub accept: &'a str,
    /// The entity tag of what is known already; empty where nothing is.
    pub etag: &'a str,
    pub user: &'a User,
    pub timeout: Duration,
    pub max_bytes: usize,
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    /// The value of a header, empty where it is absent or no text.
    pub fn header(&self, name: http::HeaderName) -> &str {
        let value = self.headers.get(name);
        value.and_then(|value| value.to_str().ok()).unwrap_or("")
    }
}

impl Backend {
    /// Returns the way to a server, to which this one presents a certificate.
    pub fn new(
        remote: RemoteServer,
        cert: Option<ClientCert>,
        dialer: Option<Arc<dyn Dial>>,
    ) -> Self {
        let service = &remote.service;
        let trust = match (remote.skips_verification, remote.ca_bundle.is_empty()) {
            (true, _) => Trust::All,
            (false, true) => Trust::System,
            (false, false) => Trust::Bundle(remote.ca_bundle.clone()),
        };
        let direct = TransportConfig::new(trust);
        let transport = Transport::new(TransportConfig {
            dialer: dialer.unwrap_or_else(|| direct.dialer.clone()),
            cert,
            server_name: Some(format!("{}.{}.svc", service.name, service.namespace)),
            speaks_http2: true,
            ..direct
        });
        Self { remote, transport }
    }

    /// The connections.
    ///
    /// # Errors
    /// The certificates cannot be used.
    pub fn transport(&self) -> Result<&Transport, String> {
        self.transport.as_ref().map_err(Clone::clone)
    }

    /// Returns where the server is now.
    ///
    /// # Errors
    /// The text of the reason that it is nowhere.
    pub async fn locate(
        &self,
        services: &dyn ServiceResolver,
        path: &str,
        query: &str,
    ) -> Result<Location, String> {
        let service = &self.remote.service;
        let found = services.resolve(&service.namespace, &service.name, service.port);
        Ok(Location {
            scheme: Scheme::Https,
            authority: found.await?,
            path: path.to_owned(),
            query: query.to_owned(),
        })
    }

    /// Gets a document.
    ///
    /// # Errors
    /// The text of the reason that there is no whole answer in time.
    pub async fn get(
        &self,
        services: &dyn ServiceResolver,
        ask: &Ask<'_>,
    ) -> Result<Answer, String> {
        let deadline = Instant::now() + ask.timeout;
        let location = self.locate(services, ask.path, "").await?;
        let late = || "request timed out".to_owned();
        let answer = async {
            let mut request = request(&location, ask.user)?;
            let headers = request.headers_mut();
            for (name, text) in [(ACCEPT, ask.accept), (IF_NONE_MATCH, ask.etag)] {
                let value = HeaderValue::from_str(text).map_err(|why| why.to_string())?;
                if !text.is_empty() {
                    headers.insert(name, value);
                }
            }
            let (head, body) = self.transport()?.send(request).await?.into_parts();
            let read = Limited::new(body, ask.max_bytes).collect().await;
            let body = read.map_err(|why| match why.is::<LengthLimitError>() {
                true => format!("the answer is larger than {} bytes", ask.max_bytes),
                false => why.to_string(),
            })?;
            Ok(Answer {
                status: head.status,
                headers: head.headers,
                body: body.to_bytes(),
            })
        };
        timeout_at(deadline.into(), answer)
            .await
            .unwrap_or_else(|_| Err(late()))
    }

    /// Asks for a document and reads nothing but the status.
    ///
    /// # Errors
    /// Go's text of the reason that there is none in time.
    pub async fn status(
        &self,
        location: &Location,
        user: &User,
        timeout: Duration,
    ) -> Result<StatusCode, String> {
        let deadline = Instant::now() + timeout;
        let answer = async {
            let request = request(location, user)?;
            self.transport()?.send(request).await
        };
        let late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
        let answer = timeout_at(deadline.into(), answer).await;
        let answer = answer.unwrap_or_else(|_| Err(late.to_owned()));
        let url = go::quote(&location.to_string());
        answer
            .map(|answer| answer.status())
            .map_err(|why| format!("Get {url}: {why}"))
    }
}

/// A GET by a user.
fn request(location: &Location, user: &User) -> Result<Request<RequestBody>, String> {
    let uri = location.uri().map_err(|why| why.to_string())?;
    let mut request = Request::new(empty());
    *request.uri_mut() = uri;
    let headers = request.headers_mut();
    headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
    remote_user::set_headers(headers, user)?;
    Ok(request)
}
