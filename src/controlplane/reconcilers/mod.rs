//! Loops that compare the actual with the desired state and repair it: cluster IPs, node ports, the
//! default ServiceCIDR, the conditions of FlowSchemas.

pub mod cluster_ips;
mod events;
mod flow_schemas;
pub mod node_ports;
pub mod service_cidr;

use std::sync::Arc;
use std::time::Duration;

use super::loopback_client::LoopbackClient;
use crate::base::clock::Clock;
use crate::base::latch::Latch;
use crate::base::supervise;
use crate::builtin::core::service::node_ports::NodePorts;
use crate::codec::protobuf::Projection;
use crate::meta::options::ListOptions;
use crate::meta::status::Result;
use crate::meta::{Gvr, Object, Status};
use crate::registry::{Registry, Store};

pub use cluster_ips::ClusterIpRepair;
pub use events::EventRecorder;
pub use flow_schemas::FlowSchemaReconciler;
pub use node_ports::NodePortRepair;

/// The time between two passes over everything (`IPRepairInterval`).
const INTERVAL: Duration = Duration::from_secs(180);
/// The number of passes that keep a leaked address or port: the service that claimed it may be
/// about to be written (`numRepairsBeforeLeakCleanup`).
const PASSES_BEFORE_RELEASE: u32 = 3;
/// The number of objects that are read before the task yields.
const READS_PER_TURN: usize = 256;
/// The fields of a service that the repairs read.
const SERVICE_PATHS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "metadata.creationTimestamp",
    "spec.type",
    "spec.clusterIP",
    "spec.clusterIPs",
    "spec.ports",
    "spec.healthCheckNodePort",
];

/// The repairs of addresses and ports, which crashes and failed writes leave behind.
pub struct Repairs {
    cluster_ips: ClusterIpRepair,
    node_ports: NodePortRepair,
}

impl Repairs {
    /// Returns the repairs of the services of `registry`.
    ///
    /// # Errors
    /// A resource that they need is not served.
    pub fn new(
        registry: &Arc<Registry>,
        ports: Arc<NodePorts>,
        clock: &Clock,
        hostname: &str,
    ) -> Result<Self> {
        let store = |group: &str, resource: &str| {
            let gvr = Gvr::new(group, "v1", resource);
            registry
                .get(&gvr)
                .ok_or_else(|| Status::internal(format!("{resource} are not served")))
        };
        let events = |controller| {
            EventRecorder::new(
                LoopbackClient::new(registry.clone()),
                controller,
                hostname,
                clock.clone(),
            )
        };
        let cluster_ips = ClusterIpRepair::new(
            store("", "services")?,
            store("networking.k8s.io", "ipaddresses")?,
            store("networking.k8s.io", "servicecidrs")?,
            events("ipallocator-repair-controller"),
            clock.clone(),
        );
        let node_ports = NodePortRepair::new(
            store("", "services")?,
            ports,
            events("portallocator-repair-controller"),
        );
        Ok(Self {
            cluster_ips,
            node_ports,
        })
    }

    /// Makes the first pass over the node ports, before any is allocated.
    pub async fn check_node_ports(&mut self) {
        if let Err(status) = self.node_ports.run_once().await {
            tracing::error!("checking the node ports: {}", status.message);
        }
    }

    /// Makes the first pass over the cluster IPs.
    pub async fn check_cluster_ips(&mut self) {
        if let Err(status) = self.cluster_ips.run_once().await {
            tracing::error!("checking the cluster IPs: {}", status.message);
        }
    }

    /// Repairs until the server stops.
    pub async fn run(self, stopping: Latch) {
        let Self {
            mut cluster_ips,
            mut node_ports,
        } = self;
        let ips = async {
            let mut wait = INTERVAL;
            while pause(wait, &stopping).await {
                wait = guarded("the repair of cluster IPs", cluster_ips.run_once())
                    .await
                    .flatten()
                    .unwrap_or(INTERVAL)
                    .min(INTERVAL);
            }
        };
        let ports = async {
            while pause(INTERVAL, &stopping).await {
                guarded("the repair of node ports", node_ports.run_once()).await;
            }
        };
        futures::join!(ips, ports);
    }
}

/// Waits; returns false if the server stops meanwhile.
async fn pause(time: Duration, stopping: &Latch) -> bool {
    tokio::select! {
        () = tokio::time::sleep(time) => true,
        () = stopping.wait() => false,
    }
}

/// Runs a pass. Errors and panics are logged, and the next pass comes all the same.
async fn guarded<T>(what: &str, pass: impl Future<Output = Result<T>>) -> Option<T> {
    match supervise::catch_panic(what, pass).await {
        Ok(Ok(done)) => Some(done),
        Ok(Err(status)) => {
            tracing::error!("{what}: {}", status.message);
            None
        }
        Err(_) => None,
    }
}

/// Returns all services as of now, with the fields that the repairs read.
async fn services(store: &Store) -> Result<Vec<Object>> {
    let part = Projection::new(
        store.resource.storage_ty(),
        SERVICE_PATHS
            .into_iter()
            .chain(["spec.externalTrafficPolicy"]),
    );
    let mut services = Vec::new();
    for stored in store.list("", &ListOptions::default()).await?.items {
        services.push(store.codec.decode_part(&*stored?, &part)?);
        if services.len() % READS_PER_TURN == 0 {
            tokio::task::yield_now().await;
        }
    }
    Ok(services)
}

#[cfg(test)]
mod tests;
