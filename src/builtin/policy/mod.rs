//! policy.

pub mod pod_disruption_budget;

use crate::builtin::resource_traits::ResourceEntry;

/// The resources of the group.
pub static ENTRIES: &[&ResourceEntry] = &[&pod_disruption_budget::ENTRY];
