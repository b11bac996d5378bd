//! Resources: what each kind does beyond its schema (Strategy), and the generic store that every
//! verb goes through.

pub mod duration;
pub mod cells;
pub mod table;
pub mod strategy;
pub mod validation;
mod warnings;
mod write_context;
pub mod scale;
pub mod resource;
pub mod store;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;

use crate::meta::Gvr;
use crate::schema::ResourceDecl;

pub use resource::{Custom, Resource, StrategyHandle};
pub use store::Store;
pub use strategy::{Context, MetaChecks, NameRule, NeedsReadDefaults, Strategy, Subresource};

/// Every served resource, by group, version and plural: the built-in ones, which stay, and those of
/// CRDs, which come and go.
#[derive(Default)]
pub struct Registry {
    stores: HashMap<Gvr, Arc<Store>>,
    /// The built-in resources that clients are not served.
    hidden: HashSet<Gvr>,
    groups: HashSet<String>,
    custom: ArcSwap<HashMap<Gvr, Arc<Store>>>,
    version: AtomicU64,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Registry({} resources)",
            self.stores.len() + self.custom.load().len()
        )
    }
}

impl Registry {
    /// The registry of these stores; clients are not served those of `hidden`.
    pub fn new(
        stores: impl IntoIterator<Item = Store>,
        hidden: impl IntoIterator<Item = Gvr>,
    ) -> Self {
        let mut registry = Self {
            hidden: hidden.into_iter().collect(),
            ..Self::default()
        };
        for store in stores {
            let gvr = store.resource.gvr.clone();
            if !registry.hidden.contains(&gvr) {
                registry.groups.insert(gvr.group.clone());
            }
            registry.stores.insert(gvr, Arc::new(store));
        }
        registry
    }

    /// The store of a resource, for the server's own needs.
    pub fn get(&self, gvr: &Gvr) -> Option<Arc<Store>> {
        self.stores
            .get(gvr)
            .cloned()
            .or_else(|| self.custom.load().get(gvr).cloned())
    }

    /// The store of a resource that clients are served.
    pub fn served(&self, gvr: &Gvr) -> Option<Arc<Store>> {
        self.get(gvr).filter(|_| self.is_served(gvr))
    }

    /// Reports whether clients are served the resource, if there is one.
    pub fn is_served(&self, gvr: &Gvr) -> bool {
        self.hidden.is_empty() || !self.hidden.contains(gvr)
    }

    /// Reports whether the resource is a built-in one.
    pub fn is_builtin(&self, gvr: &Gvr) -> bool {
        self.stores.contains_key(gvr)
    }

    /// Puts stores for custom resources in the place of those that `replaced` names. Built-in
    /// resources stay what they are.
    pub fn replace_custom(&self, replaced: &[Gvr], stores: Vec<Arc<Store>>) {
        self.custom.rcu(|present| {
            let mut next = HashMap::clone(present);
            next.retain(|gvr, _| !replaced.contains(gvr));
            next.extend(
                stores
                    .iter()
                    .filter(|store| !self.is_builtin(&store.resource.gvr))
                    .map(|store| (store.resource.gvr.clone(), store.clone())),
            );
            next
        });
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Lets go of all custom resources, whose conversion may use this registry: for the end of a
    /// server in a process that goes on.
    pub fn close(&self) {
        self.custom.store(Arc::default());
    }

    /// The stores of custom resources, by version and plural.
    pub fn custom(&self) -> Arc<HashMap<Gvr, Arc<Store>>> {
        self.custom.load_full()
    }

    /// The stores of everything that clients are served, one for each place where objects are
    /// stored: of several versions or groups, the first by name.
    pub fn stores(&self) -> Vec<Arc<Store>> {
        let custom = self.custom();
        let mut by_prefix: BTreeMap<String, Arc<Store>> = BTreeMap::new();
        let all = self.stores.values().chain(custom.values());
        for store in all.filter(|store| self.is_served(&store.resource.gvr)) {
            if store.resource.decl.storage_prefix.is_empty() {
                continue;
            }
            let kept = by_prefix
                .entry(store.prefix())
                .or_insert_with(|| store.clone());
            if store.resource.gvr < kept.resource.gvr {
                *kept = store.clone();
            }
        }
        by_prefix.into_values().collect()
    }

    /// Grows with each change of what is served.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Reports whether any built-in resource of the group is served.
    pub fn has_group(&self, group: &str) -> bool {
        self.groups.contains(group)
    }

    /// Every built-in declaration that clients are served, in no order.
    pub fn decls(&self) -> impl Iterator<Item = &ResourceDecl> {
        self.stores
            .values()
            .filter(|store| self.is_served(&store.resource.gvr))
            .map(|store| &store.resource.decl)
    }
}
