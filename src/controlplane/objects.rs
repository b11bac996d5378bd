//! The registry as a source of objects for those who only read: admission, authentication,
//! bootstrap.

use std::sync::Arc;

use async_trait::async_trait;

use crate::admission::Objects;
use crate::auth::{ObjectSource, User};
use crate::cacher::CachedObject;
use crate::meta::status::Result;
use crate::meta::{Gvr, Object, Status};
use crate::registry::store::{OpenGate, Target, Updater, Warnings, WriteContext};
use crate::registry::{Registry, Store, Subresource};

/// The field manager of what the server writes itself.
const MANAGER: &str = "kube-apiserver";

/// Reads objects of the storage version from their stores, as [`Store::find_stored`] and
/// [`Store::known_stored`] do.
#[derive(Clone, Debug)]
pub struct RegistryObjects(pub Arc<Registry>);

impl RegistryObjects {
    fn store(&self, gvr: &Gvr) -> Result<Arc<Store>> {
        self.0
            .get(gvr)
            .ok_or_else(|| Status::internal(format!("{} is not served", gvr.group_resource())))
    }
}

#[async_trait]
impl Objects for RegistryObjects {
    async fn get(&self, gvr: &Gvr, namespace: &str, name: &str) -> Result<Option<Arc<Object>>> {
        let store = self.store(gvr)?;
        store
            .find_stored(namespace, name)
            .await?
            .map(|stored| store.kept_tree(&stored).map(Arc::new))
            .transpose()
    }

    async fn list(&self, gvr: &Gvr, namespace: &str) -> Result<Vec<Arc<Object>>> {
        let store = self.store(gvr)?;
        let known = store.known_stored(namespace).await?;
        let tree = |stored: &Arc<CachedObject>| {
            store
                .kept_tree(stored)
                .map_err(|why| store.skip(stored, &why))
                .ok()
                .map(Arc::new)
        };
        Ok(known.iter().filter_map(tree).collect())
    }

    async fn create(&self, gvr: &Gvr, mut object: Object) -> Result<()> {
        let (user, warnings) = (
            User {
                name: "system:apiserver".to_owned(),
                ..User::default()
            },
            Warnings::default(),
        );
        let store = self.store(gvr)?;
        store.to_storage(&mut object);
        store.track(None, &mut object, Subresource::Main, MANAGER);
        let namespace = object.namespace().to_owned();
        let ctx = WriteContext {
            user: &user,
            namespace: &namespace,
            dry_run: false,
            warnings: &warnings,
        };
        store.create(&ctx, object, &OpenGate).await.map(drop)
    }

    async fn update_status(&self, gvr: &Gvr, object: Object) -> Result<()> {
        let (user, warnings) = (
            User {
                name: "system:apiserver".to_owned(),
                ..User::default()
            },
            Warnings::default(),
        );
        let (namespace, name) = (object.namespace().to_owned(), object.name().to_owned());
        let ctx = WriteContext {
            user: &user,
            namespace: &namespace,
            dry_run: false,
            warnings: &warnings,
        };
        let target = Target {
            name: &name,
            sub: Subresource::Status,
            force_create: false,
        };
        let store = self.store(gvr)?;
        store
            .update(
                &ctx,
                target,
                &NewStatus {
                    store: &store,
                    object,
                },
                &OpenGate,
            )
            .await
            .map(drop)
    }
}

/// Another status for an object that has not changed since it was read.
struct NewStatus<'a> {
    store: &'a Store,
    object: Object,
}

#[async_trait]
impl Updater for NewStatus<'_> {
    fn uid(&self) -> Option<&str> {
        Some(self.object.uid()).filter(|uid| !uid.is_empty())
    }

    async fn updated(&self, live: Option<&Object>) -> Result<Object> {
        let mut object = self.object.clone();
        self.store
            .track(live, &mut object, Subresource::Status, MANAGER);
        Ok(object)
    }
}

#[async_trait]
impl ObjectSource for RegistryObjects {
    async fn get(&self, gvr: &Gvr, namespace: &str, name: &str) -> Option<Object> {
        self.store(gvr).ok()?.find(namespace, name).await.ok()?
    }

    async fn known(&self, gvr: &Gvr, namespace: &str, name: &str) -> Option<Object> {
        let store = self.store(gvr).ok()?;
        store
            .decode(&*store.cached_stored(namespace, name).await?)
            .ok()
    }
}
