//! The watchers: the latest events in memory, and for each watcher the first event it has not been
//! given.
//!
//! A watcher whose next event has left the ring reads it from the table. An event wakes only those
//! whose prefix it is under.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::storage::{Revision, StorageError, WatchEvent};

/// Events kept in memory, at most.
const RING_EVENTS: usize = 4096;
/// Bytes of keys and values kept in memory, at most (one event always is).
const RING_BYTES: usize = 4 << 20;
/// Events a watcher takes in one go.
const TAKE_EVENTS: usize = 128;

/// The ring and the watchers.
pub struct Hub(Mutex<State>);

struct State {
    /// The events of the revisions up to `head`, one each, without gaps.
    ring: VecDeque<Arc<WatchEvent>>,
    bytes: usize,
    head: Revision,
    watchers: HashMap<u64, Watcher>,
    next_id: u64,
    closed: Option<StorageError>,
}

struct Watcher {
    prefix: String,
    /// Events at or before this revision are not delivered.
    after: Revision,
    /// The first revision that may concern it and has not been taken; `None` when it knows
    /// everything up to the head.
    pending: Option<Revision>,
    /// True if it owes a progress event.
    progress: bool,
    wake: Arc<Notify>,
}

/// The next step of a watcher.
#[derive(Debug)]
pub enum WatchStep {
    /// Tell these (there may be none), then ask again.
    Events(Vec<Arc<WatchEvent>>),
    /// Report progress: everything up to this revision has been delivered.
    Progress(Revision),
    /// Read on from here in the table.
    Replay(Revision),
    /// Wait to be woken.
    Wait,
}

impl Hub {
    pub fn new(head: Revision) -> Self {
        let (ring, watchers) = (VecDeque::new(), HashMap::new());
        Self(Mutex::new(State {
            ring,
            bytes: 0,
            head,
            watchers,
            next_id: 0,
            closed: None,
        }))
    }

    /// The revision of the last event that was published.
    pub fn head(&self) -> Revision {
        self.0.lock().head
    }

    /// A new watcher: its number, and what wakes it.
    pub fn register(&self, prefix: &str, after: Revision) -> (u64, Arc<Notify>) {
        let mut state = self.0.lock();
        let (id, wake) = (state.next_id, Arc::new(Notify::new()));
        let pending = (after < state.head).then_some(after + 1);
        state.next_id += 1;
        state.watchers.insert(
            id,
            Watcher {
                prefix: prefix.to_owned(),
                after,
                pending,
                progress: false,
                wake: wake.clone(),
            },
        );
        (id, wake)
    }

    pub fn unregister(&self, id: u64) {
        self.0.lock().watchers.remove(&id);
    }

    /// Adds the events of the revisions behind the head, one each.
    pub fn publish(&self, events: Vec<Arc<WatchEvent>>) {
        let mut state = self.0.lock();
        let state = &mut *state;
        let first = state.head + 1;
        for watcher in state.watchers.values_mut().filter(|w| w.pending.is_none()) {
            let concerns = |(event, revision): (&Arc<WatchEvent>, Revision)| {
                revision > watcher.after && under(event, &watcher.prefix)
            };
            if let Some(at) = events.iter().zip(first..).position(concerns) {
                watcher.pending = Some(first + at as Revision);
                watcher.wake.notify_one();
            }
        }
        for event in events {
            state.head += 1;
            state.bytes += size(&event);
            state.ring.push_back(event);
            while state.ring.len() > 1
                && (state.ring.len() > RING_EVENTS || state.bytes > RING_BYTES)
            {
                state.bytes -= state.ring.pop_front().map_or(0, |e| size(&e));
            }
        }
    }

    /// Makes every watcher report its progress.
    pub fn ask_progress(&self) {
        for watcher in self.0.lock().watchers.values_mut() {
            watcher.progress = true;
            watcher.wake.notify_one();
        }
    }

    /// Ends every watch with `why`.
    pub fn close(&self, why: StorageError) {
        let mut state = self.0.lock();
        state.closed = Some(why);
        state.watchers.values().for_each(|w| w.wake.notify_one());
    }

    /// The next thing for a watcher to do; history up to `compacted` can no longer be told.
    ///
    /// # Errors
    /// The end of the watch: compacted history, or a failure of the store.
    pub fn next_step(&self, id: u64, compacted: Revision) -> Result<WatchStep, StorageError> {
        let mut state = self.0.lock();
        let State {
            ring,
            head,
            watchers,
            closed,
            ..
        } = &mut *state;
        if let Some(why) = closed {
            return Err(why.clone());
        }
        let Some(watcher) = watchers.get_mut(&id) else {
            return Ok(WatchStep::Wait);
        };
        let first = *head + 1 - ring.len() as Revision;
        match watcher.pending {
            Some(from) if from <= compacted => Err(StorageError::Compacted {
                oldest: Some(compacted),
            }),
            Some(from) if from < first => Ok(WatchStep::Replay(from)),
            Some(from) => {
                let mut events = Vec::new();
                watcher.pending = None;
                for (event, revision) in ring.iter().zip(first..).skip((from - first) as usize) {
                    if events.len() == TAKE_EVENTS {
                        watcher.pending = Some(revision);
                        break;
                    }
                    if under(event, &watcher.prefix) {
                        events.push(event.clone());
                    }
                }
                Ok(WatchStep::Events(events))
            }
            // Without any event there is no progress to report, as in etcd.
            None if std::mem::take(&mut watcher.progress) && *head > watcher.after => {
                Ok(WatchStep::Progress(*head))
            }
            None => Ok(WatchStep::Wait),
        }
    }

    /// A watcher has read the table up to before `next`.
    pub fn replayed(&self, id: u64, next: Revision) {
        let mut state = self.0.lock();
        let head = state.head;
        if let Some(watcher) = state.watchers.get_mut(&id) {
            watcher.pending = (next <= head).then_some(next);
        }
    }
}

fn under(event: &WatchEvent, prefix: &str) -> bool {
    event.key().is_some_and(|key| key.starts_with(prefix))
}

fn size(event: &WatchEvent) -> usize {
    let stored = |s: &crate::storage::Stored| s.key.len() + s.value.len();
    match event {
        WatchEvent::Put { current, previous } => {
            stored(current) + previous.as_ref().map_or(0, stored)
        }
        WatchEvent::Delete { key, previous, .. } => key.len() + previous.as_ref().map_or(0, stored),
        WatchEvent::Unread { .. } | WatchEvent::Progress(_) => 0,
    }
}
