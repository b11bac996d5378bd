//! batch.

pub mod cron_job;
pub mod job;

use crate::builtin::resource_traits::ResourceEntry;

/// The resources of the group.
pub static ENTRIES: &[&ResourceEntry] = &[&cron_job::ENTRY, &job::ENTRY];
