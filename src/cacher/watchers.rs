//! What wakes those who follow: each has a bell, which remembers what it is first to be rung for.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use parking_lot::Mutex;
use slab::Slab;

use super::cursor::Interest;

/// No change is pending.
const NONE: u64 = u64::MAX;

/// The bell of one cursor.
#[derive(Debug)]
pub struct WatcherWaker {
    /// Whom it wakes, each time: the same task follows from first to last.
    waker: Mutex<Option<Waker>>,
    /// The number of the first change of interest that was not taken yet.
    pending: AtomicU64,
}

impl WatcherWaker {
    /// The number of the first change of interest that was not taken.
    pub fn pending(&self) -> Option<u64> {
        Some(self.pending.load(Ordering::Acquire)).filter(|&number| number != NONE)
    }

    /// Says where to go on, under the lock of those who ring.
    pub fn set_pending(&self, number: Option<u64>) {
        self.pending
            .store(number.unwrap_or(NONE), Ordering::Release);
    }

    /// Wakes this task from now on, and no other.
    pub fn register(&self, waker: &Waker) {
        let mut known = self.waker.lock();
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
    }

    fn ring(&self) {
        if let Some(waker) = &*self.waker.lock() {
            waker.wake_by_ref();
        }
    }

    /// Remembers a change. Whether somebody waits for one.
    fn remember(&self, number: u64) -> bool {
        // Until it is taken, the first change counts.
        self.pending.fetch_min(number, Ordering::AcqRel) == NONE
    }
}

/// Wakers to be called once the lock that the woken tasks will want has been released.
#[derive(Debug, Default)]
pub struct PendingWakes(Vec<Arc<WatcherWaker>>);

impl PendingWakes {
    pub fn ring(self) {
        self.0.iter().for_each(|bell| bell.ring());
    }
}

/// The watchers of all who follow a resource, by what they want to hear of.
#[derive(Debug, Default)]
pub struct WatcherRegistry(HashMap<Interest, Slab<Arc<WatcherWaker>>>);

impl WatcherRegistry {
    /// Hangs a bell up, for which the change `pending` waits already. Returns it and where it
    /// hangs.
    pub fn register(
        &mut self,
        interest: &Interest,
        pending: Option<u64>,
    ) -> (Arc<WatcherWaker>, usize) {
        let bell = Arc::new(WatcherWaker {
            waker: Mutex::default(),
            pending: AtomicU64::new(pending.unwrap_or(NONE)),
        });
        let place = self
            .0
            .entry(interest.clone())
            .or_default()
            .insert(bell.clone());
        (bell, place)
    }

    /// Takes down what hangs there.
    pub fn deregister(&mut self, interest: &Interest, place: usize) {
        let Some(watchers) = self.0.get_mut(interest) else {
            return;
        };
        watchers.try_remove(place);
        if watchers.is_empty() {
            self.0.remove(interest);
        }
    }

    /// Whether anybody wants to hear of has_filtered_watchers changes only.
    pub fn has_filtered_watchers(&self) -> bool {
        self.0.len() > usize::from(self.0.contains_key(&Interest::Everything))
    }

    /// Remembers a change of this number for those with just this interest. They are to be rung.
    pub fn remember(&self, interest: &Interest, number: u64, wakes: &mut PendingWakes) {
        let waiting = self
            .0
            .get(interest)
            .into_iter()
            .flatten()
            .map(|(_, bell)| bell)
            .filter(|bell| bell.remember(number));
        wakes.0.extend(waiting.cloned());
    }

    /// Takes all watchers down, to be rung for the last time.
    pub fn deregister_all(&mut self) -> PendingWakes {
        PendingWakes(
            std::mem::take(&mut self.0)
                .into_values()
                .flatten()
                .map(|(_, bell)| bell)
                .filter(|bell| bell.remember(0))
                .collect(),
        )
    }
}
