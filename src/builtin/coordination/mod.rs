//! coordination.k8s.io.

pub mod lease;

use crate::builtin::resource_traits::ResourceEntry;

/// The resources of the group.
pub static ENTRIES: &[&ResourceEntry] = &[&lease::ENTRY];
