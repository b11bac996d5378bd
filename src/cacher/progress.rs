//! How far a store's history is known here, and whether that is far enough.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::sync::{Notify, OnceCell, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

use crate::storage::{Result, Revision, Storage, StorageError};

/// How long a reader waits for a revision to come (apiserver `storage/cacher`: `blockTimeout`).
const BLOCK_TIMEOUT: Duration = Duration::from_secs(3);
/// How long it waits by itself before the store is asked to tell how far it is: most often the
/// change is on its way.
const BEFORE_ASKING: Duration = Duration::from_millis(1);
/// How often the store is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// A round trip to the store that readers share.
type InFlightRead = Arc<OnceCell<Revision>>;

/// The revision up to which everything has been told, and how to get further.
pub struct ProgressTracker {
    storage: Arc<dyn Storage>,
    revision: watch::Sender<Revision>,
    /// The oldest revision that the store remembers, as far as this server knows.
    oldest: AtomicI64,
    /// The round that has not been sent yet: who comes now may share it.
    next: Mutex<InFlightRead>,
    /// Held by the round that is under way.
    running: tokio::sync::Mutex<()>,
    /// PendingWakes when the store has said that it is not as far as it was.
    back: Notify,
}

impl ProgressTracker {
    pub fn new(storage: Arc<dyn Storage>) -> Self {
        Self {
            storage,
            revision: watch::Sender::new(0),
            oldest: AtomicI64::new(0),
            next: Mutex::default(),
            running: tokio::sync::Mutex::default(),
            back: Notify::new(),
        }
    }

    pub fn revision(&self) -> Revision {
        *self.revision.borrow()
    }

    /// The oldest revision that the store remembers, as far as this server knows.
    pub fn oldest(&self) -> Revision {
        self.oldest.load(Ordering::Acquire)
    }

    pub fn record_compaction(&self, revision: Revision) {
        self.oldest.fetch_max(revision, Ordering::AcqRel);
    }

    /// Begins anew at a revision before those that were told: the store was restored.
    pub fn go_back(&self, revision: Revision) {
        self.oldest.store(0, Ordering::Release);
        self.revision.send_replace(revision);
        // What a reader heard before is settled with this.
        let _ = self.back.notified().now_or_never();
    }

    /// Waits until a reader has heard that the store is not as far as it was.
    pub async fn restored(&self) -> StorageError {
        self.back.notified().await;
        StorageError::Restored {
            was: self.revision(),
        }
    }

    /// Whether a cache that is as far as the store says is true: the store tells reliably how far
    /// its watches are.
    pub fn is_reliable(&self) -> bool {
        self.storage.has_reliable_progress()
    }

    /// Everything up to here has been told. Goes back with [`ProgressTracker::go_back`] only.
    pub fn advance(&self, revision: Revision) {
        self.revision.send_if_modified(|reached| {
            let further = revision > *reached;
            *reached = revision.max(*reached);
            further
        });
    }

    /// The store's revision, asked after the call began. All who come while one round trip is under
    /// way share the next.
    ///
    /// # Errors
    /// The store's; [`StorageError::Restored`] where it is not as far as it was.
    pub async fn latest(&self) -> Result<Revision> {
        let round = self.next.lock().clone();
        let asked = round.get_or_try_init(|| async {
            let _turn = self.running.lock().await;
            // Who is ready to ask goes first, to share it.
            yield_now().await;
            // Who comes from here on is too late for this one.
            {
                let mut next = self.next.lock();
                if Arc::ptr_eq(&next, &round) {
                    *next = InFlightRead::default();
                }
            }
            let was = self.revision();
            let now = self.storage.current_revision().await?;
            if now < was && was <= self.revision() {
                self.back.notify_one();
                return Err(StorageError::Restored { was });
            }
            Ok(now)
        });
        asked.await.copied()
    }

    /// Waits until everything up to `revision` has been told; whether that came in time.
    pub async fn wait_for(&self, revision: Revision) -> bool {
        if self.revision() >= revision {
            return true;
        }
        let mut reached = self.revision.subscribe();
        let end = Instant::now() + BLOCK_TIMEOUT;
        let mut ask = Instant::now() + BEFORE_ASKING;
        loop {
            let came = timeout_at(
                ask.min(end),
                reached.wait_for(|reached| *reached >= revision),
            )
            .await
            .map(|outcome| outcome.is_ok());
            match came {
                Ok(came) => return came,
                Err(_) if Instant::now() >= end => return false,
                Err(_) => {
                    // If it cannot be asked, waiting is all that is left.
                    let _ = self.storage.request_progress().await;
                    ask = Instant::now() + ASK_AGAIN;
                }
            }
        }
    }
}
