//! Regular expressions of RE2, which Go's are, and the limits on what they take.

use super::compile_budget::{CompileBudget, too_many_bytes};
use super::work;
use crate::meta::go::regexp::{self, Program};

/// The bytes of text that are gone through while a byte of a program is made.
const READ_BYTES: usize = 8;
/// The bytes of text that a program of [`SEARCHING_BYTES`] searches in the time of one value.
const SEARCHED_BYTES: usize = 32;
const SEARCHING_BYTES: usize = 4 << 10;

/// Reports whether a text is a pattern, however large.
pub fn is_pattern(text: &str) -> bool {
    regexp::check(text).is_ok()
}

/// Compiles a pattern that is a constant of an expression.
///
/// # Errors
/// It is no pattern, in the words of Go's `regexp`, or the budget does not suffice.
pub fn compile_constant(pattern: &str, budget: &CompileBudget) -> Result<Program, String> {
    if !budget.has_bytes(SEARCHING_BYTES) {
        return Err(too_many_bytes());
    }
    let compiled = regexp::compile(pattern);
    match budget.take_bytes(size(&compiled)) {
        true => compiled,
        false => Err(too_many_bytes()),
    }
}

/// Compiles a pattern that an evaluation has made.
///
/// # Errors
/// It is no pattern, in the words of Go's `regexp`.
pub fn compile(pattern: &str) -> Result<Program, String> {
    work::take(pattern.len());
    let compiled = regexp::compile(pattern);
    work::read(size(&compiled).saturating_mul(READ_BYTES));
    compiled
}

/// The size of a program; of one that is too large, how large it has become before that was known.
fn size(compiled: &Result<Program, String>) -> usize {
    match compiled {
        Ok(program) => program.bytes,
        Err(why) if why.contains(regexp::TOO_LARGE) => regexp::MAX_PROGRAM_BYTES,
        Err(_) => 0,
    }
}

/// Takes the work of searching a text of so many bytes; reports whether there is some left.
pub fn search(program: &Program, bytes: usize) -> bool {
    let factor = program.bytes.div_ceil(SEARCHING_BYTES);
    work::take((bytes / SEARCHED_BYTES).saturating_mul(factor))
}

#[cfg(test)]
mod tests {
    use super::super::{Environment, compile as check, plan};
    use super::*;

    #[test]
    fn the_patterns_of_expressions_share_a_budget() {
        let budget = CompileBudget::new(100, 2 * SEARCHING_BYTES);
        let environment = Environment::new().with_budget(&budget);
        let mut answers = ["'a'.matches('b')", "'a'.matches('c')", "'a'.find('d')"].map(|text| {
            let checked = check(text, &environment).expect("an expression");
            plan(&checked, &environment)
                .err()
                .map(|why| why.to_string())
        });
        let refused = answers[2].take().expect("it is too much");
        assert_eq!(answers, [None, None, None]);
        assert_eq!(refused, too_many_bytes());
        let alone = Environment::new();
        let checked = check("'a'.find('d')", &alone).expect("an expression");
        assert!(plan(&checked, &alone).is_ok());
    }
}
