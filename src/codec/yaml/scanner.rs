//! YAML text to tokens, as libyaml's scanner does it, with its errors and limits.

use std::collections::VecDeque;

use crate::codec::DecodeError;

/// The maximum number of flow collections, and the most block collections, that may be open at once
/// (yaml.v2 `max_flow_level`, `max_indents`).
const MAX_OPEN: usize = 10_000;
/// The maximum number of characters between the start of a key and its `:`.
const MAX_KEY: usize = 1024;

/// A part of a document. Markers that a tag or anchor begins with are not in its text.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    StreamEnd,
    /// `%YAML 1.1`: the two numbers.
    Version(u8, u8),
    /// `%TAG`: a handle and what it stands for.
    TagDirective(String, String),
    DocumentStart,
    DocumentEnd,
    BlockSequence,
    BlockMapping,
    BlockEnd,
    FlowSequence,
    FlowMapping,
    FlowSequenceEnd,
    FlowMappingEnd,
    /// The dash of an item.
    BlockEntry,
    /// The comma between items.
    FlowEntry,
    Key,
    Value,
    Alias(String),
    Anchor(String),
    /// A handle (empty where the suffix is all) and a suffix.
    Tag(String, String),
    Scalar {
        text: String,
        plain: bool,
    },
}

/// A token and the line that it begins on, counted from 0.
#[derive(Debug)]
pub(super) struct Lexeme {
    pub token: Token,
    pub line: usize,
}

/// The possible start of a key without a question mark.
#[derive(Clone, Copy, Default)]
struct SimpleKey {
    possible: bool,
    /// Only a key can follow.
    required: bool,
    /// Its token is held back until it is known. Upstream forgets that at the end of an empty flow
    /// collection.
    held: bool,
    /// The number of its token.
    token: usize,
    index: usize,
    line: usize,
    column: isize,
}

pub(super) struct Scanner<'t> {
    text: &'t str,
    /// The error about the bytes behind the text.
    broken: Option<&'static str>,
    /// In bytes.
    at: usize,
    /// In characters.
    index: usize,
    pub(super) line: usize,
    pub(super) column: isize,
    tokens: VecDeque<Lexeme>,
    /// The number of tokens that were taken.
    taken: usize,
    /// The column of the current block collection; -1 outside of all.
    pub(super) indent: isize,
    indents: Vec<isize>,
    /// One for each flow level, and one for the block context.
    keys: Vec<SimpleKey>,
    pub(super) key_allowed: bool,
}

pub(super) fn is_blank(c: char) -> bool {
    c == ' ' || c == '\t'
}

pub(super) fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// The end of the text reads as NUL, which no text has.
pub(super) fn is_break_or_end(c: char) -> bool {
    is_break(c) || c == '\0'
}

pub(super) fn is_space_or_end(c: char) -> bool {
    is_blank(c) || is_break_or_end(c)
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

impl<'t> Scanner<'t> {
    /// `broken` says what is wrong with the bytes that follow the text, where it is not all.
    pub fn new(text: &'t str, broken: Option<&'static str>) -> Self {
        let tokens = VecDeque::new();
        let (indents, keys) = (Vec::new(), vec![SimpleKey::default()]);
        Self {
            text,
            broken,
            at: 0,
            index: 0,
            line: 0,
            column: 0,
            tokens,
            taken: 0,
            indent: -1,
            indents,
            keys,
            key_allowed: true,
        }
    }

    /// The current token. After the end of the stream that remains.
    ///
    /// # Errors
    /// Text that is not YAML, in the words of yaml.v2.
    pub fn peek(&mut self) -> Result<&Lexeme, DecodeError> {
        while self.tokens.is_empty() || self.is_key_open()? {
            self.fetch()?;
        }
        Ok(self.tokens.front().unwrap_or(
            const {
                &Lexeme {
                    token: Token::StreamEnd,
                    line: 0,
                }
            },
        ))
    }

    /// Takes the current token.
    ///
    /// # Errors
    /// Text that is not YAML, in the words of yaml.v2.
    pub fn take(&mut self) -> Result<Lexeme, DecodeError> {
        let line = self.peek()?.line;
        self.taken += 1;
        Ok(self.tokens.pop_front().unwrap_or(Lexeme {
            token: Token::StreamEnd,
            line,
        }))
    }

    pub(super) fn in_flow(&self) -> bool {
        self.keys.len() > 1
    }

    /// The error that the scanner finds here. Upstream does not number the first line.
    pub(super) fn fail(&self, problem: &str) -> DecodeError {
        match (self.broken, self.line) {
            (Some(why), _) if self.at >= self.text.len() => DecodeError(format!("yaml: {why}")),
            (_, 0) => DecodeError(format!("yaml: {problem}")),
            (_, line) => DecodeError(format!("yaml: line {}: {problem}", line + 1)),
        }
    }

    pub(super) fn current(&self) -> char {
        self.peek_at(0)
    }

    /// The character after `count` others.
    pub(super) fn peek_at(&self, count: usize) -> char {
        match self.text.as_bytes().get(self.at..self.at + count + 1) {
            Some(bytes) if bytes.is_ascii() => bytes[count] as char,
            _ => self
                .text
                .get(self.at..)
                .unwrap_or_default()
                .chars()
                .nth(count)
                .unwrap_or('\0'),
        }
    }

    pub(super) fn skip(&mut self) {
        if self.at < self.text.len() {
            self.at += self.current().len_utf8();
        }
        self.index += 1;
        self.column += 1;
    }

    pub(super) fn skip_while(&mut self, wanted: impl Fn(char) -> bool) {
        while wanted(self.current()) {
            self.skip();
        }
    }

    /// Moves a character into a text.
    pub(super) fn read(&mut self, out: &mut String) {
        out.push(self.current());
        self.skip();
    }

    /// Passes a line break, if there is one, and returns what a scalar has for it.
    pub(super) fn read_break(&mut self) -> Option<char> {
        let c = self.current();
        if !is_break(c) {
            return None;
        }
        if c == '\r' && self.peek_at(1) == '\n' {
            self.skip();
        }
        self.skip();
        (self.column, self.line) = (0, self.line + 1);
        Some(if matches!(c, '\u{2028}' | '\u{2029}') {
            c
        } else {
            '\n'
        })
    }

    /// `---` or `...` at the start of a line.
    pub(super) fn at_document_marker(&self) -> bool {
        let rest = self.text.get(self.at..).unwrap_or_default();
        self.column == 0
            && (rest.starts_with("---") || rest.starts_with("..."))
            && is_space_or_end(self.peek_at(3))
    }

    /// Reports whether the current token may turn out to be a key.
    fn is_key_open(&mut self) -> Result<bool, DecodeError> {
        let first = self.keys.partition_point(|key| key.token < self.taken);
        for level in first..self.keys.len() {
            if self.keys[level].token > self.taken {
                break;
            }
            if self.keys[level].held && self.is_key(level)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reports whether what may be a key at a level still may: it is on this line, and not far
    /// back.
    fn is_key(&mut self, level: usize) -> Result<bool, DecodeError> {
        let key = self.keys[level];
        if key.possible && (key.line < self.line || key.index + MAX_KEY < self.index) {
            if key.required {
                return Err(self.fail("could not find expected ':'"));
            }
            self.keys[level].possible = false;
        }
        Ok(self.keys[level].possible)
    }

    fn level(&self) -> usize {
        self.keys.len() - 1
    }

    /// Returns the index of a token in the queue; the end where it was taken.
    fn place(&self, number: usize) -> usize {
        number
            .checked_sub(self.taken)
            .map_or(self.tokens.len(), |at| at.min(self.tokens.len()))
    }

    fn next_number(&self) -> usize {
        self.taken + self.tokens.len()
    }

    /// Notes that a key may begin here.
    fn save_key(&mut self) -> Result<(), DecodeError> {
        if self.key_allowed {
            self.drop_key()?;
            let required = !self.in_flow() && self.indent == self.column;
            let (token, level) = (self.next_number(), self.level());
            self.keys[level] = SimpleKey {
                possible: true,
                required,
                held: true,
                token,
                index: self.index,
                line: self.line,
                column: self.column,
            };
        }
        Ok(())
    }

    fn drop_key(&mut self) -> Result<(), DecodeError> {
        let level = self.level();
        if self.keys[level].possible && self.keys[level].required {
            return Err(self.fail("could not find expected ':'"));
        }
        self.keys[level].possible = false;
        Ok(())
    }

    /// Enters a block collection where the column is further right than that of the current one.
    /// `number`: before which token.
    fn indent_to(
        &mut self,
        column: isize,
        number: Option<usize>,
        token: Token,
        line: usize,
    ) -> Result<(), DecodeError> {
        if self.in_flow() || self.indent >= column {
            return Ok(());
        }
        self.indents.push(self.indent);
        self.indent = column;
        if self.indents.len() > MAX_OPEN {
            return Err(self.fail(&format!("exceeded max depth of {MAX_OPEN}")));
        }
        let at = number.map_or(self.tokens.len(), |number| self.place(number));
        self.tokens.insert(at, Lexeme { token, line });
        Ok(())
    }

    /// Leaves the block collections that are further right.
    fn unindent_to(&mut self, column: isize) {
        while !self.in_flow() && self.indent > column {
            self.push(Token::BlockEnd, self.line);
            self.indent = self.indents.pop().unwrap_or(-1);
        }
    }

    fn push(&mut self, token: Token, line: usize) {
        self.tokens.push_back(Lexeme { token, line });
    }

    /// A token of so many characters.
    fn push_mark(&mut self, token: Token, length: usize) {
        self.push(token, self.line);
        (0..length).for_each(|_| self.skip());
    }

    /// Puts the next token into the queue, and those that its place implies.
    fn fetch(&mut self) -> Result<(), DecodeError> {
        self.skip_to_token();
        self.unindent_to(self.column);
        let (c, next) = (self.current(), self.peek_at(1));
        let flow = self.in_flow();
        match c {
            '\0' => self.end(),
            '%' if self.column == 0 => self.directive(),
            '-' | '.' if self.at_document_marker() => {
                self.unindent_to(-1);
                self.drop_key()?;
                self.key_allowed = false;
                self.push_mark(
                    if c == '-' {
                        Token::DocumentStart
                    } else {
                        Token::DocumentEnd
                    },
                    3,
                );
                Ok(())
            }
            '[' => self.open(Token::FlowSequence),
            '{' => self.open(Token::FlowMapping),
            ']' => self.close(Token::FlowSequenceEnd),
            '}' => self.close(Token::FlowMappingEnd),
            ',' => {
                self.drop_key()?;
                self.key_allowed = true;
                self.push_mark(Token::FlowEntry, 1);
                Ok(())
            }
            '-' if is_space_or_end(next) => self.block_entry(),
            '?' if flow || is_space_or_end(next) => self.key(),
            ':' if flow || is_space_or_end(next) => self.value(),
            '*' | '&' => self.anchor(c == '*'),
            '!' => self.tag(),
            '|' | '>' if !flow => {
                self.drop_key()?;
                self.key_allowed = true;
                self.scalar(false, |scanner| scanner.block_scalar(c == '|'))
            }
            '\'' | '"' => {
                self.save_key()?;
                self.key_allowed = false;
                self.scalar(false, |scanner| scanner.quoted_scalar(c))
            }
            c if begins_plain(c, next, flow) => {
                self.save_key()?;
                self.key_allowed = false;
                self.scalar(true, Self::plain_scalar)
            }
            _ => Err(self.fail("found character that cannot start any token")),
        }
    }

    /// Passes spaces, comments and line breaks. A tab is a space where no key can begin.
    fn skip_to_token(&mut self) {
        loop {
            if self.column == 0 && self.current() == '\u{feff}' {
                self.skip();
            }
            while self.current() == ' '
                || (self.current() == '\t' && (self.in_flow() || !self.key_allowed))
            {
                self.skip();
            }
            if self.current() == '#' {
                self.skip_while(|c| !is_break_or_end(c));
            }
            if self.read_break().is_none() {
                return;
            }
            self.key_allowed |= !self.in_flow();
        }
    }

    fn end(&mut self) -> Result<(), DecodeError> {
        if self.broken.is_some() {
            return Err(self.fail(""));
        }
        if self.column != 0 {
            (self.column, self.line) = (0, self.line + 1);
        }
        self.unindent_to(-1);
        self.drop_key()?;
        self.key_allowed = false;
        self.push(Token::StreamEnd, self.line);
        Ok(())
    }

    fn open(&mut self, token: Token) -> Result<(), DecodeError> {
        self.save_key()?;
        let token_number = self.next_number();
        self.keys.push(SimpleKey {
            token: token_number,
            ..SimpleKey::default()
        });
        if self.level() > MAX_OPEN {
            return Err(self.fail(&format!("exceeded max depth of {MAX_OPEN}")));
        }
        self.key_allowed = true;
        self.push_mark(token, 1);
        Ok(())
    }

    fn close(&mut self, token: Token) -> Result<(), DecodeError> {
        self.drop_key()?;
        if let (true, Some(inner)) = (self.in_flow(), self.keys.pop())
            && let Some(outer) = self
                .keys
                .last_mut()
                .filter(|outer| outer.token == inner.token)
        {
            outer.held = false;
        }
        self.key_allowed = false;
        self.push_mark(token, 1);
        Ok(())
    }

    /// Enters a block collection here, if this is not a part of a flow nor of such a collection.
    fn begin_block(&mut self, token: Token, parts: &str) -> Result<(), DecodeError> {
        if self.in_flow() {
            return Ok(());
        }
        if !self.key_allowed {
            return Err(self.fail(&format!("{parts} are not allowed in this context")));
        }
        self.indent_to(self.column, None, token, self.line)
    }

    fn block_entry(&mut self) -> Result<(), DecodeError> {
        self.begin_block(Token::BlockSequence, "block sequence entries")?;
        self.drop_key()?;
        self.key_allowed = true;
        self.push_mark(Token::BlockEntry, 1);
        Ok(())
    }

    /// A key after a question mark.
    fn key(&mut self) -> Result<(), DecodeError> {
        self.begin_block(Token::BlockMapping, "mapping keys")?;
        self.drop_key()?;
        self.key_allowed = !self.in_flow();
        self.push_mark(Token::Key, 1);
        Ok(())
    }

    /// A colon: what may have been a key is one.
    fn value(&mut self) -> Result<(), DecodeError> {
        let level = self.level();
        if self.is_key(level)? {
            let key = self.keys[level];
            let at = self.place(key.token);
            self.tokens.insert(
                at,
                Lexeme {
                    token: Token::Key,
                    line: key.line,
                },
            );
            self.indent_to(key.column, Some(key.token), Token::BlockMapping, key.line)?;
            self.keys[level].possible = false;
            self.key_allowed = false;
        } else {
            self.begin_block(Token::BlockMapping, "mapping values")?;
            self.key_allowed = !self.in_flow();
        }
        self.push_mark(Token::Value, 1);
        Ok(())
    }

    fn anchor(&mut self, alias: bool) -> Result<(), DecodeError> {
        self.save_key()?;
        self.key_allowed = false;
        let line = self.line;
        self.skip();
        let name = self.word();
        let c = self.current();
        if name.is_empty() || !(is_space_or_end(c) || "?:,]}%@`".contains(c)) {
            return Err(self.fail("did not find expected alphabetic or numeric character"));
        }
        self.push(
            if alias {
                Token::Alias(name)
            } else {
                Token::Anchor(name)
            },
            line,
        );
        Ok(())
    }

    fn scalar(
        &mut self,
        plain: bool,
        scan: impl FnOnce(&mut Self) -> Result<String, DecodeError>,
    ) -> Result<(), DecodeError> {
        let line = self.line;
        let text = scan(self)?;
        self.push(Token::Scalar { text, plain }, line);
        Ok(())
    }

    /// Letters, digits, `_` and `-`.
    fn word(&mut self) -> String {
        let mut out = String::new();
        while is_word(self.current()) {
            self.read(&mut out);
        }
        out
    }

    fn directive(&mut self) -> Result<(), DecodeError> {
        self.unindent_to(-1);
        self.drop_key()?;
        self.key_allowed = false;
        let line = self.line;
        self.skip();
        let name = self.word();
        if name.is_empty() {
            return Err(self.fail("could not find expected directive name"));
        }
        if !is_space_or_end(self.current()) {
            return Err(self.fail("found unexpected non-alphabetical character"));
        }
        let token = match name.as_str() {
            "YAML" => self.version()?,
            "TAG" => self.tag_directive()?,
            _ => return Err(self.fail("found unknown directive name")),
        };
        self.skip_while(is_blank);
        self.end_of_line()?;
        self.push(token, line);
        Ok(())
    }

    /// Passes a comment and the line break.
    pub(super) fn end_of_line(&mut self) -> Result<(), DecodeError> {
        if self.current() == '#' {
            self.skip_while(|c| !is_break_or_end(c));
        }
        if !is_break_or_end(self.current()) {
            return Err(self.fail("did not find expected comment or line break"));
        }
        self.read_break();
        Ok(())
    }

    fn version(&mut self) -> Result<Token, DecodeError> {
        self.skip_while(is_blank);
        let major = self.version_number()?;
        if self.current() != '.' {
            return Err(self.fail("did not find expected digit or '.' character"));
        }
        self.skip();
        Ok(Token::Version(major, self.version_number()?))
    }

    fn version_number(&mut self) -> Result<u8, DecodeError> {
        let (mut value, mut length) = (0u8, 0);
        while let Some(digit) = self.current().to_digit(10) {
            length += 1;
            if length > 2 {
                return Err(self.fail("found extremely long version number"));
            }
            value = value * 10 + digit as u8;
            self.skip();
        }
        if length == 0 {
            Err(self.fail("did not find expected version number"))
        } else {
            Ok(value)
        }
    }

    fn tag_directive(&mut self) -> Result<Token, DecodeError> {
        self.skip_while(is_blank);
        let handle = self.tag_handle(true)?;
        if !is_blank(self.current()) {
            return Err(self.fail("did not find expected whitespace"));
        }
        self.skip_while(is_blank);
        let prefix = self.tag_uri("")?;
        if !is_space_or_end(self.current()) {
            return Err(self.fail("did not find expected whitespace or line break"));
        }
        Ok(Token::TagDirective(handle, prefix))
    }

    fn tag(&mut self) -> Result<(), DecodeError> {
        self.save_key()?;
        self.key_allowed = false;
        let line = self.line;
        let token = if self.peek_at(1) == '<' {
            self.skip();
            self.skip();
            let suffix = self.tag_uri("")?;
            if self.current() != '>' {
                return Err(self.fail("did not find the expected '>'"));
            }
            self.skip();
            Token::Tag(String::new(), suffix)
        } else {
            let handle = self.tag_handle(false)?;
            if handle.len() > 1 && handle.ends_with('!') {
                let suffix = self.tag_uri("")?;
                Token::Tag(handle, suffix)
            } else {
                match self.tag_uri(&handle)? {
                    suffix if suffix.is_empty() => Token::Tag(String::new(), "!".to_owned()),
                    suffix => Token::Tag("!".to_owned(), suffix),
                }
            }
        };
        if !is_space_or_end(self.current()) {
            return Err(self.fail("did not find expected whitespace or line break"));
        }
        self.push(token, line);
        Ok(())
    }

    fn tag_handle(&mut self, directive: bool) -> Result<String, DecodeError> {
        if self.current() != '!' {
            return Err(self.fail("did not find expected '!'"));
        }
        let mut out = String::new();
        self.read(&mut out);
        out.push_str(&self.word());
        if self.current() == '!' {
            self.read(&mut out);
        } else if directive && out != "!" {
            return Err(self.fail("did not find expected '!'"));
        }
        Ok(out)
    }

    /// The rest of a tag, after `head` (of which the `!` is not part of it).
    fn tag_uri(&mut self, head: &str) -> Result<String, DecodeError> {
        let mut out = head.strip_prefix('!').unwrap_or(head).as_bytes().to_vec();
        let mut found = !head.is_empty();
        loop {
            match self.current() {
                '%' => self.tag_escape(&mut out)?,
                c if is_word(c) || ";/?:@&=+$,.!~*'()[]".contains(c) => {
                    out.push(c as u8);
                    self.skip();
                }
                _ => break,
            }
            found = true;
        }
        if !found {
            return Err(self.fail("did not find expected tag URI"));
        }
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    /// A character of a tag as escaped octets.
    fn tag_escape(&mut self, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        let mut left = None;
        while left != Some(0) {
            let (Some(high), Some(low)) =
                (self.peek_at(1).to_digit(16), self.peek_at(2).to_digit(16))
            else {
                return Err(self.fail("did not find URI escaped octet"));
            };
            if self.current() != '%' {
                return Err(self.fail("did not find URI escaped octet"));
            }
            let octet = (high << 4 | low) as u8;
            left = match (left, octet) {
                (None, 0..=0x7f) => Some(0),
                (None, 0xc0..=0xdf) => Some(1),
                (None, 0xe0..=0xef) => Some(2),
                (None, 0xf0..=0xf7) => Some(3),
                (None, _) => return Err(self.fail("found an incorrect leading UTF-8 octet")),
                (Some(left), 0x80..=0xbf) => Some(left - 1),
                (Some(_), _) => return Err(self.fail("found an incorrect trailing UTF-8 octet")),
            };
            out.push(octet);
            (0..3).for_each(|_| self.skip());
        }
        Ok(())
    }
}

/// Reports whether a plain scalar may begin with a character.
fn begins_plain(c: char, next: char, flow: bool) -> bool {
    match c {
        '-' => !is_blank(next),
        '?' | ':' => !flow && !is_space_or_end(next),
        c => !is_space_or_end(c) && !",[]{}#&*!|>'\"%@`".contains(c),
    }
}
