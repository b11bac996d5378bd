//! The watch cache: the present state of each resource and its latest changes, in memory. Knows
//! [`Storage`], not which one, and keys and bytes, not objects.
//!
//! - [`Reflector`]: one watch of a store, which keeps all of its [`Cacher`]s up to date and tells
//!   how far they have come.
//! - [`Cacher`]: one resource: a [`Snapshot`] that is cloned in no time, and a [`ring`] of changes.
//! - [`Cursor`]: one who follows the changes. It costs its position in the ring and nothing else.
//!
//! What a snapshot cannot answer (a revision before the ring, a cache that is not filled) is for
//! the store to answer.

mod watchers;
mod cursor;
mod reflector;
mod progress;
mod index;
mod ring;
mod snapshot;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::base::coop::CoopBudget;
use crate::storage::{Revision, WatchEvent};

pub use cursor::{Cursor, CursorError, Interest};
pub use index::{IndexFn, IndexKey};
pub use reflector::Reflector;
pub use ring::{Change, HistoryLimits};
pub use snapshot::Snapshot;

use reflector::ProgressTracker;
use ring::Ring;
use watchers::{PendingWakes, WatcherRegistry};

/// Snapshots that are kept for the next page of a list, at most.
const PAGED_SNAPSHOTS: usize = 16;
/// Changes, and bytes of their values, that wait at most for a cache to be filled. Beyond that it
/// has to be read again.
const FILLING_CHANGES: usize = 100_000;
const FILLING_BYTES: usize = 64 << 20;

/// The cache of one resource: the keys below one prefix.
pub struct Cacher {
    prefix: String,
    state: RwLock<State>,
    /// The latest snapshots of which a page was served: the next page needs the same.
    paged: Mutex<VecDeque<Snapshot>>,
    reached: Arc<ProgressTracker>,
    /// The latest revision that this server wrote here.
    written: AtomicI64,
}

struct State {
    phase: Phase,
    /// What stands now. Its revision is that of the last change (or of the list that it began
    /// with).
    snapshot: Snapshot,
    ring: Ring,
    /// What happened up to this revision was in the list that the cache began with.
    list_revision: Revision,
    /// Counts how often the cache began anew.
    epoch: u64,
    /// Which of these times was the last that the store was restored to an earlier state.
    restored: u64,
    watchers: WatcherRegistry,
}

enum Phase {
    /// Not filled yet; changes wait until it is. Why it takes so long, if something is wrong.
    Filling {
        waiting: Waiting,
        trouble: Option<String>,
    },
    Ready,
}

/// The changes since a list was asked for.
#[derive(Default)]
struct Waiting {
    changes: Vec<WatchEvent>,
    bytes: usize,
    /// There were more than are kept.
    overflown: bool,
}

impl Waiting {
    fn extend(&mut self, events: Vec<WatchEvent>) {
        let size = |event: &WatchEvent| match event {
            WatchEvent::Put { current, .. } => current.key.len() + current.value.len(),
            WatchEvent::Delete { key, .. } => key.len(),
            WatchEvent::Progress(_) => 0,
        };
        self.bytes += events.iter().map(size).sum::<usize>();
        self.overflown |=
            self.bytes > FILLING_BYTES || self.changes.len() + events.len() > FILLING_CHANGES;
        if self.overflown {
            (self.changes, self.bytes) = (Vec::new(), 0);
        } else {
            self.changes.extend(events);
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
        reached: Arc<ProgressTracker>,
    ) -> Self {
        let state = State {
            phase: Phase::Filling {
                waiting: Waiting::default(),
                trouble: None,
            },
            snapshot: Snapshot::new(index),
            ring: Ring::new(limits),
            list_revision: 0,
            epoch: 0,
            restored: 0,
            watchers: WatcherRegistry::default(),
        };
        Self {
            prefix: prefix.to_owned(),
            state: RwLock::new(state),
            paged: Mutex::default(),
            reached,
            written: AtomicI64::new(0),
        }
    }

    /// The keys it holds begin with this.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether it can answer; the error says why not.
    pub fn ready(&self) -> Result<(), String> {
        match &self.state.read().phase {
            Phase::Ready => Ok(()),
            Phase::Filling { trouble: None, .. } => Err("not initialized yet".to_owned()),
            Phase::Filling {
                trouble: Some(why), ..
            } => Err(why.clone()),
        }
    }

    /// What is known now, however old that is. `None` until the cache is filled.
    pub fn snapshot(&self) -> Option<Snapshot> {
        // Holds.
        let reached = self.reached.revision();
        let state = self.state.read();
        let mut snapshot = matches!(state.phase, Phase::Ready).then(|| state.snapshot.clone())?;
        snapshot.revision = snapshot.revision.max(reached);
        Some(snapshot)
    }

    /// Everything as it is now: every write that was acknowledged before the call is in it. `None`
    /// where the cache cannot tell: it is not filled, or the store does not say in time (or not
    /// reliably) how far it is.
    pub async fn linearizable_snapshot(&self) -> Option<Snapshot> {
        self.ready().ok().filter(|()| self.reached.is_reliable())?;
        let revision = self.reached.latest().await.ok()?;
        self.reached
            .wait_for(revision)
            .await
            .then(|| self.snapshot())?
    }

    /// Everything that this server knows: what it has seen, and every write that it made itself
    /// ([`Cacher::record_write`]). `None` where that cannot be had.
    pub async fn read_your_writes(&self) -> Option<Snapshot> {
        self.ready().ok()?;
        self.reached
            .wait_for(self.written.load(Ordering::Acquire))
            .await
            .then(|| self.snapshot())?
    }

    /// A write of this server below the prefix was done at `revision`.
    pub fn record_write(&self, revision: Revision) {
        self.written.fetch_max(revision, Ordering::AcqRel);
    }

    /// A state that is no older than `revision`, as soon as there is one. The error is the newest
    /// revision that can be had, where it does not come in time; `None` inside where the cache is
    /// not filled.
    pub async fn snapshot_not_older_than(
        &self,
        revision: Revision,
    ) -> Result<Option<Snapshot>, Revision> {
        if self.ready().is_err() {
            return Ok(None);
        }
        match self.reached.wait_for(revision).await {
            true => Ok(self.snapshot()),
            false => Err(self.reached.revision()),
        }
    }

    /// The state at exactly `revision`. `None` where that is before what the cache remembers, or
    /// has not come yet. It takes as long as there are objects that have changed since, and others
    /// run meanwhile.
    pub async fn snapshot_at(&self, revision: Revision) -> Option<Snapshot> {
        if revision < self.reached.oldest() {
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
        let reached = self.reached.revision();
        let (mut snapshot, changes) = {
            let state = self.state.read();
            if !matches!(state.phase, Phase::Ready)
                || revision > state.snapshot.revision.max(reached)
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
        // What the first change of an object found is what stood then.
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

    /// Keeps a snapshot of which a page was served, for the pages that follow.
    pub fn retain_snapshot(&self, snapshot: &Snapshot) {
        let oldest = self.state.read().ring.complete_after();
        let mut paged = self.paged.lock();
        paged.retain(|kept| kept.revision >= oldest && kept.revision != snapshot.revision);
        if paged.len() == PAGED_SNAPSHOTS {
            paged.pop_front();
        }
        paged.push_back(snapshot.clone());
    }

    /// Follows the changes after the revision `after`, which may be in the future.
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
        // What happened since may concern it.
        let pending = (position < state.ring.end()).then_some(position);
        let (waker, place) = state.watchers.register(&interest, pending);
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
            place,
        })
    }

    /// How far the reflector has come: everything up to this revision has been delivered.
    pub fn reached(&self) -> Revision {
        self.reached.revision()
    }

    /// Takes changes in. Those who follow are woken.
    fn apply(&self, events: Vec<WatchEvent>) {
        let mut wakes = PendingWakes::default();
        let mut state = self.state.write();
        match &mut state.phase {
            Phase::Filling { waiting, .. } => waiting.extend(events),
            Phase::Ready => {
                let first = state.ring.end();
                events
                    .into_iter()
                    .for_each(|event| state.apply(event, &mut wakes));
                if state.ring.end() > first {
                    state
                        .watchers
                        .remember(&Interest::Everything, first, &mut wakes);
                }
            }
        }
        drop(state);
        wakes.ring();
    }

    /// A list is about to be asked for: it will have everything that was told before.
    fn begin_filling(&self) {
        if let Phase::Filling { waiting, .. } = &mut self.state.write().phase {
            *waiting = Waiting::default();
        }
    }

    /// Begins with the objects of a list. Not where changes since are missing: then it has to be
    /// read again.
    fn fill(&self, filled: Snapshot) -> bool {
        let mut state = self.state.write();
        let state = &mut *state;
        let waiting = match &mut state.phase {
            Phase::Filling { waiting, .. } if waiting.overflown => return false,
            Phase::Filling { waiting, .. } => std::mem::take(&mut waiting.changes),
            Phase::Ready => Vec::new(),
        };
        state.phase = Phase::Ready;
        state.ring.restart(filled.revision);
        state.list_revision = filled.revision;
        state.snapshot = filled;
        // Nobody follows what is not filled.
        waiting
            .into_iter()
            .for_each(|event| state.apply(event, &mut PendingWakes::default()));
        true
    }

    /// An empty state that is indexed as this one is.
    fn empty(&self) -> Snapshot {
        self.state.read().snapshot.emptied()
    }

    /// Says why it is not filled yet. Whether that is news.
    fn troubled(&self, why: &str) -> bool {
        let mut state = self.state.write();
        let Phase::Filling { trouble, .. } = &mut state.phase else {
            return false;
        };
        let news = trouble.as_deref() != Some(why);
        *trouble = Some(why.to_owned());
        news
    }

    /// Forgets everything and ends all who follow. `restored`: the store was restored to an
    /// earlier state.
    fn restart(&self, why: Option<&str>, restored: bool) {
        let mut state = self.state.write();
        state.phase = Phase::Filling {
            waiting: Waiting::default(),
            trouble: why.map(str::to_owned),
        };
        if restored {
            state.restored = state.epoch + 1;
            self.written.store(0, Ordering::Release);
        }
        state.snapshot = state.snapshot.emptied();
        state.ring.restart(0);
        state.epoch += 1;
        let wakes = state.watchers.deregister_all();
        self.paged.lock().clear();
        drop(state);
        wakes.ring();
    }
}

impl State {
    fn apply(&mut self, event: WatchEvent, wakes: &mut PendingWakes) {
        let (revision, current, (previous, terms)) = match event {
            WatchEvent::Progress(_) => return,
            WatchEvent::Put { current, .. } if current.mod_revision <= self.list_revision => return,
            WatchEvent::Delete { revision, .. } if revision <= self.list_revision => return,
            WatchEvent::Put { current, .. } => {
                let current = Arc::new(current);
                let replaced = self.snapshot.put(current.clone());
                (current.mod_revision, Some(current), replaced)
            }
            WatchEvent::Delete { key, revision, .. } => match self.snapshot.remove(&key) {
                Some((previous, terms)) => (revision, None, (Some(previous), terms)),
                None => return,
            },
        };
        let change = Arc::new(Change {
            revision,
            current,
            previous,
        });
        self.ring.push(change.clone());
        self.remember(change.key(), terms, wakes);
        self.snapshot.revision = revision;
    }

    /// Remembers the last change of the ring, one of `key` with `terms` before or after it, for
    /// those who follow changes like this one, but not for those who follow all.
    fn remember(&self, key: &str, terms: Vec<IndexKey>, wakes: &mut PendingWakes) {
        if !self.watchers.has_filtered_watchers() {
            return;
        }
        let number = self.ring.end() - 1;
        self.watchers
            .remember(&Interest::Key(key.into()), number, wakes);
        terms.into_iter().for_each(|term| {
            self.watchers
                .remember(&Interest::Indexed(term), number, wakes)
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

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

    /// A cache over a store that nobody uses, and the folder of that.
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
        let mut empty = cacher.empty();
        empty.revision = 1;
        assert!(cacher.fill(empty) && cacher.ready().is_ok());
        (cacher, folder)
    }

    #[tokio::test]
    async fn what_waits_for_a_fill_is_bounded_and_not_kept_for_the_next() {
        let (cacher, _folder) = cacher(None);
        let value = Bytes::from(vec![0; 1 << 20]);
        cacher.apply((0..10).map(|n| put(n, n as Revision + 2, &value)).collect());
        // The list failed: the next one will have all of this.
        cacher.begin_filling();
        assert!(
            matches!(&cacher.state.read().phase, Phase::Filling { waiting, .. } if waiting.changes.is_empty() && waiting.bytes == 0)
        );
        for n in 0..2 * FILLING_BYTES / value.len() {
            cacher.apply(vec![put(n, n as Revision + 2, &value)]);
            let state = cacher.state.read();
            let Phase::Filling { waiting, .. } = &state.phase else {
                panic!("filled by nobody")
            };
            assert!(waiting.changes.len() * value.len() <= FILLING_BYTES);
        }
        assert!(
            !cacher.fill(cacher.empty()),
            "changes behind the list are missing"
        );
        cacher.apply(
            (0..=FILLING_CHANGES)
                .map(|n| put(n, 200, &Bytes::new()))
                .collect(),
        );
        assert!(!cacher.fill(cacher.empty()), "too many are missing as well");
        cacher.begin_filling();
        assert!(cacher.fill(cacher.empty()) && cacher.ready().is_ok());
    }

    #[tokio::test]
    async fn who_follows_a_store_that_was_restored_is_told_so() {
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

    /// The rebuilding of an old state takes as long as there are changes to take back; other tasks
    /// do not wait for its end.
    #[tokio::test]
    async fn others_run_while_an_old_state_is_made() {
        const CHANGES: usize = 2000;
        let slow: IndexFn = Arc::new(|_, _| {
            let end = Instant::now() + Duration::from_micros(20);
            while Instant::now() < end {}
            true
        });
        let (cacher, _folder) = filled(Some(slow));
        cacher.apply(
            (0..CHANGES)
                .map(|n| put(n, n as Revision + 2, &Bytes::new()))
                .collect(),
        );
        let turns = Arc::new(AtomicI64::new(0));
        let counted = turns.clone();
        let other = tokio::spawn(async move {
            loop {
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        let old = cacher
            .snapshot_at(1)
            .await
            .expect("the cache remembers all");
        assert!(old.is_empty() && old.revision == 1);
        assert!(
            turns.load(Ordering::Relaxed) > 3,
            "nobody else ran: {turns:?}"
        );
        other.abort();
    }
}
