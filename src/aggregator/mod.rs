//! The aggregator: APIServices, and the requests that go to the servers behind them
//! (kube-aggregator).
//!
//! The [`catalog`] knows the APIServices, and [`routes`] the paths of those that other servers
//! serve. A request for such a path is handed on ([`forward`]). In the background, the APIServices
//! of what this server serves itself are kept up ([`autoregister`]), the servers behind the others
//! are checked ([`availability`]), and their [`discovery`] and [`openapi`] documents fetched.

mod api_service;
mod autoregister;
pub mod availability;
mod backend;
mod catalog;
mod discovery;
mod discovery_documents;
mod endpoint_handlers;
pub mod forward;
mod openapi;
mod remote_user;
mod routes;

use std::collections::HashSet;
use std::sync::Arc;

use http::Response;

use api_service::{Management, gvr};
use autoregister::{Autoregister, GroupVersion};
use availability::Availability;
pub use catalog::Catalog;
use discovery::RemoteDiscovery;
use endpoint_handlers::EndpointHandler;
use forward::Forwarder;
pub use forward::{Forwarded, Refusal};
use openapi::RemoteOpenApi;
pub use routes::Route;
use routes::Routes;

use crate::base::clock::Clock;
use crate::base::dial::Network;
use crate::base::random;
use crate::controlplane::informer::Informers;
use crate::controlplane::loopback_client::LoopbackClient;
use crate::discovery::openapi::RemoteSpec;
use crate::discovery::{ApiServices, ListedVersion, ranks};
use crate::extensions::Extensions;
use crate::meta::status::Result;
use crate::meta::{Gvr, Status};
use crate::proxy::ResponseBody;
use crate::registry::{Registry, Store};
use crate::webhook::ServiceResolver;
use crate::webhook::tls::ClientCert;

/// The parts of a server that the aggregator uses.
pub struct AggregatorDeps {
    pub catalog: Arc<Catalog>,
    pub registry: Arc<Registry>,
    pub extensions: Arc<Extensions>,
    pub client: Arc<LoopbackClient>,
    pub services: Arc<dyn ServiceResolver>,
    pub clock: Clock,
    /// The certificate by which other servers know this one; `None` where it has none.
    pub cert: Option<ClientCert>,
    /// Answers 502 where another server redirects.
    pub reject_redirects: bool,
}

/// The aggregator.
pub struct Aggregator {
    catalog: Arc<Catalog>,
    routes: Arc<Routes>,
    autoregister: Arc<Autoregister>,
    discovery: Arc<RemoteDiscovery>,
    openapi: Arc<RemoteOpenApi>,
    services: Arc<dyn ServiceResolver>,
    forwarder: Forwarder,
}

impl Aggregator {
    /// Learns of the APIServices there are, makes those of what this server serves, and starts to
    /// keep all up to date.
    ///
    /// # Errors
    /// The store's, of the first lists.
    pub async fn start(deps: AggregatorDeps, informers: &Informers) -> Result<Arc<Self>> {
        let catalog = deps.catalog;
        let routes = Arc::new(Routes::new(
            deps.cert,
            deps.services.egress().dialer(Network::Cluster),
        ));
        catalog.attach(routes.clone());
        informers
            .start(store(&deps.registry, &gvr())?, catalog.clone())
            .await?;
        let custom = deps.extensions.served_versions();
        let changes = deps.extensions.changes();
        let autoregister = Autoregister::new(
            &catalog,
            deps.client.clone(),
            &builtin_versions(&deps.registry),
            &custom,
        );
        let autoregister = Arc::new(autoregister);
        autoregister.sync_all().await;
        let extensions = deps.extensions;
        autoregister
            .clone()
            .run(changes, move || extensions.served_versions());
        let availability = Arc::new(Availability {
            catalog: catalog.clone(),
            routes: routes.clone(),
            client: deps.client,
            services: deps.services.clone(),
            clock: deps.clock,
            queue: availability::queue(),
        });
        catalog.feed(&availability.queue);
        for (group, resource) in [("", "services"), ("discovery.k8s.io", "endpointslices")] {
            let handler = EndpointHandler {
                routes: routes.clone(),
                queue: availability.queue.clone(),
                are_slices: resource == "endpointslices",
            };
            let store = store(&deps.registry, &Gvr::new(group, "v1", resource))?;
            informers.start(store, Arc::new(handler)).await?;
        }
        availability.run();
        let services = deps.services;
        let discovery = RemoteDiscovery::new(catalog.clone(), routes.clone(), services.clone());
        catalog.feed(&discovery.queue);
        discovery.clone().run();
        let openapi = RemoteOpenApi::new(routes.clone(), services.clone());
        catalog.feed(&openapi.queue);
        openapi.clone().run();
        Ok(Arc::new(Self {
            catalog,
            routes,
            autoregister,
            discovery,
            openapi,
            services,
            forwarder: Forwarder {
                instance: format!("kube-aggregator-{}", random::uuid()),
                reject_redirects: deps.reject_redirects,
            },
        }))
    }

    /// Grows with each change of what documents show of APIServices.
    pub fn version(&self) -> u64 {
        self.catalog.version() + self.discovery.version() + self.openapi.version()
    }

    /// Returns what discovery shows of APIServices beside what this server serves, `custom` among
    /// it. The APIServices of definitions that are a step behind are shown as they will be.
    pub fn api_services(&self, custom: &HashSet<GroupVersion>) -> ApiServices {
        let mut listed = Vec::new();
        let mut missing = custom.clone();
        for service in self.catalog.all() {
            let key = (service.group.clone(), service.version.clone());
            let was_known = missing.remove(&key);
            let is_left = service.management == Management::Continuous
                && service.remote.is_none()
                && !was_known;
            if !is_left {
                listed.push(ListedVersion {
                    group: key.0,
                    version: key.1,
                    rank: service.rank,
                });
            }
        }
        listed.extend(missing.into_iter().map(|(group, version)| ListedVersion {
            group,
            version,
            rank: ranks::CUSTOM,
        }));
        ApiServices {
            listed,
            remote: self.discovery.versions(),
        }
    }

    /// The OpenAPI documents of other servers.
    pub fn openapi(&self) -> Vec<Arc<RemoteSpec>> {
        self.openapi.specs()
    }

    /// Returns the route of a decoded path to another server; `None` for one that this server
    /// answers.
    pub fn route(&self, path: &str) -> Option<Arc<Route>> {
        let route = self.routes.find(path);
        route.or_else(|| self.openapi.find(path))
    }

    /// Hands a request on to the server of a route.
    ///
    /// # Errors
    /// The text that clients get instead of an answer.
    pub async fn forward(
        &self,
        route: &Route,
        request: Forwarded<'_>,
    ) -> std::result::Result<Response<ResponseBody>, Refusal> {
        self.forwarder
            .forward(route, &*self.services, request)
            .await
    }

    /// Presents another certificate to other servers from now on.
    pub fn replace_cert(&self, cert: ClientCert) {
        self.routes.replace_cert(cert, &self.catalog);
    }

    /// Reports whether every extension server that there was at the start has been asked for its
    /// resources once.
    ///
    /// # Errors
    /// Names the APIServices of those that have not.
    pub fn has_asked_all(&self) -> std::result::Result<(), String> {
        self.discovery.has_asked_all()
    }

    /// Reports whether every built-in APIService has been seen to be available.
    ///
    /// # Errors
    /// Names those that have not.
    pub fn is_complete(&self) -> std::result::Result<(), String> {
        self.autoregister.is_complete()
    }
}

fn store(registry: &Registry, gvr: &Gvr) -> Result<Arc<Store>> {
    let store = registry.get(gvr);
    store.ok_or_else(|| Status::internal(format!("{} are not served", gvr.group_resource())))
}

/// The groups and versions of the built-in resources that clients are served.
fn builtin_versions(registry: &Registry) -> Vec<GroupVersion> {
    let mut versions: Vec<GroupVersion> = registry
        .decls()
        .map(|decl| (decl.group.clone(), decl.version.clone()))
        .collect();
    versions.sort();
    versions.dedup();
    versions
}
