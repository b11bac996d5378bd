//! The generic store: the life of an object from request to bytes and back, the same for every kind
//! (apiserver `registry/generic/registry.Store`).

mod errors;
mod unreadable;
mod defaulting;
mod codec;
mod conversion;
mod field_manager;
mod selection;
mod items;
mod metrics;
mod index;
mod continuation;
mod read;
mod list;
mod cached_reads;
mod watch;
mod reservation;
mod key_writer;
mod create;
mod update;
mod delete;

use std::sync::Arc;

use crate::base::clock::Clock;
use crate::cacher::{Cacher, Reflector, ServedId};
use crate::meta::status::Result;
use crate::meta::{ErrorList, Gvk, Object, Status, names, time};
use crate::storage::metered::MeteredStorage;
use crate::storage::{Storage, StorageError, Stored};

use super::resource::Resource;
use super::strategy::{Context, Subresource};
use super::validation::MetaRules;
use conversion::Conversions;
use metrics::StoreMetrics;
use unreadable::Logged;

pub use super::warnings::Warnings;
pub use super::write_context::{AdmissionValidator, AdmitAll, Updater, WriteContext};
pub use cached_reads::StoredKeys;
pub use codec::{ObjectCodec, restore_field_order};
pub use defaulting::DefaultingStorage;
pub use errors::{storage_status, too_large_resource_version};
pub use items::Items;
pub use list::Page;
pub use metrics::METRICS;
pub use selection::Selection;
pub use unreadable::unreadable;
pub use update::Target;
pub use watch::{Event, EventKind, Events};

/// The objects of one resource in storage, with the verbs of the API.
#[derive(Clone)]
pub struct Store {
    pub resource: Arc<Resource>,
    pub codec: ObjectCodec,
    pub storage: Arc<dyn Storage>,
    pub clock: Clock,
    /// The watch cache that serves reads and watches, if there is one.
    cacher: Option<Arc<Cacher>>,
    logged: Arc<Logged>,
    /// The root of all keys, `/registry` unless `--etcd-prefix` says otherwise.
    root: Arc<str>,
    /// The served apiVersion.
    api_version: Arc<str>,
    /// True if pods may have privileged containers.
    allow_privileged: bool,
    served_id: ServedId,
    /// Set where a webhook converts objects.
    conversions: Option<Arc<Conversions>>,
    pub metrics: Arc<StoreMetrics>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({:?})", self.resource)
    }
}

/// An object with the revision that it was read at.
#[derive(Clone, Debug)]
pub struct StoredObject {
    pub object: Object,
    pub stored: Stored,
}

impl Store {
    pub fn new(
        resource: Arc<Resource>,
        storage: Arc<dyn Storage>,
        clock: Clock,
        root: &str,
    ) -> Self {
        let gvr = &resource.gvr;
        Self {
            codec: ObjectCodec::new(resource.clone()),
            api_version: resource.gvk.api_version().into(),
            metrics: Arc::new(StoreMetrics::new(gvr)),
            storage: MeteredStorage::wrap(storage, &gvr.group, &gvr.resource),
            resource,
            clock,
            cacher: None,
            logged: Arc::default(),
            root: root.trim_end_matches('/').into(),
            allow_privileged: false,
            served_id: ServedId::unique(),
            conversions: None,
        }
    }

    /// Returns the id of the resource as this store and its clones serve it.
    pub fn served_id(&self) -> ServedId {
        self.served_id
    }

    /// Serves reads and watches from the reflector's cache of the resource, if there is a
    /// reflector.
    pub fn cached(mut self, reflector: Option<&Reflector>) -> Self {
        if let Some(reflector) = reflector.filter(|_| !self.resource.decl.storage_prefix.is_empty())
        {
            let cacher = reflector.cacher(&self.prefix(), Some(index::reader(&self)));
            let gvr = &self.resource.gvr;
            cacher.set_metrics(&gvr.group, &gvr.resource);
            self.cacher = Some(cacher);
        }
        self
    }

    /// Sets whether pods may have privileged containers; by default they may not.
    pub fn privileged(mut self, allowed: bool) -> Self {
        self.allow_privileged = allowed;
        self
    }

    /// Returns the prefix of all keys of the resource, with a trailing slash.
    pub fn prefix(&self) -> String {
        format!("{}/{}/", self.root, self.resource.decl.storage_prefix)
    }

    /// Returns the prefix of the keys of a namespace, or of all keys if `namespace` is empty.
    pub fn namespace_prefix(&self, namespace: &str) -> String {
        if namespace.is_empty() {
            self.prefix()
        } else {
            [self.prefix().as_str(), namespace, "/"].concat()
        }
    }

    /// The key of an object, below the prefix of its resource.
    ///
    /// # Errors
    /// 400 for a name or namespace that cannot be part of a path.
    pub fn key(&self, namespace: &str, name: &str) -> Result<String> {
        if self.resource.decl.namespaced && namespace.is_empty() {
            return Err(Status::bad_request("Namespace parameter required."));
        }
        if name.is_empty() {
            return Err(Status::bad_request("Name parameter required."));
        }
        let wrong = names::path_segment_name(name);
        if !wrong.is_empty() {
            return Err(Status::bad_request(format!(
                "Name parameter invalid: {name:?}: {}",
                wrong.join(";")
            )));
        }
        let namespace = if self.resource.decl.namespaced {
            namespace
        } else {
            ""
        };
        let folder = &self.resource.decl.storage_prefix;
        let parts = match namespace {
            "" => [&self.root, "/", folder, "/", name, "", ""],
            _ => [&self.root, "/", folder, "/", namespace, "/", name],
        };
        Ok(parts.concat())
    }

    /// Returns the rules for the metadata of objects.
    fn meta_rules(&self) -> MetaRules<'_> {
        MetaRules {
            namespaced: self.resource.decl.namespaced,
            strategy: &*self.resource.strategy,
        }
    }

    /// Returns the Status for an invalid object. A custom object is reported under the version that
    /// it names itself.
    fn invalid(&self, object: &Object, errors: ErrorList) -> Status {
        let itself = self
            .resource
            .custom
            .as_ref()
            .map(|_| Gvk::from_api_version(object.api_version(), object.kind()));
        Status::invalid(
            itself.as_ref().unwrap_or(&self.resource.storage_gvk),
            object.name(),
            errors,
        )
    }

    /// The context that strategies are given.
    fn context<'a>(&self, ctx: &WriteContext<'a>, subresource: Subresource<'a>) -> Context<'a> {
        Context {
            now: self.clock.now(),
            user: ctx.user,
            allow_privileged: self.allow_privileged,
            subresource,
            warnings: ctx.warnings,
        }
    }

    fn now_text(&self) -> String {
        time::format(self.clock.now().as_second())
    }

    /// Returns the Status for a failure of storage while doing `verb`.
    fn fault(&self, error: StorageError, verb: &str) -> Status {
        storage_status(error, &self.resource.gvr, verb)
    }
}
