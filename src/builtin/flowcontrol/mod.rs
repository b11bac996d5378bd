//! flowcontrol.apiserver.k8s.io.

pub mod flow_schema;
pub mod priority_level_configuration;
pub mod status_conditions;

use crate::builtin::resource_traits::ResourceEntry;

/// The resources of the group.
pub static ENTRIES: &[&ResourceEntry] =
    &[&flow_schema::ENTRY, &priority_level_configuration::ENTRY];
