//! Checks that several kinds share: ObjectMeta, label selectors, and the small words that all of
//! them are written with.

mod addresses;
mod checks;
mod fields;
mod meta;
mod selectors;

use crate::meta::Value;

pub use crate::meta::field::domain_prefixed_path;
pub use addresses::{cidr_warnings, ip_warning};
pub use checks::{invalid_unshown, one_of, required_one_of, required_segment, validate_conditions};
pub use fields::Fields;
pub use meta::{
    MetaRules, name_problems, validate_annotations, validate_generic_meta, validate_labels,
    validate_object_meta,
};
pub use selectors::{
    SelectorOptions, label_selector_matches, requirement_has_invalid_value, validate_label_selector,
};

use crate::meta::names::Problems;
use crate::meta::{ErrorList, FieldError, Path};

/// The message for a field that may not change.
pub const IMMUTABLE: &str = "field is immutable";
/// The message for a number below zero.
pub const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// One "Invalid value" for each problem of the string `value`.
pub fn invalid_each(errors: &mut ErrorList, path: &Path, value: &str, problems: Problems) {
    errors.extend(
        problems
            .into_iter()
            .map(|problem| FieldError::invalid(path, value, problem)),
    );
}

/// One "Invalid value" for each problem of the number `value`.
pub fn invalid_number(errors: &mut ErrorList, path: &Path, value: i64, problems: Problems) {
    errors.extend(
        problems
            .into_iter()
            .map(|problem| FieldError::invalid(path, value, problem)),
    );
}

/// Refuses a number below zero.
pub fn not_negative(errors: &mut ErrorList, path: &Path, value: i64) {
    if value < 0 {
        errors.invalid(path, value, NOT_NEGATIVE);
    }
}

/// Refuses a number below zero in the field `key` of the struct at `path`.
pub fn not_negative_field(errors: &mut ErrorList, path: &Path, key: &str, part: &impl Fields) {
    not_negative(errors, &path.child(key), part.int(key).unwrap_or(0));
}

/// Refuses a change. Absent and empty are the same.
pub fn immutable(errors: &mut ErrorList, path: &Path, new: Option<&Value>, old: Option<&Value>) {
    if !same(new, old) {
        errors.invalid(path, new.cloned().unwrap_or_default(), IMMUTABLE);
    }
}

/// Refuses a change of the field `key` of the struct at `path`.
pub fn immutable_field(
    errors: &mut ErrorList,
    path: &Path,
    key: &str,
    new: &impl Fields,
    old: &impl Fields,
) {
    immutable(errors, &path.child(key), new.field(key), old.field(key));
}

/// The same of a text, which is empty where it is absent.
pub fn immutable_text(errors: &mut ErrorList, path: &Path, new: &str, old: &str) {
    if new != old {
        errors.invalid(path, new, IMMUTABLE);
    }
}

/// Reports whether two values mean the same, as upstream's `equality.Semantic.DeepEqual` sees it:
/// an absent one equals an empty list or map. Inside of an object, which has no empty maps when it
/// is complete, an empty struct is one that was asked for.
pub fn same(a: Option<&Value>, b: Option<&Value>) -> bool {
    match (a, b) {
        (Some(Value::Object(map)), None) | (None, Some(Value::Object(map))) => map.is_empty(),
        (a, b) => same_inside(a, b),
    }
}

fn same_inside(a: Option<&Value>, b: Option<&Value>) -> bool {
    match (a, b) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            a.iter()
                .all(|(key, value)| same_inside(Some(value), b.get(key)))
                && b.iter()
                    .all(|(key, value)| a.contains_key(key) || is_empty(value))
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            let mut pairs = a.iter().zip(b);
            a.len() == b.len() && pairs.all(|(a, b)| same_inside(Some(a), Some(b)))
        }
        (Some(Value::Null), Some(Value::Object(map)))
        | (Some(Value::Object(map)), Some(Value::Null)) => map.is_empty(),
        (Some(a), Some(b)) => a == b || (is_empty(a) && is_empty(b)),
        (Some(one), None) | (None, Some(one)) => is_empty(one),
        (None, None) => true,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    #[test]
    fn a_text_that_went_shows_as_empty() {
        let (mut errors, path) = (ErrorList::new(), Path::new("handler"));
        immutable_text(&mut errors, &path, "a", "a");
        immutable_text(&mut errors, &path, "", "a");
        immutable(&mut errors, &path, None, Some(&json!("a")));
        let told = errors.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            told,
            [
                r#"handler: Invalid value: "": field is immutable"#,
                "handler: Invalid value: null: field is immutable"
            ]
        );
    }

    #[test]
    fn absent_and_empty_are_the_same() {
        let cases = [
            (json!({"a": []}), json!({}), true),
            (json!({"a": {}}), json!({"a": null}), true),
            (json!({"a": {}}), json!({}), false),
            (json!({"a": {"b": {}}}), json!({"a": {}}), false),
            (json!({"a": 0}), json!({}), false),
            (json!({"a": ["x"]}), json!({"a": ["x"]}), true),
            (json!({"a": ["x"]}), json!({"a": ["y"]}), false),
            (json!({"a": ""}), json!({}), false),
        ];
        for (a, b, want) in cases {
            assert_eq!(same(Some(&a), Some(&b)), want, "{a} {b}");
            assert_eq!(same(Some(&b), Some(&a)), want, "{b} {a}");
        }
    }
}
