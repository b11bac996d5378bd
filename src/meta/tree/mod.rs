//! JSON trees, the form of objects in memory. The API is that of `serde_json`, whose maps hash and
//! copy every key: here most maps are short lists, and field names are static.

mod convert;
mod entry;
mod key;
mod map;
mod serde;
mod value;

pub use key::Key;
pub use map::Map;
pub use value::Value;

/// The stack that a thread needs to walk trees that are as deep as JSON may be
/// (`codec::MAX_TREE_DEPTH`): walks are recursive. The deepest take 1 KiB a level, and 5 KiB in
/// builds without optimisation. What no walk has touched takes no memory.
pub const STACK_BYTES: usize = 128 << 20;

/// A [`Value`](crate::meta::Value) written as JSON, with expressions in the places of values.
#[macro_export]
macro_rules! json {
    ($($json:tt)+) => { $crate::internals::meta::Value::from(::serde_json::json!($($json)+)) };
}

pub use crate::json;

/// Runs a test with deep trees on a thread with the stack that a server's threads have.
#[cfg(test)]
pub(crate) fn on_deep_stack(test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, test)
            .expect("a thread");
        thread.join().expect("the test passes");
    });
}

#[cfg(test)]
mod tests;
