//! Regular expressions of RE2, which Go's are.

use regex::Regex;

use super::work;
use crate::meta::go::regexp;

/// The bytes of text that are gone through while a byte of a program is made.
const READ_BYTES: usize = 8;

/// Compiles a pattern.
///
/// # Errors
/// The pattern is none, in the words of Go's `regexp`.
pub fn compile(pattern: &str) -> Result<Regex, String> {
    work::take(pattern.len());
    match regexp::compile(pattern) {
        Ok(program) => {
            work::read(program.bytes.saturating_mul(READ_BYTES));
            Ok(program.regex)
        }
        Err(why) => {
            // One that is too large has been compiled as far as may be.
            if why.contains(regexp::TOO_LARGE) {
                work::read(regexp::MAX_PROGRAM_BYTES.saturating_mul(READ_BYTES));
            }
            Err(why)
        }
    }
}
