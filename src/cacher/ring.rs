//! The latest changes of one resource, in memory that all who follow it share.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use crate::storage::Revision;

use super::cached_object::CachedObject;

/// What a ring keeps at most.
#[derive(Clone, Copy, Debug)]
pub struct HistoryLimits {
    pub changes: usize,
    /// Bytes of values that are superseded (those that stand are in memory anyway).
    pub superseded_bytes: usize,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self {
            changes: 100_000,
            superseded_bytes: 12 << 20,
        }
    }
}

/// So many are kept however large they are.
const MIN_CHANGES: usize = 64;

/// One change of one object.
#[derive(Debug)]
pub struct Change {
    pub revision: Revision,
    /// What stands now; `None` if the object went.
    pub current: Option<Arc<CachedObject>>,
    /// What stood before; `None` if the object is new.
    pub previous: Option<Arc<CachedObject>>,
    /// What stood before, as those are told who see it deleted.
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

    /// What stood before, at the revision of the change: the same for all who see it deleted.
    pub fn deleted(&self) -> Option<&Arc<CachedObject>> {
        let previous = self.previous.as_ref()?;
        Some(
            self.deleted
                .get_or_init(|| previous.deleted_at(self.revision)),
        )
    }

    /// The key of the object.
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

/// The changes, numbered in the order they happened. The number of a change never changes.
#[derive(Debug)]
pub struct Ring {
    limits: HistoryLimits,
    changes: VecDeque<Arc<Change>>,
    /// The number of the oldest change that is kept.
    first: u64,
    /// Everything that happened after this revision is here.
    complete_after: Revision,
    superseded: usize,
}

impl Ring {
    pub fn new(limits: HistoryLimits) -> Self {
        Self {
            limits,
            changes: VecDeque::new(),
            first: 0,
            complete_after: 0,
            superseded: 0,
        }
    }

    /// Forgets everything; what comes happened after `revision`. Numbers go on.
    pub fn restart(&mut self, revision: Revision) {
        self.first = self.end();
        self.changes.clear();
        self.superseded = 0;
        self.complete_after = revision;
    }

    pub fn push(&mut self, change: Arc<Change>) {
        self.superseded += change.superseded_bytes();
        self.changes.push_back(change);
        let HistoryLimits {
            changes,
            superseded_bytes,
        } = self.limits;
        while self.changes.len() > changes
            || (self.superseded > superseded_bytes && self.changes.len() > MIN_CHANGES)
        {
            let Some(gone) = self.changes.pop_front() else {
                return;
            };
            self.first += 1;
            self.superseded -= gone.superseded_bytes();
            self.complete_after = gone.revision;
        }
    }

    /// The number of the oldest change that is kept.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The number that the next change will have.
    pub fn end(&self) -> u64 {
        self.first + self.changes.len() as u64
    }

    /// The revision after which no change is missing.
    pub fn complete_after(&self) -> Revision {
        self.complete_after
    }

    /// The number of the first change after `revision`; `None` if changes after it are forgotten.
    pub fn position_after(&self, revision: Revision) -> Option<u64> {
        (revision >= self.complete_after).then(|| {
            self.first
                + self
                    .changes
                    .partition_point(|change| change.revision <= revision) as u64
        })
    }

    /// The changes from the number `position` on.
    pub fn from(&self, position: u64) -> impl DoubleEndedIterator<Item = &Arc<Change>> {
        self.changes.range(
            usize::try_from(position.saturating_sub(self.first))
                .unwrap_or(usize::MAX)
                .min(self.changes.len())..,
        )
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

    #[test]
    fn it_forgets_the_oldest_when_what_is_superseded_grows_too_large() {
        let limits = HistoryLimits {
            superseded_bytes: 100_000,
            ..HistoryLimits::default()
        };
        let mut ring = Ring::new(limits);
        ring.restart(10);
        for revision in 11..=211 {
            ring.push(change(revision, limits.superseded_bytes / 100));
        }
        assert_eq!(
            (ring.first(), ring.end(), ring.complete_after()),
            (101, 201, 111)
        );
        assert_eq!(
            ring.position_after(110),
            None,
            "what happened at 111 is forgotten"
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
    fn new_objects_cost_nothing_and_large_ones_leave_some() {
        let limits = HistoryLimits {
            superseded_bytes: 100_000,
            changes: 1000,
        };
        let mut ring = Ring::new(limits);
        for revision in 1..=1001 {
            ring.push(change(revision, 0));
        }
        assert_eq!(ring.end() - ring.first(), 1000);
        for revision in 1002..=1100 {
            ring.push(change(revision, limits.superseded_bytes));
        }
        assert_eq!(ring.end() - ring.first(), MIN_CHANGES as u64);
    }
}
