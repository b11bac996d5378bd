//! resource.k8s.io: dynamic resource allocation.

pub mod cel_selector;
pub mod device_class;
pub mod device_rules;
pub mod internal_claim;
pub mod resource_claim;
pub mod resource_slice;

use crate::builtin::resource_traits::ResourceEntry;

/// The resources of the group.
pub static ENTRIES: &[&ResourceEntry] = &[
    &device_class::ENTRY,
    &resource_claim::RESOURCE_CLAIMS,
    &resource_claim::RESOURCE_CLAIM_TEMPLATES,
    &resource_slice::ENTRY,
];
