//! The line that is logged of each request at `-v=3` and above (apiserver `server/httplog`).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use http::Uri;

/// Query parameters whose values are logged: the options of the API. Any other value may be a
/// secret.
const SHOWN: [&str; 21] = [
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
/// The longest that a text of the client is logged, in bytes.
const MAX_TEXT: usize = 2048;
/// The longest that an audit ID is logged (apiserver `audit/context.go`).
const MAX_AUDIT_ID: usize = 64;

/// What is known of a request before it is answered, and its status.
#[derive(Debug)]
pub struct RequestLog {
    pub begun: Instant,
    pub verb: &'static str,
    pub uri: Uri,
    pub user_agent: String,
    pub audit_id: String,
    pub remote: SocketAddr,
    /// 0 where there was no answer.
    pub status: u16,
}

impl RequestLog {
    /// Writes the line of a request whose answer took so many bytes. Texts of clients are quoted.
    pub fn write(&self, bytes: u64) {
        tracing::info!(
            target: "httplog",
            verb = self.verb,
            URI = ?shown(&self.uri),
            latency = ?latency(self.begun),
            userAgent = ?cut(&self.user_agent, MAX_TEXT),
            "audit-ID" = ?cut(&self.audit_id, MAX_AUDIT_ID),
            srcIP = ?self.remote.to_string(),
            resp = self.status,
            bytes,
            "HTTP"
        );
    }
}

fn latency(begun: Instant) -> Duration {
    Duration::from_micros(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX))
}

/// The path and the query of a URI, without values that may be secrets.
pub fn shown(uri: &Uri) -> String {
    let mut out = uri.path().to_owned();
    for (at, pair) in uri
        .query()
        .into_iter()
        .flat_map(|query| query.split('&'))
        .enumerate()
    {
        out.push(if at == 0 { '?' } else { '&' });
        match pair.split_once('=') {
            Some((name, value)) if !SHOWN.contains(&name) && !value.is_empty() => {
                out.push_str(name);
                out.push_str("=REDACTED");
            }
            _ => out.push_str(pair),
        }
        if out.len() > MAX_TEXT {
            break;
        }
    }
    cut(&out, MAX_TEXT).to_owned()
}

/// At most so many bytes of a text.
pub fn cut(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_unknown_parameters_are_not_logged() {
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
            assert_eq!(shown(&given.parse().expect("a URI")), logged);
        }
        assert_eq!(
            shown(&format!("/{}", "a".repeat(10_000)).parse().expect("a URI")).len(),
            MAX_TEXT
        );
        assert_eq!(cut("äöü", 3), "ä");
    }
}
