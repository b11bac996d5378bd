//! Durations and times as Go reads and writes them.

use jiff::SignedDuration;
use jiff::civil::DateTime;

/// Reads a duration as `time.ParseDuration` does: numbers with units, `1h30m`, `-1.5s`.
pub fn parse_duration(text: &str) -> Option<SignedDuration> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanos: i128 = 0;
    while !rest.is_empty() {
        let digits =
            |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let whole = digits(rest);
        let (number, after) = rest.split_at(whole);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => after.split_at(digits(after)),
            None => ("", after),
        };
        if number.is_empty() && fraction.is_empty() {
            return None;
        }
        let unit_len = after
            .find(|c: char| c == '.' || c.is_ascii_digit())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_len);
        let unit: i128 = match unit {
            "ns" => 1,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let whole: i128 = if number.is_empty() {
            0
        } else {
            number.parse().ok()?
        };
        nanos = nanos.checked_add(whole.checked_mul(unit)?)?;
        // Digits beyond those that can count are dropped.
        let kept = &fraction[..fraction.len().min(18)];
        if !kept.is_empty() {
            let part: i128 = kept.parse().ok()?;
            let scale = 10_i128.pow(u32::try_from(kept.len()).ok()?);
            nanos = nanos.checked_add(part * unit / scale)?;
        }
        rest = after;
    }
    let nanos = if negative { -nanos } else { nanos };
    i64::try_from(nanos).ok().map(SignedDuration::from_nanos)
}

/// Writes a duration in seconds: `5400s`, `0.5s`.
pub fn format_duration(duration: SignedDuration) -> String {
    let nanos = duration.as_nanos();
    let sign = if nanos < 0 { "-" } else { "" };
    let (seconds, rest) = (
        nanos.unsigned_abs() / 1_000_000_000,
        nanos.unsigned_abs() % 1_000_000_000,
    );
    if rest == 0 {
        return format!("{sign}{seconds}s");
    }
    let fraction = format!("{rest:09}");
    format!("{sign}{seconds}.{}s", fraction.trim_end_matches('0'))
}

/// The beginning of Unix time.
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// Reads a time of RFC 3339, as UTC.
pub fn parse_timestamp(text: &str) -> Option<DateTime> {
    let (local, offset) = match text.strip_suffix('Z') {
        Some(local) => (local, 0),
        None => {
            let at = text.len().checked_sub(6)?;
            let (local, offset) = (text.get(..at)?, text.get(at..)?);
            (local, parse_offset(offset)?)
        }
    };
    // What else the parser takes, RFC 3339 does not.
    let bytes = local.as_bytes();
    let shaped = bytes.get(4) == Some(&b'-')
        && bytes.get(10) == Some(&b'T')
        && bytes.get(13) == Some(&b':')
        && bytes.get(16) == Some(&b':')
        && matches!(bytes.get(19), None | Some(b'.'))
        && bytes.last().is_some_and(u8::is_ascii_digit);
    let local: DateTime = local.parse().ok().filter(|_| shaped)?;
    local.checked_sub(SignedDuration::from_secs(offset)).ok()
}

/// Reads an offset such as `+02:00`, in seconds.
fn parse_offset(text: &str) -> Option<i64> {
    let (sign, rest) = match text.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':')?;
    let number = |text: &str, limit: i64| {
        let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        let number: i64 = text.parse().ok()?;
        (digits && number < limit).then_some(number)
    };
    Some(sign * (number(hours, 24)? * 3600 + number(minutes, 60)? * 60))
}

/// The time so many seconds after the beginning of Unix time.
pub fn from_unix(seconds: i64) -> Option<DateTime> {
    EPOCH.checked_add(SignedDuration::from_secs(seconds)).ok()
}

/// The whole seconds from the beginning of Unix time to a time.
pub fn to_unix(at: DateTime) -> i64 {
    let since = at.duration_since(EPOCH);
    since.as_secs() - i64::from(since.subsec_nanos() < 0)
}

/// Writes a time in UTC with as many digits of a second as it has.
pub fn format_timestamp(at: DateTime) -> String {
    let (date, time) = (at.date(), at.time());
    let (hour, minute, second) = (time.hour(), time.minute(), time.second());
    let mut out = format!("{date}T{hour:02}:{minute:02}:{second:02}");
    let nanos = time.subsec_nanosecond();
    if nanos != 0 {
        let digits = format!("{nanos:09}");
        out.push('.');
        out.push_str(digits.trim_end_matches('0'));
    }
    out.push('Z');
    out
}
