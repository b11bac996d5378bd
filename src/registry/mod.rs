//! Resources: what each kind does beyond its schema (Strategy), and the generic store that every verb goes through.

pub mod builtin;
pub mod printers;
pub mod resource;
pub mod store;
pub mod strategy;
pub mod table;
pub mod validation;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::meta::Gvr;
use crate::schema::ResourceDecl;

pub use resource::Resource;
pub use store::Store;
pub use strategy::{Context, NameRule, Strategy, Subresource};

/// Every served resource, by group, version and plural.
#[derive(Default)]
pub struct Registry {
    stores: HashMap<Gvr, Arc<Store>>,
    groups: HashSet<String>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Registry({} resources)", self.stores.len())
    }
}

impl Registry {
    /// The registry of these stores.
    pub fn new(stores: impl IntoIterator<Item = Store>) -> Self {
        let mut registry = Self::default();
        for store in stores {
            let gvr = store.resource.gvr.clone();
            registry.groups.insert(gvr.group.clone());
            registry.stores.insert(gvr, Arc::new(store));
        }
        registry
    }

    pub fn get(&self, gvr: &Gvr) -> Option<&Arc<Store>> {
        self.stores.get(gvr)
    }

    /// Whether anything of the group is served.
    pub fn has_group(&self, group: &str) -> bool {
        self.groups.contains(group)
    }

    /// Every declaration, in no order.
    pub fn decls(&self) -> impl Iterator<Item = &ResourceDecl> {
        self.stores.values().map(|store| &store.resource.decl)
    }

    /// Every store, in no order.
    pub fn stores(&self) -> impl Iterator<Item = &Arc<Store>> {
        self.stores.values()
    }
}
