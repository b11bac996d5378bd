//! JSON values.

use std::fmt;

use serde_json::Number;

use super::Map;

/// Any JSON.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Value {
    #[default]
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    Array(Vec<Value>),
    Object(Map),
}

/// Stands for a missing value.
static NULL: Value = Value::Null;

impl Value {
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    pub fn is_boolean(&self) -> bool {
        matches!(self, Self::Bool(_))
    }

    pub fn is_number(&self) -> bool {
        matches!(self, Self::Number(_))
    }

    /// Reports whether it is an integer that fits in an `i64`.
    pub fn is_i64(&self) -> bool {
        matches!(self, Self::Number(number) if number.is_i64())
    }

    /// Reports whether it is an integer that fits in a `u64`.
    pub fn is_u64(&self) -> bool {
        matches!(self, Self::Number(number) if number.is_u64())
    }

    /// Reports whether it is a number that is no integer.
    pub fn is_f64(&self) -> bool {
        matches!(self, Self::Number(number) if number.is_f64())
    }

    pub fn is_string(&self) -> bool {
        matches!(self, Self::String(_))
    }

    pub fn is_array(&self) -> bool {
        matches!(self, Self::Array(_))
    }

    pub fn is_object(&self) -> bool {
        matches!(self, Self::Object(_))
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    pub fn as_number(&self) -> Option<&Number> {
        match self {
            Self::Number(number) => Some(number),
            _ => None,
        }
    }

    pub fn as_i64(&self) -> Option<i64> {
        self.as_number().and_then(Number::as_i64)
    }

    pub fn as_u64(&self) -> Option<u64> {
        self.as_number().and_then(Number::as_u64)
    }

    pub fn as_f64(&self) -> Option<f64> {
        self.as_number().and_then(Number::as_f64)
    }

    #[inline]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    #[inline]
    pub fn as_array(&self) -> Option<&Vec<Self>> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    pub fn as_array_mut(&mut self) -> Option<&mut Vec<Self>> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    #[inline]
    pub fn as_object(&self) -> Option<&Map> {
        match self {
            Self::Object(map) => Some(map),
            _ => None,
        }
    }

    pub fn as_object_mut(&mut self) -> Option<&mut Map> {
        match self {
            Self::Object(map) => Some(map),
            _ => None,
        }
    }

    /// The member of a map, or the item of a list.
    #[inline]
    pub fn get(&self, index: impl Index) -> Option<&Self> {
        index.of(self)
    }

    #[inline]
    pub fn get_mut(&mut self, index: impl Index) -> Option<&mut Self> {
        index.of_mut(self)
    }

    /// The value at a JSON pointer.
    pub fn pointer(&self, pointer: &str) -> Option<&Self> {
        steps(pointer)?.try_fold(self, |value, step| match value {
            Self::Object(map) => map.get(&step),
            Self::Array(items) => items.get(index(&step)?),
            _ => None,
        })
    }

    pub fn pointer_mut(&mut self, pointer: &str) -> Option<&mut Self> {
        steps(pointer)?.try_fold(self, |value, step| match value {
            Self::Object(map) => map.get_mut(&step),
            Self::Array(items) => items.get_mut(index(&step)?),
            _ => None,
        })
    }

    /// The value, with null left in its place.
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Puts the keys of all maps into alphabetical order.
    pub fn sort_all_objects(&mut self) {
        match self {
            Self::Object(map) => {
                map.sort_keys();
                map.values_mut().for_each(Self::sort_all_objects);
            }
            Self::Array(items) => items.iter_mut().for_each(Self::sort_all_objects),
            _ => {}
        }
    }
}

/// The steps of a JSON pointer (RFC 6901).
fn steps(pointer: &str) -> Option<impl Iterator<Item = String>> {
    let rest = match pointer {
        "" => None,
        pointer => Some(pointer.strip_prefix('/')?),
    };
    Some(
        rest.into_iter()
            .flat_map(|rest| rest.split('/'))
            .map(|step| step.replace("~1", "/").replace("~0", "~")),
    )
}

/// The index that a step of a pointer is: digits, without leading zeros.
fn index(step: &str) -> Option<usize> {
    if step.starts_with('+') || (step.starts_with('0') && step.len() != 1) {
        None
    } else {
        step.parse().ok()
    }
}

/// Compact JSON; indented by `{:#}`.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = if f.alternate() {
            serde_json::to_string_pretty(self)
        } else {
            serde_json::to_string(self)
        };
        f.write_str(&text.map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("Null"),
            Self::Bool(value) => write!(f, "Bool({value})"),
            Self::Number(number) => number.fmt(f),
            Self::String(text) => write!(f, "String({text:?})"),
            Self::Array(items) => {
                f.write_str("Array ")?;
                items.fmt(f)
            }
            Self::Object(map) => {
                f.write_str("Object ")?;
                map.fmt(f)
            }
        }
    }
}

/// Names a part of a value: the key of a map or the index of a list.
pub trait Index {
    fn of(self, value: &Value) -> Option<&Value>;
    fn of_mut(self, value: &mut Value) -> Option<&mut Value>;
}

impl Index for usize {
    fn of(self, value: &Value) -> Option<&Value> {
        value.as_array()?.get(self)
    }

    fn of_mut(self, value: &mut Value) -> Option<&mut Value> {
        value.as_array_mut()?.get_mut(self)
    }
}

impl<S: AsRef<str> + ?Sized> Index for &S {
    #[inline]
    fn of(self, value: &Value) -> Option<&Value> {
        value.as_object()?.get(self.as_ref())
    }

    #[inline]
    fn of_mut(self, value: &mut Value) -> Option<&mut Value> {
        value.as_object_mut()?.get_mut(self.as_ref())
    }
}

/// Missing values are null.
impl<I: Index> std::ops::Index<I> for Value {
    type Output = Self;
    fn index(&self, index: I) -> &Self {
        index.of(self).unwrap_or(&NULL)
    }
}

/// A member that is not there is made; null becomes a map for that.
impl std::ops::IndexMut<&'static str> for Value {
    fn index_mut(&mut self, key: &'static str) -> &mut Self {
        if self.is_null() {
            *self = Self::Object(Map::new());
        }
        self.as_object_mut()
            .expect("a map to index by a key")
            .entry(key)
            .or_insert(Self::Null)
    }
}

impl std::ops::IndexMut<usize> for Value {
    fn index_mut(&mut self, index: usize) -> &mut Self {
        &mut self.as_array_mut().expect("a list to index by a number")[index]
    }
}
