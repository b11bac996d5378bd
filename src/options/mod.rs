//! Configuration: the flags of kube-apiserver, the typed configuration, and the certificates, keys
//! and directories that it names.

pub mod admission_configuration;
pub mod aggregation;
pub mod api_enablement;
pub mod audit;
pub mod authentication;
pub mod authorization;
pub mod browsers;
mod cert_files;
pub mod certificates;
pub mod config;
pub mod controllers;
pub mod credential_files;
pub mod data_dir;
pub mod embedded_store;
#[cfg(test)]
mod flag_coverage;
mod flag_readers;
pub mod flags;
pub mod memory;
pub mod metrics;
pub mod own_files;
pub mod request_header;
pub mod tracing;

pub use config::{Checked, check};
