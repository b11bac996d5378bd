//! The core group.

pub mod component_status;
pub mod config_map;
pub mod endpoints;
pub mod event;
pub mod limit_range;
pub mod namespace;
pub mod node;
pub mod persistent_volume;
pub mod persistent_volume_claim;
pub mod pod;
pub mod pod_template;
pub mod replication_controller;
pub mod resource_quota;
pub mod secret;
pub mod service;
pub mod service_account;

use crate::builtin::resource_traits::ResourceEntry;

/// The resources of the group.
pub static ENTRIES: &[&ResourceEntry] = &[
    &component_status::ENTRY,
    &config_map::ENTRY,
    &endpoints::ENTRY,
    &event::ENTRY,
    &limit_range::ENTRY,
    &namespace::ENTRY,
    &node::ENTRY,
    &persistent_volume_claim::ENTRY,
    &persistent_volume::ENTRY,
    &pod::ENTRY,
    &pod_template::ENTRY,
    &replication_controller::ENTRY,
    &resource_quota::ENTRY,
    &secret::ENTRY,
    &service_account::ENTRY,
    &service::ENTRY,
];
