//! Utilities that know nothing of Kubernetes: clock, random names, private files, and what async
//! tasks need: cooperative yielding, blocking work, backoff, work queues, latches, panic
//! supervision; memory, calls of plugins, and pairs of certificates and keys.

pub mod allowance;
pub mod blocking;
pub mod backoff;
pub mod coop;
pub mod clock;
pub mod dial;
pub mod files;
pub mod grpc;
pub mod key_pair;
pub mod latch;
pub mod memory;
pub mod random;
pub mod supervise;
pub mod work_queue;
