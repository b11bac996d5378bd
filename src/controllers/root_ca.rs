//! The publisher of the certificate authority: each namespace has it in a config map
//! (`pkg/controller/certificates/rootcacertpublisher`).

use std::sync::Arc;
use std::time::Duration;

use super::client::{Client, Result, Target};
use super::{ControllerDeps, Retry, namespaces, workers};
use crate::base::work_queue::WorkQueue;
use crate::controlplane::informer::EventHandler;
use crate::meta::{Object, Value, json};
use crate::registry::Store;
use crate::storage::Revision;
use crate::telemetry::work_queues::QueueMetrics;

/// The service account of the controller.
const ACCOUNT: &str = "root-ca-cert-publisher";
/// The config map, and the key in it.
const NAME: &str = "kube-root-ca.crt";
const KEY: &str = "ca.crt";
/// The annotation that says what it is for.
const DESCRIPTION: (&str, &str) = (
    "kubernetes.io/description",
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.",
);
/// Namespaces that are worked on at the same time.
const WORKERS: usize = 1;
/// The first and the longest wait before a namespace is worked on again after a failure.
const FIRST_DELAY: Duration = Duration::from_millis(20);
const MAX_DELAY: Duration = Duration::from_secs(60);

/// Puts the namespaces whose config map has changed or is gone into the queue.
struct Changed(Arc<WorkQueue>);

impl EventHandler for Changed {
    fn fields(&self) -> Option<&'static [&'static str]> {
        Some(&["metadata.name", "metadata.namespace"])
    }

    // What is missing is found by way of the namespaces.
    fn replace(&self, _objects: &[Object], _revision: Revision) {}

    fn upsert(&self, object: &Object) {
        if object.name() == NAME {
            self.0.add(object.namespace());
        }
    }

    fn remove(&self, object: &Object) {
        self.upsert(object);
    }
}

/// Starts the controller.
///
/// # Errors
/// The store's, of the first lists.
pub async fn start(deps: &ControllerDeps) -> Result<()> {
    let client = Client::new(&deps.api, ACCOUNT);
    let queue = Arc::new(
        WorkQueue::new(FIRST_DELAY, MAX_DELAY)
            .observed_by(QueueMetrics::new("root_ca_cert_publisher")),
    );
    let config_maps = client.store("", "v1", "configmaps")?;
    let changed = Arc::new(Changed(queue.clone()));
    deps.informers.start(config_maps.clone(), changed).await?;
    namespaces::follow(deps, &client, &queue).await?;
    let authority = deps.root_ca.clone();
    workers(deps, "root CA", &queue, WORKERS, move |namespace| {
        let (client, config_maps) = (client.clone(), config_maps.clone());
        let data = json!({KEY: &*authority});
        async move {
            if namespaces::is_active(&client, &namespace).await? {
                publish(&client, &config_maps, &namespace, data).await?;
            }
            Ok(())
        }
    });
    Ok(())
}

/// Makes the config map of a namespace what it should be.
async fn publish(
    client: &Client,
    config_maps: &Arc<Store>,
    namespace: &str,
    data: Value,
) -> std::result::Result<(), Retry> {
    let (annotation, description) = DESCRIPTION;
    let Some(mut present) = client.get(config_maps, namespace, NAME).await? else {
        let mut object = Object::from_value(json!({"data": data})).unwrap_or_default();
        object.set_meta_str("name", NAME);
        object.set_meta_str("namespace", namespace);
        object.set_annotation(annotation, description);
        return match client.create(config_maps, &object).await {
            Err(why) if !namespaces::is_ending(&why) => Err(why.into()),
            _ => Ok(()),
        };
    };
    let described = |all: &crate::meta::Map| {
        all.get(annotation)
            .and_then(Value::as_str)
            .is_some_and(|text| !text.is_empty())
    };
    if present.get("data") == Some(&data) && present.annotations().is_some_and(described) {
        return Ok(());
    }
    present.insert("data", data);
    present.set_annotation(annotation, description);
    let target = Target::new(config_maps, namespace, NAME);
    match client.update(target, &present).await {
        Err(why) if !why.is_not_found() => Err(why.into()),
        _ => Ok(()),
    }
}
