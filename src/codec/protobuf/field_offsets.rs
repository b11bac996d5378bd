//! The offsets of the values in a message. Nothing is copied.

use super::wire::{Reader, WireValue};
use crate::codec::DecodeError;
use crate::schema::WireType;

/// The longest message that is read: places in it are kept in 32 bits.
pub(super) const MAX_LENGTH: usize = u32::MAX as usize;

/// A stretch of the document.
#[derive(Clone, Copy)]
pub(super) struct ByteRange {
    pub start: usize,
    pub end: usize,
}

/// The range of an absent value.
pub(super) const EMPTY_RANGE: ByteRange = ByteRange { start: 0, end: 0 };

/// A value: an integer (or the bits of a float), or where its bytes lie.
#[derive(Clone, Copy, Default)]
pub(super) struct Value(pub u64);

impl Value {
    /// Returns the value that a field of this sort takes from the wire; nothing of another wire
    /// type.
    #[inline]
    pub fn new(numeric: bool, wire: WireValue, end: usize) -> Self {
        match (numeric, wire) {
            (false, WireValue::Bytes(bytes)) => {
                Self(((end - bytes.len()) as u64) << 32 | bytes.len() as u64)
            }
            (true, wire) => Self(wire.integer()),
            (false, _) => Self((end as u64) << 32),
        }
    }

    #[inline]
    pub fn range(self) -> ByteRange {
        let start = (self.0 >> 32) as usize;
        ByteRange {
            start,
            end: start + (self.0 as u32) as usize,
        }
    }

    /// Reports whether the value is the one that `omitempty` leaves out.
    #[inline]
    pub fn is_zero(self, numeric: bool) -> bool {
        if numeric {
            self.0 == 0
        } else {
            self.0 as u32 == 0
        }
    }
}

/// The range of the values of a field in its message, from the first to the end of the last, and
/// the last of them, which is the one that counts.
#[derive(Clone, Copy, Default)]
pub(super) struct FieldSpan {
    pub first: u32,
    pub end: u32,
    pub last: Value,
}

impl FieldSpan {
    #[inline]
    pub fn range(self) -> ByteRange {
        ByteRange {
            start: self.first as usize,
            end: self.end as usize,
        }
    }
}

/// Reads the current value of a message that ends where `bytes` end. Says which of the type's
/// fields it is of; `None` for one that the type does not have.
#[inline(always)]
pub(super) fn next_value(
    ty: &WireType,
    bytes: &[u8],
    at: &mut usize,
) -> Result<(Option<usize>, Value), DecodeError> {
    let begun = *at;
    let Some(&first) = bytes.get(begun) else {
        return Ok((None, Value(0)));
    };
    let mut tag = usize::from(first);
    let mut next = begun + 1;
    if first >= 0x80 {
        match bytes.get(next) {
            Some(&second) if second < 0x80 => tag = tag & 0x7f | usize::from(second) << 7,
            _ => return odd_value(ty, bytes, at),
        }
        next += 1;
    }
    let Some(place) = ty.slot_of_tag(tag) else {
        return odd_value(ty, bytes, at);
    };
    let number = match (bytes.get(next), bytes.get(next + 1)) {
        (Some(&low), _) if low < 0x80 && tag & 7 != FIXED64 => {
            next += 1;
            u64::from(low)
        }
        (Some(&low), Some(&high)) if high < 0x80 && tag & 7 != FIXED64 => {
            next += 2;
            u64::from(low & 0x7f) | u64::from(high) << 7
        }
        _ => return odd_value(ty, bytes, at),
    };
    if tag & 7 != BYTES {
        *at = next;
        return Ok((Some(place), Value(number)));
    }
    if number > (bytes.len() - next) as u64 {
        return odd_value(ty, bytes, at);
    }
    *at = next + number as usize;
    Ok((Some(place), Value((next as u64) << 32 | number)))
}

/// The wire types that [`next_value`] tells apart.
const FIXED64: usize = 1;
const BYTES: usize = 2;

/// As [`next_value`], for what is rare: floats, long numbers and lengths, other wire types than the
/// field has, errors.
#[inline(never)]
fn odd_value(
    ty: &WireType,
    bytes: &[u8],
    at: &mut usize,
) -> Result<(Option<usize>, Value), DecodeError> {
    let mut reader = Reader { bytes, at: *at };
    let raw = reader.next()?;
    *at = reader.at;
    let Some(raw) = raw else {
        return Ok((None, Value(0)));
    };
    let Some(place) = ty.place(raw.number) else {
        return Ok((None, Value(0)));
    };
    Ok((
        Some(place),
        Value::new(ty.fields[place].is_numeric(), raw.value, reader.at),
    ))
}
