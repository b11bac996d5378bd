//! Moves HTTP/2 clients to other servers (apiserver `server/filters/goaway.go`).

use http::Response;

use super::{Filter, FilterContext, Next};
use crate::endpoints::body::Body;

/// The HTTP/2 clients that are asked to open a new connection.
#[derive(Clone, Copy, Debug)]
pub struct Goaway {
    /// The probability that a request has its client told so.
    pub chance: f64,
    /// Those that are not authenticated (apiserver `endpoints/filters/authentication.go`, for
    /// CVE-2023-44487).
    pub unauthenticated: bool,
}

/// Closes the connection of a request gracefully with some probability.
pub struct ProbabilisticGoaway;

impl Filter for ProbabilisticGoaway {
    async fn handle<N: Next>(ctx: &mut FilterContext<'_>) -> Response<Body> {
        let chance = ctx.chain.goaway.chance;
        if chance > 0.0 && rand::random::<f64>() < chance {
            ctx.connection.go_away();
        }
        N::handle(ctx).await
    }
}
