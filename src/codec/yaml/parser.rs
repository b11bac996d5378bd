//! YAML tokens to the nodes of the first document. The parser keeps an explicit stack: documents
//! may be deep.

use std::collections::HashMap;

use super::decode::MAX_REPEATED_BYTES;
use super::scanner::{Lexeme, Scanner, Token};
use crate::codec::DecodeError;

/// A node of the document. Aliases share theirs.
pub(super) enum Node {
    /// `plain`: neither quoted nor in a block. The tag is in full.
    Scalar {
        text: String,
        plain: bool,
        tag: Option<String>,
    },
    List(Vec<usize>),
    Map(Vec<(usize, usize)>),
    /// The node that an anchor is at, and its name.
    Alias(usize, String),
}

/// The first document of a text.
pub(super) struct Graph {
    /// With their lines, counted from 0.
    pub nodes: Vec<(Node, usize)>,
    /// The node of the document; none where there is no document.
    pub root: Option<usize>,
}

/// The production that is expected next.
#[derive(Clone, Copy, PartialEq)]
enum State {
    DocumentEnd,
    /// An item of a block sequence, or its end.
    BlockItem,
    /// An item of a sequence that is not indented further than the map around it.
    LooseItem,
    BlockKey,
    BlockValue,
    FlowItem {
        first: bool,
    },
    /// The key, value and end of a map with one entry, written as an item of a flow sequence.
    PairKey,
    PairValue,
    PairEnd,
    FlowKey {
        first: bool,
    },
    FlowValue {
        absent: bool,
    },
}

/// A container that is being read, with a key that waits for its value.
struct Open {
    node: usize,
    key: Option<usize>,
}

struct Parser<'t> {
    scanner: Scanner<'t>,
    /// The states to return to.
    states: Vec<State>,
    /// Handles of tags and what they stand for.
    handles: HashMap<String, String>,
    /// The bytes of the tags in full so far.
    tagged: usize,
    anchors: HashMap<String, usize>,
    open: Vec<Open>,
    graph: Graph,
}

type Parsed<T> = Result<T, DecodeError>;

/// The error that the parser finds at a token. Upstream counts lines from 0 here, and does not
/// number the first.
fn fail<T>(line: usize, problem: &str) -> Parsed<T> {
    Err(DecodeError(if line == 0 {
        format!("yaml: {problem}")
    } else {
        format!("yaml: line {line}: {problem}")
    }))
}

impl Graph {
    /// Reads the first document.
    pub fn read(scanner: Scanner<'_>) -> Parsed<Self> {
        let graph = Self {
            nodes: Vec::new(),
            root: None,
        };
        let (handles, anchors) = (HashMap::new(), HashMap::new());
        let mut parser = Parser {
            scanner,
            states: Vec::new(),
            handles,
            tagged: 0,
            anchors,
            open: Vec::new(),
            graph,
        };
        parser.document()?;
        Ok(parser.graph)
    }
}

impl Parser<'_> {
    fn document(&mut self) -> Parsed<()> {
        let explicit = match self.scanner.peek()?.token {
            Token::StreamEnd => return Ok(()),
            Token::Version(..) | Token::TagDirective(..) | Token::DocumentStart => true,
            _ => false,
        };
        self.directives()?;
        self.states.push(State::DocumentEnd);
        if explicit {
            let Lexeme { token, line } = self.scanner.peek()?;
            if *token != Token::DocumentStart {
                return fail(*line, "did not find expected <document start>");
            }
            self.scanner.take()?;
            let Lexeme { token, line } = self.scanner.peek()?;
            let line = *line;
            if matches!(
                token,
                Token::Version(..)
                    | Token::TagDirective(..)
                    | Token::DocumentStart
                    | Token::DocumentEnd
                    | Token::StreamEnd
            ) {
                self.empty(line);
            } else {
                self.node(true, false)?;
            }
        } else {
            self.node(true, false)?;
        }
        while let Some(state) = self.states.pop() {
            match state {
                // What comes after the document is not looked at, but for the token that ends it.
                State::DocumentEnd => self.scanner.peek().map(drop)?,
                State::BlockItem => self.block_item()?,
                State::LooseItem => self.loose_item()?,
                State::BlockKey => self.block_key()?,
                State::BlockValue => self.block_value()?,
                State::FlowItem { first } => self.flow_item(first)?,
                State::PairKey => self.pair_key()?,
                State::PairValue => self.pair_value()?,
                State::PairEnd => self.close(),
                State::FlowKey { first } => self.flow_key(first)?,
                State::FlowValue { absent } => self.flow_value(absent)?,
            }
        }
        Ok(())
    }

    fn directives(&mut self) -> Parsed<()> {
        let mut versioned = false;
        while matches!(
            self.scanner.peek()?.token,
            Token::Version(..) | Token::TagDirective(..)
        ) {
            let Lexeme { token, line } = self.scanner.take()?;
            match token {
                Token::Version(..) if versioned => {
                    return fail(line, "found duplicate %YAML directive");
                }
                Token::Version(1, 1) => versioned = true,
                Token::TagDirective(handle, prefix) => {
                    if self.handles.contains_key(&handle) {
                        return fail(line, "found duplicate %TAG directive");
                    }
                    self.handles.insert(handle, prefix);
                }
                _ => return fail(line, "found incompatible YAML document"),
            }
        }
        for (handle, prefix) in [("!", "!"), ("!!", "tag:yaml.org,2002:")] {
            self.handles
                .entry(handle.to_owned())
                .or_insert_with(|| prefix.to_owned());
        }
        Ok(())
    }

    /// A node with its tag and anchor. `loose`: it may be a sequence that is not indented.
    fn node(&mut self, block: bool, loose: bool) -> Parsed<()> {
        let (mut anchor, mut tag) = (None, None);
        let mut start = None;
        let line = loop {
            let Lexeme { token, line } = self.scanner.peek()?;
            let line = *line;
            match token {
                Token::Anchor(_) if anchor.is_none() => {}
                Token::Tag(..) if tag.is_none() => {}
                _ => break line,
            }
            start.get_or_insert(line);
            match self.scanner.take()?.token {
                Token::Anchor(name) => anchor = Some(name),
                Token::Tag(handle, suffix) => tag = Some((handle, suffix, line)),
                _ => {}
            }
        };
        let start = start.unwrap_or(line);
        let tag = tag
            .map(|(handle, suffix, line)| self.tag(&handle, suffix, line))
            .transpose()?;
        let bare = anchor.is_none() && tag.is_none();
        let (node, state) = match (&self.scanner.peek()?.token, block) {
            (Token::Alias(_), _) if bare => return self.alias(),
            (Token::BlockEntry, _) if loose => (Node::List(Vec::new()), State::LooseItem),
            (Token::Scalar { .. }, _) => {
                if let Token::Scalar { text, plain } = self.scanner.take()?.token {
                    self.attach(Node::Scalar { text, plain, tag }, start, anchor);
                }
                return Ok(());
            }
            (Token::FlowSequence, _) => (Node::List(Vec::new()), State::FlowItem { first: true }),
            (Token::FlowMapping, _) => (Node::Map(Vec::new()), State::FlowKey { first: true }),
            (Token::BlockSequence, true) => (Node::List(Vec::new()), State::BlockItem),
            (Token::BlockMapping, true) => (Node::Map(Vec::new()), State::BlockKey),
            _ if bare => return fail(line, "did not find expected node content"),
            _ => {
                self.attach(
                    Node::Scalar {
                        text: String::new(),
                        plain: true,
                        tag,
                    },
                    start,
                    anchor,
                );
                return Ok(());
            }
        };
        if state != State::LooseItem {
            self.scanner.take()?;
        }
        let node = self.attach(node, start, anchor);
        self.open.push(Open { node, key: None });
        self.states.push(state);
        Ok(())
    }

    /// A tag in full.
    fn tag(&mut self, handle: &str, suffix: String, line: usize) -> Parsed<String> {
        if handle.is_empty() {
            return Ok(suffix);
        }
        let Some(prefix) = self.handles.get(handle) else {
            return fail(line, "found undefined tag handle");
        };
        // Each use of a handle repeats what it stands for.
        self.tagged += prefix.len() + suffix.len();
        if self.tagged > MAX_REPEATED_BYTES {
            return fail(line, "document contains excessive tags");
        }
        Ok(format!("{prefix}{suffix}"))
    }

    fn alias(&mut self) -> Parsed<()> {
        let Lexeme {
            token: Token::Alias(name),
            line,
        } = self.scanner.take()?
        else {
            return Ok(());
        };
        let Some(&target) = self.anchors.get(&name) else {
            return Err(DecodeError(format!(
                "yaml: unknown anchor '{name}' referenced"
            )));
        };
        self.attach(Node::Alias(target, name), line, None);
        Ok(())
    }

    /// A scalar that is not there.
    fn empty(&mut self, line: usize) {
        self.attach(
            Node::Scalar {
                text: String::new(),
                plain: true,
                tag: None,
            },
            line,
            None,
        );
    }

    /// Puts a node into the current container.
    fn attach(&mut self, node: Node, line: usize, anchor: Option<String>) -> usize {
        let index = self.graph.nodes.len();
        self.graph.nodes.push((node, line));
        if let Some(name) = anchor {
            self.anchors.insert(name, index);
        }
        let Some(parent) = self.open.last_mut() else {
            self.graph.root.get_or_insert(index);
            return index;
        };
        match &mut self.graph.nodes[parent.node].0 {
            Node::List(items) => items.push(index),
            Node::Map(entries) => match parent.key.take() {
                Some(key) => entries.push((key, index)),
                None => parent.key = Some(index),
            },
            Node::Scalar { .. } | Node::Alias(..) => {}
        }
        index
    }

    fn close(&mut self) {
        self.open.pop();
    }

    /// Passes the current token and reads the node behind it, which is empty before one of those
    /// tokens. What is empty in a block is on the line of what was passed, in a flow on that of
    /// what follows.
    fn node_behind(&mut self, ends: fn(&Token) -> bool, block: bool, loose: bool) -> Parsed<()> {
        let passed = self.scanner.take()?.line;
        let Lexeme { token, line } = self.scanner.peek()?;
        let line = if block { passed } else { *line };
        if ends(token) {
            self.empty(line);
            return Ok(());
        }
        self.node(block, loose)
    }

    fn block_item(&mut self) -> Parsed<()> {
        let Lexeme { token, line } = self.scanner.peek()?;
        let line = *line;
        match token {
            Token::BlockEntry => {
                self.states.push(State::BlockItem);
                self.node_behind(
                    |token| matches!(token, Token::BlockEntry | Token::BlockEnd),
                    true,
                    false,
                )?;
            }
            Token::BlockEnd => {
                self.scanner.take()?;
                self.close();
            }
            _ => return fail(line, "did not find expected '-' indicator"),
        }
        Ok(())
    }

    fn loose_item(&mut self) -> Parsed<()> {
        if self.scanner.peek()?.token != Token::BlockEntry {
            self.close();
            return Ok(());
        }
        self.states.push(State::LooseItem);
        self.node_behind(
            |token| {
                matches!(
                    token,
                    Token::BlockEntry | Token::Key | Token::Value | Token::BlockEnd
                )
            },
            true,
            false,
        )
    }

    fn block_key(&mut self) -> Parsed<()> {
        let Lexeme { token, line } = self.scanner.peek()?;
        let line = *line;
        match token {
            Token::Key => {
                self.states.push(State::BlockValue);
                self.node_behind(
                    |token| matches!(token, Token::Key | Token::Value | Token::BlockEnd),
                    true,
                    true,
                )?;
            }
            Token::BlockEnd => {
                self.scanner.take()?;
                self.close();
            }
            _ => return fail(line, "did not find expected key"),
        }
        Ok(())
    }

    fn block_value(&mut self) -> Parsed<()> {
        self.states.push(State::BlockKey);
        let Lexeme { token, line } = self.scanner.peek()?;
        let line = *line;
        if *token != Token::Value {
            self.empty(line);
            return Ok(());
        }
        self.node_behind(
            |token| matches!(token, Token::Key | Token::Value | Token::BlockEnd),
            true,
            true,
        )
    }

    fn flow_item(&mut self, first: bool) -> Parsed<()> {
        let Lexeme { token, line } = self.scanner.peek()?;
        match (token, first) {
            (Token::FlowSequenceEnd, _) | (_, true) => {}
            (Token::FlowEntry, false) => self.scanner.take().map(drop)?,
            _ => return fail(*line, "did not find expected ',' or ']'"),
        }
        let Lexeme { token, line } = self.scanner.peek()?;
        let line = *line;
        match token {
            Token::FlowSequenceEnd => {
                self.scanner.take()?;
                self.close();
            }
            Token::Key => {
                self.scanner.take()?;
                let node = self.attach(Node::Map(Vec::new()), line, None);
                self.open.push(Open { node, key: None });
                self.states
                    .extend([State::FlowItem { first: false }, State::PairKey]);
            }
            _ => {
                self.states.push(State::FlowItem { first: false });
                self.node(false, false)?;
            }
        }
        Ok(())
    }

    fn pair_key(&mut self) -> Parsed<()> {
        self.states.push(State::PairValue);
        let Lexeme { token, line } = self.scanner.peek()?;
        let line = *line;
        if matches!(
            token,
            Token::Value | Token::FlowEntry | Token::FlowSequenceEnd
        ) {
            // Upstream passes over this token.
            self.scanner.take()?;
            self.empty(line);
            return Ok(());
        }
        self.node(false, false)
    }

    fn pair_value(&mut self) -> Parsed<()> {
        self.states.push(State::PairEnd);
        let Lexeme { token, line } = self.scanner.peek()?;
        let line = *line;
        if *token == Token::Value {
            return self.node_behind(
                |token| matches!(token, Token::FlowEntry | Token::FlowSequenceEnd),
                false,
                false,
            );
        }
        self.empty(line);
        Ok(())
    }

    fn flow_key(&mut self, first: bool) -> Parsed<()> {
        let Lexeme { token, line } = self.scanner.peek()?;
        match (token, first) {
            (Token::FlowMappingEnd, _) | (_, true) => {}
            (Token::FlowEntry, false) => self.scanner.take().map(drop)?,
            _ => return fail(*line, "did not find expected ',' or '}'"),
        }
        match self.scanner.peek()?.token {
            Token::FlowMappingEnd => {
                self.scanner.take()?;
                self.close();
            }
            Token::Key => {
                self.states.push(State::FlowValue { absent: false });
                self.node_behind(
                    |token| {
                        matches!(
                            token,
                            Token::Value | Token::FlowEntry | Token::FlowMappingEnd
                        )
                    },
                    false,
                    false,
                )?;
            }
            _ => {
                self.states.push(State::FlowValue { absent: true });
                self.node(false, false)?;
            }
        }
        Ok(())
    }

    fn flow_value(&mut self, absent: bool) -> Parsed<()> {
        self.states.push(State::FlowKey { first: false });
        let Lexeme { token, line } = self.scanner.peek()?;
        let line = *line;
        if !absent && *token == Token::Value {
            return self.node_behind(
                |token| matches!(token, Token::FlowEntry | Token::FlowMappingEnd),
                false,
                false,
            );
        }
        self.empty(line);
        Ok(())
    }
}
