//! Label and field selectors.

pub mod fields;
pub mod labels;
mod many;
mod reader;

pub use reader::FieldReader;
