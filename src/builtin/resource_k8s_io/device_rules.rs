//! Rules that device classes, claims and slices share.

use std::collections::BTreeSet;

use super::cel_selector::check_expression;
use crate::builtin::pod_spec::volume_sources::check_csi_driver_name;
use crate::meta::{ErrorList, Path, Value, go, names};
use crate::registry::validation::{Fields, invalid_each};

/// Bounds of lists: selectors of a request, and configurations.
const SELECTORS_MAX: usize = 32;
pub const CONFIGS_MAX: usize = 32;
/// The longest expression and the longest parameters, in bytes.
const EXPRESSION_MAX: usize = 10 * 1024;
const PARAMETERS_MAX: usize = 10 * 1024;
/// The most conditions of one sort that binding a device depends on.
const BINDING_CONDITIONS_MAX: usize = 4;
/// The longest name of an attribute or a capacity without its domain, in bytes.
pub const IDENTIFIER_MAX: usize = 32;

/// Refuses a list that is too long, and reports whether the rest of it is to be checked.
pub fn check_size(errors: &mut ErrorList, path: &Path, list: &[Value], max: usize) -> bool {
    if list.len() > max {
        errors.too_many(path, list.len(), max);
    }
    list.len() <= max
}

/// Refuses items with the same key.
pub fn check_unique<'a>(errors: &mut ErrorList, path: &Path, keys: impl Iterator<Item = &'a str>) {
    let mut seen = BTreeSet::new();
    for (index, key) in keys.enumerate() {
        if !seen.insert(key) {
            errors.duplicate(&path.index(index), key);
        }
    }
}

pub fn check_label(errors: &mut ErrorList, path: &Path, name: &str) {
    invalid_each(errors, path, name, names::dns1123_label(name));
}

pub fn check_selectors(errors: &mut ErrorList, path: &Path, selectors: &[Value]) {
    if !check_size(errors, path, selectors, SELECTORS_MAX) {
        return;
    }
    for (index, selector) in selectors.iter().enumerate() {
        let path = path.index(index).child("cel");
        match selector.map("cel") {
            None => errors.required(&path, ""),
            Some(cel) if cel.str("expression").len() > EXPRESSION_MAX => {
                errors.too_long(&path.child("expression"), EXPRESSION_MAX);
            }
            Some(cel) => check_expression(errors, &path.child("expression"), cel.str("expression")),
        }
    }
}

/// Parameters that only a driver understands: a JSON object.
pub fn check_opaque(errors: &mut ErrorList, path: &Path, config: &Value) {
    let path = path.child("opaque");
    let Some(opaque) = config.map("opaque") else {
        errors.required(&path, "");
        return;
    };
    check_csi_driver_name(errors, &path.child("driver"), opaque.str("driver"));
    check_json(
        errors,
        &path.child("parameters"),
        opaque.field("parameters"),
    );
}

/// A JSON object that only a driver understands.
pub fn check_json(errors: &mut ErrorList, path: &Path, object: Option<&Value>) {
    match object {
        None => errors.required(path, ""),
        Some(object) if object.to_string().len() > PARAMETERS_MAX => {
            errors.too_long(path, PARAMETERS_MAX);
        }
        Some(Value::Object(_)) => {}
        Some(_) => errors.invalid(path, "<value omitted>", "must be a valid JSON object"),
    }
}

/// The name of an attribute or a capacity: an identifier, perhaps behind a domain and a slash.
pub fn check_qualified_name(errors: &mut ErrorList, path: &Path, name: &str) {
    let parts: Vec<&str> = name.split('/').collect();
    let identifier = match parts[..] {
        [identifier] => identifier,
        [domain, identifier] => {
            if domain.is_empty() {
                errors.invalid(path, "", "the domain must not be empty");
            } else {
                check_csi_driver_name(errors, path, domain);
            }
            if identifier.is_empty() {
                errors.invalid(path, "", "the name must not be empty");
                return;
            }
            identifier
        }
        // Upstream lets names with more slashes pass.
        _ => return,
    };
    if identifier.len() > IDENTIFIER_MAX {
        errors.too_long(path, IDENTIFIER_MAX);
    }
    invalid_each(errors, path, identifier, names::c_identifier(identifier));
}

/// Conditions that a device must meet before, and must not meet while, it is bound.
pub fn check_binding(errors: &mut ErrorList, path: &Path, device: &Value) {
    let (wanted, feared) = ("bindingConditions", "bindingFailureConditions");
    for key in [wanted, feared] {
        let (path, conditions) = (path.child(key), device.list(key));
        if !check_size(errors, &path, conditions, BINDING_CONDITIONS_MAX) {
            continue;
        }
        for (index, condition) in texts(conditions).enumerate() {
            invalid_each(
                errors,
                &path.index(index),
                condition,
                names::label_key(condition),
            );
        }
    }
    let known: BTreeSet<&str> = texts(device.list(wanted)).collect();
    check_unique(errors, &path.child(wanted), texts(device.list(wanted)));
    let mut seen = BTreeSet::new();
    for (index, condition) in texts(device.list(feared)).enumerate() {
        let path = path.child(feared).index(index);
        if !seen.insert(condition) {
            errors.duplicate(&path, condition);
        }
        if known.contains(condition) {
            let detail = "bindingFailureConditions must not overlap with bindingConditions";
            errors.invalid(&path, condition, detail);
        }
    }
    for (key, other) in [(wanted, feared), (feared, wanted)] {
        if device.list(key).is_empty() && !device.list(other).is_empty() {
            let detail = format!("{key} are required to use {other}");
            errors.invalid(&path.child(key), Value::Null, detail);
        }
    }
}

fn texts(list: &[Value]) -> impl Iterator<Item = &str> {
    list.iter().map(|item| item.as_str().unwrap_or(""))
}

/// A UUID in one of the forms that google/uuid reads.
pub fn check_uuid(errors: &mut ErrorList, path: &Path, text: &str) {
    let problem = match (text.len(), text.get(..9)) {
        (36, _) => hyphenated_problem(text),
        (45, Some(prefix)) if !prefix.eq_ignore_ascii_case("urn:uuid:") => {
            Some(format!("invalid urn prefix: {}", go::quote(prefix)))
        }
        (45, _) => text.get(9..).map_or_else(malformed, hyphenated_problem),
        (38, _) => match text
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'))
        {
            Some(inner) => hyphenated_problem(inner),
            None => Some("invalid bracketed UUID format".to_owned()),
        },
        (32, _) if text.bytes().all(|c| c.is_ascii_hexdigit()) => None,
        (32, _) => malformed(),
        (length, _) => Some(format!("invalid UUID length: {length}")),
    };
    if let Some(problem) = problem {
        let detail = format!("error validating uid: {problem}");
        errors.invalid(path, text, detail);
    }
}

fn malformed() -> Option<String> {
    Some("invalid UUID format".to_owned())
}

fn hyphenated_problem(text: &str) -> Option<String> {
    let fine = text.bytes().enumerate().all(|(at, c)| match at {
        8 | 13 | 18 | 23 => c == b'-',
        _ => c.is_ascii_hexdigit(),
    });
    if fine { None } else { malformed() }
}
