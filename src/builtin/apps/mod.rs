//! The apps group: what its kinds do beyond their facts.

mod controllerrevision;
mod daemonset;
mod deployment;
mod replicaset;
mod rollout;
mod statefulset;
mod workload;

pub use controllerrevision::ControllerRevisions;
pub use daemonset::DaemonSets;
pub use deployment::Deployments;
pub use replicaset::ReplicaSets;
pub use rollout::{check_at_most_all, check_count_or_percent};
pub use statefulset::StatefulSets;
pub use workload::{pod_name_warning, status_counts};
