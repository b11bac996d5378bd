//! The stores of the built-in and the custom resources, each over its backend.

use std::sync::Arc;

use super::run::ServerDeps;
use crate::admission::{self, Registrations};
use crate::aggregator::Catalog;
use crate::base::clock::Clock;
use crate::builtin;
use crate::builtin::autoscaling::{self, AutoscalerConversion};
use crate::builtin::certificates::certificate_signing_request::metrics::IssuedDurations;
use crate::builtin::core::service::allocation::{self, ServiceAllocator};
use crate::builtin::core::service::node_ports::NodePorts;
use crate::builtin::events::EventConversion;
use crate::cacher::EncodingCache;
use crate::controlplane::event_handlers::RegistrationHandler;
use crate::extensions::{CustomResourceDefinitions, CustomStores, DefinitionHooks};
use crate::registry::resource::Hooks;
use crate::registry::{Registry, Resource, Store, StrategyHandle};
use crate::schema::ResourceDecl;

/// Opens the store of a resource: over its backend, with a watch cache unless the operator wants
/// none for it.
pub struct StoreFactory {
    deps: ServerDeps,
    pub clock: Clock,
    pub encodings: Arc<EncodingCache>,
}

impl StoreFactory {
    /// A factory of stores whose converted objects share the budget of `encodings`.
    pub fn new(deps: &ServerDeps, clock: &Clock, encodings: &Arc<EncodingCache>) -> Self {
        Self {
            deps: deps.clone(),
            clock: clock.clone(),
            encodings: encodings.clone(),
        }
    }

    fn store(&self, resource: Resource) -> Store {
        let config = &self.deps.config.storage;
        let (storage, reflector) = match self
            .deps
            .storage_overrides
            .of(&resource.gvr.group, &resource.gvr.resource)
        {
            Some(backend) => (&backend.storage, backend.reflector.as_deref()),
            None => (&self.deps.storage, self.deps.reflector.as_deref()),
        };
        let reflector =
            reflector.filter(|_| !config.uncached.contains(&resource.gvr.group_resource()));
        let store = Store::new(
            Arc::new(resource),
            storage.clone(),
            self.clock.clone(),
            &config.prefix,
        );
        store
            .cached(reflector)
            .privileged(self.deps.config.allow_privileged)
            .converting(&self.encodings)
    }
}

impl CustomStores for StoreFactory {
    fn open(&self, resource: Resource) -> Store {
        self.store(resource)
    }

    fn close(&self, store: &Store) {
        if let Some(reflector) = &self.deps.reflector {
            reflector.remove(&store.prefix());
        }
    }
}

/// Returns the allocator of node ports, on the backend of the services.
pub fn node_ports(deps: &ServerDeps) -> NodePorts {
    let storage = deps
        .storage_overrides
        .of("", "services")
        .map_or(&deps.storage, |backend| &backend.storage);
    NodePorts::new(
        storage.clone(),
        &deps.config.storage.prefix,
        deps.config.services.node_ports.clone(),
    )
}

/// Returns the registry of every built-in resource.
pub fn registry(
    stores: &StoreFactory,
    definitions: &Arc<DefinitionHooks>,
    node_ports: &Arc<NodePorts>,
    registrations: &Registrations,
    api_services: &Arc<Catalog>,
) -> Registry {
    let (schema, config) = (crate::schema::builtin(), &stores.deps.config);
    let store = |group: &str, resource: &str| {
        let decl = schema
            .resources
            .iter()
            .find(|decl| decl.group == group && decl.resource == resource);
        let decl = decl.cloned().unwrap_or_else(ResourceDecl::default);
        Arc::new(stores.store(Resource::builtin(&decl, builtin::strategy(group, resource))))
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
            ("certificates.k8s.io", _, "certificatesigningrequests") => {
                resource.hooks = Some(Arc::new(IssuedDurations));
            }
            ("apiregistration.k8s.io", _, "apiservices") => {
                resource.hooks = Some(api_services.clone());
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
            (admission::GROUP, _, _) => {
                resource.hooks = registration_hooks(registrations, &decl.resource);
            }
            _ => {}
        }
        stores.store(resource)
    });
    Registry::new(resources, config.apis.hidden())
}

/// Returns the hooks that bring policies, their bindings and webhooks into effect.
fn registration_hooks(registrations: &Registrations, resource: &str) -> Option<Arc<dyn Hooks>> {
    let mut observers = registrations.observers().into_iter();
    let (_, observer) = observers.find(|(name, _)| *name == resource)?;
    Some(Arc::new(RegistrationHandler(observer)))
}
