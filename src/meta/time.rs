//! Times as the API writes them: RFC 3339 in seconds, MicroTime in microseconds; durations for
//! people.

use std::fmt::Write as _;

/// A moment in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Since 1970.
    pub seconds: i64,
    pub nanos: u32,
}

/// Go's zero time, which JSON shows as null: the start of the year 1.
pub const ZERO: Timestamp = Timestamp {
    seconds: -62_135_596_800,
    nanos: 0,
};

const SECONDS_LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
const MICRO_LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Reads a Time. The error is that of Go's `time.Parse`. A fraction of a second is accepted and
/// belongs to the result.
///
/// # Errors
/// The text of Go's `time.Parse`.
pub fn parse(text: &str) -> Result<Timestamp, String> {
    Parser {
        text,
        rest: text,
        layout: SECONDS_LAYOUT,
    }
    .run(false)
}

/// Reads a MicroTime: six digits of fraction, no more, no less. The error is that of Go's
/// `time.Parse`.
///
/// # Errors
/// The text of Go's `time.Parse`.
pub fn parse_micro(text: &str) -> Result<Timestamp, String> {
    Parser {
        text,
        rest: text,
        layout: MICRO_LAYOUT,
    }
    .run(true)
}

/// Writes a moment to the second: `2026-01-02T03:04:05Z`.
pub fn format(seconds: i64) -> String {
    let mut out = String::with_capacity(20);
    write_date_time(&mut out, seconds);
    out.push('Z');
    out
}

/// Writes a moment to the second, where its year has four digits at most.
pub fn text(seconds: i64) -> [u8; 20] {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let mut out = *b"0000-00-00T00:00:00Z";
    let pairs = [
        (0, year / 100),
        (2, year % 100),
        (5, month),
        (8, day),
        (11, second / 3600),
        (14, second / 60 % 60),
        (17, second % 60),
    ];
    for (at, number) in pairs {
        out[at] = b'0' + (number / 10) as u8;
        out[at + 1] = b'0' + (number % 10) as u8;
    }
    out
}

/// Writes a moment to the microsecond: `2026-01-02T03:04:05.000006Z`.
pub fn format_micro(time: Timestamp) -> String {
    let mut out = String::with_capacity(27);
    write_date_time(&mut out, time.seconds);
    // Writing to a String does not fail.
    let _ = write!(out, ".{:06}Z", time.nanos / 1000);
    out
}

fn write_date_time(out: &mut String, seconds: i64) {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let fields = [
        (year.div_euclid(100), ""),
        (year.rem_euclid(100), "-"),
        (month, "-"),
        (day, "T"),
        (second / 3600, ":"),
        (second / 60 % 60, ":"),
        (second % 60, ""),
    ];
    for (number, tail) in fields {
        if (0..100).contains(&number) {
            out.push((b'0' + (number / 10) as u8) as char);
            out.push((b'0' + (number % 10) as u8) as char);
        } else {
            let _ = write!(out, "{number:02}");
        }
        out.push_str(tail);
    }
}

/// The date of a day since 1970, in the proleptic Gregorian calendar (Howard Hinnant's
/// `civil_from_days`).
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// The day since 1970 of a date (Howard Hinnant's `days_from_civil`).
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Reads a text by a layout, element by element, as Go does, for the sake of its errors.
struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl Parser<'_> {
    fn run(mut self, micro: bool) -> Result<Timestamp, String> {
        let year = self.year()?;
        self.literal("-")?;
        let month = self.number("01", true, 1, 12, "month")?;
        self.literal("-")?;
        let day = self.number("02", true, 0, 99, "day")?;
        self.literal("T")?;
        let hour = self.number("15", false, 0, 23, "hour")?;
        self.literal(":")?;
        let minute = self.number("04", true, 0, 59, "minute")?;
        self.literal(":")?;
        let second = self.number("05", true, 0, 59, "second")?;
        let nanos = if micro {
            self.micros()?
        } else {
            self.fraction()
        };
        let offset = self.zone()?;
        if !self.rest.is_empty() {
            return Err(format!(
                "parsing time {}: extra text: {}",
                quote(self.text),
                quote(self.rest)
            ));
        }
        if day < 1 || day > days_in_month(year, month) {
            return Err(self.out_of_range("day"));
        }
        let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset;
        Ok(Timestamp { seconds, nanos })
    }

    fn parse_error(&self, element: &str) -> String {
        let (text, rest) = (quote(self.text), quote(self.rest));
        format!(
            "parsing time {text} as {}: cannot parse {rest} as {}",
            quote(self.layout),
            quote(element)
        )
    }

    fn out_of_range(&self, what: &str) -> String {
        format!("parsing time {}: {what} out of range", quote(self.text))
    }

    fn literal(&mut self, literal: &'static str) -> Result<(), String> {
        self.rest = self
            .rest
            .strip_prefix(literal)
            .ok_or_else(|| self.parse_error(literal))?;
        Ok(())
    }

    fn year(&mut self) -> Result<i64, String> {
        let digits = self
            .rest
            .get(..4)
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        let digits = digits.ok_or_else(|| self.parse_error("2006"))?;
        self.rest = &self.rest[4..];
        digits.parse().map_err(|_| self.parse_error("2006"))
    }

    /// Two digits, or one where they are not `fixed`.
    fn number(
        &mut self,
        element: &str,
        fixed: bool,
        min: i64,
        max: i64,
        what: &str,
    ) -> Result<i64, String> {
        let digit = |at: usize| {
            self.rest
                .as_bytes()
                .get(at)
                .filter(|byte| byte.is_ascii_digit())
                .map(|byte| i64::from(byte - b'0'))
        };
        let (value, length) = match (digit(0), digit(1)) {
            (Some(tens), Some(ones)) => (tens * 10 + ones, 2),
            (Some(ones), None) if !fixed => (ones, 1),
            _ => return Err(self.parse_error(element)),
        };
        self.rest = &self.rest[length..];
        if (min..=max).contains(&value) {
            Ok(value)
        } else {
            Err(self.out_of_range(what))
        }
    }

    /// A fraction that the layout does not have but Go accepts; digits after the ninth do not
    /// count.
    fn fraction(&mut self) -> u32 {
        let Some(tail) = self.rest.strip_prefix(['.', ',']) else {
            return 0;
        };
        let length = tail.bytes().take_while(u8::is_ascii_digit).count();
        if length == 0 {
            return 0;
        }
        self.rest = &tail[length..];
        let digits = tail.bytes().take(length).chain(std::iter::repeat(b'0'));
        digits
            .take(9)
            .fold(0, |nanos, digit| nanos * 10 + u32::from(digit - b'0'))
    }

    fn micros(&mut self) -> Result<u32, String> {
        const ELEMENT: &str = ".000000";
        let digits = self
            .rest
            .strip_prefix(['.', ','])
            .and_then(|tail| tail.get(..6));
        let micros = digits
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|digits| digits.parse::<u32>().ok());
        let micros = micros.ok_or_else(|| self.parse_error(ELEMENT))?;
        self.rest = &self.rest[ELEMENT.len()..];
        Ok(micros * 1000)
    }

    /// The seconds east of UTC.
    fn zone(&mut self) -> Result<i64, String> {
        const ELEMENT: &str = "Z07:00";
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let bytes = self.rest.as_bytes();
        let digits = |at: usize| match (bytes.get(at), bytes.get(at + 1)) {
            (Some(a), Some(b)) if a.is_ascii_digit() && b.is_ascii_digit() => {
                Some(i64::from(a - b'0') * 10 + i64::from(b - b'0'))
            }
            _ => None,
        };
        let sign = match bytes.first() {
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return Err(self.parse_error(ELEMENT)),
        };
        let (Some(hour), Some(b':'), Some(minute)) = (digits(1), bytes.get(3), digits(4)) else {
            return Err(self.parse_error(ELEMENT));
        };
        self.rest = &self.rest[6..];
        if hour > 24 {
            return Err(self.out_of_range("time zone offset hour"));
        }
        if minute > 60 {
            return Err(self.out_of_range("time zone offset minute"));
        }
        Ok(sign * (hour * 3600 + minute * 60))
    }
}

/// A string as Go's time package quotes it: bytes outside printable ASCII as `\xNN`.
fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => {
                out.push('\\');
                out.push(byte as char);
            }
            0x20..=0x7e => out.push(byte as char),
            _ => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_brought_to_utc() {
        let table = [
            ("2020-01-02T03:04:05Z", "2020-01-02T03:04:05Z"),
            ("2020-01-02T03:04:05.999Z", "2020-01-02T03:04:05Z"),
            ("2020-01-02T03:04:05+02:00", "2020-01-02T01:04:05Z"),
            ("2020-02-29T23:59:59-01:30", "2020-03-01T01:29:59Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
            ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
            ("1969-12-31T23:59:59Z", "1969-12-31T23:59:59Z"),
            ("2020-01-02T3:04:05Z", "2020-01-02T03:04:05Z"),
        ];
        for (text, want) in table {
            assert_eq!(
                parse(text).map(|time| format(time.seconds)),
                Ok(want.to_owned()),
                "{text}"
            );
        }
        assert_eq!(parse("0001-01-01T00:00:00Z"), Ok(ZERO));
        assert_eq!(
            parse_micro("2020-01-02T03:04:05.000006+01:00").map(format_micro),
            Ok("2020-01-02T02:04:05.000006Z".to_owned())
        );
    }

    #[test]
    fn errors_are_those_of_go() {
        let seconds = |text: &str| parse(text).expect_err("malformed");
        let table = [
            (
                seconds(""),
                r#"parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006""#,
            ),
            (
                seconds("2020-01-02"),
                r#"parsing time "2020-01-02" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#,
            ),
            (
                seconds("10000-01-01T00:00:00Z"),
                r#"parsing time "10000-01-01T00:00:00Z" as "2006-01-02T15:04:05Z07:00": cannot parse "0-01-01T00:00:00Z" as "-""#,
            ),
            (
                seconds("2020-01-02T03:04:60Z"),
                r#"parsing time "2020-01-02T03:04:60Z": second out of range"#,
            ),
            (
                seconds("2021-02-29T03:04:05Z"),
                r#"parsing time "2021-02-29T03:04:05Z": day out of range"#,
            ),
            (
                seconds("2021-02-20T03:04:05Zé"),
                r#"parsing time "2021-02-20T03:04:05Z\xc3\xa9": extra text: "\xc3\xa9""#,
            ),
            (
                parse_micro("2020-01-02T03:04:05.1234567Z").expect_err("malformed"),
                r#"parsing time "2020-01-02T03:04:05.1234567Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "7Z" as "Z07:00""#,
            ),
            (
                parse_micro("2020-01-02T03:04:05.5+02:00").expect_err("malformed"),
                r#"parsing time "2020-01-02T03:04:05.5+02:00" as "2006-01-02T15:04:05.000000Z07:00": cannot parse ".5+02:00" as ".000000""#,
            ),
        ];
        for (got, want) in table {
            assert_eq!(got, want);
        }
    }
}
