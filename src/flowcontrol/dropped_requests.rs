//! The time after which rejected requests are told to come again: longer where many are rejected
//! (apiserver `util/flowcontrol/dropped_requests_tracker.go`).

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;

/// The longest time, in seconds.
const MAX_RETRY_AFTER: u64 = 32;

/// The rejections of each level.
#[derive(Debug, Default)]
pub struct DroppedRequests(Mutex<HashMap<String, Drops>>);

impl DroppedRequests {
    /// Notes a rejection in some second, and returns the value of its Retry-After in seconds.
    pub fn record(&self, second: u64, level: &str) -> u64 {
        let mut levels = self.0.lock();
        match levels.get_mut(level) {
            Some(drops) => drops.record(second),
            None => levels
                .entry(level.to_owned())
                .or_insert_with(|| Drops::new(second))
                .record(second),
        }
    }
}

/// The rejections of one level.
#[derive(Debug)]
struct Drops {
    /// Seconds with rejections, and how many; the last is the present one.
    history: VecDeque<(u64, u64)>,
    retry_after: u64,
    /// The second in which it was last made longer.
    raised: u64,
}

impl Drops {
    fn new(second: u64) -> Self {
        Self {
            history: VecDeque::from([(second, 0)]),
            retry_after: 1,
            raised: 0,
        }
    }

    fn record(&mut self, second: u64) -> u64 {
        if let Some((at, count)) = self.history.back_mut()
            && *at == second
        {
            *count += 1;
            return self.retry_after;
        }
        let kept = (2 * self.retry_after).min(MAX_RETRY_AFTER);
        self.history
            .retain(|(at, _)| second.saturating_sub(*at) <= kept);
        self.adjust(second);
        self.history.push_back((second, 1));
        self.retry_after
    }

    /// Doubles the time where there were many rejections within it, and shortens it by a second
    /// where there were few.
    fn adjust(&mut self, second: u64) {
        let retry_after = self.retry_after;
        let recent = self.history.iter().rev();
        let dropped: u64 = recent
            .take_while(|(at, _)| second.saturating_sub(*at) <= retry_after)
            .filter(|(at, _)| *at < second)
            .map(|(_, count)| count)
            .sum();
        if second.saturating_sub(self.raised) >= retry_after && dropped >= 3 * retry_after {
            self.retry_after = (2 * retry_after).min(MAX_RETRY_AFTER);
            self.raised = second;
        } else if dropped < retry_after && retry_after > 1 {
            self.retry_after -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_grows_with_rejections_and_shrinks_without() {
        let drops = DroppedRequests::default();
        let in_second =
            |second: u64, count: usize| (0..count).map(|_| drops.record(second, "a")).last();
        for (second, count, retry_after) in [
            (1000, 2, 1),
            (1001, 3, 1),
            (1002, 5, 2),
            (1003, 5, 2),
            (1004, 12, 4),
            (1005, 30, 4),
            (1006, 1, 4),
            (1008, 1, 8),
            (1020, 1, 7),
            (1030, 1, 6),
        ] {
            assert_eq!(in_second(second, count), Some(retry_after), "{second}");
        }
        for second in 2000..2500 {
            in_second(second, 200);
        }
        assert_eq!(in_second(2500, 1), Some(MAX_RETRY_AFTER));
        assert_eq!(drops.record(2500, "b"), 1, "another level");
    }
}
