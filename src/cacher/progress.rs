//! Tracks the progress of the watch of a store, and waits until it has reached a revision
//! (apiserver `storage/cacher/progress`).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::sync::{Notify, OnceCell, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

use crate::storage::{Result, Revision, Storage, StorageError};

/// The longest time a read waits for the cache to become fresh enough (apiserver `storage/cacher`:
/// `blockTimeout`).
const BLOCK_TIMEOUT: Duration = Duration::from_secs(3);
/// Delay before a waiting read requests progress from the store: most often the change is already
/// on its way.
const PROGRESS_REQUEST_DELAY: Duration = Duration::from_millis(1);
/// Interval of progress requests after that (apiserver: `progressRequestPeriod`).
const PROGRESS_REQUEST_PERIOD: Duration = Duration::from_millis(100);

/// A read of the store's revision that concurrent callers share.
type InFlightRead = Arc<OnceCell<Revision>>;

/// Tracks the revision up to which the watch of a store has delivered every event.
pub struct ProgressTracker {
    storage: Arc<dyn Storage>,
    revision: watch::Sender<Revision>,
    /// The revision that the store was last compacted at, as far as this server knows.
    compact_revision: AtomicI64,
    /// The read that has not been sent yet; callers may still join it.
    next_read: Mutex<InFlightRead>,
    /// Held while a read is under way.
    reading: tokio::sync::Mutex<()>,
    /// Notified when a read found the store at an earlier revision than before.
    restored: Notify,
}

impl ProgressTracker {
    pub fn new(storage: Arc<dyn Storage>) -> Self {
        Self {
            storage,
            revision: watch::Sender::new(0),
            compact_revision: AtomicI64::new(0),
            next_read: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
            restored: Notify::new(),
        }
    }

    /// Returns the revision up to which every event has been delivered.
    pub fn revision(&self) -> Revision {
        *self.revision.borrow()
    }

    /// Returns the revision that the store was last compacted at, as far as this server knows.
    pub fn compact_revision(&self) -> Revision {
        self.compact_revision.load(Ordering::Acquire)
    }

    /// Records that the store was compacted at `revision`.
    pub fn record_compaction(&self, revision: Revision) {
        self.compact_revision.fetch_max(revision, Ordering::AcqRel);
    }

    /// Starts over at an earlier revision, because the store was restored from a backup.
    pub fn reset(&self, revision: Revision) {
        self.compact_revision.store(0, Ordering::Release);
        self.revision.send_replace(revision);
        // A pending notification is about this restore.
        let _ = self.restored.notified().now_or_never();
    }

    /// Waits until a read has found that the store was restored; returns the error to report.
    pub async fn restored(&self) -> StorageError {
        self.restored.notified().await;
        StorageError::Restored {
            was: self.revision(),
        }
    }

    /// Reports whether the store's progress notifications can be relied on, so that a cache at the
    /// store's revision is complete.
    pub fn is_reliable(&self) -> bool {
        self.storage.has_reliable_progress()
    }

    /// Records that every event up to `revision` has been delivered. Only
    /// [`ProgressTracker::reset`] moves back.
    pub fn advance(&self, revision: Revision) {
        self.revision.send_if_modified(|known| {
            let advanced = revision > *known;
            *known = revision.max(*known);
            advanced
        });
    }

    /// Reads the store's current revision. The read starts after the call; all callers that arrive
    /// while another read is under way share the next one.
    ///
    /// # Errors
    /// Those of the store, and [`StorageError::Restored`] if its revision is lower than before.
    pub async fn read_revision(&self) -> Result<Revision> {
        let read = self.next_read.lock().clone();
        let revision = read.get_or_try_init(|| async {
            let _reading = self.reading.lock().await;
            // Tasks that are about to call may still join.
            yield_now().await;
            {
                let mut next = self.next_read.lock();
                if Arc::ptr_eq(&next, &read) {
                    *next = InFlightRead::default();
                }
            }
            let was = self.revision();
            let now = self.storage.current_revision().await?;
            if now < was && was <= self.revision() {
                self.restored.notify_one();
                return Err(StorageError::Restored { was });
            }
            Ok(now)
        });
        revision.await.copied()
    }

    /// Waits until every event up to `revision` has been delivered, for at most
    /// [`BLOCK_TIMEOUT`]. Reports whether that was achieved.
    pub async fn wait_until_fresh(&self, revision: Revision) -> bool {
        if self.revision() >= revision {
            return true;
        }
        let mut progress = self.revision.subscribe();
        let deadline = Instant::now() + BLOCK_TIMEOUT;
        let mut next_request = Instant::now() + PROGRESS_REQUEST_DELAY;
        loop {
            let fresh = timeout_at(
                next_request.min(deadline),
                progress.wait_for(|known| *known >= revision),
            );
            match fresh.await.map(|outcome| outcome.is_ok()) {
                Ok(fresh) => return fresh,
                Err(_) if Instant::now() >= deadline => return false,
                Err(_) => {
                    // If the request fails, the event may still arrive.
                    let _ = self.storage.request_progress().await;
                    next_request = Instant::now() + PROGRESS_REQUEST_PERIOD;
                }
            }
        }
    }
}
