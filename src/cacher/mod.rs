//! The watch cache: the current state and the recent changes of each resource, in memory. It knows
//! the [`Storage`](crate::storage::Storage) contract, keys and bytes, but no API objects.
//!
//! - [`Reflector`]: one watch of a whole store, which keeps all [`Cacher`]s up to date and tracks
//!   the progress of the watch.
//! - [`Cacher`]: the cache of one resource: an immutable [`Snapshot`], cloned in constant time, and
//!   a [`ring`] of recent changes.
//! - [`CachedObject`]: a stored object in either, with the encodings that its readers share.
//! - [`Cursor`]: the position of one watch in that ring.
//!
//! Requests that the cache cannot answer (a revision older than the ring, a cache that is not
//! filled) go to the store.

mod watchers;
mod cached_object;
mod cursor;
mod reflector;
mod progress;
mod index;
pub mod metrics;
mod ring;
mod snapshot;

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use crate::base::coop::CoopBudget;
use crate::storage::{Revision, WatchEvent};

pub use cached_object::{
    CachedObject, Encoding, EncodingCache, EncodingId, Representation, Retention, ServedId,
    SharedEncoding,
};
pub use cursor::{Cursor, CursorError};
pub use index::{IndexFn, IndexKey};
pub use reflector::Reflector;
pub use ring::{Change, HistoryLimits};
pub use snapshot::Snapshot;

use metrics::{CacheSize, CacherMetrics};
use reflector::ProgressTracker;
use ring::Ring;
pub use watchers::Interest;
use watchers::{PendingWakes, WatcherRegistry};

/// The maximum number of snapshots that are retained for the following pages of lists.
const MAX_PAGED_SNAPSHOTS: usize = 16;
/// The maximum number of events, and bytes of their values, that are buffered while a cache is
/// being filled. Beyond that the list has to be repeated.
const MAX_PENDING_EVENTS: usize = 100_000;
const MAX_PENDING_BYTES: usize = 64 << 20;

/// The cache of one resource: the keys below one prefix (upstream's `watchCache`).
pub struct Cacher {
    prefix: String,
    state: RwLock<State>,
    /// Recent snapshots that a page was served from: the next page has to come from the same one.
    paged: Mutex<VecDeque<Snapshot>>,
    progress: Arc<ProgressTracker>,
    /// The latest revision that this server wrote below the prefix.
    written: AtomicI64,
    metrics: OnceLock<CacherMetrics>,
}

struct State {
    phase: Phase,
    /// The current state. Its revision is that of the last change, or of the initial list.
    snapshot: Snapshot,
    ring: Ring,
    /// The revision of the list that the cache was filled from. Events up to it are duplicates.
    list_revision: Revision,
    /// Counts the restarts of the cache.
    epoch: u64,
    /// The first epoch after the store was last restored to an earlier state.
    restored_epoch: u64,
    watchers: WatcherRegistry,
}

enum Phase {
    /// The list is being read; events are buffered meanwhile.
    Filling {
        pending: PendingEvents,
        last_error: Option<String>,
    },
    Ready,
}

/// The events received since the list was requested.
#[derive(Default)]
struct PendingEvents {
    events: Vec<WatchEvent>,
    bytes: usize,
    /// Events were dropped because there were too many, or one came without its value.
    overflowed: bool,
}

impl PendingEvents {
    fn extend(&mut self, events: Vec<WatchEvent>) {
        let size = |event: &WatchEvent| match event {
            WatchEvent::Put { current, .. } => current.key.len() + current.value.len(),
            WatchEvent::Delete { key, .. } => key.len(),
            WatchEvent::Unread { .. } | WatchEvent::Progress(_) => 0,
        };
        self.bytes += events.iter().map(size).sum::<usize>();
        let is_unread = |event: &WatchEvent| matches!(event, WatchEvent::Unread { .. });
        self.overflowed |= events.iter().any(is_unread)
            || self.bytes > MAX_PENDING_BYTES
            || self.events.len() + events.len() > MAX_PENDING_EVENTS;
        if self.overflowed {
            (self.events, self.bytes) = (Vec::new(), 0);
        } else {
            self.events.extend(events);
        }
    }
}

impl std::fmt::Debug for Cacher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cacher({})", self.prefix)
    }
}

impl Cacher {
    fn new(
        prefix: &str,
        index: Option<IndexFn>,
        limits: HistoryLimits,
        progress: Arc<ProgressTracker>,
    ) -> Self {
        let state = State {
            phase: Phase::Filling {
                pending: PendingEvents::default(),
                last_error: None,
            },
            snapshot: Snapshot::new(index),
            ring: Ring::new(limits),
            list_revision: 0,
            epoch: 0,
            restored_epoch: 0,
            watchers: WatcherRegistry::default(),
        };
        Self {
            prefix: prefix.to_owned(),
            state: RwLock::new(state),
            paged: Mutex::default(),
            progress,
            written: AtomicI64::new(0),
            metrics: OnceLock::new(),
        }
    }

    /// Returns the prefix of its keys.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Names the resource that the cache is counted by. The first name stays.
    pub fn set_metrics(&self, group: &str, resource: &str) {
        self.metrics
            .get_or_init(|| CacherMetrics::new(group, resource));
    }

    /// The series that the cache is counted in, once it has a name.
    pub fn metrics(&self) -> Option<&CacherMetrics> {
        self.metrics.get()
    }

    /// Shows the size of the cache in its metrics.
    pub fn show_size(&self) {
        let Some(metrics) = self.metrics() else {
            return;
        };
        let synced = self.progress.revision();
        let size = {
            let state = self.state.read();
            let is_ready = matches!(state.phase, Phase::Ready);
            CacheSize {
                is_ready,
                revision: if is_ready {
                    state.snapshot.revision.max(synced)
                } else {
                    0
                },
                objects: state.snapshot.len(),
                changes: state.ring.len(),
                capacity: state.ring.capacity(),
            }
        };
        metrics.show(size);
    }

    /// Waits until the cache has reached a revision. Reports whether it has.
    async fn wait_until_fresh(&self, revision: Revision) -> bool {
        let Some(metrics) = self.metrics() else {
            return self.progress.wait_until_fresh(revision).await;
        };
        if self.progress.revision() >= revision {
            metrics.waited(Duration::ZERO);
            return true;
        }
        let begun = Instant::now();
        let is_fresh = self.progress.wait_until_fresh(revision).await;
        metrics.waited(begun.elapsed());
        is_fresh
    }

    /// Checks that the cache is filled.
    ///
    /// # Errors
    /// Returns the reason why it is not.
    pub fn ready(&self) -> Result<(), String> {
        match &self.state.read().phase {
            Phase::Ready => Ok(()),
            Phase::Filling {
                last_error: None, ..
            } => Err("not initialized yet".to_owned()),
            Phase::Filling {
                last_error: Some(why),
                ..
            } => Err(why.clone()),
        }
    }

    /// Returns the state that the cache has now, however old that is (a serializable read). `None`
    /// until the cache is filled.
    pub fn snapshot(&self) -> Option<Snapshot> {
        // Read first: the caches are updated before the progress is.
        let synced = self.progress.revision();
        let state = self.state.read();
        let mut snapshot = matches!(state.phase, Phase::Ready).then(|| state.snapshot.clone())?;
        snapshot.revision = snapshot.revision.max(synced);
        Some(snapshot)
    }

    /// Returns a state with every write acknowledged before the call (a linearizable read).
    /// `None` if the cache is not filled, or if the store does not report its progress reliably or
    /// in time.
    pub async fn linearizable_snapshot(&self) -> Option<Snapshot> {
        self.ready().ok().filter(|()| self.progress.is_reliable())?;
        let revision = self.progress.read_revision().await.ok()?;
        self.wait_until_fresh(revision)
            .await
            .then(|| self.snapshot())?
    }

    /// Returns a state that contains every write of this server ([`Cacher::record_write`]) and all
    /// events that it has seen. `None` if the cache is not filled or does not catch up in time.
    pub async fn read_your_writes(&self) -> Option<Snapshot> {
        self.ready().ok()?;
        self.progress
            .wait_until_fresh(self.written.load(Ordering::Acquire))
            .await
            .then(|| self.snapshot())?
    }

    /// Records that this server committed a write below the prefix at `revision`.
    pub fn record_write(&self, revision: Revision) {
        self.written.fetch_max(revision, Ordering::AcqRel);
    }

    /// Waits for a state that is not older than `revision`. `None` if the cache is not filled.
    ///
    /// # Errors
    /// Returns the revision that the cache has if it does not catch up in time.
    pub async fn snapshot_not_older_than(
        &self,
        revision: Revision,
    ) -> Result<Option<Snapshot>, Revision> {
        if self.ready().is_err() {
            return Ok(None);
        }
        match self.wait_until_fresh(revision).await {
            true => Ok(self.snapshot()),
            false => Err(self.progress.revision()),
        }
    }

    /// Returns the state at exactly `revision`: the current snapshot with the later changes
    /// reverted, which costs time in proportion to their number. `None` if the revision is older
    /// than the history, or in the future.
    pub async fn snapshot_at(&self, revision: Revision) -> Option<Snapshot> {
        if revision < self.progress.compact_revision() {
            return None;
        }
        if let Some(snapshot) = self
            .paged
            .lock()
            .iter()
            .find(|snapshot| snapshot.revision == revision)
        {
            return Some(snapshot.clone());
        }
        let synced = self.progress.revision();
        let (mut snapshot, changes) = {
            let state = self.state.read();
            if !matches!(state.phase, Phase::Ready)
                || revision > state.snapshot.revision.max(synced)
            {
                return None;
            }
            let changes: Vec<Arc<Change>> = state
                .ring
                .from(state.ring.position_after(revision)?)
                .cloned()
                .collect();
            (state.snapshot.clone(), changes)
        };
        // The first change of an object after the revision knows the state at the revision.
        let (mut seen, mut budget) = (HashSet::new(), CoopBudget::default());
        for change in &changes {
            if seen.insert(change.key()) {
                snapshot.undo(change);
            }
            budget.step().await;
        }
        snapshot.revision = revision;
        Some(snapshot)
    }

    /// Retains a snapshot that a page was served from, for the pages that follow.
    pub fn retain_snapshot(&self, snapshot: &Snapshot) {
        let oldest = self.state.read().ring.complete_after();
        let mut paged = self.paged.lock();
        paged.retain(|kept| kept.revision >= oldest && kept.revision != snapshot.revision);
        if paged.len() == MAX_PAGED_SNAPSHOTS {
            paged.pop_front();
        }
        paged.push_back(snapshot.clone());
    }

    /// Opens a cursor on the changes after the revision `after`, which may be in the future.
    ///
    /// # Errors
    /// [`CursorError::TooOld`] if the history does not go back that far, [`CursorError::Restarted`]
    /// if the cache is not filled.
    pub fn watch(
        self: &Arc<Self>,
        after: Revision,
        interest: Interest,
    ) -> Result<Cursor, CursorError> {
        let mut state = self.state.write();
        if !matches!(state.phase, Phase::Ready) {
            return Err(CursorError::Restarted);
        }
        let Some(position) = state.ring.position_after(after) else {
            return Err(CursorError::TooOld {
                requested: after,
                oldest: state.ring.complete_after(),
            });
        };
        // Any of the changes since may match.
        let pending = (position < state.ring.end()).then_some(position);
        let (waker, slot) = state.watchers.register(&interest, pending);
        let epoch = state.epoch;
        drop(state);
        Ok(Cursor {
            cacher: self.clone(),
            position,
            after,
            last_delivered: after,
            epoch,
            interest,
            waker,
            slot,
        })
    }

    /// Returns the revision up to which every event has been applied.
    pub fn synced_revision(&self) -> Revision {
        self.progress.revision()
    }

    /// Applies events of the store and wakes the cursors that they concern. Reports whether it
    /// could: if one came without its value, the cache is cleared and has to be filled again.
    #[must_use]
    fn apply(&self, events: Vec<WatchEvent>) -> bool {
        if let Some(metrics) = self.metrics() {
            metrics.received(events.len());
        }
        let unread = events.iter().find_map(|event| match event {
            WatchEvent::Unread { key, .. } => Some(key),
            _ => None,
        });
        if let Some(key) = unread
            && self.ready().is_ok()
        {
            self.restart(Some(&format!("{key} cannot be read")), false);
            return false;
        }
        self.apply_read(events);
        true
    }

    fn apply_read(&self, events: Vec<WatchEvent>) {
        let mut wakes = PendingWakes::default();
        let mut state = self.state.write();
        match &mut state.phase {
            Phase::Filling { pending, .. } => pending.extend(events),
            Phase::Ready => {
                let (first, now) = (state.ring.end(), Instant::now());
                let room = state.ring.capacity();
                for event in events {
                    state.apply(event, now, &mut wakes);
                }
                let changes = state.ring.end() - first;
                if let Some(metrics) = self.metrics() {
                    metrics.dispatched(changes);
                    if state.ring.capacity() > room {
                        metrics.grown();
                    }
                }
                if changes > 0 {
                    state
                        .watchers
                        .mark(&Interest::Everything, first, &mut wakes);
                }
            }
        }
        drop(state);
        wakes.wake_all();
    }

    /// Prepares for a list that is about to be requested: it will contain all earlier events.
    fn begin_filling(&self) {
        if let Phase::Filling { pending, .. } = &mut self.state.write().phase {
            *pending = PendingEvents::default();
        }
    }

    /// Fills the cache with the objects of a list and the events since. Reports whether it could:
    /// if events were dropped meanwhile, the list has to be repeated.
    fn fill(&self, list: Snapshot) -> bool {
        let mut state = self.state.write();
        let state = &mut *state;
        let pending = match &mut state.phase {
            Phase::Filling { pending, .. } if pending.overflowed => return false,
            Phase::Filling { pending, .. } => std::mem::take(&mut pending.events),
            Phase::Ready => Vec::new(),
        };
        state.phase = Phase::Ready;
        if let Some(metrics) = self.metrics() {
            metrics.filled();
        }
        state.ring.restart(list.revision);
        state.list_revision = list.revision;
        state.snapshot = list;
        // There are no cursors yet.
        let now = Instant::now();
        for event in pending {
            state.apply(event, now, &mut PendingWakes::default());
        }
        true
    }

    /// Returns an empty snapshot with the index of this cache.
    fn empty_snapshot(&self) -> Snapshot {
        self.state.read().snapshot.emptied()
    }

    /// Records why filling failed. Reports whether the reason is a new one.
    fn record_fill_error(&self, why: &str) -> bool {
        let mut state = self.state.write();
        let Phase::Filling { last_error, .. } = &mut state.phase else {
            return false;
        };
        let is_new = last_error.as_deref() != Some(why);
        *last_error = Some(why.to_owned());
        is_new
    }

    /// Clears the cache and ends all cursors; `restored` if the reason is that the store was
    /// restored to an earlier state.
    fn restart(&self, why: Option<&str>, restored: bool) {
        let mut state = self.state.write();
        state.phase = Phase::Filling {
            pending: PendingEvents::default(),
            last_error: why.map(str::to_owned),
        };
        if restored {
            state.restored_epoch = state.epoch + 1;
            self.written.store(0, Ordering::Release);
        }
        state.snapshot = state.snapshot.emptied();
        state.ring.restart(0);
        state.epoch += 1;
        let wakes = state.watchers.deregister_all();
        self.paged.lock().clear();
        drop(state);
        wakes.wake_all();
    }
}

impl State {
    fn apply(&mut self, event: WatchEvent, now: Instant, wakes: &mut PendingWakes) {
        let (revision, current, (previous, terms)) = match event {
            WatchEvent::Progress(_) | WatchEvent::Unread { .. } => return,
            WatchEvent::Put { current, .. } if current.mod_revision <= self.list_revision => return,
            WatchEvent::Delete { revision, .. } if revision <= self.list_revision => return,
            WatchEvent::Put { current, .. } => {
                let current = CachedObject::shared(current);
                let replaced = self.snapshot.put(current.clone());
                (current.mod_revision, Some(current), replaced)
            }
            WatchEvent::Delete { key, revision, .. } => match self.snapshot.remove(&key) {
                Some((previous, terms)) => (revision, None, (Some(previous), terms)),
                None => return,
            },
        };
        let change = Arc::new(Change::new(revision, current, previous));
        self.ring.push(change.clone(), now);
        self.mark_filtered(change.key(), terms, wakes);
        self.snapshot.revision = revision;
    }

    /// Marks the last change of the ring, one of the object `key` with the index keys `terms`
    /// before or after it, for the watchers with a matching filter.
    fn mark_filtered(&self, key: &str, terms: Vec<IndexKey>, wakes: &mut PendingWakes) {
        if !self.watchers.has_filtered_watchers() {
            return;
        }
        let position = self.ring.end() - 1;
        self.watchers
            .mark(&Interest::Key(key.into()), position, wakes);
        for term in terms {
            self.watchers
                .mark(&Interest::Indexed(term), position, wakes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::storage::Stored;
    use crate::storage::embedded::Embedded;

    fn put(key: usize, revision: Revision, value: &Bytes) -> WatchEvent {
        let current = Stored {
            key: format!("/{key}"),
            value: value.clone(),
            create_revision: 1,
            mod_revision: revision,
        };
        WatchEvent::Put {
            current,
            previous: None,
        }
    }

    /// Reruns a cache over an unused store, and the directory of the store.
    fn cacher(index: Option<IndexFn>) -> (Arc<Cacher>, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let storage = Arc::new(Embedded::open(folder.path()).expect("a store"));
        (
            Arc::new(Cacher::new(
                "/",
                index,
                HistoryLimits::default(),
                Arc::new(ProgressTracker::new(storage)),
            )),
            folder,
        )
    }

    fn filled(index: Option<IndexFn>) -> (Arc<Cacher>, tempfile::TempDir) {
        let (cacher, folder) = cacher(index);
        let mut empty = cacher.empty_snapshot();
        empty.revision = 1;
        assert!(cacher.fill(empty) && cacher.ready().is_ok());
        (cacher, folder)
    }

    #[tokio::test]
    async fn events_pending_during_a_fill_are_bounded() {
        let (cacher, _folder) = cacher(None);
        let value = Bytes::from(vec![0; 1 << 20]);
        let _ = cacher.apply((0..10).map(|n| put(n, n as Revision + 2, &value)).collect());
        // The list failed: the next one will contain all of this.
        cacher.begin_filling();
        assert!(
            matches!(&cacher.state.read().phase, Phase::Filling { pending, .. } if pending.events.is_empty() && pending.bytes == 0)
        );
        for n in 0..2 * MAX_PENDING_BYTES / value.len() {
            let _ = cacher.apply(vec![put(n, n as Revision + 2, &value)]);
            let state = cacher.state.read();
            let Phase::Filling { pending, .. } = &state.phase else {
                panic!("nothing filled the cache")
            };
            assert!(pending.events.len() * value.len() <= MAX_PENDING_BYTES);
        }
        assert!(
            !cacher.fill(cacher.empty_snapshot()),
            "events after the list are missing"
        );
        let _ = cacher.apply(
            (0..=MAX_PENDING_EVENTS)
                .map(|n| put(n, 200, &Bytes::new()))
                .collect(),
        );
        assert!(
            !cacher.fill(cacher.empty_snapshot()),
            "too many events are missing as well"
        );
        cacher.begin_filling();
        assert!(cacher.fill(cacher.empty_snapshot()) && cacher.ready().is_ok());
    }

    #[tokio::test]
    async fn cursors_report_that_the_store_was_restored() {
        for (restored, ended) in [
            (true, CursorError::Restored { requested: 1 }),
            (false, CursorError::Restarted),
        ] {
            let (cacher, _folder) = filled(None);
            let mut cursor = cacher.watch(1, Interest::Everything).expect("it is filled");
            cacher.record_write(100);
            cacher.restart(None, restored);
            assert_eq!(cursor.next().await.expect_err("it ends"), ended);
            assert_eq!(
                cacher.written.load(Ordering::Acquire),
                if restored { 0 } else { 100 }
            );
        }
    }

    /// Rebuilding an old state takes time in proportion to the changes to revert.
    #[tokio::test]
    async fn other_tasks_run_while_an_old_snapshot_is_rebuilt() {
        const CHANGES: usize = 2000;
        let slow: IndexFn = Arc::new(|_, _| {
            let end = Instant::now() + Duration::from_micros(20);
            while Instant::now() < end {}
            true
        });
        let (cacher, _folder) = filled(Some(slow));
        let _ = cacher.apply(
            (0..CHANGES)
                .map(|n| put(n, n as Revision + 2, &Bytes::new()))
                .collect(),
        );
        let runs = Arc::new(AtomicI64::new(0));
        let counted = runs.clone();
        let other = tokio::spawn(async move {
            loop {
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        let old = cacher
            .snapshot_at(1)
            .await
            .expect("the history is complete");
        assert!(old.is_empty() && old.revision == 1);
        assert!(
            runs.load(Ordering::Relaxed) > 3,
            "no other task ran: {runs:?}"
        );
        other.abort();
    }
}
