//! The metric labels of a request (apiserver `endpoints/metrics`, `MonitorRequest`).

use std::sync::Arc;

use http::Method;
use http::header::{CONTENT_TYPE, USER_AGENT};

use crate::endpoints::Request;
use crate::meta::Gvr;
use crate::meta::options::Query;
use crate::registry::{Registry, Store};
use crate::telemetry::requests::{self, Labels, RequestSeries};

/// The media type of server-side apply.
const APPLY_MEDIA: &[u8] = b"application/apply-patch+yaml";
/// The subresources that are streams, or lead to other servers.
const CONNECTS: [&str; 5] = ["log", "exec", "portforward", "attach", "proxy"];
/// The beginning of the user agent of an API server.
const API_SERVER: &[u8] = b"kube-apiserver/";

/// The series of a request, and whether it is counted among those that were answered. Requests for
/// what is not served are counted without the names that the client chose.
pub fn series(request: &Request, registry: &Registry) -> (Arc<RequestSeries>, bool) {
    let info = &request.info;
    let served = || registry.served(&Gvr::new(&info.group, &info.version, &info.resource));
    let store = request.store.clone();
    let store = store.or_else(|| info.is_resource.then(served).flatten());
    match store {
        Some(store) => (of_store(request, &store), true),
        None => {
            let verb = verb(request, "");
            requests::of_path(verb, &info.path)
        }
    }
}

fn of_store(request: &Request, store: &Store) -> Arc<RequestSeries> {
    let (info, resource) = (&request.info, &store.resource);
    let scope = scope(request, store);
    let declared = &resource.decl.subresources;
    let at = declared.iter().position(|sub| sub.name == info.subresource);
    let sub = at.and_then(|at| declared.get(at));
    let labels = Labels {
        verb: verb(request, scope),
        group: &resource.gvr.group,
        version: &resource.gvr.version,
        resource: &resource.gvr.resource,
        subresource: sub.map_or("", |sub| sub.name.as_str()),
        scope,
        dry_run: dry_run(&request.query),
    };
    let metrics = &store.metrics.requests;
    metrics.of(&labels, at.map_or(0, |at| at + 1))
}

/// The scope of a request: that of a route, whatever a selector says, and for custom resources
/// that of an object where a selector names one (`CleanScope`).
fn scope(request: &Request, store: &Store) -> &'static str {
    let info = &request.info;
    let name = match store.resource.custom {
        Some(_) => info.name.as_str(),
        None => info.url_name(),
    };
    match (name.is_empty(), info.namespace.is_empty()) {
        _ if info.verb == "create" => "resource",
        (false, _) => "resource",
        (true, false) => "namespace",
        (true, true) => "cluster",
    }
}

/// The verb that a request is logged as (`NormalizedVerb`).
pub fn normalized_verb(request: &Request) -> &'static str {
    let info = &request.info;
    let is_named = !info.name.is_empty() || info.verb == "create";
    let scope = if is_named { "resource" } else { "cluster" };
    verb(request, if info.is_resource { scope } else { "" })
}

/// The verb that a request is counted as (`cleanVerb`).
fn verb(request: &Request, scope: &str) -> &'static str {
    let info = &request.info;
    if info.verb == "watch" && info.is_resource {
        return "WATCH";
    }
    if info.is_resource && CONNECTS.contains(&info.subresource.as_str()) {
        return "CONNECT";
    }
    match &request.method {
        &Method::GET | &Method::HEAD if matches!(scope, "" | "resource") => "GET",
        &Method::GET | &Method::HEAD => "LIST",
        &Method::PATCH if is_apply(request) => "APPLY",
        &Method::PATCH => "PATCH",
        &Method::POST => "POST",
        &Method::PUT => "PUT",
        &Method::DELETE => "DELETE",
        _ => "other",
    }
}

/// Reports whether a request is a server-side apply.
fn is_apply(request: &Request) -> bool {
    let media = request.headers.get(CONTENT_TYPE);
    media.is_some_and(|media| media.as_bytes() == APPLY_MEDIA)
}

/// The label of `dryRun` (`cleanDryRun`).
fn dry_run(query: &Query) -> &'static str {
    match query.get("dryRun") {
        None => "",
        Some("All") => "All",
        Some(_) => "invalid",
    }
}

/// Reports whether a request comes from an API server, as it says.
pub fn is_from_api_server(request: &Request) -> bool {
    let agent = request.headers.get(USER_AGENT);
    agent.is_some_and(|agent| agent.as_bytes().starts_with(API_SERVER))
}
