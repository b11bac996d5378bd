//! Metrics of the allocators of cluster IPs and node ports, under upstream's names
//! (`pkg/registry/core/service/{ipallocator,portallocator}/metrics.go`).

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::telemetry::metrics::{Counter, Declared, Gauge, Histogram};

pub static ALLOCATED_IPS: Gauge = Gauge::new(
    "kube_apiserver_clusterip_allocator_allocated_ips",
    "[ALPHA] Gauge measuring the number of allocated IPs for Services",
    &["cidr"],
);
pub static AVAILABLE_IPS: Gauge = Gauge::new(
    "kube_apiserver_clusterip_allocator_available_ips",
    "[ALPHA] Gauge measuring the number of available IPs for Services",
    &["cidr"],
);
pub static IP_ALLOCATIONS: Counter = Counter::new(
    "kube_apiserver_clusterip_allocator_allocation_total",
    "[ALPHA] Number of Cluster IPs allocations",
    &["cidr", "scope"],
);
pub static IP_ALLOCATION_ERRORS: Counter = Counter::new(
    "kube_apiserver_clusterip_allocator_allocation_errors_total",
    "[ALPHA] Number of errors trying to allocate Cluster IPs",
    &["cidr", "scope"],
);
pub static IP_ALLOCATION_SECONDS: Histogram = Histogram::new(
    "kube_apiserver_clusterip_allocator_allocation_duration_seconds",
    "[ALPHA] Duration in seconds to allocate a Cluster IP by ServiceCIDR",
    &["cidr"],
    &[
        0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    ],
);
pub static ALLOCATED_PORTS: Gauge = Gauge::new(
    "kube_apiserver_nodeport_allocator_allocated_ports",
    "[ALPHA] Gauge measuring the number of allocated NodePorts for Services",
    &[],
);
pub static AVAILABLE_PORTS: Gauge = Gauge::new(
    "kube_apiserver_nodeport_allocator_available_ports",
    "[ALPHA] Gauge measuring the number of available NodePorts for Services",
    &[],
);
pub static PORT_ALLOCATIONS: Counter = Counter::new(
    "kube_apiserver_nodeport_allocator_allocation_total",
    "[ALPHA] Number of NodePort allocations",
    &["scope"],
);
pub static PORT_ALLOCATION_ERRORS: Counter = Counter::new(
    "kube_apiserver_nodeport_allocator_allocation_errors_total",
    "[ALPHA] Number of errors trying to allocate NodePort",
    &["scope"],
);

pub static METRICS: &[&dyn Declared] = &[
    &ALLOCATED_IPS,
    &AVAILABLE_IPS,
    &IP_ALLOCATIONS,
    &IP_ALLOCATION_ERRORS,
    &IP_ALLOCATION_SECONDS,
    &ALLOCATED_PORTS,
    &AVAILABLE_PORTS,
    &PORT_ALLOCATIONS,
    &PORT_ALLOCATION_ERRORS,
];

/// Returns the label that tells addresses chosen by the client from others.
pub fn scope(chosen: bool) -> &'static str {
    if chosen { "static" } else { "dynamic" }
}

/// The number of allocated addresses, by range. The repair counts them, and allocations count on.
static TAKEN: Mutex<BTreeMap<String, i64>> = Mutex::new(BTreeMap::new());

/// So many addresses were taken (or, where negative, given back) of a range that has `size` of
/// them.
pub fn ips_changed(cidr: &str, size: u128, by: i64) {
    let mut taken = TAKEN.lock();
    let now = taken
        .get(cidr)
        .copied()
        .unwrap_or(0)
        .saturating_add(by)
        .max(0);
    taken.insert(cidr.to_owned(), now);
    show(cidr, size, now);
}

/// So many addresses are taken of each range: its CIDR, its size and the number.
pub fn ips_counted(counts: &[(String, u128, i64)]) {
    let mut taken = TAKEN.lock();
    *taken = counts
        .iter()
        .map(|(cidr, _, count)| (cidr.clone(), *count))
        .collect();
    counts
        .iter()
        .for_each(|(cidr, size, count)| show(cidr, *size, *count));
}

fn show(cidr: &str, size: u128, taken: i64) {
    ALLOCATED_IPS.set(&[cidr], taken);
    AVAILABLE_IPS.set(
        &[cidr],
        i64::try_from(size)
            .unwrap_or(i64::MAX)
            .saturating_sub(taken)
            .max(0),
    );
}
