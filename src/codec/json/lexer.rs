//! Reads JSON that [`super::scan`] has checked, token by token. On other bytes it stops early but never panics.

use std::borrow::Cow;

use super::DecodeError;

pub(super) struct Lexer<'a> {
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
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
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

    /// Calls `each` for every key, with the lexer at its value. `each` must read the value.
    pub fn object(&mut self, mut each: impl FnMut(&mut Self, Cow<'a, str>) -> Result<(), DecodeError>) -> Result<(), DecodeError> {
        self.at += 1;
        while self.peek() == b'"' {
            let key = self.key();
            each(self, key)?;
            if self.peek() == b',' {
                self.at += 1;
            }
        }
        self.at += 1;
        Ok(())
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

    /// Whether the array that was entered has another item; false leaves it.
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

    /// The string at hand. What is not UTF-8, and lone surrogates, become U+FFFD as in Go.
    pub fn string(&mut self) -> Cow<'a, str> {
        self.at += 1;
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let plain = rest.iter().position(|&byte| byte == b'"' || byte == b'\\').unwrap_or(rest.len());
        if rest.get(plain) != Some(&b'\\') {
            self.at += plain + 1;
            return String::from_utf8_lossy(&rest[..plain]);
        }
        let mut out = Vec::with_capacity(plain * 2 + 16);
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let plain = rest.iter().position(|&byte| byte == b'"' || byte == b'\\').unwrap_or(rest.len());
            out.extend_from_slice(&rest[..plain]);
            self.at += plain + 1;
            if rest.get(plain) != Some(&b'\\') {
                break;
            }
            self.escape(&mut out);
        }
        Cow::Owned(match String::from_utf8(out) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        })
    }

    fn escape(&mut self, out: &mut Vec<u8>) {
        let byte = self.bytes.get(self.at).copied().unwrap_or(b'"');
        self.at += 1;
        let c = match byte {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => self.unicode(),
            other => other as char,
        };
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
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
        let digits = self.bytes.get(at..at + 4).and_then(|digits| str::from_utf8(digits).ok());
        digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()).unwrap_or(0xfffd)
    }

    /// The text of the number or literal at hand.
    pub fn word(&mut self) -> &'a str {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let length = rest.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'-' | b'+' | b'.' | b'E'));
        let word = &rest[..length.unwrap_or(rest.len())];
        self.at += word.len().max(1);
        str::from_utf8(word).unwrap_or_default()
    }

    /// Passes over the value at hand, however deep, and returns its bytes.
    pub fn skip(&mut self) -> &'a [u8] {
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
        self.bytes.get(start..self.at).unwrap_or_default()
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
