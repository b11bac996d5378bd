//! The stores that can be written: a new data directory, and an etcd.

use std::path::Path;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};

use super::{Args, connect, is_etcd};
use crate::base::clock::Clock;
use crate::commands::CommandError;
use crate::commands::progress::Progress;
use crate::storage::embedded::contents::NewStore;
use crate::storage::etcd3::Etcd3;
use crate::storage::snapshot::Entry;
use crate::storage::{ListRequest, Revision, Storage, StorageError, WriteOutcome};

/// Writes to an etcd that are under way at a time.
const CONCURRENT_WRITES: usize = 64;
/// The precision of leases: keys live at most that much longer than they would have.
const LEASE_STEP: Duration = Duration::from_secs(60);
/// The revisions by which an etcd is raised, at most: each takes a write.
const MAX_RAISE: Revision = 10_000_000;

/// A store that is being written.
pub enum Destination {
    Directory(NewStore),
    Etcd { etcd: Box<Etcd3>, prefix: String },
}

impl Destination {
    /// Begins to write a store, which has no keys yet.
    ///
    /// # Errors
    /// It has some, or cannot be written.
    pub async fn create(text: &str, prefix: &str, args: &Args) -> Result<Self, CommandError> {
        if !is_etcd(text) {
            return Ok(Self::Directory(NewStore::create(Path::new(text))?));
        }
        let etcd = Box::new(connect(text, args).await?);
        let first = ListRequest {
            prefix: prefix.to_owned(),
            limit: 1,
            ..ListRequest::default()
        };
        let count = etcd.list(first).await?.count;
        if count > 0 && !args.switch("resume") {
            return Err(CommandError::new(format!(
                "{text} has {count} keys under {prefix} already; --resume goes on with a migration \
                 that did not end. Nothing was changed"
            )));
        }
        let prefix = prefix.to_owned();
        Ok(Self::Etcd { etcd, prefix })
    }

    /// Writes entries.
    ///
    /// # Errors
    /// A key is there with another value, or writing fails.
    pub async fn add(&mut self, entries: Vec<Entry>) -> Result<(), CommandError> {
        match self {
            Self::Directory(store) => {
                for entry in entries {
                    store.add(entry)?;
                }
                Ok(())
            }
            Self::Etcd { etcd, prefix } => {
                let now = Clock::system().now().as_microsecond();
                let etcd: &Etcd3 = etcd;
                stream::iter(entries)
                    .map(|entry| put(etcd, entry, now))
                    .buffer_unordered(CONCURRENT_WRITES)
                    .try_collect::<()>()
                    .await
                    .map_err(|error| {
                        error.about(format!(
                            "what was copied stays under {prefix}; --resume goes on from there"
                        ))
                    })
            }
        }
    }

    /// Ends the store, whose history is compacted up to its revision; returns that. A new directory
    /// gets `revision`, an etcd is raised to it, unless `raises` is false.
    ///
    /// # Errors
    /// Writing fails, or raising the revision would take too long.
    pub async fn finish(self, revision: Revision, raises: bool) -> Result<Revision, CommandError> {
        let etcd = match self {
            Self::Directory(store) => {
                store.finish(revision)?;
                return Ok(revision);
            }
            Self::Etcd { etcd, .. } => etcd,
        };
        let present = etcd.current_revision().await?;
        let missing = revision - present;
        if raises && missing > MAX_RAISE {
            return Err(CommandError::new(format!(
                "all keys are copied, but raising the revision from {present} to {revision} would \
                 take too many writes: restart all clients, and say --resume \
                 --raise-revision=false"
            )));
        }
        if raises && missing > 0 {
            let mut progress = Progress::new("raised the revision by writing", missing as u64);
            etcd.raise_revision(revision, || progress.add(1)).await?;
        }
        let present = etcd.current_revision().await?;
        match etcd.compact(present).await {
            Ok(()) | Err(StorageError::Compacted { .. }) => Ok(present),
            Err(error) => Err(error.into()),
        }
    }
}

/// Writes an entry that is not there yet, or is there with the same value.
async fn put(etcd: &Etcd3, entry: Entry, now: i64) -> Result<(), CommandError> {
    let Entry { stored, expires } = entry;
    // Keys that expire in the same minute share leases.
    let ttl = expires.map(|at| {
        let left = Duration::from_micros(at.saturating_sub(now).max(1).unsigned_abs());
        LEASE_STEP * u32::try_from(left.as_secs() / LEASE_STEP.as_secs() + 1).unwrap_or(u32::MAX)
    });
    match etcd.create(&stored.key, stored.value.clone(), ttl).await {
        Ok(WriteOutcome::Committed(_)) => Ok(()),
        Ok(WriteOutcome::Conflict(Some(found))) if found.value == stored.value => Ok(()),
        Ok(WriteOutcome::Conflict(_)) => Err(CommandError::new(format!(
            "{} is there with another value",
            stored.key
        ))),
        Err(error) => Err(CommandError::from(error).about(&stored.key)),
    }
}
