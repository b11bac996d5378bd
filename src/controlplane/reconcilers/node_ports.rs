//! The repair of node ports: rebuilds the bitmap of allocated ports from the services, whichever
//! range it was made for (`pkg/registry/core/service/portallocator/controller`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::PASSES_BEFORE_RELEASE;
use super::events::EventRecorder;
use crate::builtin::core::service::node_ports::{Allocation, NodePorts};
use crate::builtin::core::service::ports;
use crate::meta::status::Result;
use crate::meta::{Object, Status};
use crate::registry::Store;
use crate::telemetry::metrics::{Counter, Declared};

/// The maximum number of attempts of a pass, each undone by ports that are taken meanwhile.
const CONFLICT_RETRIES: usize = 100;
const ACTION: &str = "PortAllocation";

static PORT_ERRORS: Counter = Counter::new(
    "apiserver_nodeport_repair_port_errors_total",
    "[ALPHA] Number of errors detected on ports by the repair loop broken down by type of error: leak, repair, full, outOfRange, duplicate, unknown",
    &["type"],
);
static RECONCILE_ERRORS: Counter = Counter::new(
    "apiserver_nodeport_repair_reconcile_errors_total",
    "[ALPHA] Number of reconciliation failures on the nodeport repair reconcile loop",
    &[],
);

pub static METRICS: &[&dyn Declared] = &[&PORT_ERRORS, &RECONCILE_ERRORS];

/// The repair of node ports, pass by pass.
pub struct NodePortRepair {
    services: Arc<Store>,
    ports: Arc<NodePorts>,
    events: EventRecorder,
    /// Ports without a service, with the number of passes that they are still kept.
    leaks: BTreeMap<u16, u32>,
}

/// A problem with a node port of a service.
enum Problem {
    /// The port is not marked as taken.
    NotAllocated,
    /// Another service has it, too.
    Duplicate,
    OutOfRange,
}

impl NodePortRepair {
    pub fn new(services: Arc<Store>, ports: Arc<NodePorts>, events: EventRecorder) -> Self {
        RECONCILE_ERRORS.add(&[], 0);
        Self {
            services,
            ports,
            events,
            leaks: BTreeMap::new(),
        }
    }

    /// Passes over all services once.
    ///
    /// # Errors
    /// The store's; then nothing was changed.
    pub async fn run_once(&mut self) -> Result<()> {
        let done = self.pass().await;
        if done.is_err() {
            RECONCILE_ERRORS.inc(&[]);
        }
        done
    }

    async fn pass(&mut self) -> Result<()> {
        for _ in 0..CONFLICT_RETRIES {
            // The services must be no older than the bitmap: a port that was free when they were
            // read may be taken by now, but then the bitmap has changed.
            let allocation = self.ports.allocation().await?;
            let services = super::services(&self.services).await?;
            let (mut used, wrong) = self.used(&services, &allocation);
            let leaks = self.leaked(&allocation, &used);
            used.extend(
                leaks
                    .iter()
                    .filter(|(_, passes)| **passes > 0)
                    .map(|(port, _)| *port),
            );
            if self.ports.replace(&allocation, &used).await? {
                self.report(wrong, leaks).await;
                return Ok(());
            }
        }
        Err(Status::internal(
            "the allocation of node ports changes too fast",
        ))
    }

    /// Returns the ports that services have, and the problems with them.
    fn used<'a>(
        &self,
        services: &'a [Object],
        allocation: &Allocation,
    ) -> (BTreeSet<u16>, Vec<(&'a Object, u16, Problem)>) {
        let (mut used, mut wrong) = (BTreeSet::new(), Vec::new());
        for service in services {
            for port in ports::owned(service) {
                if !self.ports.contains(port) {
                    wrong.push((service, port, Problem::OutOfRange));
                } else if !used.insert(port) {
                    wrong.push((service, port, Problem::Duplicate));
                } else if !allocation.ports.contains(&port) {
                    wrong.push((service, port, Problem::NotAllocated));
                }
            }
        }
        (used, wrong)
    }

    /// Returns the allocated ports that no service has, with the number of passes that they are
    /// still kept; 0 for those to be released.
    fn leaked(&self, allocation: &Allocation, used: &BTreeSet<u16>) -> BTreeMap<u16, u32> {
        let left = |port: &u16| {
            self.leaks
                .get(port)
                .map_or(PASSES_BEFORE_RELEASE, |left| left.saturating_sub(1))
        };
        allocation
            .ports
            .difference(used)
            .map(|port| (*port, left(port)))
            .collect()
    }

    async fn report(&mut self, wrong: Vec<(&Object, u16, Problem)>, leaks: BTreeMap<u16, u32>) {
        for (service, port, wrong) in wrong {
            let (kind, reason, note) = match wrong {
                Problem::NotAllocated => (
                    "repair",
                    "PortNotAllocated",
                    format!("Port {port} is not allocated; repairing"),
                ),
                Problem::Duplicate => {
                    let note = format!(
                        "Port {port} was assigned to multiple services; please recreate service"
                    );
                    ("duplicate", "PortAlreadyAllocated", note)
                }
                Problem::OutOfRange => {
                    let range = self.ports.range_text();
                    (
                        "outOfRange",
                        "PortOutOfRange",
                        format!(
                            "Port {port} is not within the port range {range}; please recreate service"
                        ),
                    )
                }
            };
            PORT_ERRORS.inc(&[kind]);
            self.events.warn(service, reason, ACTION, note).await;
        }
        for (port, left) in &leaks {
            if *left == 0 {
                PORT_ERRORS.inc(&["leak"]);
                tracing::warn!("the node port {port} was taken by nobody: it is free again");
            }
        }
        self.leaks = leaks.into_iter().filter(|(_, left)| *left > 0).collect();
    }
}
