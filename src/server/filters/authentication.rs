//! Authentication of requests (apiserver `endpoints/filters/authentication.go`).

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use http::Response;
use percent_encoding::percent_decode_str;

use super::{Filter, FilterContext, Next, audit, max_in_flight};
use crate::auth::ANONYMOUS;
use crate::auth::authn::{Authenticated, Authenticator, AuthnError, Credentials};
use crate::endpoints::body::Body;
use crate::endpoints::respond;
use crate::meta::Status;
use crate::telemetry::metrics::{
    Counter, CounterSeries, DOUBLED_MILLISECONDS, Declared, Histogram, HistogramSeries,
};
use crate::telemetry::requests::{self, FilterName};

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
    DOUBLED_MILLISECONDS,
);
pub static METRICS: &[&dyn Declared] = &[&USERS, &ATTEMPTS, &SECONDS];

/// The users that are counted by their names (apiserver `endpoints/filters/metrics.go`), and what
/// others are counted as.
const COUNTED: [&str; 7] = [
    "admin",
    "client",
    "kube_proxy",
    "kubelet",
    "system:serviceaccount:kube-system:default",
    "email_id",
    "other",
];
const RESULTS: [&str; 3] = ["success", "failure", "error"];

/// The series of the attempts with their results, and of the users.
struct Attempts {
    users: [CounterSeries; 7],
    results: [(CounterSeries, HistogramSeries); 3],
}

static SERIES: LazyLock<Attempts> = LazyLock::new(|| Attempts {
    users: COUNTED.map(|user| USERS.series(&[user])),
    results: RESULTS.map(|result| (ATTEMPTS.series(&[result]), SECONDS.series(&[result]))),
});

/// Counts an attempt.
fn record(outcome: &Result<Option<Authenticated>, AuthnError>, took: Duration) {
    let result = match outcome {
        Ok(Some(known)) => {
            let name = known.user.name.as_str();
            let named = COUNTED[..5].iter().position(|one| *one == name);
            SERIES.users[named.unwrap_or(if name.contains('@') { 5 } else { 6 })].inc();
            0
        }
        Ok(None) => 1,
        Err(_) => 2,
    };
    let (attempts, seconds) = &SERIES.results[result];
    attempts.inc();
    seconds.observe(took.as_secs_f64());
}

/// Authenticates the user of the request. HTTP/2 connections of unauthenticated clients, and those
/// beyond the limit of a user, are closed.
pub struct Authentication;

impl Filter for Authentication {
    const SPAN: Option<&'static str> = Some("authentication");

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
        let took = start.elapsed();
        record(&authenticated, took);
        requests::filtered(FilterName::Authentication, took);
        ctx.filter_began = start + took;
        ctx.authentication = took;
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
                audit::refused(ctx, &status).await;
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
