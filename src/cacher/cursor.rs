//! A place in the changes of one resource, for one who follows them. It holds nothing but its
//! position.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::storage::Revision;

use super::Cacher;
use super::index::IndexKey;
use super::ring::Change;
use super::watchers::WatcherWaker;

/// Why a cursor ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CursorError {
    /// What it should tell next is forgotten: it began too far back or was too slow. It wanted what
    /// came after `wanted`; `oldest` is the revision from which one can still begin.
    TooOld {
        requested: Revision,
        oldest: Revision,
    },
    /// The store was restored to an earlier state: what was told up to `wanted` may never have
    /// happened now.
    Restored { requested: Revision },
    /// The cache had to begin anew. A client may go on from where it is, with another cursor.
    Restarted,
}

/// Which changes a cursor is woken for. It is told others, too, when it is awake.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Interest {
    Everything,
    /// Those of the object with this key.
    Key(Arc<str>),
    /// Those of objects with this term, before or after the change.
    Indexed(IndexKey),
}

/// Follows the changes of a resource.
pub struct Cursor {
    pub(super) cacher: Arc<Cacher>,
    /// The number of the next change in the ring.
    pub(super) position: u64,
    /// Nothing at or before this revision is told.
    pub(super) after: Revision,
    /// The revision of the last change told.
    pub(super) last_delivered: Revision,
    pub(super) epoch: u64,
    pub(super) interest: Interest,
    /// What wakes it, and where that hangs.
    pub(super) waker: Arc<WatcherWaker>,
    pub(super) place: usize,
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cursor({:?} at {})", self.cacher, self.position)
    }
}

impl Cursor {
    /// Waits for the next change. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Arc<Change>, CursorError> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The next change, when there is one.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Arc<Change>, CursorError>> {
        if let Some(outcome) = self.take().transpose() {
            return Poll::Ready(outcome);
        }
        self.waker.register(cx.waker());
        // It may have wakes in between.
        self.take().transpose().map_or(Poll::Pending, Poll::Ready)
    }

    /// The revision up to which nothing of interest is left to be told, if that is all there is.
    pub fn progress(&mut self) -> Option<Revision> {
        // Read first: what is reached has been put into the ring before.
        let reached = self.cacher.reached();
        let state = self.cacher.state.read();
        (state.epoch == self.epoch && self.waker.pending().is_none()).then_some(reached)
    }

    /// The next change that is there; none while there is none of interest.
    fn take(&mut self) -> Result<Option<Arc<Change>>, CursorError> {
        let Some(pending) = self.waker.pending() else {
            return Ok(None);
        };
        // WatcherRegistry are wakes under the lock.
        let state = self.cacher.state.read();
        if state.epoch != self.epoch {
            return Err(if state.restored > self.epoch {
                CursorError::Restored {
                    requested: self.last_delivered,
                }
            } else {
                CursorError::Restarted
            });
        }
        // What comes before does not concern it.
        self.position = self.position.max(pending);
        if self.position < state.ring.first() {
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
            state.watchers.deregister(&self.interest, self.place);
        }
    }
}
