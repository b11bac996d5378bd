//! Label and field selectors.

pub mod fields;
pub mod labels;
