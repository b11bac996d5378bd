//! Checks that a value fits its type, which an applied configuration must (structured-merge-diff
//! `typed/validate.go`).

use crate::meta::Value;

use super::path::PathElement;
use super::topology::{List, Map, Shape, Ty};
use super::typed::{TypeError, TypeErrors, check_scalar, list_element, unknown_field};
use crate::meta::go;

/// Checks that an object has the right types, declared fields only, and no item of an associative
/// list twice.
///
/// # Errors
/// Everything that is wrong, with paths from the root.
pub fn validate_map(ty: Ty<'_>, entries: &crate::meta::Map) -> Result<(), TypeErrors> {
    Checker { duplicates: false }.object(ty, entries)
}

/// Checks an object as [`validate_map`] does, but lets items be there twice, as stored objects may
/// have them.
///
/// # Errors
/// As [`validate_map`].
pub fn validate_with_duplicates(ty: Ty<'_>, entries: &crate::meta::Map) -> Result<(), TypeErrors> {
    Checker { duplicates: true }.object(ty, entries)
}

#[derive(Clone, Copy)]
struct Checker {
    /// True if items may be there twice.
    duplicates: bool,
}

impl Checker {
    fn object(self, ty: Ty<'_>, entries: &crate::meta::Map) -> Result<(), TypeErrors> {
        let Some(map) = ty.atom().map else {
            return Err(unknown_field());
        };
        let errors = self.errors_in_map(&map, entries);
        if errors.0.is_empty() {
            Ok(())
        } else {
            Err(errors)
        }
    }

    fn errors_in(self, ty: Option<Ty<'_>>, value: &Value) -> TypeErrors {
        let wrong = |expected: &str| {
            TypeErrors::one(format!(
                "expected {expected}, got &{{{}}}",
                go::sprint(value)
            ))
        };
        let Some(shape) = ty.and_then(|ty| ty.atom().deduce(Some(value)).shape()) else {
            return unknown_field();
        };
        match (shape, value) {
            (Shape::Scalar(scalar), _) => check_scalar(scalar, Some(value), "")
                .err()
                .unwrap_or_default(),
            (Shape::List(_) | Shape::Map(_), Value::Null) => TypeErrors::default(),
            (Shape::List(list), Value::Array(items)) => self.errors_in_list(&list, items),
            (Shape::List(_), _) => wrong("list"),
            (Shape::Map(map), Value::Object(entries)) => self.errors_in_map(&map, entries),
            (Shape::Map(_), _) => wrong("map"),
        }
    }

    fn errors_in_list(self, list: &List, items: &[Value]) -> TypeErrors {
        let mut errors = TypeErrors::default();
        let here = |message: String| TypeError {
            path: String::new(),
            message,
        };
        let mut seen = std::collections::BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let element = if list.atomic() {
                PathElement::Index(index as i64)
            } else {
                match list_element(list, item) {
                    Ok(element) => element,
                    Err(message) => {
                        errors.0.push(here(format!("element {index}: {message}")));
                        return errors;
                    }
                }
            };
            if !list.atomic() && !seen.insert(element.clone()) && !self.duplicates {
                errors
                    .0
                    .push(here(format!("duplicate entries for key {element}")));
            }
            errors
                .0
                .extend(self.errors_in(Some(list.element), item).below(&element).0);
        }
        errors
    }

    fn errors_in_map(self, map: &Map, entries: &crate::meta::Map) -> TypeErrors {
        let mut errors = TypeErrors::default();
        for (name, value) in entries {
            let element = PathElement::Field(name);
            let Some(ty) = map.type_of(name) else {
                errors.0.extend(
                    TypeErrors::one("field not declared in schema")
                        .below(&element)
                        .0,
                );
                return errors;
            };
            errors
                .0
                .extend(self.errors_in(Some(ty), value).below(&element).0);
        }
        errors
    }
}
