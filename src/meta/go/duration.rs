//! Durations as `time.ParseDuration` reads them.

use super::quote;

/// The units with their nanoseconds.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];
/// The greatest magnitude, that of the most negative duration.
const MAX_NANOS: u64 = 1 << 63;

/// Parses a duration such as `1h2m3.5s`, `-300ms` or `0`, and returns its nanoseconds.
///
/// # Errors
/// Go's message for a text that is no duration, or one beyond 292 years.
pub fn parse_duration(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {}", quote(text));
    let (negative, mut rest) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total = 0u64;
    while !rest.is_empty() {
        let (whole, behind) = digits(rest);
        let (fraction, behind) = match behind.strip_prefix('.') {
            Some(behind) => digits(behind),
            None => ("", behind),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let end = behind
            .find(|c: char| c == '.' || c.is_ascii_digit())
            .unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(end);
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {}", quote(text)));
        }
        let Some((_, nanos)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            let (unit, text) = (quote(unit), quote(text));
            return Err(format!("time: unknown unit {unit} in duration {text}"));
        };
        total = amount(whole, fraction, *nanos)
            .and_then(|amount| total.checked_add(amount))
            .filter(|total| *total <= MAX_NANOS)
            .ok_or_else(invalid)?;
        rest = behind;
    }
    match (negative, i64::try_from(total)) {
        (true, _) => Ok(0i64.wrapping_sub_unsigned(total)),
        (false, Ok(total)) => Ok(total),
        (false, Err(_)) => Err(invalid()),
    }
}

/// Prints a duration as `time.Duration.String` does: `1h2m3.5s`, `300ms`, `0s`.
pub fn format_duration(nanos: i64) -> String {
    let (sign, whole) = (if nanos < 0 { "-" } else { "" }, nanos.unsigned_abs());
    let decimals = |unit: u64| {
        let fraction = format!("{:0width$}", whole % unit, width = unit.ilog10() as usize);
        match fraction.trim_end_matches('0') {
            "" => (whole / unit).to_string(),
            digits => format!("{}.{digits}", whole / unit),
        }
    };
    match whole {
        0 => "0s".to_owned(),
        1..1_000 => format!("{sign}{whole}ns"),
        1_000..1_000_000 => format!("{sign}{}µs", decimals(1_000)),
        1_000_000..1_000_000_000 => format!("{sign}{}ms", decimals(1_000_000)),
        _ => {
            let (minutes, seconds) = (whole / 60_000_000_000, whole % 60_000_000_000);
            let fraction = format!("{:09}", seconds % 1_000_000_000);
            let seconds = match fraction.trim_end_matches('0') {
                "" => (seconds / 1_000_000_000).to_string(),
                digits => format!("{}.{digits}", seconds / 1_000_000_000),
            };
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{sign}{seconds}s"),
                (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
                (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

/// Splits a text behind its leading digits.
fn digits(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

/// Returns so many units of `nanos`; `None` where Go's numbers overflow. Of a fraction, the digits
/// that do not fit are dropped.
fn amount(whole: &str, fraction: &str, nanos: u64) -> Option<u64> {
    let whole: u64 = match whole {
        "" => 0,
        whole => whole.parse().ok()?,
    };
    let (mut part, mut scale) = (0u64, 1f64);
    for digit in fraction.bytes().map(|byte| u64::from(byte - b'0')) {
        let next = part
            .checked_mul(10)
            .and_then(|part| part.checked_add(digit));
        let Some(next) = next.filter(|next| *next <= MAX_NANOS) else {
            break;
        };
        (part, scale) = (next, scale * 10.0);
    }
    let part = (part as f64 * (nanos as f64 / scale)) as u64;
    whole.checked_mul(nanos)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_parse_as_in_go() {
        let hour = 3_600_000_000_000;
        for (text, nanos) in [
            ("0", 0),
            ("1.5h", hour + hour / 2),
            ("-1m30s", -90_000_000_000),
            ("+5µs", 5_000),
            (".5ms", 500_000),
            ("0.3333333333333333333h", 1_200_000_000_000),
            ("9223372036854775807ns", i64::MAX),
            ("-9223372036854775808ns", i64::MIN),
        ] {
            assert_eq!(parse_duration(text), Ok(nanos), "{text}");
        }
        for (text, why) in [
            ("", "time: invalid duration \"\""),
            ("-", "time: invalid duration \"-\""),
            (".s", "time: invalid duration \".s\""),
            ("1.2.3s", "time: missing unit in duration \"1.2.3s\""),
            ("1", "time: missing unit in duration \"1\""),
            ("1d", "time: unknown unit \"d\" in duration \"1d\""),
            (
                "9223372036854775808ns",
                "time: invalid duration \"9223372036854775808ns\"",
            ),
            ("3000000h", "time: invalid duration \"3000000h\""),
        ] {
            assert_eq!(parse_duration(text), Err(why.to_owned()), "{text}");
        }
    }

    #[test]
    fn durations_print_as_in_go() {
        for (nanos, want) in [
            (0, "0s"),
            (7, "7ns"),
            (1_500, "1.5µs"),
            (300_000_000, "300ms"),
            (30_000_000_000, "30s"),
            (-61_500_000_000, "-1m1.5s"),
            (3_600_000_000_000, "1h0m0s"),
        ] {
            assert_eq!(format_duration(nanos), want);
            assert_eq!(parse_duration(want), Ok(nanos));
        }
    }
}
