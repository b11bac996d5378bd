//! The logs of a container, which its kubelet sends (core/pod `LogREST`, apiserver
//! `generic/rest/streamer.go`).

use std::future::ready;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::header::{CONTENT_TYPE, HOST, HeaderValue, LOCATION};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, BodyStream, StreamBody};

use super::log_options::LogOptions;
use super::{RequestContext, container, find, node};
use crate::endpoints::body::{self, Body};
use crate::endpoints::websocket;
use crate::meta::status::{Details, Result};
use crate::meta::{Status, go};
use crate::proxy::{self, Location, ResponseBody};
use crate::telemetry::metrics::{Counter, Declared};

/// The bytes of a kubelet's error that a client is told (apiserver `maxReadLength`).
const MAX_ERROR_BYTES: usize = 50_000;

static INSECURE_BACKENDS: Counter = Counter::new(
    "kube_apiserver_pod_logs_insecure_backend_total",
    "[ALPHA] Total number of requests for pods/logs sliced by usage type: enforce_tls, skip_tls_allowed, skip_tls_denied",
    &["usage"],
);
static OLD_INSECURE_BACKENDS: Counter = Counter::deprecated(
    "kube_apiserver_pod_logs_pods_logs_insecure_backend_total",
    "1.27.0",
    "[ALPHA] Total number of requests for pods/logs sliced by usage type: enforce_tls, skip_tls_allowed, skip_tls_denied",
    &["usage"],
);
static OLD_TLS_FAILURES: Counter = Counter::deprecated(
    "kube_apiserver_pod_logs_pods_logs_backend_tls_failure_total",
    "1.27.0",
    "[ALPHA] Total number of requests for pods/logs that failed due to kubelet server TLS verification",
    &[],
);
static TLS_FAILURES: Counter = Counter::new(
    "kube_apiserver_pod_logs_backend_tls_failure_total",
    "[ALPHA] Total number of requests for pods/logs that failed due to kubelet server TLS verification",
    &[],
);

pub static METRICS: &[&dyn Declared] = &[
    &INSECURE_BACKENDS,
    &TLS_FAILURES,
    &OLD_INSECURE_BACKENDS,
    &OLD_TLS_FAILURES,
];

/// Streams a log. That of a pod that no node runs yet is empty.
///
/// # Errors
/// The options are wrong, there is no such container, or its kubelet does not answer or refuses.
pub async fn handle(ctx: &RequestContext<'_>) -> Result<Response<Body>> {
    let (query, name) = (&ctx.request.query, ctx.request.info.url_name());
    let options = LogOptions::read(query, name)?;
    let usage = match options.is_insecure {
        true => "skip_tls_allowed",
        false => "enforce_tls",
    };
    INSECURE_BACKENDS.inc(&[usage]);
    OLD_INSECURE_BACKENDS.inc(&[usage]);
    let pod = find(ctx, name).await?;
    let container = container(&pod, query.get("container").unwrap_or(""))?;
    let Ok(node) = node::node_of(&pod) else {
        let mut response = Response::new(body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        return Ok(response);
    };
    let kubelet = node::kubelet(ctx, node).await?;
    let path = format!(
        "/containerLogs/{}/{}/{container}",
        pod.namespace(),
        pod.name()
    );
    let location = kubelet.location(path, options.to_query());
    let transport = match options.is_insecure {
        true => ctx.api.kubelets.insecure_transport(),
        false => ctx.api.kubelets.transport(),
    };
    let request = request(&location).map_err(|why| failed(&location, &why.to_string()))?;
    let answer = transport.send(request).await.map_err(|why| {
        if why.contains("x509:") {
            TLS_FAILURES.inc(&[]);
            OLD_TLS_FAILURES.inc(&[]);
        }
        failed(&location, &why)
    })?;
    if is_redirect(&answer) {
        return Err(failed(&location, "redirects forbidden"));
    }
    if !(200..=206).contains(&answer.status().as_u16()) {
        return Err(refusal(ctx, answer).await);
    }
    respond(ctx, frames(answer.into_body()))
}

fn request(location: &Location) -> http::Result<Request<proxy::RequestBody>> {
    let request = Request::get(location.uri()?).header(HOST, location.authority.as_str());
    request.body(proxy::empty())
}

/// The error of a request, as Go's client tells it.
fn failed(location: &Location, why: &str) -> Status {
    let url = go::quote(&location.to_string());
    Status::failure(500, "", format!("Get {url}: {why}"))
}

fn is_redirect(answer: &Response<ResponseBody>) -> bool {
    matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308)
        && answer.headers().contains_key(LOCATION)
}

/// The bytes of an answer until its end. One that breaks off ends: its client has had the rest.
fn frames(body: ResponseBody) -> impl Stream<Item = Bytes> + Send + 'static {
    BodyStream::new(body)
        .take_while(|frame| ready(frame.is_ok()))
        .filter_map(|frame| ready(frame.ok().and_then(|frame| frame.into_data().ok())))
}

fn respond(
    ctx: &RequestContext<'_>,
    frames: impl Stream<Item = Bytes> + Send + 'static,
) -> Result<Response<Body>> {
    if websocket::is_requested(ctx.request) {
        let tasks = &ctx.api.tasks;
        return websocket::stream_bytes(ctx.request, tasks, frames);
    }
    let frames = frames.map(|frame| Ok(Frame::data(frame)));
    let mut response = Response::new(body::stream(StreamBody::new(frames)));
    let plain = HeaderValue::from_static("text/plain");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    Ok(response)
}

/// The error of a kubelet (apiserver `generic/rest/response_checker.go`).
async fn refusal(ctx: &RequestContext<'_>, answer: Response<ResponseBody>) -> Status {
    let code = answer.status().as_u16();
    let text = match text(answer.into_body()).await {
        Ok(text) => text,
        Err(why) => return Status::internal(why),
    };
    match code {
        500 => Status::internal(text),
        400 => Status::bad_request(text),
        code => server_response(code, &text, ctx.request.info.url_name()),
    }
}

/// Returns the first bytes of a body as text.
async fn text(mut body: ResponseBody) -> std::result::Result<String, String> {
    let mut bytes = Vec::new();
    while bytes.len() < MAX_ERROR_BYTES {
        match body.frame().await {
            Some(Ok(frame)) => bytes.extend_from_slice(&frame.into_data().unwrap_or_default()),
            Some(Err(why)) => return Err(why.to_string()),
            None => break,
        }
    }
    bytes.truncate(MAX_ERROR_BYTES);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The Status of an answer that is none (apimachinery `NewGenericServerResponse`).
fn server_response(code: u16, text: &str, name: &str) -> Status {
    let known = |text: &str| (!text.is_empty() && text != "unknown").then(|| text.to_owned());
    let (reason, message) = match code {
        401 => (
            "Unauthorized",
            "the server has asked for the client to provide credentials".to_owned(),
        ),
        403 => ("Forbidden", text.to_owned()),
        404 => (
            "NotFound",
            "the server could not find the requested resource".to_owned(),
        ),
        405 => (
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource".to_owned(),
        ),
        406 => (
            "NotAcceptable",
            known(text).unwrap_or_else(|| {
                let none = "the server was unable to respond with a content type that the client supports";
                none.to_owned()
            }),
        ),
        409 => ("Conflict", "the server reported a conflict".to_owned()),
        415 => ("UnsupportedMediaType", text.to_owned()),
        422 => (
            "Invalid",
            "the server rejected our request due to an error in our request".to_owned(),
        ),
        429 => (
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later"
                .to_owned(),
        ),
        503 => (
            "ServiceUnavailable",
            "the server is currently unable to handle the request".to_owned(),
        ),
        504 => (
            "Timeout",
            "the server was unable to return a response in the time allotted, but may still be processing the request".to_owned(),
        ),
        500.. => (
            "InternalError",
            format!(
                "an error on the server ({}) has prevented the request from succeeding",
                go::quote(text)
            ),
        ),
        code => (
            "",
            format!(
                "the server responded with the status code {code} but did not return more information"
            ),
        ),
    };
    let message = format!("{message} ( pods/log {name})");
    let mut status = Status::failure(code, reason, message);
    status.details = Some(Box::new(Details {
        name: name.to_owned(),
        kind: "pods/log".to_owned(),
        ..Details::default()
    }));
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_kubelets_read_as_upstreams() {
        for (code, text, reason, message) in [
            (
                404,
                "no such container",
                "NotFound",
                "the server could not find the requested resource ( pods/log p)",
            ),
            (
                403,
                "Forbidden (user=x)",
                "Forbidden",
                "Forbidden (user=x) ( pods/log p)",
            ),
            (
                502,
                "bad",
                "InternalError",
                "an error on the server (\"bad\") has prevented the request from succeeding ( pods/log p)",
            ),
            (
                302,
                "",
                "",
                "the server responded with the status code 302 but did not return more information ( pods/log p)",
            ),
        ] {
            let status = server_response(code, text, "p");
            assert_eq!((&*status.reason, &*status.message), (reason, message));
        }
    }
}
