//! certificates.k8s.io.

pub mod certificate_signing_request;

use crate::builtin::resource_traits::ResourceEntry;

/// The resources of the group.
pub static ENTRIES: &[&ResourceEntry] = &[&certificate_signing_request::ENTRY];
