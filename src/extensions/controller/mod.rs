//! The controller of definitions: registers and removes their resources, maintains their
//! conditions, and deletes the objects of a definition before the definition itself.
//!
//! Writes of this server are known at once, those of others by a watch. A request for a resource
//! that is not known looks in storage first ([`Extensions::resolve`]), so that no server denies
//! what another has established.

mod hooks;

pub use hooks::DefinitionHooks;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::meta::Value;
use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::auth::User;
use crate::base::backoff::Backoff;
use crate::base::clock::Clock;
use crate::base::supervise::catch_panic;
use crate::extensions::conversion::Webhooks;
use crate::extensions::definition::approval;
use crate::extensions::definition::naming::{self, NamesInUse};
use crate::extensions::definition::validation::conversion::holds_certificates;
use crate::extensions::definition::{
    CLEANUP, Condition, Definition, ESTABLISHED, NAMES_ACCEPTED, Names, TERMINATING, is_true,
};
use crate::extensions::resource;
use crate::extensions::schema::structural;
use crate::merge::APISERVER_MANAGER;
use crate::meta::options::{DeleteOptions, ListOptions};
use crate::meta::status::Result;
use crate::meta::{Gvr, Object, Path, Status, bool_at, str_at, time};
use crate::registry::store::{AdmitAll, Target, Updater, Warnings, WriteContext};
use crate::registry::{Registry, Resource, Store, Subresource};
use crate::storage::Revision;

/// The pause before a definition whose sync failed is synced again; doubles with each failure.
const RETRY: Duration = Duration::from_millis(500);
/// The longest wait before that.
const RETRY_MAX: Duration = Duration::from_secs(60);
/// The number of deleted definitions that are remembered, so that stale events about them are
/// recognised. The oldest are forgotten.
const GONE_DEFINITIONS: usize = 256;
/// The number of checks for remaining objects of a deleted definition.
const CLEANUP_POLL: Duration = Duration::from_secs(5);
/// Maximum number of polls before a cleanup begins anew.
const CLEANUP_POLLS: usize = 12;

/// Opens the stores of custom resources.
pub trait CustomStores: Send + Sync {
    /// A store of a resource, with what caches the server gives to resources.
    fn open(&self, resource: Resource) -> Store;

    /// The resource is gone for good, with all its versions.
    fn close(&self, store: &Store);
}

/// The custom resources of a server.
pub struct Extensions {
    registry: Arc<Registry>,
    definitions: Arc<Store>,
    stores: Box<dyn CustomStores>,
    webhooks: Webhooks,
    clock: Clock,
    known: Mutex<HashMap<String, TrackedDefinition>>,
    /// Definitions whose objects are being deleted.
    cleaning: Mutex<HashSet<String>>,
    /// The names of definitions that went, the oldest first.
    gone: Mutex<VecDeque<String>>,
    queue: Queue,
    /// Counts the changes of definitions.
    changes: watch::Sender<u64>,
    user: User,
}

/// The last known state of a definition.
struct TrackedDefinition {
    revision: Revision,
    /// `None` for one that is gone: what is older is no news.
    object: Option<Arc<Object>>,
    /// Its resources in the registry.
    resources: Vec<Gvr>,
}

/// The names of definitions that are to be seen to, each once: there are never more than
/// definitions.
#[derive(Default)]
struct Queue {
    names: Mutex<(VecDeque<String>, HashSet<String>)>,
    added: Notify,
}

impl Queue {
    fn push(&self, name: String) {
        let mut names = self.names.lock();
        if names.1.insert(name.clone()) {
            names.0.push_back(name);
            self.added.notify_one();
        }
    }

    /// Takes the first name; waits where there is none.
    async fn pop(&self) -> String {
        loop {
            {
                let mut names = self.names.lock();
                if let Some(name) = names.0.pop_front() {
                    names.1.remove(&name);
                    return name;
                }
            }
            self.added.notified().await;
        }
    }
}

impl std::fmt::Debug for Extensions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Extensions({} definitions)", self.known.lock().len())
    }
}

impl Extensions {
    /// `definitions` is the store of the CustomResourceDefinitions.
    pub fn new(
        registry: Arc<Registry>,
        definitions: Arc<Store>,
        stores: Box<dyn CustomStores>,
        webhooks: Webhooks,
        clock: Clock,
    ) -> Arc<Self> {
        let user = User::apiserver();
        let extensions = Arc::new(Self {
            registry,
            definitions,
            stores,
            webhooks,
            clock,
            known: Mutex::default(),
            cleaning: Mutex::default(),
            gone: Mutex::default(),
            queue: Queue::default(),
            changes: watch::Sender::new(0),
            user,
        });
        tokio::spawn(extensions.clone().work());
        extensions
    }

    /// Takes note of a definition as it was written.
    pub fn observe(&self, object: &Object) {
        let revision: Revision = object.resource_version().parse().unwrap_or(0);
        let name = object.name().to_owned();
        let mut known = self.known.lock();
        let before = known.get(&name);
        if before.is_some_and(|before| before.revision >= revision) {
            return;
        }
        let registered = before
            .map(|before| before.resources.clone())
            .unwrap_or_default();
        let same = before
            .and_then(|before| before.object.as_ref())
            .is_some_and(|before| same_versions(before, object));
        let resources = if same {
            registered
        } else {
            self.register(object, &registered)
        };
        known.insert(
            name.clone(),
            TrackedDefinition {
                revision,
                object: Some(Arc::new(object.clone())),
                resources,
            },
        );
        drop(known);
        self.changes.send_modify(|count| *count += 1);
        self.enqueue(name);
    }

    /// Takes note of the end of a definition. Without a uid, of whichever has the name.
    pub fn forget(&self, object: &Object) {
        let name = object.name();
        let mut known = self.known.lock();
        let Some(before) = known.get_mut(name) else {
            return;
        };
        let Some(last) = before
            .object
            .as_ref()
            .filter(|one| object.uid().is_empty() || one.uid() == object.uid())
            .cloned()
        else {
            return;
        };
        before.revision = before
            .revision
            .max(object.resource_version().parse().unwrap_or(0));
        before.object = None;
        let resources = std::mem::take(&mut before.resources);
        if let Some(store) = resources
            .first()
            .and_then(|gvr| self.registry.custom().get(gvr).cloned())
        {
            self.stores.close(&store);
        }
        self.registry.replace_custom(&resources, Vec::new());
        remember_gone(&mut known, &mut self.gone.lock(), name);
        drop(known);
        self.changes.send_modify(|count| *count += 1);
        self.enqueue_group(last.str_at("/spec/group"), name);
    }

    /// Takes note of all definitions that there are.
    pub fn replace(&self, objects: &[Object]) {
        let gone: Vec<Arc<Object>> = {
            let known = self.known.lock();
            let names: HashSet<&str> = objects.iter().map(Object::name).collect();
            known
                .iter()
                .filter(|(name, _)| !names.contains(name.as_str()))
                .filter_map(|(_, one)| one.object.clone())
                .collect()
        };
        gone.iter().for_each(|object| self.forget(object));
        objects.iter().for_each(|object| self.observe(object));
    }

    /// Returns a receiver that is told when a definition has changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The groups and versions that definitions have served, whether they are established or not.
    pub fn served_versions(&self) -> BTreeSet<(String, String)> {
        let known = self.known.lock();
        let mut served = BTreeSet::new();
        for object in known.values().filter_map(|one| one.object.as_ref()) {
            for version in object.array_at("/spec/versions") {
                if bool_at(version, "/served") {
                    let group = object.str_at("/spec/group").to_owned();
                    served.insert((group, str_at(version, "/name").to_owned()));
                }
            }
        }
        served
    }

    /// Looks in storage for the definition of a resource that the registry does not know.
    pub async fn resolve(&self, gvr: &Gvr) {
        if !gvr.group.contains('.') || self.registry.is_builtin(gvr) {
            return;
        }
        let name = format!("{}.{}", gvr.resource, gvr.group);
        if let Ok(Some(object)) = self.definitions.cached_get("", &name).await {
            self.observe(&object);
        }
    }

    /// Puts the resources of a definition into the registry, in the place of `old`.
    fn register(&self, object: &Object, old: &[Gvr]) -> Vec<Gvr> {
        let definition = Definition::read(object);
        let stores: Vec<Arc<Store>> = resource::resources(&definition, &self.webhooks)
            .into_iter()
            .map(|resource| Arc::new(self.stores.open(resource)))
            .collect();
        let resources = stores
            .iter()
            .map(|store| store.resource.gvr.clone())
            .collect();
        self.registry.replace_custom(old, stores);
        resources
    }

    fn enqueue(&self, name: String) {
        self.queue.push(name);
    }

    /// Enqueues the other definitions of a group: a name may have become free.
    fn enqueue_group(&self, group: &str, but: &str) {
        let known = self.known.lock();
        let same_group = known.iter().filter(|(name, one)| {
            *name != but
                && one
                    .object
                    .as_ref()
                    .is_some_and(|one| one.str_at("/spec/group") == group)
        });
        same_group.for_each(|(name, _)| self.enqueue(name.clone()));
    }

    async fn work(self: Arc<Self>) {
        let mut failing: HashMap<String, Backoff> = HashMap::new();
        loop {
            let name = self.queue.pop().await;
            let outcome = catch_panic("custom-resource-definitions", self.sync(&name))
                .await
                .map_err(Status::internal)
                .flatten();
            let Some(why) = outcome.err().filter(|why| !matches!(why.code, 404 | 409)) else {
                failing.remove(&name);
                continue;
            };
            tracing::warn!(
                name,
                reason = why.message,
                "cannot see to a CustomResourceDefinition"
            );
            let pause = failing
                .entry(name.clone())
                .or_insert(Backoff::new(RETRY, RETRY_MAX))
                .next_delay();
            let this = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(pause).await;
                this.enqueue(name);
            });
        }
    }

    /// Brings the status of a definition one step further. Each write brings it back here.
    async fn sync(self: &Arc<Self>, name: &str) -> Result<()> {
        let Some(object) = self.definitions.cached_get("", name).await? else {
            return Ok(());
        };
        if let Some(decision) = self.naming(&object) {
            let group = object.str_at("/spec/group").to_owned();
            self.write(name, |object, now| {
                object
                    .section_mut("status")
                    .insert("acceptedNames", decision.names.write());
                decision.accepted.set(object, now);
                decision.established.set(object, now);
            })
            .await?;
            self.enqueue_group(&group, name);
            return Ok(());
        }
        let conditions = [non_structural(&object), approval::condition(&object)];
        if let Some(condition) = conditions
            .into_iter()
            .flatten()
            .find(|one| !one.is_set_on(&object))
        {
            return self
                .write(name, |object, now| condition.set(object, now))
                .await;
        }
        if is_true(&object, NAMES_ACCEPTED) && !is_true(&object, ESTABLISHED) {
            let condition = establishing(&object);
            if !condition.is_set_on(&object) {
                return self
                    .write(name, |object, now| condition.set(object, now))
                    .await;
            }
        }
        let held = object.finalizers().iter().any(|one| one == CLEANUP);
        if held
            && object.deletion_timestamp().is_some()
            && self.cleaning.lock().insert(name.to_owned())
        {
            tokio::spawn(self.clone().finalize(object));
        }
        Ok(())
    }

    /// The names to give to a definition, where that changes something.
    fn naming(&self, object: &Object) -> Option<naming::NamingDecision> {
        let empty = Value::Null;
        let asked = Names::read(object.at("/spec/names").unwrap_or(&empty));
        let has = Names::read(object.at("/status/acceptedNames").unwrap_or(&empty));
        if asked == has {
            return None;
        }
        let mut taken = NamesInUse::default();
        let group = object.str_at("/spec/group");
        for other in self
            .known
            .lock()
            .values()
            .filter_map(|one| one.object.as_ref())
        {
            if other.str_at("/spec/group") == group {
                taken.add(&Names::read(
                    other.at("/status/acceptedNames").unwrap_or(&empty),
                ));
            }
        }
        let decision = naming::decide(object, &asked, &has, &taken);
        (decision.names != has || !decision.accepted.is_set_on(object)).then_some(decision)
    }

    fn context<'a>(&'a self, namespace: &'a str, warnings: &'a Warnings) -> WriteContext<'a> {
        WriteContext {
            user: &self.user,
            namespace,
            dry_run: false,
            warnings,
        }
    }

    /// Changes a definition through its status subresource.
    async fn write(
        &self,
        name: &str,
        change: impl Fn(&mut Object, &str) + Send + Sync,
    ) -> Result<()> {
        let warnings = Warnings::default();
        let target = Target {
            name,
            sub: Subresource::Status,
            force_create: false,
        };
        let now = time::format(self.clock.now().as_second());
        let updater = StatusChange {
            store: &self.definitions,
            change,
            now,
        };
        self.definitions
            .update(&self.context("", &warnings), target, &updater, &AdmitAll)
            .await
            .map(drop)
    }

    /// Deletes the objects of a definition and then lets it go.
    async fn finalize(self: Arc<Self>, object: Object) {
        let name = object.name().to_owned();
        let outcome = catch_panic("custom-resource-definitions", self.clean_up(&object))
            .await
            .map_err(Status::internal)
            .flatten();
        self.cleaning.lock().remove(&name);
        if let Err(why) = outcome
            && !matches!(why.code, 404 | 409)
        {
            tracing::warn!(
                name,
                reason = why.message,
                "cannot clean up after a CustomResourceDefinition"
            );
            tokio::time::sleep(RETRY).await;
            self.enqueue(name);
        }
    }

    async fn clean_up(&self, object: &Object) -> Result<()> {
        let terminating = |status, reason: &str, message: &str| {
            Condition::new(TERMINATING, status, reason, message)
        };
        let begun = terminating(
            "True",
            "InstanceDeletionInProgress",
            "CustomResource deletion is in progress",
        );
        self.write(object.name(), |object, now| begun.set(object, now))
            .await?;
        let ended = if is_true(object, ESTABLISHED) {
            if let Err(why) = self.delete_instances(object).await {
                let failed = terminating(
                    "True",
                    "InstanceDeletionFailed",
                    &format!("could not issue all deletes: {}", why.message),
                );
                self.write(object.name(), |object, now| failed.set(object, now))
                    .await?;
                return Err(why);
            }
            terminating(
                "False",
                "InstanceDeletionCompleted",
                "removed all instances",
            )
        } else {
            terminating(
                "False",
                "NeverEstablished",
                "resource was never established",
            )
        };
        self.write(object.name(), |object, now| {
            ended.set(object, now);
            let left: Vec<Value> = object
                .finalizers()
                .iter()
                .filter(|one| *one != CLEANUP)
                .cloned()
                .collect();
            object.metadata_mut().insert("finalizers", left.into());
        })
        .await
    }

    /// Deletes every object of a definition and waits until there is none.
    async fn delete_instances(&self, object: &Object) -> Result<()> {
        let Some(resource) = resource::storage_resource(&Definition::read(object), &self.webhooks)
        else {
            return Ok(());
        };
        if self.registry.is_builtin(&resource.gvr) {
            return Ok(());
        }
        let store = self.stores.open(resource);
        for poll in 0..CLEANUP_POLLS {
            let page = store.list("", &ListOptions::default()).await?;
            let instances: Vec<_> = page.items.collect::<Result<_>>()?;
            let warnings = Warnings::default();
            for stored in instances.iter().filter(|_| poll == 0) {
                let instance = store.codec.decode_shared(stored)?;
                let context = self.context(instance.namespace(), &warnings);
                match store
                    .delete(
                        &context,
                        instance.name(),
                        &DeleteOptions::default(),
                        &AdmitAll,
                    )
                    .await
                {
                    Err(why) if why.code != 404 => return Err(why),
                    _ => {}
                }
            }
            let left = store
                .list(
                    "",
                    &ListOptions {
                        limit: 1,
                        ..ListOptions::default()
                    },
                )
                .await?;
            if left.items.count() == 0 {
                return Ok(());
            }
            tokio::time::sleep(CLEANUP_POLL).await;
        }
        Err(Status::internal(
            "could not confirm zero CustomResources remaining: timed out waiting for the condition",
        ))
    }
}

/// Remembers that a definition went, and forgets the one that went first where they are too many.
fn remember_gone(
    known: &mut HashMap<String, TrackedDefinition>,
    gone: &mut VecDeque<String>,
    name: &str,
) {
    gone.push_back(name.to_owned());
    if gone.len() > GONE_DEFINITIONS
        && let Some(oldest) = gone.pop_front()
        && known.get(&oldest).is_some_and(|one| one.object.is_none())
    {
        known.remove(&oldest);
    }
}

/// Reports whether two states of a definition serve the same.
fn same_versions(a: &Object, b: &Object) -> bool {
    let same = |path: &str| a.at(path) == b.at(path);
    let conditions = [NAMES_ACCEPTED, ESTABLISHED, TERMINATING];
    a.uid() == b.uid()
        && same("/spec")
        && same("/status/acceptedNames")
        && conditions
            .iter()
            .all(|kind| is_true(a, kind) == is_true(b, kind))
}

/// The condition of schemas from before structural ones were required.
fn non_structural(object: &Object) -> Option<Condition> {
    const NON_STRUCTURAL: &str = "NonStructuralSchema";
    let mut wrong = Vec::new();
    if object.bool_at("/spec/preserveUnknownFields") {
        wrong.push("spec.preserveUnknownFields: Invalid value: true: must be false".to_owned());
    }
    let versions = Path::new("spec").child("versions");
    for (index, version) in Definition::read(object).versions.iter().enumerate() {
        let Some(schema) = &version.schema else {
            continue;
        };
        if let Some(why) = structural::conversion_error(schema) {
            let message = format!(
                "failed to check validation schema for version {}: {why}",
                version.name
            );
            return Some(Condition::new(
                NON_STRUCTURAL,
                "Unknown",
                "StructuralError",
                message,
            ));
        }
        let path = versions
            .index(index)
            .child("schema")
            .child("openAPIV3Schema");
        wrong.extend(
            structural::validate(&path, schema)
                .iter()
                .map(ToString::to_string),
        );
    }
    let message = match wrong.as_slice() {
        [] => return None,
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    Some(Condition::new(
        NON_STRUCTURAL,
        "True",
        "Violations",
        message,
    ))
}

/// The condition of a definition whose names are accepted.
fn establishing(object: &Object) -> Condition {
    let bundle = object.str_at("/spec/conversion/webhook/clientConfig/caBundle");
    if !bundle.is_empty() && !holds_certificates(bundle) {
        return Condition::new(
            ESTABLISHED,
            "False",
            "InvalidCABundle",
            "The conversion webhook CABundle is invalid",
        );
    }
    Condition::new(
        ESTABLISHED,
        "True",
        "InitialNamesAccepted",
        "the initial names have been accepted",
    )
}

/// A change that is applied to the stored definition.
struct StatusChange<'a, F> {
    store: &'a Store,
    change: F,
    now: String,
}

#[async_trait]
impl<F: Fn(&mut Object, &str) + Send + Sync> Updater for StatusChange<'_, F> {
    fn uid(&self) -> Option<&str> {
        None
    }

    async fn updated(&self, live: Option<&Object>) -> Result<Object> {
        let mut object = live.cloned().unwrap_or_default();
        (self.change)(&mut object, &self.now);
        self.store
            .field_manager(Subresource::Status, APISERVER_MANAGER)
            .update(live, &mut object);
        Ok(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deleted_definitions_are_eventually_forgotten() {
        let (mut known, mut gone) = (HashMap::new(), VecDeque::new());
        let there = TrackedDefinition {
            revision: 1,
            object: Some(Arc::default()),
            resources: Vec::new(),
        };
        known.insert("made-again".to_owned(), there);
        remember_gone(&mut known, &mut gone, "made-again");
        for number in 0..3 * GONE_DEFINITIONS {
            let name = number.to_string();
            known.insert(
                name.clone(),
                TrackedDefinition {
                    revision: 1,
                    object: None,
                    resources: Vec::new(),
                },
            );
            remember_gone(&mut known, &mut gone, &name);
        }
        assert_eq!(
            (known.len(), gone.len()),
            (GONE_DEFINITIONS + 1, GONE_DEFINITIONS)
        );
        assert!(known.contains_key("made-again"), "it is there");
    }

    #[tokio::test]
    async fn a_name_waits_once_however_often_it_is_named() {
        let queue = Queue::default();
        for name in ["a", "b", "a", "a"] {
            queue.push(name.to_owned());
        }
        assert_eq!(
            (queue.pop().await, queue.names.lock().0.len()),
            ("a".to_owned(), 1)
        );
        queue.push("a".to_owned());
        assert_eq!(
            (queue.pop().await, queue.pop().await),
            ("b".to_owned(), "a".to_owned())
        );
    }
}
