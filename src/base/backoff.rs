//! Exponential backoff with jitter.

use std::time::Duration;

use rand::RngExt;

/// The delays between the attempts of one operation.
#[derive(Clone, Debug)]
pub struct Backoff {
    initial: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    /// A backoff whose delays start at about `initial` and double up to about `max`.
    pub const fn new(initial: Duration, max: Duration) -> Self {
        Self {
            initial,
            max,
            next: initial,
        }
    }

    /// Returns the next delay: between three quarters of the nominal delay and all of it, at
    /// random, so that clients that failed together do not retry together.
    pub fn next_delay(&mut self) -> Duration {
        let delay = self.next.min(self.max);
        self.next = delay.saturating_mul(2).min(self.max);
        delay.mul_f64(rand::rng().random_range(0.75..=1.0))
    }

    /// Starts over with the initial delay.
    pub fn reset(&mut self) {
        self.next = self.initial;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_maximum_until_reset() {
        let seconds = Duration::from_secs;
        let mut backoff = Backoff::new(seconds(1), seconds(5));
        for whole in [1, 2, 4, 5, 5] {
            let delay = backoff.next_delay();
            assert!(
                delay <= seconds(whole) && delay >= seconds(whole).mul_f64(0.75),
                "{delay:?} of {whole} s"
            );
        }
        backoff.reset();
        assert!(backoff.next_delay() <= seconds(1));
    }
}
