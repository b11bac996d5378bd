//! Pauses between attempts: each longer than the one before, up to a limit, and never quite the
//! same for two who wait.

use std::time::Duration;

use rand::RngExt;

/// The pauses of one who tries again and again.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// Pauses from about `first` on, each twice as long as the one before, up to about `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            next: first,
        }
    }

    /// The next pause: at least three quarters of what it would be without chance, and never
    /// longer.
    pub fn next_delay(&mut self) -> Duration {
        let pause = self.next.min(self.longest);
        self.next = pause.saturating_mul(2).min(self.longest);
        pause.mul_f64(rand::rng().random_range(0.75..=1.0))
    }

    /// Begins with the first pause again.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_limit_and_begin_again() {
        let seconds = Duration::from_secs;
        let mut backoff = Backoff::new(seconds(1), seconds(5));
        for whole in [1, 2, 4, 5, 5] {
            let pause = backoff.next_delay();
            assert!(
                pause <= seconds(whole) && pause >= seconds(whole).mul_f64(0.75),
                "{pause:?} of {whole} s"
            );
        }
        backoff.reset();
        assert!(backoff.next_delay() <= seconds(1));
    }
}
