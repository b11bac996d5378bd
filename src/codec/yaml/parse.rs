//! YAML to trees. The first document counts; aliases are expanded within bounds.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError};

use super::plain;
use super::resolve::{Scalar, resolve};
use crate::codec::{DecodeError, MAX_ISSUES, MAX_TREE_DEPTH, base64, json};
use crate::meta::field::go_quote;
use crate::meta::{Map, Value};

/// What upstream's library says of a document that is nested too deep, whatever is too deep here.
const TOO_DEEP: &str = "yaml: exceeded max depth of 10000";

/// The most nodes that a document may have once its aliases are expanded.
pub const MAX_NODES: usize = 1_000_000;

/// Reads the first document as upstream's `YAMLToJSON` does: maps are sorted by key, keys are strings.
///
/// Beside the tree comes what upstream's strict reading objects to: keys that are set twice, all in one text that begins
/// with `yaml: unmarshal errors:`. The last of them counts.
///
/// # Errors
/// The text of the YAML library, such as `yaml: line 3: did not find expected ',' or '}'`. It is the caller that says
/// what the text was to become (`error converting YAML to JSON: `).
pub fn to_value(bytes: &[u8]) -> Result<(Value, Vec<String>), DecodeError> {
    let text = str::from_utf8(bytes).map_err(|_| DecodeError::new("yaml: invalid leading UTF-8 octet"))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.chars().any(is_control) {
        return Err(DecodeError::new("yaml: control characters are not allowed"));
    }
    match plain::to_value(text) {
        Some(value) => Ok((value, Vec::new())),
        None => read(text),
    }
}

/// [`to_value`] of text that was looked at, whatever it is.
pub(super) fn read(text: &str) -> Result<(Value, Vec<String>), DecodeError> {
    let graph = Graph::read(text)?;
    let Some(root) = graph.root else { return Ok((Value::Null, Vec::new())) };
    let mut builder = Builder { graph: &graph, decoded: 0, aliased: 0, open: Vec::new(), duplicates: Vec::new() };
    let value = builder.value(root, 0)?;
    let issues = match builder.duplicates.as_slice() {
        [] => Vec::new(),
        lines => vec![format!("yaml: unmarshal errors:\n  {}", lines.join("\n  "))],
    };
    Ok((value, issues))
}

fn is_control(c: char) -> bool {
    !matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..)
}

/// A node of the document. Aliases share theirs.
enum Node {
    Scalar { text: String, plain: bool, tag: Option<String> },
    List(Vec<usize>),
    Map(Vec<(usize, usize)>),
    Alias(usize),
}

struct Graph {
    /// With their lines, counted from 1.
    nodes: Vec<(Node, usize)>,
    root: Option<usize>,
}

/// A container that is being read, with a key that waits for its value.
struct Open {
    node: usize,
    key: Option<usize>,
}

impl Graph {
    fn read(text: &str) -> Result<Self, DecodeError> {
        let mut graph = Self { nodes: Vec::new(), root: None };
        let mut anchors = HashMap::new();
        let mut open: Vec<Open> = Vec::new();
        let mut parser = Parser::new_from_str(text);
        while let Some(event) = parser.next_event() {
            let (event, span) = event.map_err(|error| describe(&error, text))?;
            let tag_text = |tag: Option<std::borrow::Cow<'_, saphyr_parser::Tag>>| tag.map(|tag| format!("{}{}", tag.handle, tag.suffix));
            let (node, anchor) = match event {
                Event::DocumentEnd | Event::StreamEnd => break,
                Event::SequenceEnd | Event::MappingEnd => {
                    open.pop();
                    continue;
                }
                Event::Scalar(text, style, anchor, tag) => {
                    (Node::Scalar { text: text.into_owned(), plain: style == ScalarStyle::Plain, tag: tag_text(tag) }, anchor)
                }
                Event::SequenceStart(anchor, _) => (Node::List(Vec::new()), anchor),
                Event::MappingStart(anchor, _) => (Node::Map(Vec::new()), anchor),
                Event::Alias(anchor) => match anchors.get(&anchor) {
                    Some(&target) => (Node::Alias(target), 0),
                    None => return Err(DecodeError::new("yaml: unknown anchor referenced")),
                },
                _ => continue,
            };
            let is_container = matches!(node, Node::List(_) | Node::Map(_));
            let index = graph.nodes.len();
            graph.nodes.push((node, span.start.line()));
            if anchor > 0 {
                anchors.insert(anchor, index);
            }
            graph.attach(index, open.last_mut());
            if is_container {
                if open.len() >= MAX_TREE_DEPTH {
                    return Err(DecodeError::new(TOO_DEEP));
                }
                open.push(Open { node: index, key: None });
            }
        }
        Ok(graph)
    }

    /// Puts a node into the container at hand.
    fn attach(&mut self, index: usize, parent: Option<&mut Open>) {
        let Some(parent) = parent else {
            self.root.get_or_insert(index);
            return;
        };
        match &mut self.nodes[parent.node].0 {
            Node::List(items) => items.push(index),
            Node::Map(entries) => match parent.key.take() {
                Some(key) => entries.push((key, index)),
                None => parent.key = Some(index),
            },
            Node::Scalar { .. } | Node::Alias(_) => {}
        }
    }
}

/// The text that upstream's library has for an error of ours. It counts lines from 0 where its parser finds the error,
/// and has the end of a document without a newline on a line of its own.
fn describe(error: &ScanError, text: &str) -> DecodeError {
    let info = error.info();
    let message = info.rsplit_once("parsing a ").map_or(info, |(_, tail)| tail.split_once(", ").map_or(tail, |(_, what)| what));
    let mark = error.marker();
    if info.contains("unknown anchor") {
        let name: String = rest_of(text, mark).chars().skip(1).take_while(|c| c.is_alphanumeric() || "-_".contains(*c)).collect();
        return DecodeError(format!("yaml: unknown anchor '{name}' referenced"));
    }
    let at_parser = info.contains("did not find expected") && !info.contains("scanning") || info.contains("expected ',' or ']'");
    let message = match message {
        "expected ',' or ']'" => "did not find expected ',' or ']'",
        "recursion limit exceeded" => return DecodeError::new(TOO_DEEP),
        info if info.contains("tab") => "found a tab character that violates indentation",
        info if info.contains("unexpected character") => "found character that cannot start any token",
        "simple key expected" | "simple key expect ':'" => "could not find expected ':'",
        info => info.rsplit_once("scanning a ").and_then(|(_, tail)| tail.split_once(", ")).map_or(info, |(_, what)| what),
    };
    let at_end = rest_of(text, mark).is_empty() && mark.col() > 0;
    // The scalar that the tab ends may begin lines before it.
    let tab = |line: &str| line.trim_start_matches(' ').starts_with('\t');
    let below = if message.contains("a tab") { text.lines().skip(mark.line().saturating_sub(1)).position(tab).unwrap_or(0) } else { 0 };
    let line = below + if at_parser && !at_end { mark.line().saturating_sub(1) } else { mark.line() };
    // What is wrong on the first line has no number there.
    let line = if line == 1 && !at_parser { 0 } else { line };
    DecodeError(if line == 0 { format!("yaml: {message}") } else { format!("yaml: line {line}: {message}") })
}

fn rest_of<'a>(text: &'a str, mark: &Marker) -> &'a str {
    text.char_indices().nth(mark.index()).map_or("", |(at, _)| &text[at..])
}

struct Builder<'g> {
    graph: &'g Graph,
    /// Nodes so far, and how many of them in aliases.
    decoded: usize,
    aliased: usize,
    /// The targets of the aliases that are being expanded.
    open: Vec<usize>,
    duplicates: Vec<String>,
}

/// A key as the document has it: `1` and `"1"` differ.
#[derive(PartialEq, Eq, Hash, Clone)]
struct Key {
    text: String,
    is_string: bool,
}

impl Builder<'_> {
    fn value(&mut self, index: usize, depth: usize) -> Result<Value, DecodeError> {
        self.count()?;
        if depth > MAX_TREE_DEPTH {
            return Err(DecodeError::new(TOO_DEEP));
        }
        match &self.graph.nodes[index].0 {
            Node::Scalar { text, plain, tag } => scalar(text, *plain, tag.as_deref()),
            Node::List(items) => {
                let mut out = Vec::with_capacity(items.len());
                for &item in items {
                    out.push(self.value(item, depth + 1)?);
                }
                Ok(Value::Array(out))
            }
            Node::Map(_) => {
                let mut entries = HashMap::new();
                self.entries(index, &mut entries, depth)?;
                let mut sorted: Vec<(String, Value)> = entries.into_iter().map(|(key, value)| (key.text, value)).collect();
                sorted.sort_by(|(one, _), (other, _)| one.cmp(other));
                Ok(Value::Object(sorted.into_iter().collect::<Map>()))
            }
            &Node::Alias(target) => self.aliased(target, |builder| builder.value(target, depth + 1)),
        }
    }

    /// Expands an alias.
    fn aliased<T>(&mut self, target: usize, expand: impl FnOnce(&mut Self) -> Result<T, DecodeError>) -> Result<T, DecodeError> {
        if self.open.contains(&target) || self.open.len() > MAX_TREE_DEPTH {
            return Err(DecodeError::new("yaml: anchor value contains itself"));
        }
        self.open.push(target);
        let out = expand(self);
        self.open.pop();
        out
    }

    /// Counts a node and refuses documents that aliases blow up (yaml.v2 `allowedAliasRatio`).
    fn count(&mut self) -> Result<(), DecodeError> {
        const LOW: f64 = 400_000.0;
        const HIGH: f64 = 4_000_000.0;
        self.decoded += 1;
        self.aliased += usize::from(!self.open.is_empty());
        let decoded = self.decoded as f64;
        let allowed = if decoded <= LOW { 0.99 } else { (0.99 - 0.89 * (decoded - LOW) / (HIGH - LOW)).max(0.1) };
        if self.decoded > MAX_NODES || (self.aliased > 100 && self.decoded > 1000 && self.aliased as f64 / decoded > allowed) {
            return Err(DecodeError::new("yaml: document contains excessive aliasing"));
        }
        Ok(())
    }

    /// The entries of a map, with those that `<<` merges into it; whatever comes last counts.
    fn entries(&mut self, index: usize, out: &mut HashMap<Key, Value>, depth: usize) -> Result<(), DecodeError> {
        let graph = self.graph;
        match &graph.nodes[index].0 {
            &Node::Alias(target) => return self.aliased(target, |builder| builder.entries(target, out, depth)),
            Node::Map(entries) => {
                for &(key, value) in entries {
                    if matches!(&graph.nodes[key].0, Node::Scalar { text, plain: true, tag: None } if text == "<<") {
                        self.merge(value, out, depth)?;
                        continue;
                    }
                    let key = self.key(key)?;
                    let item = self.value(value, depth + 1)?;
                    if out.insert(key.clone(), item).is_some() && self.duplicates.len() < MAX_ISSUES {
                        let shown = if key.is_string { go_quote(&key.text) } else { key.text };
                        self.duplicates.push(format!("line {}: key {shown} already set in map", graph.nodes[value].1));
                    }
                }
            }
            _ => return Err(merge_error()),
        }
        Ok(())
    }

    fn merge(&mut self, value: usize, out: &mut HashMap<Key, Value>, depth: usize) -> Result<(), DecodeError> {
        if depth > MAX_TREE_DEPTH {
            return Err(DecodeError::new(TOO_DEEP));
        }
        self.count()?;
        let graph = self.graph;
        match &graph.nodes[value].0 {
            // Of a list of maps the first takes precedence.
            Node::List(items) => items.iter().rev().try_for_each(|&item| match graph.nodes[item].0 {
                Node::List(_) => Err(merge_error()),
                _ => self.entries(item, out, depth + 1),
            }),
            _ => self.entries(value, out, depth + 1),
        }
    }

    /// A key as the string that JSON has for it.
    fn key(&mut self, index: usize) -> Result<Key, DecodeError> {
        let index = match self.graph.nodes[index].0 {
            Node::Alias(target) => target,
            _ => index,
        };
        let Node::Scalar { text, plain, tag } = &self.graph.nodes[index].0 else {
            return Err(DecodeError::new("yaml: invalid map key"));
        };
        match scalar(text, *plain, tag.as_deref())? {
            Value::String(text) => Ok(Key { text, is_string: true }),
            Value::Null => Err(DecodeError::new("unsupported map key of type: invalid, key: <nil>")),
            other => {
                let mut text = Vec::new();
                json::encode_value(&other, &mut text);
                Ok(Key { text: String::from_utf8_lossy(&text).into_owned(), is_string: false })
            }
        }
    }
}

fn merge_error() -> DecodeError {
    DecodeError::new("yaml: map merge requires map or sequence of maps as the value")
}

fn scalar(text: &str, plain: bool, tag: Option<&str>) -> Result<Value, DecodeError> {
    const CORE: &str = "tag:yaml.org,2002:";
    let resolved = match tag.map(|tag| tag.strip_prefix(CORE).unwrap_or("")) {
        None if !plain => Scalar::String,
        None => resolve(text),
        Some("binary") => {
            let bytes = base64::normalise(text).map(|text| base64::decode(&text));
            let bytes = bytes.map_err(|_| DecodeError::new("yaml: !!binary value contains invalid base64 data"))?;
            return Ok(Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        }
        Some(wanted @ ("null" | "bool" | "int" | "float")) => match (wanted, resolve(text)) {
            ("float", Scalar::Int(value)) => Scalar::Float(value as f64),
            (_, found) => found,
        },
        Some(_) => Scalar::String,
    };
    Ok(match resolved {
        Scalar::Null => Value::Null,
        Scalar::Bool(value) => Value::Bool(value),
        Scalar::Int(value) => value.into(),
        Scalar::Uint(value) => value.into(),
        // Through JSON an integral float becomes an integer.
        Scalar::Float(value) if value.fract() == 0.0 && value.abs() < 9e18 => Value::from(value as i64),
        Scalar::Float(value) => match serde_json::Number::from_f64(value) {
            Some(number) => Value::Number(number),
            None => return Err(DecodeError(format!("json: unsupported value: {}", go_special(value)))),
        },
        Scalar::String | Scalar::Timestamp | Scalar::Merge => Value::String(text.to_owned()),
    })
}

fn go_special(value: f64) -> &'static str {
    match (value.is_nan(), value > 0.0) {
        (true, _) => "NaN",
        (_, true) => "+Inf",
        _ => "-Inf",
    }
}
