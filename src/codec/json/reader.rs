//! Scalars and labels of a JSON document, read in place; all other values are skipped.

use std::borrow::Cow;

use super::plain_length;
use super::tree::number;
use crate::meta::selector::FieldReader;

/// A stored document: well-formed JSON that this server or kube-apiserver wrote, without duplicate
/// keys. What is not is absent to every look-up, or found in its first place.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The bytes of the value at a path of keys and indexes.
    pub fn value_at<'p>(self, path: impl IntoIterator<Item = &'p str>) -> Option<&'a [u8]> {
        let mut cursor = Cursor {
            bytes: self.0,
            at: 0,
        };
        for part in path {
            match cursor.peek()? {
                b'{' => cursor.find_key(part)?,
                b'[' => cursor.find_item(part.parse().ok()?)?,
                _ => return None,
            }
        }
        cursor.value()
    }

    /// The scalar at a dotted path as a tree would show it; `None` for null, containers and what is
    /// not there.
    pub fn scalar(self, dotted: &str) -> Option<Cow<'a, str>> {
        self.value_at(dotted.split('.')).and_then(text)
    }

    /// The labels in their stored order.
    pub fn labels(self) -> impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)> {
        let map = self.value_at(["metadata", "labels"]).unwrap_or_default();
        let mut cursor = Cursor { bytes: map, at: 0 };
        let open = cursor.peek() == Some(b'{');
        cursor.at += 1;
        std::iter::from_fn(move || {
            if open {
                Some((unquote(cursor.next_key()?)?, cursor.value()?))
            } else {
                None
            }
        })
        .filter_map(|(key, value)| Some((key, unquote(value)?)))
    }
}

impl FieldReader for Reader<'_> {
    fn text_at(&self, dotted: &str) -> Cow<'_, str> {
        self.scalar(dotted).unwrap_or_default()
    }

    fn label(&self, key: &str) -> Option<Cow<'_, str>> {
        self.value_at(["metadata", "labels", key]).and_then(unquote)
    }

    fn each_label(&self, look: &mut dyn FnMut(&str, &str)) {
        self.labels().for_each(|(key, value)| look(&key, &value));
    }
}

/// A scalar as a tree would show it; nothing for null and containers.
fn text(value: &[u8]) -> Option<Cow<'_, str>> {
    match value.first()? {
        b'"' => unquote(value),
        b't' | b'f' | b'-' | b'0'..=b'9' => {
            let word = str::from_utf8(value).ok()?;
            let as_it_is =
                matches!(word, "true" | "false") || (word != "-0" && word.parse::<i64>().is_ok());
            if as_it_is {
                Some(Cow::Borrowed(word))
            } else {
                Some(Cow::Owned(number(word).ok()?.to_string()))
            }
        }
        _ => None,
    }
}

/// The text of a string, given with its quotes.
fn unquote(value: &[u8]) -> Option<Cow<'_, str>> {
    let inner = value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if !inner.contains(&b'\\') {
        return Some(crate::codec::text(inner));
    }
    let text = crate::codec::text(value);
    let out = super::Lexer::new(&text).string().into_owned();
    Some(Cow::Owned(out))
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// The next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match *self.bytes.get(self.at)? {
                b' ' | b'\t' | b'\r' | b'\n' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    /// From the brace of an object to the value of one of its keys.
    fn find_key(&mut self, name: &str) -> Option<()> {
        self.at += 1;
        while let Some(key) = self.next_key() {
            let inner = key.get(1..key.len() - 1)?;
            if inner == name.as_bytes() || (inner.contains(&b'\\') && unquote(key)? == name) {
                return Some(());
            }
            self.value()?;
        }
        None
    }

    /// From the bracket of an array to one of its items.
    fn find_item(&mut self, index: usize) -> Option<()> {
        self.at += 1;
        for _ in 0..index {
            self.comma()?;
            self.value()?;
        }
        self.comma()?;
        (self.peek()? != b']').then_some(())
    }

    fn comma(&mut self) -> Option<()> {
        if self.peek()? == b',' {
            self.at += 1;
        }
        Some(())
    }

    /// The next key of an object with its quotes; the cursor is then at its value.
    fn next_key(&mut self) -> Option<&'a [u8]> {
        self.comma()?;
        if self.peek()? != b'"' {
            return None;
        }
        let start = self.at;
        self.skip_string();
        let key = self.bytes.get(start..self.at)?;
        if self.peek()? != b':' {
            return None;
        }
        self.at += 1;
        Some(key)
    }

    /// Passes over a value and returns its bytes.
    fn value(&mut self) -> Option<&'a [u8]> {
        let first = self.peek()?;
        let start = self.at;
        match first {
            b'"' => self.skip_string(),
            b'{' | b'[' => self.skip_container(),
            b'}' | b']' | b',' | b':' => return None,
            _ => {
                let rest = self.bytes.get(start..)?;
                let ends =
                    |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n');
                self.at += rest.iter().position(ends).unwrap_or(rest.len());
            }
        }
        self.bytes.get(start..self.at)
    }

    /// From a quote past the quote that ends the string.
    fn skip_string(&mut self) {
        self.at += 1;
        loop {
            self.at += plain_length(self.bytes.get(self.at..).unwrap_or_default());
            match self.bytes.get(self.at) {
                Some(b'\\') => self.at += 2,
                Some(b'"') | None => break,
                Some(_) => self.at += 1,
            }
        }
        self.at += 1;
    }

    fn skip_container(&mut self) {
        let mut depth = 0usize;
        while let Some(&byte) = self.bytes.get(self.at) {
            match byte {
                b'"' => {
                    self.skip_string();
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                break;
            }
        }
    }
}
