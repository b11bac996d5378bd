//! Correlation of new values with old ones, so that updates are not refused for violations that
//! were there before (apiserver `cel/common.CorrelatedObject`).

use std::collections::HashMap;

use crate::extensions::schema::json_schema_props::JsonSchemaProps;
use crate::meta::Value;

/// A new value with the old one in its place, and the schema by which list items are told apart.
#[derive(Clone, Copy, Debug)]
pub struct CorrelatedValue<'a> {
    pub new: &'a Value,
    pub old: &'a Value,
    pub schema: &'a JsonSchemaProps,
}

impl<'a> CorrelatedValue<'a> {
    /// The entry `name` of both objects.
    pub fn key(self, name: &str) -> Option<Self> {
        let (new, old) = (
            self.new.as_object()?.get(name)?,
            self.old.as_object()?.get(name)?,
        );
        self.schema
            .entry(name)
            .map(|schema| Self { new, old, schema })
    }

    /// The items of both lists, if they are told apart by their keys.
    pub fn items(self) -> Option<CorrelatedItems<'a>> {
        let (new, old) = (self.new.as_array()?, self.old.as_array()?);
        if !self.schema.is_list_type("map") {
            return None;
        }
        let mut by_key = HashMap::with_capacity(old.len());
        let keys = self.schema.list_map_keys.as_slice();
        for item in old {
            if let Some(key) = key_text(item, keys) {
                by_key.entry(key).or_insert(item);
            }
        }
        Some(CorrelatedItems {
            new,
            by_key,
            keys,
            schema: self.schema.items.as_deref()?,
        })
    }

    /// Reports whether the value is what it was.
    pub fn unchanged(self) -> bool {
        match (self.new, self.old) {
            (Value::Array(new), Value::Array(old)) if self.schema.is_list_type("map") => {
                let items = if new.len() == old.len() {
                    self.items()
                } else {
                    None
                };
                new.is_empty() && old.is_empty()
                    || items.is_some_and(|items| {
                        (0..new.len()).all(|index| items.get(index).is_some_and(Self::unchanged))
                    })
            }
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len()
                    && new
                        .keys()
                        .all(|name| self.key(name).is_some_and(Self::unchanged))
            }
            (new, old) => new == old,
        }
    }
}

/// The items of a new list and those of the old one, by their keys.
pub struct CorrelatedItems<'a> {
    new: &'a [Value],
    by_key: HashMap<String, &'a Value>,
    keys: &'a [String],
    schema: &'a JsonSchemaProps,
}

impl<'a> CorrelatedItems<'a> {
    /// The item at `index` of the new list, if there is an old one with the same keys.
    pub fn get(&self, index: usize) -> Option<CorrelatedValue<'a>> {
        let new = self.new.get(index)?;
        let old = self.by_key.get(&key_text(new, self.keys)?)?;
        Some(CorrelatedValue {
            new,
            old,
            schema: self.schema,
        })
    }
}

/// The scalars that an item has under all of `keys`, as one text; `None` where one is missing or no
/// scalar.
fn key_text(item: &Value, keys: &[String]) -> Option<String> {
    let mut text = String::new();
    for key in keys {
        let value = item
            .get(key)
            .filter(|value| !value.is_object() && !value.is_array() && !value.is_null())?;
        text.push_str(&value.to_string());
        text.push(',');
    }
    (!keys.is_empty()).then_some(text)
}
