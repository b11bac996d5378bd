//! Label and field selectors.

pub mod fields;
pub mod labels;
mod reader;

pub use reader::FieldReader;
