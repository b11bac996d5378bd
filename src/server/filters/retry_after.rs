//! New requests at the end of a server, where it listens on until all others have finished
//! (apiserver `server/filters/with_retry_after.go`).

use http::Response;
use http::header::{CONNECTION, HeaderValue, RETRY_AFTER};

use super::{Filter, FilterContext, Next};
use crate::endpoints::body::Body;
use crate::endpoints::{Request, respond};

/// The paths that are answered to the end.
const EXEMPT_PATHS: [&str; 4] = ["/readyz", "/livez", "/healthz", "/metrics"];
/// The user agent that servers ask themselves with.
const OWN_USER_AGENT: &str = "kube-apiserver/";
/// The seconds after which a client may come again.
const RETRY_SECONDS: u64 = 5;

/// Sends clients elsewhere while the server drains.
pub struct RetryAfter;

impl Filter for RetryAfter {
    async fn handle<N: Next>(ctx: &mut FilterContext<'_>) -> Response<Body> {
        let chain = ctx.chain;
        let turns_away = chain.leaving.send_retry_after && chain.shutdown.is_draining();
        if !turns_away || is_exempt(&ctx.request) {
            return N::handle(ctx).await;
        }
        let text = "The apiserver is shutting down, please try again later.\n";
        let mut response = respond::text(429, text);
        let headers = response.headers_mut();
        headers.insert(RETRY_AFTER, HeaderValue::from(RETRY_SECONDS));
        if ctx.connection.http2 {
            ctx.connection.go_away();
        } else {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Reports whether a request is answered as long as there is a connection.
pub fn is_exempt(request: &Request) -> bool {
    let path = request.info.path.as_str();
    request.user_agent().starts_with(OWN_USER_AGENT)
        || EXEMPT_PATHS.iter().any(|prefix| path.starts_with(prefix))
}
