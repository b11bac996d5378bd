//! The tokens of an expression (cel-go `parser/gen/CEL.g4`).

use super::source::{Issues, Source};

/// A kind of token. The order is that in which errors list them.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    End,
    Equals,
    NotEquals,
    In,
    Less,
    LessEquals,
    GreaterEquals,
    Greater,
    And,
    Or,
    LeftBracket,
    RightBracket,
    LeftBrace,
    RightBrace,
    LeftParen,
    RightParen,
    Dot,
    Comma,
    Minus,
    Not,
    Question,
    Colon,
    Plus,
    Star,
    Slash,
    Percent,
    True,
    False,
    Null,
    Float,
    Int,
    Uint,
    String,
    Bytes,
    Identifier,
    EscapedIdentifier,
}

impl Kind {
    /// The name by which errors call the kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::End => "<EOF>",
            Self::Equals => "'=='",
            Self::NotEquals => "'!='",
            Self::In => "'in'",
            Self::Less => "'<'",
            Self::LessEquals => "'<='",
            Self::GreaterEquals => "'>='",
            Self::Greater => "'>'",
            Self::And => "'&&'",
            Self::Or => "'||'",
            Self::LeftBracket => "'['",
            Self::RightBracket => "']'",
            Self::LeftBrace => "'{'",
            Self::RightBrace => "'}'",
            Self::LeftParen => "'('",
            Self::RightParen => "')'",
            Self::Dot => "'.'",
            Self::Comma => "','",
            Self::Minus => "'-'",
            Self::Not => "'!'",
            Self::Question => "'?'",
            Self::Colon => "':'",
            Self::Plus => "'+'",
            Self::Star => "'*'",
            Self::Slash => "'/'",
            Self::Percent => "'%'",
            Self::True => "'true'",
            Self::False => "'false'",
            Self::Null => "'null'",
            Self::Float => "NUM_FLOAT",
            Self::Int => "NUM_INT",
            Self::Uint => "NUM_UINT",
            Self::String => "STRING",
            Self::Bytes => "BYTES",
            Self::Identifier => "IDENTIFIER",
            Self::EscapedIdentifier => "ESC_IDENTIFIER",
        }
    }
}

/// A token, with where it begins and ends in code points.
#[derive(Clone, Copy, Debug)]
pub struct Token {
    pub kind: Kind,
    pub start: u32,
    pub end: u32,
}

/// Splits a text into tokens, the last of which is [`Kind::End`]. What is no token is reported and
/// left out.
pub fn tokens(source: &Source, issues: &mut Issues) -> Vec<Token> {
    let mut lexer = Lexer {
        chars: source.chars(),
        at: 0,
    };
    let mut found = Vec::new();
    loop {
        lexer.skip_blanks();
        let start = lexer.at;
        let offset = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let kind = if start >= lexer.chars.len() {
            Kind::End
        } else if let Some((kind, len)) = lexer.token() {
            lexer.at += len;
            kind
        } else {
            let end = start + lexer.failed_after() + 1;
            let text = escaped(&source.text(offset(start), offset(end)));
            issues.add(
                source.location(offset(start)),
                format!("Syntax error: token recognition error at: '{text}'"),
            );
            lexer.at = end.min(lexer.chars.len());
            continue;
        };
        found.push(Token {
            kind,
            start: offset(start),
            end: offset(lexer.at),
        });
        if kind == Kind::End {
            return found;
        }
    }
}

/// A text as errors quote it.
fn escaped(text: &str) -> String {
    text.replace('\t', "\\t")
        .replace('\n', "\\n")
        .replace('\r', "\\r")
}

struct Lexer<'a> {
    chars: &'a [char],
    at: usize,
}

/// The longest of some matches; of equally long ones the first.
fn longest(matches: impl IntoIterator<Item = Option<(Kind, usize)>>) -> Option<(Kind, usize)> {
    let mut best: Option<(Kind, usize)> = None;
    for found in matches.into_iter().flatten() {
        if best.is_none_or(|(_, len)| found.1 > len) {
            best = Some(found);
        }
    }
    best
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    /// Passes white space and comments.
    fn skip_blanks(&mut self) {
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some('\t' | ' ' | '\r' | '\n' | '\u{c}'), _) => self.at += 1,
                (Some('/'), Some('/')) => {
                    while self.peek(0).is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    /// The kind and length of the token that begins here.
    fn token(&self) -> Option<(Kind, usize)> {
        longest([
            self.operator(),
            self.number(),
            self.string(0).map(|len| (Kind::String, len)),
            self.bytes(),
            self.word(),
            self.escaped_identifier(),
        ])
    }

    /// Counts the code points after the first that were taken for the beginning of a token.
    fn failed_after(&self) -> usize {
        match self.peek(0) {
            Some('=' | '&' | '|') => 1,
            Some('"') => self.open_string('"'),
            Some('\'') => self.open_string('\''),
            Some('`') => {
                let part = |c: &char| is_word(*c) || matches!(c, '.' | '-' | '/' | ' ');
                let rest = self.chars.get(self.at + 1..).unwrap_or(&[]);
                rest.iter().take_while(|c| part(c)).count() + 1
            }
            _ => 0,
        }
    }

    /// The length of a string that does not end where its line does.
    fn open_string(&self, quote: char) -> usize {
        let mut ahead = 1;
        loop {
            match self.peek(ahead) {
                None | Some('\n' | '\r') => return ahead,
                Some('\\') => match self.escape(ahead) {
                    Some(len) => ahead += len,
                    None => return ahead + 1,
                },
                Some(c) if c == quote => return ahead,
                Some(_) => ahead += 1,
            }
        }
    }

    fn operator(&self) -> Option<(Kind, usize)> {
        let (first, second) = (self.peek(0)?, self.peek(1));
        let found = match (first, second) {
            ('=', Some('=')) => (Kind::Equals, 2),
            ('!', Some('=')) => (Kind::NotEquals, 2),
            ('<', Some('=')) => (Kind::LessEquals, 2),
            ('>', Some('=')) => (Kind::GreaterEquals, 2),
            ('&', Some('&')) => (Kind::And, 2),
            ('|', Some('|')) => (Kind::Or, 2),
            ('<', _) => (Kind::Less, 1),
            ('>', _) => (Kind::Greater, 1),
            ('[', _) => (Kind::LeftBracket, 1),
            (']', _) => (Kind::RightBracket, 1),
            ('{', _) => (Kind::LeftBrace, 1),
            ('}', _) => (Kind::RightBrace, 1),
            ('(', _) => (Kind::LeftParen, 1),
            (')', _) => (Kind::RightParen, 1),
            ('.', _) => (Kind::Dot, 1),
            (',', _) => (Kind::Comma, 1),
            ('-', _) => (Kind::Minus, 1),
            ('!', _) => (Kind::Not, 1),
            ('?', _) => (Kind::Question, 1),
            (':', _) => (Kind::Colon, 1),
            ('+', _) => (Kind::Plus, 1),
            ('*', _) => (Kind::Star, 1),
            ('/', _) => (Kind::Slash, 1),
            ('%', _) => (Kind::Percent, 1),
            _ => return None,
        };
        Some(found)
    }

    /// Counts the code points from `ahead` on that hold.
    fn run(&self, ahead: usize, holds: impl Fn(char) -> bool) -> usize {
        let rest = self.chars.get(self.at + ahead..).unwrap_or(&[]);
        rest.iter().take_while(|c| holds(**c)).count()
    }

    fn number(&self) -> Option<(Kind, usize)> {
        let digits = self.run(0, |c| c.is_ascii_digit());
        if digits == 1 && self.peek(0) == Some('0') && self.peek(1) == Some('x') {
            let hex = self.run(2, |c| c.is_ascii_hexdigit());
            if hex > 0 {
                return Some(match self.peek(2 + hex) {
                    Some('u' | 'U') => (Kind::Uint, 3 + hex),
                    _ => (Kind::Int, 2 + hex),
                });
            }
        }
        let fraction = match self.peek(digits) {
            Some('.') => self.run(digits + 1, |c| c.is_ascii_digit()),
            _ => 0,
        };
        if digits == 0 && fraction == 0 {
            return None;
        }
        let mantissa = digits + if fraction > 0 { fraction + 1 } else { 0 };
        let exponent = self.exponent(mantissa);
        if fraction > 0 || exponent > 0 {
            return Some((Kind::Float, mantissa + exponent));
        }
        match self.peek(digits) {
            Some('u' | 'U') => Some((Kind::Uint, digits + 1)),
            _ => Some((Kind::Int, digits)),
        }
    }

    fn exponent(&self, ahead: usize) -> usize {
        if !matches!(self.peek(ahead), Some('e' | 'E')) {
            return 0;
        }
        let sign = usize::from(matches!(self.peek(ahead + 1), Some('+' | '-')));
        match self.run(ahead + 1 + sign, |c| c.is_ascii_digit()) {
            0 => 0,
            digits => 1 + sign + digits,
        }
    }

    fn bytes(&self) -> Option<(Kind, usize)> {
        matches!(self.peek(0)?, 'b' | 'B')
            .then(|| self.string(1))?
            .map(|len| (Kind::Bytes, len + 1))
    }

    /// The length of the string literal that begins `ahead` of here.
    fn string(&self, ahead: usize) -> Option<usize> {
        let raw = matches!(self.peek(ahead)?, 'r' | 'R');
        let open = ahead + usize::from(raw);
        let quote = self.peek(open).filter(|c| matches!(c, '"' | '\''))?;
        let triple = (1..3).all(|i| self.peek(open + i) == Some(quote));
        let long = triple.then(|| self.long_string(open + 3, quote, raw));
        long.flatten()
            .or_else(|| self.short_string(open + 1, quote, raw))
            .map(|end| end - ahead)
    }

    /// The end of the string whose first code point inside of three quotes is `ahead`.
    fn long_string(&self, mut ahead: usize, quote: char, raw: bool) -> Option<usize> {
        loop {
            match self.peek(ahead)? {
                c if c == quote && (1..3).all(|i| self.peek(ahead + i) == Some(quote)) => {
                    return Some(ahead + 3);
                }
                '\\' if !raw => ahead += self.escape(ahead)?,
                _ => ahead += 1,
            }
        }
    }

    fn short_string(&self, mut ahead: usize, quote: char, raw: bool) -> Option<usize> {
        loop {
            match self.peek(ahead)? {
                c if c == quote => return Some(ahead + 1),
                '\n' | '\r' => return None,
                '\\' if !raw => ahead += self.escape(ahead)?,
                _ => ahead += 1,
            }
        }
    }

    /// The length of the escape sequence that begins with the backslash `ahead` of here.
    fn escape(&self, ahead: usize) -> Option<usize> {
        let digits = |count: usize, holds: fn(char) -> bool| {
            (2..2 + count)
                .all(|i| self.peek(ahead + i).is_some_and(holds))
                .then_some(2 + count)
        };
        let is_hex = |c: char| c.is_ascii_hexdigit();
        match self.peek(ahead + 1)? {
            'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`' => Some(2),
            'x' | 'X' => digits(2, is_hex),
            'u' => digits(4, is_hex),
            'U' => digits(8, is_hex),
            '0'..='3' => digits(2, |c| matches!(c, '0'..='7')),
            _ => None,
        }
    }

    /// A keyword or an identifier.
    fn word(&self) -> Option<(Kind, usize)> {
        let first = self.peek(0)?;
        if !(first.is_ascii_alphabetic() || first == '_') {
            return None;
        }
        let len = self.run(0, is_word);
        let word: String = self.chars.get(self.at..self.at + len)?.iter().collect();
        let kind = match word.as_str() {
            "in" => Kind::In,
            "true" => Kind::True,
            "false" => Kind::False,
            "null" => Kind::Null,
            _ => Kind::Identifier,
        };
        Some((kind, len))
    }

    fn escaped_identifier(&self) -> Option<(Kind, usize)> {
        if self.peek(0)? != '`' {
            return None;
        }
        let len = self.run(1, |c| is_word(c) || matches!(c, '.' | '-' | '/' | ' '));
        (len > 0 && self.peek(len + 1) == Some('`')).then_some((Kind::EscapedIdentifier, len + 2))
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}
