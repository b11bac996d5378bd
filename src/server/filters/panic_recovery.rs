//! Answers requests whose handling panics (apiserver `server/filters/wrap.go`).

use std::pin::pin;

use http::Response;

use super::{Filter, FilterContext, Next, request_log};
use crate::endpoints::body::Body;
use crate::endpoints::respond;
use crate::telemetry::panics::{self, Panic};
use crate::telemetry::requests;

/// The maximum length of a logged user name, in bytes.
const MAX_LOGGED_NAME: usize = 256;

/// Logs and counts a panic, and answers 500.
pub struct PanicRecovery;

impl Filter for PanicRecovery {
    async fn handle<N: Next>(ctx: &mut FilterContext<'_>) -> Response<Body> {
        let panic = match panics::guard(pin!(N::handle(ctx))).await {
            Ok(response) => return response,
            Err(panic) => panic,
        };
        log(ctx, &panic);
        if let Some(audit) = &ctx.audit {
            audit.panicked(&panic.message).await;
        }
        requests::aborted(&ctx.labels().as_metrics());
        respond::text(
            500,
            "This request caused apiserver to panic. Look in the logs for details.\n",
        )
    }
}

fn log(ctx: &FilterContext<'_>, panic: &Panic) {
    let request = &ctx.request;
    tracing::error!(
        method = %request.method,
        URI = ?request_log::redacted(&request.uri),
        user = ?request_log::truncated(&request.user.name, MAX_LOGGED_NAME),
        "audit-ID" = ?ctx.audit_id,
        location = panic.location,
        backtrace = panic.backtrace,
        "a request panicked: {}",
        panic.message
    );
}
