//! YAML to trees. The first document counts; aliases are expanded within bounds.

use crate::meta::go::base64;
use std::collections::{HashMap, HashSet};

use super::json_subset;
use super::parser::{Graph, Node};
use super::resolve::{Scalar, resolve};
use super::scanner::Scanner;
use crate::codec::{DecodeError, MAX_ISSUES, MAX_TREE_DEPTH, json};
use crate::meta::go;
use crate::meta::{Map, Value};

/// The number of bytes that upstream's reader takes at a time. What is wrong in one of these pieces
/// is found before the scanner sees it.
const PIECE_BYTES: usize = 512;
/// The maximum number of bytes of text that aliases of one document may repeat. No object that long
/// could be stored.
pub(super) const MAX_REPEATED_BYTES: usize = 32 * 1024 * 1024;

/// Reads the first document as upstream's `YAMLToJSON` does: maps are sorted by key, keys are
/// strings.
///
/// Beside the tree comes what upstream's strict reading objects to: keys that are set twice, all in
/// one text that begins with `yaml: unmarshal errors:`. The last of them counts.
///
/// # Errors
/// The text of the YAML library, such as `yaml: line 3: did not find expected ',' or '}'`. It is
/// the caller that says what the text was to become (`error converting YAML to JSON: `).
pub fn to_value(bytes: &[u8]) -> Result<(Value, Vec<String>), DecodeError> {
    let (text, broken) = readable(bytes);
    match json_subset::to_value(text).filter(|_| broken.is_none()) {
        Some(value) => Ok((value, Vec::new())),
        None => read(text, broken),
    }
}

/// [`to_value`] of scanned text; `broken` holds the error of the bytes behind it.
pub(super) fn read(
    text: &str,
    broken: Option<&'static str>,
) -> Result<(Value, Vec<String>), DecodeError> {
    let graph = Graph::read(Scanner::new(
        text.strip_prefix('\u{feff}').unwrap_or(text),
        broken,
    ))?;
    let Some(root) = graph.root else {
        return Ok((Value::Null, Vec::new()));
    };
    let mut builder = Builder {
        graph: &graph,
        decoded: 0,
        aliased: 0,
        repeated: 0,
        expanding: 0,
        busy: HashSet::new(),
        unfit: None,
        duplicates: Vec::new(),
    };
    let value = builder.value(root, 0)?;
    if let Some(why) = builder.unfit {
        return Err(DecodeError(why));
    }
    let issues = match builder.duplicates.as_slice() {
        [] => Vec::new(),
        lines => vec![format!("yaml: unmarshal errors:\n  {}", lines.join("\n  "))],
    };
    Ok((value, issues))
}

/// The text as far as it can be read, and what is wrong behind it.
fn readable(bytes: &[u8]) -> (&str, Option<&'static str>) {
    let (valid, mut broken) = match str::from_utf8(bytes) {
        Ok(text) => (text, None),
        Err(error) => {
            let (valid, rest) = bytes.split_at(error.valid_up_to());
            (
                str::from_utf8(valid).unwrap_or_default(),
                Some(encoding_error(rest)),
            )
        }
    };
    let mut end = valid.len();
    if let Some(at) = valid.find(is_control) {
        (end, broken) = (at, Some("control characters are not allowed"));
    }
    if broken.is_some() {
        end -= end % PIECE_BYTES;
        while !valid.is_char_boundary(end) {
            end -= 1;
        }
    }
    (valid.get(..end).unwrap_or_default(), broken)
}

/// Returns the error of upstream's reader for bytes that do not begin with a character.
fn encoding_error(bytes: &[u8]) -> &'static str {
    let length = match bytes.first() {
        Some(0xc0..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf7) => 4,
        _ => return "invalid leading UTF-8 octet",
    };
    let trailing = bytes.iter().skip(1).take(length - 1);
    if bytes.len() < length {
        "incomplete UTF-8 octet sequence"
    } else if !trailing.clone().all(|byte| byte & 0xc0 == 0x80) {
        "invalid trailing UTF-8 octet"
    } else {
        match (length, bytes.get(1)) {
            (2, _) | (3, Some(0x80..=0x9f)) | (4, Some(0x80..=0x8f))
                if matches!(bytes.first(), Some(0xc0 | 0xc1 | 0xe0 | 0xf0)) =>
            {
                "invalid length of a UTF-8 sequence"
            }
            _ => "invalid Unicode character",
        }
    }
}

fn is_control(c: char) -> bool {
    !matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..)
}

struct Builder<'g> {
    graph: &'g Graph,
    /// Nodes so far, and how many of them in aliases.
    decoded: usize,
    aliased: usize,
    /// The bytes of text in aliases so far.
    repeated: usize,
    /// The number of aliases around the current node.
    expanding: usize,
    /// Those aliases.
    busy: HashSet<usize>,
    /// The reason why the document has no JSON, reported once it is known to be YAML.
    unfit: Option<String>,
    duplicates: Vec<String>,
}

/// A key as the document has it: `1` and `"1"` differ.
#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    text: String,
    is_string: bool,
}

impl Builder<'_> {
    fn value(&mut self, index: usize, depth: usize) -> Result<Value, DecodeError> {
        self.count()?;
        if depth > MAX_TREE_DEPTH {
            return Err(DecodeError::new("exceeded max depth"));
        }
        let graph = self.graph;
        match &graph.nodes[index].0 {
            Node::Scalar { text, plain, tag } => {
                self.count_text(text)?;
                let value = scalar(text, *plain, tag.as_deref())?;
                if let Scalar::Float(float) = value
                    && !float.is_finite()
                {
                    self.unfit.get_or_insert_with(|| {
                        format!("json: unsupported value: {}", go_special(float))
                    });
                }
                Ok(into_json(value, text))
            }
            Node::List(items) => items
                .iter()
                .map(|&item| self.value(item, depth + 1))
                .collect(),
            Node::Map(_) => {
                let mut entries = HashMap::new();
                self.entries(index, &mut entries, depth)?;
                let mut sorted: Vec<(Key, Value)> = entries.into_iter().collect();
                // Of a number and a string that look alike Go keeps either; here it is the string.
                sorted.sort_by(|(one, _), (other, _)| one.cmp(other));
                Ok(Value::Object(
                    sorted
                        .into_iter()
                        .map(|(key, value)| (key.text, value))
                        .collect::<Map>(),
                ))
            }
            Node::Alias(target, name) => {
                self.aliased(index, name, |builder| builder.value(*target, depth))
            }
        }
    }

    /// Expands an alias.
    fn aliased<T>(
        &mut self,
        alias: usize,
        name: &str,
        expand: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        if !self.busy.insert(alias) {
            return Err(DecodeError(format!(
                "yaml: anchor '{name}' value contains itself"
            )));
        }
        self.expanding += 1;
        let out = expand(self);
        self.expanding -= 1;
        self.busy.remove(&alias);
        out
    }

    /// Counts a node and refuses documents that aliases blow up (yaml.v2 `allowedAliasRatio`).
    fn count(&mut self) -> Result<(), DecodeError> {
        const LOW: f64 = 400_000.0;
        const HIGH: f64 = 4_000_000.0;
        self.decoded += 1;
        self.aliased += usize::from(self.expanding > 0);
        let decoded = self.decoded as f64;
        let allowed = if decoded <= LOW {
            0.99
        } else {
            (0.99 - 0.89 * (decoded - LOW) / (HIGH - LOW)).max(0.1)
        };
        if self.aliased > 100 && self.decoded > 1000 && self.aliased as f64 / decoded > allowed {
            return Err(excessive_aliasing());
        }
        Ok(())
    }

    /// Counts the text of a scalar or key. The ratio of yaml.v2 counts nodes only, of which each
    /// may repeat a long text.
    fn count_text(&mut self, text: &str) -> Result<(), DecodeError> {
        if self.expanding > 0 {
            self.repeated += text.len();
        }
        if self.repeated > MAX_REPEATED_BYTES {
            Err(excessive_aliasing())
        } else {
            Ok(())
        }
    }

    /// The entries of a map, with those that `<<` merges into it; the last value of a key counts.
    fn entries(
        &mut self,
        index: usize,
        out: &mut HashMap<Key, Value>,
        depth: usize,
    ) -> Result<(), DecodeError> {
        let graph = self.graph;
        let Node::Map(entries) = &graph.nodes[index].0 else {
            return Err(merge_error());
        };
        for &(key, value) in entries {
            if is_merge(&graph.nodes[key].0) {
                self.merge(value, out, depth)?;
                continue;
            }
            let key = self.key(key, depth)?;
            let item = self.value(value, depth + 1)?;
            let key = match key {
                Ok(key) => key,
                Err(what) => {
                    let shown = || {
                        if item.is_null() {
                            "<nil>".to_owned()
                        } else {
                            go_value(&item)
                        }
                    };
                    self.unfit.get_or_insert_with(|| {
                        format!("unsupported map key of type: {what}, value: {}", shown())
                    });
                    continue;
                }
            };
            let again = self.duplicates.len() < MAX_ISSUES && out.contains_key(&key);
            let shown = again.then(|| {
                if key.is_string {
                    go::quote(&key.text)
                } else {
                    key.text.clone()
                }
            });
            out.insert(key, item);
            if let Some(shown) = shown {
                self.duplicates.push(format!(
                    "line {}: key {shown} already set in map",
                    graph.nodes[value].1 + 1
                ));
            }
        }
        Ok(())
    }

    fn merge(
        &mut self,
        value: usize,
        out: &mut HashMap<Key, Value>,
        depth: usize,
    ) -> Result<(), DecodeError> {
        let graph = self.graph;
        match &graph.nodes[value].0 {
            // Of a list of maps the first takes precedence.
            Node::List(items) => items
                .iter()
                .rev()
                .try_for_each(|&item| self.merge_map(item, out, depth)),
            _ => self.merge_map(value, out, depth),
        }
    }

    fn merge_map(
        &mut self,
        index: usize,
        out: &mut HashMap<Key, Value>,
        depth: usize,
    ) -> Result<(), DecodeError> {
        self.count()?;
        if depth > MAX_TREE_DEPTH {
            return Err(DecodeError::new("exceeded max depth"));
        }
        let graph = self.graph;
        match &graph.nodes[index].0 {
            Node::Map(_) => self.entries(index, out, depth + 1),
            Node::Alias(target, name) => self.aliased(index, name, |builder| {
                builder.count()?;
                builder.entries(*target, out, depth + 1)
            }),
            _ => Err(merge_error()),
        }
    }

    /// A key as the string that JSON has for it; what it is where there is none.
    fn key(&mut self, index: usize, depth: usize) -> Result<Result<Key, String>, DecodeError> {
        let graph = self.graph;
        let (text, plain, tag) = match &graph.nodes[index].0 {
            Node::Scalar { text, plain, tag } => (text, *plain, tag.as_deref()),
            Node::Alias(target, name) => {
                self.count()?;
                return self.aliased(index, name, |builder| builder.key(*target, depth));
            }
            _ => {
                let key = self.value(index, depth + 1)?;
                return Err(DecodeError(format!(
                    "yaml: invalid map key: {}",
                    go_value(&key)
                )));
            }
        };
        self.count()?;
        self.count_text(text)?;
        let plain_key = |text: String| {
            Ok(Key {
                text,
                is_string: false,
            })
        };
        Ok(match scalar(text, plain, tag)? {
            Scalar::Null => Err("%!s(<nil>), key: <nil>".to_owned()),
            Scalar::Bool(value) => plain_key(value.to_string()),
            Scalar::Int(value) => plain_key(value.to_string()),
            Scalar::Uint(value) => Err(format!("uint64, key: {value:#x}")),
            Scalar::Float(value) => plain_key(float_key(value)),
            found => Ok(Key {
                text: into_json(found, text).as_str().unwrap_or(text).to_owned(),
                is_string: true,
            }),
        })
    }
}

fn is_merge(key: &Node) -> bool {
    matches!(key, Node::Scalar { text, plain, tag } if text == "<<" && match tag.as_deref() {
        None => *plain,
        Some(tag) => tag == "!" || tag == "tag:yaml.org,2002:merge",
    })
}

fn excessive_aliasing() -> DecodeError {
    DecodeError::new("yaml: document contains excessive aliasing")
}

fn merge_error() -> DecodeError {
    DecodeError::new("yaml: map merge requires map or sequence of maps as the value")
}

/// A float as a key of JSON: Go's shortest form of the 32-bit float.
fn float_key(value: f64) -> String {
    if !value.is_finite() {
        return go_special(value)
            .to_lowercase()
            .replace('+', "")
            .replace("inf", ".inf")
            .replace("nan", ".nan");
    }
    let text = format!("{:e}", value as f32);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    match exponent.parse::<i32>().unwrap_or_default() {
        -4..=5 => (value as f32).to_string(),
        exponent => format!(
            "{mantissa}e{}{:02}",
            if exponent < 0 { '-' } else { '+' },
            exponent.abs()
        ),
    }
}

/// A value in the syntax of Go, as an error shows it.
fn go_value(value: &Value) -> String {
    let mut out = String::new();
    write_go_value(value, &mut out);
    out
}

fn write_go_value(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("interface {}(nil)"),
        Value::String(text) => out.push_str(&go::quote(text)),
        Value::Array(items) => {
            out.push_str("[]interface {}{");
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                write_go_value(item, out);
            }
            out.push('}');
        }
        Value::Object(map) => {
            out.push_str("map[interface {}]interface {}{");
            for (index, (key, value)) in map.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                out.push_str(&go::quote(key));
                out.push(':');
                write_go_value(value, out);
            }
            out.push('}');
        }
        other => out.push_str(&json::text_of(other)),
    }
}

/// Resolves a scalar by its tag, its style or its text.
fn scalar(text: &str, plain: bool, tag: Option<&str>) -> Result<Scalar, DecodeError> {
    const CORE: &str = "tag:yaml.org,2002:";
    let Some(tag) = tag else {
        return Ok(if plain { resolve(text) } else { Scalar::String });
    };
    let wanted = tag.strip_prefix(CORE).unwrap_or("");
    let found = match wanted {
        "binary" => Scalar::Binary,
        "null" | "bool" | "int" | "float" | "timestamp" => resolve(text),
        _ => Scalar::String,
    };
    let kind = match found {
        Scalar::Null => "null",
        Scalar::Bool(_) => "bool",
        Scalar::Int(_) | Scalar::Uint(_) => "int",
        Scalar::Float(_) => "float",
        Scalar::Timestamp if matches!(wanted, "timestamp") => "timestamp",
        _ => "str",
    };
    match (wanted, found) {
        ("float", Scalar::Int(value)) => Ok(Scalar::Float(value as f64)),
        ("null" | "bool" | "int" | "float" | "timestamp", _) if wanted != kind => Err(DecodeError(
            format!("yaml: cannot decode !!{kind} `{text}` as a !!{wanted}"),
        )),
        ("binary", _) if base64::normalise(text).is_err() => Err(DecodeError::new(
            "yaml: !!binary value contains invalid base64 data",
        )),
        (_, found) => Ok(found),
    }
}

/// Returns the JSON of a scalar. Integral floats become integers on the way.
fn into_json(scalar: Scalar, text: &str) -> Value {
    match scalar {
        Scalar::Null => Value::Null,
        Scalar::Bool(value) => Value::Bool(value),
        Scalar::Int(value) => value.into(),
        Scalar::Uint(value) => value.into(),
        Scalar::Float(value) if value.fract() == 0.0 && value.abs() < 9e18 => {
            Value::from(value as i64)
        }
        Scalar::Float(value) => Value::from(value),
        Scalar::Binary => {
            let bytes = base64::normalise(text)
                .map(|text| base64::decode(&text))
                .unwrap_or_default();
            Value::String(String::from_utf8_lossy(&bytes).into_owned())
        }
        Scalar::String | Scalar::Timestamp | Scalar::Merge => Value::String(text.to_owned()),
    }
}

fn go_special(value: f64) -> &'static str {
    match (value.is_nan(), value > 0.0) {
        (true, _) => "NaN",
        (_, true) => "+Inf",
        _ => "-Inf",
    }
}
