//! autoscaling.

pub mod horizontal_pod_autoscaler;
pub mod scale;

use crate::builtin::resource_traits::ResourceEntry;

pub use horizontal_pod_autoscaler::conversion::{AutoscalerConversion, versions};

/// The resources of the group.
pub static ENTRIES: &[&ResourceEntry] = &[&horizontal_pod_autoscaler::ENTRY];
