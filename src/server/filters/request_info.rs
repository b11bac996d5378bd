//! Resolution of request info (apiserver `endpoints/filters/requestinfo.go`).

use std::sync::Arc;

use http::Response;

use super::{Filter, FilterContext, Next};
use crate::endpoints::body::Body;
use crate::endpoints::request_info::RequestInfo;
use crate::meta::options::Query;

/// Verbs and subresources of requests that last as long as their client wants (kube-apiserver
/// `server.go`, `BuildGenericConfig`).
const LONG_RUNNING_VERBS: [&str; 2] = ["watch", "proxy"];
const LONG_RUNNING_SUBRESOURCES: [&str; 5] = ["attach", "exec", "proxy", "log", "portforward"];

/// Reads method, path and query.
pub struct ResolveRequestInfo;

impl Filter for ResolveRequestInfo {
    async fn handle<N: Next>(ctx: &mut FilterContext<'_>) -> Response<Body> {
        let resolved = ctx.request_mut().map(|request| {
            request.query = Query::parse(request.uri.query().unwrap_or(""));
            let path = request.uri.path();
            request.info = Arc::new(RequestInfo::new(&request.method, path, &request.query));
        });
        if let Err(status) = resolved {
            return ctx.status(&status);
        }
        if ctx.request.info.lacks_resource() {
            let uri = &ctx.request.uri;
            let why = format!("unable to determine kind and namespace from url, {uri}");
            let why = format!("failed to create RequestInfo: {why}");
            return super::internal_error(uri, &why);
        }
        ctx.is_long_running = is_long_running(&ctx.request.info);
        N::handle(ctx).await
    }
}

/// Reports whether a request is for a watch or a stream: it has no deadline, and is not counted
/// among the requests in flight.
pub fn is_long_running(info: &RequestInfo) -> bool {
    // The verb of any other path is the method, which may be of any name.
    let lasts = LONG_RUNNING_VERBS.contains(&info.verb.as_str())
        || LONG_RUNNING_SUBRESOURCES.contains(&info.subresource.as_str());
    info.is_resource && lasts
}
