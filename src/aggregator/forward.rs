//! Requests that are handed on to the server behind an APIService (kube-aggregator
//! `apiserver/handler_proxy.go`).

use std::time::Duration;

use http::header::{HOST, HeaderName, VIA};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::remote_user;
use super::routes::Route;
use crate::auth::User;
use crate::meta::go::url::query_parameters;
use crate::proxy::{self, Front, Inbound, ProxyError, ResponseBody};
use crate::telemetry::metrics::{Counter, Declared};
use crate::webhook::ServiceResolver;
use crate::webhook::tls::Deprecated;

static NO_NAMES: Counter = Counter::new(
    "apiserver_kube_aggregator_x509_missing_san_total",
    "[ALPHA] Counts the number of requests to servers missing SAN extension in their serving certificate OR the number of connection failures due to the lack of x509 certificate SAN extension missing (either/or, based on the runtime environment)",
    &[],
);
static SHA1: Counter = Counter::new(
    "apiserver_kube_aggregator_x509_insecure_sha1_total",
    "[ALPHA] Counts the number of requests to servers with insecure SHA1 signatures in their serving certificate OR the number of connection failures due to the insecure SHA1 signatures (either/or, based on the runtime environment)",
    &[],
);
pub static METRICS: &[&dyn Declared] = &[&NO_NAMES, &SHA1];

/// The time in which a server must have answered a request for its discovery documents
/// (`aggregatedDiscoveryTimeout`).
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);
/// The header by which a request is found in the logs of all servers.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// The manner in which requests are handed on.
pub struct Forwarder {
    /// Names this process to others, so that requests that come back are noticed.
    pub instance: String,
    pub reject_redirects: bool,
}

/// A request, and who asks.
pub struct Forwarded<'a> {
    pub inbound: Inbound,
    pub user: &'a User,
    /// Decoded.
    pub path: &'a str,
    pub is_resource: bool,
    pub audit_id: &'a HeaderValue,
}

/// A refusal, as plain text.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    pub status: StatusCode,
    pub text: String,
}

impl Refusal {
    fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self {
            status,
            text: text.into(),
        }
    }

    fn unavailable() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "service unavailable")
    }
}

impl From<ProxyError> for Refusal {
    fn from(why: ProxyError) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, why.to_string())
    }
}

impl Forwarder {
    /// Hands a request on to the server of a route.
    ///
    /// # Errors
    /// The text that clients get instead of an answer.
    pub async fn forward(
        &self,
        route: &Route,
        services: &dyn ServiceResolver,
        request: Forwarded<'_>,
    ) -> Result<Response<ResponseBody>, Refusal> {
        if !route.service.is_available || self.has_passed(&request.inbound.headers) {
            return Err(Refusal::unavailable());
        }
        let internal = |why| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, why);
        let transport = route.backend.transport().map_err(internal)?;
        let is_discovery = !request.is_resource && segments(request.path) == 3;
        let mut inbound = request.inbound;
        let query = encode(inbound.uri.query().unwrap_or_default());
        let location = route.backend.locate(services, request.path, &query).await;
        let location = location.map_err(|why| {
            let service = &route.backend.remote.service;
            tracing::warn!(
                "error resolving {}/{}: {why}",
                service.namespace,
                service.name
            );
            Refusal::unavailable()
        })?;
        let uri = location.path_and_query().parse();
        inbound.uri = uri.map_err(|_| ProxyError::Other("the path is none".to_owned()))?;
        let headers = &mut inbound.headers;
        // The client could name the headers of its user there, which would end here.
        proxy::settle_connection(headers);
        remote_user::set_headers(headers, request.user).map_err(ProxyError::Unreachable)?;
        headers.insert(AUDIT_ID, request.audit_id.clone());
        for (name, value) in [
            (HOST, location.authority.clone()),
            (VIA, format!("1.1 {}", self.instance)),
        ] {
            let value = HeaderValue::try_from(value);
            let value = value.map_err(|why| ProxyError::Unreachable(why.to_string()))?;
            match name {
                VIA => drop(headers.append(name, value)),
                name => drop(headers.insert(name, value)),
            }
        }
        let front = Front {
            scheme: location.scheme.as_str().to_owned(),
            host: location.authority.clone(),
            path: location.path.clone(),
        };
        let options = proxy::Options {
            front: Some(front),
            reject_redirects: self.reject_redirects,
            ..proxy::Options::default()
        };
        let answer = proxy::forward(inbound, &location, transport, &options);
        if !is_discovery {
            return Ok(answer.await.inspect_err(note_certificate)?);
        }
        let late = |_| ProxyError::Unreachable("context deadline exceeded".to_owned());
        let answer = tokio::time::timeout(DISCOVERY_TIMEOUT, answer).await;
        Ok(answer.map_err(late)?.inspect_err(note_certificate)?)
    }

    /// Reports whether a request has come by this process before: its service leads back here.
    fn has_passed(&self, headers: &HeaderMap) -> bool {
        headers.get_all(VIA).into_iter().any(|value| {
            let value = value.to_str().unwrap_or_default();
            value.contains(&self.instance)
        })
    }
}

/// Counts an error that is about a certificate.
fn note_certificate(why: &ProxyError) {
    // The others have texts of the server.
    if let ProxyError::Unreachable(why) | ProxyError::Other(why) = why {
        Deprecated::count(why, &NO_NAMES, &SHA1);
    }
}

fn segments(path: &str) -> usize {
    path.trim_matches('/').split('/').count()
}

/// The query as Go's `Values.Encode` writes it: sorted by key, without what is malformed.
fn encode(query: &str) -> String {
    let mut pairs: Vec<_> = query_parameters(query).collect();
    pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
    form_urlencoded::Serializer::new(String::new())
        .extend_pairs(pairs)
        .finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_written_as_gos_are() {
        for (query, want) in [
            ("", ""),
            (
                "watch=1&a=b%20c&a=%C3%BC&empty",
                "a=b+c&a=%C3%BC&empty=&watch=1",
            ),
        ] {
            assert_eq!(encode(query), want, "{query}");
        }
        assert_eq!(segments("/apis/a.example.com/v1/"), 3);
        assert_eq!(segments("/apis/a.example.com/v1/things"), 4);
    }
}
