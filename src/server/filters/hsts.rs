//! Strict transport security (apiserver `server/filters/hsts.go`).

use http::Response;
use http::header::STRICT_TRANSPORT_SECURITY;

use super::{Filter, FilterContext, Next};
use crate::endpoints::body::Body;

/// Makes browsers use nothing but HTTPS.
pub struct Hsts;

impl Filter for Hsts {
    async fn handle<N: Next>(ctx: &mut FilterContext<'_>) -> Response<Body> {
        let directives = ctx.chain.browsers.transport_security.clone();
        let mut response = N::handle(ctx).await;
        if let Some(directives) = directives {
            let headers = response.headers_mut();
            headers
                .entry(STRICT_TRANSPORT_SECURITY)
                .or_insert(directives);
        }
        response
    }
}
