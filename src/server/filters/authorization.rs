//! Authorization of requests (apiserver `endpoints/filters/authorization.go`).

use http::Response;

use super::{Filter, FilterContext, Next};
use crate::auth::authz;
use crate::endpoints::body::Body;

/// Answers 403 unless an authorizer allows the request.
pub struct Authorization;

impl Filter for Authorization {
    async fn handle<N: Next>(ctx: &mut FilterContext<'_>) -> Response<Body> {
        let (attributes, chain) = (ctx.request.attributes(), ctx.chain);
        match authz::require(chain.authorizer.as_ref(), &attributes).await {
            Ok(()) => N::handle(ctx).await,
            Err(status) => ctx.status(&status),
        }
    }
}
