//! storage.k8s.io.

pub mod csi_driver;
pub mod csi_node;
pub mod csi_storage_capacity;
pub mod storage_class;
pub mod volume_attachment;
pub mod volume_attributes_class;

use crate::builtin::resource_traits::ResourceEntry;

/// The resources of the group.
pub static ENTRIES: &[&ResourceEntry] = &[
    &csi_driver::ENTRY,
    &csi_node::ENTRY,
    &csi_storage_capacity::ENTRY,
    &storage_class::ENTRY,
    &volume_attachment::ENTRY,
    &volume_attributes_class::ENTRY,
];
