//! Gives services their cluster IPs (IPAddress objects) and node ports, as kube-apiserver does
//! (`pkg/registry/core/service/{storage,ipallocator,portallocator}`).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;

use super::ip_addresses::{Claim, IpAddresses};
use super::ip_family::family_of;
use super::metrics::scope;
use super::node_ports::NodePorts;
use super::ranges::Range;
use super::spec::{cluster_ips, headless, needs_cluster_ip, set_strings, strings};
use super::{families, metrics, ports, ranges};
use crate::auth::User;
use crate::meta::options::DeleteOptions;
use crate::meta::status::Result;
use crate::meta::{FieldError, Object, Path, Status, json, names};
use crate::registry::Store;
use crate::registry::resource::{Hooks, Reservation};
use crate::registry::store::{AdmitAll, Warnings, WriteContext};

/// Number of taken addresses that are passed over before the task yields.
const PROBES_PER_TURN: usize = 1 << 12;
/// Number of times another writer may take the chosen address before the range counts as full.
const MAX_COLLISIONS: usize = 1 << 10;

/// Gives services their addresses and ports, and takes them back.
pub struct ServiceAllocator {
    addresses: IpAddresses,
    /// `networking.k8s.io/v1` servicecidrs.
    cidrs: Arc<Store>,
    /// Core endpoints, which go with their service.
    endpoints: Arc<Store>,
    /// The families of the cluster, the primary one first.
    families: Vec<&'static str>,
    node_ports: Arc<NodePorts>,
    user: User,
    warnings: Warnings,
}

/// The reason there is no address. The text is the end of upstream's message.
enum Refusal {
    Full,
    Other(String),
}

/// The addresses and ports that a service owns.
struct Owned {
    ips: BTreeSet<IpAddr>,
    ports: BTreeSet<u16>,
}

impl Owned {
    fn of(service: &Object) -> Self {
        let ips = cluster_ips(service)
            .iter()
            .filter_map(|ip| names::parse_ip_sloppy(ip))
            .collect();
        Self {
            ips,
            ports: ports::owned(service),
        }
    }
}

/// Addresses and ports that one write took for a service, and those that the service had before.
struct Taken<'a> {
    allocator: &'a ServiceAllocator,
    namespace: String,
    name: String,
    claims: Vec<Claim>,
    ports: BTreeSet<u16>,
    had: Option<Owned>,
}

#[async_trait]
impl Reservation for Taken<'_> {
    async fn keep(self: Box<Self>, object: &Object) {
        let now = Owned::of(object);
        for claim in &self.claims {
            if now.ips.contains(&claim.ip) {
                let addresses = &self.allocator.addresses;
                addresses.confirm(claim, &self.namespace, &self.name).await;
            } else {
                self.allocator.unclaim(claim).await;
            }
        }
        let mut ports: BTreeSet<u16> = self.ports.difference(&now.ports).copied().collect();
        if let Some(had) = &self.had {
            for ip in had.ips.difference(&now.ips) {
                self.allocator
                    .give_back(*ip, &self.namespace, &self.name)
                    .await;
            }
            ports.extend(had.ports.difference(&now.ports));
        }
        self.allocator.node_ports.release(&ports).await;
    }

    async fn release(self: Box<Self>) {
        for claim in &self.claims {
            self.allocator.unclaim(claim).await;
        }
        self.allocator.node_ports.release(&self.ports).await;
    }
}

impl ServiceAllocator {
    /// `families` are those of `--service-cluster-ip-range`, in its order.
    pub fn new(
        addresses: Arc<Store>,
        cidrs: Arc<Store>,
        endpoints: Arc<Store>,
        families: Vec<&'static str>,
        node_ports: Arc<NodePorts>,
    ) -> Self {
        let user = User::apiserver();
        let addresses = IpAddresses::new(addresses);
        Self {
            addresses,
            cidrs,
            endpoints,
            families,
            node_ports,
            user,
            warnings: Warnings::default(),
        }
    }

    async fn ranges(&self) -> Result<Vec<Range>> {
        Ok(ranges::of_cidrs(&self.cidrs.cached_list("").await?))
    }

    async fn take(
        &self,
        ctx: &WriteContext<'_>,
        service: &mut Object,
        old: Option<&Object>,
        taken: &mut Taken<'_>,
    ) -> Result<()> {
        self.take_ips(ctx, service, old, &mut taken.claims).await?;
        let mut operation = self.node_ports.operation(ctx.dry_run);
        let result = ports::take(service, old, &mut operation).await;
        taken.ports = operation.taken;
        result
    }

    /// Fills in every cluster IP that the families call for and that is not there yet.
    async fn take_ips(
        &self,
        ctx: &WriteContext<'_>,
        service: &mut Object,
        old: Option<&Object>,
        claims: &mut Vec<Claim>,
    ) -> Result<()> {
        let families = strings(service, "ipFamilies");
        let wanted = match old {
            _ if !needs_cluster_ip(service) || headless(service) => return Ok(()),
            None => 0..families.len(),
            Some(old) if !needs_cluster_ip(old) => 0..families.len(),
            Some(old) if headless(old) => return Ok(()),
            // The second family came.
            Some(old) if strings(old, "ipFamilies").len() == 1 && families.len() == 2 => 1..2,
            Some(_) => return Ok(()),
        };
        let mut ips = strings(service, "clusterIPs");
        ips.resize(ips.len().max(wanted.end), String::new());
        let ranges = self.ranges().await?;
        for (index, family) in families
            .iter()
            .enumerate()
            .take(wanted.end)
            .skip(wanted.start)
        {
            let ranges: Vec<&Range> = ranges
                .iter()
                .filter(|range| range.family() == family.as_str())
                .collect();
            let text = ips[index].clone();
            let ip = match (names::parse_ip_sloppy(&text), ctx.dry_run) {
                (None, _) if !text.is_empty() => {
                    return Err(Status::internal(format!(
                        "failed to parse service IP {text:?}"
                    )));
                }
                (Some(ip), true) => check(&ranges, ip),
                (Some(ip), false) => self.take_ip(&ranges, service, ip, claims).await,
                (None, true) => ranges
                    .iter()
                    .find(|range| range.ready)
                    .map(|range| range.network())
                    .ok_or_else(not_ready),
                (None, false) => self.take_any_ip(&ranges, service, claims).await,
            };
            let ip = ip.map_err(|why| refused(service, &ips, &text, why))?;
            if text.is_empty() {
                ips[index] = ip.to_string();
            }
        }
        if let Some(first) = ips.first().cloned() {
            service
                .section_mut("spec")
                .insert("clusterIP", first.into());
        }
        set_strings(service, "clusterIPs", &ips);
        Ok(())
    }

    /// One address that the client chose.
    async fn take_ip(
        &self,
        ranges: &[&Range],
        service: &Object,
        ip: IpAddr,
        claims: &mut Vec<Claim>,
    ) -> std::result::Result<IpAddr, Refusal> {
        let range = ranges
            .iter()
            .find(|range| range.ready && range.contains(ip));
        let range = range.ok_or_else(|| {
            Refusal::Other("the provided network does not match the current range".to_owned())
        })?;
        match self.claim(range, service, ip, true).await {
            Ok(Some(claim)) => {
                claims.push(claim);
                Ok(ip)
            }
            Ok(None) => Err(Refusal::Other(
                "provided IP is already allocated".to_owned(),
            )),
            Err(status) => Err(Refusal::Other(status.message)),
        }
    }

    /// A free address of any of the ranges.
    async fn take_any_ip(
        &self,
        ranges: &[&Range],
        service: &Object,
        claims: &mut Vec<Claim>,
    ) -> std::result::Result<IpAddr, Refusal> {
        let failed = |status: Status| Refusal::Other(status.message);
        for range in ranges.iter().filter(|range| range.ready) {
            let (taken, mut collisions) = (self.addresses.taken().await.map_err(failed)?, 0);
            let candidates = range.candidates();
            for (probe, ip) in candidates.enumerate() {
                if probe % PROBES_PER_TURN == PROBES_PER_TURN - 1 {
                    tokio::task::yield_now().await;
                }
                if taken.has(ip) {
                    continue;
                }
                if let Some(claim) = self
                    .claim(range, service, ip, false)
                    .await
                    .map_err(failed)?
                {
                    claims.push(claim);
                    return Ok(ip);
                }
                collisions += 1;
                if collisions == MAX_COLLISIONS {
                    break;
                }
            }
            metrics::IP_ALLOCATION_ERRORS.inc(&[&range.net.to_string(), scope(false)]);
        }
        Err(Refusal::Full)
    }

    /// Makes the IPAddress object, which is what owns an address; `None` where it exists.
    async fn claim(
        &self,
        range: &Range,
        service: &Object,
        ip: IpAddr,
        chosen: bool,
    ) -> Result<Option<Claim>> {
        let (begun, cidr) = (Instant::now(), range.net.to_string());
        let claim = self
            .addresses
            .claim(ip, service.namespace(), service.name())
            .await;
        match &claim {
            Ok(Some(_)) => {
                metrics::IP_ALLOCATIONS.inc(&[&cidr, scope(chosen)]);
                metrics::IP_ALLOCATION_SECONDS.observe(&[&cidr], begun.elapsed().as_secs_f64());
                metrics::ips_changed(&cidr, range.size(), 1);
            }
            Ok(None) | Err(_) => metrics::IP_ALLOCATION_ERRORS.inc(&[&cidr, scope(chosen)]),
        }
        claim
    }

    async fn unclaim(&self, claim: &Claim) {
        self.addresses.unclaim(claim).await;
        self.count_free(claim.ip).await;
    }

    async fn give_back(&self, ip: IpAddr, namespace: &str, name: &str) {
        self.addresses.give_back(ip, namespace, name).await;
        self.count_free(ip).await;
    }

    async fn count_free(&self, ip: IpAddr) {
        let ranges = self.ranges().await.unwrap_or_default();
        if let Some(range) = ranges.iter().find(|range| range.contains(ip)) {
            metrics::ips_changed(&range.net.to_string(), range.size(), -1);
        }
    }

    fn context<'a>(&'a self, namespace: &'a str) -> WriteContext<'a> {
        WriteContext {
            user: &self.user,
            namespace,
            dry_run: false,
            warnings: &self.warnings,
        }
    }
}

#[async_trait]
impl Hooks for ServiceAllocator {
    async fn reserve<'a>(
        &'a self,
        ctx: &WriteContext<'_>,
        object: &mut Object,
        old: Option<&Object>,
    ) -> Result<Option<Box<dyn Reservation + 'a>>> {
        if let Some(old) = old {
            families::keep_allocated(object, old);
        }
        families::normalise(object, old);
        families::settle(object, old, &self.families)?;
        let (namespace, name) = (object.namespace().to_owned(), object.name().to_owned());
        let mut taken = Box::new(Taken {
            allocator: self,
            namespace,
            name,
            claims: Vec::new(),
            ports: BTreeSet::new(),
            had: old.map(Owned::of),
        });
        match (self.take(ctx, object, old, &mut taken).await, ctx.dry_run) {
            (Ok(()), true) => Ok(None),
            (Ok(()), false) => Ok(Some(taken)),
            (Err(status), true) => Err(status),
            (Err(status), false) => {
                taken.release().await;
                Err(status)
            }
        }
    }

    async fn deleted(&self, object: &Object) {
        let context = self.context(object.namespace());
        if let Err(status) = self
            .endpoints
            .delete(
                &context,
                object.name(),
                &DeleteOptions::default(),
                &AdmitAll,
            )
            .await
            && status.code != 404
        {
            tracing::warn!(
                reason = status.message,
                "cannot delete the endpoints of a service"
            );
        }
        let had = Owned::of(object);
        for ip in had.ips {
            self.give_back(ip, object.namespace(), object.name()).await;
        }
        self.node_ports.release(&had.ports).await;
    }
}

/// Checks for a dry run an address that the client chose: whether it is in the range, not whether
/// it is free.
fn check(ranges: &[&Range], ip: IpAddr) -> std::result::Result<IpAddr, Refusal> {
    let range = ranges
        .iter()
        .find(|range| range.ready && range.contains(ip))
        .or_else(|| ranges.iter().find(|range| range.ready));
    let range = range.ok_or_else(not_ready)?;
    if range.contains(ip) {
        return Ok(ip);
    }
    let why = format!(
        "the provided IP ({ip}) is not in the valid range. The range of valid IPs is {}",
        range.net
    );
    Err(Refusal::Other(why))
}

fn not_ready() -> Refusal {
    Refusal::Other("allocator not ready".to_owned())
}

/// The Status for a service without an address. `asked` is the one that the client chose, empty for
/// any.
fn refused(service: &Object, ips: &[String], asked: &str, why: Refusal) -> Status {
    let space = if asked.is_empty() { "" } else { " " };
    match why {
        Refusal::Full => Status::internal(format!(
            "failed to allocate a serviceIP for Service {:?}: range is full",
            service.name()
        )),
        Refusal::Other(why) => {
            let why = format!("failed to allocate IP{space}{asked}: {why}");
            families::invalid(
                service,
                [FieldError::invalid(
                    &Path::new("spec.clusterIPs"),
                    json!(ips),
                    why,
                )]
                .into(),
            )
        }
    }
}

/// The families of ranges, each once, in their order.
pub fn families_of(ranges: &[ipnet::IpNet]) -> Vec<&'static str> {
    ranges.iter().map(|range| family_of(range.addr())).collect()
}
