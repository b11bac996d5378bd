//! A one-way latch that many tasks can wait for, such as the start of a shutdown.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// A latch that is triggered once and stays so. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Latch {
    token: CancellationToken,
    turns: Arc<Turns>,
}

/// The reactions of waiters, one after the other.
#[derive(Debug, Default)]
struct Turns {
    /// Nanoseconds between two.
    interval: AtomicU64,
    /// Nanoseconds until the last.
    longest: AtomicU64,
    taken: AtomicU64,
}

impl Latch {
    /// Triggers the latch.
    pub fn trigger(&self) {
        self.token.cancel();
    }

    /// Triggers the latch and has so many waiters spread their reactions evenly over `spread`.
    pub fn trigger_within(&self, spread: Duration, waiters: u64) {
        let nanos = u64::try_from(spread.as_nanos()).unwrap_or(u64::MAX);
        self.turns.longest.store(nanos, Ordering::Release);
        let interval = nanos / waiters.max(1);
        self.turns.interval.store(interval, Ordering::Release);
        self.trigger();
    }

    /// Takes the next turn: returns the time from the trigger until then. Zero unless waiters
    /// spread their reactions.
    pub fn next_turn(&self) -> Duration {
        let interval = self.turns.interval.load(Ordering::Acquire);
        let turn = self.turns.taken.fetch_add(1, Ordering::Relaxed);
        let longest = self.turns.longest.load(Ordering::Acquire);
        Duration::from_nanos(interval.saturating_mul(turn).min(longest))
    }

    /// Reports whether the latch has been triggered.
    pub fn is_triggered(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Waits until the latch is triggered.
    pub async fn wait(&self) {
        self.token.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_evenly_spread() {
        let latch = Latch::default();
        assert_eq!(latch.next_turn(), Duration::ZERO);
        let latch = Latch::default();
        latch.trigger_within(Duration::from_secs(10), 4);
        let turns: Vec<u128> = (0..6).map(|_| latch.next_turn().as_millis()).collect();
        assert_eq!(turns, [0, 2500, 5000, 7500, 10_000, 10_000]);
    }
}
