//! Parses the text of an expression into its tree. Errors are told in the words of the generated
//! parser that cel-go uses (ANTLR), as far as its first decision goes: what it deletes and inserts
//! to go on is deleted and inserted here, too, and where it begins to skip tokens, this ends.

mod literal;
mod logic;
mod operators;

use super::ast::{Expr, ExprId, ExprKind, List, Literal, MapEntry, Select, Struct, StructField};
use super::lexer::{self, Kind, Token};
use super::macros::{self, Macro};
use super::source::{Issues, Location, Source};
use literal::unescape;

/// The deepest nesting of expressions, and how many selections or operators of one precedence may
/// follow each other (cel-go `parser.go`).
const MAX_DEPTH: usize = 250;
/// The longest expression in code points (cel-go `parser.go`).
const MAX_CODE_POINTS: usize = 100_000;

/// The tokens with which an expression may begin.
const FIRST: &[Kind] = &[
    Kind::LeftBracket,
    Kind::LeftBrace,
    Kind::LeftParen,
    Kind::Dot,
    Kind::Minus,
    Kind::Not,
    Kind::True,
    Kind::False,
    Kind::Null,
    Kind::Float,
    Kind::Int,
    Kind::Uint,
    Kind::String,
    Kind::Bytes,
    Kind::Identifier,
];

/// The tokens that may follow an operand whatever it is part of.
const OPERATORS: &[Kind] = &[
    Kind::Equals,
    Kind::NotEquals,
    Kind::In,
    Kind::Less,
    Kind::LessEquals,
    Kind::GreaterEquals,
    Kind::Greater,
    Kind::And,
    Kind::Or,
    Kind::LeftBracket,
    Kind::Dot,
    Kind::Minus,
    Kind::Question,
    Kind::Plus,
    Kind::Star,
    Kind::Slash,
    Kind::Percent,
];

/// Words that are no names of variables or functions (cel-go `parser.go`).
pub const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "package",
    "namespace",
    "null",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// A parsed expression: its tree, and where each node begins.
#[derive(Debug)]
pub struct Parsed {
    pub root: Expr,
    pub positions: Positions,
}

/// The offset of each node in code points, by the number of the node.
#[derive(Debug, Default)]
pub struct Positions(Vec<Option<u32>>);

impl Positions {
    /// Makes a number for a node at an offset.
    pub fn node(&mut self, offset: Option<u32>) -> ExprId {
        self.0.push(offset);
        // Nodes are no more than a few for each code point of a bounded text.
        ExprId::try_from(self.0.len()).unwrap_or(ExprId::MAX)
    }

    /// The number of nodes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn offset(&self, id: ExprId) -> Option<u32> {
        *self.0.get((id as usize).checked_sub(1)?)?
    }

    pub fn location(&self, id: ExprId, source: &Source) -> Location {
        self.offset(id)
            .map_or(Location::NONE, |offset| source.location(offset))
    }
}

/// Parses an expression with the macros of an environment. Errors are added to `issues`; the tree
/// is of use only if there are none.
pub fn parse(source: &Source, macros: &[Macro], issues: &mut Issues) -> Parsed {
    let mut positions = Positions::default();
    let size = source.chars().len();
    if size > MAX_CODE_POINTS {
        issues.add(
            Location::NONE,
            format!(
                "expression code point size exceeds limit: size: {size}, limit {MAX_CODE_POINTS}"
            ),
        );
        let root = Expr::new(positions.node(None), ExprKind::Unspecified);
        return Parsed { root, positions };
    }
    let tokens = lexer::tokens(source, issues);
    let mut parser = Parser {
        source,
        tokens,
        at: 0,
        macros,
        issues,
        positions,
        depth: 0,
        heights: Vec::new(),
        followers: vec![&[Kind::End]],
    };
    let root = match parser.start() {
        Ok(root) => root,
        Err(Stop) => parser.unspecified(None),
    };
    let positions = parser.positions;
    Parsed { root, positions }
}

/// The end of parsing: an error has been added.
pub struct Stop;

type Result<T> = std::result::Result<T, Stop>;

struct Parser<'a> {
    source: &'a Source,
    tokens: Vec<Token>,
    at: usize,
    macros: &'a [Macro],
    issues: &'a mut Issues,
    positions: Positions,
    /// The number of expressions around the one that is parsed.
    depth: usize,
    /// The number of operators and selections nested in a node, by its number.
    heights: Vec<usize>,
    /// The tokens that may end the expressions being parsed.
    followers: Vec<&'static [Kind]>,
}

impl Parser<'_> {
    fn peek(&self) -> Token {
        self.ahead(0)
    }

    fn ahead(&self, count: usize) -> Token {
        let last = self.tokens.len().saturating_sub(1);
        self.tokens[(self.at + count).min(last)]
    }

    fn is(&self, kind: Kind) -> bool {
        self.peek().kind == kind
    }

    fn next(&mut self) -> Token {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn take(&mut self, kind: Kind) -> Option<Token> {
        self.is(kind).then(|| self.next())
    }

    fn text(&self, token: Token) -> String {
        self.source.text(token.start, token.end)
    }

    fn syntax_error(&mut self, token: Token, message: &str) {
        // The empty text has no first column.
        let location = match self.source.location(token.start) {
            location if self.source.chars().is_empty() => Location {
                column: -1,
                ..location
            },
            location => location,
        };
        self.issues
            .add(location, format!("Syntax error: {message}"));
    }

    /// Reports that the next token is none of those expected.
    fn unexpected(&mut self, what: &str, expected: &str) {
        let token = self.peek();
        let shown = self.shown(token);
        self.syntax_error(
            token,
            &format!("{what} input '{shown}' expecting {expected}"),
        );
    }

    fn shown(&self, token: Token) -> String {
        match token.kind {
            Kind::End => "<EOF>".to_owned(),
            _ => self.text(token).replace('\n', "\\n").replace('\t', "\\t"),
        }
    }

    /// Takes a token of a kind. Where it is not there, a superfluous one before it is passed, or
    /// it is taken as if it were there.
    fn expect(&mut self, kind: Kind, after: &[Kind]) -> Result<Token> {
        let token = self.peek();
        if token.kind == kind {
            return Ok(self.next());
        }
        if self.ahead(1).kind == kind && token.kind != Kind::End {
            self.unexpected("extraneous", kind.name());
            self.at += 1;
            return Ok(self.next());
        }
        if after.contains(&token.kind) {
            let shown = self.shown(token);
            self.syntax_error(token, &format!("missing {} at '{shown}'", kind.name()));
            return Ok(token);
        }
        self.unexpected("mismatched", kind.name());
        Err(Stop)
    }

    /// Makes sure that the next token is one of some. One before it is passed.
    fn settle(&mut self, expected: &[Kind]) -> Result<()> {
        if expected.contains(&self.peek().kind) {
            return Ok(());
        }
        let shown = listed(expected);
        if expected.contains(&self.ahead(1).kind) && !self.is(Kind::End) {
            self.unexpected("extraneous", &shown);
            self.at += 1;
            return Ok(());
        }
        self.unexpected("mismatched", &shown);
        Err(Stop)
    }

    /// Expects what closes an operand: operators and the end of what is around it may follow.
    fn close(&mut self, kind: Kind) -> Result<Token> {
        let around = self.followers.last().copied().unwrap_or(&[]);
        self.expect(kind, &[OPERATORS, around].concat())
    }

    /// Parses what `inner` parses; after its expressions may follow what `ends` says.
    fn within<T>(
        &mut self,
        ends: &'static [Kind],
        inner: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        self.followers.push(ends);
        let done = inner(self);
        self.followers.pop();
        done
    }

    /// Makes a node with the greatest height of its parts, and one more if it counts itself.
    fn node(
        &mut self,
        token: Token,
        kind: ExprKind,
        parts: &[ExprId],
        counts: bool,
    ) -> Result<Expr> {
        let id = self.id(token);
        self.measured(Expr::new(id, kind), parts, counts)
    }

    fn measured(&mut self, expr: Expr, parts: &[ExprId], counts: bool) -> Result<Expr> {
        let height = |id: &ExprId| self.heights.get(*id as usize).copied().unwrap_or(0);
        let tallest = parts.iter().map(height).max().unwrap_or(0) + usize::from(counts);
        if tallest > MAX_DEPTH {
            self.issues
                .add(Location::NONE, "max recursion depth exceeded");
            return Err(Stop);
        }
        let index = expr.id as usize;
        if self.heights.len() <= index {
            self.heights.resize(index + 1, 0);
        }
        self.heights[index] = tallest;
        Ok(expr)
    }

    fn id(&mut self, token: Token) -> ExprId {
        self.positions.node(Some(token.start))
    }

    fn unspecified(&mut self, token: Option<Token>) -> Expr {
        let id = self.positions.node(token.map(|token| token.start));
        Expr::new(id, ExprKind::Unspecified)
    }

    /// Reports an error at a token; what is there is unspecified.
    fn error(&mut self, token: Token, message: impl Into<String>) -> Expr {
        let location = self.source.location(token.start);
        self.issues.add(location, message);
        self.unspecified(Some(token))
    }

    fn start(&mut self) -> Result<Expr> {
        let root = self.expr()?;
        self.expect(Kind::End, &[])?;
        Ok(root)
    }

    /// An expression: a conditional, or what is of higher precedence.
    fn expr(&mut self) -> Result<Expr> {
        self.depth += 1;
        self.check_depth(self.depth)?;
        let condition = self.or()?;
        let expr = match self.take(Kind::Question) {
            None => condition,
            Some(question) => {
                let id = self.id(question);
                let then = self.within(&[Kind::Colon], Self::or)?;
                self.expect(Kind::Colon, FIRST)?;
                let otherwise = self.expr()?;
                let parts = [condition.id, then.id, otherwise.id];
                let call = macros::call("_?_:_", vec![condition, then, otherwise]);
                self.measured(Expr::new(id, call), &parts, true)?
            }
        };
        self.depth -= 1;
        Ok(expr)
    }

    fn check_depth(&mut self, depth: usize) -> Result<()> {
        if depth <= MAX_DEPTH {
            return Ok(());
        }
        self.issues.add(
            Location::NONE,
            format!("expression recursion limit exceeded: {MAX_DEPTH}"),
        );
        Err(Stop)
    }

    /// An operand with the selections, calls and indices that follow it.
    fn member(&mut self) -> Result<Expr> {
        let mut operand = self.primary()?;
        let mut count = self.depth;
        loop {
            let token = self.peek();
            operand = match token.kind {
                Kind::Dot => self.select(operand)?,
                Kind::LeftBracket => self.index(operand)?,
                _ => return Ok(operand),
            };
            count += 1;
            self.check_depth(count)?;
        }
    }

    fn select(&mut self, operand: Expr) -> Result<Expr> {
        let dot = self.next();
        let optional = self.take(Kind::Question).is_some();
        let field = match self.peek().kind {
            Kind::Identifier | Kind::EscapedIdentifier => self.next(),
            _ if optional => {
                let name = listed(&[Kind::Identifier, Kind::EscapedIdentifier]);
                self.unexpected("mismatched", &name);
                let token = self.peek();
                self.error(token, "unsupported ident kind");
                return Err(Stop);
            }
            _ => return Err(self.no_field(dot)),
        };
        if field.kind == Kind::EscapedIdentifier {
            self.error(field, "unsupported syntax: '`'");
        }
        let name = self.text(field);
        if optional {
            let id = self.id(dot);
            let literal = ExprKind::Literal(Literal::String(name.into()));
            let literal = self.node(field, literal, &[], false)?;
            let parts = [operand.id];
            let call = macros::call("_?._", vec![operand, literal]);
            return self.measured(Expr::new(id, call), &parts, false);
        }
        if self.is(Kind::LeftParen) {
            let open = self.next();
            let id = self.id(open);
            let args = self.arguments()?;
            return self.call_or_macro(id, name, Some(operand), args);
        }
        let parts = [operand.id];
        let select = Select {
            operand,
            field: name,
            test_only: false,
        };
        self.node(dot, ExprKind::Select(Box::new(select)), &parts, true)
    }

    /// Reports that what begins with a token goes on with none that could follow.
    fn no_alternative(&mut self, begin: Token) -> Stop {
        let offending = self.peek();
        let text = self.source.text(begin.start, offending.end);
        let text = text.trim_end_matches('\n');
        self.syntax_error(
            offending,
            &format!("no viable alternative at input '{text}'"),
        );
        Stop
    }

    /// Reports that no field follows a dot.
    fn no_field(&mut self, dot: Token) -> Stop {
        let token = self.peek();
        let between = self.source.text(dot.end, token.start);
        if between.is_empty() && matches!(token.kind, Kind::True | Kind::False | Kind::Null) {
            self.unexpected("mismatched", Kind::Identifier.name());
            return Stop;
        }
        // What the lexer has left out is not shown.
        let blanks: String = between.chars().take_while(|c| c.is_whitespace()).collect();
        let shown = match token.kind {
            Kind::End => String::new(),
            _ => self.text(token),
        };
        self.syntax_error(
            token,
            &format!("no viable alternative at input '.{blanks}{shown}'"),
        );
        Stop
    }

    fn index(&mut self, operand: Expr) -> Result<Expr> {
        let open = self.next();
        let id = self.id(open);
        self.settle(&[FIRST, &[Kind::Question]].concat())?;
        let optional = self.take(Kind::Question).is_some();
        let index = self.within(&[Kind::RightBracket], Self::expr)?;
        self.close(Kind::RightBracket)?;
        let parts = [operand.id, index.id];
        let function = if optional { "_[?_]" } else { "_[_]" };
        let call = macros::call(function, vec![operand, index]);
        self.measured(Expr::new(id, call), &parts, true)
    }

    /// The arguments of a call behind its parenthesis.
    fn arguments(&mut self) -> Result<Vec<Expr>> {
        self.settle(&[FIRST, &[Kind::RightParen]].concat())?;
        let mut args = Vec::new();
        if !self.is(Kind::RightParen) {
            loop {
                args.push(self.within(&[Kind::RightParen, Kind::Comma], Self::expr)?);
                if self.take(Kind::Comma).is_none() {
                    break;
                }
            }
        }
        self.close(Kind::RightParen)?;
        Ok(args)
    }

    fn primary(&mut self) -> Result<Expr> {
        let token = self.peek();
        match token.kind {
            Kind::LeftParen => {
                self.at += 1;
                let inner = self.within(&[Kind::RightParen], Self::expr)?;
                self.close(Kind::RightParen)?;
                Ok(inner)
            }
            Kind::LeftBracket => self.list(),
            Kind::LeftBrace => self.map(),
            Kind::Identifier | Kind::Dot => self.named(),
            _ => self.literal(),
        }
    }

    fn list(&mut self) -> Result<Expr> {
        const END: &[Kind] = &[Kind::RightBracket, Kind::Comma];
        let open = self.next();
        let id = self.id(open);
        self.settle(&[FIRST, END, &[Kind::Question]].concat())?;
        let mut list = List::default();
        while !END.contains(&self.peek().kind) {
            if self.take(Kind::Question).is_some() {
                list.optional.push(list.elements.len());
            }
            list.elements.push(self.within(END, Self::expr)?);
            self.settle(END)?;
            if !self.goes_on(&[FIRST, &[Kind::Question]].concat()) {
                break;
            }
        }
        self.take(Kind::Comma);
        self.close(Kind::RightBracket)?;
        let parts: Vec<ExprId> = list.elements.iter().map(|element| element.id).collect();
        self.measured(Expr::new(id, ExprKind::List(list)), &parts, false)
    }

    /// Passes a comma that one more item follows.
    fn goes_on(&mut self, first: &[Kind]) -> bool {
        let more = self.is(Kind::Comma) && first.contains(&self.ahead(1).kind);
        self.at += usize::from(more);
        more
    }

    fn map(&mut self) -> Result<Expr> {
        const END: &[Kind] = &[Kind::RightBrace, Kind::Comma];
        let open = self.next();
        let id = self.id(open);
        self.settle(&[FIRST, END, &[Kind::Question]].concat())?;
        let (mut entries, mut parts) = (Vec::new(), Vec::new());
        while !END.contains(&self.peek().kind) {
            let optional = self.take(Kind::Question).is_some();
            let key = self.within(&[Kind::Colon], Self::expr)?;
            let colon = self.expect(Kind::Colon, FIRST)?;
            let id = self.id(colon);
            let value = self.within(END, Self::expr)?;
            parts.extend([key.id, value.id]);
            entries.push(MapEntry {
                id,
                key,
                value,
                optional,
            });
            self.settle(END)?;
            if !self.goes_on(&[FIRST, &[Kind::Question]].concat()) {
                break;
            }
        }
        self.take(Kind::Comma);
        self.close(Kind::RightBrace)?;
        self.measured(Expr::new(id, ExprKind::Map(entries)), &parts, false)
    }

    /// A name, a call of a function, or a message.
    fn named(&mut self) -> Result<Expr> {
        let dot = self.take(Kind::Dot);
        let token = self.peek();
        if token.kind != Kind::Identifier {
            return Err(self.no_field(dot.unwrap_or(token)));
        }
        self.at += 1;
        let word = self.text(token);
        if self.begins_message() {
            return self.message(dot, token);
        }
        let name = if dot.is_some() {
            format!(".{word}")
        } else {
            word.clone()
        };
        let reserved = RESERVED.contains(&word.as_str());
        if self.is(Kind::LeftParen) {
            let open = self.next();
            let id = self.id(open);
            let args = self.arguments()?;
            if reserved {
                return Ok(self.error(dot.unwrap_or(token), format!("reserved identifier: {word}")));
            }
            return self.call_or_macro(id, name, None, args);
        }
        if reserved {
            return Ok(self.error(dot.unwrap_or(token), format!("reserved identifier: {word}")));
        }
        self.node(token, ExprKind::Ident(name), &[], false)
    }

    /// Reports whether what follows a name makes it that of a message: more names, then a brace.
    fn begins_message(&self) -> bool {
        let mut ahead = 0;
        while self.ahead(ahead).kind == Kind::Dot && self.ahead(ahead + 1).kind == Kind::Identifier
        {
            ahead += 2;
        }
        self.ahead(ahead).kind == Kind::LeftBrace
    }

    fn message(&mut self, dot: Option<Token>, first: Token) -> Result<Expr> {
        const END: &[Kind] = &[Kind::RightBrace, Kind::Comma];
        const FIELD: &[Kind] = &[Kind::Question, Kind::Identifier, Kind::EscapedIdentifier];
        let mut type_name = if dot.is_some() { "." } else { "" }.to_owned();
        type_name.push_str(&self.text(first));
        while self.take(Kind::Dot).is_some() {
            let part = self.next();
            type_name.push('.');
            type_name.push_str(&self.text(part));
        }
        let open = self.next();
        let id = self.id(open);
        let (mut fields, mut parts) = (Vec::new(), Vec::new());
        self.settle(&[END, FIELD].concat())?;
        while !END.contains(&self.peek().kind) {
            let optional = self.take(Kind::Question).is_some();
            let name = self.expect(Kind::Identifier, &[])?;
            let colon = self.expect(Kind::Colon, FIRST)?;
            let id = self.id(colon);
            let value = self.within(END, Self::expr)?;
            parts.push(value.id);
            fields.push(StructField {
                id,
                name: self.text(name),
                value,
                optional,
            });
            self.settle(END)?;
            if !self.goes_on(FIELD) {
                break;
            }
        }
        self.take(Kind::Comma);
        self.close(Kind::RightBrace)?;
        let message = Struct { type_name, fields };
        self.measured(Expr::new(id, ExprKind::Struct(message)), &parts, false)
    }

    fn literal(&mut self) -> Result<Expr> {
        let token = self.next();
        let (sign, number) = match token.kind {
            Kind::Minus if !matches!(self.peek().kind, Kind::Int | Kind::Float) => {
                return Err(self.no_alternative(token));
            }
            Kind::Minus => ("-", self.next()),
            _ => ("", token),
        };
        let text = format!("{sign}{}", self.text(number));
        let literal = match number.kind {
            Kind::True => Ok(Literal::Bool(true)),
            Kind::False => Ok(Literal::Bool(false)),
            Kind::Null => Ok(Literal::Null),
            Kind::Int => literal::int(&text).map(Literal::Int),
            Kind::Uint => literal::uint(&text).map(Literal::Uint),
            Kind::Float => literal::double(&text).map(Literal::Double),
            Kind::String => unescape(&text, false)
                .map(|bytes| Literal::String(String::from_utf8_lossy(&bytes).into())),
            _ => unescape(text.get(1..).unwrap_or(""), true)
                .map(|bytes| Literal::Bytes(bytes.into())),
        };
        match literal {
            Ok(literal) => self.node(token, ExprKind::Literal(literal), &[], false),
            Err(why) => Ok(self.error(token, why)),
        }
    }

    /// A call, or what a macro of its name and number of arguments makes of it.
    fn call_or_macro(
        &mut self,
        id: ExprId,
        function: String,
        target: Option<Expr>,
        args: Vec<Expr>,
    ) -> Result<Expr> {
        let counts = target.is_some();
        let mut parts: Vec<ExprId> = args.iter().map(|arg| arg.id).collect();
        parts.extend(target.as_ref().map(|target| target.id));
        let found = self.macros.iter().find(|candidate| {
            candidate.name == function
                && candidate.args == args.len()
                && candidate.member == target.is_some()
        });
        let expr = match found {
            None => {
                let call = super::ast::Call {
                    function,
                    target,
                    args,
                };
                Expr::new(id, ExprKind::Call(Box::new(call)))
            }
            Some(found) => {
                let offset = self.positions.offset(id);
                let mut factory = macros::Factory {
                    positions: &mut self.positions,
                    offset,
                };
                match (found.expand)(&mut factory, id, target, args) {
                    Ok(expr) => expr,
                    Err((at, message)) => {
                        let location = self.positions.location(at, self.source);
                        self.issues.add(location, message);
                        let id = self.positions.node(self.positions.offset(at));
                        Expr::new(id, ExprKind::Unspecified)
                    }
                }
            }
        };
        self.measured(expr, &parts, counts)
    }
}

/// A set of tokens as errors list it.
fn listed(kinds: &[Kind]) -> String {
    let mut sorted = kinds.to_vec();
    sorted.sort();
    let names: Vec<&str> = sorted.iter().map(|kind| kind.name()).collect();
    match names.as_slice() {
        [name] => (*name).to_owned(),
        names => format!("{{{}}}", names.join(", ")),
    }
}
