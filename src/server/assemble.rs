//! Puts the handler together: stores, authentication, authorization, admission, bootstrap objects,
//! documents.

use std::sync::Arc;

use super::authentication::{self, Authentication, SetupError};
use super::discovery::DiscoveryHandler;
use super::filters::{Goaway, HandlerChain, InFlight};
use super::health;
use super::run::Parts;
use super::token_requests::Tokens;
use crate::admission::{self, Objects, Settings};
use crate::auth::authz::node::{self, NodeAuthorizer, NodeGraph};
use crate::auth::authz::rbac::RbacStore;
use crate::auth::authz::{self, Authorizer};
use crate::auth::impersonation::Impersonation;
use crate::base::clock::Clock;
use crate::base::random;
use crate::builtin;
use crate::builtin::autoscaling::{self, AutoscalerConversion};
use crate::builtin::core::service::allocation::{self, ServiceAllocator};
use crate::builtin::core::service::node_ports::NodePorts;
use crate::builtin::events::EventConversion;
use crate::cacher::EncodingCache;
use crate::controlplane::bootstrap::{self, FrontProxy, Params};
use crate::controlplane::endpoint_reconciler::Keeper;
use crate::controlplane::informer::{Follower, Informers};
use crate::controlplane::loopback_client::RegistryCreator;
use crate::controlplane::master_leases::MasterLeases;
use crate::controlplane::objects::RegistryObjects;
use crate::controlplane::reconcilers::service_cidr::{self, DefaultServiceCidr};
use crate::controlplane::reconcilers::{EventRecorder, Repairs};
use crate::discovery::About;
use crate::endpoints::Api;
use crate::endpoints::request_body::{BodyBudget, MAX_ALL_BODIES};
use crate::extensions::{CustomResourceDefinitions, CustomStores, DefinitionHooks, Extensions};
use crate::meta::selector::FieldReader;
use crate::meta::{Gvr, Object, Status, Value};
use crate::options::config::{AuthorizationMode, Config};
use crate::options::credential_files::Material;
use crate::registry::store::Trees;
use crate::registry::unenforced::UNENFORCED;
use crate::registry::{Registry, Resource, Store, StrategyHandle};
use crate::schema::ResourceDecl;

/// Why a handler could not be put together.
#[derive(Debug, thiserror::Error)]
pub enum AssembleError {
    #[error(transparent)]
    Authentication(#[from] SetupError),
    #[error("bootstrap: {}", .0.message)]
    Bootstrap(Status),
}

/// The RBAC kinds that authorization follows.
const RBAC: [&str; 4] = [
    "clusterroles",
    "clusterrolebindings",
    "roles",
    "rolebindings",
];

/// Builds the handler, makes the bootstrap objects and waits until authorization knows its rules.
/// The keeper is to run as long as the server does.
pub async fn assemble(
    parts: &Parts,
) -> Result<(HandlerChain, Keeper, Authentication), AssembleError> {
    let clock = Clock::system();
    let config = &parts.config;
    let hooks = Arc::new(DefinitionHooks::default());
    let node_ports = Arc::new(node_ports(parts));
    let registry = Arc::new(registry(parts, &clock, &hooks, &node_ports));
    let objects = Arc::new(RegistryObjects(registry.clone()));
    let mut repairs = Repairs::new(&registry, node_ports, &clock, &hostname())
        .map_err(AssembleError::Bootstrap)?;
    repairs.check_node_ports().await;
    let keeper = keeper(parts, &registry, &clock)
        .await
        .map_err(AssembleError::Bootstrap)?;
    repairs.check_cluster_ips().await;
    tokio::spawn(repairs.run(parts.shutdown.stopping()));
    let rbac = Arc::new(RbacStore::default());
    let informers = Informers::default();
    follow_rbac(&registry, &rbac, &informers)
        .await
        .map_err(AssembleError::Bootstrap)?;
    let extensions = extensions(parts, &registry, &clock, &hooks, &informers)
        .await
        .map_err(AssembleError::Bootstrap)?;
    let authorizer = authorizer(config, &registry, &rbac, &informers)
        .await
        .map_err(AssembleError::Bootstrap)?;
    health::add_informers(&parts.health, &informers);
    let authentication = authentication::build(parts, objects.clone(), &clock)?;
    let settings = Settings {
        not_ready_toleration_seconds: config.admission.not_ready_toleration_seconds,
        unreachable_toleration_seconds: config.admission.unreachable_toleration_seconds,
    };
    let readable: Arc<dyn Objects> = objects.clone();
    let admission = admission::chain(&readable, &authorizer, &settings, |plugin, by_default| {
        config.admission.runs(plugin, by_default)
    });
    tracing::info!(
        "admission plugins, in this order: {}",
        admission.names().join(", ")
    );
    for (plugin, why) in config.admission.inert() {
        tracing::info!("admission plugin {plugin} has nothing to do here: {why}");
    }
    for (plugin, what) in config.admission.absent() {
        tracing::warn!("admission plugin {plugin} is on in kube-apiserver and absent here: {what}");
    }
    let tokens = authentication.issuer.clone().map(|issuer| {
        Arc::new(Tokens::new(issuer, objects.clone(), config, clock.clone()))
            as Arc<dyn crate::endpoints::handlers::token::TokenIssuer>
    });
    tell_unenforced(&registry).await;
    let about = About {
        server_address: parts.advertise.to_string(),
        paths: paths(),
    };
    let chain = HandlerChain {
        authenticator: authentication.chain.clone(),
        impersonation: Impersonation::new(
            authorizer.clone(),
            config.feature_gates.enabled("ConstrainedImpersonation"),
        ),
        authorizer: authorizer.clone(),
        documents: DiscoveryHandler::new(registry.clone(), about),
        oidc: authentication.discovery.clone(),
        health: parts.health.clone(),
        in_flight: InFlight::new(&config.requests),
        request_timeout: config.requests.timeout,
        goaway: Goaway {
            chance: config.requests.goaway_chance,
            unauthenticated: config
                .feature_gates
                .enabled("UnauthenticatedHTTP2DOSMitigation"),
        },
        api: Arc::new(Api {
            registry,
            extensions,
            admission: Arc::new(admission),
            authorizer,
            rbac: config
                .authorization
                .contains(&AuthorizationMode::Rbac)
                .then_some(rbac),
            token_reviewer: authentication.chain.clone(),
            clock,
            bodies: BodyBudget::new(MAX_ALL_BODIES),
            encodings: EncodingCache::with_metrics(config.storage.encoding_cache_bytes),
            compresses: config.feature_gates.enabled("APIResponseCompression"),
            draining: parts.shutdown.draining(),
            tasks: parts.shutdown.tasks(),
            min_request_timeout: config.requests.min_watch.as_secs(),
            tokens,
        }),
    };
    Ok((chain, keeper, authentication))
}

/// Makes the bootstrap objects as one of the servers of the cluster.
async fn keeper(parts: &Parts, registry: &Arc<Registry>, clock: &Clock) -> Result<Keeper, Status> {
    let (config, creator) = (&parts.config, RegistryCreator::new(registry.clone()));
    // Nobody else has the embedded store.
    let shared = config.reconcile_endpoints && !config.storage.etcd_servers.is_empty();
    let leases = shared.then(|| MasterLeases::new(parts.storage.clone(), &config.storage.prefix));
    let events = EventRecorder::new(
        RegistryCreator::new(registry.clone()),
        service_cidr::CONTROLLER,
        &hostname(),
        clock.clone(),
    );
    let service_cidr =
        DefaultServiceCidr::new(&config.services.cluster_ip_ranges, events, clock.clone());
    let keeper = Keeper::join(
        params(parts, registry, clock),
        leases,
        creator,
        service_cidr,
        clock.clone(),
    )
    .await?;
    bootstrap::ensure(bootstrap::objects(keeper.params()), keeper.creator()).await?;
    bootstrap::remove_unserved(&keeper.params().group_versions, keeper.creator()).await?;
    Ok(keeper)
}

/// Where the objects of a resource are: its storage, with its watch cache unless the operator wants
/// none for it.
struct Stores {
    parts: Parts,
    clock: Clock,
    trees: Trees,
}

impl Stores {
    fn over(&self, resource: Resource) -> Store {
        let config = &self.parts.config.storage;
        let (storage, reflector) = match self
            .parts
            .apart
            .of(&resource.gvr.group, &resource.gvr.resource)
        {
            Some(place) => (&place.storage, place.reflector.as_deref()),
            None => (&self.parts.storage, self.parts.reflector.as_deref()),
        };
        let reflector =
            reflector.filter(|_| !config.uncached.contains(&resource.gvr.group_resource()));
        let store = Store::new(
            Arc::new(resource),
            storage.clone(),
            self.trees.clone(),
            self.clock.clone(),
            &config.prefix,
        );
        store
            .cached(reflector)
            .privileged(self.parts.config.allow_privileged)
    }
}

impl CustomStores for Stores {
    fn open(&self, resource: Resource) -> Store {
        self.over(resource)
    }

    fn close(&self, store: &Store) {
        if let Some(reflector) = &self.parts.reflector {
            reflector.remove(&store.prefix());
        }
    }
}

/// The node ports of the cluster, where its services are.
fn node_ports(parts: &Parts) -> NodePorts {
    let storage = parts
        .apart
        .of("", "services")
        .map_or(&parts.storage, |place| &place.storage);
    NodePorts::new(
        storage.clone(),
        &parts.config.storage.prefix,
        parts.config.services.node_ports.clone(),
    )
}

/// Every built-in resource over the storage.
fn registry(
    parts: &Parts,
    clock: &Clock,
    definitions: &Arc<DefinitionHooks>,
    node_ports: &Arc<NodePorts>,
) -> Registry {
    let (schema, config) = (crate::schema::builtin(), &parts.config);
    let stores = Stores {
        parts: parts.clone(),
        clock: clock.clone(),
        trees: Trees::default(),
    };
    let store = |group: &str, resource: &str| {
        let decl = schema
            .resources
            .iter()
            .find(|decl| decl.group == group && decl.resource == resource);
        let decl = decl.cloned().unwrap_or_else(ResourceDecl::default);
        Arc::new(stores.over(Resource::builtin(&decl, builtin::strategy(group, resource))))
    };
    let services = Arc::new(ServiceAllocator::new(
        store("networking.k8s.io", "ipaddresses"),
        store("networking.k8s.io", "servicecidrs"),
        store("", "endpoints"),
        allocation::families_of(&config.services.cluster_ip_ranges),
        node_ports.clone(),
    ));
    let resources = schema.resources.iter().map(|decl| {
        let mut resource = Resource::builtin(decl, builtin::strategy(&decl.group, &decl.resource));
        match (
            decl.group.as_str(),
            decl.version.as_str(),
            decl.resource.as_str(),
        ) {
            ("", _, "services") => resource.hooks = Some(services.clone()),
            ("apiextensions.k8s.io", _, "customresourcedefinitions") => {
                resource.strategy = StrategyHandle::Static(&CustomResourceDefinitions);
                resource.hooks = Some(definitions.clone());
            }
            ("", _, "events") => resource.ttl = Some(config.event_ttl),
            ("events.k8s.io", _, "events") => {
                resource.ttl = Some(config.event_ttl);
                resource.conversion = Some(&EventConversion);
            }
            ("autoscaling", version, "horizontalpodautoscalers") => {
                resource.versions = autoscaling::versions();
                resource.conversion = (version == "v1").then_some(&AutoscalerConversion as _);
            }
            _ => {}
        }
        stores.over(resource)
    });
    Registry::new(resources, config.apis.hidden())
}

/// How many objects of a kind the log names at start.
const UNENFORCED_NAMED: usize = 20;

/// Logs which objects are stored and not enforced. Those that the server made itself are no
/// surprise.
async fn tell_unenforced(registry: &Registry) {
    for row in UNENFORCED {
        let Some(store) = registry.get(&Gvr::new(row.group, "v1", row.resource)) else {
            continue;
        };
        let objects = match store.known("").await {
            Ok(objects) => objects,
            Err(why) => {
                tracing::warn!(
                    "looking for {} that are not enforced: {}",
                    row.resource,
                    why.message
                );
                continue;
            }
        };
        let own = |object: &Object| {
            object
                .annotations()
                .and_then(|all| all.get(AUTO_UPDATE))
                .and_then(Value::as_str)
                == Some("true")
        };
        let told: Vec<String> = objects
            .iter()
            .filter(|object| !own(object))
            .filter_map(|one| row.of(&store.resource, one))
            .collect();
        for text in told.iter().take(UNENFORCED_NAMED) {
            tracing::warn!("{text}");
        }
        if told.len() > UNENFORCED_NAMED {
            tracing::warn!(
                "{} more {} are stored but not enforced by this server",
                told.len() - UNENFORCED_NAMED,
                row.resource
            );
        }
    }
}

/// What the flow control objects that the server makes itself carry.
const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

fn params(parts: &Parts, registry: &Registry, clock: &Clock) -> Params {
    let (config, identity) = (&parts.config, &parts.identity);
    let text = |ca: &Material| String::from_utf8_lossy(&ca.bytes).into_owned();
    let mut group_versions: Vec<(String, String)> = registry
        .decls()
        .map(|decl| (decl.group.clone(), decl.version.clone()))
        .collect();
    group_versions.sort();
    group_versions.dedup();
    Params {
        now: clock.now(),
        hostname: hostname(),
        instance: random::uuid(),
        advertise_address: parts.advertise.ip(),
        secure_port: parts.advertise.port(),
        servers: config
            .reconcile_endpoints
            .then(|| vec![parts.advertise.ip()]),
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
        group_versions,
    }
}

fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() {
        "localhost".to_owned()
    } else {
        name.to_owned()
    }
}

/// The paths that `GET /` lists beside the API's own.
fn paths() -> Vec<String> {
    let fixed = [
        "/healthz",
        "/livez",
        "/readyz",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/version",
    ];
    fixed.into_iter().map(str::to_owned).collect()
}

async fn authorizer(
    config: &Config,
    registry: &Registry,
    rbac: &Arc<RbacStore>,
    informers: &Informers,
) -> Result<Arc<dyn Authorizer>, Status> {
    let mut chain: Vec<Arc<dyn Authorizer>> = vec![Arc::new(authz::PrivilegedGroup)];
    for mode in &config.authorization {
        match mode {
            AuthorizationMode::Node => {
                let graph = Arc::new(NodeGraph::default());
                follow_nodes(registry, &graph, informers).await?;
                chain.push(Arc::new(NodeAuthorizer::new(
                    graph,
                    bootstrap::node_rules(),
                )));
            }
            AuthorizationMode::Rbac => chain.push(rbac.clone()),
            AuthorizationMode::AlwaysAllow => chain.push(Arc::new(authz::AlwaysAllow)),
            AuthorizationMode::AlwaysDeny => chain.push(Arc::new(authz::AlwaysDeny)),
        }
    }
    Ok(Arc::new(authz::Chain(chain)))
}

/// What the node authorizer's graph is made of.
const NODE_GRAPH: [(&str, &str); 4] = [
    ("", "pods"),
    ("", "persistentvolumes"),
    ("storage.k8s.io", "volumeattachments"),
    ("resource.k8s.io", "resourceslices"),
];

async fn follow_nodes(
    registry: &Registry,
    graph: &Arc<NodeGraph>,
    informers: &Informers,
) -> Result<(), Status> {
    for (group, resource) in NODE_GRAPH {
        let gvr = Gvr::new(group, "v1", resource);
        let store = registry
            .get(&gvr)
            .ok_or_else(|| Status::internal(format!("{resource} are not served")))?;
        let kind = store.resource.gvk.kind.clone();
        informers
            .follow(
                store,
                Arc::new(NodeFollower {
                    graph: graph.clone(),
                    kind,
                }),
            )
            .await?;
    }
    Ok(())
}

/// Hands one kind to the graph of what nodes may see.
struct NodeFollower {
    graph: Arc<NodeGraph>,
    kind: String,
}

impl Follower for NodeFollower {
    fn reads(&self) -> Option<&'static [&'static str]> {
        (self.kind == "Pod").then_some(&node::POD_PATHS)
    }

    fn is_same(&self, object: &dyn FieldReader) -> bool {
        self.kind == "Pod" && self.graph.knows_pod(object)
    }

    fn replace(&self, objects: &[Object]) {
        self.graph.replace(&self.kind, objects);
    }

    fn upsert(&self, object: &Object) {
        self.graph.upsert(object);
    }

    fn remove(&self, object: &Object) {
        self.graph
            .remove(&self.kind, object.namespace(), object.name());
    }
}

/// Serves the custom resources whose definitions there are, and follows what becomes of them.
async fn extensions(
    parts: &Parts,
    registry: &Arc<Registry>,
    clock: &Clock,
    hooks: &DefinitionHooks,
    informers: &Informers,
) -> Result<Arc<Extensions>, Status> {
    let gvr = Gvr::new("apiextensions.k8s.io", "v1", "customresourcedefinitions");
    let definitions = registry
        .get(&gvr)
        .ok_or_else(|| Status::internal("definitions are not served"))?;
    let stores = Box::new(Stores {
        parts: parts.clone(),
        clock: clock.clone(),
        trees: Trees::default(),
    });
    let extensions = Extensions::new(registry.clone(), definitions.clone(), stores, clock.clone());
    hooks.tell(extensions.clone());
    informers
        .follow(
            definitions,
            Arc::new(DefinitionFollower(extensions.clone())),
        )
        .await?;
    Ok(extensions)
}

/// Hands the definitions to the controller of custom resources.
struct DefinitionFollower(Arc<Extensions>);

impl Follower for DefinitionFollower {
    fn replace(&self, objects: &[Object]) {
        self.0.replace(objects);
    }

    fn upsert(&self, object: &Object) {
        self.0.observe(object);
    }

    fn remove(&self, object: &Object) {
        self.0.forget(object);
    }
}

async fn follow_rbac(
    registry: &Registry,
    rbac: &Arc<RbacStore>,
    informers: &Informers,
) -> Result<(), Status> {
    for resource in RBAC {
        let gvr = Gvr::new("rbac.authorization.k8s.io", "v1", resource);
        let store = registry
            .get(&gvr)
            .ok_or_else(|| Status::internal(format!("{resource} are not served")))?;
        let kind = store.resource.gvk.kind.clone();
        informers
            .follow(
                store,
                Arc::new(RbacFollower {
                    rbac: rbac.clone(),
                    kind,
                }),
            )
            .await?;
    }
    Ok(())
}

/// Hands one RBAC kind to the authorizer.
struct RbacFollower {
    rbac: Arc<RbacStore>,
    kind: String,
}

impl Follower for RbacFollower {
    fn replace(&self, objects: &[Object]) {
        self.rbac.replace(&self.kind, objects);
    }

    fn upsert(&self, object: &Object) {
        self.rbac.upsert(object);
    }

    fn remove(&self, object: &Object) {
        self.rbac
            .remove(&self.kind, object.namespace(), object.name());
    }
}
