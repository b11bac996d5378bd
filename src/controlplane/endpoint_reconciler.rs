//! What a server does for as long as it runs: it says that it lives, keeps the endpoints of the
//! `kubernetes` service in step with the servers that do, and puts right what no cluster can be
//! without (`pkg/controlplane/controller`).

use std::time::Duration;

use tokio::sync::watch;

use super::bootstrap::{self, Params};
use super::loopback_client::RegistryCreator;
use super::master_leases::MasterLeases;
use super::reconcilers::service_cidr::DefaultServiceCidr;
use crate::base::clock::Clock;
use crate::base::latch::Latch;
use crate::base::supervise::{FailureTracker, catch_panic};
use crate::meta::status::Result;
use crate::meta::time::parse_micro;
use crate::meta::{Gvr, Object, Status};
use crate::storage::StorageError;

/// The time between turns (`DefaultEndpointReconcilerInterval`,
/// `IdentityLeaseRenewIntervalPeriod`).
const INTERVAL: Duration = Duration::from_secs(10);
/// Every so many turns, identity leases that nobody renews are deleted (`IdentityLeaseGCPeriod`: an
/// hour).
const COLLECT_TURNS: u64 = 360;
/// How long saying good-bye may take: a store that is away must not hold up the end.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(20);
/// The namespace of the identity leases, and the label that they have.
const LEASES: (&str, &str, &str) = (
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
pub struct Keeper {
    params: Params,
    /// What the objects of the cluster should say of this server's authorities.
    authorities: watch::Sender<Authorities>,
    /// What they do say.
    published: Authorities,
    creator: RegistryCreator,
    /// `None` where no other server can be on the store.
    leases: Option<MasterLeases>,
    service_cidr: DefaultServiceCidr,
    clock: Clock,
}

impl Keeper {
    /// Makes the default ServiceCIDR, says that this server lives, and learns who else does.
    ///
    /// # Errors
    /// The store's.
    pub async fn join(
        mut params: Params,
        leases: Option<MasterLeases>,
        creator: RegistryCreator,
        mut service_cidr: DefaultServiceCidr,
        clock: Clock,
    ) -> Result<Self> {
        service_cidr.sync(&creator).await?;
        if let Some(leases) = &leases {
            leases
                .renew(params.advertise_address)
                .await
                .map_err(unavailable)?;
            params.servers = Some(leases.living().await.map_err(unavailable)?);
        }
        let published = Authorities {
            clients: params.client_ca.clone().unwrap_or_default(),
            front_proxy: params
                .front_proxy
                .as_ref()
                .map(|proxy| proxy.client_ca.clone())
                .unwrap_or_default(),
        };
        Ok(Self {
            params,
            authorities: watch::Sender::new(published.clone()),
            published,
            creator,
            leases,
            service_cidr,
            clock,
        })
    }

    /// Where to tell that this server trusts other authorities.
    pub fn authorities(&self) -> watch::Sender<Authorities> {
        self.authorities.clone()
    }

    /// What the objects of this server depend on.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// What it writes through.
    pub fn creator(&self) -> &RegistryCreator {
        &self.creator
    }

    /// Takes a turn every [`INTERVAL`], and when the authorities change, until the server stops,
    /// then says good-bye.
    pub async fn run(mut self, stopping: Latch) {
        let mut told = self.authorities.subscribe();
        let keeping = FailureTracker::new("keeping what the cluster needs");
        for turn in 1_u64.. {
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                // The sender is this server's own, and stays.
                Ok(()) = told.changed() => {}
                () = stopping.wait() => break,
            }
            match catch_panic("keeper", self.turn())
                .await
                .map_err(Status::internal)
                .flatten()
            {
                Ok(()) => keeping.record_success(),
                Err(status) => keeping.record_failure(&status.message),
            }
            if turn % COLLECT_TURNS == 0
                && let Err(status) = catch_panic("keeper", self.collect())
                    .await
                    .map_err(Status::internal)
                    .flatten()
            {
                tracing::warn!("deleting old identity leases: {}", status.message);
            }
        }
        match tokio::time::timeout(LEAVE_TIMEOUT, self.leave()).await {
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

    async fn turn(&mut self) -> Result<()> {
        if let Some(leases) = &self.leases {
            leases
                .renew(self.params.advertise_address)
                .await
                .map_err(unavailable)?;
            let living = leases.living().await.map_err(unavailable)?;
            // It has just written its own: without any, something is wrong.
            if living.is_empty() {
                return Err(Status::internal("no server is listed in the store"));
            }
            self.params.servers = Some(living);
        }
        self.params.now = self.clock.now();
        self.service_cidr.sync(&self.creator).await?;
        bootstrap::ensure(bootstrap::kept(&self.params), &self.creator).await?;
        self.publish_authorities().await
    }

    /// Tells extension servers of other authorities
    /// (`pkg/controlplane/controller/clusterauthenticationtrust`).
    async fn publish_authorities(&mut self) -> Result<()> {
        let now = self.authorities.borrow().clone();
        if now == self.published {
            return Ok(());
        }
        self.params.client_ca = self.params.client_ca.is_some().then(|| now.clients.clone());
        if let Some(proxy) = &mut self.params.front_proxy {
            proxy.client_ca.clone_from(&now.front_proxy);
        }
        bootstrap::ensure(bootstrap::authorities_of(&self.params), &self.creator).await?;
        self.published = now;
        Ok(())
    }

    /// Takes this server from the endpoints, so that clients need not find out.
    async fn leave(&mut self) -> Result<()> {
        let Some(leases) = &self.leases else {
            return Ok(());
        };
        leases
            .remove(self.params.advertise_address)
            .await
            .map_err(unavailable)?;
        self.params.servers = Some(leases.living().await.map_err(unavailable)?);
        bootstrap::ensure(bootstrap::endpoints_of(&self.params), &self.creator).await
    }

    /// Deletes the identity leases of servers that are gone.
    async fn collect(&self) -> Result<()> {
        let gvr = Gvr::new("coordination.k8s.io", "v1", "leases");
        let (namespace, label, value) = LEASES;
        for lease in self.creator.list(&gvr, namespace).await? {
            let of_a_server =
                lease.labels().and_then(|all| all.get(label)?.as_str()) == Some(value);
            if of_a_server && self.is_expired(&lease) {
                match self.creator.remove(&gvr, &lease).await {
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
