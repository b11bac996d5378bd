//! The meaning of plain scalars in YAML 1.1: `yes` is a boolean, `0x10` and `017` are integers, `~`
//! is null.

/// The value of a scalar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    String,
    /// A date or time: a string, but one that is quoted when it is written.
    Timestamp,
    /// The key `<<`.
    Merge,
    /// Base64 of what is a string.
    Binary,
}

/// Resolves a plain scalar as `yaml.v2` does.
pub(super) fn resolve(text: &str) -> Scalar {
    let known = match text {
        "" | "~" | "null" | "Null" | "NULL" => Some(Scalar::Null),
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Some(Scalar::Bool(true))
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Some(Scalar::Bool(false))
        }
        ".nan" | ".NaN" | ".NAN" => Some(Scalar::Float(f64::NAN)),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            Some(Scalar::Float(f64::INFINITY))
        }
        "-.inf" | "-.Inf" | "-.INF" => Some(Scalar::Float(f64::NEG_INFINITY)),
        "<<" => Some(Scalar::Merge),
        _ => None,
    };
    match (known, text.bytes().next()) {
        (Some(known), _) => known,
        (_, Some(b'.')) => text
            .parse()
            .ok()
            .filter(|_| is_float(text))
            .map_or(Scalar::String, Scalar::Float),
        (_, Some(b'0'..=b'9' | b'+' | b'-')) => number(text),
        _ => Scalar::String,
    }
}

fn number(text: &str) -> Scalar {
    if is_timestamp(text) {
        return Scalar::Timestamp;
    }
    let plain: String = text.chars().filter(|&c| c != '_').collect();
    let (negative, digits) = match plain.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, plain.strip_prefix('+').unwrap_or(&plain)),
    };
    if let Some(magnitude) = integer(digits) {
        let signed = i128::from(magnitude) * if negative { -1 } else { 1 };
        if let Ok(value) = i64::try_from(signed) {
            return Scalar::Int(value);
        }
        if let Ok(value) = u64::try_from(signed) {
            return Scalar::Uint(value);
        }
    }
    if is_float(&plain) {
        plain.parse().map_or(Scalar::String, Scalar::Float)
    } else {
        Scalar::String
    }
}

/// Go's ParseInt with base 0: `0x`, `0o`, `0b` and a leading zero choose the base.
fn integer(digits: &str) -> Option<u64> {
    let parse = |digits: &str, base| {
        let clean = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
        u64::from_str_radix(digits, base).ok().filter(|_| clean)
    };
    let Some(rest) = digits.strip_prefix('0').filter(|rest| !rest.is_empty()) else {
        return parse(digits, 10);
    };
    match rest.as_bytes()[0] {
        b'x' | b'X' => parse(&rest[1..], 16),
        b'o' | b'O' => parse(&rest[1..], 8),
        b'b' | b'B' => parse(&rest[1..], 2),
        _ => parse(rest, 8),
    }
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_float(text: &str) -> bool {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let whole = digits(rest);
    rest = &rest[whole..];
    if let Some(tail) = rest.strip_prefix('.') {
        let fraction = digits(tail);
        if whole + fraction == 0 {
            return false;
        }
        rest = &tail[fraction..];
    } else if whole == 0 {
        return false;
    }
    if let Some(tail) = rest.strip_prefix(['e', 'E']) {
        let tail = tail.strip_prefix(['+', '-']).unwrap_or(tail);
        return !tail.is_empty() && digits(tail) == tail.len();
    }
    rest.is_empty()
}

/// `2006-1-2`, or that with a time after `T`, `t` or a space.
fn is_timestamp(text: &str) -> bool {
    let mut parts = text.splitn(3, '-');
    let (Some(year), Some(month), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let is_number = |text: &str, lengths: std::ops::RangeInclusive<usize>| {
        lengths.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let within = |text: &str, max: u32| text.parse::<u32>().is_ok_and(|value| value <= max);
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (day, time) = rest.split_at(end);
    if !is_number(year, 4..=4)
        || !is_number(month, 1..=2)
        || !within(month, 12)
        || !is_number(day, 1..=2)
        || !within(day, 31)
    {
        return false;
    }
    let (time, zoned) = match time.chars().next() {
        None => return true,
        Some('T' | 't') => (&time[1..], true),
        Some(' ') => (time.trim_start_matches(' '), false),
        Some(_) => return false,
    };
    let (clock, zone) = time.split_at(time.find(['Z', '+', '-']).unwrap_or(time.len()));
    let clock_fits = {
        let mut parts = clock.splitn(3, ':');
        let mut part = |max| {
            parts
                .next()
                .is_some_and(|text| is_number(text, 1..=2) && within(text, max))
        };
        let (hour, minute) = (part(23), part(59));
        let second = parts.next().unwrap_or_default();
        let (second, fraction) = second.split_once('.').unwrap_or((second, "0"));
        hour && minute
            && is_number(second, 1..=2)
            && within(second, 59)
            && is_number(fraction, 1..=9)
    };
    let zone_fits = match zone
        .strip_prefix(['+', '-'])
        .and_then(|zone| zone.split_once(':'))
    {
        Some((hour, minute)) => is_number(hour, 2..=2) && is_number(minute, 2..=2),
        None => zone == "Z",
    };
    clock_fits && if zoned { zone_fits } else { zone.is_empty() }
}

/// Reports whether YAML 1.1 could read the text as a number of base 60, such as `1:30`.
pub(super) fn is_base60(text: &str) -> bool {
    let Some(rest) = text
        .strip_prefix(['+', '-'])
        .or(Some(text))
        .filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    else {
        return false;
    };
    let (rest, fraction) = rest.split_once('.').unwrap_or((rest, ""));
    let mut parts = rest.split(':');
    let is_number = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'_')
    };
    let head = parts.next().is_some_and(is_number);
    let mut count = 0;
    let tail = parts.all(|part| {
        count += 1;
        matches!(part.as_bytes(), [b'0'..=b'9'] | [b'0'..=b'5', b'0'..=b'9'])
    });
    head && tail && count > 0 && is_number(fraction)
}
