//! The syntax tree of an expression, with macros expanded.

use std::sync::Arc;

/// The number of a node, by which its position, type and cost are found.
pub type ExprId = u32;

/// The variable in which comprehensions of macros accumulate. No expression can name it.
pub const ACCUMULATOR: &str = "@result";

/// The function that `a.?b` stands for.
const OPTIONAL_SELECT: &str = "_?._";

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

    /// The nodes directly below this one.
    fn children(&self) -> Vec<&Expr> {
        match &self.kind {
            ExprKind::Unspecified | ExprKind::Literal(_) | ExprKind::Ident(_) => Vec::new(),
            ExprKind::Select(select) => vec![&select.operand],
            ExprKind::Call(call) => call.target.iter().chain(&call.args).collect(),
            ExprKind::List(list) => list.elements.iter().collect(),
            ExprKind::Map(entries) => entries
                .iter()
                .flat_map(|entry| [&entry.key, &entry.value])
                .collect(),
            ExprKind::Struct(object) => object.fields.iter().map(|field| &field.value).collect(),
            ExprKind::Comprehension(fold) => vec![
                &fold.range,
                &fold.init,
                &fold.condition,
                &fold.step,
                &fold.result,
            ],
        }
    }

    /// The nodes directly below this one, to be changed.
    fn children_mut(&mut self) -> Vec<&mut Expr> {
        match &mut self.kind {
            ExprKind::Unspecified | ExprKind::Literal(_) | ExprKind::Ident(_) => Vec::new(),
            ExprKind::Select(select) => vec![&mut select.operand],
            ExprKind::Call(call) => call.target.iter_mut().chain(&mut call.args).collect(),
            ExprKind::List(list) => list.elements.iter_mut().collect(),
            ExprKind::Map(entries) => entries
                .iter_mut()
                .flat_map(|entry| [&mut entry.key, &mut entry.value])
                .collect(),
            ExprKind::Struct(object) => {
                let fields = object.fields.iter_mut();
                fields.map(|field| &mut field.value).collect()
            }
            ExprKind::Comprehension(fold) => {
                let fold = &mut **fold;
                vec![
                    &mut fold.range,
                    &mut fold.init,
                    &mut fold.condition,
                    &mut fold.step,
                    &mut fold.result,
                ]
            }
        }
    }

    /// Gives the fields that are selected other names, where `rename` has one.
    pub fn rename_fields(&mut self, rename: &dyn Fn(&str) -> Option<String>) {
        let mut left = vec![self];
        while let Some(next) = left.pop() {
            match &mut next.kind {
                ExprKind::Select(select) => {
                    if let Some(name) = rename(&select.field) {
                        select.field = name;
                    }
                }
                ExprKind::Call(call) if call.function == OPTIONAL_SELECT => {
                    if let Some(ExprKind::Literal(Literal::String(field))) =
                        call.args.get_mut(1).map(|arg| &mut arg.kind)
                        && let Some(name) = rename(field)
                    {
                        *field = name.into();
                    }
                }
                _ => {}
            }
            left.extend(next.children_mut());
        }
    }

    /// Reports whether `variable.field` or `variable.?field` occurs in the expression.
    pub fn selects(&self, variable: &str, field: &str) -> bool {
        let is_variable =
            |one: &Expr| matches!(&one.kind, ExprKind::Ident(name) if name == variable);
        let mut left = vec![self];
        while let Some(next) = left.pop() {
            let found = match &next.kind {
                ExprKind::Select(select) => select.field == field && is_variable(&select.operand),
                ExprKind::Call(call) if call.function == OPTIONAL_SELECT => {
                    matches!(call.args.as_slice(), [operand, Expr { kind: ExprKind::Literal(Literal::String(name)), .. }]
                        if **name == *field && is_variable(operand))
                }
                _ => false,
            };
            if found {
                return true;
            }
            left.extend(next.children());
        }
        false
    }
}
