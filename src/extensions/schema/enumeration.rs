//! The values that an enumeration lists.

use std::collections::HashSet;

use serde_json::Number;

use crate::extensions::schema::numeric::same_as_enumerated;
use crate::meta::Value;

/// The maximum number of values that are compared one by one.
const FEW: usize = 16;

/// An enumeration (`enum`). A long one has an index.
#[derive(Debug, Default, Clone)]
pub struct Enumeration {
    pub values: Vec<Value>,
    index: Option<Box<Index>>,
}

#[derive(Debug, Default, Clone)]
struct Index {
    texts: HashSet<String>,
    /// Listed integers and floats, which compare differently with a value of the other sort.
    integers: HashSet<Number>,
    floats: HashSet<u64>,
    /// Everything else, as JSON with sorted keys.
    others: HashSet<String>,
}

impl Enumeration {
    pub fn new(values: &[Value]) -> Self {
        Self {
            values: values.to_vec(),
            index: (values.len() > FEW).then(|| Box::new(Index::new(values))),
        }
    }

    /// Reports whether a value is listed, or nothing is.
    pub fn allows(&self, value: &Value) -> bool {
        match &self.index {
            Some(index) => index.contains(value),
            None => {
                self.values.is_empty()
                    || self.values.iter().any(|one| same_as_enumerated(value, one))
            }
        }
    }
}

impl Index {
    fn new(values: &[Value]) -> Self {
        let mut index = Self::default();
        for value in values {
            match value {
                Value::Null => {}
                Value::String(text) => drop(index.texts.insert(text.clone())),
                Value::Number(number) if number.is_f64() => {
                    index.floats.extend(number.as_f64().map(float_bits));
                }
                Value::Number(number) => drop(index.integers.insert(number.clone())),
                other => drop(index.others.insert(sorted_json(other))),
            }
        }
        index
    }

    fn contains(&self, value: &Value) -> bool {
        match value {
            Value::Null => false,
            Value::String(text) => self.texts.contains(text),
            Value::Number(number) => self.contains_number(number),
            other => !self.others.is_empty() && self.others.contains(&sorted_json(other)),
        }
    }

    /// As [`same_as_enumerated`] compares numbers.
    fn contains_number(&self, number: &Number) -> bool {
        let float = number.as_f64();
        let listed = float.is_some_and(|float| self.floats.contains(&float_bits(float)));
        let integer = if number.is_f64() {
            float.map(|float| Number::from(float as i64))
        } else {
            Some(number.clone())
        };
        listed || integer.is_some_and(|integer| self.integers.contains(&integer))
    }
}

/// The bits of a float; zero has one sign.
fn float_bits(float: f64) -> u64 {
    (float + 0.0).to_bits()
}

/// Returns a value as JSON as Go's `json.Marshal` writes it: sorted keys, no spaces.
pub fn sorted_json(value: &Value) -> String {
    let mut value = value.clone();
    value.sort_all_objects();
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    #[test]
    fn long_enumerations_allow_what_short_ones_do() {
        let listed = [
            json!("a"),
            json!(""),
            json!(1),
            json!(-1),
            json!(2.0),
            json!(2.5),
            json!(0.0),
            json!(true),
            json!(null),
            json!({"a": 1, "b": [2]}),
            json!([1]),
            json!(9_007_199_254_740_993_i64),
            json!(u64::MAX),
        ];
        let long: Vec<Value> = listed
            .iter()
            .cloned()
            .chain((0..FEW).map(|one| json!(format!("x{one}"))))
            .collect();
        let (short, long) = (Enumeration::new(&listed), Enumeration::new(&long));
        assert!(short.index.is_none() && long.index.is_some());
        let others = [
            json!("b"),
            json!(1.0),
            json!(1.5),
            json!(2),
            json!(0),
            json!(-0.0),
            json!(-1.5),
            json!(false),
            json!({"b": [2], "a": 1}),
            json!({"a": 1}),
            json!([]),
            json!(9_007_199_254_740_992.0),
            json!(3),
        ];
        for value in listed.iter().chain(&others) {
            assert_eq!(long.allows(value), short.allows(value), "{value}");
        }
        assert!(Enumeration::default().allows(&json!(1)));
    }
}
