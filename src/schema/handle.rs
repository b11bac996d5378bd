//! Schemas by owner.

use std::ops::Deref;
use std::sync::Arc;

use super::Schema;

/// A schema that lives as long as the program (built-ins) or as long as its users (CRDs).
#[derive(Clone, Debug)]
pub enum SchemaHandle {
    Static(&'static Schema),
    Shared(Arc<Schema>),
}

impl Deref for SchemaHandle {
    type Target = Schema;
    fn deref(&self) -> &Schema {
        match self {
            Self::Static(schema) => schema,
            Self::Shared(schema) => schema,
        }
    }
}
