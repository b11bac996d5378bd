//! node.k8s.io.

pub mod runtime_class;

use crate::builtin::resource_traits::ResourceEntry;

/// The resources of the group.
pub static ENTRIES: &[&ResourceEntry] = &[&runtime_class::ENTRY];
