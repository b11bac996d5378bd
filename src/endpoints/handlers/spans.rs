//! The spans of requests, and their steps (apiserver `endpoints/handlers/trace_util.go`).

use std::borrow::Cow;

use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Version};
use opentelemetry::KeyValue;

use super::RequestContext;
use crate::endpoints::Request;
use crate::endpoints::request_info::RequestInfo;
use crate::telemetry::trace::{self, truncated};

/// The longest name of a client (`maxUserAgentLength`).
const MAX_AGENT: usize = 1024;
/// The prefix of the media types of server-side apply.
const APPLY_MEDIA_PREFIX: &str = "application/apply-patch+";
/// The longest audit ID (`audit/context.go`).
const MAX_AUDIT_ID: usize = 64;

/// Returns the name of the span of a request; `None` for watches and streams.
pub fn operation(info: &RequestInfo) -> Option<&'static str> {
    if super::write::is_stream(info) {
        return None;
    }
    match info.verb.as_str() {
        "get" => Some("Get"),
        "list" => Some("List"),
        "create" => Some("Create"),
        "update" => Some("Update"),
        "patch" => Some("Patch"),
        "delete" | "deletecollection" => Some("Delete"),
        _ => None,
    }
}

/// Returns what the span tells of its request.
pub fn attributes(request: &Request) -> Vec<KeyValue> {
    let info = &request.info;
    let scope = match (info.url_name().is_empty(), info.namespace.is_empty()) {
        (false, _) => "resource",
        (true, false) => "namespace",
        (true, true) => "cluster",
    };
    let verb = match info.verb.as_str() {
        "list" => "LIST",
        "get" => "GET",
        "patch" if is_apply(request) => "APPLY",
        _ => request.method.as_str(),
    };
    let client = request
        .client
        .map(|client| client.to_canonical().to_string());
    vec![
        KeyValue::new("accept", truncated(&request.header(ACCEPT))),
        KeyValue::new("audit-id", audit_id(request)),
        KeyValue::new("client", client.unwrap_or_else(|| "unknown".to_owned())),
        KeyValue::new("api-group", truncated(&info.group)),
        KeyValue::new("api-version", truncated(&info.version)),
        KeyValue::new("name", truncated(&info.name)),
        KeyValue::new("subresource", truncated(&info.subresource)),
        KeyValue::new("namespace", truncated(&info.namespace)),
        KeyValue::new("protocol", protocol(request.version)),
        KeyValue::new("resource", truncated(&info.resource)),
        KeyValue::new("scope", scope),
        KeyValue::new("url", truncated(&info.path)),
        KeyValue::new("user-agent", agent(request)),
        KeyValue::new("verb", truncated(verb)),
    ]
}

fn is_apply(request: &Request) -> bool {
    let media = request.header(CONTENT_TYPE);
    media.starts_with(APPLY_MEDIA_PREFIX)
}

/// Returns what the span of the writing of an answer tells.
pub fn of_answer(ctx: &RequestContext<'_>) -> Vec<KeyValue> {
    let request = ctx.request;
    vec![
        KeyValue::new("audit-id", audit_id(request)),
        KeyValue::new("method", request.method.as_str().to_owned()),
        KeyValue::new("url", truncated(&request.info.path)),
        KeyValue::new("protocol", protocol(request.version)),
        KeyValue::new("mediaType", ctx.output.media.name()),
    ]
}

/// Adds a step that is about a body.
pub fn length(name: &'static str, body: &[u8]) {
    let length = i64::try_from(body.len()).unwrap_or(i64::MAX);
    trace::event(name, || vec![KeyValue::new("len", length)]);
}

/// Adds the step of a write that has been done.
pub fn stored(succeeded: bool, body: &[u8]) {
    length(
        match succeeded {
            true => "Write to database call succeeded",
            false => "Write to database call failed",
        },
        body,
    );
}

fn audit_id(request: &Request) -> String {
    let id = request
        .audit_id
        .as_ref()
        .map_or(&b""[..], HeaderValue::as_bytes);
    cut(String::from_utf8_lossy(id), MAX_AUDIT_ID).0
}

fn agent(request: &Request) -> String {
    match request.header(USER_AGENT) {
        agent if agent.is_empty() => "unknown".to_owned(),
        agent => match cut(agent, MAX_AGENT) {
            (agent, false) => agent,
            (agent, true) => format!("{agent}...TRUNCATED"),
        },
    }
}

/// At most so many bytes of a text, and whether it had more.
fn cut(text: Cow<'_, str>, most: usize) -> (String, bool) {
    let end = text.floor_char_boundary(most);
    let part = text.get(..end).unwrap_or_default().to_owned();
    (part, text.len() > most)
}

/// The version of HTTP as Go names it.
fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    }
}
