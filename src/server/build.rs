//! The construction of a server: stores, authentication, authorization, admission, bootstrap
//! objects, documents.

use std::net::SocketAddr;
use std::sync::Arc;

use jiff::Timestamp;

use super::authentication::{self, Authentication, SetupError};
use super::authorization;
use super::discovery::DiscoveryHandler;
use super::filters::{Goaway, HandlerChain, InFlight};
use super::health;
use super::metrics::Caches;
use super::reload::{self, WatchedFiles};
use super::run::ServerDeps;
use super::storage_metrics::{self, StorageSizes};
use super::stores::{self, StoreFactory};
use super::token_requests::TokenRequestIssuer;
use super::zpages::{Page, ZPages};
use crate::admission::kinds::Kinds;
use crate::admission::policy::references::Resolver;
use crate::admission::{self, Objects, Registrations, Settings};
use crate::aggregator::{Aggregator, AggregatorDeps, Catalog};
use crate::auth::authn::oidc;
use crate::auth::authz::Authorizer;
use crate::auth::authz::configuration::AuthorizerType;
use crate::auth::authz::rbac::RbacStore;
use crate::auth::impersonation::Impersonation;
use crate::base::clock::Clock;
use crate::base::dial::Network;
use crate::base::random;
use crate::cacher::EncodingCache;
use crate::controlplane::bootstrap::{self, FrontProxy, Params};
use crate::controlplane::endpoint_reconciler::EndpointReconciler;
use crate::controlplane::event_handlers::{watch_definitions, watch_rbac, watch_registrations};
use crate::controlplane::flow_control::{self, FlowControlReconciler};
use crate::controlplane::informer::Informers;
use crate::controlplane::loopback_client::LoopbackClient;
use crate::controlplane::master_leases::MasterLeases;
use crate::controlplane::reconcilers::service_cidr::{self, DefaultServiceCidr};
use crate::controlplane::reconcilers::{EventRecorder, FlowSchemaReconciler, Repairs};
use crate::controlplane::served_kinds::ServedKinds;
use crate::controlplane::services::ClusterServices;
use crate::discovery::ServerInfo;
use crate::endpoints::Api;
use crate::endpoints::handlers::token::TokenIssuer;
use crate::endpoints::kubelet::Kubelets;
use crate::endpoints::request_body::BodyBudget;
use crate::extensions::{DefinitionHooks, Extensions};
use crate::flowcontrol;
use crate::meta::{Gvr, Status};
use crate::options::admission_configuration::{self, AdmissionConfigurationError};
use crate::options::config::{self, Config};
use crate::options::credential_files::{CertError, FileContent};
use crate::registry::Registry;
use crate::telemetry::process;
use crate::webhook::tls::ClientCert;
use crate::webhook::{AuthInfos, Client, ServiceResolver};

/// An error of building a server.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error(transparent)]
    Authentication(#[from] SetupError),
    #[error(transparent)]
    AdmissionConfiguration(#[from] AdmissionConfigurationError),
    #[error(transparent)]
    File(#[from] CertError),
    #[error("authorization: {0}")]
    Authorization(String),
    #[error("bootstrap: {}", .0.message)]
    Bootstrap(Status),
    #[error("kubelet client: {0}")]
    Kubelets(String),
}

impl From<Status> for BuildError {
    fn from(status: Status) -> Self {
        Self::Bootstrap(status)
    }
}

/// The parts of a server that are used after its construction.
pub struct BuiltServer {
    pub chain: HandlerChain,
    /// It is to run for as long as the server does.
    pub endpoint_reconciler: EndpointReconciler,
    pub authentication: Authentication,
    pub informers: Informers,
    /// Configuration files that are followed.
    pub watched: Vec<WatchedFiles>,
}

/// The objects of the cluster as the server itself sees them.
struct Cluster {
    registry: Arc<Registry>,
    client: Arc<LoopbackClient>,
    informers: Informers,
    /// `None` if roles do not count.
    rbac: Option<Arc<RbacStore>>,
    extensions: Arc<Extensions>,
    authorizer: Arc<dyn Authorizer>,
    registrations: Registrations,
    services: Arc<dyn ServiceResolver>,
    aggregator: Arc<Aggregator>,
    kinds: Arc<dyn Kinds>,
    encodings: Arc<EncodingCache>,
}

/// Builds a server: creates the bootstrap objects and waits until authorization knows its rules.
///
/// # Errors
/// The store's, and credentials that cannot be understood.
pub async fn build_server(deps: &ServerDeps) -> Result<BuiltServer, BuildError> {
    let clock = Clock::system();
    let hooks = Arc::new(DefinitionHooks::default());
    let node_ports = Arc::new(stores::node_ports(deps));
    let registrations = Registrations::default();
    let encodings = EncodingCache::with_metrics(deps.config.memory.encoded_objects);
    let stores = StoreFactory::new(deps, &clock, &encodings);
    let catalog = Arc::new(Catalog::default());
    let registry = stores::registry(&stores, &hooks, &node_ports, &registrations, &catalog);
    let registry = Arc::new(registry);
    let mut repairs = Repairs::new(&registry, node_ports, &clock, &hostname())?;
    repairs.check_node_ports().await;
    let endpoint_reconciler = endpoint_reconciler(deps, &registry, &clock).await?;
    repairs.check_cluster_ips().await;
    tokio::spawn(repairs.run(deps.shutdown.stopping()));
    let mut watched = Vec::new();
    let cluster = start_informers(
        deps,
        registry,
        stores,
        &hooks,
        registrations,
        catalog,
        &mut watched,
    )
    .await?;
    health::add_informers(&deps.health, &cluster.informers);
    let identity = bootstrap::identity(&hostname());
    let external = authentication::external_signer(&deps.config).await?;
    let (authentication, config) =
        authentication::build(deps, cluster.client.clone(), &clock, &identity, external)?;
    watched.extend(config);
    tokio::spawn(
        authentication
            .clone()
            .follow_external_signer(deps.shutdown.stopping()),
    );
    let flow_schemas = FlowSchemaReconciler::start(
        &cluster.registry,
        cluster.client.clone(),
        &cluster.informers,
        &clock,
    );
    tokio::spawn(flow_schemas.await?.run(deps.shutdown.stopping()));
    let flow_control = flow_control(deps, &cluster, &clock).await?;
    if let Some(period) = deps.config.storage.count_period {
        tokio::spawn(storage_metrics::count_objects(
            cluster.registry.clone(),
            flow_control.clone(),
            period,
            deps.shutdown.clone(),
        ));
    }
    let has_peers = has_peers(&deps.config);
    health::add_post_start_hooks(&deps.health, flow_control.is_some(), has_peers);
    let has_certificate = deps.identity.proxy_client.is_some();
    health::add_aggregator(&deps.health, &cluster.aggregator, has_certificate);
    health::add_shutdown(&deps.health, &deps.shutdown);
    let informers = cluster.informers.clone();
    let mut chain = filter_chain(deps, cluster, &authentication, clock)?;
    chain.flow_control = flow_control;
    Ok(BuiltServer {
        chain,
        endpoint_reconciler,
        authentication,
        informers,
        watched,
    })
}

/// Starts priority and fairness; `None` where a flag turns it off. Its objects are kept in any
/// case.
async fn flow_control(
    deps: &ServerDeps,
    cluster: &Cluster,
    clock: &Clock,
) -> Result<Option<Arc<flowcontrol::Controller>>, Status> {
    let (client, stopping) = (cluster.client.clone(), deps.shutdown.stopping());
    tokio::spawn(flow_control::keep_objects(client, clock.clone(), stopping));
    let config = &deps.config;
    if !config.requests.priority_and_fairness {
        return Ok(None);
    }
    let controller = Arc::new(flowcontrol::Controller::new(
        config.requests.max_in_flight + config.requests.max_mutating_in_flight,
        config.feature_gates.enabled("SizeBasedListCostEstimate"),
    ));
    let (registry, informers) = (&cluster.registry, &cluster.informers);
    let follower = FlowControlReconciler::start(registry, controller.clone(), informers).await?;
    // Requests are served until the server has drained.
    tokio::spawn(follower.run(deps.shutdown.draining()));
    Ok(Some(controller))
}

/// Starts the informers of authorization and custom resources. The files that they follow are added
/// to `watched`.
async fn start_informers(
    deps: &ServerDeps,
    registry: Arc<Registry>,
    stores: StoreFactory,
    hooks: &DefinitionHooks,
    registrations: Registrations,
    catalog: Arc<Catalog>,
    watched: &mut Vec<WatchedFiles>,
) -> Result<Cluster, BuildError> {
    let (rbac, informers) = (Arc::new(RbacStore::default()), Informers::default());
    watch_rbac(&registry, &rbac, &informers).await?;
    let encodings = stores.encodings.clone();
    let client = Arc::new(LoopbackClient::new(registry.clone()));
    let to_endpoints = deps.config.services.routes_to_endpoints;
    let bound = SocketAddr::new(deps.config.serving.bind_address, deps.advertise.port());
    let services: Arc<dyn ServiceResolver> = Arc::new(
        ClusterServices::new(client.clone(), to_endpoints, bound).with_egress(deps.egress.clone()),
    );
    let extensions = extensions(&registry, stores, &services, hooks, &informers).await?;
    let identity = bootstrap::identity(&hostname());
    let config = &deps.config.authorization;
    let authorization = authorization::build(
        config,
        &deps.egress,
        &registry,
        &rbac,
        &informers,
        &identity,
    )
    .await?;
    let counts = authorization.authorizer.starts_with(AuthorizerType::Rbac);
    watched.extend(authorization.watched);
    watch_registrations(&registry, &registrations, &informers).await?;
    let aggregator = AggregatorDeps {
        catalog,
        registry: registry.clone(),
        extensions: extensions.clone(),
        client: client.clone(),
        services: services.clone(),
        clock: Clock::system(),
        cert: deps.identity.proxy_client.clone().map(ClientCert::from),
        reject_redirects: deps.config.aggregation.reject_redirects,
    };
    let aggregator = Aggregator::start(aggregator, &informers).await?;
    let proxy_client = deps.identity.proxy_client.as_ref();
    watched.extend(reload::proxy_client_files(proxy_client, &aggregator));
    Ok(Cluster {
        aggregator,
        services,
        client,
        kinds: Arc::new(ServedKinds::new(registry.clone())),
        registry,
        informers,
        rbac: counts.then_some(rbac),
        extensions,
        authorizer: authorization.authorizer,
        registrations,
        encodings,
    })
}

/// Returns the chain of filters over the API.
///
/// # Errors
/// A wrong configuration of admission plugins, or credentials for kubelets that are none.
fn filter_chain(
    deps: &ServerDeps,
    cluster: Cluster,
    authentication: &Authentication,
    clock: Clock,
) -> Result<HandlerChain, BuildError> {
    let config = &deps.config;
    let admission = Arc::new(admission_chain(&config.admission, &cluster)?);
    let tokens = authentication.issuer.clone().map(|issuer| {
        let client = cluster.client.clone();
        Arc::new(TokenRequestIssuer::new(
            issuer,
            client,
            config,
            authentication.longest_token,
            clock.clone(),
        )) as Arc<dyn TokenIssuer>
    });
    let about = ServerInfo {
        server_address: deps.advertise.to_string(),
        paths: paths(deps, authentication),
    };
    Ok(HandlerChain {
        auditor: deps.auditor.clone(),
        authenticator: authentication.chain.clone(),
        impersonation: Impersonation::new(
            cluster.authorizer.clone(),
            config.feature_gates.enabled("ConstrainedImpersonation"),
        ),
        authorizer: cluster.authorizer.clone(),
        oidc: authentication.discovery.clone(),
        health: deps.health.clone(),
        zpages: zpages(config, &about.paths),
        profiling: config.profiling,
        documents: DiscoveryHandler::new(
            cluster.registry.clone(),
            cluster.aggregator.clone(),
            about,
        ),
        aggregator: cluster.aggregator,
        storage_sizes: storage_sizes(deps),
        caches: caches(deps),
        tracer: deps.tracer.clone(),
        in_flight: InFlight::new(&config.requests),
        flow_control: None,
        request_timeout: config.requests.timeout,
        browsers: config.browsers.clone(),
        shutdown: deps.shutdown.clone(),
        leaving: config.shutdown.clone(),
        goaway: goaway(config),
        api: Arc::new(Api {
            admission,
            references: Resolver {
                objects: cluster.client,
                kinds: cluster.kinds,
                authorizer: cluster.authorizer.clone(),
            },
            registry: cluster.registry,
            extensions: cluster.extensions,
            authorizer: cluster.authorizer,
            rbac: cluster.rbac,
            token_reviewer: authentication.chain.clone(),
            kubelets: kubelets(deps)?,
            websockets_at_kubelets: config.feature_gates.enabled("ExtendWebSocketsToKubelet"),
            clock,
            bodies: BodyBudget::new(config.memory.bodies, config.memory.decoded),
            encodings: cluster.encodings,
            compresses: config.feature_gates.enabled("APIResponseCompression"),
            draining: deps.shutdown.draining(),
            tasks: deps.shutdown.tasks(),
            delete_collection_workers: config.requests.delete_collection_workers,
            min_request_timeout: config.requests.min_watch.as_secs(),
            tokens,
        }),
    })
}

/// The HTTP/2 clients that are asked to open a new connection.
fn goaway(config: &Config) -> Goaway {
    let gates = &config.feature_gates;
    Goaway {
        chance: config.requests.goaway_chance,
        unauthenticated: gates.enabled("UnauthenticatedHTTP2DOSMitigation"),
    }
}

/// The sizes of the store and of those of single resources.
fn storage_sizes(deps: &ServerDeps) -> StorageSizes {
    let others = deps.storage_overrides.backends().iter();
    let others = others.map(|backend| backend.storage.clone());
    StorageSizes::new(std::iter::once(deps.storage.clone()).chain(others))
}

/// The watch caches of the store and of those of single resources.
fn caches(deps: &ServerDeps) -> Caches {
    let others = deps.storage_overrides.backends().iter();
    let others = others.filter_map(|backend| backend.reflector.clone());
    Caches(deps.reflector.iter().cloned().chain(others).collect())
}

/// Returns the way to kubelets.
fn kubelets(deps: &ServerDeps) -> Result<Kubelets, BuildError> {
    let dialer = deps.egress.dialer(Network::Cluster);
    Kubelets::new(deps.config.kubelet.clone(), dialer).map_err(BuildError::Kubelets)
}

/// Returns the admission plugins that are to run, and logs which they are.
fn admission_chain(
    config: &config::Admission,
    cluster: &Cluster,
) -> Result<admission::Chain, AdmissionConfigurationError> {
    let settings = Settings {
        plugins: admission_configuration::of(config)?,
        not_ready_toleration_seconds: config.not_ready_toleration_seconds,
        unreachable_toleration_seconds: config.unreachable_toleration_seconds,
    };
    let objects: Arc<dyn Objects> = cluster.client.clone();
    let runs = |plugin: &str, by_default: bool| config.runs(plugin, by_default);
    let parts = admission::PluginDeps {
        objects: &objects,
        authorizer: &cluster.authorizer,
        settings: &settings,
        kinds: &cluster.kinds,
        registrations: &cluster.registrations,
        services: &cluster.services,
    };
    let chain = admission::chain(&parts, runs);
    let names = chain.names().join(", ");
    tracing::info!("admission plugins, in this order: {names}");
    for (plugin, why) in config.inert() {
        tracing::info!("admission plugin {plugin} has nothing to do here: {why}");
    }
    Ok(chain)
}

/// Joins the servers of the cluster and makes the bootstrap objects.
async fn endpoint_reconciler(
    deps: &ServerDeps,
    registry: &Arc<Registry>,
    clock: &Clock,
) -> Result<EndpointReconciler, Status> {
    let (config, client) = (&deps.config, LoopbackClient::new(registry.clone()));
    // Nobody else has the embedded store.
    let shared = config.reconcile_endpoints && !config.storage.etcd_servers.is_empty();
    let leases = shared.then(|| master_leases(deps));
    let events = EventRecorder::new(
        LoopbackClient::new(registry.clone()),
        service_cidr::CONTROLLER,
        &hostname(),
        clock.clone(),
    );
    let service_cidr =
        DefaultServiceCidr::new(&config.services.cluster_ip_ranges, events, clock.clone());
    let endpoint_reconciler = EndpointReconciler::join(
        params(deps, clock),
        leases,
        client,
        service_cidr,
        clock.clone(),
    )
    .await?;
    bootstrap::ensure(
        bootstrap::objects(endpoint_reconciler.params()),
        endpoint_reconciler.client(),
    )
    .await?;
    Ok(endpoint_reconciler)
}

/// Reports whether servers that hand on requests to those of other versions are to find this one.
/// It hands on none itself.
fn has_peers(config: &Config) -> bool {
    config
        .feature_gates
        .enabled("UnknownVersionInteroperabilityProxy")
}

/// The keys by which the servers of a cluster know each other.
fn master_leases(deps: &ServerDeps) -> MasterLeases {
    let (config, root) = (&deps.config, &deps.config.storage.prefix);
    let leases = MasterLeases::new(deps.storage.clone(), root);
    match has_peers(config) {
        true => leases.with_peer(root, bootstrap::identity(&hostname()), deps.advertise),
        false => leases,
    }
}

fn params(deps: &ServerDeps, clock: &Clock) -> Params {
    let (config, identity) = (&deps.config, &deps.identity);
    let text = |ca: &FileContent| String::from_utf8_lossy(&ca.bytes).into_owned();
    Params {
        now: clock.now(),
        hostname: hostname(),
        instance: random::uuid(),
        advertise_address: deps.advertise.ip(),
        secure_port: deps.advertise.port(),
        servers: config
            .reconcile_endpoints
            .then(|| vec![deps.advertise.ip()]),
        service_cidrs: config.services.cluster_ip_ranges.clone(),
        service_node_port: config.services.kubernetes_node_port,
        client_ca: Some(text(&identity.client_ca)),
        front_proxy: identity
            .request_header
            .as_ref()
            .map(|(header, ca)| FrontProxy {
                client_ca: text(ca),
                allowed_names: header.allowed_names.clone(),
                username_headers: header.username_headers.clone(),
                uid_headers: header.uid_headers.clone(),
                group_headers: header.group_headers.clone(),
                extra_prefixes: header.extra_prefixes.clone(),
            }),
    }
}

/// Returns the name of the machine.
pub fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() {
        "localhost".to_owned()
    } else {
        name.to_owned()
    }
}

/// The paths that `GET /` lists beside the API's own.
fn paths(deps: &ServerDeps, authentication: &Authentication) -> Vec<String> {
    let fixed = [
        "/metrics",
        "/metrics/slis",
        "/openapi/v2",
        "/openapi/v3",
        "/version",
    ];
    let openid = authentication.discovery.load().is_some();
    let openid = [oidc::CONFIGURATION_PATH, oidc::KEYS_PATH]
        .into_iter()
        .filter(|_| openid);
    let mut paths = deps.health.paths();
    let pages = served_pages(&deps.config).into_iter().map(Page::path);
    let others = fixed.into_iter().chain(openid).chain(pages);
    paths.extend(others.map(str::to_owned));
    paths
}

fn served_pages(config: &Config) -> Vec<Page> {
    let gates = &config.feature_gates;
    let is_on = |page: &Page| match page {
        Page::Flagz => gates.enabled("ComponentFlagz"),
        Page::Statusz => gates.enabled("ComponentStatusz"),
    };
    Page::ALL.into_iter().filter(is_on).collect()
}

fn zpages(config: &Config, paths: &[String]) -> ZPages {
    let started = process::start_seconds().and_then(|at| Timestamp::from_second(at as i64).ok());
    ZPages::new(
        served_pages(config),
        started.unwrap_or_else(|| Clock::system().now()),
        config.flags.clone(),
        paths,
    )
}

/// Serves the custom resources of all definitions, and follows their changes.
async fn extensions(
    registry: &Arc<Registry>,
    stores: StoreFactory,
    services: &Arc<dyn ServiceResolver>,
    hooks: &DefinitionHooks,
    informers: &Informers,
) -> Result<Arc<Extensions>, Status> {
    let gvr = Gvr::new("apiextensions.k8s.io", "v1", "customresourcedefinitions");
    let definitions = registry
        .get(&gvr)
        .ok_or_else(|| Status::internal("definitions are not served"))?;
    let webhooks = Client::new(AuthInfos::default(), services.clone());
    let clock = stores.clock.clone();
    let extensions = Extensions::new(
        registry.clone(),
        definitions.clone(),
        Box::new(stores),
        Some(webhooks),
        clock,
    );
    hooks.attach(&extensions);
    watch_definitions(definitions, &extensions, informers).await?;
    Ok(extensions)
}
