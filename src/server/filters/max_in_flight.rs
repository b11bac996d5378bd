//! The limit of requests that are answered at the same time, where there is no priority and
//! fairness (apiserver `server/filters/maxinflight.go`). Health checks do not count among them, and
//! `system:masters` is exempt.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};

use super::{Filter, FilterContext, Next};
use crate::auth::{MASTERS, User};
use crate::endpoints::body::{self, Body};
use crate::endpoints::request_info::RequestInfo;
use crate::options::config::Requests;
use crate::server::request_guard::Capacity;
use crate::telemetry::requests::{self, FilterName};

/// The read-only verbs; all others count as mutating.
const READS: [&str; 3] = ["get", "list", "watch"];
/// Paths whose requests the flags do not limit (the flow schema `probes`).
const PROBES: [&str; 3] = ["/healthz", "/readyz", "/livez"];
/// The limit of such requests in flight: they wait when the store does, and any client may send
/// them.
const MAX_PROBES: usize = 1000;
/// The value of Retry-After for refused requests, in seconds.
const RETRY_SECONDS: u64 = 1;

/// Answers 429 for requests beyond the limit of their kind.
pub struct MaxInFlight;

impl Filter for MaxInFlight {
    async fn handle<N: Next>(ctx: &mut FilterContext<'_>) -> Response<Body> {
        if !ctx.is_long_running {
            let request = &ctx.request;
            match ctx.chain.in_flight.admit(&request.info, &request.user) {
                Ok(Some(permit)) => ctx.guard.hold(Capacity::InFlight(permit)),
                Ok(None) => {}
                Err(OverLimit) => {
                    let (series, _) = ctx.series();
                    series.dropped();
                    series.terminated(429);
                    return too_many_requests(RETRY_SECONDS);
                }
            }
        }
        ctx.end_filter(FilterName::MaxInFlight);
        N::handle(ctx).await
    }
}

/// The limit of requests in flight is reached.
#[derive(Clone, Copy, Debug)]
pub struct OverLimit;

/// The requests of one kind with their limit.
#[derive(Debug)]
struct RequestLimit {
    /// 0 for no limit.
    limit: usize,
    taken: AtomicUsize,
    mutating: bool,
}

/// A slot among the requests in flight, released on drop.
#[derive(Debug)]
pub struct Permit(Arc<RequestLimit>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
        requests::in_flight(self.0.mutating, false);
    }
}

/// The requests in flight.
#[derive(Debug)]
pub struct InFlight {
    reads: Arc<RequestLimit>,
    writes: Arc<RequestLimit>,
    probes: Arc<RequestLimit>,
}

impl InFlight {
    pub fn new(config: &Requests) -> Self {
        let lane = |limit, mutating| {
            Arc::new(RequestLimit {
                limit,
                taken: AtomicUsize::new(0),
                mutating,
            })
        };
        Self {
            reads: lane(config.max_in_flight, false),
            writes: lane(config.max_mutating_in_flight, true),
            probes: lane(MAX_PROBES, false),
        }
    }

    /// Returns a place for the request of a user, which must not be long-running; `None` for
    /// administrators where there is none left.
    ///
    /// # Errors
    /// There is no place left.
    pub fn admit(&self, info: &RequestInfo, user: &User) -> Result<Option<Permit>, OverLimit> {
        let lane = match READS.contains(&info.verb.as_str()) {
            true if is_probe(info) => &self.probes,
            true => &self.reads,
            false => &self.writes,
        };
        let before = lane.taken.fetch_add(1, Ordering::Relaxed);
        if lane.limit == 0 || before < lane.limit {
            requests::in_flight(lane.mutating, true);
            return Ok(Some(Permit(lane.clone())));
        }
        lane.taken.fetch_sub(1, Ordering::Relaxed);
        if user.is_in(MASTERS) {
            return Ok(None);
        }
        Err(OverLimit)
    }
}

fn is_probe(info: &RequestInfo) -> bool {
    !info.is_resource
        && info.verb == "get"
        && PROBES
            .iter()
            .any(|path| info.path.strip_prefix(path).is_some_and(is_path_end))
}

/// Reports whether a path ends here, or goes on with another segment.
fn is_path_end(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('/')
}

/// The 429 for a request that is refused before it is read, and may come again after so many
/// seconds.
pub fn too_many_requests(retry_after: u64) -> Response<Body> {
    let mut response = Response::new(body::full("Too many requests, please try again later.\n"));
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from(retry_after));
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use super::super::request_info::is_long_running;
    use super::*;
    use crate::meta::options::Query;
    use http::Method;
    use std::time::Duration;

    fn in_flight(max_in_flight: usize, max_mutating_in_flight: usize) -> InFlight {
        let (timeout, min_watch) = (Duration::ZERO, Duration::ZERO);
        InFlight::new(&Requests {
            delete_collection_workers: 1,
            priority_and_fairness: false,
            max_in_flight,
            max_mutating_in_flight,
            timeout,
            min_watch,
            goaway_chance: 0.0,
        })
    }

    fn info(method: Method, uri: &str) -> RequestInfo {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        RequestInfo::new(&method, path, &Query::parse(query))
    }

    #[test]
    fn reads_and_writes_have_limits_of_their_own() {
        let (all, user) = (in_flight(1, 1), User::default());
        let (read, write) = (
            info(Method::GET, "/api/v1/pods"),
            info(Method::POST, "/api/v1/namespaces"),
        );
        let held = (
            all.admit(&read, &user).expect("a place"),
            all.admit(&write, &user).expect("a place"),
        );
        for info in [&read, &write] {
            assert!(all.admit(info, &user).is_err());
        }
        drop(held);
        assert!(all.admit(&read, &user).is_ok() && all.admit(&write, &user).is_ok());
    }

    #[test]
    fn long_running_requests_probes_and_masters_need_no_place() {
        let (all, user) = (in_flight(1, 1), User::default());
        let read = info(Method::GET, "/version");
        let held = all.admit(&read, &user).expect("a place");
        for uri in [
            "/api/v1/pods?watch=1",
            "/api/v1/namespaces/a/pods/b/log",
            "/api/v1/proxy/nodes/a",
        ] {
            assert!(is_long_running(&info(Method::GET, uri)), "{uri}");
        }
        for uri in ["/livez", "/readyz/ping"] {
            assert!(all.admit(&info(Method::GET, uri), &user).is_ok(), "{uri}");
        }
        let method = Method::from_bytes(b"WATCH").expect("a method");
        assert!(all.admit(&info(method, "/version"), &user).is_err());
        for uri in ["/readyzy", "/logs/watch", "/api/v1/namespaces/a/pods/log"] {
            assert!(!is_long_running(&info(Method::GET, uri)), "{uri}");
            assert!(all.admit(&info(Method::GET, uri), &user).is_err(), "{uri}");
        }
        let master = User {
            groups: vec![MASTERS.to_owned()],
            ..User::default()
        };
        assert!(matches!(all.admit(&read, &master), Ok(None)));
        drop(held);
        assert!(
            all.admit(&read, &user).is_ok(),
            "who was let through took no place"
        );
    }

    #[test]
    fn in_flight_limit_of_zero_is_unlimited() {
        let (all, user) = (in_flight(0, 0), User::default());
        let read = info(Method::GET, "/version");
        let held: Vec<_> = (0..1000).map(|_| all.admit(&read, &user)).collect();
        assert!(held.iter().all(Result::is_ok));
    }
}
