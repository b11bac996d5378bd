//! Configuration: the flags of kube-apiserver, the typed configuration, and the certificates, keys
//! and directories that it names.

pub mod admission_configuration;
pub mod api_enablement;
pub mod audit;
pub mod authorization;
pub mod certificates;
pub mod config;
pub mod credential_files;
pub mod data_dir;
#[cfg(test)]
mod flag_coverage;
pub mod flags;

pub use config::{Checked, check};
