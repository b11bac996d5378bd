//! The discovery documents of what is served right now: made anew when somebody asks after it changed.

use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderMap, Response};

use crate::discovery::{About, Documents};
use crate::extensions::compare_versions;
use crate::meta::status::Result;
use crate::registry::Registry;
use crate::schema::ResourceDecl;

/// The documents, as of a generation of the registry.
struct Snapshot {
    generation: u64,
    documents: Documents,
}

/// Answers with the documents of the present.
pub struct Discovery {
    registry: Arc<Registry>,
    about: About,
    latest: ArcSwap<Snapshot>,
}

impl Discovery {
    pub fn new(registry: Arc<Registry>, about: About) -> Self {
        let latest = ArcSwap::from_pointee(snapshot(&registry, &about));
        Self { registry, about, latest }
    }

    /// Answers a GET of a path; see [`Documents::answer`].
    pub fn answer(&self, path: &str, query: &str, headers: &HeaderMap) -> Option<Result<Response<Bytes>>> {
        if self.latest.load().generation != self.registry.generation() {
            self.latest.store(Arc::new(snapshot(&self.registry, &self.about)));
        }
        self.latest.load().documents.answer(path, query, headers)
    }

    /// Whether a path is of a group that only custom resources are in. Their documents answer any method, and have no
    /// words of their own for versions that there are not.
    pub fn is_custom(&self, path: &str) -> bool {
        let group = path.strip_prefix("/apis/").and_then(|rest| rest.split('/').next());
        group.is_some_and(|group| !group.is_empty() && !self.registry.has_group(group))
    }
}

fn snapshot(registry: &Registry, about: &About) -> Snapshot {
    // What changes meanwhile is seen by the next request.
    let generation = registry.generation();
    let custom = registry.custom();
    let mut decls: Vec<&ResourceDecl> = custom.values().map(|store| &store.resource.decl).collect();
    decls.sort_by(|a, b| {
        a.group.cmp(&b.group).then_with(|| compare_versions(&b.version, &a.version)).then_with(|| a.resource.cmp(&b.resource))
    });
    let documents = Documents::new(crate::schema::builtin().resources.iter().chain(decls), about);
    Snapshot { generation, documents }
}
