//! The APIServices of what this server serves itself: made for built-in versions when it starts,
//! and kept up for those of definitions (kube-aggregator `controllers/autoregister`, kube-apiserver
//! `controller/crdregistration`).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::api_service::{ApiService, MANAGED_LABEL, Management, gvr};
use super::catalog::Catalog;
use crate::base::work_queue::{WorkQueue, Worker};
use crate::controlplane::bootstrap::ObjectClient;
use crate::controlplane::loopback_client::LoopbackClient;
use crate::discovery::ranks::{self, Rank};
use crate::merge::APISERVER_MANAGER;
use crate::meta::options::DeleteOptions;
use crate::meta::status::Result;
use crate::meta::{Object, Status, json};
use crate::telemetry::work_queues::QueueMetrics;

/// The delays after failures (client-go `DefaultTypedControllerRateLimiter`).
const FIRST_DELAY: Duration = Duration::from_millis(5);
const MAX_DELAY: Duration = Duration::from_secs(1000);
/// The number of APIServices that are written at the same time.
const WORKERS: usize = 5;

/// A group and a version.
pub type GroupVersion = (String, String);

/// An APIService that there should be.
#[derive(Clone, Debug, PartialEq)]
struct Desired {
    spec: crate::meta::Value,
    management: Management,
}

/// The controller.
pub struct Autoregister {
    catalog: Arc<Catalog>,
    client: Arc<LoopbackClient>,
    queue: Arc<WorkQueue>,
    desired: Mutex<BTreeMap<String, Desired>>,
    /// Those that were compared once.
    synced: Mutex<HashSet<String>>,
    /// Those that there were when the server started.
    at_start: HashSet<String>,
    /// The built-in ones that have not been seen to be available yet.
    pending: Mutex<BTreeSet<String>>,
}

/// The action that brings an APIService closer to what it should be.
#[derive(Debug, PartialEq)]
enum Action {
    Nothing,
    Create,
    Update,
    Delete,
}

impl Autoregister {
    /// Returns the controller for these built-in versions, and these of definitions.
    pub fn new(
        catalog: &Arc<Catalog>,
        client: Arc<LoopbackClient>,
        builtin: &[GroupVersion],
        custom: &BTreeSet<GroupVersion>,
    ) -> Self {
        let mut desired = BTreeMap::new();
        for (group, version) in builtin {
            // Nobody lists the group of the APIServices themselves.
            if let Some(rank) = ranks::builtin(group, version) {
                let wanted = wanted(group, version, rank, Management::OnStart);
                desired.insert(name(group, version), wanted);
            }
        }
        let pending = desired.keys().cloned().collect();
        let this = Self {
            catalog: catalog.clone(),
            client,
            queue: Arc::new(
                WorkQueue::new(FIRST_DELAY, MAX_DELAY)
                    .observed_by(QueueMetrics::new("autoregister")),
            ),
            desired: Mutex::new(desired),
            synced: Mutex::default(),
            at_start: catalog.all().iter().map(|one| one.name.clone()).collect(),
            pending: Mutex::new(pending),
        };
        this.set_custom(custom);
        this
    }

    /// Compares everything once. What fails is tried again by [`Autoregister::run`].
    pub async fn sync_all(&self) {
        let known = self.catalog.all();
        let mut names: BTreeSet<String> = known.iter().map(|one| one.name.clone()).collect();
        names.extend(self.desired.lock().keys().cloned());
        // At once, so that the writes share commits.
        futures::future::join_all(names.iter().map(|name| self.work_on(name))).await;
        self.catalog.feed(&self.queue);
    }

    /// Follows the changes of APIServices and definitions until the runtime ends.
    pub fn run(
        self: Arc<Self>,
        mut changes: watch::Receiver<u64>,
        custom: impl Fn() -> BTreeSet<GroupVersion> + Send + 'static,
    ) {
        self.clone().run_workers(WORKERS);
        tokio::spawn(async move {
            // The sender lives as long as the controller of definitions.
            while changes.changed().await.is_ok() {
                self.set_custom(&custom());
            }
        });
    }

    /// Reports whether every built-in APIService has been seen to be available.
    ///
    /// # Errors
    /// Names those that have not.
    pub fn is_complete(&self) -> std::result::Result<(), String> {
        let mut pending = self.pending.lock();
        pending.retain(|name| self.catalog.get(name).is_none_or(|one| !one.is_available));
        if pending.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = pending.iter().map(String::as_str).collect();
        Err(format!("missing APIService: [{}]", names.join(" ")))
    }

    /// Takes note of the versions that definitions have now.
    fn set_custom(&self, custom: &BTreeSet<GroupVersion>) {
        let wanted: BTreeMap<String, Desired> = custom
            .iter()
            .map(|(group, version)| {
                let wanted = wanted(group, version, ranks::CUSTOM, Management::Continuous);
                (name(group, version), wanted)
            })
            .collect();
        let mut desired = self.desired.lock();
        let gone: Vec<String> = desired
            .iter()
            .filter(|(name, one)| {
                one.management == Management::Continuous && !wanted.contains_key(*name)
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            desired.remove(&name);
            self.queue.add(&name);
        }
        for (name, one) in wanted {
            if let Entry::Vacant(vacant) = desired.entry(name) {
                self.queue.add(vacant.key());
                vacant.insert(one);
            }
        }
    }

    /// Makes, changes or deletes an APIService where it is not as it should be.
    async fn compare(&self, name: &str) -> Result<()> {
        let (desired, current) = (
            self.desired.lock().get(name).cloned(),
            self.catalog.get(name),
        );
        let has_synced = self.synced.lock().contains(name);
        let action = action(
            desired.as_ref(),
            current.as_deref(),
            has_synced,
            self.at_start.contains(name),
        );
        let gvr = gvr();
        let done = match (action, desired, current) {
            (Action::Create, Some(desired), _) => {
                let object = object(name, &desired);
                let made = ObjectClient::create(&*self.client, &gvr, object, APISERVER_MANAGER);
                made.await.map(drop)
            }
            (Action::Update, Some(desired), Some(current)) => {
                let mut object = Object::clone(&current.object);
                object.insert("spec", desired.spec);
                let updated = self.client.update(&gvr, object, APISERVER_MANAGER);
                updated.await.map(drop)
            }
            (Action::Delete, _, Some(current)) => {
                let options = DeleteOptions {
                    uid: Some(current.object.uid().to_owned()),
                    ..DeleteOptions::default()
                };
                self.client.delete_with(&gvr, "", name, &options).await
            }
            _ => Ok(()),
        };
        match done {
            // Made, changed or deleted in the meantime: news of it is on its way.
            Ok(())
            | Err(Status {
                code: 404 | 409, ..
            }) => {
                self.synced.lock().insert(name.to_owned());
                Ok(())
            }
            Err(why) => Err(why),
        }
    }
}

impl Worker for Autoregister {
    const TASK: &'static str = "APIServices of what is served";

    fn queue(&self) -> &WorkQueue {
        &self.queue
    }

    async fn sync(&self, name: &str) -> std::result::Result<(), String> {
        let done = self.compare(name).await;
        done.map_err(|why| {
            tracing::warn!(name, reason = why.message, "cannot see to an APIService");
            why.message
        })
    }
}

/// Decides what to do, as the table of upstream's `checkAPIService` has it.
fn action(
    desired: Option<&Desired>,
    current: Option<&ApiService>,
    has_synced: bool,
    at_start: bool,
) -> Action {
    let once = desired.is_some_and(|one| one.management == Management::OnStart);
    match (desired, current) {
        (None, None) => Action::Nothing,
        _ if once && has_synced => Action::Nothing,
        (Some(_), None) => Action::Create,
        (_, Some(current)) => match current.management {
            Management::None => Action::Nothing,
            Management::OnStart if !at_start || has_synced => Action::Nothing,
            _ => match desired {
                None => Action::Delete,
                Some(desired) if current.object.get("spec") == Some(&desired.spec) => {
                    Action::Nothing
                }
                Some(_) => Action::Update,
            },
        },
    }
}

fn name(group: &str, version: &str) -> String {
    format!("{version}.{group}")
}

fn wanted(group: &str, version: &str, rank: Rank, management: Management) -> Desired {
    let spec = match group {
        "" => {
            json!({"version": version, "groupPriorityMinimum": rank.group, "versionPriority": rank.version})
        }
        group => {
            json!({"group": group, "version": version, "groupPriorityMinimum": rank.group, "versionPriority": rank.version})
        }
    };
    Desired { spec, management }
}

fn object(name: &str, desired: &Desired) -> Object {
    let mut object = Object::default();
    object.insert("kind", "APIService".into());
    object.insert("apiVersion", "apiregistration.k8s.io/v1".into());
    object.set_meta_str("name", name);
    if let Some(label) = desired.management.label() {
        object.set_label(MANAGED_LABEL, label);
    }
    object.insert("spec", desired.spec.clone());
    object
}

#[cfg(test)]
mod tests {
    use super::super::api_service::tests;
    use super::*;

    #[test]
    fn actions_are_those_of_upstreams_table() {
        let desired = |management| wanted("a.example.com", "v1", ranks::CUSTOM, management);
        let current = |label: Option<&str>, same: bool| {
            let priority = if same { ranks::CUSTOM.version } else { 7 };
            let spec = json!({"groupPriorityMinimum": 1000, "versionPriority": priority});
            let mut object = tests::object("a.example.com", 1, spec);
            if let Some(label) = label {
                object.set_label(MANAGED_LABEL, label);
            }
            ApiService::read(&object)
        };
        use Action::{Create, Delete, Nothing, Update};
        use Management::{Continuous, OnStart};
        let (start, always) = (desired(OnStart), desired(Continuous));
        // Desired or not; then what there is, and whether it was compared before and was there at
        // start.
        for (wanted, found, synced, at_start, want) in [
            (None, None, false, false, Nothing),
            (Some(&start), None, false, false, Create),
            (Some(&start), None, true, true, Nothing),
            (Some(&always), None, true, false, Create),
            (None, Some((None, false)), false, true, Nothing),
            (Some(&start), Some((None, false)), false, true, Nothing),
            (Some(&always), Some((None, false)), false, true, Nothing),
            (None, Some((Some("onstart"), true)), false, false, Nothing),
            (None, Some((Some("onstart"), true)), false, true, Delete),
            (None, Some((Some("onstart"), true)), true, true, Nothing),
            (
                Some(&start),
                Some((Some("onstart"), false)),
                false,
                true,
                Update,
            ),
            (
                Some(&start),
                Some((Some("onstart"), true)),
                false,
                true,
                Nothing,
            ),
            (
                Some(&always),
                Some((Some("onstart"), false)),
                true,
                true,
                Nothing,
            ),
            (None, Some((Some("true"), true)), true, false, Delete),
            (
                Some(&start),
                Some((Some("true"), false)),
                false,
                false,
                Update,
            ),
            (
                Some(&always),
                Some((Some("true"), false)),
                true,
                false,
                Update,
            ),
            (
                Some(&always),
                Some((Some("true"), true)),
                true,
                false,
                Nothing,
            ),
        ] {
            let found_service = found.map(|(label, same)| current(label, same));
            let got = action(wanted, found_service.as_ref(), synced, at_start);
            assert_eq!(got, want, "{wanted:?} {found:?} {synced} {at_start}");
        }
    }
}
