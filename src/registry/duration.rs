//! Durations for people: two or three significant figures (apimachinery
//! `util/duration.HumanDuration`).

use jiff::SignedDuration;

/// A duration such as `47s`, `5m12s`, `3h20m` or `2y15d`.
pub fn human(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    match seconds {
        // Clocks of two machines may differ a little: one second in the future is now.
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if hours < 3 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => two(days, "d", hours % 24, "h"),
        _ if years < 2 => format!("{days}d"),
        _ if years < 8 => two(years, "y", days % 365, "d"),
        _ => format!("{years}y"),
    }
}

fn two(count: i64, unit: &str, rest: i64, rest_unit: &str) -> String {
    if rest == 0 {
        format!("{count}{unit}")
    } else {
        format!("{count}{unit}{rest}{rest_unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precision_falls_as_durations_grow() {
        let (minute, hour, day) = (60, 3600, 86400);
        for (seconds, want) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (2 * minute, "2m"),
            (2 * minute + 3, "2m3s"),
            (10 * minute + 3, "10m"),
            (179 * minute, "179m"),
            (3 * hour, "3h"),
            (3 * hour + 5 * minute, "3h5m"),
            (8 * hour + 5 * minute, "8h"),
            (47 * hour, "47h"),
            (2 * day, "2d"),
            (2 * day + 3 * hour, "2d3h"),
            (8 * day + 3 * hour, "8d"),
            (729 * day, "729d"),
            (730 * day, "2y"),
            (731 * day, "2y1d"),
            (8 * 365 * day + day, "8y"),
        ] {
            assert_eq!(
                human(SignedDuration::from_secs(seconds)),
                want,
                "{seconds} s"
            );
        }
    }
}
