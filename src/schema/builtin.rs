//! The built-in types, from the descriptor set that build.rs compiles out of `proto/`.

use super::Schema;

/// The schema of every built-in kind; built at first use.
pub fn builtin() -> &'static Schema {
    static SCHEMA: std::sync::OnceLock<Schema> = std::sync::OnceLock::new();
    SCHEMA.get_or_init(Schema::default)
}
