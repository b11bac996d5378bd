//! apiregistration.k8s.io.

pub mod api_service;

use crate::builtin::resource_traits::ResourceEntry;

/// The resources of the group.
pub static ENTRIES: &[&ResourceEntry] = &[&api_service::ENTRY];
