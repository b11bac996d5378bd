//! Responses: bodies and Statuses with the headers of their representation.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, VARY, WARNING, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};

use crate::meta::{Object, Status};

use super::body::{self, Body};
use super::encode::fixed_body;
use super::negotiate::{Form, Output};

/// The longest a Warning header may get in all, in bytes (apiserver
/// `endpoints/filters/warning.go`).
const WARNINGS_MAX_BYTES: usize = 4 * 1024;

/// An answer with a body that is all there.
pub fn bytes(code: u16, output: Output, bytes: impl Into<Bytes>) -> Response<Body> {
    response(code, output, body::full(bytes))
}

/// An answer with the headers that go with its representation.
pub fn response(code: u16, output: Output, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(output.media.name()));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    headers.insert(
        http::header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, private"),
    );
    response
}

/// The one place where a Status becomes an answer.
pub fn status(status: &Status, output: Output) -> Response<Body> {
    let object = Object::from_value(status.to_value()).unwrap_or_default();
    let fixed = Output {
        form: Form::Object,
        ..output
    };
    let mut response = bytes(status.code, fixed, fixed_body(&object, fixed));
    let retry = status
        .details
        .as_ref()
        .map_or(0, |details| details.retry_after_seconds);
    if retry > 0 {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(retry));
    }
    response
}

/// Adds Warning headers, as many as fit.
pub fn add_warnings(response: &mut Response<Body>, warnings: Vec<String>) {
    let mut total = 0;
    for warning in warnings {
        let quoted = warning
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace(['\n', '\r'], " ");
        total += quoted.len();
        if total > WARNINGS_MAX_BYTES {
            return;
        }
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

/// A plain text.
pub fn text(code: u16, message: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(body::full(message));
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
        .headers_mut()
        .insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The answer for a path without a route.
pub fn page_not_found() -> Response<Body> {
    text(404, "404 page not found\n")
}
