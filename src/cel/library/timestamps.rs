//! Parts of times and durations (cel-go `common/types/timestamp.go`, `duration.go`).

use std::num::IntErrorKind;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span};

use super::super::value::{Error, Result, Value};
use super::Declaration;
use super::operators::declare;

pub const DECLARATIONS: &[Declaration] = &[
    declare!("getFullYear", year,
        "timestamp_to_year": "timestamp() -> int",
        "timestamp_to_year_with_tz": "timestamp(string) -> int",
    ),
    declare!("getMonth", |args| part(args, |at| i64::from(at.month()) - 1),
        "timestamp_to_month": "timestamp() -> int",
        "timestamp_to_month_with_tz": "timestamp(string) -> int",
    ),
    declare!("getDayOfYear", |args| part(args, |at| i64::from(at.date().day_of_year()) - 1),
        "timestamp_to_day_of_year": "timestamp() -> int",
        "timestamp_to_day_of_year_with_tz": "timestamp(string) -> int",
    ),
    declare!("getDayOfMonth", |args| part(args, |at| i64::from(at.day()) - 1),
        "timestamp_to_day_of_month": "timestamp() -> int",
        "timestamp_to_day_of_month_with_tz": "timestamp(string) -> int",
    ),
    declare!("getDate", |args| part(args, |at| i64::from(at.day())),
        "timestamp_to_day_of_month_1_based": "timestamp() -> int",
        "timestamp_to_day_of_month_1_based_with_tz": "timestamp(string) -> int",
    ),
    declare!("getDayOfWeek",
        |args| part(args, |at| i64::from(at.weekday().to_sunday_zero_offset())),
        "timestamp_to_day_of_week": "timestamp() -> int",
        "timestamp_to_day_of_week_with_tz": "timestamp(string) -> int",
    ),
    declare!("getHours",
        |args| either(args, |at| i64::from(at.hour()), |by| by.as_hours()),
        "timestamp_to_hours": "timestamp() -> int",
        "timestamp_to_hours_with_tz": "timestamp(string) -> int",
        "duration_to_hours": "duration() -> int",
    ),
    declare!("getMinutes",
        |args| either(args, |at| i64::from(at.minute()), |by| by.as_mins()),
        "timestamp_to_minutes": "timestamp() -> int",
        "timestamp_to_minutes_with_tz": "timestamp(string) -> int",
        "duration_to_minutes": "duration() -> int",
    ),
    declare!("getSeconds",
        |args| either(args, |at| i64::from(at.second()), |by| by.as_secs()),
        "timestamp_to_seconds": "timestamp() -> int",
        "timestamp_to_seconds_tz": "timestamp(string) -> int",
        "duration_to_seconds": "duration() -> int",
    ),
    declare!("getMilliseconds",
        |args| either(args, |at| i64::from(at.millisecond()), |by| {
            i64::try_from(by.as_millis()).unwrap_or(i64::MAX)
        }),
        "timestamp_to_milliseconds": "timestamp() -> int",
        "timestamp_to_milliseconds_with_tz": "timestamp(string) -> int",
        "duration_to_milliseconds": "duration() -> int",
    ),
];

/// The longest name of a time zone, which upstream takes for that of a file.
const MAX_NAME_BYTES: usize = 255;

/// The time zone of a name.
fn zone(name: &str) -> Result<TimeZone> {
    if name.is_empty() || name == "UTC" {
        return Ok(TimeZone::UTC);
    }
    if name.starts_with(['/', '\\']) || name.contains("..") {
        return Err(Error::new("time: invalid location name"));
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(Error::new("file name too long"));
    }
    // Names differ by the case of their letters.
    let found = TimeZone::get(name).ok();
    let found = found.filter(|zone| zone.iana_name() == Some(name));
    found.ok_or_else(|| Error::new(format!("unknown time zone {name}")))
}

/// The offset of hours and minutes such as those of `-08:00`.
fn offset(hours: &str, minutes: &str) -> Result<SignedDuration> {
    let number = |text: &str| {
        text.parse::<i64>().map_err(|why| {
            let why = match why.kind() {
                IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
                _ => "invalid syntax",
            };
            Error::new(format!("strconv.Atoi: parsing {text:?}: {why}"))
        })
    };
    let (whole, minutes) = (number(hours)?, number(minutes)?);
    let minutes = if hours.starts_with('-') {
        minutes.saturating_neg()
    } else {
        minutes
    };
    let seconds = whole
        .saturating_mul(60)
        .saturating_add(minutes)
        .saturating_mul(60);
    Ok(SignedDuration::from_secs(seconds))
}

/// The years after which the days of the calendar are the same again.
const CYCLE_YEARS: i16 = 400;
const LAST_YEAR: i16 = 9_999;

/// The years by which a time is moved before it is brought into a time zone: the last day that
/// there is has no local time everywhere.
fn moved(at: DateTime) -> i16 {
    if at.year() < LAST_YEAR {
        0
    } else {
        CYCLE_YEARS
    }
}

/// A time of UTC as clocks of a time zone show it, but for the years by which it is moved.
fn local(at: DateTime, name: &str) -> Result<DateTime> {
    let earlier = at.checked_sub(Span::new().years(moved(at)));
    let local = match name.split_once(':') {
        Some((hours, minutes)) => {
            let offset = offset(hours, minutes)?;
            earlier.and_then(|at| at.checked_add(offset))
        }
        None => {
            let zone = zone(name)?;
            let zoned = earlier.and_then(|at| at.to_zoned(TimeZone::UTC));
            zoned.map(|at| at.with_time_zone(zone).datetime())
        }
    };
    local.map_err(|_| Error::new("timestamp overflow"))
}

fn year<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let year = match args {
        [Value::Timestamp(at)] => Ok(i64::from(at.year())),
        [Value::Timestamp(at), Value::String(name)] => {
            let local = local(*at, name.as_str());
            local.map(|local| i64::from(local.year()) + i64::from(moved(*at)))
        }
        _ => return None,
    };
    Some(year.map(Value::Int))
}

fn part<'a>(args: &[Value<'a>], of: fn(DateTime) -> i64) -> Option<Result<Value<'a>>> {
    let at = match args {
        [Value::Timestamp(at)] => Ok(*at),
        [Value::Timestamp(at), Value::String(name)] => local(*at, name.as_str()),
        _ => return None,
    };
    Some(at.map(|at| Value::Int(of(at))))
}

fn either<'a>(
    args: &[Value<'a>],
    of: fn(DateTime) -> i64,
    whole: fn(&SignedDuration) -> i64,
) -> Option<Result<Value<'a>>> {
    match args {
        [Value::Duration(by)] => Some(Ok(Value::Int(whole(by)))),
        args => part(args, of),
    }
}
