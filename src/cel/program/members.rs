//! The items of a list of constants, for the question whether something is in it (cel-go
//! `maybeOptimizeSetMembership`).

use std::collections::HashSet;

use super::super::value::{Key, List, Value};

/// The items.
#[derive(Debug, Default)]
pub struct Members {
    keys: HashSet<Key>,
    /// The bits of the doubles that are items, or what an item is as a double.
    doubles: HashSet<u64>,
}

impl Members {
    /// The items of a list; `None` where one of them may be no key.
    pub fn of(list: &List<'static>) -> Option<Self> {
        let List::Made(items) = list else {
            return None;
        };
        let mut members = Self::default();
        for item in items.iter() {
            members.keys.extend(Key::of(item));
            match item {
                Value::Double(number) => members.add(*number),
                #[allow(clippy::cast_precision_loss)] // as cel-go has it
                Value::Int(number) => members.add(*number as f64),
                #[allow(clippy::cast_precision_loss)]
                Value::Uint(number) => members.add(*number as f64),
                other => drop(Key::of(other)?),
            }
        }
        Some(members)
    }

    fn add(&mut self, number: f64) {
        self.doubles.extend(bits(number));
    }

    /// Reports whether a value is one of the items.
    pub fn has(&self, value: &Value<'_>) -> bool {
        match value {
            Value::Double(number) => bits(*number).is_some_and(|bits| self.doubles.contains(&bits)),
            other => Key::of(other).is_some_and(|key| self.keys.contains(&key)),
        }
    }
}

/// Names a double: zeros are the same, and what is no number is nothing.
fn bits(number: f64) -> Option<u64> {
    (!number.is_nan()).then(|| (number + 0.0).to_bits())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn numbers_of_all_types_are_found() {
        let list = vec![
            Value::Double(1.5),
            Value::Double(-0.0),
            Value::Uint(7),
            Value::text("a"),
        ];
        let members = Members::of(&List::Made(Arc::new(list))).expect("constants");
        for (value, is_in) in [
            (Value::Double(1.5), true),
            (Value::Int(0), true),
            (Value::Double(0.0), true),
            (Value::Double(7.0), true),
            (Value::Int(7), true),
            (Value::text("a"), true),
            (Value::Int(1), false),
            (Value::Double(f64::NAN), false),
            (Value::Null, false),
        ] {
            assert_eq!(members.has(&value), is_in, "{value:?}");
        }
        let odd = |item| Members::of(&List::Made(Arc::new(vec![item]))).is_none();
        assert!(odd(Value::Null) && odd(Value::list(Vec::new())));
        let nothing = Members::of(&List::Made(Arc::new(vec![Value::Double(f64::NAN)])));
        assert!(nothing.is_some_and(|members| !members.has(&Value::Double(f64::NAN))));
    }
}
