//! Limits on numbers (kube-openapi `validation/validate`, go-openapi `swag`).

use serde_json::Number;

use crate::extensions::schema::json_schema_props::ValueValidation;
use crate::extensions::schema::lazy_path::LazyPath;
use crate::meta::{Value, go};

/// The greatest integer that JSON numbers hold exactly.
const MAX_JSON_INTEGER: f64 = 9_007_199_254_740_991.0;
/// The relative distance from an integer within which a number counts as one.
const EPSILON: f64 = 1e-9;

/// The constraints of a schema on a number.
pub struct Limits<'a> {
    pub values: &'a ValueValidation,
    pub types: &'a [&'a str],
    pub format: &'a str,
    pub path: LazyPath<'a>,
}

/// A violation by a number.
#[derive(Debug, PartialEq)]
pub enum Problem {
    /// A value or limit that its type cannot hold; the message has no place.
    Range(String),
    Limit(String),
    /// A `multipleOf` that is not positive.
    Factor(Value, String),
}

impl Limits<'_> {
    pub fn check(&self, number: &Number) -> Vec<Problem> {
        let ValueValidation {
            maximum,
            minimum,
            multiple_of,
            exclusive_maximum,
            exclusive_minimum,
            ..
        } = self.values;
        let mut out = Vec::new();
        out.extend(self.range(number, "Checked"));
        if let Some(factor) = multiple_of {
            out.extend(self.limit(number, *factor, "MultipleOf", |native| {
                self.multiple(number, *factor, native)
            }));
        }
        if let Some(least) = minimum {
            let (word, low) = if *exclusive_minimum {
                ("greater than", true)
            } else {
                ("greater than or equal to", false)
            };
            let broken = |native| {
                self.beyond(number, *least, native, |value, least| {
                    value < least || (low && value == least)
                })
            };
            out.extend(self.limit(number, *least, "Minimum boundary", |native| {
                self.exceeds(word, *least, native, number, broken(native))
            }));
        }
        if let Some(most) = maximum {
            let (word, high) = if *exclusive_maximum {
                ("less than", true)
            } else {
                ("less than or equal to", false)
            };
            let broken = |native| {
                self.beyond(number, *most, native, |value, most| {
                    value > most || (high && value == most)
                })
            };
            out.extend(self.limit(number, *most, "Maximum boundary", |native| {
                self.exceeds(word, *most, native, number, broken(native))
            }));
        }
        out
    }

    /// Checks a limit, natively where it fits the type of the value.
    fn limit(
        &self,
        number: &Number,
        limit: f64,
        what: &str,
        check: impl Fn(bool) -> Option<Problem>,
    ) -> Vec<Problem> {
        let misfit = Number::from_f64(limit).and_then(|limit| self.range(&limit, what));
        let native = misfit.is_none() && !number.is_f64();
        misfit.into_iter().chain(check(native)).collect()
    }

    /// Returns the reason why a number cannot be of the declared type and format.
    fn range(&self, number: &Number, what: &str) -> Option<Problem> {
        let [kind] = self.types else { return None };
        let (kind, format) = match (*kind, self.format) {
            ("integer", format @ ("int32" | "int64")) => ("integer", format),
            ("integer", _) => ("integer", ""),
            ("number", format @ ("float" | "double")) => ("number", format),
            ("number", _) => ("number", ""),
            _ => return None,
        };
        let text = if number.is_f64() {
            plain(number.as_f64().unwrap_or(0.0))
        } else {
            number.to_string()
        };
        let fits = match (kind, format) {
            ("integer", "int32") => text.parse::<i32>().is_ok(),
            ("integer", _) => text.parse::<i64>().is_ok(),
            (_, "float") => number
                .as_f64()
                .is_some_and(|value| (value as f32).is_finite()),
            _ => true,
        };
        let suffix = if format.is_empty() {
            " (default format)".to_owned()
        } else {
            format!(" with format {format}")
        };
        (!fits).then(|| {
            Problem::Range(format!(
                "{what} value must be of type {kind}{suffix} in {}",
                self.path
            ))
        })
    }

    fn beyond(
        &self,
        number: &Number,
        limit: f64,
        native: bool,
        wrong: impl Fn(f64, f64) -> bool,
    ) -> bool {
        match number.as_i64().filter(|_| native) {
            // Comparing as floats would lose the last digits of big integers.
            Some(value) if value.unsigned_abs() > MAX_JSON_INTEGER as u64 => {
                let limit = limit as i64;
                wrong(value.saturating_sub(limit) as f64, 0.0)
            }
            Some(value) => wrong(value as f64, (limit as i64) as f64),
            None => wrong(number.as_f64().unwrap_or(0.0), limit),
        }
    }

    fn exceeds(
        &self,
        word: &str,
        limit: f64,
        native: bool,
        _number: &Number,
        broken: bool,
    ) -> Option<Problem> {
        let limit = if native {
            (limit as i64).to_string()
        } else {
            go::sprint_float(limit)
        };
        broken.then(|| Problem::Limit(format!("{} in body should be {word} {limit}", self.path)))
    }

    fn multiple(&self, number: &Number, factor: f64, native: bool) -> Option<Problem> {
        let (positive, shown) = if native {
            ((factor as i64) > 0, (factor as i64).to_string())
        } else {
            (factor > 0.0, go::sprint_float(factor))
        };
        if !positive {
            let value = if native {
                Value::from(factor as i64)
            } else {
                Value::from(factor)
            };
            return Some(Problem::Factor(
                value,
                format!(
                    "factor MultipleOf declared for {} must be positive: {shown}",
                    self.path
                ),
            ));
        }
        let is_multiple = match number.as_i64().filter(|_| native) {
            Some(value) => value % (factor as i64) == 0,
            None => {
                let value = number.as_f64().unwrap_or(0.0);
                is_json_integer(if factor < 1.0 {
                    1.0 / factor * value
                } else {
                    value / factor
                })
            }
        };
        (!is_multiple).then(|| {
            Problem::Limit(format!(
                "{} in body should be a multiple of {shown}",
                self.path
            ))
        })
    }
}

/// Reports whether a number is so near to an integer that it counts as one
/// (`swag.IsFloat64AJSONInteger`).
pub fn is_json_integer(value: f64) -> bool {
    if !value.is_finite() || value.abs() > MAX_JSON_INTEGER {
        return false;
    }
    let whole = value.trunc();
    if value == whole {
        return true;
    }
    let unsigned = if value > 0.0 { whole } else { 0.0 };
    let difference = (value - unsigned).abs();
    if value == 0.0 || unsigned == 0.0 || difference < f64::MIN_POSITIVE {
        return difference < EPSILON * f64::MIN_POSITIVE;
    }
    difference / (value.abs() + unsigned.abs()) < EPSILON
}

/// Reports whether a value is one of an enumeration: numbers are compared after Go's conversion to
/// the type of the listed one.
pub fn same_as_enumerated(value: &Value, listed: &Value) -> bool {
    match (value, listed) {
        (Value::Null, _) | (_, Value::Null) => false,
        (Value::Number(value), Value::Number(listed)) if value.is_f64() != listed.is_f64() => {
            if listed.is_f64() {
                value.as_f64() == listed.as_f64()
            } else {
                value.as_f64().map(|value| value as i64) == listed.as_i64()
            }
        }
        (value, listed) => value == listed,
    }
}

/// A float without an exponent, in as few digits as tell it from others.
fn plain(value: f64) -> String {
    format!("{value}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extensions::schema::json_schema_props::JsonSchemaProps;
    use crate::meta::json;

    #[test]
    fn number_violations_have_upstream_messages() {
        let cases = [
            (
                json!({"type": "integer", "minimum": 3}),
                json!(2),
                "x in body should be greater than or equal to 3",
            ),
            (
                json!({"type": "integer", "maximum": 10, "exclusiveMaximum": true}),
                json!(10),
                "x in body should be less than 10",
            ),
            (
                json!({"type": "number", "multipleOf": 0.1}),
                json!(0.35),
                "x in body should be a multiple of 0.1",
            ),
            (
                json!({"type": "integer", "format": "int32"}),
                json!(1_i64 << 40),
                "Checked value must be of type integer with format int32 in x",
            ),
            (
                json!({"type": "integer"}),
                json!(1.5),
                "Checked value must be of type integer (default format) in x",
            ),
        ];
        for (schema, value, want) in cases {
            let schema = JsonSchemaProps::read(&schema);
            let limits = Limits {
                values: &schema.values,
                types: &[&schema.kind],
                format: &schema.format,
                path: LazyPath::Root("x"),
            };
            let Value::Number(number) = &value else {
                panic!("a number")
            };
            let found: Vec<String> = limits
                .check(number)
                .into_iter()
                .map(|problem| match problem {
                    Problem::Range(text) | Problem::Limit(text) | Problem::Factor(_, text) => text,
                })
                .collect();
            assert_eq!(found, [want], "{value}");
        }
    }
}
