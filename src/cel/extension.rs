//! Values of types that only functions know: quantities, addresses and the like.

use std::any::Any;
use std::fmt;

/// Such a value.
pub trait Extension: fmt::Debug + Send + Sync {
    /// The name of its type.
    fn type_name(&self) -> &'static str;

    /// Reports whether another value is equal to it.
    fn equals(&self, other: &dyn Extension) -> bool;

    /// Reports whether other values may be compared with it.
    fn is_comparable(&self) -> bool {
        true
    }

    /// Its size, by which functions cost.
    fn size(&self) -> Option<usize> {
        None
    }

    /// The value as what it is.
    fn as_any(&self) -> &dyn Any;
}
