//! Label selectors as structs (`metav1.LabelSelector`): what they must look like, and whether they
//! match.

use super::{Fields, invalid_each, validate_labels};
use crate::meta::{ErrorList, Path};
use crate::meta::{Map, Value, names};

/// Leniencies for selectors that were stored before a rule existed.
#[derive(Clone, Copy, Debug, Default)]
pub struct SelectorOptions {
    /// Values of `matchExpressions` need not be label values.
    pub allow_invalid_values: bool,
}

/// Checks a label selector; `None` is fine.
pub fn validate_label_selector(
    errors: &mut ErrorList,
    path: &Path,
    selector: Option<&Map>,
    options: SelectorOptions,
) {
    let Some(selector) = selector else { return };
    validate_labels(
        errors,
        &path.child("matchLabels"),
        selector.map("matchLabels"),
    );
    for (index, requirement) in selector.list("matchExpressions").iter().enumerate() {
        validate_requirement(
            errors,
            &path.child("matchExpressions").index(index),
            requirement,
            options,
        );
    }
}

fn validate_requirement(
    errors: &mut ErrorList,
    path: &Path,
    requirement: &Value,
    options: SelectorOptions,
) {
    let values = requirement.list("values");
    match requirement.str("operator") {
        "In" | "NotIn" if values.is_empty() => {
            errors.required(
                &path.child("values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            );
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            errors.forbidden(
                &path.child("values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            );
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => errors.invalid(
            &path.child("operator"),
            other,
            "not a valid selector operator",
        ),
    }
    let key = requirement.str("key");
    invalid_each(errors, &path.child("key"), key, names::qualified_name(key));
    if options.allow_invalid_values {
        return;
    }
    for (index, value) in values.iter().filter_map(Value::as_str).enumerate() {
        let problems = names::label_value(value);
        if !problems.is_empty() {
            invalid_each(errors, &path.child("values").index(index), value, problems);
        }
    }
}

/// Reports whether a stored selector holds a value that a new one may not.
pub fn requirement_has_invalid_value(selector: Option<&Map>) -> bool {
    selector.is_some_and(|selector| {
        let values = selector
            .list("matchExpressions")
            .iter()
            .flat_map(|one| one.list("values"));
        values
            .filter_map(Value::as_str)
            .any(|value| !names::label_value(value).is_empty())
    })
}

/// Reports whether labels satisfy a selector. `None` matches nothing, the empty selector
/// everything.
pub fn label_selector_matches(selector: Option<&Map>, labels: Option<&Map>) -> bool {
    let Some(selector) = selector else {
        return false;
    };
    let label = |key: &str| {
        labels
            .and_then(|labels| labels.get(key))
            .and_then(Value::as_str)
    };
    let by_labels = selector
        .entries("matchLabels")
        .all(|(key, value)| label(key) == value.as_str());
    by_labels
        && selector.list("matchExpressions").iter().all(|one| {
            let have = label(one.str("key"));
            let listed = || {
                have.is_some_and(|have| {
                    one.list("values")
                        .iter()
                        .any(|value| value.as_str() == Some(have))
                })
            };
            match one.str("operator") {
                "In" => listed(),
                "NotIn" => !listed(),
                "Exists" => have.is_some(),
                "DoesNotExist" => have.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    #[test]
    fn selectors() {
        let labels = json!({"app": "a", "tier": "x"});
        let cases = [
            (json!({}), true, 0),
            (json!({"matchLabels": {"app": "a"}}), true, 0),
            (json!({"matchLabels": {"app": "b"}}), false, 0),
            (
                json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}),
                true,
                0,
            ),
            (
                json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}),
                false,
                0,
            ),
            (
                json!({"matchExpressions": [{"key": "no", "operator": "NotIn", "values": ["a"]}]}),
                true,
                0,
            ),
            (
                json!({"matchExpressions": [{"key": "no", "operator": "Exists"}]}),
                false,
                0,
            ),
            (
                json!({"matchExpressions": [{"key": "no", "operator": "In"}]}),
                false,
                1,
            ),
            (
                json!({"matchExpressions": [{"key": "", "operator": "Near", "values": ["-"]}]}),
                false,
                4,
            ),
            (
                json!({"matchExpressions": [{"key": "no", "operator": "DoesNotExist", "values": ["a"]}]}),
                true,
                1,
            ),
        ];
        for (selector, matches, wrong) in cases {
            assert_eq!(
                label_selector_matches(selector.as_object(), labels.as_object()),
                matches,
                "{selector}"
            );
            let mut errors = ErrorList::new();
            validate_label_selector(
                &mut errors,
                &Path::new("selector"),
                selector.as_object(),
                SelectorOptions::default(),
            );
            assert_eq!(errors.len(), wrong, "{errors:?}");
        }
        assert!(!label_selector_matches(None, labels.as_object()));
    }
}
