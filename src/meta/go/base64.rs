//! Base64 of Go's `encoding/base64`: line breaks are skipped, and errors name the offset of the
//! first bad byte.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

/// The canonical form of base64 text.
///
/// # Errors
/// The text of Go's `CorruptInputError`.
pub fn normalise(text: &str) -> Result<Cow<'_, str>, String> {
    // What decodes strictly is canonical already.
    match STANDARD.decode(text) {
        Ok(_) => Ok(Cow::Borrowed(text)),
        Err(_) => {
            slow(text.as_bytes(), STANDARD_ALPHABET).map(|bytes| Cow::Owned(STANDARD.encode(bytes)))
        }
    }
}

/// Appends the base64 of `bytes`.
pub fn encode_into(bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    if let Err(error) = STANDARD.encode_slice(bytes, &mut out[start..]) {
        unreachable!("the buffer has the size of the text: {error}");
    }
}

pub fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The bytes of text that was normalised; nothing for other text.
pub fn decode(text: &str) -> Vec<u8> {
    STANDARD.decode(text).unwrap_or_default()
}

/// The bytes of text in the alphabet of URLs, without padding.
///
/// # Errors
/// Those of Go's decoder.
pub fn decode_url(text: &str) -> Result<Vec<u8>, String> {
    match URL_SAFE_NO_PAD.decode(text) {
        Ok(bytes) => Ok(bytes),
        Err(_) => slow(
            text.as_bytes(),
            Alphabet {
                high: *b"-_",
                padded: false,
            },
        ),
    }
}

/// The alphabet of a decoder.
#[derive(Clone, Copy)]
struct Alphabet {
    /// The last two of its characters.
    high: [u8; 2],
    padded: bool,
}

const STANDARD_ALPHABET: Alphabet = Alphabet {
    high: *b"+/",
    padded: true,
};

fn value(byte: u8, alphabet: Alphabet) -> Option<u32> {
    Some(u32::from(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        _ if byte == alphabet.high[0] => 62,
        _ if byte == alphabet.high[1] => 63,
        _ => return None,
    }))
}

fn slow(text: &[u8], alphabet: Alphabet) -> Result<Vec<u8>, String> {
    let corrupt = |at: usize| Err(format!("illegal base64 data at input byte {at}"));
    let is_break = |at: usize| matches!(text.get(at), Some(b'\n' | b'\r'));
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut at, mut bits, mut count, mut ended) = (0, 0u32, 0, !alphabet.padded);
    while let Some(&byte) = text.get(at) {
        at += 1;
        if let Some(six) = value(byte, alphabet) {
            bits = bits << 6 | six;
            count += 1;
            if count == 4 {
                out.extend_from_slice(&bits.to_be_bytes()[1..]);
                (bits, count) = (0, 0);
            }
            continue;
        }
        if matches!(byte, b'\n' | b'\r') {
            continue;
        }
        if byte != b'=' || count < 2 || !alphabet.padded {
            return corrupt(at - 1);
        }
        if count == 2 {
            while is_break(at) {
                at += 1;
            }
            match text.get(at) {
                Some(b'=') => at += 1,
                Some(_) => return corrupt(at - 1),
                None => return corrupt(text.len()),
            }
        }
        while is_break(at) {
            at += 1;
        }
        if at < text.len() {
            return corrupt(at);
        }
        ended = true;
    }
    match count {
        0 => return Ok(out),
        2 | 3 if ended => {}
        _ => return corrupt(text.len() - count),
    }
    let whole = bits << (6 * (4 - count));
    out.extend_from_slice(&whole.to_be_bytes()[1..count]);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_as_go_reads_it() {
        let table = [
            ("", Ok("")),
            ("AQI=", Ok("AQI=")),
            ("AQ==", Ok("AQ==")),
            ("AQI\nDBA==\r\n", Ok("AQIDBA==")),
            ("AR==", Ok("AQ==")),
            ("%%%", Err("illegal base64 data at input byte 0")),
            ("AQI", Err("illegal base64 data at input byte 0")),
            ("AQIDA", Err("illegal base64 data at input byte 4")),
            ("AQI=AQI=", Err("illegal base64 data at input byte 4")),
            ("AQ=", Err("illegal base64 data at input byte 3")),
        ];
        for (text, want) in table {
            assert_eq!(
                normalise(text).as_deref().map_err(String::as_str),
                want,
                "{text:?}"
            );
        }
    }
}
