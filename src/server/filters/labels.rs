//! The metric labels of a request.

use std::sync::Arc;

use http::header::CONTENT_TYPE;

use crate::endpoints::Request;
use crate::meta::Gvr;
use crate::registry::{Registry, Store};
use crate::telemetry::requests;

/// The prefix of the media types of server-side apply.
const APPLY_MEDIA_PREFIX: &str = "application/apply-patch+";

/// The labels of a request. Requests for what is not served are counted without the names that the
/// client chose.
#[derive(Debug)]
pub struct RequestLabels {
    verb: &'static str,
    /// The store of the resource, which has its names, if it is served.
    store: Option<Arc<Store>>,
    /// The index of the subresource in the declaration, if the resource has it.
    subresource: Option<usize>,
    scope: &'static str,
    dry_run: &'static str,
}

impl RequestLabels {
    pub fn of(request: &Request, registry: &Registry) -> Self {
        let info = &request.info;
        let store = request.store.clone().or_else(|| {
            let served = || registry.served(&Gvr::new(&info.group, &info.version, &info.resource));
            info.is_resource.then(served).flatten()
        });
        let verb = verb(request);
        let Some(store) = store else {
            return Self {
                verb,
                store: None,
                subresource: None,
                scope: "",
                dry_run: "",
            };
        };
        let declared = &store.resource.decl.subresources;
        Self {
            verb,
            subresource: declared.iter().position(|sub| sub.name == info.subresource),
            scope: match (info.url_name().is_empty(), info.namespace.is_empty()) {
                (false, _) => "resource",
                (true, false) => "namespace",
                (true, true) => "cluster",
            },
            dry_run: request.query.get("dryRun").map_or("", |_| "All"),
            store: Some(store),
        }
    }

    pub fn as_metrics(&self) -> requests::Labels<'_> {
        let (verb, dry_run) = (self.verb, self.dry_run);
        let Some(resource) = self.store.as_ref().map(|store| &store.resource) else {
            return requests::Labels {
                verb,
                dry_run,
                ..requests::Labels::default()
            };
        };
        let declared = self
            .subresource
            .and_then(|at| resource.decl.subresources.get(at));
        requests::Labels {
            verb,
            group: &resource.gvr.group,
            version: &resource.gvr.version,
            resource: &resource.gvr.resource,
            subresource: declared.map_or("", |sub| sub.name.as_str()),
            scope: self.scope,
            dry_run,
        }
    }
}

/// The verb that a request is counted as, with server-side apply as its own verb.
pub fn verb(request: &Request) -> &'static str {
    let media = request.headers.get(CONTENT_TYPE);
    let applies =
        || media.is_some_and(|media| media.as_bytes().starts_with(APPLY_MEDIA_PREFIX.as_bytes()));
    match request.info.verb.as_str() {
        "patch" if applies() => "APPLY",
        verb => requests::verb(verb),
    }
}
