//! Assembly: flags, TLS, listener, the chain of filters, shutdown, bootstrap objects. The only place that knows everyone.

pub mod authentication;
pub mod bootstrap;
pub mod certs;
pub mod config;
pub mod flags;
pub mod health;
pub mod listener;
pub mod run;
pub mod shutdown;
pub mod tls;

pub use config::Config;
pub use run::{main, run};
