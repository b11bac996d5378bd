//! A place in the changes of one resource, for one who follows them. It holds nothing but its
//! position.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::storage::Revision;

use super::Cacher;
use super::bells::Bell;
use super::index::Term;
use super::ring::Change;

/// Why a cursor ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// What it should tell next is forgotten: it began too far back or was too slow. It wanted what
    /// came after `wanted`; `oldest` is the revision from which one can still begin.
    Behind { wanted: Revision, oldest: Revision },
    /// The store was restored to an earlier state: what was told up to `wanted` may never have
    /// happened now.
    WentBack { wanted: Revision },
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
    Term(Term),
}

/// Follows the changes of a resource.
pub struct Cursor {
    pub(super) cacher: Arc<Cacher>,
    /// The number of the next change in the ring.
    pub(super) position: u64,
    /// Nothing at or before this revision is told.
    pub(super) after: Revision,
    /// The revision of the last change told.
    pub(super) told: Revision,
    pub(super) generation: u64,
    pub(super) interest: Interest,
    /// What wakes it, and where that hangs.
    pub(super) bell: Arc<Bell>,
    pub(super) place: usize,
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cursor({:?} at {})", self.cacher, self.position)
    }
}

impl Cursor {
    /// Waits for the next change. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Arc<Change>, Ended> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The next change, when there is one.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Arc<Change>, Ended>> {
        if let Some(outcome) = self.take().transpose() {
            return Poll::Ready(outcome);
        }
        self.bell.register(cx.waker());
        // It may have rung in between.
        self.take().transpose().map_or(Poll::Pending, Poll::Ready)
    }

    /// The revision up to which nothing of interest is left to be told, if that is all there is.
    pub fn progress(&mut self) -> Option<Revision> {
        // Read first: what is reached has been put into the ring before.
        let reached = self.cacher.reached();
        let state = self.cacher.state.read();
        (state.generation == self.generation && self.bell.pending().is_none()).then_some(reached)
    }

    /// The next change that is there; none while there is none of interest.
    fn take(&mut self) -> Result<Option<Arc<Change>>, Ended> {
        let Some(pending) = self.bell.pending() else {
            return Ok(None);
        };
        // Bells are rung under the lock.
        let state = self.cacher.state.read();
        if state.generation != self.generation {
            return Err(if state.went_back > self.generation {
                Ended::WentBack { wanted: self.told }
            } else {
                Ended::Restarted
            });
        }
        // What comes before does not concern it.
        self.position = self.position.max(pending);
        if self.position < state.ring.first() {
            return Err(Ended::Behind {
                wanted: self.told,
                oldest: state.ring.complete_after(),
            });
        }
        let mut changes = state.ring.from(self.position);
        let next = changes
            .by_ref()
            .inspect(|_| self.position += 1)
            .find(|change| change.revision > self.after)
            .cloned();
        self.bell
            .set_pending((self.position < state.ring.end()).then_some(self.position));
        if let Some(change) = &next {
            self.told = change.revision;
        }
        Ok(next)
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        let mut state = self.cacher.state.write();
        if state.generation == self.generation {
            state.bells.take_down(&self.interest, self.place);
        }
    }
}
