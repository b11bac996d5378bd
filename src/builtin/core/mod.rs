//! The core group: what its kinds do beyond their facts.

mod claim;
mod configmap;
mod endpoints;
mod event;
pub mod internal;
mod limitrange;
mod line_diff;
mod namespace;
mod node;
pub mod node_labels;
pub mod pod;
mod podtemplate;
mod quota;
mod replicationcontroller;
pub mod resources;
mod secret;
pub mod service;
mod serviceaccount;
mod volume;

pub use claim::{Claims, claim_warnings, default_claim, validate_claim_spec};
pub use configmap::ConfigMaps;
pub use endpoints::Endpoints;
pub use event::Events;
pub use limitrange::LimitRanges;
pub use namespace::Namespaces;
pub use node::Nodes;
pub use pod::Pods;
pub use podtemplate::PodTemplates;
pub use quota::ResourceQuotas;
pub use replicationcontroller::ReplicationControllers;
pub use secret::Secrets;
pub use service::Service;
pub use serviceaccount::ServiceAccounts;
pub use volume::PersistentVolumes;

/// The values of a ConfigMap or Secret may come to so many bytes in all.
const DATA_MAX: usize = 1024 * 1024;

/// The message for a change of a ConfigMap or Secret that said it would not.
const IMMUTABLE_SET: &str = "field is immutable when `immutable` is set";

/// How many bytes a base64 text stands for.
fn decoded_len(base64: &str) -> usize {
    let padding = base64.bytes().rev().take(2).filter(|&c| c == b'=').count();
    (base64.len() / 4 * 3).saturating_sub(padding)
}
