//! The Services of the cluster as clients of the server's own webhooks find them (kube-aggregator
//! `pkg/apiserver/resolvers.go`).

use std::sync::Arc;

use async_trait::async_trait;

use super::loopback_client::LoopbackClient;
use crate::admission::Objects;
use crate::meta::selector::labels::LabelSelector;
use crate::meta::{Gvr, go, json};
use crate::webhook::{ServiceResolver, cluster_address, endpoint_address};

/// Resolves Services: to their cluster IPs, or to one of their endpoints.
pub struct ClusterServices {
    client: Arc<LoopbackClient>,
    /// True for endpoints (`--enable-aggregator-routing`).
    to_endpoints: bool,
}

impl ClusterServices {
    pub fn new(client: Arc<LoopbackClient>, to_endpoints: bool) -> Self {
        Self {
            client,
            to_endpoints,
        }
    }
}

#[async_trait]
impl ServiceResolver for ClusterServices {
    async fn resolve(&self, namespace: &str, name: &str, port: u16) -> Result<String, String> {
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
