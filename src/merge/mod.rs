//! Field ownership and patches: field sets, managed fields, apply, and the three kinds of patch.
//! Pure functions.

pub mod apply;
mod combine;
pub mod managers;
pub mod patch;
pub mod path;
mod reconcile;
pub mod scale;
pub mod set;
pub mod topology;
pub mod typed;
pub mod validate;

/// The field manager of what the server itself writes.
pub const APISERVER_MANAGER: &str = "kube-apiserver";

pub use apply::apply;
pub use managers::{OneVersion, Versions, Writer, update};
pub use topology::Ty;

#[cfg(test)]
mod tests;
