//! Operations that anybody can cause, bounded in number.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A number of operations that are allowed at once, each of which is allowed again after a while.
#[derive(Debug)]
pub struct Allowance {
    most: u32,
    interval: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    left: u32,
    since: Instant,
}

impl Allowance {
    /// Allows `most` operations at once, and another one after each interval.
    pub fn new(most: u32, interval: Duration) -> Self {
        let (left, since) = (most, Instant::now());
        Self {
            most,
            interval,
            state: Mutex::new(State { left, since }),
        }
    }

    /// Takes one of the operations that are allowed; false if there is none.
    pub fn take(&self) -> bool {
        self.take_at(Instant::now())
    }

    fn take_at(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        let elapsed = now.saturating_duration_since(state.since);
        let earned = elapsed.as_nanos() / self.interval.as_nanos().max(1);
        if earned > 0 {
            let earned = u32::try_from(earned).unwrap_or(self.most);
            state.left = state.left.saturating_add(earned).min(self.most);
            state.since = now;
        }
        let taken = state.left > 0;
        state.left = state.left.saturating_sub(1);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_allowed_again_one_by_one() {
        let second = Duration::from_secs(1);
        let allowance = Allowance::new(3, second);
        let start = Instant::now();
        let taken = |at| (0..100).filter(|_| allowance.take_at(at)).count();
        assert_eq!(taken(start), 3);
        assert_eq!(taken(start + second), 1);
        assert_eq!(taken(start + second), 0);
        assert_eq!(taken(start + 100 * second), 3);
    }
}
