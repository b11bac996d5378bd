//! The batch group: what its kinds do beyond their facts.

mod cronjob;
mod indexes;
mod job;
mod job_spec;
mod job_status;
mod policies;

pub use cronjob::CronJobs;
pub use job::Jobs;
