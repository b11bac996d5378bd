//! Assembly: flags, TLS, listener, the chain of filters, shutdown, bootstrap objects. The only
//! place that knows everyone.

pub mod apart;
mod api_enablement;
pub mod authentication;
pub mod assemble;
pub mod bootstrap;
pub mod certs;
pub mod chain;
mod coalesce;
pub mod config;
mod connections;
pub mod creator;
mod data_dir;
mod deadline;
mod documents;
pub mod flags;
pub mod health;
mod impersonation;
mod in_flight;
pub mod informer;
pub mod keeper;
pub mod limits;
pub mod listener;
pub mod master_leases;
pub mod material;
pub mod objects;
pub mod reconcilers;
pub mod reload;
mod request_body;
mod request_guard;
mod request_log;
pub mod run;
pub mod shutdown;
pub mod tls;
mod tokens;

pub use config::{Checked, check};
pub use run::main;
