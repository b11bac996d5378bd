//! The text of an expression, positions in it, and errors that show where they are.

use std::fmt;

/// The name under which errors mention the text, as kube-apiserver's do.
const DESCRIPTION: &str = "<input>";
/// The longest line that an error shows, in bytes (cel-go `common/error.go`).
const MAX_SNIPPET_BYTES: usize = 16_384;
/// The number of errors that are reported of one text (cel-go `common/errors.go`).
const MAX_ERRORS: usize = 100;

/// The text of an expression as code points, with the beginnings of its lines.
#[derive(Debug)]
pub struct Source {
    chars: Vec<char>,
    /// The offset of each line but the first, in code points.
    lines: Vec<u32>,
}

/// A place in a text: a line that counts from 1 and a column that counts from 0.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Location {
    pub line: i32,
    pub column: i32,
}

impl Location {
    /// The place of what concerns the text as a whole.
    pub const NONE: Self = Self {
        line: -1,
        column: -1,
    };
}

/// An error at a place.
#[derive(Clone, Debug)]
pub struct Issue {
    pub location: Location,
    pub message: String,
}

/// The errors of one text, at most [`MAX_ERRORS`] of which are kept.
#[derive(Debug, Default)]
pub struct Issues {
    kept: Vec<Issue>,
    count: usize,
}

impl Source {
    pub fn new(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let starts = chars.iter().zip(1..).filter(|(c, _)| **c == '\n');
        let lines = starts.map(|(_, next)| next).collect();
        Self { chars, lines }
    }

    pub fn chars(&self) -> &[char] {
        &self.chars
    }

    /// The code points from `start` to `end`.
    pub fn text(&self, start: u32, end: u32) -> String {
        let range = start as usize..(end as usize).min(self.chars.len());
        self.chars.get(range).unwrap_or(&[]).iter().collect()
    }

    /// The place of a code point.
    pub fn location(&self, offset: u32) -> Location {
        let before = self.lines.partition_point(|start| *start <= offset);
        let start = before.checked_sub(1).map_or(0, |line| self.lines[line]);
        Location {
            line: i32::try_from(before + 1).unwrap_or(i32::MAX),
            column: i32::try_from(offset - start).unwrap_or(i32::MAX),
        }
    }

    /// A line without its end; `None` where there is no such line.
    fn line(&self, number: i32) -> Option<String> {
        let index = usize::try_from(number.checked_sub(1)?).ok()?;
        let start = match index.checked_sub(1) {
            None => 0,
            Some(before) => *self.lines.get(before)?,
        };
        let end = match self.lines.get(index) {
            Some(next) => next - 1,
            None => u32::try_from(self.chars.len()).unwrap_or(u32::MAX),
        };
        Some(self.text(start, end))
    }

    /// An error with the line that it is in and a mark below its column.
    fn show(&self, issue: &Issue, out: &mut String) {
        let Location { line, column } = issue.location;
        out.push_str(&format!(
            "ERROR: {DESCRIPTION}:{line}:{}: {}",
            column + 1,
            issue.message
        ));
        let Some(text) = self.line(line).filter(|text| {
            text.len() <= MAX_SNIPPET_BYTES && !(text.is_empty() && self.chars.is_empty())
        }) else {
            return;
        };
        let text = text.replace('\t', " ");
        out.push_str("\n | ");
        out.push_str(&text);
        out.push_str("\n | ");
        let mut chars = text.chars();
        let is_wide = |c: char| c.len_utf8() > 1;
        for c in chars.by_ref().take(usize::try_from(column).unwrap_or(0)) {
            out.push(if is_wide(c) { '\u{ff0e}' } else { '.' });
        }
        let wide = chars.next().is_some_and(is_wide);
        out.push(if wide { '\u{ff3e}' } else { '^' });
    }
}

impl Issues {
    pub fn add(&mut self, location: Location, message: impl Into<String>) {
        self.count += 1;
        if self.kept.len() < MAX_ERRORS {
            self.kept.push(Issue {
                location,
                message: message.into(),
            });
        }
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The errors as text, in the order of their places; nothing where there are none.
    pub fn into_error(mut self, source: &Source) -> Option<CompileError> {
        if self.is_empty() {
            return None;
        }
        self.kept.sort_by_key(|issue| issue.location);
        let mut out = String::new();
        for issue in &self.kept {
            if !out.is_empty() {
                out.push('\n');
            }
            source.show(issue, &mut out);
        }
        if self.count > self.kept.len() {
            let more = self.count - self.kept.len();
            out.push_str(&format!("\n{more} more errors were truncated"));
        }
        Some(CompileError(out))
    }
}

/// The errors of an expression that does not compile, as cel-go writes them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CompileError(pub String);

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CompileError {}
