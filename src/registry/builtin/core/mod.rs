//! The core group: what its kinds do beyond their facts.

mod claim;
mod configmap;
mod internal;
mod line_diff;
mod namespace;
pub mod pod;
mod podtemplate;
mod replicationcontroller;
pub mod resources;
mod secret;
pub mod service;

pub use claim::{Claims, default_claim, validate_claim_spec};
pub use configmap::ConfigMaps;
pub use namespace::Namespaces;
pub use pod::Pods;
pub use podtemplate::PodTemplates;
pub use replicationcontroller::ReplicationControllers;
pub use secret::Secrets;
pub use service::Service;

/// The values of a ConfigMap or Secret may come to so many bytes in all.
const DATA_MAX: usize = 1024 * 1024;

/// The message for a change of a ConfigMap or Secret that said it would not.
const IMMUTABLE_SET: &str = "field is immutable when `immutable` is set";

/// How many bytes a base64 text stands for.
fn decoded_len(base64: &str) -> usize {
    let padding = base64.bytes().rev().take(2).filter(|&c| c == b'=').count();
    (base64.len() / 4 * 3).saturating_sub(padding)
}
