//! discovery.k8s.io.

pub mod endpoint_slice;

use crate::builtin::resource_traits::ResourceEntry;

/// The resources of the group.
pub static ENTRIES: &[&ResourceEntry] = &[&endpoint_slice::ENTRY];
