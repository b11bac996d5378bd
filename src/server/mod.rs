//! Assembly: flags, TLS, listener, the chain of filters, shutdown, bootstrap objects. The only place that knows everyone.

pub mod bootstrap;
pub mod config;
pub mod flags;

pub use config::Config;
