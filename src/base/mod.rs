//! Ground that knows nothing of Kubernetes: the clock, random names, private files, regular
//! expressions, what tasks wait for, what takes them long, and what becomes of them when they fail.

pub mod blocking;
pub mod backoff;
pub mod coop;
pub mod clock;
pub mod echo;
pub mod files;
pub mod latch;
pub mod random;
pub mod regexp;
pub mod supervise;
