//! The syntax tree of an expression, with macros expanded.

use std::sync::Arc;

/// The number of a node, by which its position, type and cost are found.
pub type ExprId = u32;

/// The variable in which comprehensions of macros accumulate. No expression can name it.
pub const ACCUMULATOR: &str = "@result";

/// A node of the tree.
#[derive(Clone, Debug)]
pub struct Expr {
    pub id: ExprId,
    pub kind: ExprKind,
}

/// A constant.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
}

/// The kinds of nodes.
#[derive(Clone, Debug)]
pub enum ExprKind {
    /// The place of an error.
    Unspecified,
    Literal(Literal),
    Ident(String),
    Select(Box<Select>),
    Call(Box<Call>),
    List(List),
    Map(Vec<MapEntry>),
    Struct(Struct),
    Comprehension(Box<Comprehension>),
}

/// `operand.field`, or `has(operand.field)` where only presence is tested.
#[derive(Clone, Debug)]
pub struct Select {
    pub operand: Expr,
    pub field: String,
    pub test_only: bool,
}

/// `function(args)` or `target.function(args)`. Operators are functions, too (`_+_`).
#[derive(Clone, Debug)]
pub struct Call {
    pub function: String,
    pub target: Option<Expr>,
    pub args: Vec<Expr>,
}

/// `[a, ?b]`.
#[derive(Clone, Debug, Default)]
pub struct List {
    pub elements: Vec<Expr>,
    /// The positions of elements that are left out where their optional is none.
    pub optional: Vec<usize>,
}

/// `key: value` or `?key: value`.
#[derive(Clone, Debug)]
pub struct MapEntry {
    pub id: ExprId,
    pub key: Expr,
    pub value: Expr,
    pub optional: bool,
}

/// `Type{field: value}`.
#[derive(Clone, Debug)]
pub struct Struct {
    pub type_name: String,
    pub fields: Vec<StructField>,
}

/// `field: value` or `?field: value`.
#[derive(Clone, Debug)]
pub struct StructField {
    pub id: ExprId,
    pub name: String,
    pub value: Expr,
    pub optional: bool,
}

/// A fold over a list or the keys of a map; with two variables over index and element, or key and
/// value.
#[derive(Clone, Debug)]
pub struct Comprehension {
    pub range: Expr,
    pub variable: String,
    pub second_variable: Option<String>,
    pub accumulator: String,
    pub init: Expr,
    pub condition: Expr,
    pub step: Expr,
    pub result: Expr,
}

impl Expr {
    pub fn new(id: ExprId, kind: ExprKind) -> Self {
        Self { id, kind }
    }

    /// The name `a.b.c` that a chain of selections may stand for; `None` if it is none.
    pub fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            ExprKind::Ident(name) => Some(name.clone()),
            ExprKind::Select(select) if !select.test_only => {
                let operand = select.operand.qualified_name()?;
                Some(format!("{operand}.{}", select.field))
            }
            _ => None,
        }
    }
}
