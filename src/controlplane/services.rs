//! The Services of the cluster as clients of the server's own webhooks find them (kube-aggregator
//! `pkg/apiserver/resolvers.go`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;

use super::loopback_client::LoopbackClient;
use crate::admission::Objects;
use crate::base::dial::Egress;
use crate::meta::selector::labels::LabelSelector;
use crate::meta::{Gvr, go, json};
use crate::webhook::{ServiceResolver, cluster_address, endpoint_address};

/// Resolves Services: to their cluster IPs, or to one of their endpoints.
pub struct ClusterServices {
    client: Arc<LoopbackClient>,
    /// True for endpoints (`--enable-aggregator-routing`).
    to_endpoints: bool,
    /// The address of this server itself, for `kubernetes.default.svc`.
    own_address: SocketAddr,
    egress: Egress,
}

impl ClusterServices {
    /// Returns the services. Those who look for this server find it at `bound`, or on this machine
    /// where that is every address.
    pub fn new(client: Arc<LoopbackClient>, to_endpoints: bool, bound: SocketAddr) -> Self {
        let mut own_address = bound;
        if bound.ip().is_unspecified() {
            own_address.set_ip(match bound.ip() {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        Self {
            client,
            to_endpoints,
            own_address,
            egress: Egress::default(),
        }
    }

    /// Reaches Services and other servers by some ways.
    pub fn with_egress(self, egress: Egress) -> Self {
        Self { egress, ..self }
    }
}

#[async_trait]
impl ServiceResolver for ClusterServices {
    fn egress(&self) -> Egress {
        self.egress.clone()
    }

    async fn resolve(&self, namespace: &str, name: &str, port: u16) -> Result<String, String> {
        if (namespace, name, port) == ("default", "kubernetes", 443) {
            return Ok(self.own_address.to_string());
        }
        let gvr = Gvr::new("", "v1", "services");
        let found = Objects::get(&*self.client, &gvr, namespace, name).await;
        let service = found
            .map_err(|why| why.message)?
            .ok_or_else(|| format!("service {} not found", go::quote(name)))?;
        if !self.to_endpoints {
            return cluster_address(&service, port);
        }
        let gvr = Gvr::new("discovery.k8s.io", "v1", "endpointslices");
        let labels = json!({"matchLabels": {"kubernetes.io/service-name": name}});
        let selector = LabelSelector::from_object(Some(&labels))?;
        let slices = Objects::select(&*self.client, &gvr, namespace, &selector).await;
        let slices = slices.map_err(|why| why.message)?;
        endpoint_address(&service, slices.iter().map(|slice| &**slice), port)
    }
}
