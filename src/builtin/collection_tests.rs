//! Deletion of a collection by several workers.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Barrier;

use crate::auth::User;
use crate::base::clock::Clock;
use crate::builtin;
use crate::meta::options::{DeleteOptions, ListOptions};
use crate::meta::status::Result;
use crate::meta::{Object, json};
use crate::registry::store::{AdmissionValidator, AdmitAll, Warnings, WriteContext};
use crate::registry::{Resource, Store};
use crate::storage::embedded::Embedded;

const WORKERS: usize = 4;

/// Opens when as many deletes as there are workers stand before it.
struct Together(Barrier);

#[async_trait]
impl AdmissionValidator for Together {
    async fn validate(&self, _new: Option<&mut Object>, _old: Option<&Object>) -> Result<()> {
        self.0.wait().await;
        Ok(())
    }

    async fn authorize_create(&self) -> Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn workers_delete_a_collection_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let decl = crate::schema::builtin()
        .resources
        .iter()
        .find(|decl| decl.resource == "configmaps")
        .expect("a resource");
    let store = Store::new(
        Arc::new(Resource::builtin(decl, builtin::strategy("", "configmaps"))),
        Arc::new(Embedded::open(folder.path()).expect("a store")),
        Clock::system(),
        "/registry",
    );
    let (user, warnings) = (User::default(), Warnings::default());
    let ctx = WriteContext {
        user: &user,
        namespace: "default",
        dry_run: false,
        warnings: &warnings,
    };
    for number in 0..2 * WORKERS {
        let name = format!("map-{number}");
        let map = json!({"metadata": {"name": name, "namespace": "default"}});
        let map = Object::from_value(map).expect("an object");
        store.create(&ctx, map, &AdmitAll).await.expect("made");
    }
    let gate = Together(Barrier::new(WORKERS));
    let (list, options) = (ListOptions::default(), DeleteOptions::default());
    let deleted = store
        .delete_collection(&ctx, &list, &options, &gate, WORKERS)
        .await
        .expect("deleted");
    assert_eq!(deleted.items.count(), 2 * WORKERS);
    let left = store.list("default", &list).await.expect("a list");
    assert_eq!(left.items.count(), 0);
}
