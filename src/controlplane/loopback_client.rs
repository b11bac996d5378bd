//! The client of the server itself: it uses the same stores as all requests, as user
//! `system:apiserver`, without admission (apiserver `LoopbackClientConfig`).

use std::sync::Arc;

use async_trait::async_trait;

use super::bootstrap::ObjectClient;
use crate::admission::Objects;
use crate::auth::{ObjectSource, User};
use crate::merge::{self, APISERVER_MANAGER};
use crate::meta::options::DeleteOptions;
use crate::meta::selector::labels::LabelSelector;
use crate::meta::status::Result;
use crate::meta::{Gvr, Object, Status, Value};
use crate::registry::store::{AdmitAll, Target, Updater, Warnings, WriteContext};
use crate::registry::{Registry, Store, Subresource};

/// Reads, creates and updates objects of the storage version.
#[derive(Debug)]
pub struct LoopbackClient {
    registry: Arc<Registry>,
    user: User,
    warnings: Warnings,
}

impl LoopbackClient {
    /// Returns a client of the resources of `registry`.
    pub fn new(registry: Arc<Registry>) -> Self {
        Self {
            registry,
            user: User::apiserver(),
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

    /// Returns the objects of a namespace that can be read, as far as this server knows.
    ///
    /// # Errors
    /// The store's.
    pub async fn list(&self, gvr: &Gvr, namespace: &str) -> Result<Vec<Object>> {
        self.store(gvr)?.cached_list(namespace).await
    }

    /// Deletes an object if it is still the one that was read.
    ///
    /// # Errors
    /// 409 if it has changed, 404 if it is gone, or the store's.
    pub async fn delete_unchanged(&self, gvr: &Gvr, object: &Object) -> Result<()> {
        let options = DeleteOptions {
            resource_version: Some(object.resource_version().to_owned()),
            ..DeleteOptions::default()
        };
        self.delete_with(gvr, object.namespace(), object.name(), &options)
            .await
    }

    /// Deletes an object.
    ///
    /// # Errors
    /// 404 if it is gone, 409 if it is not the one that the options name, or the store's.
    pub async fn delete_with(
        &self,
        gvr: &Gvr,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<()> {
        let context = self.context(namespace);
        let store = self.store(gvr)?;
        store
            .delete(&context, name, options, &AdmitAll)
            .await
            .map(drop)
    }

    async fn write(&self, store: &Store, object: &Object, change: Change<'_>) -> Result<Object> {
        let target = Target {
            name: object.name(),
            sub: change.sub,
            force_create: false,
        };
        let context = self.context(object.namespace());
        let updated = store.update(&context, target, &change, &AdmitAll).await?;
        Ok(updated.written.object)
    }
}

#[async_trait]
impl ObjectClient for LoopbackClient {
    async fn get(&self, gvr: &Gvr, namespace: &str, name: &str) -> Result<Option<Object>> {
        self.store(gvr)?.cached_get(namespace, name).await
    }

    async fn create(&self, gvr: &Gvr, mut object: Object, manager: &str) -> Result<Object> {
        let store = self.store(gvr)?;
        store.codec.to_storage(&mut object);
        store
            .field_manager(Subresource::Main, manager)
            .update(None, &mut object);
        let namespace = object.namespace().to_owned();
        let context = self.context(&namespace);
        Ok(store.create(&context, object, &AdmitAll).await?.object)
    }

    async fn update(&self, gvr: &Gvr, mut object: Object, manager: &str) -> Result<Object> {
        let store = self.store(gvr)?;
        store.codec.to_storage(&mut object);
        let change = Change {
            store: &store,
            sub: Subresource::Main,
            manager,
            uid: None,
            state: NewState::Object(&object),
        };
        self.write(&store, &object, change).await
    }

    async fn delete(&self, gvr: &Gvr, namespace: &str, name: &str) -> Result<()> {
        self.delete_with(gvr, namespace, name, &DeleteOptions::default())
            .await
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
            uid: None,
            state: NewState::Status(&status),
        };
        self.write(&store, object, change).await.map(drop)
    }
}

/// Reads as [`Store::cached_get_stored`] and [`Store::cached_list_stored`] do.
#[async_trait]
impl Objects for LoopbackClient {
    async fn get(&self, gvr: &Gvr, namespace: &str, name: &str) -> Result<Option<Arc<Object>>> {
        let store = self.store(gvr)?;
        match store.cached_get_stored(namespace, name).await? {
            Some(stored) => store.decode_served(&stored).await.map(Arc::new).map(Some),
            None => Ok(None),
        }
    }

    async fn list(&self, gvr: &Gvr, namespace: &str) -> Result<Vec<Arc<Object>>> {
        let store = self.store(gvr)?;
        let known = store.cached_list_stored(namespace).await?;
        let known = store.served_objects(known).await?;
        let mut trees = Vec::new();
        for stored in &known {
            match store.decode_served(stored).await {
                Ok(object) => trees.push(Arc::new(object)),
                Err(why) => store.skip(stored, &why),
            }
        }
        Ok(trees)
    }

    async fn known(&self, gvr: &Gvr, namespace: &str, name: &str) -> Result<Option<Arc<Object>>> {
        let Some(store) = self.registry.get(gvr) else {
            return Ok(None);
        };
        match store.cached_find_stored(namespace, name).await? {
            Some(stored) => store.decode_served(&stored).await.map(Arc::new).map(Some),
            None => Ok(None),
        }
    }

    async fn select(
        &self,
        gvr: &Gvr,
        namespace: &str,
        selector: &LabelSelector,
    ) -> Result<Vec<Arc<Object>>> {
        let Some(store) = self.registry.get(gvr) else {
            return Ok(Vec::new());
        };
        let selected = store.cached_select_stored(namespace, selector).await?;
        let selected = store.served_objects(selected).await?;
        let mut trees = Vec::new();
        for stored in &selected {
            match store.decode_served(stored).await {
                Ok(object) => trees.push(Arc::new(object)),
                Err(why) => store.skip(stored, &why),
            }
        }
        Ok(trees)
    }

    async fn create(&self, gvr: &Gvr, object: Object) -> Result<()> {
        ObjectClient::create(self, gvr, object, APISERVER_MANAGER)
            .await
            .map(drop)
    }

    async fn update_status(&self, gvr: &Gvr, object: Object) -> Result<()> {
        let store = self.store(gvr)?;
        let change = Change {
            store: &store,
            sub: Subresource::Status,
            manager: APISERVER_MANAGER,
            uid: Some(object.uid()).filter(|uid| !uid.is_empty()),
            state: NewState::Object(&object),
        };
        self.write(&store, &object, change).await.map(drop)
    }
}

#[async_trait]
impl ObjectSource for LoopbackClient {
    async fn get(&self, gvr: &Gvr, namespace: &str, name: &str) -> Option<Object> {
        self.store(gvr)
            .ok()?
            .cached_get(namespace, name)
            .await
            .ok()?
    }

    async fn known(&self, gvr: &Gvr, namespace: &str, name: &str) -> Option<Object> {
        let store = self.store(gvr).ok()?;
        store
            .codec
            .decode(&*store.cache_lookup(namespace, name).await?)
            .ok()
    }

    async fn set_label(&self, gvr: &Gvr, object: &Object, key: &str, value: &str) -> Result<()> {
        let store = self.store(gvr)?;
        let change = Change {
            store: &store,
            sub: Subresource::Main,
            manager: APISERVER_MANAGER,
            uid: Some(object.uid()),
            state: NewState::Label(key, value),
        };
        self.write(&store, object, change).await.map(drop)
    }
}

/// A change of an object by a field manager.
struct Change<'a> {
    store: &'a Store,
    sub: Subresource<'a>,
    manager: &'a str,
    /// The UID that the object must have.
    uid: Option<&'a str>,
    state: NewState<'a>,
}

enum NewState<'a> {
    /// The object as a whole.
    Object(&'a Object),
    /// The stored object, to which this status is applied.
    Status(&'a Value),
    /// The stored object with this label.
    Label(&'a str, &'a str),
}

impl Change<'_> {
    /// The stored object with this status, which the manager applies.
    fn applied(&self, live: Option<&Object>, status: &Value) -> Result<Object> {
        let (gvk, mut config) = (&self.store.resource.gvk, Object::default());
        config.insert("apiVersion", gvk.api_version().into());
        config.insert("kind", gvk.kind.as_str().into());
        config.set_meta_str("name", live.map_or("", Object::name));
        config.set_meta_str("namespace", live.map_or("", Object::namespace));
        config.insert("status", status.clone());
        let manager = self.store.field_manager(self.sub, self.manager);
        Ok(merge::apply(live, &config.0, gvk, &manager, true)?)
    }
}

#[async_trait]
impl Updater for Change<'_> {
    fn uid(&self) -> Option<&str> {
        self.uid
    }

    async fn updated(&self, live: Option<&Object>) -> Result<Object> {
        let mut object = match self.state {
            NewState::Object(object) => object.clone(),
            NewState::Status(status) => return self.applied(live, status),
            NewState::Label(key, value) => {
                let mut object = live.cloned().unwrap_or_default();
                object.set_label(key, value);
                object
            }
        };
        self.store
            .field_manager(self.sub, self.manager)
            .update(live, &mut object);
        Ok(object)
    }
}
