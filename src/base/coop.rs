//! How long one task may compute before others have their turn. One thread runs many tasks, and
//! none of them is interrupted.

use std::time::{Duration, Instant};

/// The longest that a task computes in one go, about.
const SLICE: Duration = Duration::from_millis(1);
/// Steps between two looks at the clock: most steps take less than a microsecond.
const STEPS: u32 = 16;

/// Counts what a task computes in one go. It costs nothing until there have been some steps.
#[derive(Debug, Default)]
pub struct CoopBudget {
    steps: u32,
    /// When the first look at the clock was.
    since: Option<Instant>,
}

impl CoopBudget {
    /// Counts a step. Whether it is time to let others run; then the next slice begins.
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

    /// Counts a step, and lets others run where it is time.
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
    fn it_is_spent_by_time_and_not_by_few_steps() {
        let mut budget = CoopBudget::default();
        assert!((0..STEPS - 1).all(|_| !budget.is_spent()));
        let begun = Instant::now();
        while !budget.is_spent() {}
        assert!(begun.elapsed() >= SLICE);
    }
}
