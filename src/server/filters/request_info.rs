//! Resolution of request info (apiserver `endpoints/filters/requestinfo.go`).

use http::Response;

use super::{Filter, FilterContext, Next};
use crate::endpoints::body::Body;
use crate::endpoints::request_info::RequestInfo;
use crate::endpoints::respond;
use crate::meta::go;
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
            request.info = RequestInfo::new(&request.method, request.uri.path(), &request.query);
        });
        if let Err(status) = resolved {
            return ctx.status(&status);
        }
        if ctx.request.info.lacks_resource() {
            return unresolved(&ctx.request.uri.to_string());
        }
        ctx.is_long_running = is_long_running(&ctx.request.info);
        N::handle(ctx).await
    }
}

/// The answer to a request whose subject cannot be told (apiserver
/// `responsewriters.InternalError`).
fn unresolved(uri: &str) -> Response<Body> {
    let why = format!("unable to determine kind and namespace from url, {uri}");
    let text = format!(
        "Internal Server Error: {}: failed to create RequestInfo: {why}\n",
        go::quote(uri)
    );
    let escaped = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    respond::text(500, escaped)
}

/// Reports whether a request is for a watch or a stream: it has no deadline, and is not counted
/// among the requests in flight.
pub fn is_long_running(info: &RequestInfo) -> bool {
    // The verb of any other path is the method, which may be of any name.
    let lasts = LONG_RUNNING_VERBS.contains(&info.verb.as_str())
        || LONG_RUNNING_SUBRESOURCES.contains(&info.subresource.as_str());
    info.is_resource && lasts
}
