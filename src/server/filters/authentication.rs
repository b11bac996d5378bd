//! Authentication of requests (apiserver `endpoints/filters/authentication.go`).

use std::time::{Duration, Instant};

use http::Response;
use percent_encoding::percent_decode_str;

use super::{Filter, FilterContext, Next, audit, max_in_flight};
use crate::auth::ANONYMOUS;
use crate::auth::authn::{Authenticated, Authenticator, AuthnError, Credentials};
use crate::endpoints::body::Body;
use crate::endpoints::respond;
use crate::meta::Status;
use crate::telemetry::metrics::{Counter, Histogram};

static USERS: Counter = Counter::new(
    "authenticated_user_requests",
    "[ALPHA] Counter of authenticated requests broken out by username.",
    &["username"],
);
static ATTEMPTS: Counter = Counter::new(
    "authentication_attempts",
    "[ALPHA] Counter of authenticated attempts.",
    &["result"],
);
static SECONDS: Histogram = Histogram::new(
    "authentication_duration_seconds",
    "[ALPHA] Authentication duration in seconds broken out by result.",
    &["result"],
    &[
        0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
        8.192, 16.384,
    ],
);
/// The users that are counted by their names (apiserver `endpoints/filters/metrics.go`).
const COUNTED: [&str; 5] = [
    "admin",
    "client",
    "kube_proxy",
    "kubelet",
    "system:serviceaccount:kube-system:default",
];

/// Counts an attempt.
fn record(outcome: &Result<Option<Authenticated>, AuthnError>, took: Duration) {
    let result = match outcome {
        Ok(Some(known)) => {
            let name = known.user.name.as_str();
            let counted = COUNTED.into_iter().find(|one| *one == name);
            let other = if name.contains('@') {
                "email_id"
            } else {
                "other"
            };
            USERS.inc(&[counted.unwrap_or(other)]);
            "success"
        }
        Ok(None) => "failure",
        Err(_) => "error",
    };
    ATTEMPTS.inc(&[result]);
    SECONDS.observe(&[result], took.as_secs_f64());
}

/// Authenticates the user of the request. HTTP/2 connections of unauthenticated clients, and those
/// beyond the limit of a user, are closed.
pub struct Authentication;

impl Filter for Authentication {
    async fn handle<N: Next>(ctx: &mut FilterContext<'_>) -> Response<Body> {
        let (chain, connection) = (ctx.chain, ctx.connection);
        let path = percent_decode_str(ctx.request.uri.path()).decode_utf8_lossy();
        let credentials = Credentials {
            path: &path,
            headers: &ctx.request.headers,
            peer: &connection.peer,
        };
        let start = Instant::now();
        let authenticated = chain.authenticator.authenticate(&credentials).await;
        record(&authenticated, start.elapsed());
        let (user, warnings, annotations) = match authenticated {
            Ok(Some(known)) if known.user.name != ANONYMOUS => {
                if !connection.authenticated(&known.user) {
                    return max_in_flight::too_many_requests(1);
                }
                (Some(known.user), known.warnings, known.annotations)
            }
            other => {
                if chain.goaway.unauthenticated {
                    connection.go_away();
                }
                let user = other.ok().flatten().map(|known| known.user);
                (user, Vec::new(), Vec::new())
            }
        };
        let known = ctx.request_mut().and_then(|request| {
            chain.authenticator.strip(&mut request.headers);
            request.user = user.ok_or_else(Status::unauthorized)?;
            Ok(())
        });
        ctx.annotations = annotations;
        let mut response = match known {
            Ok(()) => N::handle(ctx).await,
            Err(status) => {
                audit::unauthenticated(ctx, &status).await;
                ctx.status(&status)
            }
        };
        respond::add_warnings(
            &mut response,
            warnings.into_iter().map(str::to_owned).collect(),
        );
        response
    }
}
