//! Compaction of old history, coordinated with all other servers on the same store.
//!
//! The protocol is kube-apiserver's (`apiserver/pkg/storage/etcd3/compact.go`), so that both can
//! run on one etcd: the server that manages to update the shared key, unchanged since its previous
//! attempt, compacts to the revision of the store at that attempt.

use bytes::Bytes;

use super::{Result, Revision, Storage, StorageError, WriteOutcome};
use crate::telemetry::metrics::{Counter, Declared};

/// The key that the servers share. It is not under any prefix of the API.
pub const KEY: &str = "compact_rev_key";

static ROUNDS: Counter = Counter::new(
    "keelson_compactions_total",
    "[ALPHA] Number of times that this server looked after the compaction of a store and succeeded.",
    &[],
);
static FAILURES: Counter = Counter::new(
    "keelson_compaction_failures_total",
    "[ALPHA] Number of times that this server looked after the compaction of a store and failed.",
    &[],
);

pub static METRICS: &[&dyn Declared] = &[&ROUNDS, &FAILURES];

/// One server's part in it. It has no timer: the server calls [`Compactor::compact_once`] each
/// `--etcd-compaction-interval`.
#[derive(Debug, Default)]
pub struct Compactor {
    /// The mod revision of the key at the last attempt; 0 if there was none.
    key: Revision,
    /// The revision of the store at the last compaction; 0 before the first.
    stood: Revision,
}

impl Compactor {
    /// Compacts if it is this server's turn, and returns the revision that it compacted to.
    ///
    /// # Errors
    /// The store's.
    pub async fn compact_once(&mut self, storage: &dyn Storage) -> Result<Option<Revision>> {
        let outcome = self.attempt(storage).await;
        match outcome {
            Ok(_) => ROUNDS.inc(&[]),
            Err(_) => FAILURES.inc(&[]),
        }
        outcome
    }

    async fn attempt(&mut self, storage: &dyn Storage) -> Result<Option<Revision>> {
        let value = Bytes::from(self.stood.to_string());
        let outcome = match self.key {
            0 => storage.create(KEY, value, None).await?,
            key => storage.update(KEY, value, key, None).await?,
        };
        let before = self.stood;
        match outcome {
            WriteOutcome::Committed(revision) => (self.key, self.stood) = (revision, revision),
            WriteOutcome::Conflict(theirs) => {
                self.key = theirs.map_or(0, |s| s.mod_revision);
                self.stood = storage.current_revision().await?;
                return Ok(None);
            }
        }
        if before == 0 {
            return Ok(None);
        }
        match storage.compact(before).await {
            Ok(()) => Ok(Some(before)),
            // An operator compacted further.
            Err(StorageError::Compacted { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
