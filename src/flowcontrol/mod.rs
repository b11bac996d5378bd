//! API priority and fairness: requests are classified into flows of priority levels, each of which
//! has seats and queues of its own (apiserver `util/flowcontrol`).

mod allocation;
mod configuration;
mod controller;
mod digest;
mod dropped_requests;
mod dump;
mod estimator;
mod integrator;
mod level;
mod matching;
pub mod metrics;
mod object_counts;
mod queueset;
mod shuffle_sharding;
mod watch_tracker;
mod work;

pub use configuration::{FlowSchema, PriorityLevelConfiguration};
pub use controller::{ADJUSTMENT_PERIOD, Controller, Flow};
pub use digest::{RequestDetails, RequestDigest};
pub use level::Seat;
pub use object_counts::Stats;
pub use watch_tracker::WatchRegistration;
