//! The serving side: TLS, the listener, the chain of filters, reload and shutdown. The only module
//! that knows every other.

mod auditing;
pub mod authentication;
mod authentication_config;
mod authorization;
pub mod build;
mod connections;
mod deadline;
mod debug_flags;
mod discovery;
mod encryption;
pub mod filters;
pub mod health;
pub mod limits;
pub mod listener;
pub mod local_store;
mod metrics;
mod outbound;
mod profiling;
pub mod reload;
mod request_guard;
mod request_head;
mod response_body;
mod routes;
pub mod run;
pub mod shared_port;
pub mod shutdown;
mod storage_metrics;
mod storage_overrides;
mod stores;
pub mod tls;
mod token_requests;
mod write_coalescing;
mod zpages;

pub use run::main;
