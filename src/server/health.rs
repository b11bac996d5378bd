//! Health checks over HTTP, and the checks that every server has.

use http::header::{CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};

use super::shutdown::Shutdown;
use crate::endpoints::body::{Body, full};
use crate::telemetry::health::{Answer, Health, Scope};

/// A health answer as upstream's handlers write it.
pub fn response(answer: Answer) -> Response<Body> {
    let mut response = Response::new(full(answer.body));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Adds the checks that depend on nothing but the process: `ping`, and `shutdown`, which fails `/readyz` at the end.
pub fn add_basics(health: &Health, shutdown: &Shutdown) {
    health.add("ping", Scope::ALL, || async { Ok(()) });
    health.add("log", Scope::ALL, || async { Ok(()) });
    let shutdown = shutdown.clone();
    health.add("shutdown", Scope::READY, move || {
        let stopping = shutdown.is_stopping();
        async move { if stopping { Err("process is shutting down".to_owned()) } else { Ok(()) } }
    });
}
