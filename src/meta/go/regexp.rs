//! Regular expressions in Go's syntax (RE2), compiled by the `regex` crate.

use regex::{Regex, RegexBuilder};

/// The largest program that a pattern may compile to, in bytes.
const SIZE_LIMIT: usize = 16 << 20;

/// Compiles a pattern. Perl classes and word boundaries are ASCII's, as in Go.
///
/// # Errors
/// Go's text for the most frequent mistakes, else that of the `regex` crate in the same form.
pub fn compile(pattern: &str) -> Result<Regex, String> {
    let translated = translate(pattern)?;
    RegexBuilder::new(&translated)
        .size_limit(SIZE_LIMIT)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => mistake("expression too large", pattern),
            other => {
                let text = other.to_string();
                let last = text.lines().last().unwrap_or_default();
                format!(
                    "error parsing regexp: {}",
                    last.trim_start_matches("error: ")
                )
            }
        })
}

fn mistake(what: &str, shown: &str) -> String {
    format!("error parsing regexp: {what}: `{shown}`")
}

/// Writes a Go pattern in the syntax of the `regex` crate.
fn translate(pattern: &str) -> Result<String, String> {
    let mut translator = Translator {
        pattern,
        at: 0,
        out: String::with_capacity(pattern.len() + 16),
        depth: 0,
        atom: false,
        repeated: None,
    };
    while let Some(c) = translator.next() {
        translator.step(c)?;
    }
    if translator.depth > 0 {
        return Err(mistake("missing closing )", pattern));
    }
    Ok(translator.out)
}

struct Translator<'a> {
    pattern: &'a str,
    /// Behind the character at hand.
    at: usize,
    out: String,
    /// Groups that are open.
    depth: usize,
    /// There is something that a quantifier could repeat.
    atom: bool,
    /// Where the quantifiers right before began.
    repeated: Option<usize>,
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

    /// The rest with the character at hand, `c`.
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
        self.next();
        self.out.push('?');
        Ok(())
    }

    /// A class in brackets. What means something there to the `regex` crate alone is escaped.
    fn class(&mut self) -> Result<(), String> {
        let whole = self.with('[');
        self.out.push('[');
        if self.rest().starts_with('^') {
            self.next();
            self.out.push('^');
        }
        let start = self.at;
        loop {
            let rest = self.rest();
            let Some(c) = self.next() else {
                return Err(mistake("missing closing ]", whole));
            };
            let named = rest.strip_prefix("[:").and_then(|name| name.find(":]"));
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

    /// What stands in braces behind `\p` or `\x`, as it is.
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

    fn escape(&mut self, in_class: bool) -> Result<(), String> {
        let Some(next) = self.next() else {
            return Err(mistake("trailing backslash at end of expression", ""));
        };
        let class = |negated: bool, inner: &str| match (in_class, negated) {
            (true, false) => inner.to_owned(),
            (_, negated) => format!("[{}{inner}]", if negated { "^" } else { "" }),
        };
        match next {
            'd' | 'D' => self.out.push_str(&class(next == 'D', "0-9")),
            'w' | 'W' => self.out.push_str(&class(next == 'W', "0-9A-Za-z_")),
            's' | 'S' => self.out.push_str(&class(next == 'S', "\\t\\n\\f\\r ")),
            'b' | 'B' if !in_class => self.out.push_str(&format!("(?-u:\\{next})")),
            'p' | 'P' | 'x' => {
                self.out.extend(['\\', next]);
                self.braces();
            }
            'A' | 'z' if !in_class => self.out.extend(['\\', next]),
            'a' | 'f' | 't' | 'n' | 'r' | 'v' => self.out.extend(['\\', next]),
            c if c.is_ascii_punctuation() => self.out.extend(['\\', c]),
            c if !c.is_ascii() => self.out.push(c),
            c => return Err(mistake("invalid escape sequence", &format!("\\{c}"))),
        }
        Ok(())
    }
}

/// The groups beyond plain ones that RE2 knows: named, and those with flags.
fn group_is_known(text: &str) -> bool {
    let rest = &text["(?".len()..];
    let flags = rest.split([':', ')']).next().unwrap_or_default();
    let named = rest.strip_prefix("P<").or_else(|| {
        rest.strip_prefix('<')
            .filter(|rest| !rest.starts_with(['=', '!']))
    });
    named.is_some()
        || (flags.len() < rest.len()
            && flags
                .chars()
                .all(|c| matches!(c, 'i' | 'm' | 's' | 'U' | '-')))
}

/// Whether a brace begins a count such as `{1,3}`, rather than standing for itself.
fn is_repetition(text: &str) -> bool {
    let Some((inner, _)) = text[1..].split_once('}') else {
        return false;
    };
    let (low, high) = inner.split_once(',').unwrap_or((inner, ""));
    let digits = |text: &str| text.bytes().all(|c| c.is_ascii_digit());
    !low.is_empty() && digits(low) && digits(high)
}

#[cfg(test)]
mod tests {
    use super::compile;

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
        ];
        for (pattern, text, want) in cases {
            assert_eq!(
                compile(pattern).map(|regex| regex.is_match(text)),
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
        ];
        for (pattern, want) in cases {
            assert_eq!(
                compile(pattern).expect_err("a mistake"),
                format!("error parsing regexp: {want}")
            );
        }
    }
}
