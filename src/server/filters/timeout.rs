//! The deadline of a request (apiserver `endpoints/filters/request_deadline.go`,
//! `server/filters/timeout.go`).

use std::future::pending;
use std::time::Duration;

use http::Response;
use tokio::time::{Instant, sleep_until};

use super::{Filter, FilterContext, Next, audit};
use crate::endpoints::Request;
use crate::endpoints::body::Body;
use crate::meta::Status;
use crate::meta::status::Result;
use crate::options::flags::parse_duration;
use crate::server::request_guard::RequestGuard;

/// Answers 504 for a request that takes longer than it may. Watches and streams have a deadline
/// only until they have passed all filters.
pub struct Timeout;

impl Filter for Timeout {
    async fn handle<N: Next>(ctx: &mut FilterContext<'_>) -> Response<Body> {
        let limit = ctx.chain.request_timeout;
        let timeout = match ctx.is_long_running {
            true => limit,
            false => match requested_timeout(&ctx.request, limit) {
                Ok(timeout) => timeout,
                Err(status) => {
                    audit::refused(ctx, &status).await;
                    return ctx.status(&status);
                }
            },
        };
        ctx.timeout = timeout;
        let deadline = Instant::from(ctx.received + timeout);
        let (guard, is_long_running) = (ctx.guard.clone(), ctx.is_long_running);
        tokio::select! {
            // What fails because the time is over comes too late.
            biased;
            () = expired(deadline, &guard, is_long_running) => {}
            response = N::handle(ctx) => return response,
        }
        ctx.series().0.terminated(504);
        if ctx.is_routed {
            ctx.count_answer(504);
        }
        ctx.status(&Status::timeout(
            "request did not complete within the allotted timeout",
            0,
        ))
    }
}

/// Waits for the deadline; forever once a request whose deadline ends with routing is routed.
async fn expired(deadline: Instant, guard: &RequestGuard, until_routed: bool) {
    sleep_until(deadline).await;
    if until_routed && guard.is_routed() {
        pending().await
    }
    // What goes on from here on is told so before it is dropped.
    guard.set_timed_out();
}

/// Returns the time that the request may take: what it asks for, within the limit.
fn requested_timeout(request: &Request, limit: Duration) -> Result<Duration> {
    let asked = request.query.get("timeout").filter(|text| !text.is_empty());
    let Some(asked) = asked else { return Ok(limit) };
    let asked = parse_duration(asked).map_err(|why| {
        Status::bad_request(format!(
            "invalid timeout specified in the request URL - {why}"
        ))
    })?;
    Ok(if asked.is_zero() {
        limit
    } else {
        asked.min(limit)
    })
}
