//! Assembly: flags, TLS, listener, the chain of filters, shutdown, bootstrap objects. The only place that knows everyone.

pub mod apart;
pub mod authentication;
pub mod assemble;
pub mod bootstrap;
pub mod certs;
pub mod chain;
mod coalesce;
pub mod config;
pub mod creator;
mod documents;
pub mod flags;
pub mod health;
mod impersonation;
pub mod informer;
pub mod keeper;
pub mod listener;
pub mod master_leases;
pub mod objects;
pub mod run;
pub mod shutdown;
pub mod tls;
mod tokens;

pub use config::Config;
pub use run::{main, run};
