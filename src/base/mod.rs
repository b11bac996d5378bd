//! Ground that knows nothing of Kubernetes: the clock and random names.

pub mod clock;
pub mod random;
