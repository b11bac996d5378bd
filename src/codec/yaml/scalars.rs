//! The three styles of YAML scalars: block, quoted, plain.

use super::scanner::{Scanner, is_blank, is_break, is_break_or_end, is_space_or_end};
use crate::codec::DecodeError;

/// The line breaks and blanks between two words of a scalar.
#[derive(Default)]
struct LineBreaks {
    blanks: String,
    /// The first line break; what follows it is in `further`.
    first: Option<char>,
    further: String,
}

impl LineBreaks {
    /// Passes blanks and breaks. `tab_stop`: the column before which a line must not have a tab.
    fn read(
        &mut self,
        scanner: &mut Scanner<'_>,
        tab_stop: Option<isize>,
    ) -> Result<(), DecodeError> {
        loop {
            let c = scanner.current();
            if is_blank(c) {
                if c == '\t'
                    && self.first.is_some()
                    && tab_stop.is_some_and(|stop| scanner.column < stop)
                {
                    return Err(scanner.fail("found a tab character that violates indentation"));
                }
                match self.first {
                    None => scanner.read(&mut self.blanks),
                    Some(_) => scanner.skip(),
                }
            } else if let Some(c) = scanner.read_break() {
                self.blanks.clear();
                match self.first {
                    None => self.first = Some(c),
                    Some(_) => self.further.push(c),
                }
            } else {
                return Ok(());
            }
        }
    }

    /// Writes what the gap folds to.
    fn fold(&mut self, out: &mut String) {
        match self.first.take() {
            None => out.push_str(&self.blanks),
            Some('\n') if self.further.is_empty() => out.push(' '),
            Some('\n') => out.push_str(&self.further),
            // A break that was escaped is none itself.
            Some('\0') => out.push_str(&self.further),
            Some(c) => {
                out.push(c);
                out.push_str(&self.further);
            }
        }
        self.blanks.clear();
        self.further.clear();
    }
}

impl Scanner<'_> {
    /// `|` or `>` and the lines below.
    pub(super) fn block_scalar(&mut self, literal: bool) -> Result<String, DecodeError> {
        self.skip();
        let (mut chomp, mut increment) = (None, 0);
        for _ in 0..2 {
            match self.current() {
                c @ ('+' | '-') if chomp.is_none() => chomp = Some(c),
                '0' if increment == 0 => {
                    return Err(self.fail("found an indentation indicator equal to 0"));
                }
                c @ '1'..='9' if increment == 0 => increment = c as isize - '0' as isize,
                _ => break,
            }
            self.skip();
        }
        self.skip_while(is_blank);
        self.end_of_line()?;
        let mut indent = if increment > 0 {
            self.indent.max(0) + increment
        } else {
            0
        };
        let (mut out, mut first, mut further) = (String::new(), None, String::new());
        let mut was_blank = false;
        self.block_breaks(&mut indent, &mut further)?;
        while self.column == indent && self.current() != '\0' {
            let blank = is_blank(self.current());
            match first.take() {
                Some('\n') if !literal && !was_blank && !blank => {
                    if further.is_empty() {
                        out.push(' ');
                    }
                }
                first => out.extend(first),
            }
            out.push_str(&further);
            further.clear();
            was_blank = blank;
            while !is_break_or_end(self.current()) {
                self.read(&mut out);
            }
            first = self.read_break();
            self.block_breaks(&mut indent, &mut further)?;
        }
        if chomp != Some('-') {
            out.extend(first);
        }
        if chomp == Some('+') {
            out.push_str(&further);
        }
        Ok(out)
    }

    /// Passes indentation and empty lines; finds the indentation where it is not known.
    fn block_breaks(&mut self, indent: &mut isize, breaks: &mut String) -> Result<(), DecodeError> {
        let mut widest = 0;
        loop {
            while (*indent == 0 || self.column < *indent) && self.current() == ' ' {
                self.skip();
            }
            widest = widest.max(self.column);
            if (*indent == 0 || self.column < *indent) && self.current() == '\t' {
                return Err(
                    self.fail("found a tab character where an indentation space is expected")
                );
            }
            match self.read_break() {
                Some(c) => breaks.push(c),
                None => break,
            }
        }
        if *indent == 0 {
            *indent = widest.max(self.indent + 1).max(1);
        }
        Ok(())
    }

    pub(super) fn quoted_scalar(&mut self, quote: char) -> Result<String, DecodeError> {
        self.skip();
        let mut out = String::new();
        let mut gap = LineBreaks::default();
        loop {
            if self.at_document_marker() {
                return Err(self.fail("found unexpected document indicator"));
            }
            if self.current() == '\0' {
                return Err(self.fail("found unexpected end of stream"));
            }
            while !is_space_or_end(self.current()) {
                let (c, next) = (self.current(), self.peek_at(1));
                if quote == '\'' && c == quote && next == quote {
                    self.skip();
                    self.read(&mut out);
                } else if c == quote {
                    break;
                } else if quote == '"' && c == '\\' && is_break(next) {
                    self.skip();
                    self.read_break();
                    gap.first = Some('\0');
                    break;
                } else if quote == '"' && c == '\\' {
                    let c = self.escape()?;
                    out.push(c);
                } else {
                    self.read(&mut out);
                }
            }
            if self.current() == quote {
                self.skip();
                return Ok(out);
            }
            gap.read(self, None)?;
            gap.fold(&mut out);
        }
    }

    /// A character that is written with a backslash.
    fn escape(&mut self) -> Result<char, DecodeError> {
        let digits = match self.peek_at(1) {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            c => {
                let c = match c {
                    '0' => '\0',
                    'a' => '\u{7}',
                    'b' => '\u{8}',
                    't' | '\t' => '\t',
                    'n' => '\n',
                    'v' => '\u{b}',
                    'f' => '\u{c}',
                    'r' => '\r',
                    'e' => '\u{1b}',
                    ' ' | '"' | '\'' | '\\' => c,
                    'N' => '\u{85}',
                    '_' => '\u{a0}',
                    'L' => '\u{2028}',
                    'P' => '\u{2029}',
                    _ => return Err(self.fail("found unknown escape character")),
                };
                self.skip();
                self.skip();
                return Ok(c);
            }
        };
        self.skip();
        self.skip();
        let mut value = 0u32;
        for at in 0..digits {
            let Some(digit) = self.peek_at(at).to_digit(16) else {
                return Err(self.fail("did not find expected hexdecimal number"));
            };
            value = value << 4 | digit;
        }
        let Some(c) = char::from_u32(value) else {
            return Err(self.fail("found invalid Unicode character escape code"));
        };
        (0..digits).for_each(|_| self.skip());
        Ok(c)
    }

    pub(super) fn plain_scalar(&mut self) -> Result<String, DecodeError> {
        let mut out = String::new();
        let mut gap = LineBreaks::default();
        let stop = self.indent + 1;
        let mut broken = false;
        while !self.at_document_marker() && self.current() != '#' {
            while !is_space_or_end(self.current()) {
                let (c, next) = (self.current(), self.peek_at(1));
                if (c == ':' && is_space_or_end(next)) || (self.in_flow() && ",?[]{}".contains(c)) {
                    break;
                }
                gap.fold(&mut out);
                broken = false;
                self.read(&mut out);
            }
            if !is_blank(self.current()) && !is_break(self.current()) {
                break;
            }
            gap.read(self, Some(stop))?;
            broken = gap.first.is_some();
            if !self.in_flow() && self.column < stop {
                break;
            }
        }
        // After a line break a key may begin.
        self.key_allowed |= broken;
        Ok(out)
    }
}
