//! The reconcilers of the server itself: bootstrap objects, the endpoints of the `kubernetes`
//! service, repairs of cluster IPs and node ports, and the informers and the client that they use.

pub mod bootstrap;
pub mod endpoint_reconciler;
pub mod event_handlers;
pub mod flow_control;
pub mod informer;
pub mod loopback_client;
pub mod master_leases;
pub mod reconcilers;
pub mod served_kinds;
pub mod services;
