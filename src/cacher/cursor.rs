//! A place in the changes of one resource, for one who follows them. It holds nothing but its position.

use std::sync::Arc;

use tokio::sync::watch;

use crate::storage::Revision;

use super::Cacher;
use super::index::Term;
use super::ring::Change;

/// Changes taken in one go.
const TAKE: usize = 64;

/// Why a cursor ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// What it should tell next is forgotten: it began too far back or was too slow. It wanted what came after `wanted`;
    /// `oldest` is the revision from which one can still begin.
    Behind { wanted: Revision, oldest: Revision },
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
    /// The number behind the last change of interest.
    pub(super) wake: watch::Receiver<u64>,
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cursor({:?} at {})", self.cacher, self.position)
    }
}

impl Cursor {
    /// Waits for changes. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Vec<Arc<Change>>, Ended> {
        loop {
            let changes = self.take()?;
            if !changes.is_empty() {
                return Ok(changes);
            }
            // The sender lives as long as the cacher, or until the cache begins anew.
            if self.wake.changed().await.is_err() {
                return Err(Ended::Restarted);
            }
        }
    }

    /// The revision up to which nothing of interest is left to be told, if that is all there is.
    pub fn progress(&mut self) -> Option<Revision> {
        // Read first: what is reached has been put into the ring before.
        let reached = self.cacher.reached();
        let state = self.cacher.state.read();
        let told = state.generation == self.generation
            && (self.position == state.ring.end() || (self.interest != Interest::Everything && *self.wake.borrow() <= self.position));
        told.then_some(reached)
    }

    /// The changes that are there; empty when there is none of interest.
    fn take(&mut self) -> Result<Vec<Arc<Change>>, Ended> {
        let state = self.cacher.state.read();
        // Under the lock: the ring and the wakes change together.
        let interesting = *self.wake.borrow_and_update();
        if state.generation != self.generation {
            return Err(Ended::Restarted);
        }
        if self.interest != Interest::Everything && interesting <= self.position {
            // Nothing up to the end of the ring concerns this cursor.
            self.position = self.position.max(state.ring.end());
            return Ok(Vec::new());
        }
        if self.position < state.ring.first() {
            return Err(Ended::Behind { wanted: self.told, oldest: state.ring.complete_after() });
        }
        while self.position < state.ring.end() {
            let changes = state.ring.from(self.position).take(TAKE);
            let told: Vec<_> = changes.filter(|change| change.revision > self.after).cloned().collect();
            self.position = (self.position + TAKE as u64).min(state.ring.end());
            if let Some(last) = told.last() {
                self.told = last.revision;
                return Ok(told);
            }
        }
        Ok(Vec::new())
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.cacher.forget_interest(&self.interest);
    }
}
