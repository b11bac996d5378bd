//! Cooperative yielding for tasks that compute: the runtime does not preempt them.

use std::time::{Duration, Instant};

/// About how long a task may compute before it yields.
const SLICE: Duration = Duration::from_millis(1);
/// Steps between two clock reads. Most steps take less than a microsecond.
const STEPS: u32 = 16;

/// The CPU time that a task may still use before it yields. Free until [`STEPS`] steps were taken.
#[derive(Clone, Debug, Default)]
pub struct CoopBudget {
    steps: u32,
    /// The time at which the clock was first read in this slice.
    since: Option<Instant>,
}

impl CoopBudget {
    /// Counts a step and reports whether the task should yield now. If so, the next slice begins.
    pub fn is_spent(&mut self) -> bool {
        self.steps += 1;
        if !self.steps.is_multiple_of(STEPS) {
            return false;
        }
        let now = Instant::now();
        let spent = now - *self.since.get_or_insert(now) >= SLICE;
        if spent {
            *self = Self::default();
        }
        spent
    }

    /// Counts a step and yields to the runtime if the slice is used up.
    pub async fn step(&mut self) {
        if self.is_spent() {
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_spent_by_time_and_not_by_few_steps() {
        let mut budget = CoopBudget::default();
        assert!((0..STEPS - 1).all(|_| !budget.is_spent()));
        let begun = Instant::now();
        while !budget.is_spent() {}
        assert!(begun.elapsed() >= SLICE);
    }
}
