//! `/metrics` and `/metrics/slis`: what is declared, brought up to date and written when it is
//! asked for (apiserver `server/routes/metrics.go`).

mod declared;
mod facts;
mod runtime;

use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method, Response, header};

use super::filters::HandlerChain;
use crate::cacher::Reflector;
use crate::endpoints::body::Body;
use crate::endpoints::{Request, body, compress, respond};
use crate::telemetry::exposition::{self, Format, Negotiated};
use crate::telemetry::{metrics, process, requests, work_queues};

pub use declared::declare;
pub use facts::record;

/// The header with the second in which the process began.
const PROCESS_START: HeaderName = HeaderName::from_static("process-start-time-unix");

/// The watch caches of a server.
#[derive(Clone, Default)]
pub struct Caches(pub Vec<Arc<Reflector>>);

/// The page of all metrics. Where the server may be profiled, a DELETE empties them.
pub async fn page(chain: &HandlerChain, request: &Request) -> Response<Body> {
    if chain.profiling && request.method == Method::DELETE {
        metrics::reset();
        return respond::text(200, "metrics reset\n");
    }
    chain.storage_sizes.refresh().await;
    requests::refresh();
    work_queues::refresh();
    chain.caches.0.iter().for_each(|cache| cache.show_sizes());
    runtime::refresh(&chain.api.bodies);
    answer(request, exposition::render).await
}

/// The page of the service level indicators.
pub async fn slis(request: &Request) -> Response<Body> {
    answer(request, exposition::render_slis).await
}

/// Writes a page in the format that the client prefers, compressed if it takes that.
async fn answer(request: &Request, render: impl Fn(Format) -> String) -> Response<Body> {
    let wanted = Negotiated::of(&request.header(header::ACCEPT));
    let mut response = Response::new(body::full(render(wanted.format)));
    let headers = response.headers_mut();
    if let Ok(media) = HeaderValue::try_from(wanted.content_type()) {
        headers.insert(header::CONTENT_TYPE, media);
    }
    if let Some(started) = process::start_seconds() {
        headers.insert(PROCESS_START, HeaderValue::from(started as u64));
    }
    match compress::accepted(&request.headers) {
        true => compress::compress(response).await,
        false => response,
    }
}
