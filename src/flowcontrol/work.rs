//! Measures of work: seats, and seats times time (apiserver `util/flowcontrol/request`).

use std::fmt;
use std::time::Duration;

/// Parts of a seat-second that are counted.
const SCALE: u64 = 100_000_000;
/// Nanoseconds of one seat in such a part.
const NANOS_PER_PART: f64 = 1e9 / SCALE as f64;

/// Work in parts of a seat-second. It wraps around, as the progress meter of a [`super::QueueSet`]
/// needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeatSeconds(pub u64);

impl SeatSeconds {
    pub const MIN: Self = Self(0);
    pub const MAX: Self = Self(u64::MAX);

    /// Seats that are taken for so many nanoseconds, which may be negative.
    pub fn new(seats: f64, nanos: f64) -> Self {
        Self((seats * nanos / NANOS_PER_PART).round() as i64 as u64)
    }

    /// Seats that are taken for some time.
    pub fn of(seats: u64, time: Duration) -> Self {
        Self::new(seats as f64, nanos(time))
    }

    /// The time that the work takes on so many seats.
    pub fn per_seat(self, seats: u64) -> Duration {
        let nanos = self.0 as f64 / seats.max(1) as f64 * NANOS_PER_PART;
        Duration::from_nanos(nanos as u64)
    }

    pub fn to_f64(self) -> f64 {
        self.0 as f64 / SCALE as f64
    }

    pub fn plus(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }

    pub fn minus(self, other: Self) -> Self {
        Self(self.0.wrapping_sub(other.0))
    }
}

impl fmt::Display for SeatSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:08}ss", self.0 / SCALE, self.0 % SCALE)
    }
}

/// The nanoseconds of a duration as a number that can be negated.
pub fn nanos(time: Duration) -> f64 {
    time.as_nanos() as f64
}

/// The estimated work of a request: the seats while it is answered, and those that are kept for
/// some time after that, in which its effects cost something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkEstimate {
    pub initial_seats: u64,
    pub final_seats: u64,
    pub additional_latency: Duration,
}

impl WorkEstimate {
    /// Work that is over with the answer.
    pub fn seats(initial_seats: u64) -> Self {
        Self {
            initial_seats,
            ..Self::default()
        }
    }

    /// The seats that it takes throughout.
    pub fn max_seats(&self) -> u64 {
        self.initial_seats.max(self.final_seats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seat_seconds_are_seats_times_time() {
        let second = Duration::from_secs(1);
        assert_eq!(SeatSeconds::of(3, second).to_string(), "3.00000000ss");
        assert_eq!(
            SeatSeconds::of(1, Duration::from_nanos(1_234_567_895)).to_string(),
            "1.23456790ss"
        );
        assert_eq!(
            SeatSeconds::of(6, second).per_seat(4),
            Duration::from_millis(1500)
        );
        let less = SeatSeconds::of(5, second).plus(SeatSeconds::new(2.0, -nanos(second)));
        assert_eq!(less, SeatSeconds::of(3, second));
        assert_eq!(SeatSeconds::MAX.to_string(), "184467440737.09551615ss");
    }
}
