//! Auditing of requests (apiserver `endpoints/filters/{audit,authn_audit}.go`).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::header::{HeaderMap, HeaderName, USER_AGENT};
use http::{HeaderValue, Response};

use super::{Filter, FilterContext, Next};
use crate::audit::{self, Audit, RequestFacts};
use crate::endpoints::body::Body;
use crate::meta::names::parse_ip_sloppy;
use crate::telemetry::latency::{self, Layer};
use crate::telemetry::requests::FilterName;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// Reports the request to the audit backend, as the policy says. A request whose event must be
/// stored, and cannot be, is refused.
pub struct AuditRequests;

impl Filter for AuditRequests {
    const SPAN: Option<&'static str> = Some("audit");

    async fn handle<N: Next>(ctx: &mut FilterContext<'_>) -> Response<Body> {
        let Some(audit) = begin(ctx) else {
            ctx.end_filter(FilterName::Audit);
            return N::handle(ctx).await;
        };
        for (key, value) in &ctx.annotations {
            audit.annotate(key, value);
        }
        if !audit.receive().await {
            audit.discard();
            audit::record_rejected();
            return super::internal_error(&ctx.request.uri, "failed to store audit event");
        }
        match ctx.request_mut() {
            Ok(request) => request.audit = Some(audit.clone()),
            Err(status) => return ctx.status(&status),
        }
        let latencies = audit.latencies();
        latencies.add(Layer::Authentication, ctx.authentication);
        ctx.audit = Some(audit);
        ctx.end_filter(FilterName::Audit);
        latency::scope(latencies, N::handle(ctx)).await
    }
}

/// Returns the event of the request; `None` if nobody wants it.
fn begin(ctx: &FilterContext<'_>) -> Option<Arc<Audit>> {
    let auditor = ctx.chain.auditor.as_ref()?;
    auditor.begin(&ctx.request.attributes(), || facts(ctx))
}

/// Reports a request that is refused before its user is known: once, as its answer begins.
pub async fn refused(ctx: &FilterContext<'_>, status: &crate::meta::Status) {
    if let Some(audit) = begin(ctx) {
        audit.response_status(status);
        audit.start(status.code).await;
        audit.discard();
    }
}

fn facts(ctx: &FilterContext<'_>) -> RequestFacts {
    let request = &ctx.request;
    let text = |value: Option<&HeaderValue>| {
        String::from_utf8_lossy(value.map_or(b"", HeaderValue::as_bytes)).into_owned()
    };
    let uri = request.uri.path_and_query();
    let now = ctx.chain.api.clock.now();
    RequestFacts {
        audit_id: text(Some(&ctx.audit_id)),
        uri: uri.map_or_else(|| "/".to_owned(), ToString::to_string),
        user_agent: text(request.headers.get(USER_AGENT)),
        source_ips: source_ips(&request.headers, ctx.connection.remote),
        received: now.saturating_sub(ctx.received.elapsed()).unwrap_or(now),
    }
}

/// Returns the addresses that the request came by: those that proxies tell, then that of the peer
/// (apimachinery `util/net.SourceIPs`).
fn source_ips(headers: &HeaderMap, remote: SocketAddr) -> Vec<String> {
    let text = |name: HeaderName| {
        let value: Option<&HeaderValue> = headers.get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let parts = text(FORWARDED_FOR).split(',');
    let mut found: Vec<IpAddr> = parts
        .filter_map(|part| parse_ip_sloppy(part.trim()))
        .collect();
    if let Some(real) = parse_ip_sloppy(text(REAL_IP)).filter(|ip| !found.contains(ip)) {
        found.push(real);
    }
    let remote = remote.ip().to_canonical();
    if found.last() != Some(&remote) {
        found.push(remote);
    }
    found
        .iter()
        .map(|ip| ip.to_canonical().to_string())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_proxies_and_peer() {
        let ips = |forwarded: &'static str, real: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(FORWARDED_FOR, HeaderValue::from_static(forwarded));
            headers.insert(REAL_IP, HeaderValue::from_static(real));
            let remote = "[::ffff:10.0.0.1]:443".parse().expect("an address");
            source_ips(&headers, remote).join(" ")
        };
        assert_eq!(ips("", ""), "10.0.0.1");
        assert_eq!(
            ips("10.0.0.2, x, 10.0.0.3", ""),
            "10.0.0.2 10.0.0.3 10.0.0.1"
        );
        assert_eq!(ips("10.0.0.2", "10.0.0.2"), "10.0.0.2 10.0.0.1");
        assert_eq!(ips("10.0.0.2", "10.0.0.4"), "10.0.0.2 10.0.0.4 10.0.0.1");
        assert_eq!(ips("10.0.0.1", ""), "10.0.0.1");
    }
}
