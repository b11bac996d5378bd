//! Numbers that may be percentages, as rolling updates have them.

use crate::meta::{ErrorList, Map, Path, Value, names};
use crate::registry::validation::{Fields, invalid_each, not_negative};

/// Checks that a number is not negative, or a string a percentage.
pub fn check_count_or_percent(errors: &mut ErrorList, path: &Path, value: &Value) {
    match value {
        Value::String(text) => invalid_each(errors, path, text, names::percent(text)),
        other => not_negative(errors, path, other.as_i64().unwrap_or(0)),
    }
}

/// The number before the percent sign; `None` for anything but a percentage.
fn percent(value: &Value) -> Option<i64> {
    let text = value.as_str()?;
    if !names::percent(text).is_empty() {
        return None;
    }
    Some(text.trim_end_matches('%').parse().unwrap_or(i64::MAX))
}

/// The number of a count or percentage; zero for what is neither.
pub fn amount(value: &Value) -> i64 {
    match value {
        Value::String(text) => percent(value).or_else(|| text.parse().ok()).unwrap_or(0),
        other => other.as_i64().unwrap_or(0),
    }
}

/// Checks that a percentage is at most 100.
pub fn check_at_most_all(errors: &mut ErrorList, path: &Path, value: &Value) {
    if percent(value).is_some_and(|percent| percent > 100) {
        errors.invalid(path, value.clone(), "must not be greater than 100%");
    }
}

/// A count or percentage of a struct; zero where absent.
pub fn field(map: &Map, key: &str) -> Value {
    map.field(key).cloned().unwrap_or_else(|| 0.into())
}
