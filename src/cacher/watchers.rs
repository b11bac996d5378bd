//! The watchers of one resource: matching of changes with watchers, and their wakers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use parking_lot::Mutex;
use slab::Slab;

use super::index::IndexKey;

/// The value of [`WatcherWaker::pending`] when no change is pending.
const NONE: u64 = u64::MAX;

/// The changes that wake a cursor. While it is awake it also sees others: consumers still have to
/// filter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Interest {
    Everything,
    /// Changes of the object with this key.
    Key(Arc<str>),
    /// Changes of objects that have this index key before or after the change.
    Indexed(IndexKey),
}

/// The waker of one cursor. It records the first undelivered change that matches the cursor's
/// interest.
#[derive(Debug)]
pub struct WatcherWaker {
    waker: Mutex<Option<Waker>>,
    /// The position of the first matching change that the cursor has not consumed.
    pending: AtomicU64,
}

impl WatcherWaker {
    /// Returns the position of the first matching change that has not been consumed.
    pub fn pending(&self) -> Option<u64> {
        Some(self.pending.load(Ordering::Acquire)).filter(|&position| position != NONE)
    }

    /// Sets the position to resume at. The caller holds the lock that [`WatcherRegistry::mark`] is
    /// called under.
    pub fn set_pending(&self, position: Option<u64>) {
        self.pending
            .store(position.unwrap_or(NONE), Ordering::Release);
    }

    /// Sets the task to wake.
    pub fn set_waker(&self, waker: &Waker) {
        let mut known = self.waker.lock();
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.lock() {
            waker.wake_by_ref();
        }
    }

    /// Records a matching change. Reports whether it is the first since the cursor caught up, so
    /// that the cursor's task has to be woken.
    fn mark(&self, position: u64) -> bool {
        self.pending.fetch_min(position, Ordering::AcqRel) == NONE
    }
}

/// Watchers to wake once the lock that their tasks will take has been released.
#[derive(Debug, Default)]
pub struct PendingWakes(Vec<Arc<WatcherWaker>>);

impl PendingWakes {
    /// Wakes all of them.
    pub fn wake_all(self) {
        self.0.iter().for_each(|watcher| watcher.wake());
    }
}

/// The watchers of a resource by their interest, so that a change costs nothing for the watchers
/// that it does not concern.
#[derive(Debug, Default)]
pub struct WatcherRegistry(HashMap<Interest, Slab<Arc<WatcherWaker>>>);

impl WatcherRegistry {
    /// Adds a watcher, for which the change at `pending` already waits. Returns its waker and the
    /// slot to deregister it with.
    pub fn register(
        &mut self,
        interest: &Interest,
        pending: Option<u64>,
    ) -> (Arc<WatcherWaker>, usize) {
        let watcher = Arc::new(WatcherWaker {
            waker: Mutex::default(),
            pending: AtomicU64::new(pending.unwrap_or(NONE)),
        });
        let slot = self
            .0
            .entry(interest.clone())
            .or_default()
            .insert(watcher.clone());
        (watcher, slot)
    }

    /// Removes the watcher in a slot.
    pub fn deregister(&mut self, interest: &Interest, slot: usize) {
        let Some(watchers) = self.0.get_mut(interest) else {
            return;
        };
        watchers.try_remove(slot);
        if watchers.is_empty() {
            self.0.remove(interest);
        }
    }

    /// Reports whether any watcher is interested in some changes only.
    pub fn has_filtered_watchers(&self) -> bool {
        self.0.len() > usize::from(self.0.contains_key(&Interest::Everything))
    }

    /// Records the change at `position` for the watchers with exactly this interest, and adds
    /// those that have to be woken to `wakes`.
    pub fn mark(&self, interest: &Interest, position: u64, wakes: &mut PendingWakes) {
        let idle = self
            .0
            .get(interest)
            .into_iter()
            .flatten()
            .map(|(_, watcher)| watcher)
            .filter(|watcher| watcher.mark(position));
        wakes.0.extend(idle.cloned());
    }

    /// Removes all watchers and returns those that have to be woken to notice.
    pub fn deregister_all(&mut self) -> PendingWakes {
        PendingWakes(
            std::mem::take(&mut self.0)
                .into_values()
                .flatten()
                .map(|(_, watcher)| watcher)
                .filter(|watcher| watcher.mark(0))
                .collect(),
        )
    }
}
