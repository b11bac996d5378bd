//! The log line of each request at `-v=3` and above (apiserver `server/httplog`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::USER_AGENT;
use http::{HeaderValue, Response, Uri};

use super::{Filter, FilterContext, Next, labels};
use crate::endpoints::body::Body;
use crate::flowcontrol::Flow;
use crate::telemetry::log;

/// Query parameters whose values are logged: the options of the API. Any other value may be a
/// secret.
const LOGGED_PARAMETERS: [&str; 21] = [
    "allowWatchBookmarks",
    "continue",
    "dryRun",
    "exclude",
    "fieldManager",
    "fieldSelector",
    "fieldValidation",
    "force",
    "gracePeriodSeconds",
    "includeObject",
    "labelSelector",
    "limit",
    "orphanDependents",
    "pretty",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeout",
    "timeoutSeconds",
    "watch",
];
/// The maximum length of a logged text of the client, in bytes.
const MAX_TEXT: usize = 2048;
/// The maximum length of a logged audit ID (apiserver `audit/context.go`).
const MAX_AUDIT_ID: usize = 64;
/// The maximum length of the logged names of flow schemas and priority levels (apiserver
/// `server/filters/priority-and-fairness.go`).
const MAX_FLOW_NAME: usize = 64;

/// Prepares the line of each request, if there is to be one.
pub struct LogRequests;

impl Filter for LogRequests {
    async fn handle<N: Next>(ctx: &mut FilterContext<'_>) -> Response<Body> {
        ctx.log = log::logs_requests().then(|| Box::new(RequestLog::of(ctx)));
        N::handle(ctx).await
    }
}

/// The fields of a request's line.
#[derive(Debug)]
pub struct RequestLog {
    begun: Instant,
    verb: &'static str,
    uri: Uri,
    user_agent: String,
    audit_id: String,
    remote: SocketAddr,
    /// 0 where there was no answer.
    pub status: u16,
    /// The flow schema that it matched.
    pub flow: Option<Arc<Flow>>,
}

impl RequestLog {
    fn of(ctx: &FilterContext<'_>) -> Self {
        let text = |value: Option<&HeaderValue>| {
            String::from_utf8_lossy(value.map_or(b"", HeaderValue::as_bytes)).into_owned()
        };
        Self {
            begun: ctx.received,
            verb: labels::normalized_verb(&ctx.request),
            uri: ctx.request.uri.clone(),
            user_agent: text(ctx.request.headers.get(USER_AGENT)),
            audit_id: text(Some(&ctx.audit_id)),
            remote: ctx.connection.remote,
            status: 0,
            flow: None,
        }
    }

    /// Writes the line of a request whose answer took so many bytes. Texts of clients are quoted.
    pub fn write(&self, bytes: u64) {
        let (schema, level) = self.flow.as_ref().map(|flow| flow.names()).unzip();
        tracing::info!(
            target: log::REQUEST_TARGET,
            verb = self.verb,
            URI = ?redacted(&self.uri),
            latency = ?latency(self.begun),
            userAgent = ?truncated(&self.user_agent, MAX_TEXT),
            "audit-ID" = ?truncated(&self.audit_id, MAX_AUDIT_ID),
            srcIP = ?self.remote.to_string(),
            apf_pl = level.map(|name| truncated(name, MAX_FLOW_NAME)),
            apf_fs = schema.map(|name| truncated(name, MAX_FLOW_NAME)),
            resp = self.status,
            bytes,
            "HTTP"
        );
    }
}

fn latency(begun: Instant) -> Duration {
    Duration::from_micros(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX))
}

/// The audit ID as it is logged.
pub fn audit_id(id: &HeaderValue) -> String {
    let text = String::from_utf8_lossy(id.as_bytes());
    truncated(&text, MAX_AUDIT_ID).to_owned()
}

/// The path and the query of a URI, without values that may be secrets.
pub fn redacted(uri: &Uri) -> String {
    let mut out = uri.path().to_owned();
    for (at, pair) in uri
        .query()
        .into_iter()
        .flat_map(|query| query.split('&'))
        .enumerate()
    {
        out.push(if at == 0 { '?' } else { '&' });
        match pair.split_once('=') {
            Some((name, value)) if !LOGGED_PARAMETERS.contains(&name) && !value.is_empty() => {
                out.push_str(name);
                out.push_str("=REDACTED");
            }
            _ => out.push_str(pair),
        }
        if out.len() > MAX_TEXT {
            break;
        }
    }
    truncated(&out, MAX_TEXT).to_owned()
}

/// At most so many bytes of a text.
pub fn truncated(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_log_redacts_unknown_parameters() {
        for (given, logged) in [
            (
                "/api/v1/pods?watch=1&labelSelector=a%3Db",
                "/api/v1/pods?watch=1&labelSelector=a%3Db",
            ),
            (
                "/x?access_token=secret&limit=5",
                "/x?access_token=REDACTED&limit=5",
            ),
            (
                "/x?command=echo&command=password",
                "/x?command=REDACTED&command=REDACTED",
            ),
            ("/livez?verbose", "/livez?verbose"),
            ("/", "/"),
        ] {
            assert_eq!(redacted(&given.parse().expect("a URI")), logged);
        }
        assert_eq!(
            redacted(&format!("/{}", "a".repeat(10_000)).parse().expect("a URI")).len(),
            MAX_TEXT
        );
        assert_eq!(truncated("äöü", 3), "ä");
    }
}
