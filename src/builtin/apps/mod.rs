//! apps.

pub mod controller_revision;
pub mod daemon_set;
pub mod deployment;
pub mod replica_set;
pub mod stateful_set;

use crate::builtin::resource_traits::ResourceEntry;

/// The resources of the group.
pub static ENTRIES: &[&ResourceEntry] = &[
    &controller_revision::ENTRY,
    &daemon_set::ENTRY,
    &deployment::ENTRY,
    &replica_set::ENTRY,
    &stateful_set::ENTRY,
];
