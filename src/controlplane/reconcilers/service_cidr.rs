//! The default ServiceCIDR, which `--service-cluster-ip-range` stands for
//! (`pkg/controlplane/controller/defaultservicecidr`). Other ServiceCIDRs, and finalizers, are the
//! controller manager's.

use ipnet::IpNet;

use super::events::{Because, EventRecorder};
use crate::base::clock::Clock;
use crate::controlplane::bootstrap::Creator;
use crate::meta::status::Result;
use crate::meta::{Gvr, Object, Value, json, time};

/// The name of the default ServiceCIDR.
const NAME: &str = "kubernetes";
const MANAGER: &str = "kube-apiserver";
/// The field manager of its status, and who writes events about it.
pub const CONTROLLER: &str = "kubernetes-service-cidr-controller";
const ACTION: &str = "ServiceCIDR";

/// Makes the default ServiceCIDR and keeps it; tells people where they have made something else of
/// it.
pub struct DefaultServiceCidr {
    cidrs: Vec<String>,
    events: EventRecorder,
    clock: Clock,
    told_of_mismatch: bool,
    told_of_not_ready: bool,
}

impl DefaultServiceCidr {
    /// `ranges` are `--service-cluster-ip-range`, the primary one first.
    pub fn new(ranges: &[IpNet], events: EventRecorder, clock: Clock) -> Self {
        let cidrs = ranges
            .iter()
            .map(|range| range.trunc().to_string())
            .collect();
        Self {
            cidrs,
            events,
            clock,
            told_of_mismatch: false,
            told_of_not_ready: false,
        }
    }

    /// One turn.
    ///
    /// # Errors
    /// The ServiceCIDR can be neither read nor made.
    pub async fn sync(&mut self, creator: &dyn Creator) -> Result<()> {
        let Some(present) = creator.get(&gvr(), "", NAME).await? else {
            let mut cidr = Object::default();
            cidr.insert("kind", "ServiceCIDR".into());
            cidr.insert("apiVersion", "networking.k8s.io/v1".into());
            cidr.set_meta_str("name", NAME);
            cidr.insert("spec", json!({"cidrs": self.cidrs}));
            return match creator.create(&gvr(), cidr, MANAGER).await {
                Ok(made) => self.sync_status(&made, creator).await,
                // Another server was faster.
                Err(status) if status.code == 409 => Ok(()),
                Err(status) => Err(status),
            };
        };
        let cidrs = cidrs(&present);
        if self.cidrs.len() == 2 && cidrs.len() == 1 && cidrs[0] == self.cidrs[0] {
            return self.add_second(present, creator).await;
        }
        self.sync_status(&present, creator).await
    }

    /// A cluster that had one family gets a second one.
    async fn add_second(&self, present: Object, creator: &dyn Creator) -> Result<()> {
        let mut wanted = present.clone();
        wanted
            .section_mut("spec")
            .insert("cidrs", json!(self.cidrs));
        if let Err(status) = creator.update(&gvr(), wanted, MANAGER).await {
            let (first, all) = (&self.cidrs[0], shown(&self.cidrs));
            let note = format!(
                "The default ServiceCIDR can not be upgraded from {first} to dual stack {all} : {}",
                status.message
            );
            self.events
                .warn(
                    &present,
                    Because {
                        reason: "KubernetesDefaultServiceCIDRError",
                        action: ACTION,
                    },
                    note,
                )
                .await;
        }
        Ok(())
    }

    async fn sync_status(&mut self, present: &Object, creator: &dyn Creator) -> Result<()> {
        if present.deletion_timestamp().is_some() {
            return Ok(());
        }
        if cidrs(present) != self.cidrs {
            if !self.told_of_mismatch {
                let (theirs, ours) = (shown(&cidrs(present)), shown(&self.cidrs));
                let note = format!(
                    "The default ServiceCIDR {theirs} does not match the controller flag configurations {ours}"
                );
                self.events
                    .warn(
                        present,
                        Because {
                            reason: "KubernetesDefaultServiceCIDRInconsistent",
                            action: ACTION,
                        },
                        note,
                    )
                    .await;
                self.told_of_mismatch = true;
            }
            return Ok(());
        }
        let text = |value: &Value, key: &str| {
            value
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or("")
                .to_owned()
        };
        let ready = present
            .array_at("/status/conditions")
            .iter()
            .find(|condition| text(condition, "type") == "Ready");
        match ready.map(|condition| text(condition, "status")).as_deref() {
            Some("True") => {}
            Some("False") => {
                // Somebody set it, and must see to it.
                if let (Some(condition), false) = (ready, self.told_of_not_ready) {
                    let note = format!("Configuration matches, but {}", text(condition, "message"));
                    self.events
                        .warn(
                            present,
                            Because {
                                reason: "KubernetesDefaultServiceCIDRNotReady",
                                action: ACTION,
                            },
                            note,
                        )
                        .await;
                    self.told_of_not_ready = true;
                }
            }
            _ => {
                let now = time::format(self.clock.now().as_second());
                let message = "Kubernetes default Service CIDR is ready";
                let condition = json!({"type": "Ready", "status": "True", "lastTransitionTime": now, "reason": "", "message": message});
                if let Err(status) = creator
                    .apply_status(
                        &gvr(),
                        present,
                        json!({"conditions": [condition]}),
                        CONTROLLER,
                    )
                    .await
                {
                    tracing::warn!("the status of the default ServiceCIDR: {}", status.message);
                }
            }
        }
        Ok(())
    }
}

fn gvr() -> Gvr {
    Gvr::new("networking.k8s.io", "v1", "servicecidrs")
}

fn cidrs(object: &Object) -> Vec<String> {
    object
        .array_at("/spec/cidrs")
        .iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// A list as Go prints it.
fn shown(texts: &[String]) -> String {
    format!("[{}]", texts.join(" "))
}
