//! Regular expressions in Go's syntax (RE2), compiled by the `regex` crate.

use regex::{Regex, RegexBuilder};

/// The largest program that a pattern may compile to, in bytes.
pub const MAX_PROGRAM_BYTES: usize = 8 << 20;
/// The sizes of programs that are tried one after the other, so that the size of a program is known
/// to within a factor of 8, and small ones cost little.
const PROGRAM_BYTES: [usize; 6] = [
    4 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    MAX_PROGRAM_BYTES,
];
/// The most that it may cost to parse a pattern: its bytes, and [`CLASS_COST`] for some classes.
const MAX_COST: usize = 16 << 10;
/// The cost of a class that the parser lists character by character of Unicode: a named one, or any
/// where case is ignored.
const CLASS_COST: usize = 512;
/// The maximum memory that a matcher may use for the states it has seen (of the `regex` crate's
/// lazy DFA).
const DFA_BYTES: usize = 256 << 10;
/// The greatest count of a repetition (Go's `regexp/syntax`).
const MAX_REPEAT: usize = 1_000;

/// The phrase in errors about patterns that are valid, but larger than these limits.
pub const TOO_LARGE: &str = "expression too large";

/// A compiled pattern.
#[derive(Clone, Debug)]
pub struct Program {
    pub regex: Regex,
    /// An upper bound of the size of the program in bytes, one of [`PROGRAM_BYTES`].
    pub bytes: usize,
}

/// Compiles a pattern. Perl classes and word boundaries are ASCII's, as in Go.
///
/// # Errors
/// Go's text for the most frequent mistakes, else that of the `regex` crate in the same form; also
/// where the pattern is too large.
pub fn compile(pattern: &str) -> Result<Program, String> {
    let (translated, _) = translate(pattern)?;
    for bytes in PROGRAM_BYTES {
        match build(&translated, bytes) {
            Err(regex::Error::CompiledTooBig(_)) => {}
            Err(other) => return Err(syntax_error(&other)),
            Ok(regex) => return Ok(Program { regex, bytes }),
        }
    }
    Err(mistake(TOO_LARGE, pattern))
}

/// Parses a pattern, without compiling it, and returns what that cost, at most [`MAX_COST`].
///
/// # Errors
/// As [`compile`], but for a program that is too large.
pub fn check(pattern: &str) -> Result<usize, String> {
    let (translated, cost) = translate(pattern)?;
    match build(&translated, 0) {
        Ok(_) | Err(regex::Error::CompiledTooBig(_)) => Ok(cost),
        Err(other) => Err(syntax_error(&other)),
    }
}

fn build(translated: &str, max_bytes: usize) -> Result<Regex, regex::Error> {
    RegexBuilder::new(translated)
        .size_limit(max_bytes)
        .dfa_size_limit(DFA_BYTES)
        .build()
}

fn syntax_error(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    if last.starts_with("error: invalid character class range")
        && let Some(shown) = pointed_at(&text)
    {
        return mistake("invalid character class range", &shown);
    }
    format!(
        "error parsing regexp: {}",
        last.trim_start_matches("error: ")
    )
}

/// The part of a pattern that an error of the `regex` crate points at by carets below it.
fn pointed_at(text: &str) -> Option<String> {
    let mut lines = text.lines().skip(1);
    let (pattern, carets) = (lines.next()?, lines.next()?);
    let start = carets.find('^')?;
    let count = carets.matches('^').count();
    let shown: String = pattern.chars().skip(start).take(count).collect();
    (shown.chars().count() == count).then_some(shown)
}

fn mistake(what: &str, shown: &str) -> String {
    format!("error parsing regexp: {what}: `{shown}`")
}

/// Writes a Go pattern in the syntax of the `regex` crate, in time that grows with its length, and
/// returns what parsing it costs.
fn translate(pattern: &str) -> Result<(String, usize), String> {
    if pattern.len() > MAX_COST {
        return Err(mistake(TOO_LARGE, pattern));
    }
    let mut translator = Translator {
        pattern,
        at: 0,
        out: String::with_capacity(pattern.len() + 16),
        depth: 0,
        atom: false,
        repeated: None,
        last_named_end: pattern.rfind(":]").unwrap_or(0),
        ignores_case: false,
        cost: pattern.len(),
    };
    while let Some(c) = translator.next() {
        translator.step(c)?;
        if translator.cost > MAX_COST {
            return Err(mistake(TOO_LARGE, pattern));
        }
    }
    if translator.depth > 0 {
        return Err(mistake("missing closing )", pattern));
    }
    Ok((translator.out, translator.cost))
}

struct Translator<'a> {
    pattern: &'a str,
    /// Behind the current character.
    at: usize,
    out: String,
    /// Groups that are open.
    depth: usize,
    /// There is something that a quantifier could repeat.
    atom: bool,
    /// The start of the quantifiers right before.
    repeated: Option<usize>,
    /// The last place of a `:]`: there is no use in looking for one behind it.
    last_named_end: usize,
    /// A group has the flag `i`.
    ignores_case: bool,
    /// The cost of parsing so far.
    cost: usize,
}

impl<'a> Translator<'a> {
    fn next(&mut self) -> Option<char> {
        let c = self.rest().chars().next()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn rest(&self) -> &'a str {
        &self.pattern[self.at..]
    }

    /// The rest with the current character, `c`.
    fn with(&self, c: char) -> &'a str {
        &self.pattern[self.at - c.len_utf8()..]
    }

    fn step(&mut self, c: char) -> Result<(), String> {
        if matches!(c, '*' | '+' | '?') || (c == '{' && is_repetition(self.with(c))) {
            return self.quantifier(c);
        }
        self.repeated = None;
        self.atom = true;
        match c {
            '\\' => self.escape(false)?,
            '[' => self.class()?,
            '(' => self.group()?,
            ')' if self.depth == 0 => return Err(mistake("unexpected )", self.pattern)),
            ')' => {
                self.depth -= 1;
                self.out.push(')');
            }
            '|' => {
                self.atom = false;
                self.out.push('|');
            }
            '{' | '}' => self.out.extend(['\\', c]),
            c => self.out.push(c),
        }
        Ok(())
    }

    fn quantifier(&mut self, c: char) -> Result<(), String> {
        let start = self.at - 1;
        let end = if c == '{' {
            start + self.with(c).find('}').unwrap_or(0) + 1
        } else {
            self.at
        };
        let shown = &self.pattern[start..end];
        if c == '{' && !counts_are_valid(shown) {
            return Err(mistake("invalid repeat count", shown));
        }
        if !self.atom {
            return Err(mistake("missing argument to repetition operator", shown));
        }
        if let Some(from) = self.repeated {
            let before = &self.pattern[from..start];
            let lazy = c == '?' && (before.len() == 1 || !before.ends_with('?'));
            if !lazy {
                return Err(mistake(
                    "invalid nested repetition operator",
                    &self.pattern[from..end],
                ));
            }
        }
        self.out.push_str(shown);
        self.at = end;
        self.repeated.get_or_insert(start);
        Ok(())
    }

    fn group(&mut self) -> Result<(), String> {
        let text = self.with('(');
        self.depth += 1;
        self.out.push('(');
        self.atom = false;
        if !text.starts_with("(?") {
            return Ok(());
        }
        if !group_is_known(text) {
            let shown: String = text.chars().take(3).collect();
            return Err(mistake("invalid or unsupported Perl syntax", &shown));
        }
        self.ignores_case |= flags_of(text).contains('i');
        self.next();
        self.out.push('?');
        Ok(())
    }

    /// A class in brackets. What means something there to the `regex` crate alone is escaped.
    fn class(&mut self) -> Result<(), String> {
        let whole = self.with('[');
        self.charge_class(self.ignores_case);
        self.out.push('[');
        if self.rest().starts_with('^') {
            self.next();
            self.out.push('^');
        }
        let start = self.at;
        loop {
            let rest = self.rest();
            let may_be_named = self.at < self.last_named_end;
            let Some(c) = self.next() else {
                return Err(mistake("missing closing ]", whole));
            };
            let named = rest
                .strip_prefix("[:")
                .filter(|_| may_be_named)
                .and_then(|name| name.find(":]"));
            match (c, named) {
                ('\\', _) => self.escape(true)?,
                ('[', Some(name)) => {
                    let end = name + "[::]".len();
                    self.out.push_str(&rest[..end]);
                    self.at += end - 1;
                }
                (']', _) if self.at > start + 1 => {
                    self.out.push(']');
                    return Ok(());
                }
                ('-', _) if rest.starts_with("--") => self.out.push_str("\\-"),
                ('[' | '&' | '~' | ']', _) => self.out.extend(['\\', c]),
                (c, _) => self.out.push(c),
            }
        }
    }

    /// Adds the cost of a class, if it is one of those that are listed.
    fn charge_class(&mut self, is_listed: bool) {
        if is_listed {
            self.cost += CLASS_COST;
        }
    }

    /// Writes a Perl class of ASCII, in brackets of its own where it needs them.
    fn perl_class(&mut self, negated: bool, inner: &str, in_class: bool) {
        self.charge_class(self.ignores_case);
        match (in_class, negated) {
            (true, false) => self.out.push_str(inner),
            (_, true) => self.out.extend(["[^", inner, "]"]),
            (false, false) => self.out.extend(["[", inner, "]"]),
        }
    }

    /// Copies the braces behind `\p` or `\x`.
    fn braces(&mut self) {
        if self.rest().starts_with('{') {
            let end = self
                .rest()
                .find('}')
                .map_or(self.rest().len(), |end| end + 1);
            self.out.push_str(&self.rest()[..end]);
            self.at += end;
        }
    }

    /// Copies the text up to `\E` as it is.
    fn quoted(&mut self) {
        const END: &str = "\\E";
        let rest = self.rest();
        let (text, after) = rest.split_once(END).unwrap_or((rest, ""));
        let (escaped, end) = (regex::escape(text), self.pattern.len() - after.len());
        self.out.push_str(&escaped);
        self.at = end;
    }

    /// Copies a character of up to three octal digits.
    fn octal(&mut self, first: char) {
        let more = self.rest().chars().take(2).take_while(|c| is_octal(*c));
        let digits: String = std::iter::once(first).chain(more).collect();
        self.at += digits.len() - 1;
        let code = u32::from_str_radix(&digits, 8).unwrap_or_default();
        self.out.push_str(&format!("\\x{{{code:x}}}"));
    }

    fn escape(&mut self, in_class: bool) -> Result<(), String> {
        let Some(next) = self.next() else {
            return Err(mistake("trailing backslash at end of expression", ""));
        };
        match next {
            'Q' if !in_class => self.quoted(),
            '0'..='7' if next == '0' || self.rest().starts_with(is_octal) => self.octal(next),
            'd' | 'D' => self.perl_class(next == 'D', "0-9", in_class),
            'w' | 'W' => self.perl_class(next == 'W', "0-9A-Za-z_", in_class),
            's' | 'S' => self.perl_class(next == 'S', "\\t\\n\\f\\r ", in_class),
            'b' | 'B' if !in_class => self.out.push_str(&format!("(?-u:\\{next})")),
            'p' | 'P' | 'x' => {
                self.charge_class(next != 'x');
                self.out.extend(['\\', next]);
                self.braces();
            }
            'A' | 'z' if !in_class => self.out.extend(['\\', next]),
            'a' | 'f' | 't' | 'n' | 'r' | 'v' => self.out.extend(['\\', next]),
            c if c.is_ascii_punctuation() => self.out.extend(['\\', c]),
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => {
                self.out.push_str(&format!("\\x{:02x}", u32::from(c)));
            }
            c => return Err(mistake("invalid escape sequence", &format!("\\{c}"))),
        }
        Ok(())
    }
}

/// The groups beyond plain ones that RE2 knows: named, and those with flags.
fn group_is_known(text: &str) -> bool {
    let rest = &text["(?".len()..];
    let named = rest.strip_prefix("P<").or_else(|| {
        rest.strip_prefix('<')
            .filter(|rest| !rest.starts_with(['=', '!']))
    });
    named.is_some() || rest[flags_of(text).len()..].starts_with([':', ')'])
}

fn is_octal(c: char) -> bool {
    c.is_digit(8)
}

/// The flags of a group that starts with `(?`.
fn flags_of(text: &str) -> &str {
    let rest = &text["(?".len()..];
    let is_flag = |c: char| matches!(c, 'i' | 'm' | 's' | 'U' | '-');
    &rest[..rest.find(|c| !is_flag(c)).unwrap_or(rest.len())]
}

/// Reports whether a brace begins a count such as `{1,3}`, rather than standing for itself.
fn is_repetition(text: &str) -> bool {
    let digits = |text: &str| {
        text.bytes()
            .position(|c| !c.is_ascii_digit())
            .unwrap_or(text.len())
    };
    let low = digits(&text[1..]);
    let rest = &text[1 + low..];
    let rest = rest
        .strip_prefix(',')
        .map_or(rest, |rest| &rest[digits(rest)..]);
    low > 0 && rest.starts_with('}')
}

/// Reports whether the counts of a repetition such as `{1,3}` are within Go's bounds.
fn counts_are_valid(repetition: &str) -> bool {
    let inner = repetition.trim_matches(['{', '}']);
    let (low, high) = inner.split_once(',').unwrap_or((inner, inner));
    let count = |text: &str| {
        text.parse::<usize>()
            .ok()
            .filter(|count| *count <= MAX_REPEAT)
    };
    match (count(low), high) {
        (Some(_), "") => true,
        (Some(low), high) => count(high).is_some_and(|high| low <= high),
        (None, _) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_go() {
        let cases = [
            ("^a+$", "aaa", true),
            ("^[[:alpha:]]+$", "abc", true),
            ("^[a[]$", "[", true),
            ("^a{b$", "a{b", true),
            ("^\\d+$", "\u{663}", false),
            ("[^]a]", "]", false),
            ("^[\\w.-]{1,3}$", "a-b", true),
            ("a{2}?", "aa", true),
            ("^\\p{Lu}[\\p{L}]$", "Éa", true),
            ("(?i)^ab$", "AB", true),
            ("^\\Qa.b\\E+$", "a.bb", true),
            ("^\\Qa.b", "axb", false),
            ("^\\141[\\0142]$", "ab", false),
            ("^\\141[\\142]\\ $", "ab ", true),
        ];
        for (pattern, text, want) in cases {
            assert_eq!(
                compile(pattern).map(|program| program.regex.is_match(text)),
                Ok(want),
                "{pattern}"
            );
        }
    }

    #[test]
    fn mistakes_read_as_gos() {
        let cases = [
            ("[", "missing closing ]: `[`"),
            ("a(", "missing closing ): `a(`"),
            ("a)", "unexpected ): `a)`"),
            ("*", "missing argument to repetition operator: `*`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("\\y", "invalid escape sequence: `\\y`"),
            ("\\1", "invalid escape sequence: `\\1`"),
            ("[\\Q]", "invalid escape sequence: `\\Q`"),
            ("\\é", "invalid escape sequence: `\\é`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("a{2,1}", "invalid repeat count: `{2,1}`"),
            ("x[:-3]", "invalid character class range: `:-3`"),
        ];
        for (pattern, want) in cases {
            assert_eq!(
                compile(pattern).expect_err("a mistake"),
                format!("error parsing regexp: {want}")
            );
        }
    }

    #[test]
    fn large_patterns_are_refused_before_they_are_compiled() {
        let repeat = |part: &str| part.repeat(MAX_COST / part.len());
        for pattern in [
            repeat("[:"),
            format!("[{}", repeat("[:")),
            format!("{}(", repeat("{1")),
            repeat("(?P<"),
            repeat("\\pL"),
            format!("(?i){}", repeat("[^a]")),
            "a".repeat(MAX_COST + 1),
            "(?:(?:\\pL{1000}){1000}){1000}".to_owned(),
        ] {
            assert!(compile(&pattern).is_err(), "{pattern:.20}");
        }
        assert!(check("(?:\\pL{1000}){1000}").is_ok_and(|cost| cost > CLASS_COST));
        assert!(check("(").is_err());
        assert!(compile("^[a-z]+$").is_ok_and(|program| program.bytes <= 16 << 10));
    }
}
