//! The number and size of the stored objects of each resource, as they were last counted (apiserver
//! `util/flowcontrol/request/object_count_tracker.go`).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::RwLock;

/// The age at which a count is no longer believed: objects are counted every minute.
const STALE_AFTER: Duration = Duration::from_secs(3 * 60);
/// The age at which the resource is taken to be gone.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60 * 60);

/// Objects of a resource and their average size in bytes, 0 if that is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    pub objects: u64,
    pub average_bytes: u64,
}

/// The outcome of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    Known(Stats),
    /// The store has not answered for a while.
    Stale,
    Unknown,
}

/// The counts by group and plural.
#[derive(Debug, Default)]
pub struct ObjectCounts(RwLock<HashMap<(String, String), (Stats, Instant)>>);

impl ObjectCounts {
    /// Notes a count, and forgets those that nobody has renewed for long.
    pub fn set(&self, now: Instant, group: &str, resource: &str, stats: Stats) {
        let mut all = self.0.write();
        all.insert((group.to_owned(), resource.to_owned()), (stats, now));
        all.retain(|_, (_, at)| now.saturating_duration_since(*at) < FORGOTTEN_AFTER);
    }

    pub fn get(&self, now: Instant, group: &str, resource: &str) -> Counted {
        let key = (group.to_owned(), resource.to_owned());
        match self.0.read().get(&key) {
            None => Counted::Unknown,
            Some((_, at)) if now.saturating_duration_since(*at) > STALE_AFTER => Counted::Stale,
            Some((stats, _)) => Counted::Known(*stats),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_grow_old_and_are_forgotten() {
        let (counts, begin) = (ObjectCounts::default(), Instant::now());
        let at = |minutes: u64| begin + Duration::from_secs(60 * minutes);
        let stats = Stats {
            objects: 3,
            average_bytes: 100,
        };
        counts.set(begin, "apps", "deployments", stats);
        for (minutes, counted) in [
            (0, Counted::Known(stats)),
            (3, Counted::Known(stats)),
            (4, Counted::Stale),
        ] {
            assert_eq!(counts.get(at(minutes), "apps", "deployments"), counted);
        }
        assert_eq!(counts.get(begin, "", "deployments"), Counted::Unknown);
        counts.set(at(61), "", "pods", stats);
        assert_eq!(counts.get(at(61), "apps", "deployments"), Counted::Unknown);
    }
}
