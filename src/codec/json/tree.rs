//! JSON to a tree without a type: integers stay integers, duplicate keys are noted.

use super::lexer::Lexer;
use super::{DecodeError, Document};
use crate::codec::{MAX_ISSUE_BYTES, MAX_ISSUES, MAX_TREE_DEPTH};
use crate::meta::{Key, Map, Value};

/// Reads any JSON. Beside the tree come the duplicate fields, as `duplicate field "a.b[0].c"`; the
/// last of them counts.
///
/// # Errors
/// Go's syntax errors; a tree that nests deeper than [`MAX_TREE_DEPTH`].
pub fn parse(bytes: &[u8]) -> Result<(Value, Vec<String>), DecodeError> {
    Document::new(bytes)?.parse()
}

pub(super) fn run(text: &str) -> Result<(Value, Vec<String>), DecodeError> {
    let mut builder = Builder {
        issues: Some(Vec::new()),
        path: String::new(),
        spelled: 0,
        entries: Vec::new(),
    };
    let value = builder.value(&mut Lexer::new(text), 0)?;
    Ok((value, builder.issues.unwrap_or_default()))
}

/// Reads the current value, `depth` levels deep already, without looking for duplicates.
pub(super) fn value(lexer: &mut Lexer, depth: usize) -> Result<Value, DecodeError> {
    Builder {
        issues: None,
        path: String::new(),
        spelled: 0,
        entries: Vec::new(),
    }
    .value(lexer, depth)
}

/// A JSON number as `sigs.k8s.io/json` reads it: an int64 if it is written as an integer and fits,
/// else a float64.
pub(super) fn number(text: &str) -> Result<Value, DecodeError> {
    if let Ok(integer) = text.parse::<i64>() {
        return Ok(integer.into());
    }
    let float = text.parse::<f64>().ok().filter(|float| float.is_finite());
    let number = float.and_then(serde_json::Number::from_f64);
    number.map(Value::Number).ok_or_else(|| {
        DecodeError(format!(
            "json: cannot unmarshal number {text} into Go value of type float64"
        ))
    })
}

struct Builder {
    /// `None` if they are not requested.
    issues: Option<Vec<String>>,
    path: String,
    /// The bytes of the paths that were put together for issues.
    spelled: usize,
    /// The entries of the objects that are open, so that each map is made in its size.
    entries: Vec<(Key, Value)>,
}

impl Builder {
    fn value(&mut self, lexer: &mut Lexer, depth: usize) -> Result<Value, DecodeError> {
        if depth > MAX_TREE_DEPTH {
            return Err(DecodeError::new("exceeded max depth"));
        }
        Ok(match lexer.peek() {
            b'{' => Value::Object(self.object(lexer, depth)?),
            b'[' => Value::Array(self.array(lexer, depth)?),
            b'"' => Value::String(lexer.string().into_owned()),
            b'n' => {
                lexer.word();
                Value::Null
            }
            b't' | b'f' => Value::Bool(lexer.word() == "true"),
            _ => number(lexer.word())?,
        })
    }

    fn array(&mut self, lexer: &mut Lexer, depth: usize) -> Result<Vec<Value>, DecodeError> {
        let mut items = Vec::new();
        lexer.enter();
        while lexer.next_item() {
            let length = self.path.len();
            if self.issues.is_some() {
                self.path.push_str(&format!("[{}]", items.len()));
            }
            items.push(self.value(lexer, depth + 1)?);
            self.path.truncate(length);
        }
        Ok(items)
    }

    fn object(&mut self, lexer: &mut Lexer, depth: usize) -> Result<Map, DecodeError> {
        let base = self.entries.len();
        lexer.enter();
        while let Some(key) = lexer.next_key() {
            let length = self.path.len();
            if self.issues.is_some() {
                if !self.path.is_empty() {
                    self.path.push('.');
                }
                self.path.push_str(&key);
            }
            let value = self.value(lexer, depth + 1)?;
            self.path.truncate(length);
            self.entries.push((key.into(), value));
        }
        let mut map = Map::with_capacity(self.entries.len() - base);
        for at in base..self.entries.len() {
            let (key, value) = std::mem::take(&mut self.entries[at]);
            if self.issues.is_some() && map.contains_key(&key) {
                self.duplicate(&key);
            }
            map.insert(key, value);
        }
        self.entries.truncate(base);
        Ok(map)
    }

    fn duplicate(&mut self, key: &str) {
        if self.spelled > MAX_ISSUE_BYTES
            || self
                .issues
                .as_ref()
                .is_none_or(|issues| issues.len() >= MAX_ISSUES)
        {
            return;
        }
        let dot = if self.path.is_empty() { "" } else { "." };
        let issue = format!("duplicate field \"{}{dot}{key}\"", self.path);
        self.spelled += issue.len();
        if let Some(issues) = self
            .issues
            .as_mut()
            .filter(|issues| !issues.contains(&issue))
        {
            issues.push(issue);
        }
    }
}
