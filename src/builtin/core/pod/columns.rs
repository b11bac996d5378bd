//! Columns of the Table.

use jiff::Timestamp;

use crate::builtin::columns::{AGE, NAME, NONE, RowBuilder, condition, text, wide};
use crate::meta::{Object, Value, bool_at, i64_at, str_at, value_at};
use crate::registry::cells::Cell;
use crate::registry::table::{Column, RowCondition, TablePrinter};

pub struct PodPrinter;

static SUCCEEDED: RowCondition = RowCondition {
    kind: "Completed",
    status: "True",
    reason: "Succeeded",
    message: "The pod has completed successfully.",
};
static FAILED: RowCondition = RowCondition {
    kind: "Completed",
    status: "True",
    reason: "Failed",
    message: "The pod failed.",
};

impl TablePrinter for PodPrinter {
    fn columns(&self) -> &[Column] {
        static COLUMNS: &[Column] = &[
            NAME,
            text("Ready", "How many of its containers are ready"),
            text("Status", "What its containers are doing, in one word"),
            text(
                "Restarts",
                "How often its containers were restarted, and when last",
            ),
            AGE,
            wide("IP", "Its address"),
            wide("Node", "The node it is bound to"),
            wide("Nominated Node", "The node it waits for"),
            wide(
                "Readiness Gates",
                "How many of its extra readiness conditions hold",
            ),
        ];
        COLUMNS
    }

    fn paths(&self) -> &'static str {
        "spec.containers.name spec.initContainers.name \
        spec.initContainers.restartPolicy spec.nodeName spec.readinessGates \
        status.phase status.reason status.podIPs status.nominatedNodeName \
        status.conditions.type status.conditions.status status.conditions.reason \
        status.initContainerStatuses.name status.initContainerStatuses.ready \
        status.initContainerStatuses.started status.initContainerStatuses.restartCount \
        status.initContainerStatuses.state \
        status.initContainerStatuses.lastState.terminated.finishedAt \
        status.containerStatuses.ready status.containerStatuses.restartCount \
        status.containerStatuses.state.running \
        status.containerStatuses.state.waiting.reason \
        status.containerStatuses.state.terminated \
        status.containerStatuses.lastState.terminated.finishedAt"
    }

    fn cells(&self, object: &Object) -> Vec<Cell> {
        let pod = Pod::look_at(object);
        let mut row = RowBuilder {
            object,
            cells: Vec::with_capacity(self.columns().len()),
        };
        row.name()
            .cell(format!("{}/{}", pod.ready, pod.total))
            .cell(pod.status)
            .cell(pod.restarts.cell())
            .age();
        row.text_unless_empty("/status/podIPs/0/ip", NONE)
            .text_unless_empty("/spec/nodeName", NONE);
        row.text_unless_empty("/status/nominatedNodeName", NONE)
            .cell(readiness_gates(object));
        row.cells
    }

    fn condition(&self, object: &Object) -> Option<&'static RowCondition> {
        match object.str_at("/status/phase") {
            "Succeeded" => Some(&SUCCEEDED),
            "Failed" => Some(&FAILED),
            _ => None,
        }
    }
}

/// The number of restarts of containers, and the time of the last one.
#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, status: &Value) {
        self.count += i64_at(status, "/restartCount").unwrap_or(0);
        self.last = self.last.max(
            str_at(status, "/lastState/terminated/finishedAt")
                .parse()
                .ok(),
        );
    }

    fn cell(self) -> Cell {
        match self.last {
            Some(since) if self.count != 0 => Cell::Since {
                before: format!("{} (", self.count),
                since,
                after: " ago)",
            },
            _ => self.count.to_string().into(),
        }
    }
}

/// The state of a pod's containers, as its row shows it.
struct Pod {
    ready: usize,
    total: usize,
    status: String,
    restarts: Restarts,
}

impl Pod {
    fn look_at(object: &Object) -> Self {
        let phase = object.str_at("/status/phase");
        let reason = object.str_at("/status/reason");
        let mut pod = Self {
            ready: 0,
            total: object.array_at("/spec/containers").len(),
            status: if reason.is_empty() { phase } else { reason }.to_owned(),
            restarts: Restarts::default(),
        };
        let scheduled = condition(object, "/status/conditions", "PodScheduled");
        if scheduled.is_some_and(|condition| str_at(condition, "/reason") == "SchedulingGated") {
            pod.status = "SchedulingGated".to_owned();
        }
        let (initializing, sidecar_restarts) = pod.look_at_init_containers(object);
        let initialized = condition(object, "/status/conditions", "Initialized");
        if !initializing
            || initialized.is_some_and(|condition| str_at(condition, "/status") == "True")
        {
            pod.restarts = sidecar_restarts;
            pod.look_at_containers(object);
        }
        if object.deletion_timestamp().is_some() {
            if reason == "NodeLost" {
                pod.status = "Unknown".to_owned();
            } else if !matches!(phase, "Succeeded" | "Failed") {
                pod.status = "Terminating".to_owned();
            }
        }
        pod
    }

    /// Returns whether the pod is still initializing, and the restarts of its sidecars alone.
    fn look_at_init_containers(&mut self, object: &Object) -> (bool, Restarts) {
        let containers = object.array_at("/spec/initContainers");
        let is_sidecar = |container: &&Value| str_at(container, "/restartPolicy") == "Always";
        self.total += containers.iter().filter(is_sidecar).count();
        let mut sidecar_restarts = Restarts::default();
        for (index, status) in object
            .array_at("/status/initContainerStatuses")
            .iter()
            .enumerate()
        {
            let name = str_at(status, "/name");
            let sidecar = containers
                .iter()
                .filter(is_sidecar)
                .any(|container| str_at(container, "/name") == name);
            self.restarts.add(status);
            if sidecar {
                sidecar_restarts.add(status);
            }
            let terminated =
                value_at(status, "/state/terminated").filter(|state| state.is_object());
            if terminated.is_some_and(|state| i64_at(state, "/exitCode").unwrap_or(0) == 0) {
                continue;
            }
            if sidecar && bool_at(status, "/started") {
                self.ready += usize::from(bool_at(status, "/ready"));
                continue;
            }
            let waiting = str_at(status, "/state/waiting/reason");
            self.status = match terminated {
                Some(state) => format!("Init:{}", end_of(state)),
                None if !waiting.is_empty() && waiting != "PodInitializing" => {
                    format!("Init:{waiting}")
                }
                None => format!("Init:{index}/{}", containers.len()),
            };
            return (true, sidecar_restarts);
        }
        (false, sidecar_restarts)
    }

    fn look_at_containers(&mut self, object: &Object) {
        let (mut has_running, mut error) = (false, None);
        for status in object.array_at("/status/containerStatuses").iter().rev() {
            self.restarts.add(status);
            let waiting = str_at(status, "/state/waiting/reason");
            let state = |name| value_at(status, name).filter(|state| state.is_object());
            if !waiting.is_empty() {
                self.status = waiting.to_owned();
            } else if let Some(terminated) = state("/state/terminated") {
                self.status = end_of(terminated);
                if i64_at(terminated, "/exitCode").unwrap_or(0) != 0 {
                    error = Some(self.status.clone());
                }
            } else if bool_at(status, "/ready") && state("/state/running").is_some() {
                has_running = true;
                self.ready += 1;
            }
        }
        // One container that has completed says little while another still runs or has failed.
        if self.status == "Completed" {
            let ready = object
                .array_at("/status/conditions")
                .iter()
                .any(|condition| {
                    str_at(condition, "/type") == "Ready" && str_at(condition, "/status") == "True"
                });
            if has_running && ready {
                self.status = "Running".to_owned();
            } else if let Some(error) = error {
                self.status = error;
            } else if has_running {
                self.status = "NotReady".to_owned();
            }
        }
    }
}

/// Returns the reason that a container terminated for, or else its signal or exit code.
fn end_of(terminated: &Value) -> String {
    let (reason, signal) = (
        str_at(terminated, "/reason"),
        i64_at(terminated, "/signal").unwrap_or(0),
    );
    match reason {
        "" if signal != 0 => format!("Signal:{signal}"),
        "" => format!("ExitCode:{}", i64_at(terminated, "/exitCode").unwrap_or(0)),
        reason => reason.to_owned(),
    }
}

fn readiness_gates(object: &Object) -> String {
    let gates = object.array_at("/spec/readinessGates");
    if gates.is_empty() {
        return NONE.to_owned();
    }
    let holds = |gate: &&Value| {
        let found = condition(object, "/status/conditions", str_at(gate, "/conditionType"));
        found.is_some_and(|condition| str_at(condition, "/status") == "True")
    };
    format!("{}/{}", gates.iter().filter(holds).count(), gates.len())
}
