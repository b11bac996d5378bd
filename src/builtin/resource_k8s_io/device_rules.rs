//! Rules that device classes, claims and slices share.

use std::collections::BTreeSet;

use super::cel_selector::check_expression;
use crate::builtin::pod_spec::volume_sources::check_csi_driver_name;
use crate::meta::{ErrorList, FieldError, Path, Value, names};
use crate::registry::validation::{Fields, invalid_each};

/// Bounds of lists: selectors of a request, and configurations.
const SELECTORS_MAX: usize = 32;
pub const CONFIGS_MAX: usize = 32;
/// The longest expression and the longest parameters, in bytes.
const EXPRESSION_MAX: usize = 10 * 1024;
const PARAMETERS_MAX: usize = 10 * 1024;

/// Refuses a list that is too long.
pub fn check_size(errors: &mut ErrorList, path: &Path, list: &[Value], max: usize) {
    if list.len() > max {
        errors.push(FieldError::too_many(path, list.len(), max));
    }
}

/// Refuses items with the same key.
pub fn check_unique<'a>(errors: &mut ErrorList, path: &Path, keys: impl Iterator<Item = &'a str>) {
    let mut seen = BTreeSet::new();
    for (index, key) in keys.enumerate() {
        if !seen.insert(key) {
            errors.push(FieldError::duplicate(&path.index(index), key));
        }
    }
}

pub fn check_label(errors: &mut ErrorList, path: &Path, name: &str) {
    invalid_each(errors, path, name, names::dns1123_label(name));
}

pub fn check_selectors(errors: &mut ErrorList, path: &Path, selectors: &[Value]) {
    check_size(errors, path, selectors, SELECTORS_MAX);
    for (index, selector) in selectors.iter().enumerate() {
        let path = path.index(index).child("cel");
        match selector.map("cel") {
            None => errors.push(FieldError::required(&path, "")),
            Some(cel) if cel.str("expression").len() > EXPRESSION_MAX => {
                errors.push(FieldError::too_long(
                    &path.child("expression"),
                    EXPRESSION_MAX,
                ));
            }
            Some(cel) => check_expression(errors, &path.child("expression"), cel.str("expression")),
        }
    }
}

/// Parameters that only a driver understands: a JSON object.
pub fn check_opaque(errors: &mut ErrorList, path: &Path, config: &Value) {
    let path = path.child("opaque");
    let Some(opaque) = config.map("opaque") else {
        errors.push(FieldError::required(&path, ""));
        return;
    };
    check_csi_driver_name(errors, &path.child("driver"), opaque.str("driver"));
    let path = path.child("parameters");
    match opaque.field("parameters") {
        None => errors.push(FieldError::required(&path, "")),
        Some(parameters) if parameters.to_string().len() > PARAMETERS_MAX => {
            errors.push(FieldError::too_long(&path, PARAMETERS_MAX));
        }
        Some(Value::Object(_)) => {}
        Some(_) => errors.push(FieldError::invalid(
            &path,
            "<value omitted>",
            "must be a valid JSON object",
        )),
    }
}
