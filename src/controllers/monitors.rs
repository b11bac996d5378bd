//! Informers of all resources of a kind, those of custom resources too, which come and go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::base::latch::Latch;
use crate::base::supervise::FailureTracker;
use crate::controlplane::informer::{EventHandler, Following, Informers};
use crate::endpoints::Api;
use crate::meta::status::Result;
use crate::registry::Store;

/// The time between two looks at what is served, besides those after a change of a definition.
const INTERVAL: Duration = Duration::from_secs(1);

/// Makes the handler of a resource.
type MakeHandler = Box<dyn Fn(&Store) -> Arc<dyn EventHandler> + Send + Sync>;

/// The version of the registry whose resources are all followed.
#[derive(Clone, Debug, Default)]
pub struct Followed(Arc<AtomicU64>);

impl Followed {
    /// Reports whether everything that is served is followed.
    pub fn is_current(&self, api: &Api) -> bool {
        self.0.load(Ordering::Acquire) == api.registry.version()
    }
}

/// Informers, by the prefix of what they follow.
pub struct Monitors {
    api: Arc<Api>,
    informers: Informers,
    is_followed: fn(&Store) -> bool,
    handler: MakeHandler,
    running: BTreeMap<String, (Arc<Store>, Following)>,
    followed: Followed,
}

impl Monitors {
    /// The informers of the resources that `is_followed` names, each with a handler of its own.
    pub fn new<H: EventHandler>(
        api: &Arc<Api>,
        informers: &Informers,
        is_followed: fn(&Store) -> bool,
        handler: impl Fn(&Store) -> Arc<H> + Send + Sync + 'static,
    ) -> Self {
        Self {
            api: api.clone(),
            informers: informers.clone(),
            is_followed,
            handler: Box::new(move |store| handler(store)),
            running: BTreeMap::new(),
            followed: Followed::default(),
        }
    }

    /// Returns the means to see how far they are.
    pub fn followed(&self) -> Followed {
        self.followed.clone()
    }

    /// Follows what is served now, and nothing else.
    ///
    /// # Errors
    /// The store's, of a first list; those before it are followed.
    pub async fn follow_all(&mut self) -> Result<()> {
        let version = self.api.registry.version();
        let stores = self.api.registry.stores().into_iter();
        let mut wanted: BTreeMap<String, Arc<Store>> = stores
            .filter(|store| (self.is_followed)(store))
            .map(|store| (store.prefix(), store))
            .collect();
        // One that was replaced has another schema.
        self.running.retain(|prefix, (running, _)| {
            let same = |store: &Arc<Store>| Arc::ptr_eq(store, running);
            let keep = wanted.get(prefix).is_some_and(same);
            if keep {
                wanted.remove(prefix);
            }
            keep
        });
        for (prefix, store) in wanted {
            let handler = (self.handler)(&store);
            let following = self.informers.follow(store.clone(), handler);
            let following = following.await?;
            self.running.insert(prefix, (store, following));
        }
        self.followed.0.store(version, Ordering::Release);
        Ok(())
    }

    /// Keeps up with the definitions until the server stops.
    pub async fn run(mut self, stopping: Latch) {
        let mut changes = self.api.extensions.changes();
        let following = FailureTracker::new("following all resources for the controllers");
        loop {
            tokio::select! {
                Ok(()) = changes.changed() => {}
                () = tokio::time::sleep(INTERVAL) => {}
                () = stopping.wait() => return,
            }
            if self.followed.is_current(&self.api) {
                continue;
            }
            match self.follow_all().await {
                Ok(()) => following.record_success(),
                Err(status) => following.record_failure(&status.message),
            }
        }
    }
}

/// Reports whether a resource has a verb.
pub fn has_verb(store: &Store, verb: &str) -> bool {
    store.resource.decl.verbs.iter().any(|one| one == verb)
}
