//! Checks of single values that kinds of several groups share.

use std::collections::HashSet;

use crate::meta::Value;

use super::{Fields, invalid_each};
use crate::meta::names;
use crate::meta::{ErrorList, FieldError, Path};

const REASON: &str = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?";
/// The longest reason of a condition, in bytes.
const REASON_MAX: usize = 1024;
/// The longest message of a condition, in bytes.
const MESSAGE_MAX: usize = 32 * 1024;

/// An "Invalid value" that does not show the value.
pub fn invalid_unshown(path: &Path, detail: impl Into<String>) -> FieldError {
    FieldError {
        value: None,
        ..FieldError::invalid(path, Value::Null, detail)
    }
}

/// Refuses a value outside an enumeration; absent is one too.
pub fn one_of(errors: &mut ErrorList, path: &Path, value: &str, supported: &[&str]) {
    if !supported.contains(&value) {
        errors.not_supported(path, value, supported);
    }
}

/// Refuses an absent value, and one outside an enumeration.
pub fn required_one_of(errors: &mut ErrorList, path: &Path, value: &str, supported: &[&str]) {
    if value.is_empty() {
        errors.required(path, "");
    } else {
        one_of(errors, path, value, supported);
    }
}

/// A segment of a URL path that must be given.
pub fn required_segment(errors: &mut ErrorList, path: &Path, value: &str) {
    if value.is_empty() {
        errors.required(path, "");
    } else {
        invalid_each(errors, path, value, names::path_segment_name(value));
    }
}

/// Checks conditions as `metav1.Condition` has them.
pub fn validate_conditions(errors: &mut ErrorList, path: &Path, conditions: &[Value]) {
    let mut kinds = HashSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        let kind = condition.str("type");
        if !kinds.insert(kind) {
            errors.duplicate(&path.child("type"), kind);
        }
        validate_condition(errors, &path, condition);
    }
}

fn validate_condition(errors: &mut ErrorList, path: &Path, condition: &Value) {
    let kind = condition.str("type");
    invalid_each(
        errors,
        &path.child("type"),
        kind,
        names::qualified_name(kind),
    );
    one_of(
        errors,
        &path.child("status"),
        condition.str("status"),
        &["False", "True", "Unknown"],
    );
    if let Some(generation) = condition
        .int("observedGeneration")
        .filter(|generation| *generation < 0)
    {
        errors.invalid(
            &path.child("observedGeneration"),
            generation,
            "must be greater than or equal to zero",
        );
    }
    if condition.str("lastTransitionTime").is_empty() {
        errors.required(&path.child("lastTransitionTime"), "");
    }
    let (reason, reason_path) = (condition.str("reason"), path.child("reason"));
    if reason.is_empty() {
        errors.required(&reason_path, "");
    } else {
        if !is_reason(reason) {
            let detail = format!(
                "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or \
                 '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or \
                 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '{REASON}')"
            );
            errors.invalid(&reason_path, reason, detail);
        }
        if reason.len() > REASON_MAX {
            errors.too_long(&reason_path, REASON_MAX);
        }
    }
    if condition.str("message").len() > MESSAGE_MAX {
        errors.too_long(&path.child("message"), MESSAGE_MAX);
    }
}

fn is_reason(text: &str) -> bool {
    let word = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(|&c| word(c))
        && bytes.iter().all(|&c| word(c) || c == b',' || c == b':')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    fn lines(check: impl FnOnce(&mut ErrorList)) -> Vec<String> {
        let mut errors = ErrorList::new();
        check(&mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn conditions() {
        let fine = json!({"type": "A", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z", "reason": "R"});
        assert_eq!(
            lines(|errors| validate_conditions(
                errors,
                &Path::new("c"),
                std::slice::from_ref(&fine)
            )),
            [""; 0]
        );
        let found = lines(|errors| {
            validate_conditions(
                errors,
                &Path::new("c"),
                &[fine, json!({"type": "A", "status": "x"})],
            )
        });
        assert_eq!(
            found,
            [
                r#"c[1].type: Duplicate value: "A""#,
                r#"c[1].status: Unsupported value: "x": supported values: "False", "True", "Unknown""#,
                "c[1].lastTransitionTime: Required value",
                "c[1].reason: Required value",
            ]
        );
    }
}
