//! Cross-origin requests of browsers (apiserver `server/filters/cors.go`).

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ORIGIN,
};
use http::{HeaderValue, Method, Response, StatusCode};

use super::{Filter, FilterContext, Next};
use crate::endpoints::body::{self, Body};

/// Shows answers to the pages of allowed origins, and answers the preflight requests of browsers.
pub struct Cors;

impl Filter for Cors {
    async fn handle<N: Next>(ctx: &mut FilterContext<'_>) -> Response<Body> {
        let Some(origin) = allowed_origin(ctx) else {
            return N::handle(ctx).await;
        };
        let mut response = match ctx.request.method {
            Method::OPTIONS => {
                let mut response = Response::new(body::full(""));
                *response.status_mut() = StatusCode::NO_CONTENT;
                response
            }
            _ => N::handle(ctx).await,
        };
        let of = HeaderValue::from_static;
        for (name, value) in [
            (ACCESS_CONTROL_ALLOW_ORIGIN, origin),
            (
                ACCESS_CONTROL_ALLOW_METHODS,
                of("POST, GET, OPTIONS, PUT, DELETE, PATCH"),
            ),
            (
                ACCESS_CONTROL_ALLOW_HEADERS,
                of(
                    "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since",
                ),
            ),
            (ACCESS_CONTROL_EXPOSE_HEADERS, of("Date")),
            (ACCESS_CONTROL_ALLOW_CREDENTIALS, of("true")),
        ] {
            response.headers_mut().entry(name).or_insert(value);
        }
        response
    }
}

/// The origin of the request, if a pattern allows it.
fn allowed_origin(ctx: &FilterContext<'_>) -> Option<HeaderValue> {
    let patterns = &ctx.chain.browsers.allowed_origins;
    if patterns.is_empty() {
        return None;
    }
    let origin = ctx.request.headers.get(ORIGIN)?;
    let text = String::from_utf8_lossy(origin.as_bytes());
    let is_allowed = !text.is_empty() && patterns.iter().any(|pattern| pattern.is_match(&text));
    is_allowed.then(|| origin.clone())
}
