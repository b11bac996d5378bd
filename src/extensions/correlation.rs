//! Which old value a new one stands for, so that an update is not refused for what was wrong before
//! (apiserver `cel/common.CorrelatedObject`).

use crate::meta::Value;

use super::props::Props;

/// A new value with the old one in its place, and the schema by which list items are told apart.
#[derive(Clone, Copy, Debug)]
pub struct Correlation<'a> {
    pub new: &'a Value,
    pub old: &'a Value,
    pub schema: &'a Props,
}

impl<'a> Correlation<'a> {
    /// The entry `name` of both objects.
    pub fn key(self, name: &str) -> Option<Self> {
        let (new, old) = (self.new.as_object()?.get(name)?, self.old.as_object()?.get(name)?);
        self.schema.entry(name).map(|schema| Self { new, old, schema })
    }

    /// The item at `index` of the new list, if there is an old one with the same keys.
    pub fn index(self, index: usize) -> Option<Self> {
        let (new, olds) = (self.new.as_array()?.get(index)?, self.old.as_array()?);
        if !self.schema.is_list_type("map") {
            return None;
        }
        let keys = self.schema.list_map_keys.as_slice();
        let old = olds.iter().find(|old| same_keys(old, new, keys))?;
        self.schema.items.as_deref().map(|schema| Self { new, old, schema })
    }

    /// Whether the value is what it was.
    pub fn unchanged(self) -> bool {
        match (self.new, self.old) {
            (Value::Array(new), Value::Array(old)) if self.schema.is_list_type("map") => {
                new.len() == old.len() && (0..new.len()).all(|index| self.index(index).is_some_and(Self::unchanged))
            }
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len() && new.keys().all(|name| self.key(name).is_some_and(Self::unchanged))
            }
            (new, old) => new == old,
        }
    }
}

/// Whether two items of a list have the same scalars under `keys`.
pub fn same_keys(a: &Value, b: &Value, keys: &[String]) -> bool {
    let scalar =
        |item: &Value, key: &str| item.get(key).filter(|value| !value.is_object() && !value.is_array() && !value.is_null()).cloned();
    !keys.is_empty() && keys.iter().all(|key| scalar(a, key).is_some_and(|value| Some(value) == scalar(b, key)))
}
