//! The requests that a shutdown waits for (apiserver `server/filters/waitgroup.go`,
//! `watch_termination.go`).

use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};

use super::retry_after::is_exempt;
use super::{Filter, FilterContext, Next};
use crate::endpoints::body::Body;
use crate::endpoints::respond;
use crate::meta::Status;

/// The seconds after which a client may come again: to another server.
const RETRY_SECONDS: u64 = 1;

/// Lets a shutdown wait for requests; answers 503 for those that come when it waits already.
pub struct WaitGroup;

impl Filter for WaitGroup {
    async fn handle<N: Next>(ctx: &mut FilterContext<'_>) -> Response<Body> {
        let (shutdown, leaving) = (&ctx.chain.shutdown, &ctx.chain.leaving);
        let is_watch = ctx.request.info.verb == "watch";
        let tracker = match ctx.is_long_running {
            true if is_watch && !leaving.watch_grace.is_zero() => shutdown.watches(),
            true => return N::handle(ctx).await,
            false => shutdown.requests(),
        };
        if !shutdown.is_draining() {
            ctx.guard.set_in_progress(tracker.token());
        } else if is_watch || !is_exempt(&ctx.request) {
            return shutting_down();
        }
        N::handle(ctx).await
    }
}

/// The answer to a request that comes too late.
fn shutting_down() -> Response<Body> {
    let text = "apiserver is shutting down";
    let status = Status::failure(503, "ServiceUnavailable", text);
    let mut response = respond::text(503, format!("{}\n\n", status.to_value()));
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from(RETRY_SECONDS));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
