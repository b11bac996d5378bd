//! The resources of other servers, for the discovery documents of this one (kube-aggregator
//! `apiserver/handler_discovery.go`). They are fetched in the background: a request for discovery
//! gets what is known, and waits for nobody.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::StatusCode;
use http::header::{CONTENT_TYPE, ETAG};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::api_service::{ApiService, RemoteServer};
use super::autoregister::GroupVersion;
use super::backend::{Answer, Ask, Backend};
use super::catalog::Catalog;
use super::discovery_documents::{read_aggregated, read_legacy};
use super::routes::Routes;
use crate::auth::{MASTERS, User};
use crate::base::blocking::{LARGE_BYTES, run_blocking_if};
use crate::base::supervise::catch_panic;
use crate::base::work_queue::{WorkQueue, Worker};
use crate::codec::json::Document;
use crate::discovery::RemoteVersion;
use crate::meta::{Value, json};
use crate::telemetry::work_queues::QueueMetrics;
use crate::webhook::ServiceResolver;

/// The interval at which documents are fetched anew, and the longest delay after failures
/// (`discoveryRefreshInterval`).
const REFRESH: Duration = Duration::from_secs(60);
/// The delay after the first failure.
const FIRST_DELAY: Duration = Duration::from_millis(500);
/// The number of documents that are fetched at the same time. More than upstream's two, so that two
/// servers that hang do not delay the others.
const WORKERS: usize = 8;
/// The time that a server has to answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The largest discovery document of a server.
const MAX_DOCUMENT_BYTES: usize = 8 << 20;
/// The documents that are asked for, the newer version first.
const ACCEPT_AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
/// The user as whom documents are fetched.
const USER: &str = "system:kube-aggregator";

/// The resources of other servers.
pub struct RemoteDiscovery {
    catalog: Arc<Catalog>,
    routes: Arc<Routes>,
    services: Arc<dyn ServiceResolver>,
    pub queue: Arc<WorkQueue>,
    /// By the name of their APIService.
    versions: Mutex<HashMap<String, Known>>,
    /// The aggregated documents of servers, several of whose versions may be asked for.
    documents: Mutex<HashMap<RemoteServer, Arc<ServerDocument>>>,
    /// The APIServices of the start whose servers have not been asked yet.
    unasked: Mutex<BTreeSet<String>>,
    version: AtomicU64,
}

/// The resources of a version of another server.
#[derive(Clone, PartialEq)]
struct Known {
    resources: Value,
    is_current: bool,
}

/// The aggregated document of a server.
struct ServerDocument {
    versions: HashMap<GroupVersion, Value>,
    etag: String,
    /// A time before the server was asked.
    asked: Instant,
}

impl RemoteDiscovery {
    pub fn new(
        catalog: Arc<Catalog>,
        routes: Arc<Routes>,
        services: Arc<dyn ServiceResolver>,
    ) -> Arc<Self> {
        let unasked = routes.all().keys().cloned().collect();
        Arc::new(Self {
            catalog,
            routes,
            services,
            queue: Arc::new(
                WorkQueue::new(FIRST_DELAY, REFRESH)
                    .observed_by(QueueMetrics::new("DiscoveryManager")),
            ),
            unasked: Mutex::new(unasked),
            versions: Mutex::default(),
            documents: Mutex::default(),
            version: AtomicU64::default(),
        })
    }

    /// Grows with each change of what is known.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns the versions that other servers serve, as far as is known.
    pub fn versions(&self) -> Vec<RemoteVersion> {
        let routes = self.routes.all();
        let known = self.versions.lock();
        routes
            .iter()
            .map(|(name, route)| {
                let known = known.get(name);
                RemoteVersion {
                    group: route.service.group.clone(),
                    version: route.service.version.clone(),
                    rank: route.service.rank,
                    resources: known.map_or_else(|| json!([]), |known| known.resources.clone()),
                    is_current: known.is_some_and(|known| known.is_current),
                }
            })
            .collect()
    }

    /// Reports whether every server of the start has been asked once.
    ///
    /// # Errors
    /// Names the APIServices of those that have not.
    pub fn has_asked_all(&self) -> Result<(), String> {
        let unasked = self.unasked.lock();
        if unasked.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = unasked.iter().map(String::as_str).collect();
        Err(format!("not asked yet: {}", names.join(", ")))
    }

    /// Fetches until the runtime ends.
    pub fn run(self: Arc<Self>) {
        self.run_workers(WORKERS);
    }

    /// Brings what is known of an APIService up to date.
    async fn refresh(&self, name: &str) -> Result<(), String> {
        let Some(route) = self.routes.get(name) else {
            self.forget(name);
            return Ok(());
        };
        let gv = (route.service.group.clone(), route.service.version.clone());
        let fetched = self.fetch(&route.service, &route.backend, &gv).await;
        // The APIService may have gone meanwhile.
        if self
            .catalog
            .get(name)
            .is_none_or(|now| now.remote.is_none())
        {
            self.forget(name);
            return Ok(());
        }
        let mut versions = self.versions.lock();
        let (now, outcome) = match fetched {
            Ok(resources) => (
                Known {
                    resources,
                    is_current: true,
                },
                Ok(()),
            ),
            Err(why) => {
                // What was known of the server stays, and is told to be old.
                let resources = versions.get(name).map(|known| known.resources.clone());
                let resources = resources.unwrap_or_else(|| json!([]));
                (
                    Known {
                        resources,
                        is_current: false,
                    },
                    Err(why),
                )
            }
        };
        if versions.get(name) != Some(&now) {
            versions.insert(name.to_owned(), now);
            self.version.fetch_add(1, Ordering::Release);
        }
        if outcome.is_ok() {
            self.queue.add_after(name, REFRESH);
        }
        outcome
    }

    /// Forgets an APIService, and servers that no other one names.
    fn forget(&self, name: &str) {
        if self.versions.lock().remove(name).is_some() {
            self.version.fetch_add(1, Ordering::Release);
        }
        let routes = self.routes.all();
        let used =
            |server: &RemoteServer| routes.values().any(|route| route.backend.remote == *server);
        self.documents.lock().retain(|server, _| used(server));
    }

    /// The resources of a version, from the aggregated document of its server, or else from that of
    /// the version alone.
    async fn fetch(
        &self,
        service: &ApiService,
        backend: &Backend,
        gv: &GroupVersion,
    ) -> Result<Value, String> {
        let before = self.documents.lock().get(&backend.remote).cloned();
        let before = before.filter(|before| before.versions.contains_key(gv));
        let asked = Instant::now();
        let user = User {
            name: USER.to_owned(),
            groups: vec![MASTERS.to_owned()],
            ..User::default()
        };
        let ask = Ask {
            path: "/apis",
            accept: ACCEPT_AGGREGATED,
            etag: before.as_ref().map_or("", |before| &before.etag),
            user: &user,
            timeout: TIMEOUT,
            max_bytes: MAX_DOCUMENT_BYTES,
        };
        let answer = backend.get(&*self.services, &ask).await?;
        let resources = |document: &ServerDocument| {
            let known = document.versions.get(gv);
            known.cloned().unwrap_or_else(|| json!([]))
        };
        match (answer.status, before) {
            (StatusCode::NOT_MODIFIED, Some(before)) => Ok(resources(&before)),
            (StatusCode::SERVICE_UNAVAILABLE, _) => Err(format!(
                "the server returned non-success response code: {}",
                answer.status.as_u16()
            )),
            (StatusCode::OK, _) if is_aggregated(answer.header(CONTENT_TYPE)) => {
                let mut versions = read_aggregated(&parse(&answer)?);
                self.drop_unlisted(&backend.remote, &mut versions);
                let document = Arc::new(ServerDocument {
                    versions,
                    etag: answer.header(ETAG).to_owned(),
                    asked,
                });
                let found = resources(&document);
                self.keep(backend.remote.clone(), document);
                Ok(found)
            }
            _ => self.fetch_legacy(service, backend).await,
        }
    }

    /// Drops the versions of a server for which there is no APIService.
    fn drop_unlisted(&self, server: &RemoteServer, versions: &mut HashMap<GroupVersion, Value>) {
        let routes = self.routes.all();
        let listed = |(group, version): &GroupVersion| {
            routes.values().any(|route| {
                let service = &route.service;
                service.group == *group
                    && service.version == *version
                    && route.backend.remote == *server
            })
        };
        versions.retain(|gv, _| listed(gv));
    }

    /// Keeps the document of a server, unless a newer one is kept already.
    fn keep(&self, server: RemoteServer, document: Arc<ServerDocument>) {
        let mut documents = self.documents.lock();
        let newer = documents
            .get(&server)
            .is_some_and(|known| known.asked > document.asked);
        if !newer {
            documents.insert(server, document);
        }
    }

    async fn fetch_legacy(&self, service: &ApiService, backend: &Backend) -> Result<Value, String> {
        let path = service.path();
        let user = User {
            name: USER.to_owned(),
            ..User::default()
        };
        let ask = Ask {
            path: &path,
            accept: "application/json",
            etag: "",
            user: &user,
            timeout: TIMEOUT,
            max_bytes: MAX_DOCUMENT_BYTES,
        };
        let answer = backend.get(&*self.services, &ask).await?;
        if answer.status != StatusCode::OK {
            let status = answer.status.as_u16();
            return Err(format!(
                "failed to download legacy discovery for {path}: {status}"
            ));
        }
        read_legacy(&parse(&answer)?)
    }
}

impl Worker for RemoteDiscovery {
    const TASK: &'static str = "discovery of APIServices";

    fn queue(&self) -> &WorkQueue {
        &self.queue
    }

    async fn sync(&self, name: &str) -> Result<(), String> {
        // It has been asked even if its answer makes the work panic.
        let outcome = catch_panic(Self::TASK, self.refresh(name)).await;
        self.unasked.lock().remove(name);
        outcome.flatten()
    }
}

/// Reports whether an answer is an aggregated document.
fn is_aggregated(content_type: &str) -> bool {
    let mut parts = content_type.split(';').map(str::trim);
    let is_json = parts.next() == Some("application/json");
    let parts: Vec<&str> = parts.collect();
    let has = |part: &str| parts.contains(&part);
    is_json
        && has("g=apidiscovery.k8s.io")
        && has("as=APIGroupDiscoveryList")
        && (has("v=v2") || has("v=v2beta1"))
}

/// Reads the JSON of an answer.
fn parse(answer: &Answer) -> Result<Value, String> {
    let read = || Document::new(&answer.body)?.value();
    run_blocking_if(answer.body.len() > LARGE_BYTES, read).map_err(|why| why.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aggregated_documents_are_told_by_their_type() {
        for (content_type, want) in [
            (
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
                true,
            ),
            (
                "application/json; as=APIGroupDiscoveryList; v=v2beta1; g=apidiscovery.k8s.io",
                true,
            ),
            ("application/json", false),
            (
                "text/html;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
                false,
            ),
            (
                "application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList",
                false,
            ),
        ] {
            assert_eq!(is_aggregated(content_type), want, "{content_type}");
        }
    }
}
