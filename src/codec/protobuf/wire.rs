//! The protobuf wire format: tags, varints, length-delimited fields.

use crate::codec::DecodeError;

/// One field on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawField<'a> {
    pub number: u32,
    pub value: WireValue<'a>,
}

impl RawField<'_> {
    /// Number and wire type, as they stand before the value.
    pub fn tag(self) -> usize {
        let wire_type = match self.value {
            WireValue::Varint(_) => 0,
            WireValue::Fixed64(_) => 1,
            WireValue::Bytes(_) => 2,
            WireValue::Fixed32(_) => 5,
        };
        (self.number as usize) << 3 | wire_type
    }
}

/// A value by its wire type.
#[derive(Clone, Copy, Debug)]
pub(super) enum WireValue<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

impl<'a> WireValue<'a> {
    /// The bytes of a length-delimited value; nothing for the other wire types.
    pub fn bytes(self) -> &'a [u8] {
        match self {
            WireValue::Bytes(bytes) => bytes,
            _ => &[],
        }
    }

    /// An integer; 0 for a length-delimited value.
    pub fn integer(self) -> u64 {
        match self {
            WireValue::Varint(value) | WireValue::Fixed64(value) => value,
            WireValue::Fixed32(value) => value.into(),
            WireValue::Bytes(_) => 0,
        }
    }
}

/// Reads the fields of a message one after the other.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub bytes: &'a [u8],
    pub at: usize,
}

#[cold]
fn truncated() -> DecodeError {
    DecodeError::new("unexpected EOF")
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The next field, or `None` at the end.
    ///
    /// # Errors
    /// Bytes that are not a field.
    #[inline(always)]
    pub fn next(&mut self) -> Result<Option<RawField<'a>>, DecodeError> {
        if self.at >= self.bytes.len() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = tag >> 3;
        if !(1..1 << 29).contains(&number) {
            return Err(illegal_tag(tag));
        }
        let value = match tag & 7 {
            0 => WireValue::Varint(self.varint()?),
            1 => WireValue::Fixed64(u64::from_le_bytes(self.fixed()?)),
            2 => {
                let length = self.varint()?;
                WireValue::Bytes(self.take(length)?)
            }
            5 => WireValue::Fixed32(u32::from_le_bytes(self.fixed()?)),
            _ => return Err(illegal_tag(tag)),
        };
        Ok(Some(RawField {
            number: number as u32,
            value,
        }))
    }

    #[inline(always)]
    fn take(&mut self, length: u64) -> Result<&'a [u8], DecodeError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if length > rest.len() as u64 {
            return Err(truncated());
        }
        self.at += length as usize;
        Ok(&rest[..length as usize])
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        self.take(N as u64)?.try_into().map_err(|_| truncated())
    }

    #[inline(always)]
    fn varint(&mut self) -> Result<u64, DecodeError> {
        match self.bytes.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(byte.into())
            }
            _ => self.long_varint(),
        }
    }

    #[inline(never)]
    fn long_varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.bytes.get(self.at).ok_or_else(truncated)?;
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError::new("proto: integer overflow"))
    }
}

#[cold]
fn illegal_tag(tag: u64) -> DecodeError {
    match tag & 7 {
        _ if !(1..1 << 29).contains(&(tag >> 3)) => DecodeError(format!(
            "proto: illegal tag {} (wire type {})",
            tag >> 3,
            tag & 7
        )),
        other => DecodeError(format!("proto: illegal wireType {other}")),
    }
}

pub(super) fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;

pub(super) fn put_integer(number: u32, value: u64, out: &mut Vec<u8>) {
    put_varint(u64::from(number) << 3 | VARINT, out);
    put_varint(value, out);
}

pub(super) fn put_double(number: u32, value: f64, out: &mut Vec<u8>) {
    put_varint(u64::from(number) << 3 | FIXED64, out);
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn put_bytes(number: u32, value: &[u8], out: &mut Vec<u8>) {
    put_varint(u64::from(number) << 3 | BYTES, out);
    put_varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

/// Appends a length-delimited field whose content `write` appends. The content moves by a byte or
/// two where its length takes more than one.
pub(super) fn put_message(number: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    put_varint(u64::from(number) << 3 | BYTES, out);
    let start = out.len();
    out.push(0);
    write(out);
    let length = out.len() - start - 1;
    if length < 0x80 {
        out[start] = length as u8;
        return;
    }
    let mut prefix = Vec::with_capacity(5);
    put_varint(length as u64, &mut prefix);
    out.splice(start..=start, prefix);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_any_size_are_written() {
        for length in [0, 1, 127, 128, 16_383, 16_384] {
            let mut out = Vec::new();
            put_message(3, &mut out, |out| out.resize(out.len() + length, 7));
            let field = Reader::new(&out).next().ok().flatten().expect("a field");
            assert_eq!((field.number, field.value.bytes().len()), (3, length));
        }
    }

    #[test]
    fn malformed_messages_are_errors() {
        for bytes in [
            &b"\x0a"[..],
            b"\x0a\x05ab",
            b"\x08\x80",
            b"\x09\x01",
            b"\x00\x01",
            b"\x0b",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ] {
            assert!(Reader::new(bytes).next().is_err(), "{bytes:?}");
        }
    }
}
