//! The distribution of the server's concurrency among priority levels that may lend and borrow
//! (apiserver `util/flowcontrol/conc_alloc.go`).

/// The smallest target that counts.
const MIN_TARGET: f64 = 0.001;
/// The difference of sums that is none.
const EPSILON: f64 = 1e-7;

/// The claim of one level.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    pub target: f64,
    pub lower_bound: f64,
    pub upper_bound: f64,
}

impl Claim {
    fn target(&self) -> f64 {
        self.target.max(MIN_TARGET)
    }

    /// The part that it gets where all get this share of their targets, within its bounds.
    fn at(&self, share: f64) -> f64 {
        (share * self.target())
            .min(self.upper_bound)
            .max(self.lower_bound)
    }

    fn is_sound(&self) -> bool {
        self.lower_bound >= 0.0
            && self.target >= self.lower_bound
            && self.upper_bound >= self.lower_bound
    }
}

/// Distributes `total`: all get the same share of their targets, within their bounds. Returns what
/// each gets, and the share; `None` where the bounds allow no such distribution.
pub fn allocate(total: f64, claims: &[Claim]) -> Option<(Vec<f64>, f64)> {
    let sum = |of: fn(&Claim) -> f64| claims.iter().map(of).sum::<f64>();
    let (low, high) = (
        sum(|claim| claim.lower_bound),
        sum(|claim| claim.upper_bound),
    );
    if total < 0.0 || !claims.iter().all(Claim::is_sound) {
        return None;
    }
    if low - total > EPSILON || total - high > EPSILON {
        return None;
    }
    if total == 0.0 {
        return Some((vec![0.0; claims.len()], 0.0));
    }
    let share = share(total, low, high, claims);
    let parts = claims.iter().map(|claim| claim.at(share)).collect();
    Some((parts, share))
}

/// The share at which the parts have this sum, which is between `low` and `high`.
fn share(total: f64, low: f64, high: f64, claims: &[Claim]) -> f64 {
    let lower = claims
        .iter()
        .map(|claim| claim.lower_bound / claim.target());
    let upper = claims
        .iter()
        .map(|claim| claim.upper_bound / claim.target());
    if low - total > -EPSILON {
        return lower.fold(f64::INFINITY, f64::min);
    }
    if total - high > -EPSILON {
        return upper.fold(0.0, f64::max);
    }
    // Between two of these the sum is linear in the share.
    let mut shares: Vec<f64> = lower.chain(upper).collect();
    shares.sort_by(f64::total_cmp);
    let sum_at = |share: f64| claims.iter().map(|claim| claim.at(share)).sum::<f64>();
    let above = shares.partition_point(|share| sum_at(*share) < total);
    let end = shares.get(above).copied().unwrap_or(f64::MAX);
    let Some(begin) = above.checked_sub(1).and_then(|below| shares.get(below)) else {
        return end;
    };
    let (before, after) = (sum_at(*begin), sum_at(end));
    begin + (total - before) / (after - before) * (end - begin)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(lower_bound: f64, target: f64, upper_bound: f64) -> Claim {
        Claim {
            target,
            lower_bound,
            upper_bound,
        }
    }

    fn allocated(total: f64, claims: &[Claim]) -> Option<Vec<f64>> {
        let (parts, _) = allocate(total, claims)?;
        Some(
            parts
                .iter()
                .map(|part| (part * 1e6).round() / 1e6)
                .collect(),
        )
    }

    #[test]
    fn all_get_the_same_share_of_their_targets() {
        let claims = [claim(0.0, 4.0, 20.0), claim(1.0, 6.0, 20.0)];
        assert_eq!(allocated(20.0, &claims), Some(vec![8.0, 12.0]));
        assert_eq!(allocated(5.0, &claims), Some(vec![2.0, 3.0]));
        assert_eq!(allocated(0.0, &[]), Some(vec![]));
    }

    #[test]
    fn bounds_are_kept_and_the_rest_is_shared() {
        let claims = [
            claim(5.0, 5.0, 50.0),
            claim(0.0, 10.0, 8.0),
            claim(0.0, 5.0, 50.0),
        ];
        // The second is at its upper bound, the others share 22.
        assert_eq!(allocated(30.0, &claims), Some(vec![11.0, 8.0, 11.0]));
        // The first is at its lower bound.
        assert_eq!(allocated(8.0, &claims), Some(vec![5.0, 2.0, 1.0]));
        assert_eq!(allocated(5.0, &claims), Some(vec![5.0, 0.0, 0.0]));
        assert_eq!(allocated(108.0, &claims), Some(vec![50.0, 8.0, 50.0]));
    }

    #[test]
    fn bounds_that_cannot_be_kept_are_told() {
        let claims = [claim(5.0, 5.0, 6.0), claim(1.0, 1.0, 2.0)];
        for total in [5.0, 9.0, -1.0] {
            assert!(allocate(total, &claims).is_none(), "{total}");
        }
        assert!(allocate(5.0, &[claim(3.0, 2.0, 6.0)]).is_none());
        assert!(allocate(5.0, &[claim(3.0, 4.0, 2.0)]).is_none());
    }

    #[test]
    fn sums_are_kept_whatever_the_claims() {
        let mut seed = 7_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((seed >> 33) % below) as f64
        };
        for _ in 0..2000 {
            let claims: Vec<Claim> = (0..1 + random(8) as usize)
                .map(|_| {
                    let lower = random(50);
                    claim(lower, lower + random(50), lower + random(100))
                })
                .collect();
            let low: f64 = claims.iter().map(|claim| claim.lower_bound).sum();
            let high: f64 = claims.iter().map(|claim| claim.upper_bound).sum();
            let total = low + random(1 + (high - low) as u64);
            let (parts, _) = allocate(total, &claims).expect("it is possible");
            let sum: f64 = parts.iter().sum();
            assert!((sum - total).abs() < 1e-6, "{sum} of {total}: {claims:?}");
        }
    }
}
