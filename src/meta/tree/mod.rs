//! Trees of JSON: what objects are in memory. The names and ways are those of `serde_json`, whose maps hash each key that they
//! are given and copy it: here most maps are short lists, and the names of fields are nobody's to copy.

mod convert;
mod entry;
mod key;
mod map;
mod serde;
mod value;

pub use entry::Entry;
pub use key::Key;
pub use map::Map;
pub use value::{Index, Value};

/// A [`Value`](crate::meta::Value) written as JSON, with expressions in the places of values.
#[macro_export]
macro_rules! json {
    ($($json:tt)+) => { $crate::meta::Value::from(::serde_json::json!($($json)+)) };
}

pub use crate::json;

#[cfg(test)]
mod tests;
