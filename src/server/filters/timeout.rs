//! The deadline of a request (apiserver `endpoints/filters/request_deadline.go`,
//! `server/filters/timeout.go`).

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use http::Response;
use tokio::time::{Instant, sleep_until};

use super::{Filter, FilterContext, Next};
use crate::endpoints::Request;
use crate::endpoints::body::Body;
use crate::meta::Status;
use crate::meta::status::Result;
use crate::options::flags::parse_duration;
use crate::server::request_guard::RequestGuard;
use crate::telemetry::requests;

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
                Err(status) => return ctx.status(&status),
            },
        };
        ctx.timeout = timeout;
        let deadline = Instant::from(ctx.received + timeout);
        let until_routed = ctx.is_long_running.then(|| ctx.guard.clone());
        tokio::select! {
            biased;
            response = N::handle(ctx) => return response,
            () = expired(deadline, until_routed) => {}
        }
        let labels = ctx.labels();
        requests::terminated(&labels.as_metrics(), 504);
        if let Some(routed) = ctx.routed {
            requests::answered(&labels.as_metrics(), 504, routed.elapsed().as_secs_f64());
        }
        ctx.status(&Status::timeout(
            "request did not complete within the allotted timeout",
            0,
        ))
    }
}

/// Waits for the deadline; forever once a request whose deadline ends with routing is routed.
async fn expired(deadline: Instant, until_routed: Option<Arc<RequestGuard>>) {
    sleep_until(deadline).await;
    if until_routed.is_some_and(|guard| guard.is_routed()) {
        pending().await
    }
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
