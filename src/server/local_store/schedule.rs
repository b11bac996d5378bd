//! Snapshots of the embedded store by a schedule (`--snapshot-interval`).

use std::fs;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::base::clock::Clock;
use crate::base::files;
use crate::base::supervise::FailureTracker;
use crate::server::shutdown::Shutdown;
use crate::storage::StorageError;
use crate::storage::embedded::Embedded;
use crate::storage::embedded::contents::Entries;
use crate::storage::snapshot::{SnapshotError, Summary, Writer};
use crate::telemetry::metrics::{Declared, Gauge};

/// The names of the files, around the time.
const PREFIX: &str = "keelson-";
const SUFFIX: &str = ".snapshot";
/// The pause after a failure, at most.
const RETRY: Duration = Duration::from_secs(60);

static LAST_SUCCESS: Gauge = Gauge::new(
    "keelson_snapshot_last_success_timestamp_seconds",
    "[ALPHA] Time of the last scheduled snapshot of the embedded store that was written.",
    &[],
);

pub static METRICS: &[&dyn Declared] = &[&LAST_SUCCESS];

/// The snapshots that are to be taken.
#[derive(Clone)]
pub struct Schedule {
    pub folder: PathBuf,
    pub interval: Duration,
    /// The number of snapshots that are kept.
    pub keep: usize,
}

/// An error of writing a store into a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Writes entries as a snapshot.
///
/// # Errors
/// The store cannot be read, or the output not be written.
pub fn export(mut entries: Entries, out: impl io::Write) -> Result<Summary, ExportError> {
    let mut writer = Writer::new(out, entries.revision())?;
    while let Some(entry) = entries.next_entry()? {
        writer.add(&entry)?;
    }
    Ok(writer.finish()?.1)
}

/// Takes snapshots until the server ends. The time of the newest file counts, so that restarts
/// delay nothing.
pub async fn run(store: Arc<Embedded>, schedule: Schedule, shutdown: Shutdown) {
    let (taking, clock) = (
        FailureTracker::new("taking a snapshot of the embedded store"),
        Clock::system(),
    );
    let mut pause = until_next(&schedule);
    loop {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shutdown.stopped() => return,
        }
        let (of, into, name) = (store.clone(), schedule.clone(), file_name(&clock));
        let taken = tokio::task::spawn_blocking(move || take(&of, &into, &name)).await;
        pause = match taken
            .map_err(io::Error::other)
            .map_err(ExportError::Io)
            .flatten()
        {
            Ok((path, summary)) => {
                taking.record_success();
                LAST_SUCCESS.set(&[], clock.now().as_second());
                tracing::info!(
                    "snapshot {} has {} keys at revision {}",
                    path.display(),
                    summary.keys,
                    summary.revision
                );
                schedule.interval
            }
            Err(error) => {
                taking.record_failure(&error.to_string());
                RETRY.min(schedule.interval)
            }
        };
    }
}

/// Writes a snapshot into the folder, and removes the oldest beyond those to keep.
fn take(
    store: &Embedded,
    schedule: &Schedule,
    name: &str,
) -> Result<(PathBuf, Summary), ExportError> {
    files::create_private_dir(&schedule.folder)?;
    let path = schedule.folder.join(name);
    let entries = store.entries()?;
    let summary = files::write_complete(&path, |out: &mut BufWriter<_>| export(entries, out))?;
    let snapshots = snapshots(&schedule.folder);
    let superfluous = snapshots.len().saturating_sub(schedule.keep);
    for old in &snapshots[..superfluous] {
        files::remove_if_exists(old)?;
    }
    Ok((path, summary))
}

/// The name of a snapshot that is taken now; names sort by time.
fn file_name(clock: &Clock) -> String {
    let now = clock.now().strftime("%Y-%m-%dT%H-%M-%S%.3fZ");
    format!("{PREFIX}{now}{SUFFIX}")
}

/// Returns the snapshots in a folder, oldest first.
fn snapshots(folder: &Path) -> Vec<PathBuf> {
    let is_snapshot = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX))
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(is_snapshot)
        .collect();
    found.sort();
    found
}

/// Returns the time until the next snapshot is due.
fn until_next(schedule: &Schedule) -> Duration {
    let newest = snapshots(&schedule.folder).pop();
    let modified = newest.and_then(|path| fs::metadata(path).ok()?.modified().ok());
    let age = modified.and_then(|at| SystemTime::now().duration_since(at).ok());
    age.map_or(Duration::ZERO, |age| schedule.interval.saturating_sub(age))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{Storage, snapshot};

    fn schedule(folder: &Path, keep: usize) -> Schedule {
        Schedule {
            folder: folder.join("snapshots"),
            interval: Duration::from_secs(3600),
            keep,
        }
    }

    #[tokio::test]
    async fn the_newest_snapshots_are_kept_and_other_files_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let schedule = schedule(folder.path(), 2);
        let store = Embedded::open(folder.path()).unwrap();
        assert_eq!(until_next(&schedule), Duration::ZERO, "there is none yet");
        let clock = Clock::manual(jiff::Timestamp::UNIX_EPOCH);
        for i in 0..4 {
            store
                .create(&format!("/{i}"), "x".into(), None)
                .await
                .unwrap();
            clock.advance(Duration::from_secs(1));
            let (_, summary) = take(&store, &schedule, &file_name(&clock)).unwrap();
            assert_eq!((summary.keys, summary.revision), (i + 1, i as i64 + 2));
            fs::write(schedule.folder.join("theirs.snapshot"), "").unwrap();
        }
        let kept = snapshots(&schedule.folder);
        let names: Vec<_> = kept.iter().map(|path| path.file_name().unwrap()).collect();
        assert_eq!(
            names,
            [
                "keelson-1970-01-01T00-00-03.000Z.snapshot",
                "keelson-1970-01-01T00-00-04.000Z.snapshot"
            ]
        );
        assert!(schedule.folder.join("theirs.snapshot").exists());
        let last = snapshot::Reader::new(fs::File::open(&kept[1]).unwrap()).unwrap();
        assert_eq!(last.finish().unwrap().keys, 4);
        assert!(until_next(&schedule) > Duration::from_secs(3000));
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_written_is_told_and_older_snapshots_stay() {
        let folder = tempfile::tempdir().unwrap();
        let schedule = schedule(folder.path(), 1);
        let store = Embedded::open(folder.path()).unwrap();
        take(&store, &schedule, "keelson-1.snapshot").unwrap();
        // The name is taken by a folder: the last step fails.
        fs::create_dir(schedule.folder.join("keelson-2.snapshot")).unwrap();
        assert!(take(&store, &schedule, "keelson-2.snapshot").is_err());
        assert!(schedule.folder.join("keelson-1.snapshot").exists());
        assert!(!schedule.folder.join("keelson-2.snapshot.part").exists());
    }
}
