//! The APIServices of the cluster, as this server knows them: its own writes at once, those of
//! others by a watch.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use parking_lot::Mutex;

use super::api_service::ApiService;
use crate::base::work_queue::WorkQueue;
use crate::controlplane::informer::EventHandler;
use crate::meta::Object;
use crate::registry::resource::Hooks;
use crate::storage::Revision;

/// The number of deleted APIServices that are remembered, so that stale events about them are
/// recognised. The oldest are forgotten.
const MAX_GONE: usize = 256;

/// Follows the changes of APIServices, before the client that made them gets its answer.
pub trait Observer: Send + Sync {
    /// An APIService is new or changed (`now`), or gone.
    fn changed(&self, before: Option<&ApiService>, now: Option<&Arc<ApiService>>);
}

/// The APIServices.
#[derive(Default)]
pub struct Catalog {
    known: Mutex<Known>,
    observer: OnceLock<Arc<dyn Observer>>,
    /// Grows with each change beyond status.
    version: AtomicU64,
    queues: Mutex<Vec<Arc<WorkQueue>>>,
}

#[derive(Default)]
struct Known {
    services: BTreeMap<String, Arc<ApiService>>,
    /// The last revision of those that are gone, by name, the oldest first.
    gone: VecDeque<(String, Revision)>,
}

impl Known {
    /// The revision of the last that is known of a name.
    fn revision(&self, name: &str) -> Option<Revision> {
        let known = self.services.get(name).map(|service| service.revision);
        known.or_else(|| {
            let mut gone = self.gone.iter().rev();
            gone.find(|(gone, _)| gone == name).map(|(_, at)| *at)
        })
    }

    fn remember_gone(&mut self, name: &str, revision: Revision) {
        self.gone.retain(|(gone, _)| gone != name);
        if self.gone.len() >= MAX_GONE {
            self.gone.pop_front();
        }
        self.gone.push_back((name.to_owned(), revision));
    }
}

impl Catalog {
    /// Announces all changes to an observer from now on.
    pub fn attach(&self, observer: Arc<dyn Observer>) {
        // Only the first call counts, and there is one.
        let _ = self.observer.set(observer);
    }

    /// Adds the names of all APIServices to a queue, and from now on of those that change.
    pub fn feed(&self, queue: &Arc<WorkQueue>) {
        let known = self.known.lock();
        known.services.keys().for_each(|name| queue.add(name));
        self.queues.lock().push(queue.clone());
    }

    /// Grows with each change of what discovery shows of APIServices.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The APIService of a name.
    pub fn get(&self, name: &str) -> Option<Arc<ApiService>> {
        self.known.lock().services.get(name).cloned()
    }

    /// All of them, by name.
    pub fn all(&self) -> Vec<Arc<ApiService>> {
        self.known.lock().services.values().cloned().collect()
    }

    /// Shows each of them, none of which changes meanwhile.
    pub fn each(&self, mut look: impl FnMut(&Arc<ApiService>)) {
        self.known.lock().services.values().for_each(&mut look);
    }

    fn observe(&self, object: &Object) {
        let service = Arc::new(ApiService::read(object));
        let mut known = self.known.lock();
        if known
            .revision(&service.name)
            .is_some_and(|at| at >= service.revision)
        {
            return;
        }
        let before = known.services.insert(service.name.clone(), service.clone());
        self.announce(before.as_deref(), Some(&service));
    }

    fn forget(&self, name: &str, revision: Revision) {
        let mut known = self.known.lock();
        let stale = |one: &ApiService| revision != 0 && one.revision > revision;
        if known.services.get(name).is_none_or(|one| stale(one)) {
            return;
        }
        let before = known.services.remove(name);
        let last = before.as_ref().map_or(0, |one| one.revision).max(revision);
        known.remember_gone(name, last);
        self.announce(before.as_deref(), None);
    }

    /// Announces a change. The lock is held, so that changes are announced in their order.
    fn announce(&self, before: Option<&ApiService>, now: Option<&Arc<ApiService>>) {
        let same = |before: &ApiService, now: &ApiService| {
            before.object.get("spec") == now.object.get("spec")
                && before.management == now.management
        };
        if !before
            .zip(now)
            .is_some_and(|(before, now)| same(before, now))
        {
            self.version.fetch_add(1, Ordering::Release);
        }
        if let Some(observer) = self.observer.get() {
            observer.changed(before, now);
        }
        let name = now
            .map(|one| one.name.as_str())
            .or(before.map(|one| one.name.as_str()));
        let queues = self.queues.lock();
        name.into_iter()
            .for_each(|name| queues.iter().for_each(|queue| queue.add(name)));
    }
}

impl EventHandler for Catalog {
    fn replace(&self, objects: &[Object], revision: Revision) {
        let names: HashSet<&str> = objects.iter().map(Object::name).collect();
        let gone: Vec<String> = {
            let known = self.known.lock();
            let gone = known
                .services
                .keys()
                .filter(|name| !names.contains(name.as_str()));
            gone.cloned().collect()
        };
        gone.iter().for_each(|name| self.forget(name, revision));
        objects.iter().for_each(|object| self.observe(object));
    }

    fn upsert(&self, object: &Object) {
        self.observe(object);
    }

    fn remove(&self, object: &Object) {
        self.forget(
            object.name(),
            object.resource_version().parse().unwrap_or(0),
        );
    }

    // What was known of it still holds.
    fn unreadable(&self, _object: &Object) {}
}

/// The writes of this server take effect before clients get their answers.
#[async_trait]
impl Hooks for Catalog {
    async fn written(&self, object: &Object, _old: Option<&Object>) {
        self.observe(object);
    }

    async fn deleted(&self, object: &Object) {
        self.remove(object);
    }
}

#[cfg(test)]
mod tests {
    use super::super::api_service::tests::object;
    use super::*;
    use crate::meta::json;

    #[test]
    fn stale_news_changes_nothing() {
        let catalog = Catalog::default();
        let at = |revision| {
            object(
                "a.example.com",
                revision,
                json!({"versionPriority": revision}),
            )
        };
        let rank = || Some(catalog.get("v1.a.example.com")?.rank.version);
        catalog.upsert(&at(5));
        catalog.upsert(&at(4));
        assert_eq!(rank(), Some(5));
        catalog.remove(&at(5));
        catalog.upsert(&at(4));
        assert_eq!(rank(), None, "it is gone since");
        catalog.upsert(&at(8));
        catalog.remove(&at(5));
        assert_eq!(rank(), Some(8), "another of the same name");
        catalog.replace(&[], 7);
        assert_eq!(rank(), Some(8), "the list is older");
        catalog.replace(&[], 9);
        assert_eq!(rank(), None);
    }
}
