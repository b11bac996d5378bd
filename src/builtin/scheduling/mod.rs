//! scheduling.k8s.io.

pub mod priority_class;

use crate::builtin::resource_traits::ResourceEntry;

/// The resources of the group.
pub static ENTRIES: &[&ResourceEntry] = &[&priority_class::ENTRY];
