//! Reads JSON that [`super::scan`] has checked, token by token. On other text it stops early but
//! never panics.

use std::borrow::Cow;

/// A cursor over checked JSON.
#[derive(Debug)]
pub struct Lexer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

/// The JSON type that a value's first byte announces, in the words of Go's errors.
pub(super) fn type_name(first: u8) -> &'static str {
    match first {
        b'{' => "object",
        b'[' => "array",
        b'"' => "string",
        b't' | b'f' => "bool",
        b'n' => "null",
        _ => "number",
    }
}

impl<'a> Lexer<'a> {
    /// At the start of `text`.
    pub fn new(text: &'a str) -> Self {
        Self {
            text,
            bytes: text.as_bytes(),
            at: 0,
        }
    }

    /// The first byte of the next value or punctuation; 0 at the end.
    pub fn peek(&mut self) -> u8 {
        loop {
            match self.bytes.get(self.at) {
                Some(b' ' | b'\t' | b'\r' | b'\n') => self.at += 1,
                Some(&byte) => return byte,
                None => return 0,
            }
        }
    }

    /// Enters an object or array.
    pub fn enter(&mut self) {
        self.at += 1;
    }

    /// The next key of an object, with its colon passed; `None` leaves the object.
    pub fn next_key(&mut self) -> Option<Cow<'a, str>> {
        if self.peek() == b',' {
            self.at += 1;
            self.peek();
        }
        if self.bytes.get(self.at) == Some(&b'"') {
            return Some(self.key());
        }
        self.at += 1;
        None
    }

    /// Moves to the next item of the array that was entered; false leaves the array.
    pub fn next_item(&mut self) -> bool {
        if self.peek() == b',' {
            self.at += 1;
            self.peek();
        }
        match self.bytes.get(self.at) {
            Some(b']') | None => {
                self.at += 1;
                false
            }
            _ => true,
        }
    }

    fn key(&mut self) -> Cow<'a, str> {
        let key = self.string();
        self.peek();
        self.at += 1;
        key
    }

    /// The current string. Lone surrogates become U+FFFD as in Go.
    pub fn string(&mut self) -> Cow<'a, str> {
        self.at += 1;
        let plain = self.plain();
        if self.bytes.get(self.at) != Some(&b'\\') {
            self.at += 1;
            return Cow::Borrowed(plain);
        }
        let mut out = String::with_capacity(plain.len() * 2 + 16);
        out.push_str(plain);
        while self.bytes.get(self.at) == Some(&b'\\') {
            self.at += 1;
            out.push(self.escape());
            out.push_str(self.plain());
        }
        self.at += 1;
        Cow::Owned(out)
    }

    /// The text up to the next quote or backslash.
    fn plain(&mut self) -> &'a str {
        let start = self.at;
        self.at += super::plain_length(self.bytes.get(start..).unwrap_or_default());
        self.text.get(start..self.at).unwrap_or_default()
    }

    fn escape(&mut self) -> char {
        let byte = self.bytes.get(self.at).copied().unwrap_or(b'"');
        self.at += 1;
        match byte {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => self.unicode(),
            other => other as char,
        }
    }

    /// The character of a `\u` escape, and of the one after it where the two are a surrogate pair.
    fn unicode(&mut self) -> char {
        let first = self.hex(self.at);
        self.at += 4;
        if let Some(c) = char::from_u32(first) {
            return c;
        }
        if self.bytes.get(self.at..self.at + 2) == Some(b"\\u") {
            let second = self.hex(self.at + 2);
            if let Some(Ok(c)) = char::decode_utf16([first as u16, second as u16]).next() {
                self.at += 6;
                return c;
            }
        }
        char::REPLACEMENT_CHARACTER
    }

    fn hex(&self, at: usize) -> u32 {
        let digits = self.text.get(at..at + 4);
        digits
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
            .unwrap_or(0xfffd)
    }

    /// The text of the current number or literal.
    pub fn word(&mut self) -> &'a str {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let length = rest.iter().position(
            |byte| !matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'-' | b'+' | b'.' | b'E'),
        );
        let start = self.at;
        let length = length.unwrap_or(rest.len());
        self.at += length.max(1);
        self.text.get(start..start + length).unwrap_or_default()
    }

    /// Passes over the current value, however deep, and returns its text.
    pub fn skip(&mut self) -> &'a str {
        self.peek();
        let start = self.at;
        let mut depth = 0usize;
        loop {
            match self.peek() {
                0 => break,
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    depth = depth.saturating_sub(1);
                    self.at += 1;
                }
                b',' | b':' => {
                    self.at += 1;
                    continue;
                }
                b'"' => self.skip_string(),
                _ => {
                    self.word();
                }
            }
            if depth == 0 {
                break;
            }
        }
        self.text.get(start..self.at).unwrap_or_default()
    }

    fn skip_string(&mut self) {
        self.at += 1;
        while let Some(&byte) = self.bytes.get(self.at) {
            match byte {
                b'\\' => self.at += 2,
                b'"' => break,
                _ => self.at += 1,
            }
        }
        self.at += 1;
    }
}
