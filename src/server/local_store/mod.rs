//! The embedded store's own work beside requests: commands of the operator ([`control`]), snapshots
//! by a schedule ([`schedule`]), and a file that stays small ([`defragmentation`]).

pub mod control;
mod defragmentation;
pub mod schedule;

use std::path::Path;
use std::sync::Arc;

pub use self::schedule::export;
use super::shutdown::Shutdown;
use crate::options::embedded_store::EmbeddedConfig;
use crate::storage::embedded::{Embedded, Medium};
use crate::storage::{Result, StorageError};

/// The folder of snapshots inside the data directory.
const SNAPSHOTS: &str = "snapshots";

/// Starts that work, which ends with the server. Needs a runtime.
///
/// # Errors
/// Snapshots are to be taken, and there is no folder for them.
pub fn start(
    store: &Arc<Embedded>,
    data_dir: Option<&Path>,
    config: &EmbeddedConfig,
    shutdown: &Shutdown,
) -> Result<()> {
    store.set_quota(config.quota_bytes);
    if let Some(folder) = data_dir {
        control::start(store.clone(), folder, shutdown);
    }
    if store.medium() != Medium::Memory {
        tokio::spawn(defragmentation::run(store.clone(), shutdown.clone()));
    }
    if let Some(snapshots) = &config.snapshots {
        let in_data_dir = || data_dir.map(|folder| folder.join(SNAPSHOTS));
        let folder = snapshots.folder.clone().or_else(in_data_dir);
        let folder = folder.ok_or_else(|| {
            StorageError::Internal("--snapshot-interval needs --snapshot-dir".to_owned())
        })?;
        let schedule = schedule::Schedule {
            folder,
            interval: snapshots.interval,
            keep: snapshots.keep,
        };
        tokio::spawn(schedule::run(store.clone(), schedule, shutdown.clone()));
    }
    Ok(())
}
