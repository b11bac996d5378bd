//! Ground that knows nothing of Kubernetes: the clock, random names, regular expressions.

pub mod clock;
pub mod random;
pub mod regexp;
