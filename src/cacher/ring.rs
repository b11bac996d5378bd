//! The recent changes of one resource, shared by all of its cursors (the cyclic buffer of
//! upstream's `watchCache`).

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::storage::Revision;

use super::cached_object::CachedObject;

/// The time for which changes are kept if the limits allow it (apiserver `storage/cacher`:
/// `DefaultEventFreshDuration`), so that a watch can resume after a short interruption.
const FRESH_DURATION: Duration = Duration::from_secs(75);
/// The maximum number of changes of one resource that are kept (apiserver:
/// `defaultUpperBoundCapacity`).
const MAX_CHANGES: usize = 100 * 1024;
/// The maximum number of bytes of superseded values of one resource that are kept while they are
/// fresh: enough for 50 updates of 15 KiB per second.
const MAX_FRESH_BYTES: usize = 64 << 20;
/// The maximum number of bytes of superseded values of one resource that are kept beyond
/// [`FRESH_DURATION`].
const MAX_STALE_BYTES: usize = 12 << 20;
/// The fewest changes that are kept, however large they are.
const MIN_CHANGES: usize = 64;

/// The limits of the history of one resource. Only superseded values count as bytes: current ones
/// are in memory anyway.
#[derive(Clone, Copy, Debug)]
pub struct HistoryLimits {
    /// The maximum number of changes of any age.
    pub changes: usize,
    /// The maximum number of bytes of superseded values.
    pub bytes: usize,
    /// The maximum number of bytes of superseded values while the oldest change is older than
    /// `fresh`.
    pub stale_bytes: usize,
    /// The age up to which a change counts as fresh.
    pub fresh: Duration,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self {
            changes: MAX_CHANGES,
            bytes: MAX_FRESH_BYTES,
            stale_bytes: MAX_STALE_BYTES,
            fresh: FRESH_DURATION,
        }
    }
}

/// A change of one object (upstream: `watchCacheEvent`).
#[derive(Debug)]
pub struct Change {
    pub revision: Revision,
    /// The object after the change; `None` if it was deleted.
    pub current: Option<Arc<CachedObject>>,
    /// The object before the change; `None` if it was created.
    pub previous: Option<Arc<CachedObject>>,
    /// The previous object as a DELETED event shows it.
    deleted: OnceLock<Arc<CachedObject>>,
}

impl Change {
    /// The change at a revision from one state of an object to another.
    pub fn new(
        revision: Revision,
        current: Option<Arc<CachedObject>>,
        previous: Option<Arc<CachedObject>>,
    ) -> Self {
        Self {
            revision,
            current,
            previous,
            deleted: OnceLock::new(),
        }
    }

    /// Returns the previous object at the revision of the change, as a DELETED event shows it. All
    /// watches share one.
    pub fn deleted(&self) -> Option<&Arc<CachedObject>> {
        let previous = self.previous.as_ref()?;
        Some(
            self.deleted
                .get_or_init(|| previous.deleted_at(self.revision)),
        )
    }

    /// Returns the key of the object.
    pub fn key(&self) -> &str {
        self.current
            .as_ref()
            .or(self.previous.as_ref())
            .map_or("", |stored| &stored.key)
    }

    fn superseded_bytes(&self) -> usize {
        self.previous
            .as_ref()
            .map_or(0, |stored| stored.value.len())
    }
}

/// A change and when it arrived.
#[derive(Debug)]
struct Entry {
    change: Arc<Change>,
    recorded: Instant,
}

/// The recent changes in order. Each has a position; positions are dense and never change.
#[derive(Debug)]
pub struct Ring {
    limits: HistoryLimits,
    changes: VecDeque<Entry>,
    /// The position of the oldest change.
    first: u64,
    /// No change after this revision is missing.
    complete_after: Revision,
    superseded_bytes: usize,
}

impl Ring {
    pub fn new(limits: HistoryLimits) -> Self {
        Self {
            limits,
            changes: VecDeque::new(),
            first: 0,
            complete_after: 0,
            superseded_bytes: 0,
        }
    }

    /// Drops all changes; the next ones come after `revision`. Positions continue.
    pub fn restart(&mut self, revision: Revision) {
        self.first = self.end();
        self.changes.clear();
        self.superseded_bytes = 0;
        self.complete_after = revision;
    }

    /// Appends a change that arrived at `now`, and evicts old changes beyond the limits.
    pub fn push(&mut self, change: Arc<Change>, now: Instant) {
        self.superseded_bytes += change.superseded_bytes();
        self.changes.push_back(Entry {
            change,
            recorded: now,
        });
        while self.is_over_limit(now)
            && let Some(Entry { change, .. }) = self.changes.pop_front()
        {
            self.first += 1;
            self.superseded_bytes -= change.superseded_bytes();
            self.complete_after = change.revision;
        }
    }

    /// Reports whether the oldest change has to be evicted.
    fn is_over_limit(&self, now: Instant) -> bool {
        let limits = &self.limits;
        if self.changes.len() > limits.changes {
            return true;
        }
        let is_fresh = self
            .changes
            .front()
            .is_some_and(|oldest| now.saturating_duration_since(oldest.recorded) < limits.fresh);
        let max_bytes = if is_fresh {
            limits.bytes
        } else {
            limits.stale_bytes
        };
        self.superseded_bytes > max_bytes && self.changes.len() > MIN_CHANGES
    }

    /// Returns the number of changes.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Returns the number of changes that there is room for without more memory.
    pub fn capacity(&self) -> usize {
        self.changes.capacity()
    }

    /// Returns the position of the oldest change.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Returns the position that the next change will have.
    pub fn end(&self) -> u64 {
        self.first + self.changes.len() as u64
    }

    /// Returns the revision after which no change is missing.
    pub fn complete_after(&self) -> Revision {
        self.complete_after
    }

    /// Returns the position of the first change after `revision`; `None` if changes after it have
    /// been evicted.
    pub fn position_after(&self, revision: Revision) -> Option<u64> {
        (revision >= self.complete_after).then(|| {
            self.first
                + self
                    .changes
                    .partition_point(|entry| entry.change.revision <= revision)
                    as u64
        })
    }

    /// Returns the changes from `position` on.
    pub fn from(&self, position: u64) -> impl DoubleEndedIterator<Item = &Arc<Change>> {
        let offset = usize::try_from(position.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let newer = self.changes.range(offset.min(self.changes.len())..);
        newer.map(|entry| &entry.change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Stored;

    fn change(revision: Revision, previous: usize) -> Arc<Change> {
        let stored = |len| {
            Arc::from(Stored {
                key: "/a".into(),
                value: vec![0; len].into(),
                create_revision: 1,
                mod_revision: revision,
            })
        };
        Arc::new(Change::new(
            revision,
            Some(stored(1)),
            (previous > 0).then(|| stored(previous)),
        ))
    }

    const LIMITS: HistoryLimits = HistoryLimits {
        changes: 1000,
        bytes: 100_000,
        stale_bytes: 20_000,
        fresh: FRESH_DURATION,
    };

    #[test]
    fn the_oldest_changes_are_evicted_when_superseded_values_grow_too_large() {
        let (mut ring, now) = (Ring::new(LIMITS), Instant::now());
        ring.restart(10);
        for revision in 11..=211 {
            ring.push(change(revision, LIMITS.bytes / 100), now);
        }
        assert_eq!(
            (ring.first(), ring.end(), ring.complete_after()),
            (101, 201, 111)
        );
        assert_eq!(
            ring.position_after(110),
            None,
            "the change at 111 has been evicted"
        );
        assert_eq!(ring.position_after(111), Some(101));
        assert_eq!(ring.position_after(500), Some(201));
        assert_eq!(
            ring.from(199)
                .map(|change| change.revision)
                .collect::<Vec<_>>(),
            [210, 211]
        );
    }

    #[test]
    fn created_objects_cost_no_bytes_and_some_large_changes_are_always_kept() {
        let (mut ring, now) = (Ring::new(LIMITS), Instant::now());
        for revision in 1..=1001 {
            ring.push(change(revision, 0), now);
        }
        assert_eq!(ring.end() - ring.first(), 1000);
        for revision in 1002..=1100 {
            ring.push(change(revision, LIMITS.bytes), now);
        }
        assert_eq!(ring.end() - ring.first(), MIN_CHANGES as u64);
    }

    #[test]
    fn changes_are_kept_while_they_are_fresh() {
        let (mut ring, start) = (Ring::new(LIMITS), Instant::now());
        for revision in 1..=99 {
            ring.push(change(revision, LIMITS.bytes / 100), start);
        }
        let just_fresh = start + FRESH_DURATION - Duration::from_millis(1);
        ring.push(change(100, 1), just_fresh);
        assert_eq!(ring.first(), 0, "a minute old, and within the limit");
        ring.push(change(101, 1), start + FRESH_DURATION);
        assert!(
            ring.superseded_bytes <= LIMITS.stale_bytes || ring.changes.len() == MIN_CHANGES,
            "stale changes have a smaller limit"
        );
        assert!(ring.first() > 0 && ring.position_after(100).is_some());
    }
}
