//! The reconciler of periodic writes: the master lease of this server, the endpoints of the
//! `kubernetes` service, and the objects that no cluster can be without
//! (`pkg/controlplane/controller`, `pkg/controlplane/reconcilers`).

use std::time::Duration;

use tokio::sync::watch;

use super::bootstrap::{self, Params};
use super::loopback_client::LoopbackClient;
use super::master_leases::MasterLeases;
use super::reconcilers::service_cidr::DefaultServiceCidr;
use crate::base::clock::Clock;
use crate::base::latch::Latch;
use crate::base::supervise::{FailureTracker, catch_panic};
use crate::meta::status::Result;
use crate::meta::time::parse_micro;
use crate::meta::{Gvr, Object, Status};
use crate::storage::StorageError;

/// The time between rounds (`DefaultEndpointReconcilerInterval`,
/// `IdentityLeaseRenewIntervalPeriod`).
const INTERVAL: Duration = Duration::from_secs(10);
/// The number of rounds between two deletions of expired identity leases (`IdentityLeaseGCPeriod`:
/// an hour).
const LEASE_GC_ROUNDS: u64 = 360;
/// The timeout of removing this server from the endpoints: an unavailable store must not delay the
/// shutdown.
const DEREGISTER_TIMEOUT: Duration = Duration::from_secs(20);
/// The namespace of the identity leases, and the label that they have.
const IDENTITY_LEASES: (&str, &str, &str) = (
    "kube-system",
    "apiserver.kubernetes.io/identity",
    "kube-apiserver",
);

/// The authorities that a server trusts, in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authorities {
    pub clients: String,
    /// Empty where there is no front proxy.
    pub front_proxy: String,
}

/// A server among those of its cluster.
pub struct EndpointReconciler {
    params: Params,
    /// The authorities that the objects of the cluster should name.
    authorities: watch::Sender<Authorities>,
    client: LoopbackClient,
    /// `None` where no other server can be on the store.
    leases: Option<MasterLeases>,
    service_cidr: DefaultServiceCidr,
    clock: Clock,
}

impl EndpointReconciler {
    /// Creates the default ServiceCIDR, registers this server, and learns of the others.
    ///
    /// # Errors
    /// The store's.
    pub async fn join(
        mut params: Params,
        leases: Option<MasterLeases>,
        client: LoopbackClient,
        mut service_cidr: DefaultServiceCidr,
        clock: Clock,
    ) -> Result<Self> {
        service_cidr.sync(&client).await?;
        if let Some(leases) = &leases {
            leases
                .renew(params.advertise_address)
                .await
                .map_err(unavailable)?;
            params.servers = Some(leases.live_servers().await.map_err(unavailable)?);
        }
        let authorities = Authorities {
            clients: params.client_ca.clone().unwrap_or_default(),
            front_proxy: params
                .front_proxy
                .as_ref()
                .map(|proxy| proxy.client_ca.clone())
                .unwrap_or_default(),
        };
        Ok(Self {
            params,
            authorities: watch::Sender::new(authorities),
            client,
            leases,
            service_cidr,
            clock,
        })
    }

    /// Returns the channel through which to announce other authorities.
    pub fn authorities(&self) -> watch::Sender<Authorities> {
        self.authorities.clone()
    }

    /// Returns the parameters of this server's objects.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Returns the client that it writes with.
    pub fn client(&self) -> &LoopbackClient {
        &self.client
    }

    /// Reconciles every [`INTERVAL`], and when the authorities change, until the server stops; then
    /// deregisters it.
    pub async fn run(mut self, stopping: Latch) {
        let mut changes = self.authorities.subscribe();
        let reconciling = FailureTracker::new("reconciling the objects of the cluster");
        for round in 1_u64.. {
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                // The sender is this server's own, and stays.
                Ok(()) = changes.changed() => {}
                () = stopping.wait() => break,
            }
            match catch_panic("endpoint reconciler", self.reconcile())
                .await
                .map_err(Status::internal)
                .flatten()
            {
                Ok(()) => reconciling.record_success(),
                Err(status) => reconciling.record_failure(&status.message),
            }
            if round % LEASE_GC_ROUNDS == 0
                && let Err(status) =
                    catch_panic("endpoint reconciler", self.delete_expired_leases())
                        .await
                        .map_err(Status::internal)
                        .flatten()
            {
                tracing::warn!("deleting old identity leases: {}", status.message);
            }
        }
        match tokio::time::timeout(DEREGISTER_TIMEOUT, self.deregister()).await {
            Ok(Ok(())) => {}
            Ok(Err(status)) => tracing::warn!(
                "leaving the endpoints of the kubernetes service: {}",
                status.message
            ),
            Err(_) => {
                tracing::warn!("leaving the endpoints of the kubernetes service takes too long")
            }
        }
    }

    async fn reconcile(&mut self) -> Result<()> {
        if let Some(leases) = &self.leases {
            leases
                .renew(self.params.advertise_address)
                .await
                .map_err(unavailable)?;
            let live = leases.live_servers().await.map_err(unavailable)?;
            // It has just written its own: without any, something is wrong.
            if live.is_empty() {
                return Err(Status::internal("no server is listed in the store"));
            }
            self.params.servers = Some(live);
        }
        self.params.now = self.clock.now();
        self.service_cidr.sync(&self.client).await?;
        bootstrap::ensure(bootstrap::reconciled_objects(&self.params), &self.client).await?;
        self.publish_authorities().await
    }

    /// Publishes the authorities to extension servers
    /// (`pkg/controlplane/controller/clusterauthenticationtrust`).
    async fn publish_authorities(&mut self) -> Result<()> {
        let now = self.authorities.borrow().clone();
        self.params.client_ca = self.params.client_ca.is_some().then_some(now.clients);
        if let Some(proxy) = &mut self.params.front_proxy {
            proxy.client_ca = now.front_proxy;
        }
        let objects = bootstrap::authentication_objects(&self.params);
        bootstrap::ensure(objects, &self.client).await
    }

    /// Takes this server from the endpoints, so that clients do not find out the hard way.
    async fn deregister(&mut self) -> Result<()> {
        let Some(leases) = &self.leases else {
            return Ok(());
        };
        leases
            .remove(self.params.advertise_address)
            .await
            .map_err(unavailable)?;
        self.params.servers = Some(leases.live_servers().await.map_err(unavailable)?);
        bootstrap::ensure(bootstrap::endpoint_objects(&self.params), &self.client).await
    }

    /// Deletes the identity leases of servers that are gone.
    async fn delete_expired_leases(&self) -> Result<()> {
        let gvr = Gvr::new("coordination.k8s.io", "v1", "leases");
        let (namespace, label, value) = IDENTITY_LEASES;
        for lease in self.client.list(&gvr, namespace).await? {
            let of_a_server =
                lease.labels().and_then(|all| all.get(label)?.as_str()) == Some(value);
            if of_a_server && self.is_expired(&lease) {
                match self.client.delete_unchanged(&gvr, &lease).await {
                    // Another server was faster, or its owner is back.
                    Err(status) if status.code == 404 || status.code == 409 => {}
                    outcome => outcome?,
                }
            }
        }
        Ok(())
    }

    /// A lease without a time or duration is none.
    fn is_expired(&self, lease: &Object) -> bool {
        let (renewed, seconds) = (
            parse_micro(lease.str_at("/spec/renewTime")).ok(),
            lease.i64_at("/spec/leaseDurationSeconds"),
        );
        match (renewed, seconds) {
            (Some(renewed), Some(seconds)) => {
                renewed.seconds.saturating_add(seconds) < self.clock.now().as_second()
            }
            _ => true,
        }
    }
}

fn unavailable(error: StorageError) -> Status {
    Status::internal(error.to_string())
}
