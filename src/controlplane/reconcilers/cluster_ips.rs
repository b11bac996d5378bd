//! The repair of cluster IPs: each has one IPAddress object that names its service, and each such
//! object a service that has the address
//! (`pkg/registry/core/service/ipallocator/controller/repairip.go`).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::events::{Because, EventRecorder};
use crate::base::clock::Clock;
use crate::builtin::core::service::ip_addresses::{self, IpAddresses};
use crate::builtin::core::service::ip_family::family_of;
use crate::builtin::core::service::metrics;
use crate::builtin::core::service::ranges::{self, Range};
use crate::builtin::core::service::spec::cluster_ips;
use crate::meta::status::Result;
use crate::meta::{Object, names, time};
use crate::registry::Store;
use crate::telemetry::metrics::Counter;

/// How long an address may be without its service: that is written later, and requests take so long
/// at most.
const SERVICE_GRACE: Duration = Duration::from_secs(60);
/// How long an address may be more than its service names: the service is changed later.
const CHANGE_GRACE: Duration = Duration::from_secs(5);
const OF_SERVICE: &str = "ClusterIPAllocation";
const OF_ADDRESS: &str = "IPAddressAllocation";

static IP_ERRORS: Counter = Counter::new(
    "apiserver_clusterip_repair_ip_errors_total",
    "[ALPHA] Number of errors detected on clusterips by the repair loop broken down by type of error: leak, repair, full, outOfRange, duplicate, unknown, invalid",
    &["type"],
);
static RECONCILE_ERRORS: Counter = Counter::new(
    "apiserver_clusterip_repair_reconcile_errors_total",
    "[ALPHA] Number of reconciliation failures on the clusterip repair reconcile loop",
    &[],
);

/// Repairs the cluster IPs, pass by pass.
pub struct ClusterIpRepair {
    services: Arc<Store>,
    addresses: IpAddresses,
    cidrs: Arc<Store>,
    events: EventRecorder,
    clock: Clock,
}

/// The services of one pass, by namespace and name, with their addresses.
type Services<'a> = HashMap<(&'a str, &'a str), (&'a Object, Vec<IpAddr>)>;

/// What becomes of an IPAddress object.
enum Verdict {
    Right,
    /// It cannot be told before so much time has passed.
    Young(Duration),
    Wrong {
        kind: &'static str,
        reason: &'static str,
        note: String,
    },
}

impl ClusterIpRepair {
    pub fn new(
        services: Arc<Store>,
        addresses: Arc<Store>,
        cidrs: Arc<Store>,
        events: EventRecorder,
        clock: Clock,
    ) -> Self {
        RECONCILE_ERRORS.add(&[], 0);
        Self {
            services,
            addresses: IpAddresses::new(addresses),
            cidrs,
            events,
            clock,
        }
    }

    /// One pass over all services and addresses. Gives the time after which there is more to see,
    /// where something was too young.
    ///
    /// # Errors
    /// The store's; what could be put right before was.
    pub async fn run_once(&self) -> Result<Option<Duration>> {
        let done = self.pass().await;
        if done.is_err() {
            RECONCILE_ERRORS.inc(&[]);
        }
        done
    }

    async fn pass(&self) -> Result<Option<Duration>> {
        let all = super::services(&self.services).await?;
        let services: Services<'_> = all
            .iter()
            .map(|one| ((one.namespace(), one.name()), (one, ips_of(one))))
            .collect();
        let ranges = ranges::of_cidrs(&self.cidrs.known("").await?);
        // Whoever is in the list of services had its address before.
        let mut addresses: HashMap<IpAddr, Object> = self
            .addresses
            .all()
            .await?
            .into_iter()
            .filter_map(|one| Some((ip_of(&one)?, one)))
            .collect();
        for service in &all {
            self.check_service(service, &services, &mut addresses, &ranges)
                .await?;
        }
        let mut next: Option<Duration> = None;
        for address in addresses
            .values()
            .filter(|one| ip_addresses::is_managed(one))
        {
            if let Some(wait) = self.check_address(address, &services).await? {
                next = Some(next.map_or(wait, |next| next.min(wait)));
            }
        }
        let taken = addresses
            .values()
            .filter(|one| ip_addresses::is_managed(one))
            .filter_map(ip_of);
        count(&ranges, taken);
        Ok(next)
    }

    /// Sees to it that every address of the service is the service's. Objects that are made anew
    /// are no longer among `addresses`.
    async fn check_service(
        &self,
        service: &Object,
        services: &Services<'_>,
        addresses: &mut HashMap<IpAddr, Object>,
        ranges: &[Range],
    ) -> Result<()> {
        for text in cluster_ips(service) {
            let Some(ip) = names::parse_ip_sloppy(&text) else {
                let note = format!("Cluster IP {text} is not a valid IP; please recreate Service");
                self.tell(
                    service,
                    "invalid",
                    Because {
                        reason: "ClusterIPNotValid",
                        action: "ClusterIPValidation",
                    },
                    note,
                )
                .await;
                continue;
            };
            let family = family_of(ip);
            if !ranges.iter().any(|range| range.contains(ip)) {
                let note = format!(
                    "Cluster IP [{family}]: {ip} is not within any configured Service CIDR; please recreate service"
                );
                self.tell(
                    service,
                    "outOfRange",
                    Because {
                        reason: "ClusterIPOutOfRange",
                        action: OF_SERVICE,
                    },
                    note,
                )
                .await;
                continue;
            }
            let because = Because {
                reason: "ClusterIPNotAllocated",
                action: OF_SERVICE,
            };
            let Some(address) = addresses.get(&ip) else {
                if self.still_has(service, ip).await? && self.addresses.find(ip).await?.is_none() {
                    self.tell(
                        service,
                        "repair",
                        because,
                        format!("Cluster IP [{family}]: {ip} is not allocated; repairing"),
                    )
                    .await;
                    self.addresses
                        .claim(ip, service.namespace(), service.name())
                        .await?;
                }
                continue;
            };
            let other = services
                .get(&ip_addresses::parent(address))
                .filter(|_| ip_addresses::refers_to_service(address));
            if !ip_addresses::is_of(address, service.namespace(), service.name()) {
                if other.is_some_and(|(_, ips)| ips.contains(&ip)) {
                    let note = format!(
                        "Cluster IP [{family}]:{ip} was assigned to multiple services; please recreate service"
                    );
                    self.tell(
                        service,
                        "duplicate",
                        Because {
                            reason: "ClusterIPAlreadyAllocated",
                            action: OF_SERVICE,
                        },
                        note,
                    )
                    .await;
                    continue;
                }
                // Whoever it names may be about to be written.
                if ip_addresses::refers_to_service(address) && self.age(address) < SERVICE_GRACE {
                    continue;
                }
                let (namespace, name) = (service.namespace(), service.name());
                let note = format!(
                    "the ClusterIP [{family}]: {ip} for Service {namespace}/{name} has a wrong reference; repairing"
                );
                self.tell(service, "repair", because, note).await;
                self.make_anew(address, ip, service).await?;
                addresses.remove(&ip);
            } else if !ip_addresses::is_labelled(address) {
                self.make_anew(address, ip, service).await?;
                addresses.remove(&ip);
            }
        }
        Ok(())
    }

    async fn make_anew(&self, address: &Object, ip: IpAddr, service: &Object) -> Result<()> {
        self.addresses.delete(address).await?;
        self.addresses
            .claim(ip, service.namespace(), service.name())
            .await
            .map(drop)
    }

    /// Deletes an address that belongs to no service. Gives the time after which it can be told,
    /// where it cannot yet.
    async fn check_address(
        &self,
        address: &Object,
        services: &Services<'_>,
    ) -> Result<Option<Duration>> {
        let verdict = match self.judge(address, services) {
            // What was read may be old by now: an address is never taken from a service that has
            // it.
            Verdict::Wrong { .. } if self.parent_has(address).await? => Verdict::Right,
            verdict => verdict,
        };
        match verdict {
            Verdict::Right => Ok(None),
            Verdict::Young(wait) => Ok(Some(wait)),
            Verdict::Wrong { kind, reason, note } => {
                self.tell(
                    address,
                    kind,
                    Because {
                        reason,
                        action: OF_ADDRESS,
                    },
                    note,
                )
                .await;
                match self.addresses.delete(address).await {
                    Err(status) if status.code == 409 => Ok(None),
                    done => done.map(|()| None),
                }
            }
        }
    }

    fn judge(&self, address: &Object, services: &Services<'_>) -> Verdict {
        let (name, (parent_namespace, parent_name)) =
            (address.name(), ip_addresses::parent(address));
        let wrong = |kind, reason, note| Verdict::Wrong { kind, reason, note };
        if !ip_addresses::refers_to_service(address) {
            let (group, resource) = (
                address.str_at("/spec/parentRef/group"),
                address.str_at("/spec/parentRef/resource"),
            );
            let parent = format!(
                "&ParentReference{{Group:{group},Resource:{resource},Namespace:{parent_namespace},Name:{parent_name},}}"
            );
            let note = format!(
                "IPAddress {name} appears to have been modified, not referencing a Service {parent}: cleaning up"
            );
            return wrong("invalid", "IPAddressNotAllocated", note);
        }
        let age = self.age(address);
        let Some((service, ips)) = services.get(&(parent_namespace, parent_name)) else {
            if age <= SERVICE_GRACE {
                return Verdict::Young(SERVICE_GRACE.saturating_sub(age) + Duration::from_secs(1));
            }
            let note = format!(
                "IPAddress: {name} for Service {parent_namespace}/{parent_name} appears to have leaked: cleaning up"
            );
            return wrong("leak", "IPAddressNotAllocated", note);
        };
        if ip_of(address).is_some_and(|ip| ips.contains(&ip)) {
            return Verdict::Right;
        }
        let external = service.str_at("/spec/type") == "ExternalName";
        let grace = if external {
            SERVICE_GRACE
        } else {
            CHANGE_GRACE
        };
        let later = created(address) > created(service);
        if age < grace && (external || later) {
            return Verdict::Young(grace.saturating_sub(age) + Duration::from_secs(1));
        }
        let note = format!(
            "IPAddress: {name} for Service {parent_namespace}/{parent_name} has a wrong reference; cleaning up"
        );
        wrong("leak", "IPAddressWrongReference", note)
    }

    /// Whether the service that the address names has it, as of now.
    async fn parent_has(&self, address: &Object) -> Result<bool> {
        let (namespace, name) = ip_addresses::parent(address);
        if !ip_addresses::refers_to_service(address) || namespace.is_empty() || name.is_empty() {
            return Ok(false);
        }
        match self.services.get(namespace, name, "").await {
            Ok(stored) => Ok(ip_of(address).is_some_and(|ip| {
                self.services
                    .decode(&stored)
                    .is_ok_and(|one| ips_of(&one).contains(&ip))
            })),
            Err(status) if status.code == 404 => Ok(false),
            Err(status) => Err(status),
        }
    }

    /// Whether the service has the address, as of now.
    async fn still_has(&self, service: &Object, ip: IpAddr) -> Result<bool> {
        match self
            .services
            .get(service.namespace(), service.name(), "")
            .await
        {
            Ok(stored) => Ok(ips_of(&self.services.decode(&stored)?).contains(&ip)),
            Err(status) if status.code == 404 => Ok(false),
            Err(status) => Err(status),
        }
    }

    fn age(&self, object: &Object) -> Duration {
        let seconds = self.clock.now().as_second().saturating_sub(created(object));
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }

    async fn tell(&self, about: &Object, kind: &'static str, because: Because, note: String) {
        IP_ERRORS.inc(&[kind]);
        self.events.warn(about, because, note).await;
    }
}

/// The addresses that a service has.
fn ips_of(service: &Object) -> Vec<IpAddr> {
    cluster_ips(service)
        .iter()
        .filter_map(|ip| names::parse_ip_sloppy(ip))
        .collect()
}

fn ip_of(address: &Object) -> Option<IpAddr> {
    names::parse_ip_sloppy(address.name())
}

/// When an object was made, in seconds; in the distant past where it does not say.
fn created(object: &Object) -> i64 {
    time::parse(object.creation_timestamp()).map_or(0, |at| at.seconds)
}

/// Tells how many addresses of each range are taken.
fn count(ranges: &[Range], taken: impl Iterator<Item = IpAddr>) {
    let mut counts: Vec<(String, u128, i64)> = ranges
        .iter()
        .map(|range| (range.net.to_string(), range.size(), 0))
        .collect();
    for ip in taken {
        for (range, (_, _, count)) in ranges.iter().zip(&mut counts) {
            *count += i64::from(range.contains(ip));
        }
    }
    metrics::ips_counted(&counts);
}
