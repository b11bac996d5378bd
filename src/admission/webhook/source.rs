//! The webhooks that are in effect (apiserver
//! `admission/configuration/{mutating,validating}_webhook_manager.go`).

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::configuration::Hook;
use crate::admission::observed::{Observer, Tracked};
use crate::meta::{Object, Value};

/// A configuration and its webhooks.
struct Configuration {
    /// The `webhooks` of the object.
    written: Value,
    hooks: Vec<Arc<Hook>>,
}

/// The webhooks of all configurations of one kind, in the order of the configurations' names.
#[derive(Default)]
pub struct WebhookSource {
    hooks: ArcSwap<Vec<Arc<Hook>>>,
    configurations: Mutex<Tracked<Configuration>>,
}

impl WebhookSource {
    /// Returns the webhooks as they are now.
    pub fn hooks(&self) -> Arc<Vec<Arc<Hook>>> {
        self.hooks.load_full()
    }

    /// Reports whether there is none.
    pub fn is_empty(&self) -> bool {
        self.hooks.load().is_empty()
    }

    fn note(&self, tracked: &mut Tracked<Configuration>, object: &Object) -> bool {
        let revision = object.resource_version().parse().unwrap_or(0);
        let name = object.name();
        if !tracked.is_news(name, revision) {
            return false;
        }
        let written = object.at("/webhooks").cloned().unwrap_or_default();
        // What is compiled is kept.
        let before = tracked.get(name).filter(|before| before.written == written);
        let hooks = match before {
            Some(before) => before.hooks.clone(),
            None => Hook::read_all(object).into_iter().map(Arc::new).collect(),
        };
        let changed = before.is_none();
        tracked.insert(name, revision, Arc::new(Configuration { written, hooks }));
        changed
    }

    fn publish(&self, tracked: &Tracked<Configuration>) {
        let sorted: BTreeMap<_, _> = tracked.iter().collect();
        let hooks = sorted.values().flat_map(|one| one.hooks.iter().cloned());
        self.hooks.store(Arc::new(hooks.collect()));
    }
}

impl Observer for WebhookSource {
    fn observe(&self, object: &Object) {
        let mut tracked = self.configurations.lock();
        if self.note(&mut tracked, object) {
            self.publish(&tracked);
        }
    }

    fn forget(&self, name: &str, revision: i64) {
        let mut tracked = self.configurations.lock();
        if tracked.remove(name, revision).is_some() {
            self.publish(&tracked);
        }
    }

    fn replace(&self, objects: &[Object], revision: i64) {
        let names: HashSet<&str> = objects.iter().map(Object::name).collect();
        let mut tracked = self.configurations.lock();
        for name in tracked.missing(&names, revision) {
            tracked.remove(&name, revision);
        }
        for object in objects {
            self.note(&mut tracked, object);
        }
        self.publish(&tracked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    fn configuration(name: &str, webhooks: &[&str], revision: i64) -> Object {
        let webhooks: Vec<Value> = webhooks.iter().map(|name| json!({"name": name})).collect();
        Object::from_value(json!({
            "metadata": {"name": name, "resourceVersion": revision.to_string()},
            "webhooks": webhooks,
        }))
        .expect("an object")
    }

    fn uids(source: &WebhookSource) -> Vec<String> {
        let hooks = source.hooks();
        assert_eq!(source.is_empty(), hooks.is_empty());
        hooks.iter().map(|hook| hook.uid.clone()).collect()
    }

    #[test]
    fn webhooks_come_by_the_names_of_their_configurations() {
        let source = WebhookSource::default();
        source.observe(&configuration("b", &["z", "a", "z"], 1));
        source.observe(&configuration("a", &["x"], 2));
        assert_eq!(uids(&source), ["a/x/0", "b/z/0", "b/a/0", "b/z/1"]);
        let kept = source.hooks()[1].clone();
        source.observe(&configuration("b", &["z", "a", "z"], 4));
        assert!(Arc::ptr_eq(&kept, &source.hooks()[1]));
        source.observe(&configuration("b", &["old"], 3));
        source.forget("a", 1);
        assert_eq!(uids(&source).len(), 4, "older news");
        source.replace(&[configuration("c", &["y"], 5)], 5);
        assert_eq!(uids(&source), ["c/y/0"]);
        source.forget("c", 6);
        assert!(uids(&source).is_empty());
    }
}
