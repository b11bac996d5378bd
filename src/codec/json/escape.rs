//! Strings and raw JSON as Go's `encoding/json` writes them: what needs no escape is copied sixteen
//! bytes at a time.

/// The number of bytes that are checked and copied at once.
const STEP: usize = 16;
/// The same, of long texts.
const LONG_STEP: usize = 64;

/// By how many bytes of a step count: ones for those that do.
const COUNTS: [[u8; STEP]; STEP + 1] = {
    let mut table = [[0; STEP]; STEP + 1];
    let mut count = 0;
    while count <= STEP {
        let mut at = 0;
        while at < count {
            table[count][at] = 1;
            at += 1;
        }
        count += 1;
    }
    table
};

/// True if Go writes a byte of a string as it is.
const PLAIN: [bool; 256] = {
    let mut plain = [true; 256];
    let mut byte = 0;
    while byte < 0x20 {
        plain[byte] = false;
        byte += 1;
    }
    let special = *b"\"\\<>&\xe2";
    let mut index = 0;
    while index < special.len() {
        plain[special[index] as usize] = false;
        index += 1;
    }
    plain
};

/// The bytes of `document` from `at`; zeros beyond its end.
#[inline]
fn step(document: &[u8], at: usize) -> [u8; STEP] {
    let rest = document.get(at..).unwrap_or_default();
    match rest.first_chunk() {
        Some(step) => *step,
        None => {
            let mut padded = [0; STEP];
            padded[..rest.len()].copy_from_slice(rest);
            padded
        }
    }
}

/// Appends the bytes of `document` from `start` on until one that `is_special`; returns the
/// beginning of the step that it is in, which is `end` if there is none. Compiles to vector
/// instructions.
#[inline(always)]
fn copy_plain(
    document: &[u8],
    start: usize,
    end: usize,
    out: &mut Vec<u8>,
    is_special: impl Fn(u8) -> bool,
) -> usize {
    let mut at = start;
    while at + LONG_STEP <= end {
        let Some(step) = document
            .get(at..)
            .and_then(|rest| rest.first_chunk::<LONG_STEP>())
        else {
            break;
        };
        if step
            .iter()
            .fold(false, |found, &byte| found | is_special(byte))
        {
            break;
        }
        out.extend_from_slice(step);
        at += LONG_STEP;
    }
    while at < end {
        let step = step(document, at);
        let count = (end - at).min(STEP);
        let counted = step.iter().zip(&COUNTS[count]);
        if counted.fold(0, |found, (&byte, &counts)| {
            found | u8::from(is_special(byte)) & counts
        }) != 0
        {
            return at;
        }
        out.extend_from_slice(&step);
        if count < STEP {
            out.truncate(out.len() - (STEP - count));
        }
        at += count;
    }
    end
}

/// Reports whether a byte of a string is anything but ASCII that Go writes as it is.
#[inline(always)]
fn is_special_text(byte: u8) -> bool {
    // As signed numbers, control characters and what is not ASCII are the small ones.
    ((byte as i8) < 0x20) | (byte | 2 == b'>') | (byte | 4 == b'&') | (byte == b'\\')
}

/// Reports whether a byte of raw JSON is anything but ASCII that compacting leaves as it is.
#[inline(always)]
fn is_special_json(byte: u8) -> bool {
    ((byte as i8) <= 0x20) | (byte | 2 == b'>') | (byte == b'&')
}

/// Appends the bytes of `document` from `start` to `end` as the inside of a string. What is not
/// UTF-8 becomes U+FFFD.
#[inline]
pub(in crate::codec) fn write_part(document: &[u8], start: usize, end: usize, out: &mut Vec<u8>) {
    let at = copy_plain(document, start, end, out, is_special_text);
    if at < end {
        // So far everything was ASCII: a character begins here.
        write_escaped(
            crate::codec::text(document.get(at..end).unwrap_or_default()).as_bytes(),
            out,
        );
    }
}

/// Appends a string with quotes. As Go does, `<`, `>`, `&` and the line separators of Unicode are
/// escaped.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let at = copy_plain(text.as_bytes(), 0, text.len(), out, is_special_text);
    if at < text.len() {
        write_escaped(&text.as_bytes()[at..], out);
    }
    out.push(b'"');
}

/// Appends the inside of a string, which is UTF-8.
#[cold]
fn write_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    let mut start = 0;
    let mut at = 0;
    while let Some(found) = bytes[at..].iter().position(|&byte| !PLAIN[byte as usize]) {
        at += found;
        // U+2028 and U+2029 are e2 80 a8 and e2 80 a9.
        if bytes[at] == 0xe2 && !matches!(bytes.get(at + 1..at + 3), Some([0x80, 0xa8 | 0xa9])) {
            at += 1;
            continue;
        }
        out.extend_from_slice(&bytes[start..at]);
        match bytes[at] {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x8 => out.extend_from_slice(b"\\b"),
            0xc => out.extend_from_slice(b"\\f"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0xe2 => {
                out.extend_from_slice(if bytes[at + 2] == 0xa8 {
                    b"\\u2028"
                } else {
                    b"\\u2029"
                });
                at += 2;
            }
            byte => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                out.extend_from_slice(&[
                    b'\\',
                    b'u',
                    b'0',
                    b'0',
                    HEX[usize::from(byte >> 4)],
                    HEX[usize::from(byte & 15)],
                ]);
            }
        }
        at += 1;
        start = at;
    }
    out.extend_from_slice(&bytes[start..]);
}

/// Appends JSON text as Go writes a `RawMessage`: without white space, `<`, `>`, `&` and line
/// separators escaped. The text is that of `document` from `start` to `end`.
pub(in crate::codec) fn compact_part(document: &[u8], start: usize, end: usize, out: &mut Vec<u8>) {
    let begun = out.len();
    if copy_plain(document, start, end, out, is_special_json) < end {
        out.truncate(begun);
        compact(document.get(start..end).unwrap_or_default(), out);
    }
}

fn compact(json: &[u8], out: &mut Vec<u8>) {
    let mut in_string = false;
    let (mut start, mut at) = (0, 0);
    while let Some(&byte) = json.get(at) {
        // The bytes that are left out, and their replacement.
        let (length, instead): (usize, &[u8]) = match byte {
            b'"' => {
                in_string = !in_string;
                (0, b"")
            }
            b'\\' if in_string => {
                at += 1;
                (0, b"")
            }
            b' ' | b'\t' | b'\r' | b'\n' if !in_string => (1, b""),
            b'<' => (1, b"\\u003c"),
            b'>' => (1, b"\\u003e"),
            b'&' => (1, b"\\u0026"),
            0xe2 => match json.get(at + 1..at + 3) {
                Some([0x80, 0xa8]) => (3, b"\\u2028"),
                Some([0x80, 0xa9]) => (3, b"\\u2029"),
                _ => (0, b""),
            },
            _ => (0, b""),
        };
        if length > 0 {
            out.extend_from_slice(&json[start..at]);
            out.extend_from_slice(instead);
            start = at + length;
        }
        at += length.max(1);
    }
    out.extend_from_slice(json.get(start..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_json_is_compacted() {
        let table: [(&[u8], &str); 3] = [
            (
                b"{ \"a b\" : \"<\\\" \" ,\n\"n\": 1.0 }",
                r#"{"a b":"\u003c\" ","n":1.0}"#,
            ),
            (
                b"{\"f:metadata\":{\"f:labels\":{\".\":{},\"k:{\\\"a\\\":1}\":{}}}}",
                r#"{"f:metadata":{"f:labels":{".":{},"k:{\"a\":1}":{}}}}"#,
            ),
            (
                "{\"é\u{2028}\":\"&\"}".as_bytes(),
                "{\"é\\u2028\":\"\\u0026\"}",
            ),
        ];
        for (text, want) in table {
            let mut out = b"x".to_vec();
            compact_part(text, 0, text.len(), &mut out);
            assert_eq!(str::from_utf8(&out), Ok(format!("x{want}").as_str()));
        }
    }

    /// Every byte in every place of a step, and of the steps after it.
    #[test]
    fn strings_are_escaped_at_every_offset() {
        for byte in 0..=0x7f_u8 {
            for place in 0..90 {
                let mut text = vec![b'a'; 90];
                text[place] = byte;
                let text = String::from_utf8(text).expect("ASCII");
                let mut want = Vec::new();
                write_escaped(text.as_bytes(), &mut want);
                let (mut got, mut part) = (Vec::new(), Vec::new());
                write_string(&text, &mut got);
                assert_eq!(got[1..got.len() - 1], want);
                write_part(text.as_bytes(), place, 90, &mut part);
                assert_eq!(part, want[place..], "{byte} at {place}");
            }
        }
        let mut out = Vec::new();
        write_part(b"0123456789abcdef\xff<", 1, 18, &mut out);
        assert_eq!(
            String::from_utf8_lossy(&out),
            "123456789abcdef\u{fffd}\\u003c"
        );
    }
}
