//! The default ServiceCIDR, made from `--service-cluster-ip-range`
//! (`pkg/controlplane/controller/defaultservicecidr`). Other ServiceCIDRs, and finalizers, belong
//! to the controller manager.

use ipnet::IpNet;

use super::events::EventRecorder;
use crate::base::clock::Clock;
use crate::controlplane::bootstrap::ObjectClient;
use crate::merge::APISERVER_MANAGER;
use crate::meta::status::Result;
use crate::meta::{Gvr, Object, Value, json, time};

/// The name of the default ServiceCIDR.
const NAME: &str = "kubernetes";
/// The field manager of its status, and the reporting controller of its events.
pub const CONTROLLER: &str = "kubernetes-service-cidr-controller";
const ACTION: &str = "ServiceCIDR";

/// The reconciler of the default ServiceCIDR. Changes by users are reported as events.
pub struct DefaultServiceCidr {
    cidrs: Vec<String>,
    events: EventRecorder,
    clock: Clock,
    reported_mismatch: bool,
    reported_not_ready: bool,
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
            reported_mismatch: false,
            reported_not_ready: false,
        }
    }

    /// Creates the ServiceCIDR, adds the second family, or updates the status.
    ///
    /// # Errors
    /// The ServiceCIDR can be neither read nor created.
    pub async fn sync(&mut self, client: &dyn ObjectClient) -> Result<()> {
        let Some(present) = client.get(&gvr(), "", NAME).await? else {
            let mut cidr = Object::default();
            cidr.insert("kind", "ServiceCIDR".into());
            cidr.insert("apiVersion", "networking.k8s.io/v1".into());
            cidr.set_meta_str("name", NAME);
            cidr.insert("spec", json!({"cidrs": self.cidrs}));
            return match client.create(&gvr(), cidr, APISERVER_MANAGER).await {
                Ok(made) => self.sync_status(&made, client).await,
                // Another server was faster.
                Err(status) if status.code == 409 => Ok(()),
                Err(status) => Err(status),
            };
        };
        let cidrs = cidrs(&present);
        if self.cidrs.len() == 2 && cidrs.len() == 1 && cidrs[0] == self.cidrs[0] {
            return self.add_second(present, client).await;
        }
        self.sync_status(&present, client).await
    }

    /// Upgrades a cluster of one family to two.
    async fn add_second(&self, present: Object, client: &dyn ObjectClient) -> Result<()> {
        let mut wanted = present.clone();
        wanted
            .section_mut("spec")
            .insert("cidrs", json!(self.cidrs));
        if let Err(status) = client.update(&gvr(), wanted, APISERVER_MANAGER).await {
            let (first, all) = (&self.cidrs[0], go_list(&self.cidrs));
            let note = format!(
                "The default ServiceCIDR can not be upgraded from {first} to dual stack {all} : {}",
                status.message
            );
            self.events
                .warn(&present, "KubernetesDefaultServiceCIDRError", ACTION, note)
                .await;
        }
        Ok(())
    }

    async fn sync_status(&mut self, present: &Object, client: &dyn ObjectClient) -> Result<()> {
        if present.deletion_timestamp().is_some() {
            return Ok(());
        }
        if cidrs(present) != self.cidrs {
            if !self.reported_mismatch {
                let (theirs, ours) = (go_list(&cidrs(present)), go_list(&self.cidrs));
                let note = format!(
                    "The default ServiceCIDR {theirs} does not match the controller flag configurations {ours}"
                );
                self.events
                    .warn(
                        present,
                        "KubernetesDefaultServiceCIDRInconsistent",
                        ACTION,
                        note,
                    )
                    .await;
                self.reported_mismatch = true;
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
                if let (Some(condition), false) = (ready, self.reported_not_ready) {
                    let note = format!("Configuration matches, but {}", text(condition, "message"));
                    self.events
                        .warn(
                            present,
                            "KubernetesDefaultServiceCIDRNotReady",
                            ACTION,
                            note,
                        )
                        .await;
                    self.reported_not_ready = true;
                }
            }
            _ => {
                let now = time::format(self.clock.now().as_second());
                let message = "Kubernetes default Service CIDR is ready";
                let condition = json!({"type": "Ready", "status": "True", "lastTransitionTime": now, "reason": "", "message": message});
                if let Err(status) = client
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

/// Formats a list as Go prints it.
fn go_list(texts: &[String]) -> String {
    format!("[{}]", texts.join(" "))
}
