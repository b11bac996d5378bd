//! The condition `Available` of APIServices (kube-aggregator `controllers/status`): local ones are,
//! of others it is whether the server behind their service answers.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::api_service::{ApiService, RemoteServer, available_condition, gvr};
use super::backend::Backend;
use super::catalog::Catalog;
use super::routes::Routes;
use crate::admission::Objects;
use crate::auth::{MASTERS, User};
use crate::base::clock::Clock;
use crate::base::work_queue::{WorkQueue, Worker};
use crate::controlplane::loopback_client::LoopbackClient;
use crate::meta::selector::labels::LabelSelector;
use crate::meta::{Gvr, Object, Status, Value, go, i64_at, json, str_at, time, value_at};
use crate::telemetry::metrics::{Counter, Declared, Gauge};
use crate::telemetry::work_queues::QueueMetrics;
use crate::webhook::ServiceResolver;

/// The delays after failures.
const FIRST_DELAY: Duration = Duration::from_millis(5);
const MAX_DELAY: Duration = Duration::from_secs(30);
/// The interval at which every server is checked anew.
const RESYNC: Duration = Duration::from_secs(30);
/// The number of APIServices that are checked at the same time.
const WORKERS: usize = 5;
/// The number of requests of one check, all at once: one that succeeds is enough.
const ATTEMPTS: usize = 5;
/// The time that a server has to answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The label of an EndpointSlice that names its service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";

static UNAVAILABLE: Gauge = Gauge::new(
    "aggregator_unavailable_apiservice",
    "[ALPHA] Gauge of APIServices which are marked as unavailable broken down by APIService name.",
    &["name"],
);
static UNAVAILABLE_TOTAL: Counter = Counter::new(
    "aggregator_unavailable_apiservice_total",
    "[ALPHA] Counter of APIServices which are marked as unavailable broken down by APIService name and reason.",
    &["name", "reason"],
);

pub static METRICS: &[&dyn Declared] = &[&UNAVAILABLE, &UNAVAILABLE_TOTAL];

/// Keeps the conditions.
pub struct Availability {
    pub catalog: Arc<Catalog>,
    pub routes: Arc<Routes>,
    pub client: Arc<LoopbackClient>,
    pub services: Arc<dyn ServiceResolver>,
    pub clock: Clock,
    pub queue: Arc<WorkQueue>,
}

/// A condition: its status, reason and message.
#[derive(Debug, PartialEq)]
struct Condition {
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Condition {
    fn new(status: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            reason,
            message: message.into(),
        }
    }
}

/// Returns the queue of APIServices to be checked.
pub fn queue() -> Arc<WorkQueue> {
    Arc::new(
        WorkQueue::new(FIRST_DELAY, MAX_DELAY)
            .observed_by(QueueMetrics::new("RemoteAvailabilityController")),
    )
}

impl Availability {
    /// Checks until the runtime ends.
    pub fn run(self: Arc<Self>) {
        self.clone().run_workers(WORKERS);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(RESYNC).await;
                let routes = self.routes.all();
                routes.keys().for_each(|name| self.queue.add(name));
            }
        });
    }

    /// Checks that the service has the port, and somebody at it; `None` if so.
    async fn check_service(&self, remote: &RemoteServer) -> Option<Condition> {
        let wanted = &remote.service;
        let (namespace, name) = (&wanted.namespace, &wanted.name);
        let shown = format!("service/{name} in {}", go::quote(namespace));
        let unknown = |reason, why: Status| {
            let message = format!("{shown} cannot be checked due to: {}", why.message);
            Some(Condition::new("Unknown", reason, message))
        };
        let services = Gvr::new("", "v1", "services");
        let found = match Objects::get(&*self.client, &services, namespace, name).await {
            Ok(Some(found)) => found,
            Ok(None) => {
                let message = format!("{shown} is not present");
                return Some(Condition::new("False", "ServiceNotFound", message));
            }
            Err(why) => return unknown("ServiceAccessError", why),
        };
        if found.str_at("/spec/type") != "ClusterIP" {
            return None;
        }
        let mut ports = found.array_at("/spec/ports").iter();
        let port = ports.find(|one| i64_at(one, "/port") == Some(i64::from(wanted.port)));
        let Some(port) = port else {
            let message = format!("{shown} is not listening on port {}", wanted.port);
            return Some(Condition::new("False", "ServicePortError", message));
        };
        match self.slices(namespace, name).await {
            Ok(slices) if slices.is_empty() => {
                let message = format!("cannot find endpointslices for {shown}");
                Some(Condition::new("False", "EndpointsNotFound", message))
            }
            Ok(slices) => {
                let port = str_at(port, "/name");
                if slices.iter().any(|slice| has_endpoint(slice, port)) {
                    return None;
                }
                let port = go::quote(port);
                let message =
                    format!("endpointslices for {shown} have no addresses with port name {port}");
                Some(Condition::new("False", "MissingEndpoints", message))
            }
            Err(why) => unknown("EndpointsAccessError", why),
        }
    }

    async fn slices(
        &self,
        namespace: &str,
        service: &str,
    ) -> crate::meta::status::Result<Vec<Arc<Object>>> {
        let gvr = Gvr::new("discovery.k8s.io", "v1", "endpointslices");
        let labels = json!({"matchLabels": {SERVICE_NAME: service}});
        let selector = LabelSelector::from_object(Some(&labels)).map_err(Status::internal)?;
        Objects::select(&*self.client, &gvr, namespace, &selector).await
    }

    /// Asks the server for its version several times at once; the last failure counts if all fail.
    async fn check_discovery(
        &self,
        service: &ApiService,
        backend: Arc<Backend>,
    ) -> Result<(), String> {
        let (sender, mut outcomes) = mpsc::channel(ATTEMPTS);
        let mut attempts = tokio::task::JoinSet::new();
        for _ in 0..ATTEMPTS {
            let (backend, services) = (backend.clone(), self.services.clone());
            let (path, sender) = (service.path(), sender.clone());
            attempts.spawn(async move {
                let outcome = ask(&backend, &*services, &path).await;
                // Nobody waits for it if another one has succeeded.
                let _ = sender.send(outcome).await;
            });
        }
        drop(sender);
        let mut last = Err("the check has panicked".to_owned());
        while let Some(outcome) = outcomes.recv().await {
            if outcome.is_ok() {
                return outcome;
            }
            last = outcome;
        }
        last
    }

    /// Writes a condition where it is another, and counts.
    async fn write(&self, service: &ApiService, condition: Condition) -> Result<(), String> {
        let is_available = condition.status == "True";
        UNAVAILABLE.set(&[&service.name], i64::from(!is_available));
        let now = time::format(self.clock.now().as_second());
        let Some(object) = with_condition(&service.object, &condition, &now) else {
            return Ok(());
        };
        let (was, reason) = (service.is_available, condition.reason);
        tracing::info!(
            name = service.name,
            status = condition.status,
            reason,
            "changing the availability of an APIService: {}",
            condition.message
        );
        let written = Objects::update_status(&*self.client, &gvr(), object).await;
        written.map_err(|why| why.message)?;
        if was && !is_available {
            UNAVAILABLE_TOTAL.inc(&[&service.name, reason]);
        }
        Ok(())
    }
}

impl Worker for Availability {
    const TASK: &'static str = "availability of APIServices";

    fn queue(&self) -> &WorkQueue {
        &self.queue
    }

    async fn sync(&self, name: &str) -> Result<(), String> {
        let Some(service) = self.catalog.get(name) else {
            UNAVAILABLE.remove(&[name]);
            return Ok(());
        };
        let Some(remote) = &service.remote else {
            let message = "Local APIServices are always available";
            return self
                .write(&service, Condition::new("True", "Local", message))
                .await;
        };
        if let Some(condition) = self.check_service(remote).await {
            return self.write(&service, condition).await;
        }
        let Some(backend) = self.routes.backend(name) else {
            return Ok(());
        };
        // With certificates that cannot be used, nothing can be said.
        backend.transport()?;
        let answered = self.check_discovery(&service, backend).await;
        match answered {
            Ok(()) => {
                let passed = Condition::new("True", "Passed", "all checks passed");
                self.write(&service, passed).await
            }
            Err(why) => {
                let failed = Condition::new("False", "FailedDiscoveryCheck", why.clone());
                self.write(&service, failed).await?;
                // It is checked again soon.
                Err(why)
            }
        }
    }
}

/// Asks a server for its version, as an administrator.
async fn ask(backend: &Backend, services: &dyn ServiceResolver, path: &str) -> Result<(), String> {
    let user = User {
        name: "system:kube-aggregator".to_owned(),
        groups: vec![MASTERS.to_owned()],
        ..User::default()
    };
    let location = backend.locate(services, path, "").await?;
    let failed = |why: String| format!("failing or missing response from {location}: {why}");
    let status = backend.status(&location, &user, TIMEOUT).await;
    let status = status.map_err(failed)?;
    match status.is_success() {
        true => Ok(()),
        false => Err(failed(format!(
            "bad status from {location}: {}",
            status.as_u16()
        ))),
    }
}

/// Reports whether an EndpointSlice has somebody who is ready, and the port.
fn has_endpoint(slice: &Object, port: &str) -> bool {
    let ready = |endpoint: &Value| {
        value_at(endpoint, "/conditions/ready").and_then(Value::as_bool) != Some(false)
    };
    let is_port = |one: &Value| {
        value_at(one, "/name").and_then(Value::as_str) == Some(port)
            && i64_at(one, "/port").is_some()
    };
    slice.array_at("/endpoints").iter().any(ready) && slice.array_at("/ports").iter().any(is_port)
}

/// The object with the condition; `None` if it has it already. The time is kept where the status
/// is.
fn with_condition(object: &Object, condition: &Condition, now: &str) -> Option<Object> {
    let before = available_condition(object);
    let same = |key: &str, value: &str| {
        before.is_some_and(|before| value_at(before, key).and_then(Value::as_str) == Some(value))
    };
    let same_status = same("/status", condition.status);
    if same_status && same("/reason", condition.reason) && same("/message", &condition.message) {
        return None;
    }
    let since = before
        .filter(|_| same_status)
        .and_then(|before| value_at(before, "/lastTransitionTime").cloned())
        .unwrap_or_else(|| now.into());
    let next = json!({
        "type": "Available",
        "status": condition.status,
        "lastTransitionTime": since,
        "reason": condition.reason,
        "message": condition.message,
    });
    let mut conditions = object.array_at("/status/conditions").to_vec();
    match conditions
        .iter_mut()
        .find(|one| str_at(one, "/type") == "Available")
    {
        Some(known) => *known = next,
        None => conditions.push(next),
    }
    let mut object = object.clone();
    object
        .section_mut("status")
        .insert("conditions", conditions.into());
    Some(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_changed_in_place() {
        let conditions = json!([{"type": "Other"}, {
            "type": "Available", "status": "True", "lastTransitionTime": "then", "reason": "Passed", "message": "m",
        }]);
        let object = json!({"status": {"conditions": conditions}});
        let object = Object::from_value(object).expect("an object");
        let shown = |condition: Condition| {
            let changed = with_condition(&object, &condition, "now")?;
            let at = |key: &str| {
                changed
                    .str_at(&format!("/status/conditions/1/{key}"))
                    .to_owned()
            };
            Some(format!(
                "{} {} {}",
                at("status"),
                at("lastTransitionTime"),
                at("reason")
            ))
        };
        assert_eq!(shown(Condition::new("True", "Passed", "m")), None);
        let same = shown(Condition::new("True", "Passed", "n"));
        assert_eq!(same.as_deref(), Some("True then Passed"));
        let other = shown(Condition::new("False", "ServiceNotFound", "n"));
        assert_eq!(other.as_deref(), Some("False now ServiceNotFound"));
    }

    #[test]
    fn endpoints_count_that_are_ready_at_the_port() {
        let slice = |ready: Value, port: Value| {
            let slice = json!({"endpoints": [{"conditions": {"ready": ready}}], "ports": [port]});
            has_endpoint(&Object::from_value(slice).expect("an object"), "https")
        };
        let port = json!({"name": "https", "port": 443});
        assert!(slice(Value::Null, port.clone()) && slice(true.into(), port.clone()));
        assert!(!slice(false.into(), port));
        assert!(!slice(true.into(), json!({"name": "http", "port": 80})));
        assert!(!slice(true.into(), json!({"name": "https"})));
    }
}
