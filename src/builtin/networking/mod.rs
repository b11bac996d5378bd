//! networking.k8s.io.

pub mod ingress;
pub mod ingress_class;
pub mod ip_address;
pub mod network_policy;
pub mod service_cidr;

use crate::builtin::resource_traits::ResourceEntry;

/// The resources of the group.
pub static ENTRIES: &[&ResourceEntry] = &[
    &ingress_class::ENTRY,
    &ingress::ENTRY,
    &ip_address::ENTRY,
    &network_policy::ENTRY,
    &service_cidr::ENTRY,
];
