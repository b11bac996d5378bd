//! The repair of cluster IPs: each has one IPAddress object that names its service, and each such
//! object a service that has the address
//! (`pkg/registry/core/service/ipallocator/controller/repairip.go`).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::PASSES_BEFORE_RELEASE;
use super::events::EventRecorder;
use crate::base::clock::Clock;
use crate::builtin::core::service::ip_addresses::{self, IpAddresses};
use crate::builtin::core::service::ip_family::family_of;
use crate::builtin::core::service::metrics;
use crate::builtin::core::service::ranges::{self, Range};
use crate::builtin::core::service::spec::cluster_ips;
use crate::meta::status::Result;
use crate::meta::{Object, names, time};
use crate::registry::Store;
use crate::telemetry::metrics::{Counter, Declared};

/// The age up to which an address may be without its service, which is written after it.
const SERVICE_GRACE: Duration = Duration::from_secs(60);
/// The age up to which an address may be one that its service does not name yet.
const CHANGE_GRACE: Duration = Duration::from_secs(5);
/// The time until a leaked address is looked at again.
const LEAK_INTERVAL: Duration = Duration::from_secs(60);
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

pub static METRICS: &[&dyn Declared] = &[&IP_ERRORS, &RECONCILE_ERRORS];

/// The repair of cluster IPs, pass by pass.
pub struct ClusterIpRepair {
    services: Arc<Store>,
    addresses: IpAddresses,
    cidrs: Arc<Store>,
    events: EventRecorder,
    clock: Clock,
    /// The UIDs of leaked addresses, with the number of passes that they are still kept.
    leaks: HashMap<String, u32>,
}

/// The services of one pass, by namespace and name, with their addresses.
type Services<'a> = HashMap<(&'a str, &'a str), (&'a Object, Vec<IpAddr>)>;

/// The verdict on an IPAddress object.
enum AddressState {
    Valid,
    /// It cannot be told before this time has passed.
    TooYoung(Duration),
    /// It refers to no service.
    Invalid(String),
    /// No service has it: the reason and the note of the event.
    Leaked(&'static str, String),
}

impl ClusterIpRepair {
    /// Returns a repair of the addresses of `services`.
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
            leaks: HashMap::new(),
        }
    }

    /// Passes over all services and addresses once. Returns the time after which another pass sees
    /// more, where something was too young.
    ///
    /// # Errors
    /// The store's; what was repaired before it stays repaired.
    pub async fn run_once(&mut self) -> Result<Option<Duration>> {
        let outcome = self.pass().await;
        if outcome.is_err() {
            RECONCILE_ERRORS.inc(&[]);
        }
        outcome
    }

    async fn pass(&mut self) -> Result<Option<Duration>> {
        let all = super::services(&self.services).await?;
        let services: Services<'_> = all
            .iter()
            .map(|one| ((one.namespace(), one.name()), (one, ips_of(one))))
            .collect();
        let ranges = ranges::of_cidrs(&self.cidrs.cached_list("").await?);
        // Every service of the list claimed its addresses before it was written.
        let mut addresses: HashMap<IpAddr, Object> = self
            .addresses
            .all()
            .await?
            .into_iter()
            .filter_map(|one| Some((ip_of(&one)?, one)))
            .collect();
        for service in &all {
            for text in cluster_ips(service) {
                match names::parse_ip_sloppy(&text) {
                    Some(ip) => {
                        self.check_service(service, ip, &services, &mut addresses, &ranges)
                            .await?;
                    }
                    None => self.report_unparsable(service, &text).await,
                }
            }
        }
        let managed: Vec<&Object> = addresses
            .values()
            .filter(|one| ip_addresses::is_managed(one))
            .collect();
        let known_leaks = std::mem::take(&mut self.leaks);
        let mut next: Option<Duration> = None;
        for address in &managed {
            if let Some(wait) = self.check_address(address, &services, &known_leaks).await? {
                next = Some(next.map_or(wait, |next| next.min(wait)));
            }
        }
        count(&ranges, managed.iter().filter_map(|one| ip_of(one)));
        Ok(next)
    }

    async fn report_unparsable(&self, service: &Object, text: &str) {
        let note = format!("Cluster IP {text} is not a valid IP; please recreate Service");
        let action = "ClusterIPValidation";
        self.report(service, "invalid", ["ClusterIPNotValid", action], note)
            .await;
    }

    /// Makes an address of the service the service's. Objects that are recreated are no longer
    /// among `addresses`.
    async fn check_service(
        &self,
        service: &Object,
        ip: IpAddr,
        services: &Services<'_>,
        addresses: &mut HashMap<IpAddr, Object>,
        ranges: &[Range],
    ) -> Result<()> {
        let family = family_of(ip);
        if !ranges.iter().any(|range| range.contains(ip)) {
            let note = format!(
                "Cluster IP [{family}]: {ip} is not within any configured Service CIDR; please recreate service"
            );
            let reason = ["ClusterIPOutOfRange", OF_SERVICE];
            self.report(service, "outOfRange", reason, note).await;
            return Ok(());
        }
        let Some(address) = addresses.get(&ip) else {
            return self.allocate_missing(service, ip).await;
        };
        let (namespace, name) = (service.namespace(), service.name());
        if ip_addresses::is_of(address, namespace, name) {
            if !ip_addresses::is_labelled(address) {
                self.recreate(address, ip, service).await?;
                addresses.remove(&ip);
            }
            return Ok(());
        }
        if ip_addresses::refers_to_service(address) {
            let other = services.get(&ip_addresses::parent(address));
            if other.is_some_and(|(_, ips)| ips.contains(&ip)) {
                let note = format!(
                    "Cluster IP [{family}]:{ip} was assigned to multiple services; please recreate service"
                );
                let reason = ["ClusterIPAlreadyAllocated", OF_SERVICE];
                self.report(service, "duplicate", reason, note).await;
                return Ok(());
            }
            // The service that it names may be about to be written, or have been since the list.
            if self.age(address) < SERVICE_GRACE || self.parent_has(address).await? {
                return Ok(());
            }
        }
        let note = format!(
            "the ClusterIP [{family}]: {ip} for Service {namespace}/{name} has a wrong reference; repairing"
        );
        let reason = ["ClusterIPNotAllocated", OF_SERVICE];
        self.report(service, "repair", reason, note).await;
        self.recreate(address, ip, service).await?;
        addresses.remove(&ip);
        Ok(())
    }

    /// Creates the IPAddress of a service that has none.
    async fn allocate_missing(&self, service: &Object, ip: IpAddr) -> Result<()> {
        let (namespace, name) = (service.namespace(), service.name());
        if !self.service_has(namespace, name, ip).await? || self.addresses.find(ip).await?.is_some()
        {
            return Ok(());
        }
        let family = family_of(ip);
        let note = format!("Cluster IP [{family}]: {ip} is not allocated; repairing");
        let reason = ["ClusterIPNotAllocated", OF_SERVICE];
        self.report(service, "repair", reason, note).await;
        self.addresses.claim(ip, namespace, name).await.map(drop)
    }

    async fn recreate(&self, address: &Object, ip: IpAddr, service: &Object) -> Result<()> {
        self.addresses.delete(address).await?;
        self.addresses
            .claim(ip, service.namespace(), service.name())
            .await
            .map(drop)
    }

    /// Deletes an address that belongs to no service. Returns the time after which it can be told,
    /// where it cannot yet.
    ///
    /// A write that claimed the address may take longer than any grace where the store is slow, so
    /// a leak is kept for some passes, and looked at once more before it goes.
    async fn check_address(
        &mut self,
        address: &Object,
        services: &Services<'_>,
        known_leaks: &HashMap<String, u32>,
    ) -> Result<Option<Duration>> {
        let (kind, reason, note) = match self.classify(address, services) {
            AddressState::Valid => return Ok(None),
            AddressState::TooYoung(wait) => return Ok(Some(wait)),
            AddressState::Invalid(note) => ("invalid", "IPAddressNotAllocated", note),
            AddressState::Leaked(reason, note) => {
                let left = known_leaks
                    .get(address.uid())
                    .map_or(PASSES_BEFORE_RELEASE, |left| left.saturating_sub(1));
                if left > 0 {
                    self.leaks.insert(address.uid().to_owned(), left);
                    return Ok(Some(LEAK_INTERVAL));
                }
                if self.parent_has(address).await? {
                    return Ok(None);
                }
                ("leak", reason, note)
            }
        };
        self.report(address, kind, [reason, OF_ADDRESS], note).await;
        match self.addresses.delete(address).await {
            Err(status) if status.code == 409 => Ok(None),
            outcome => outcome.map(|()| None),
        }
    }

    fn classify(&self, address: &Object, services: &Services<'_>) -> AddressState {
        let (name, (parent_namespace, parent_name)) =
            (address.name(), ip_addresses::parent(address));
        if !ip_addresses::refers_to_service(address) {
            let (group, resource) = (
                address.str_at("/spec/parentRef/group"),
                address.str_at("/spec/parentRef/resource"),
            );
            let parent = format!(
                "&ParentReference{{Group:{group},Resource:{resource},Namespace:{parent_namespace},Name:{parent_name},}}"
            );
            return AddressState::Invalid(format!(
                "IPAddress {name} appears to have been modified, not referencing a Service {parent}: cleaning up"
            ));
        }
        let age = self.age(address);
        let too_young = |grace: Duration| {
            AddressState::TooYoung(grace.saturating_sub(age) + Duration::from_secs(1))
        };
        let Some((service, ips)) = services.get(&(parent_namespace, parent_name)) else {
            if age <= SERVICE_GRACE {
                return too_young(SERVICE_GRACE);
            }
            let note = format!(
                "IPAddress: {name} for Service {parent_namespace}/{parent_name} appears to have leaked: cleaning up"
            );
            return AddressState::Leaked("IPAddressNotAllocated", note);
        };
        if ip_of(address).is_some_and(|ip| ips.contains(&ip)) {
            return AddressState::Valid;
        }
        let external = service.str_at("/spec/type") == "ExternalName";
        let grace = if external {
            SERVICE_GRACE
        } else {
            CHANGE_GRACE
        };
        if age < grace && (external || created(address) > created(service)) {
            return too_young(grace);
        }
        let note = format!(
            "IPAddress: {name} for Service {parent_namespace}/{parent_name} has a wrong reference; cleaning up"
        );
        AddressState::Leaked("IPAddressWrongReference", note)
    }

    /// Reports whether the service that the address names has it, as of now.
    async fn parent_has(&self, address: &Object) -> Result<bool> {
        let (namespace, name) = ip_addresses::parent(address);
        match ip_of(address) {
            Some(ip) if !namespace.is_empty() && !name.is_empty() => {
                self.service_has(namespace, name, ip).await
            }
            _ => Ok(false),
        }
    }

    /// Reports whether a service has an address, as of now. One that cannot be read may have any.
    async fn service_has(&self, namespace: &str, name: &str, ip: IpAddr) -> Result<bool> {
        match self.services.get(namespace, name, "").await {
            Ok(stored) => Ok(self
                .services
                .codec
                .decode(&stored)
                .map_or(true, |service| ips_of(&service).contains(&ip))),
            Err(status) if status.code == 404 => Ok(false),
            Err(status) => Err(status),
        }
    }

    fn age(&self, object: &Object) -> Duration {
        let seconds = self.clock.now().as_second().saturating_sub(created(object));
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }

    /// Counts an error of this kind and writes an event with its reason and action.
    async fn report(
        &self,
        about: &Object,
        kind: &'static str,
        [reason, action]: [&'static str; 2],
        note: String,
    ) {
        IP_ERRORS.inc(&[kind]);
        self.events.warn(about, reason, action, note).await;
    }
}

/// Returns the addresses that a service has.
fn ips_of(service: &Object) -> Vec<IpAddr> {
    cluster_ips(service)
        .iter()
        .filter_map(|ip| names::parse_ip_sloppy(ip))
        .collect()
}

fn ip_of(address: &Object) -> Option<IpAddr> {
    names::parse_ip_sloppy(address.name())
}

/// Returns the creation time of an object in seconds since 1970; 0 if it has none.
fn created(object: &Object) -> i64 {
    time::parse(object.creation_timestamp()).map_or(0, |at| at.seconds)
}

/// Sets the metrics of how many addresses of each range are taken.
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
