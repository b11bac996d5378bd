//! The most that an expression may cost, by the sizes that its schema allows (cel-go
//! `checker/cost.go`, apiserver `cel/library/cost.go`).

mod calls;

use std::collections::HashMap;

use super::ast::{ACCUMULATOR, Call, Comprehension, Expr, ExprId, ExprKind, Literal, Select};
use super::checker::Checked;
use super::schema::{Schema, Shape};
use super::types::Type;

/// A range of sizes or costs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Range {
    pub min: u64,
    pub max: u64,
}

impl Range {
    pub const ZERO: Self = Self::fixed(0);
    pub const ONE: Self = Self::fixed(1);
    pub const UNKNOWN: Self = Self {
        min: 0,
        max: u64::MAX,
    };
    /// The neutral element of the union.
    const EMPTY: Self = Self {
        min: u64::MAX,
        max: 0,
    };

    pub const fn fixed(number: u64) -> Self {
        Self {
            min: number,
            max: number,
        }
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    #[must_use]
    pub fn times(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    /// The range times a factor, rounded up.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        let scale = |number: u64| {
            #[allow(clippy::cast_precision_loss)] // as upstream
            let product = (number as f64 * factor).ceil();
            // A cast of what is too large gives the largest.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let scaled = product as u64;
            scaled
        };
        Self {
            min: scale(self.min),
            max: scale(self.max),
        }
    }

    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

/// The costs of looking at a text as a whole, and of a pattern, by length.
const TRAVERSAL: f64 = 0.1;

/// Estimates the cost of a checked expression. Paths of variables are looked up in `root`, whatever
/// the variable.
pub fn estimate(checked: &Checked, root: Option<&Schema>) -> Range {
    let mut estimator = Estimator {
        checked,
        root,
        paths: HashMap::new(),
        locals: Vec::new(),
        sizes: HashMap::new(),
        entries: HashMap::new(),
    };
    estimator.cost(&checked.root)
}

/// A step of the path to a value from a variable.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Step {
    Name(String),
    Items,
    Keys,
    Values,
    Indices,
}

type Path = Vec<Step>;

/// The sizes of the keys and values of a list or map.
#[derive(Clone, Copy, Debug)]
struct Entry {
    is_list: bool,
    key: Range,
    value: Range,
}

impl Entry {
    fn union(self, other: Self) -> Self {
        Self {
            is_list: self.is_list,
            key: self.key.union(other.key),
            value: self.value.union(other.value),
        }
    }
}

struct Local {
    name: String,
    path: Path,
    size: Option<Range>,
    entry: Option<Entry>,
}

struct Estimator<'a> {
    checked: &'a Checked,
    root: Option<&'a Schema>,
    paths: HashMap<ExprId, Path>,
    locals: Vec<Local>,
    sizes: HashMap<ExprId, Range>,
    entries: HashMap<ExprId, Entry>,
}

/// The part of a list or map that a variable of a comprehension is.
#[derive(Clone, Copy)]
enum Part {
    Key,
    Value,
    /// The value of a list, the key of a map.
    Single,
}

impl Estimator<'_> {
    fn cost(&mut self, expr: &Expr) -> Range {
        match &expr.kind {
            ExprKind::Unspecified | ExprKind::Literal(_) => Range::ZERO,
            ExprKind::Ident(name) => {
                let path = match self.local(name) {
                    Some(local) => local.path.clone(),
                    None => vec![Step::Name(name.clone())],
                };
                self.paths.insert(expr.id, path);
                Range::ONE
            }
            ExprKind::Select(select) => self.select(expr.id, select),
            ExprKind::Call(call) => self.call(expr, call),
            ExprKind::List(list) => {
                let mut sum = Range::ZERO;
                let mut size = Range::EMPTY;
                if list.elements.is_empty() {
                    size.min = 0;
                }
                for element in &list.elements {
                    sum = sum.plus(self.cost(element));
                    size = size.union(self.size_or_unknown(element));
                }
                let entry = Entry {
                    is_list: true,
                    key: Range::ONE,
                    value: size,
                };
                self.entries.insert(expr.id, entry);
                sum.plus(Range::fixed(10))
            }
            ExprKind::Map(entries) => {
                let mut sum = Range::ZERO;
                let (mut keys, mut values) = (Range::EMPTY, Range::EMPTY);
                if entries.is_empty() {
                    (keys.min, values.min) = (0, 0);
                }
                for entry in entries {
                    sum = sum.plus(self.cost(&entry.key));
                    sum = sum.plus(self.cost(&entry.value));
                    keys = keys.union(self.size_or_unknown(&entry.key));
                    values = values.union(self.size_or_unknown(&entry.value));
                }
                let entry = Entry {
                    is_list: false,
                    key: keys,
                    value: values,
                };
                self.entries.insert(expr.id, entry);
                sum.plus(Range::fixed(30))
            }
            ExprKind::Struct(message) => {
                let costs = message.fields.iter().map(|field| self.cost(&field.value));
                costs.fold(Range::fixed(40), Range::plus)
            }
            ExprKind::Comprehension(fold) => {
                if is_binding(fold) {
                    self.binding(expr.id, fold)
                } else {
                    self.comprehension(expr.id, fold)
                }
            }
        }
    }

    fn select(&mut self, id: ExprId, select: &Select) -> Range {
        let operand = self.cost(&select.operand);
        if select.test_only {
            return operand;
        }
        let mut path = self.path(&select.operand);
        path.push(Step::Name(select.field.clone()));
        self.paths.insert(id, path);
        match self.checked.type_of(select.operand.id) {
            Type::Map(_) | Type::Struct(_) | Type::Param(_) => operand.plus(Range::ONE),
            _ => operand,
        }
    }

    fn call(&mut self, expr: &Expr, call: &Call) -> Range {
        if let ("dyn", [arg]) = (call.function.as_str(), call.args.as_slice()) {
            let cost = self.cost(arg);
            self.copy_sizes(expr.id, arg);
            return cost.plus(Range::ONE);
        }
        let costs: Vec<Range> = call.args.iter().map(|arg| self.cost(arg)).collect();
        let checked = self.checked;
        let overloads = checked.overloads(expr.id);
        if overloads.is_empty() {
            return Range::ZERO;
        }
        let target = call
            .target
            .as_ref()
            .map_or(Range::ZERO, |target| self.cost(target));
        let mut cost = Range::EMPTY;
        let mut size: Option<Range> = None;
        for overload in overloads {
            let estimate = self.overload(expr, call, overload, &costs);
            cost = cost.union(estimate.cost);
            if let Some(more) = estimate.size {
                size = Some(size.map_or(more, |size| size.union(more)));
            }
            let step = match *overload {
                "index_list" => Some(Step::Items),
                "index_map" => Some(Step::Values),
                _ => None,
            };
            if let (Some(step), Some(operand)) = (step, call.args.first()) {
                size = self.entry(operand).map(|entry| entry.value);
                let mut path = self.path(operand);
                path.push(step);
                self.paths.insert(expr.id, path);
            }
            if size.is_none() {
                size = self.size(expr);
            }
        }
        if let Some(size) = size {
            self.sizes.insert(expr.id, size);
        }
        target.plus(cost)
    }

    fn comprehension(&mut self, id: ExprId, fold: &Comprehension) -> Range {
        let mut sum = self.cost(&fold.range).plus(self.cost(&fold.init));
        self.push_value(&fold.accumulator, &fold.init);
        match &fold.second_variable {
            Some(second) => {
                self.push_part(&fold.variable, &fold.range, Part::Key);
                self.push_part(second, &fold.range, Part::Value);
            }
            None => self.push_part(&fold.variable, &fold.range, Part::Single),
        }
        let condition = self.cost(&fold.condition);
        let step = self.cost(&fold.step);
        let variables = 1 + usize::from(fold.second_variable.is_some());
        self.locals.truncate(self.locals.len() - variables);
        sum = sum.plus(self.cost(&fold.result));
        self.locals.pop();
        let count = self.size_or_unknown(&fold.range);
        sum = sum.plus(count.times(step.plus(condition)));
        match &fold.init.kind {
            ExprKind::Literal(_) => {
                if let Some(size) = self.size(&fold.init) {
                    self.sizes.insert(id, size);
                }
            }
            ExprKind::List(_) | ExprKind::Map(_) => {
                self.sizes.insert(id, count);
                if let Some(entry) = self.entry(&fold.step) {
                    self.entries.insert(id, entry);
                }
            }
            _ => {}
        }
        sum
    }

    /// A comprehension that only gives a value a name.
    fn binding(&mut self, id: ExprId, fold: &Comprehension) -> Range {
        let mut sum = self.cost(&fold.range).plus(self.cost(&fold.init));
        self.push_value(&fold.accumulator, &fold.init);
        sum = sum.plus(self.cost(&fold.result));
        self.locals.pop();
        self.copy_sizes(id, &fold.result);
        sum
    }

    fn push_value(&mut self, name: &str, value: &Expr) {
        let local = Local {
            name: name.to_owned(),
            path: self.path(value),
            size: self.size(value),
            entry: self.entry(value),
        };
        self.locals.push(local);
    }

    fn push_part(&mut self, name: &str, range: &Expr, part: Part) {
        let entry = self.entry(range);
        let is_list = match entry {
            Some(entry) => entry.is_list,
            None => matches!(self.checked.type_of(range.id), Type::List(_)),
        };
        let (step, is_key) = match (part, is_list) {
            (Part::Key, true) => (Step::Indices, true),
            (Part::Key | Part::Single, false) => (Step::Keys, true),
            (Part::Value, false) => (Step::Values, false),
            (Part::Value | Part::Single, true) => (Step::Items, false),
        };
        let size = entry.map(|entry| if is_key { entry.key } else { entry.value });
        let mut path = self.path(range);
        path.push(step);
        self.locals.push(Local {
            name: name.to_owned(),
            path,
            size,
            entry: None,
        });
    }

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    fn path(&self, expr: &Expr) -> Path {
        if let ExprKind::Ident(name) = &expr.kind
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&expr.id).cloned().unwrap_or_default()
    }

    fn copy_sizes(&mut self, id: ExprId, from: &Expr) {
        if let Some(size) = self.size(from) {
            self.sizes.insert(id, size);
        }
        if let Some(entry) = self.entry(from) {
            self.entries.insert(id, entry);
        }
    }

    fn size_or_unknown(&mut self, expr: &Expr) -> Range {
        self.size(expr).unwrap_or(Range::UNKNOWN)
    }

    /// The size of a value, where something is known of it.
    fn size(&mut self, expr: &Expr) -> Option<Range> {
        if let Some(size) = self.sizes.get(&expr.id) {
            return Some(*size);
        }
        let of = |len: usize| Some(Range::fixed(u64::try_from(len).unwrap_or(u64::MAX)));
        match &expr.kind {
            ExprKind::Literal(Literal::String(text)) => return of(text.chars().count()),
            ExprKind::Literal(Literal::Bytes(bytes)) => return of(bytes.len()),
            ExprKind::Literal(_) => return of(1),
            ExprKind::List(list) => return of(list.elements.len()),
            ExprKind::Map(entries) => return of(entries.len()),
            _ => {}
        }
        if let Some(size) = self.size_at(&self.path(expr)) {
            self.sizes.insert(expr.id, size);
            return Some(size);
        }
        if is_scalar(self.checked.type_of(expr.id)) {
            return Some(Range::ONE);
        }
        match &expr.kind {
            ExprKind::Ident(name) => self.local(name)?.size,
            _ => None,
        }
    }

    /// The size of what is at a path, by its schema.
    fn size_at(&self, path: &[Step]) -> Option<Range> {
        let (_, rest) = path.split_first()?;
        let mut schema = self.root?;
        for step in rest {
            schema = match step {
                Step::Name(name) => schema
                    .declared_field(name)
                    .or_else(|| schema.element().filter(|element| element.is_any()))?,
                Step::Items | Step::Values => schema.element()?,
                Step::Keys => {
                    return matches!(schema.shape, Shape::Map(_)).then_some(Range {
                        min: 0,
                        max: schema.max_key,
                    });
                }
                Step::Indices => return None,
            };
        }
        Some(Range {
            min: 0,
            max: schema.max_elements,
        })
    }

    fn entry(&self, expr: &Expr) -> Option<Entry> {
        if let Some(entry) = self.entries.get(&expr.id) {
            return Some(*entry);
        }
        match &expr.kind {
            ExprKind::Ident(name) => self.local(name)?.entry,
            _ => None,
        }
    }
}

fn is_scalar(ty: &Type) -> bool {
    match ty {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => {
            true
        }
        other => other.in_optional().is_some_and(is_scalar),
    }
}

/// Reports whether a comprehension goes through nothing and never would.
fn is_binding(fold: &Comprehension) -> bool {
    let empty = matches!(&fold.range.kind, ExprKind::List(list) if list.elements.is_empty());
    let never = matches!(fold.condition.kind, ExprKind::Literal(Literal::Bool(false)));
    empty && never && fold.accumulator != ACCUMULATOR
}
