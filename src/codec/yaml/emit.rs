//! Trees to YAML, as `yaml.v2` writes them: block style, keys in its natural order, lines folded
//! after 80 columns.

use super::resolve::{Scalar, is_base60, resolve};
use crate::codec::json;
use crate::meta::{Key, Map, Value};

/// The column after which a line is folded at the next space.
const WIDTH: usize = 80;
/// The longest key that is written on one line with its value.
const SIMPLE_KEY: usize = 128;

/// YAML with a newline at the end.
pub fn encode(value: &Value) -> Vec<u8> {
    let mut emitter = Emitter {
        out: String::with_capacity(4096),
        column: 0,
    };
    match value {
        Value::Object(map) if !map.is_empty() => emitter.map(map, 0, false),
        Value::Array(items) if !items.is_empty() => emitter.list(items, 0, false),
        other => emitter.scalar(other, 0, false),
    }
    emitter.out.push('\n');
    emitter.out.into_bytes()
}

struct Emitter {
    out: String,
    /// In characters.
    column: usize,
}

impl Emitter {
    fn put(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += text.chars().count();
    }

    fn put_char(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }

    fn indent(&mut self, indent: usize) {
        self.out.push('\n');
        self.out.extend(std::iter::repeat_n(' ', indent));
        self.column = indent;
    }

    /// `inline`: the first entry goes on the current line.
    fn map(&mut self, map: &Map, indent: usize, inline: bool) {
        for (index, (key, value)) in sort(map.iter().collect()).into_iter().enumerate() {
            if !(index == 0 && (inline || self.out.is_empty())) {
                self.indent(indent);
            }
            if key.len() <= SIMPLE_KEY && !key.contains('\n') {
                self.string(key, indent, true);
                self.put(":");
            } else {
                self.put("? ");
                self.string(key, indent, false);
                self.indent(indent);
                self.put(":");
            }
            self.value(value, indent);
        }
    }

    /// A list in a map is indented like its key.
    fn list(&mut self, items: &[Value], indent: usize, inline: bool) {
        for (index, item) in items.iter().enumerate() {
            if !(index == 0 && (inline || self.out.is_empty())) {
                self.indent(indent);
            }
            self.put("- ");
            match item {
                Value::Object(map) if !map.is_empty() => self.map(map, indent + 2, true),
                Value::Array(items) if !items.is_empty() => self.list(items, indent + 2, true),
                other => self.scalar(other, indent, false),
            }
        }
    }

    /// A value after its key and colon.
    fn value(&mut self, value: &Value, indent: usize) {
        match value {
            Value::Object(map) if !map.is_empty() => {
                self.indent(indent + 2);
                self.map(map, indent + 2, true);
            }
            Value::Array(items) if !items.is_empty() => {
                self.indent(indent);
                self.list(items, indent, true);
            }
            other => {
                self.put(" ");
                self.scalar(other, indent, false);
            }
        }
    }

    fn scalar(&mut self, value: &Value, indent: usize, is_key: bool) {
        match value {
            Value::String(text) => self.string(text, indent, is_key),
            Value::Object(_) => self.put("{}"),
            Value::Array(_) => self.put("[]"),
            other => {
                let mut text = Vec::new();
                json::encode_value(other, &mut text);
                self.put(&String::from_utf8_lossy(&text));
            }
        }
    }

    fn string(&mut self, text: &str, indent: usize, is_key: bool) {
        let shape = AllowedStyles::of(text);
        let is_plain = resolve(text) == Scalar::String && !is_base60(text);
        if text.contains('\n') && shape.block && !is_key {
            self.literal(text, indent + 2);
        } else if text.contains('\n') || !is_plain || !shape.single || (is_key && shape.multiline) {
            self.double(text, indent + 2, is_key);
        } else if shape.plain {
            self.plain(text, indent + 2, is_key);
        } else {
            self.single(text, indent + 2, is_key);
        }
    }

    fn plain(&mut self, text: &str, indent: usize, is_key: bool) {
        let mut after_space = false;
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            if c == ' '
                && !is_key
                && !after_space
                && self.column > WIDTH
                && rest.peek() != Some(&' ')
            {
                self.indent(indent);
            } else {
                self.put_char(c);
            }
            after_space = c == ' ';
        }
    }

    fn single(&mut self, text: &str, indent: usize, is_key: bool) {
        self.put("'");
        let mut after_space = false;
        let mut rest = text.chars().peekable();
        let mut first = true;
        while let Some(c) = rest.next() {
            let inside = !first && rest.peek().is_some_and(|&next| next != ' ');
            if c == ' ' && !is_key && !after_space && self.column > WIDTH && inside {
                self.indent(indent);
            } else {
                if c == '\'' {
                    self.put_char('\'');
                }
                self.put_char(c);
            }
            after_space = c == ' ';
            first = false;
        }
        self.put("'");
    }

    fn double(&mut self, text: &str, indent: usize, is_key: bool) {
        self.put("\"");
        let mut after_space = false;
        let mut rest = text.chars().peekable();
        let mut first = true;
        while let Some(c) = rest.next() {
            if c == ' '
                && !is_key
                && !after_space
                && self.column > WIDTH
                && !first
                && rest.peek().is_some()
            {
                self.indent(indent);
                if rest.peek() == Some(&' ') {
                    self.put_char('\\');
                }
            } else {
                self.escaped(c);
            }
            after_space = c == ' ';
            first = false;
        }
        self.put("\"");
    }

    fn escaped(&mut self, c: char) {
        let short = match c {
            '\0' => '0',
            '\u{7}' => 'a',
            '\u{8}' => 'b',
            '\t' => 't',
            '\n' => 'n',
            '\u{b}' => 'v',
            '\u{c}' => 'f',
            '\r' => 'r',
            '\u{1b}' => 'e',
            '"' => '"',
            '\\' => '\\',
            '\u{85}' => 'N',
            '\u{a0}' => '_',
            '\u{2028}' => 'L',
            '\u{2029}' => 'P',
            c if is_printable(c) => return self.put_char(c),
            c if (c as u32) < 0x100 => return self.put(&format!("\\x{:02X}", c as u32)),
            c if (c as u32) < 0x10000 => return self.put(&format!("\\u{:04X}", c as u32)),
            c => return self.put(&format!("\\U{:08X}", c as u32)),
        };
        self.put_char('\\');
        self.put_char(short);
    }

    fn literal(&mut self, text: &str, indent: usize) {
        self.put("|");
        if text.starts_with([' ', '\n']) {
            self.put("2");
        }
        match text.strip_suffix('\n') {
            None => self.put("-"),
            Some(body) if body.is_empty() || body.ends_with('\n') => self.put("+"),
            Some(_) => {}
        }
        let body = text.strip_suffix('\n').unwrap_or(text);
        for line in body.split('\n') {
            if line.is_empty() {
                self.out.push('\n');
                self.column = 0;
            } else {
                self.indent(indent);
                self.put(line);
            }
        }
    }
}

/// The styles that a string can be written in (yaml.v2 `analyze_scalar`).
struct AllowedStyles {
    plain: bool,
    single: bool,
    block: bool,
    multiline: bool,
}

impl AllowedStyles {
    fn of(text: &str) -> Self {
        if text.is_empty() {
            return Self {
                plain: true,
                single: true,
                block: false,
                multiline: false,
            };
        }
        let is_break = |c: char| matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}');
        let is_blank = |c: char| c == ' ' || c == '\t';
        let mut indicators = text.starts_with("---") || text.starts_with("...");
        let (mut special, mut breaks, mut break_space, mut space_break) =
            (false, false, false, false);
        let mut previous: Option<char> = None;
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            let blank_next = rest
                .peek()
                .is_none_or(|&next| is_blank(next) || is_break(next));
            indicators |= match (previous, c) {
                (
                    None,
                    '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"'
                    | '%' | '@' | '`',
                ) => true,
                (None, '?' | ':' | '-') | (Some(_), ':') => blank_next,
                (Some(before), '#') => is_blank(before) || is_break(before),
                _ => false,
            };
            special |= !is_printable(c);
            if c == ' ' {
                break_space |= previous.is_some_and(is_break);
            } else if is_break(c) {
                breaks = true;
                space_break |= previous == Some(' ');
            }
            previous = Some(c);
        }
        let edge = |c: Option<char>| c.is_some_and(|c| c == ' ' || is_break(c));
        let edges = edge(text.chars().next()) || edge(previous);
        let broken = space_break || special;
        Self {
            plain: !(indicators || edges || breaks || break_space || broken),
            single: !(break_space || broken),
            block: !(previous == Some(' ') || broken),
            multiline: breaks,
        }
    }
}

/// Reports whether `yaml.v2` writes a character as it is; it takes everything beyond U+FFFF as not
/// printable.
fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}')
        && c != '\u{feff}'
}

/// Sorts entries as `yaml.v2` sorts keys. Its order is not one in the strict sense, which the sorts
/// of std do not tolerate: hence a merge sort that takes what it gets.
fn sort<'a>(entries: Vec<(&'a Key, &'a Value)>) -> Vec<(&'a Key, &'a Value)> {
    if entries.len() < 2 {
        return entries;
    }
    let mut left = entries;
    let right = sort(left.split_off(left.len() / 2));
    let left = sort(left);
    let mut out = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some((one, _)), Some((other, _))) = (left.peek(), right.peek()) {
        out.extend(if less(other, one) {
            right.next()
        } else {
            left.next()
        });
    }
    out.extend(left);
    out.extend(right);
    out
}

/// Reports whether a key comes before another: numbers in them count as numbers, letters come after
/// everything else.
fn less(one: &str, other: &str) -> bool {
    let (mut a, mut b) = (one.chars(), other.chars());
    let mut digits = false;
    let mut significant = false;
    loop {
        let (rest_a, rest_b) = (a.as_str(), b.as_str());
        let (Some(x), Some(y)) = (a.next(), b.next()) else {
            return one.chars().count() < other.chars().count();
        };
        if x == y {
            digits = x.is_numeric();
            significant = digits && (significant || x != '0');
            continue;
        }
        return match (x.is_alphabetic(), y.is_alphabetic()) {
            (true, true) => x < y,
            (false, false) => {
                // Zeros after other digits belong to the number before them.
                let start = u64::from(significant && (x == '0' || y == '0'));
                let (one, other) = (run(rest_a, start), run(rest_b, start));
                if one == other { x < y } else { one < other }
            }
            (letter, other_letter) => {
                if digits {
                    letter
                } else {
                    other_letter
                }
            }
        };
    }
}

/// The value and length of the digits that a text begins with.
fn run(text: &str, start: u64) -> (u64, usize) {
    text.chars()
        .map_while(|c| c.to_digit(10))
        .fold((start, 0), |(value, count), digit| {
            (value.wrapping_mul(10).wrapping_add(digit.into()), count + 1)
        })
}
