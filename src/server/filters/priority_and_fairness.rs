//! Priority and fairness: a request runs when its priority level has seats for it (apiserver
//! `server/filters/priority-and-fairness.go`).

use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures::poll;
use http::Response;
use http::header::HeaderName;

use super::max_in_flight::{MaxInFlight, too_many_requests};
use super::{Filter, FilterContext, Next};
use crate::auth::User;
use crate::endpoints::body::Body;
use crate::endpoints::request_info::RequestInfo;
use crate::flowcontrol::{Controller, Flow, RequestDetails, RequestDigest, Seat};
use crate::server::request_guard::Capacity;
use crate::telemetry::latency::{Layer, measure};
use crate::telemetry::requests::FilterName;

/// The headers with the UIDs of the flow schema and the priority level of a request.
const SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");
/// The part of its time that a request may wait for seats.
const WAIT_DIVISOR: u32 = 4;
/// The longest that it may wait.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Lets requests wait for the seats of their priority level; answers 429 where they wait for too
/// long, or there is no room to wait.
pub struct PriorityAndFairness;

impl Filter for PriorityAndFairness {
    const SPAN: Option<&'static str> = Some("priorityandfairness");

    async fn handle<N: Next>(ctx: &mut FilterContext<'_>) -> Response<Body> {
        let Some(controller) = &ctx.chain.flow_control else {
            return MaxInFlight::handle::<N>(ctx).await;
        };
        // Other streams last for as long as their clients want.
        if ctx.is_long_running && ctx.request.info.verb != "watch" {
            ctx.end_filter(FilterName::PriorityAndFairness);
            return N::handle(ctx).await;
        }
        let details: Arc<dyn RequestDetails> = Arc::new(Details {
            user: ctx.request.user.clone(),
            info: ctx.request.info.clone(),
        });
        let Some(flow) = controller.classify(&details.digest()) else {
            return N::handle(ctx).await;
        };
        if let Some(log) = &mut ctx.log {
            log.flow = Some(flow.clone());
        }
        let deadline = wait_deadline(ctx);
        // Apart, so that the futures of filters, which are moved as they are made, are small.
        let admitted = Box::pin(controller.admit(&flow, details, &ctx.request.query, deadline));
        let mut response = match waited(admitted).await {
            Ok(seat) => {
                hold(ctx, controller, seat);
                ctx.queued = ctx.end_filter(FilterName::PriorityAndFairness);
                N::handle(ctx).await
            }
            Err(_) => rejected(ctx, controller, &flow),
        };
        let headers = response.headers_mut();
        headers.insert(LEVEL_UID, flow.level_uid.clone());
        headers.insert(SCHEMA_UID, flow.schema_uid.clone());
        response
    }
}

/// Awaits admission, and records how long that took unless it comes at once.
async fn waited<F: Future + Unpin>(mut admitted: F) -> F::Output {
    match poll!(&mut admitted) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => measure(Layer::QueueWait, admitted).await,
    }
}

/// A request that waits or runs.
struct Details {
    user: Arc<User>,
    info: Arc<RequestInfo>,
}

impl RequestDetails for Details {
    fn digest(&self) -> RequestDigest<'_> {
        let info = &self.info;
        RequestDigest {
            user: &self.user,
            is_resource: info.is_resource,
            verb: &info.verb,
            group: &info.group,
            version: &info.version,
            resource: &info.resource,
            subresource: &info.subresource,
            namespace: &info.namespace,
            name: &info.name,
            path: &info.path,
        }
    }
}

/// Returns the time until which a request may wait.
fn wait_deadline(ctx: &FilterContext<'_>) -> Instant {
    ctx.received + (ctx.timeout / WAIT_DIVISOR).min(MAX_WAIT)
}

/// Keeps the seats of a request until it has been answered; those of a watch until it has sent what
/// there is. From then on it counts among those that writes wake.
fn hold(ctx: &FilterContext<'_>, controller: &Controller, seat: Seat) {
    if !ctx.is_long_running {
        return ctx.guard.hold(Capacity::Seat(seat));
    }
    let request = &ctx.request;
    let digest = Details {
        user: request.user.clone(),
        info: request.info.clone(),
    };
    let watches = &controller.estimator.watches;
    let registration = watches.register(&digest.digest(), &request.query);
    ctx.guard.hold(Capacity::Watch(registration));
    *request.initializing.lock() = Some(Arc::new(seat));
}

/// The answer to a request for which there is no place.
fn rejected(ctx: &FilterContext<'_>, controller: &Controller, flow: &Flow) -> Response<Body> {
    let (series, _) = ctx.series();
    series.dropped();
    series.terminated(429);
    let now = ctx.chain.api.clock.now().as_second();
    too_many_requests(controller.dropped(u64::try_from(now).unwrap_or(0), flow))
}
