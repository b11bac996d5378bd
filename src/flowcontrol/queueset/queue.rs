//! One queue of a set: the waiting requests in their order, and what is known of those that run.

use std::time::Instant;

use slab::Slab;

use super::{Key, Queued};
use crate::flowcontrol::work::SeatSeconds;

/// The sums over the waiting requests of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSum {
    pub initial_seats: u64,
    pub max_seats: u64,
    pub total_work: SeatSeconds,
}

/// The neighbours of a waiting request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Links {
    older: Option<Key>,
    newer: Option<Key>,
}

/// A sequence of requests that have arrived and are not yet done.
#[derive(Debug, Default)]
pub struct Queue {
    /// A number that is larger than those of all queues before it.
    pub id: u64,
    oldest: Option<Key>,
    newest: Option<Key>,
    waiting: usize,
    pub sum: QueueSum,
    /// The reading of the progress meter at which the next request will be dispatched in the
    /// virtual world.
    pub next_dispatch_r: SeatSeconds,
    /// The requests that run, without those that only keep their seats.
    pub executing: usize,
    /// The seats of all that run or keep them.
    pub seats_in_use: u64,
}

impl Queue {
    pub fn new(id: u64) -> Self {
        Self {
            id,
            ..Self::default()
        }
    }

    pub fn len(&self) -> usize {
        self.waiting
    }

    pub fn is_active(&self) -> bool {
        self.waiting > 0 || self.executing > 0
    }

    pub fn oldest(&self) -> Option<Key> {
        self.oldest
    }

    /// Adds a request at the end.
    pub fn push<W>(&mut self, requests: &mut Slab<Queued<W>>, key: Key) {
        let newest = self.newest.replace(key);
        match newest.and_then(|newest| requests.get_mut(newest)) {
            Some(newest) => newest.links.newer = Some(key),
            None => self.oldest = Some(key),
        }
        if let Some(request) = requests.get_mut(key) {
            request.links = Links {
                older: newest,
                newer: None,
            };
            self.waiting += 1;
            self.sum.initial_seats += request.work.estimate.initial_seats;
            self.sum.max_seats += request.max_seats();
            self.sum.total_work = self.sum.total_work.plus(request.work.total);
        }
    }

    /// Removes a waiting request, wherever it is.
    pub fn remove<W>(&mut self, requests: &mut Slab<Queued<W>>, key: Key) {
        let Some(request) = requests.get_mut(key) else {
            return;
        };
        let Links { older, newer } = std::mem::take(&mut request.links);
        self.waiting -= 1;
        self.sum.initial_seats -= request.work.estimate.initial_seats;
        self.sum.max_seats -= request.max_seats();
        self.sum.total_work = self.sum.total_work.minus(request.work.total);
        match older.and_then(|older| requests.get_mut(older)) {
            Some(older) => older.links.newer = newer,
            None => self.oldest = newer,
        }
        match newer.and_then(|newer| requests.get_mut(newer)) {
            Some(newer) => newer.links.older = older,
            None => self.newest = older,
        }
    }

    /// The waiting requests from the oldest to the newest.
    pub fn waiting<'a, W>(&self, requests: &'a Slab<Queued<W>>) -> impl Iterator<Item = Key> + 'a {
        std::iter::successors(self.oldest, |key| {
            requests.get(*key).and_then(|request| request.links.newer)
        })
    }
}

/// The seats of a request that are free again at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lingering {
    pub until: Instant,
    pub key: Key,
}
