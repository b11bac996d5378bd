//! Regular expressions of RE2, which Go's are.

use regex::Regex;

use crate::meta::go::regexp;

/// Compiles a pattern.
///
/// # Errors
/// The pattern is none, in the words of Go's `regexp`.
pub fn compile(pattern: &str) -> Result<Regex, String> {
    regexp::compile(pattern).map(|program| program.regex)
}
