//! Informers: follow the objects of a resource by a list and a watch, and list again when the watch
//! ends.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::base::backoff::Backoff;
use crate::base::coop::CoopBudget;
use crate::base::supervise::{FailureTracker, catch_panic};
use crate::codec::protobuf::Projection;
use crate::meta::Object;
use crate::meta::options::ListOptions;
use crate::meta::selector::FieldReader;
use crate::meta::status::Result;
use crate::registry::Store;
use crate::registry::store::EventKind;
use crate::storage::{Revision, Stored};

/// The delay before a broken watch is opened again; doubles with each list that fails after that.
const RETRY: Duration = Duration::from_millis(500);
/// The maximum of that delay.
const RETRY_MAX: Duration = Duration::from_secs(5);

/// A handler of the objects of a resource and their changes.
pub trait EventHandler: Send + Sync + 'static {
    /// The dotted paths of what it reads of an object; `None` for everything.
    fn fields(&self) -> Option<&'static [&'static str]> {
        None
    }
    /// Reports whether an object that has changed is, to this handler, as it was.
    fn is_unchanged(&self, _object: &dyn FieldReader) -> bool {
        false
    }
    /// These are all there were at the revision.
    fn replace(&self, objects: &[Object], revision: Revision);
    /// This one is new or changed.
    fn upsert(&self, object: &Object);
    /// This one is gone. Of one that cannot be read, only namespace and name are known.
    fn remove(&self, object: &Object);
    /// This one is there and cannot be read: only namespace and name are known.
    fn unreadable(&self, object: &Object) {
        self.remove(object);
    }
}

/// The informers of a server, each with its health.
#[derive(Clone, Default)]
pub struct Informers(Arc<Mutex<Vec<Arc<FailureTracker>>>>);

impl Informers {
    /// Hands `handler` everything that there is, then follows the changes in the background until
    /// the runtime ends. Objects that cannot be read do not exist to it.
    ///
    /// # Errors
    /// A failure of the first list.
    pub async fn start(&self, store: Arc<Store>, handler: Arc<dyn EventHandler>) -> Result<()> {
        self.spawn(store, handler).await.map(drop)
    }

    /// [`Informers::start`] for a resource that may go: it is followed until the returned value is
    /// dropped.
    ///
    /// # Errors
    /// A failure of the first list.
    pub async fn follow(
        &self,
        store: Arc<Store>,
        handler: Arc<dyn EventHandler>,
    ) -> Result<Following> {
        let (condition, task) = self.spawn(store, handler).await?;
        Ok(Following {
            informers: self.clone(),
            condition,
            task,
        })
    }

    async fn spawn(
        &self,
        store: Arc<Store>,
        handler: Arc<dyn EventHandler>,
    ) -> Result<(Arc<FailureTracker>, AbortHandle)> {
        let part = handler
            .fields()
            .map(|paths| Projection::new(store.resource.storage_ty(), paths.iter().copied()));
        let revision = list(&store, handler.as_ref(), part.as_ref()).await?;
        let condition = Arc::new(FailureTracker::new(format!(
            "following {}",
            store.resource.gvr.group_resource()
        )));
        self.0.lock().push(condition.clone());
        let health = condition.clone();
        let task = tokio::spawn(async move {
            let mut backoff = Backoff::new(RETRY, RETRY_MAX);
            let mut from = Some(revision);
            loop {
                let round = catch_panic(
                    "informer",
                    list_and_watch(&store, handler.as_ref(), part.as_ref(), from.take()),
                )
                .await;
                match round.map_err(crate::meta::Status::internal).flatten() {
                    Ok(revision) => {
                        condition.record_success();
                        backoff.reset();
                        from = Some(revision);
                    }
                    Err(why) => {
                        condition.record_failure(&why.message);
                        tokio::time::sleep(backoff.next_delay()).await;
                    }
                }
            }
        });
        Ok((health, task.abort_handle()))
    }

    /// Reports whether all informers have synced.
    ///
    /// # Errors
    /// Names those that cannot list what they follow, and what they were told instead.
    pub fn has_synced(&self) -> std::result::Result<(), String> {
        let behind: Vec<String> = self
            .0
            .lock()
            .iter()
            .filter_map(|condition| condition.failure())
            .collect();
        if behind.is_empty() {
            Ok(())
        } else {
            Err(behind.join("; "))
        }
    }
}

/// An informer that ends when this is dropped.
pub struct Following {
    informers: Informers,
    condition: Arc<FailureTracker>,
    task: AbortHandle,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
        let mut all = self.informers.0.lock();
        all.retain(|condition| !Arc::ptr_eq(condition, &self.condition));
    }
}

/// With `from`, follows the changes after that revision until the watch ends. Then passes all
/// objects to the handler, and returns the revision of that list.
async fn list_and_watch(
    store: &Arc<Store>,
    handler: &dyn EventHandler,
    part: Option<&Projection>,
    from: Option<Revision>,
) -> Result<Revision> {
    if let Some(from) = from {
        watch(store, handler, part, from).await;
        tokio::time::sleep(RETRY).await;
    }
    list(store, handler, part).await
}

/// Decodes the fields of a stored object that a handler reads: `part`, or all of them.
fn decode(store: &Store, part: Option<&Projection>, stored: &Stored) -> Result<Object> {
    match part {
        Some(part) => store.codec.decode_part(stored, part),
        None => store.codec.decode(stored),
    }
}

/// Reports whether a change is irrelevant to the handler, as far as is known without decoding.
fn is_unchanged(store: &Store, handler: &dyn EventHandler, stored: &Stored) -> bool {
    store
        .codec
        .message(stored)
        .is_ok_and(|message| message.is_some_and(|message| handler.is_unchanged(&message)))
}

async fn list(
    store: &Store,
    handler: &dyn EventHandler,
    part: Option<&Projection>,
) -> Result<Revision> {
    let page = store.all_stored("").await?;
    let (mut objects, mut budget) = (Vec::new(), CoopBudget::default());
    for stored in page.items {
        let stored = stored?;
        match decode(store, part, &stored) {
            Ok(object) => objects.push(object),
            Err(why) => store.skip(&stored, &why),
        }
        budget.step().await;
    }
    handler.replace(&objects, page.revision);
    Ok(page.revision)
}

/// Follows until the watch ends.
async fn watch(
    store: &Arc<Store>,
    handler: &dyn EventHandler,
    part: Option<&Projection>,
    after: Revision,
) {
    let options = ListOptions {
        resource_version: after.to_string(),
        ..ListOptions::default()
    };
    let Ok(mut events) = store.watch("", &options).await else {
        return;
    };
    while let Some(Ok(event)) = events.next().await {
        let Some(stored) = event.stored else { continue };
        if event.kind == EventKind::Modified && is_unchanged(store, handler, &stored) {
            continue;
        }
        match (event.kind, decode(store, part, &stored)) {
            (EventKind::Added | EventKind::Modified, Ok(object)) => handler.upsert(&object),
            (EventKind::Deleted, Ok(object)) => handler.remove(&object),
            (EventKind::InitialEventsEnd, Ok(_)) => {}
            (EventKind::Deleted, Err(why)) => {
                store.skip(&stored, &why);
                handler.remove(&store.named(&stored));
            }
            (_, Err(why)) => {
                store.skip(&stored, &why);
                handler.unreadable(&store.named(&stored));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::base::clock::Clock;
    use crate::builtin;
    use crate::registry::Resource;
    use crate::storage::Storage;
    use crate::storage::embedded::Embedded;

    /// The names of what there is.
    #[derive(Default)]
    struct Names {
        known: Mutex<BTreeSet<String>>,
        panicked: Mutex<bool>,
    }

    impl EventHandler for Names {
        fn replace(&self, objects: &[Object], _revision: Revision) {
            *self.known.lock() = objects
                .iter()
                .map(|object| object.name().to_owned())
                .collect();
        }

        fn upsert(&self, object: &Object) {
            if object.name() == "fatal" {
                *self.panicked.lock() = true;
                panic!("an object that nobody expected");
            }
            self.known.lock().insert(object.name().to_owned());
        }

        fn remove(&self, object: &Object) {
            assert_eq!(object.namespace(), "default");
            self.known.lock().remove(object.name());
        }
    }

    impl Names {
        async fn wait_until_known(&self, names: &[&str]) {
            while !self.known.lock().iter().eq(names) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }

    #[tokio::test]
    async fn what_follows_ends_when_it_is_dropped() {
        let decls = &crate::schema::builtin().resources;
        let decl = decls.iter().find(|decl| decl.resource == "configmaps");
        let resource = Resource::builtin(
            decl.expect("a resource"),
            builtin::strategy("", "configmaps"),
        );
        let storage: Arc<dyn Storage> = Arc::new(Embedded::in_memory().expect("a store"));
        let store = Store::new(Arc::new(resource), storage, Clock::system(), "/registry");
        let (informers, names) = (Informers::default(), Arc::<Names>::default());
        let following = informers.follow(Arc::new(store), names.clone()).await;
        let following = following.expect("it is listed");
        assert_eq!(informers.0.lock().len(), 1);
        drop(following);
        assert!(informers.0.lock().is_empty(), "its health is nobody's");
        while Arc::strong_count(&names) > 1 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn informer_skips_unreadable_objects_and_survives_panics() {
        let folder = tempfile::tempdir().expect("a folder");
        let storage: Arc<dyn Storage> = Arc::new(Embedded::open(folder.path()).expect("a store"));
        let decl = crate::schema::builtin()
            .resources
            .iter()
            .find(|decl| decl.resource == "configmaps")
            .expect("a resource");
        let resource = Arc::new(Resource::builtin(decl, builtin::strategy("", "configmaps")));
        let store = Arc::new(Store::new(
            resource,
            storage.clone(),
            Clock::system(),
            "/registry",
        ));
        let put = async |name: &str, readable: bool| {
            let object = format!(r#"{{"metadata":{{"name":"{name}","namespace":"default"}}}}"#);
            let (key, value) = (
                format!("/registry/configmaps/default/{name}"),
                if readable {
                    object
                } else {
                    "garbage".to_owned()
                },
            );
            let at = storage
                .get(&key)
                .await
                .expect("read")
                .map_or(0, |stored| stored.mod_revision);
            storage
                .update(&key, value.into(), at, None)
                .await
                .expect("written");
        };
        put("a", true).await;
        put("b", false).await;
        let (informers, names) = (Informers::default(), Arc::<Names>::default());
        informers
            .start(store, names.clone())
            .await
            .expect("it is listed");
        names.wait_until_known(&["a"]).await;
        put("c", false).await;
        put("d", true).await;
        names.wait_until_known(&["a", "d"]).await;
        put("a", false).await;
        names.wait_until_known(&["d"]).await;
        put("b", true).await;
        names.wait_until_known(&["b", "d"]).await;
        assert_eq!(informers.has_synced(), Ok(()));
        put("fatal", true).await;
        while !*names.panicked.lock() {
            tokio::task::yield_now().await;
        }
        assert!(
            informers
                .has_synced()
                .is_err_and(|why| why.contains("an object that nobody expected"))
        );
        names.wait_until_known(&["b", "d", "fatal"]).await;
        put("e", true).await;
        names.wait_until_known(&["b", "d", "e", "fatal"]).await;
        assert_eq!(informers.has_synced(), Ok(()));
    }
}
