//! The only source of wall-clock time, so that tests can control it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;

/// A wall clock. Clones of a manual clock share its time.
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<Arc<AtomicI64>>);

impl Clock {
    /// The system clock.
    pub fn system() -> Self {
        Self(None)
    }

    /// A clock that shows `start` until [`Clock::advance`] moves it.
    pub fn manual(start: Timestamp) -> Self {
        Self(Some(Arc::new(AtomicI64::new(start.as_microsecond()))))
    }

    /// Returns the current time, to the microsecond.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            None => Timestamp::now(),
            Some(micros) => Timestamp::from_microsecond(micros.load(Ordering::Relaxed))
                .unwrap_or(Timestamp::UNIX_EPOCH),
        }
    }

    /// Advances a manual clock; does nothing to the system clock.
    pub fn advance(&self, by: std::time::Duration) {
        if let Some(micros) = &self.0 {
            micros.fetch_add(by.as_micros() as i64, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_advanced() {
        let clock = Clock::manual(Timestamp::UNIX_EPOCH);
        let twin = clock.clone();
        assert_eq!(clock.now(), Timestamp::UNIX_EPOCH);
        clock.advance(std::time::Duration::from_secs(3));
        assert_eq!(twin.now().as_second(), 3);
    }
}
