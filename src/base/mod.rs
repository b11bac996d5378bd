//! Ground that knows nothing of Kubernetes: the clock, random names, regular expressions, what tasks wait for, what takes them long.

pub mod aside;
pub mod clock;
pub mod echo;
pub mod moment;
pub mod random;
pub mod regexp;
