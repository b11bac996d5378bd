//! Writes of the server itself: the bootstrap objects, through the same stores as everybody's.

use std::sync::Arc;

use crate::meta::Value;
use async_trait::async_trait;

use crate::auth::{MASTERS, User};
use crate::meta::options::DeleteOptions;
use crate::meta::status::Result;
use crate::meta::{Gvr, Object, Status};
use crate::registry::store::{OpenGate, Target, Updater, Warnings, WriteContext};
use crate::registry::{Registry, Store, Subresource};

use super::bootstrap::Creator;

/// Creates and updates objects as the server's own user. Admission has no say in what the server
/// needs to work.
#[derive(Debug)]
pub struct RegistryCreator {
    registry: Arc<Registry>,
    user: User,
    warnings: Warnings,
}

impl RegistryCreator {
    pub fn new(registry: Arc<Registry>) -> Self {
        let user = User {
            name: "system:apiserver".to_owned(),
            groups: vec![MASTERS.to_owned()],
            ..User::default()
        };
        Self {
            registry,
            user,
            warnings: Warnings::default(),
        }
    }

    fn store(&self, gvr: &Gvr) -> Result<Arc<Store>> {
        self.registry
            .get(gvr)
            .ok_or_else(|| Status::internal(format!("{} is not served", gvr.group_resource())))
    }

    fn context<'a>(&'a self, namespace: &'a str) -> WriteContext<'a> {
        WriteContext {
            user: &self.user,
            namespace,
            dry_run: false,
            warnings: &self.warnings,
        }
    }

    /// The objects of a namespace that can be read, as far as this server knows.
    ///
    /// # Errors
    /// The store's.
    pub async fn list(&self, gvr: &Gvr, namespace: &str) -> Result<Vec<Object>> {
        let store = self.store(gvr)?;
        store.known(namespace).await
    }

    /// Deletes an object if it is still the one that was read.
    ///
    /// # Errors
    /// It has changed, or is gone, or the store's.
    pub async fn remove(&self, gvr: &Gvr, object: &Object) -> Result<()> {
        let version = Some(object.resource_version().to_owned());
        let options = DeleteOptions {
            resource_version: version,
            ..DeleteOptions::default()
        };
        self.store(gvr)?
            .delete(
                &self.context(object.namespace()),
                object.name(),
                &options,
                &OpenGate,
            )
            .await
            .map(drop)
    }

    async fn write(
        &self,
        store: &Store,
        sub: Subresource<'_>,
        object: &Object,
        change: Change<'_>,
    ) -> Result<Object> {
        let (namespace, name) = (object.namespace().to_owned(), object.name().to_owned());
        let target = Target {
            name: &name,
            sub,
            force_create: false,
        };
        let updated = store
            .update(&self.context(&namespace), target, &change, &OpenGate)
            .await?;
        Ok(updated.live.object)
    }
}

#[async_trait]
impl Creator for RegistryCreator {
    async fn get(&self, gvr: &Gvr, namespace: &str, name: &str) -> Result<Option<Object>> {
        self.store(gvr)?.find(namespace, name).await
    }

    async fn create(&self, gvr: &Gvr, mut object: Object, manager: &str) -> Result<Object> {
        let store = self.store(gvr)?;
        store.to_storage(&mut object);
        store.track(None, &mut object, Subresource::Main, manager);
        let namespace = object.namespace().to_owned();
        let live = store
            .create(&self.context(&namespace), object, &OpenGate)
            .await?;
        Ok(live.object)
    }

    async fn update(&self, gvr: &Gvr, mut object: Object, manager: &str) -> Result<Object> {
        let store = self.store(gvr)?;
        store.to_storage(&mut object);
        let change = Change {
            store: &store,
            sub: Subresource::Main,
            manager,
            object: Some(&object),
            status: None,
        };
        self.write(&store, Subresource::Main, &object, change).await
    }

    async fn delete(&self, gvr: &Gvr, namespace: &str, name: &str) -> Result<()> {
        let options = DeleteOptions::default();
        self.store(gvr)?
            .delete(&self.context(namespace), name, &options, &OpenGate)
            .await
            .map(drop)
    }

    async fn apply_status(
        &self,
        gvr: &Gvr,
        object: &Object,
        status: Value,
        manager: &str,
    ) -> Result<()> {
        let store = self.store(gvr)?;
        let change = Change {
            store: &store,
            sub: Subresource::Status,
            manager,
            object: None,
            status: Some(&status),
        };
        self.write(&store, Subresource::Status, object, change)
            .await
            .map(drop)
    }
}

/// The new state of an object: another one altogether, or the same with another status.
struct Change<'a> {
    store: &'a Store,
    sub: Subresource<'a>,
    manager: &'a str,
    object: Option<&'a Object>,
    status: Option<&'a Value>,
}

#[async_trait]
impl Updater for Change<'_> {
    fn uid(&self) -> Option<&str> {
        None
    }

    async fn updated(&self, live: Option<&Object>) -> Result<Object> {
        let mut object = self.object.or(live).cloned().unwrap_or_default();
        if let Some(status) = self.status {
            object.insert("status", status.clone());
        }
        self.store.track(live, &mut object, self.sub, self.manager);
        Ok(object)
    }
}
