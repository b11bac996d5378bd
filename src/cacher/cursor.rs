//! A cursor into the recent changes of one resource (upstream's `cacheWatcher`, without a buffer of
//! its own).

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::storage::Revision;

use super::Cacher;
use super::ring::Change;
use super::watchers::{Interest, WatcherWaker};

/// The reason a cursor ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CursorError {
    /// The changes after `requested` have been evicted from the history: the cursor began too far
    /// back or was too slow. `oldest` is the revision from which a new one can still begin.
    TooOld {
        requested: Revision,
        oldest: Revision,
    },
    /// The store was restored to an earlier state: the changes delivered up to `requested` may
    /// never have happened.
    Restored { requested: Revision },
    /// The cache had to be filled again. A client can resume from its last revision.
    Restarted,
}

/// A reader of the changes of one resource. It owns nothing but a position in the shared history,
/// so a slow one costs no memory. Once the history no longer contains its position it ends with
/// [`CursorError::TooOld`]. Changes that do not match its interest never make it too old.
pub struct Cursor {
    pub(super) cacher: Arc<Cacher>,
    /// The position of the next change in the history.
    pub(super) position: u64,
    /// Changes at or before this revision are skipped.
    pub(super) after: Revision,
    /// The revision of the last change delivered.
    pub(super) last_delivered: Revision,
    /// The epoch of the cache in which it was created.
    pub(super) epoch: u64,
    pub(super) interest: Interest,
    pub(super) waker: Arc<WatcherWaker>,
    /// Its slot in the registry.
    pub(super) slot: usize,
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cursor({:?} at {})", self.cacher, self.position)
    }
}

impl Cursor {
    /// Waits for the next change. Cancel safe.
    ///
    /// # Errors
    /// Fails when the cursor can deliver no more changes.
    pub async fn next(&mut self) -> Result<Arc<Change>, CursorError> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Polls for the next change.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Arc<Change>, CursorError>> {
        if let Some(outcome) = self.try_next().transpose() {
            return Poll::Ready(outcome);
        }
        self.waker.set_waker(cx.waker());
        // A change may have arrived before the waker was set.
        self.try_next()
            .transpose()
            .map_or(Poll::Pending, Poll::Ready)
    }

    /// Returns the revision up to which every matching change has been delivered; `None` while
    /// some are pending.
    pub fn progress(&mut self) -> Option<Revision> {
        // Read before the pending changes: every change up to this revision is in the history.
        let synced = self.cacher.synced_revision();
        let state = self.cacher.state.read();
        (state.epoch == self.epoch && self.waker.pending().is_none()).then_some(synced)
    }

    /// Returns the next change if there is one.
    fn try_next(&mut self) -> Result<Option<Arc<Change>>, CursorError> {
        let Some(pending) = self.waker.pending() else {
            return Ok(None);
        };
        // The writer marks changes as pending under this lock.
        let state = self.cacher.state.read();
        if state.epoch != self.epoch {
            let requested = self.last_delivered;
            return Err(if state.restored_epoch > self.epoch {
                CursorError::Restored { requested }
            } else {
                CursorError::Restarted
            });
        }
        // No change before the pending one matches.
        self.position = self.position.max(pending);
        if self.position < state.ring.first() {
            if let Some(metrics) = self.cacher.metrics() {
                metrics.terminated();
            }
            return Err(CursorError::TooOld {
                requested: self.last_delivered,
                oldest: state.ring.complete_after(),
            });
        }
        let mut changes = state.ring.from(self.position);
        let next = changes
            .by_ref()
            .inspect(|_| self.position += 1)
            .find(|change| change.revision > self.after)
            .cloned();
        self.waker
            .set_pending((self.position < state.ring.end()).then_some(self.position));
        if let Some(change) = &next {
            self.last_delivered = change.revision;
        }
        Ok(next)
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        let mut state = self.cacher.state.write();
        if state.epoch == self.epoch {
            state.watchers.deregister(&self.interest, self.slot);
        }
    }
}
