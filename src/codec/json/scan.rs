//! Checks that bytes are JSON, without recursion, with Go's syntax errors.

use super::{DecodeError, MAX_DEPTH, plain_length, quote_byte};

/// Checks the syntax of the whole of `bytes`.
pub(super) fn check(bytes: &[u8]) -> Result<(), DecodeError> {
    Scanner {
        bytes,
        at: 0,
        open: Vec::new(),
    }
    .document()
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The containers that are open; true for objects.
    open: Vec<bool>,
}

impl Scanner<'_> {
    fn document(&mut self) -> Result<(), DecodeError> {
        self.value("looking for beginning of value")?;
        while let Some(&is_object) = self.open.last() {
            self.spaces();
            match (self.peek()?, is_object) {
                (b',', true) => {
                    self.at += 1;
                    self.key()?;
                    self.value("looking for beginning of value")?;
                }
                (b',', false) => {
                    self.at += 1;
                    self.value("looking for beginning of value")?;
                }
                (b'}', true) | (b']', false) => {
                    self.at += 1;
                    self.open.pop();
                }
                (_, true) => return self.unexpected("after object key:value pair"),
                (_, false) => return self.unexpected("after array element"),
            }
        }
        self.spaces();
        if self.at < self.bytes.len() {
            self.unexpected("after top-level value")
        } else {
            Ok(())
        }
    }

    /// A scalar, or the beginning of containers down to the first scalar or empty container.
    fn value(&mut self, context: &str) -> Result<(), DecodeError> {
        loop {
            self.spaces();
            let byte = self.peek()?;
            match byte {
                b'{' | b'[' => {
                    if self.open.len() >= MAX_DEPTH {
                        return self.unexpected("exceeded max depth");
                    }
                    self.at += 1;
                    self.spaces();
                    let is_object = byte == b'{';
                    if self.peek()? == (if is_object { b'}' } else { b']' }) {
                        self.at += 1;
                        return Ok(());
                    }
                    self.open.push(is_object);
                    if is_object {
                        self.key()?;
                    }
                }
                b'"' => return self.string(),
                b'-' | b'0'..=b'9' => return self.number(),
                b't' => return self.literal("true"),
                b'f' => return self.literal("false"),
                b'n' => return self.literal("null"),
                _ => return self.unexpected(context),
            }
        }
    }

    /// A key and its colon.
    fn key(&mut self) -> Result<(), DecodeError> {
        self.spaces();
        if self.peek()? != b'"' {
            return self.unexpected("looking for beginning of object key string");
        }
        self.string()?;
        self.spaces();
        if self.peek()? != b':' {
            return self.unexpected("after object key");
        }
        self.at += 1;
        Ok(())
    }

    fn string(&mut self) -> Result<(), DecodeError> {
        self.at += 1;
        loop {
            self.at += plain_length(self.bytes.get(self.at..).unwrap_or_default());
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Ok(());
                }
                b'\\' => {
                    self.at += 1;
                    self.escape()?;
                }
                _ => return self.unexpected("in string literal"),
            }
        }
    }

    fn escape(&mut self) -> Result<(), DecodeError> {
        match self.peek()? {
            b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => self.at += 1,
            b'u' => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.peek()?.is_ascii_hexdigit() {
                        return self.unexpected("in \\u hexadecimal character escape");
                    }
                    self.at += 1;
                }
            }
            _ => return self.unexpected("in string escape code"),
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), DecodeError> {
        if self.peek()? == b'-' {
            self.at += 1;
        }
        match self.peek()? {
            b'0' => self.at += 1,
            b'1'..=b'9' => self.digits(),
            _ => return self.unexpected("in numeric literal"),
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            if !self.peek()?.is_ascii_digit() {
                return self.unexpected("after decimal point in numeric literal");
            }
            self.digits();
        }
        if matches!(self.bytes.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek()?, b'+' | b'-') {
                self.at += 1;
            }
            if !self.peek()?.is_ascii_digit() {
                return self.unexpected("in exponent of numeric literal");
            }
            self.digits();
        }
        Ok(())
    }

    fn digits(&mut self) {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), DecodeError> {
        for &want in word.as_bytes() {
            if self.peek()? != want {
                let context = format!("in literal {word} (expecting {})", quote_byte(want));
                return self.unexpected(&context);
            }
            self.at += 1;
        }
        Ok(())
    }

    fn spaces(&mut self) {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Result<u8, DecodeError> {
        self.bytes
            .get(self.at)
            .copied()
            .ok_or_else(|| DecodeError::new("unexpected end of JSON input"))
    }

    fn unexpected(&self, context: &str) -> Result<(), DecodeError> {
        let byte = self.peek()?;
        Err(DecodeError(format!(
            "invalid character {} {context}",
            quote_byte(byte)
        )))
    }
}
