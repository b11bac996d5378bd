//! The average, deviation and extremes of a value over time (apiserver
//! `util/flowcontrol/fairqueuing/integrator.go`).

use std::time::Instant;

/// Integrates a value since the last reset.
#[derive(Clone, Debug)]
pub struct Integrator {
    last: Instant,
    value: f64,
    /// The integrals of 1, the value and its square.
    seconds: f64,
    sum: f64,
    squares: f64,
    min: f64,
    max: f64,
}

/// The moments of a value over some time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moments {
    pub seconds: f64,
    /// The average and the standard deviation; not numbers where no time has passed.
    pub average: f64,
    pub deviation: f64,
    pub min: f64,
    pub max: f64,
}

impl Integrator {
    pub fn new(now: Instant) -> Self {
        Self {
            last: now,
            value: 0.0,
            seconds: 0.0,
            sum: 0.0,
            squares: 0.0,
            min: 0.0,
            max: 0.0,
        }
    }

    /// Notes that the value is another from now on.
    pub fn set(&mut self, now: Instant, value: f64) {
        self.integrate(now);
        self.value = value;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Returns the moments until now, and begins anew.
    pub fn reset(&mut self, now: Instant) -> Moments {
        self.integrate(now);
        let moments = self.moments();
        *self = Self {
            value: self.value,
            min: self.value,
            max: self.value,
            ..Self::new(now)
        };
        moments
    }

    fn integrate(&mut self, now: Instant) {
        let seconds = now.saturating_duration_since(self.last).as_secs_f64();
        self.last = self.last.max(now);
        self.seconds += seconds;
        self.sum += seconds * self.value;
        self.squares += seconds * self.value * self.value;
    }

    fn moments(&self) -> Moments {
        let average = self.sum / self.seconds;
        Moments {
            seconds: self.seconds,
            average,
            deviation: (self.squares / self.seconds - average * average).sqrt(),
            min: self.min,
            max: self.max,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn moments_are_weighted_by_time() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut demand = Integrator::new(begin);
        assert!(demand.clone().reset(begin).average.is_nan());
        demand.set(begin, 3.0);
        demand.set(at(1), 1.0);
        let moments = demand.reset(at(4));
        assert_eq!((moments.seconds, moments.average), (4.0, 1.5));
        assert_eq!((moments.min, moments.max), (0.0, 3.0));
        assert!((moments.deviation - 0.75_f64.sqrt()).abs() < 1e-9);
        // The value itself goes on.
        let moments = demand.reset(at(6));
        assert_eq!((moments.average, moments.deviation), (1.0, 0.0));
        assert_eq!((moments.min, moments.max), (1.0, 1.0));
    }
}
