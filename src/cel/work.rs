//! The work of an evaluation that its cost does not tell: values that functions look at or copy one
//! by one, texts that they go through. Values may be made of others over and over, so that what is
//! small to make is endless to look at; who evaluates an expression is not to wait for that.

use std::cell::Cell;

/// The most work of an evaluation, in values that are looked at.
const MAX_WORK: u64 = 5_000_000;
/// The work of copying a value, which takes memory, too.
const COPY: usize = 8;
/// The bytes of a text that are gone through in the time of one value.
const BYTES: usize = 64;
/// The bytes of a text that are made for the work of one value: they take memory, too.
const MADE_BYTES: usize = 8;

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// The work that one evaluation may do. Functions are called by it alone, on one thread, and take
/// from what is left there.
#[derive(Debug)]
pub struct Budget {
    /// The rest of the budget of the evaluation that this one is part of.
    around: u64,
}

impl Budget {
    pub fn begin() -> Self {
        let around = LEFT.replace(MAX_WORK);
        Self { around }
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        LEFT.set(self.around);
    }
}

/// Reports whether nothing is left. Then the evaluation is over; what functions return is of no
/// account.
pub fn is_spent() -> bool {
    LEFT.get() == 0
}

/// Takes work; reports whether there is some left.
pub fn take(work: usize) -> bool {
    let work = u64::try_from(work).unwrap_or(u64::MAX);
    let left = LEFT.get().saturating_sub(work);
    LEFT.set(left);
    left > 0
}

/// Takes the work of copying values.
pub fn copy(values: usize) -> bool {
    take(values.saturating_mul(COPY))
}

/// Takes the work of going through a text.
pub fn read(bytes: usize) -> bool {
    take(bytes / BYTES)
}

/// Takes the work of making a text; reports whether there is some left.
pub fn write(bytes: usize) -> bool {
    take(bytes / MADE_BYTES)
}
