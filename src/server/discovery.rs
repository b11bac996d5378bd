//! The discovery and OpenAPI documents of the resources that are served now, rendered again on the
//! first request after a change.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use bytes::Bytes;
use http::{HeaderMap, Method, Response};

use crate::aggregator::Aggregator;
use crate::base::blocking::run_blocking;
use crate::discovery::openapi::{CustomKind, OpenApi};
use crate::discovery::{Documents, ServerInfo};
use crate::extensions::compare_versions;
use crate::meta::Gvr;
use crate::meta::status::Result;
use crate::registry::Registry;
use crate::schema::ResourceDecl;

/// The documents, as of a version of the registry and one of the APIServices.
struct Snapshot {
    version: (u64, u64),
    documents: Documents,
    openapi: OpenApi,
}

/// Answers with the documents of the present.
pub struct DiscoveryHandler {
    sources: Sources,
    latest: ArcSwap<Snapshot>,
}

/// The sources of what is in the documents.
struct Sources {
    registry: Arc<Registry>,
    aggregator: Arc<Aggregator>,
    about: ServerInfo,
}

impl Sources {
    /// Changes with what the documents are made of.
    fn version(&self) -> (u64, u64) {
        (self.registry.version(), self.aggregator.version())
    }
}

impl DiscoveryHandler {
    pub fn new(registry: Arc<Registry>, aggregator: Arc<Aggregator>, about: ServerInfo) -> Self {
        let builtin = OpenApi::new(crate::schema::builtin(), |decl| is_served(&registry, decl));
        let sources = Sources {
            registry,
            aggregator,
            about,
        };
        let latest = ArcSwap::from_pointee(snapshot(&sources, &builtin));
        Self { sources, latest }
    }

    /// The documents as of now.
    fn present(&self) -> Guard<Arc<Snapshot>> {
        let latest = self.latest.load();
        if latest.version == self.sources.version() {
            return latest;
        }
        self.latest.store(run_blocking(|| {
            Arc::new(snapshot(&self.sources, &latest.openapi))
        }));
        self.latest.load()
    }

    /// Answers a GET of a path below `/openapi`; see [`OpenApi::answer`].
    pub fn openapi(&self, path: &str, query: &str, headers: &HeaderMap) -> Option<Response<Bytes>> {
        // Documents that were not requested yet are large, and rendered now.
        path.starts_with("/openapi")
            .then(|| run_blocking(|| self.present().openapi.answer(path, query, headers)))
            .flatten()
    }

    /// Answers a request for a path; see [`Documents::answer`].
    pub fn answer(
        &self,
        method: &Method,
        path: &str,
        query: &str,
        headers: &HeaderMap,
    ) -> Option<Result<Response<Bytes>>> {
        self.present()
            .documents
            .answer(method, path, query, headers)
    }

    /// Reports whether a path is of a group that only custom resources are in. Their documents
    /// answer any method, and have no words of their own for versions that there are not.
    pub fn is_custom(&self, path: &str) -> bool {
        let group = path
            .strip_prefix("/apis/")
            .and_then(|rest| rest.split('/').next());
        group.is_some_and(|group| !group.is_empty() && !self.sources.registry.has_group(group))
    }
}

fn is_served(registry: &Registry, decl: &ResourceDecl) -> bool {
    registry.is_served(&Gvr::new(&decl.group, &decl.version, &decl.resource))
}

fn snapshot(sources: &Sources, before: &OpenApi) -> Snapshot {
    let (registry, aggregator) = (&sources.registry, &sources.aggregator);
    // What changes meanwhile is seen by the next request.
    let version = sources.version();
    let custom = registry.custom();
    let versions = custom
        .keys()
        .map(|gvr| (gvr.group.clone(), gvr.version.clone()));
    let services = aggregator.api_services(&versions.collect());
    let mut decls: Vec<&ResourceDecl> = custom.values().map(|store| &store.resource.decl).collect();
    decls.sort_by(|a, b| {
        a.group
            .cmp(&b.group)
            .then_with(|| compare_versions(&b.version, &a.version))
            .then_with(|| a.resource.cmp(&b.resource))
    });
    let builtin = crate::schema::builtin()
        .resources
        .iter()
        .filter(|decl| is_served(registry, decl));
    let documents = Documents::new(builtin.chain(decls), &services, &sources.about);
    let kinds = custom.values().filter_map(|store| {
        Some(CustomKind {
            decl: store.resource.decl.clone(),
            custom: store.resource.custom.clone()?,
        })
    });
    Snapshot {
        version,
        documents,
        openapi: before.with(kinds.collect(), aggregator.openapi()),
    }
}
