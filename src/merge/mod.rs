//! Field ownership and patches: field sets, managed fields, apply, and the three kinds of patch.
//! Pure functions.

pub mod patch;
pub mod path;
pub mod topology;
pub mod set;
mod reconcile;
pub mod typed;
mod combine;
pub mod validate;
pub mod managers;
pub mod apply;
pub mod scale;

/// The field manager of what the server itself writes.
pub const APISERVER_MANAGER: &str = "kube-apiserver";

pub use apply::apply;
pub use combine::combine;
pub use managers::{OneVersion, Versions, Writer, update};
pub use topology::Ty;

#[cfg(test)]
mod tests;
