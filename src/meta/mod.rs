//! The nouns of the Kubernetes API: objects, kinds, Status, selectors, times, request options, and
//! the behaviour of Go that shows through in them. No bytes, HTTP or tokio.

pub mod tree;
pub mod time;
pub mod names;
pub mod go;
pub mod gvk;
pub mod field;
pub mod status;
pub mod object;
pub mod selector;
pub mod options;

pub use field::{ErrorList, FieldError, Path};
pub use gvk::{Gvk, Gvr};
pub use object::{Object, array_at, bool_at, i64_at, map_at, str_at, texts_at, value_at};
pub use status::Status;
#[cfg(test)]
pub(crate) use tree::on_deep_stack;
pub use tree::{Key, Map, Value, json};
