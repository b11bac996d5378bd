//! Reading the fields of a struct in a tree, where absent, null and (for strings) empty are the
//! same.

use crate::meta::{Key, Map, Object, Value};

/// A struct whose fields can be read by their JSON names. Anything but a JSON object has none.
pub trait Fields {
    /// The field `key`, unless absent or null.
    fn field(&self, key: &str) -> Option<&Value>;

    /// A string; empty where absent.
    fn str(&self, key: &str) -> &str {
        self.field(key).and_then(Value::as_str).unwrap_or("")
    }

    /// A string that may be given as empty.
    fn opt_str(&self, key: &str) -> Option<&str> {
        self.field(key).and_then(Value::as_str)
    }

    /// An integer.
    fn int(&self, key: &str) -> Option<i64> {
        self.field(key).and_then(Value::as_i64)
    }

    /// A boolean; false where absent.
    fn flag(&self, key: &str) -> bool {
        self.opt_flag(key).unwrap_or(false)
    }

    /// A boolean that may be given as false.
    fn opt_flag(&self, key: &str) -> Option<bool> {
        self.field(key).and_then(Value::as_bool)
    }

    /// A list; empty where absent.
    fn list(&self, key: &str) -> &[Value] {
        self.field(key)
            .and_then(Value::as_array)
            .map_or(&[], Vec::as_slice)
    }

    /// A struct or map.
    fn map(&self, key: &str) -> Option<&Map> {
        self.field(key).and_then(Value::as_object)
    }

    /// A struct; without fields where absent.
    fn section(&self, key: &str) -> &Map {
        static EMPTY: Map = Map::new();
        self.map(key).unwrap_or(&EMPTY)
    }

    /// A map of any values; iterates over nothing where absent.
    fn entries(&self, key: &str) -> impl Iterator<Item = (&Key, &Value)> {
        self.map(key).into_iter().flatten()
    }
}

impl Fields for Map {
    fn field(&self, key: &str) -> Option<&Value> {
        self.get(key).filter(|value| !value.is_null())
    }
}

impl Fields for Value {
    fn field(&self, key: &str) -> Option<&Value> {
        self.as_object().and_then(|map| map.field(key))
    }
}

impl Fields for Object {
    fn field(&self, key: &str) -> Option<&Value> {
        self.0.field(key)
    }
}
