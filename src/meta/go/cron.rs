//! Validation of cron schedules, in the words of upstream's parser (robfig/cron v3).

use super::parse_duration;

struct Bounds {
    low: u64,
    high: u64,
    names: &'static [&'static str],
}

const MONTHS: &[&str] = &[
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// Minute, hour, day of the month, month, day of the week.
const FIELDS: [Bounds; 5] = [
    Bounds {
        low: 0,
        high: 59,
        names: &[],
    },
    Bounds {
        low: 0,
        high: 23,
        names: &[],
    },
    Bounds {
        low: 1,
        high: 31,
        names: &[],
    },
    Bounds {
        low: 1,
        high: 12,
        names: MONTHS,
    },
    Bounds {
        low: 0,
        high: 6,
        names: DAYS,
    },
];
const DESCRIPTORS: &[&str] = &[
    "@yearly",
    "@annually",
    "@monthly",
    "@weekly",
    "@daily",
    "@midnight",
    "@hourly",
];
/// Returns the error of a schedule that does not parse.
pub fn schedule_problem(schedule: &str) -> Option<String> {
    let mut rest = schedule;
    if let Some((prefix, after)) = rest
        .split_once('=')
        .filter(|(prefix, _)| matches!(*prefix, "TZ" | "CRON_TZ"))
    {
        let Some((zone, schedule)) = after.split_once(' ') else {
            return Some(format!("invalid schedule \"{prefix}={after}\""));
        };
        if !is_time_zone(zone) {
            return Some(format!(
                "provided bad location {zone}: unknown time zone {zone}"
            ));
        }
        rest = schedule.trim();
    }
    if rest.starts_with('@') {
        return descriptor_problem(rest);
    }
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Some(format!(
            "expected exactly 5 fields, found {}: [{}]",
            fields.len(),
            fields.join(" ")
        ));
    }
    let ranges = |field: &'static Bounds, text: &str| {
        text.split(',')
            .filter(|one| !one.is_empty())
            .find_map(|one| range_problem(one, field))
    };
    FIELDS
        .iter()
        .zip(fields)
        .find_map(|(field, text)| ranges(field, text))
}

/// Reports whether a time zone of that name exists.
pub fn is_time_zone(name: &str) -> bool {
    name == "UTC" || jiff::tz::TimeZone::get(name).is_ok_and(|zone| zone.iana_name() == Some(name))
}

fn range_problem(text: &str, bounds: &Bounds) -> Option<String> {
    check_range(text, bounds).err()
}

fn check_range(text: &str, bounds: &Bounds) -> Result<(), String> {
    let slashes: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = slashes[0].split('-').collect();
    let (start, mut end) = if matches!(ends[0], "*" | "?") {
        (bounds.low, bounds.high)
    } else {
        let start = number_or_name(ends[0], bounds)?;
        match ends.as_slice() {
            [_] => (start, start),
            [_, end] => (start, number_or_name(end, bounds)?),
            _ => return Err(format!("too many hyphens: {text}")),
        }
    };
    let step = match slashes.as_slice() {
        [_] => 1,
        [_, step] => {
            let step = number(step)?;
            if ends.len() == 1 {
                end = bounds.high;
            }
            step
        }
        _ => return Err(format!("too many slashes: {text}")),
    };
    if start < bounds.low {
        return Err(format!(
            "beginning of range ({start}) below minimum ({}): {text}",
            bounds.low
        ));
    }
    if end > bounds.high {
        return Err(format!(
            "end of range ({end}) above maximum ({}): {text}",
            bounds.high
        ));
    }
    if start > end {
        return Err(format!(
            "beginning of range ({start}) beyond end of range ({end}): {text}"
        ));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    Ok(())
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<u64, String> {
    match bounds
        .names
        .iter()
        .position(|name| name.eq_ignore_ascii_case(text))
    {
        Some(index) => Ok(index as u64 + bounds.low),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u64, String> {
    let number: i64 = text.parse().map_err(|error: std::num::ParseIntError| {
        let why = match error.kind() {
            std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => {
                "value out of range"
            }
            _ => "invalid syntax",
        };
        format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: {why}")
    })?;
    u64::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}"))
}

fn descriptor_problem(text: &str) -> Option<String> {
    if DESCRIPTORS.contains(&text) {
        return None;
    }
    let Some(duration) = text.strip_prefix("@every ") else {
        return Some(format!("unrecognized descriptor: {text}"));
    };
    parse_duration(duration)
        .err()
        .map(|why| format!("failed to parse duration {text}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_zones_come_with_the_program() {
        assert!(
            jiff::tz::TimeZoneDatabase::bundled()
                .get("Europe/Berlin")
                .is_ok()
        );
    }

    #[test]
    fn schedules() {
        let cases = [
            ("*/5 * * * *", None),
            ("0 0 1 jan sun-sat", None),
            ("@daily", None),
            ("@every 1h30m", None),
            ("@bogus", Some("unrecognized descriptor: @bogus")),
            (
                "@every x",
                Some("failed to parse duration @every x: time: invalid duration \"x\""),
            ),
            (
                "@every 1",
                Some("failed to parse duration @every 1: time: missing unit in duration \"1\""),
            ),
            (
                "* * * *",
                Some("expected exactly 5 fields, found 4: [* * * *]"),
            ),
            (
                "60 * * * *",
                Some("end of range (60) above maximum (59): 60"),
            ),
            (
                "x * * * *",
                Some("failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ),
            (
                "* * 0 * *",
                Some("beginning of range (0) below minimum (1): 0"),
            ),
            (
                "5-1 * * * *",
                Some("beginning of range (5) beyond end of range (1): 5-1"),
            ),
            ("1-2-3 * * * *", Some("too many hyphens: 1-2-3")),
            (
                "*/0 * * * *",
                Some("step of range should be a positive number: */0"),
            ),
            ("1/2/3 * * * *", Some("too many slashes: 1/2/3")),
        ];
        for (schedule, want) in cases {
            assert_eq!(schedule_problem(schedule).as_deref(), want, "{schedule}");
        }
    }
}
