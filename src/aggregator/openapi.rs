//! The OpenAPI documents of other servers (kube-aggregator `controllers/openapi`, `openapiv3`).
//! They are fetched in the background; of version 3 only where they are, for requests go to the
//! server. Where a server has none, they are made of those of version 2.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::StatusCode;
use http::header::ETAG;
use parking_lot::Mutex;

use super::api_service::ApiService;
use super::backend::{Answer, Ask, Backend};
use super::routes::{Route, Routes};
use crate::auth::User;
use crate::base::blocking::run_blocking;
use crate::base::work_queue::{WorkQueue, Worker};
use crate::codec::json::Document;
use crate::discovery::openapi::{RemoteDocument, RemoteSpec};
use crate::meta::{Value, str_at};
use crate::telemetry::work_queues::QueueMetrics;
use crate::webhook::ServiceResolver;

/// The interval at which documents are fetched anew.
const REFRESH: Duration = Duration::from_secs(60);
/// The delays after failures.
const FIRST_DELAY: Duration = Duration::from_secs(60);
const MAX_DELAY: Duration = Duration::from_secs(60 * 60);
/// The number of servers that are asked at the same time, each of which may take long.
const WORKERS: usize = 4;
/// The time that a server has to answer.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The largest document of a server.
const MAX_DOCUMENT_BYTES: usize = 16 << 20;
/// The user as whom documents are fetched.
const USER: &str = "system:aggregator";
const V2: &str = "/openapi/v2";
const V3: &str = "/openapi/v3";

/// The documents of other servers.
pub struct RemoteOpenApi {
    routes: Arc<Routes>,
    services: Arc<dyn ServiceResolver>,
    pub queue: Arc<WorkQueue>,
    /// By the name of their APIService.
    known: Mutex<BTreeMap<String, Known>>,
    version: AtomicU64,
}

#[derive(Clone)]
struct Known {
    spec: Arc<RemoteSpec>,
    /// The entity tag of the server's document of version 2.
    etag: String,
}

impl RemoteOpenApi {
    pub fn new(routes: Arc<Routes>, services: Arc<dyn ServiceResolver>) -> Arc<Self> {
        Arc::new(Self {
            routes,
            services,
            queue: Arc::new(
                WorkQueue::new(FIRST_DELAY, MAX_DELAY)
                    .observed_by(QueueMetrics::new("open_api_aggregation_controller")),
            ),
            known: Mutex::default(),
            version: AtomicU64::default(),
        })
    }

    /// Grows with each change of what is known.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns what is known, those of a higher rank first (kube-aggregator
    /// `openapi/aggregator/priority.go`).
    pub fn specs(&self) -> Vec<Arc<RemoteSpec>> {
        let routes = self.routes.all();
        let known = self.known.lock();
        let mut specs: Vec<(&ApiService, &Arc<RemoteSpec>)> = known
            .iter()
            .filter_map(|(name, known)| Some((&*routes.get(name)?.service, &known.spec)))
            .collect();
        specs.sort_by_key(|(service, _)| std::cmp::Reverse(service.rank.group));
        specs.into_iter().map(|(_, spec)| spec.clone()).collect()
    }

    /// Returns the route of an OpenAPI v3 document; `None` for one of this server's own.
    pub fn find(&self, path: &str) -> Option<Arc<Route>> {
        let below = path.strip_prefix(V3)?;
        let route = self.routes.find(below)?;
        let known = self.known.lock();
        let spec = &known.get(&route.service.name)?.spec;
        (spec.v3.is_some() && below.strip_prefix('/')? == spec.path).then_some(route)
    }

    /// Fetches until the runtime ends.
    pub fn run(self: Arc<Self>) {
        self.run_workers(WORKERS);
    }

    fn forget(&self, name: &str) {
        if self.known.lock().remove(name).is_some() {
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    async fn get(&self, backend: &Backend, path: &str, etag: &str) -> Result<Answer, String> {
        let user = User {
            name: USER.to_owned(),
            ..User::default()
        };
        let ask = Ask {
            path,
            accept: "application/json",
            etag,
            user: &user,
            timeout: TIMEOUT,
            max_bytes: MAX_DOCUMENT_BYTES,
        };
        backend.get(&*self.services, &ask).await
    }

    /// Learns where the document of version 3 is.
    async fn fetch_v3(&self, backend: &Backend, spec: &mut RemoteSpec) -> Result<(), String> {
        let answer = self.get(backend, V3, "").await?;
        match answer.status {
            StatusCode::NOT_FOUND => {
                spec.is_converted = true;
                return Ok(());
            }
            StatusCode::OK => {}
            other => return Err(format!("{V3} is answered with {}", other.as_u16())),
        }
        let index = parse(&answer)?;
        let entry = index.get("paths").and_then(|paths| paths.get(&spec.path));
        if let Some(entry) = entry
            && !spec.set_v3_url(str_at(entry, "/serverRelativeURL"))
        {
            return Err("the document of OpenAPI v3 is at a path of another".to_owned());
        }
        Ok(())
    }

    /// Fetches the document of version 2.
    async fn fetch_v2(&self, backend: &Backend, etag: &str, path: &str) -> Result<Fetched, String> {
        let answer = self.get(backend, V2, etag).await?;
        match answer.status {
            StatusCode::NOT_MODIFIED if !etag.is_empty() => Ok(Fetched::Same),
            StatusCode::NOT_FOUND => Ok(Fetched::None),
            StatusCode::OK => {
                let document = run_blocking(|| RemoteDocument::new(parse(&answer)?, path))?;
                let etag = answer.header(ETAG).to_owned();
                Ok(Fetched::New(Arc::new(document), etag))
            }
            other => Err(format!("{V2} is answered with {}", other.as_u16())),
        }
    }
}

impl Worker for RemoteOpenApi {
    const TASK: &'static str = "OpenAPI of APIServices";

    fn queue(&self) -> &WorkQueue {
        &self.queue
    }

    /// Brings what is known of an APIService up to date. What a server does not have is left out,
    /// and what cannot be fetched stays as it was.
    async fn sync(&self, name: &str) -> Result<(), String> {
        let Some(route) = self
            .routes
            .get(name)
            .filter(|route| !route.service.is_legacy())
        else {
            self.forget(name);
            return Ok(());
        };
        let (service, before) = (&route.service, self.known.lock().get(name).cloned());
        let mut spec = RemoteSpec::new(&service.group, &service.version);
        let v3 = self.fetch_v3(&route.backend, &mut spec).await;
        let etag = before.as_ref().map_or("", |before| &before.etag);
        let v2 = self.fetch_v2(&route.backend, etag, &spec.path).await;
        let old = before.as_ref().map(|before| &before.spec);
        let etag = match &v2 {
            Ok(Fetched::New(document, etag)) => {
                spec.v2 = Some(document.clone());
                etag.clone()
            }
            Ok(Fetched::None) => String::new(),
            Ok(Fetched::Same) | Err(_) => {
                spec.v2 = old.and_then(|old| old.v2.clone());
                etag.to_owned()
            }
        };
        if v3.is_err() {
            spec.v3 = old.and_then(|old| old.v3.clone());
            spec.is_converted = old.is_some_and(|old| old.is_converted);
        }
        if self.routes.get(name).is_none() {
            self.forget(name);
            return Ok(());
        }
        let hash = |spec: &RemoteSpec| spec.v2.as_ref().map(|document| document.hash.clone());
        let same = old.is_some_and(|old| {
            (&old.v3, old.is_converted, hash(old)) == (&spec.v3, spec.is_converted, hash(&spec))
        });
        let spec = Arc::new(spec);
        self.known
            .lock()
            .insert(name.to_owned(), Known { spec, etag });
        if !same {
            self.version.fetch_add(1, Ordering::Release);
        }
        v3.and(v2.map(drop))?;
        self.queue.add_after(name, REFRESH);
        Ok(())
    }
}

/// A document of version 2.
enum Fetched {
    New(Arc<RemoteDocument>, String),
    /// The one that is known.
    Same,
    /// The server has none.
    None,
}

fn parse(answer: &Answer) -> Result<Value, String> {
    let read = || Document::new(&answer.body)?.value();
    run_blocking(read).map_err(|why| why.0)
}
