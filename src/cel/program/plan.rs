//! Makes a program of a checked expression.

use std::collections::HashSet;
use std::sync::Arc;

use super::super::ast::{
    Call as CallExpr, Comprehension, Expr, ExprKind, List as ListExpr, Literal, MapEntry,
};
use super::super::charge::Charge;
use super::super::checker::Checked;
use super::super::environment::Environment;
use super::super::library::{self, Pattern};
use super::super::pattern;
use super::super::value::{Entries, Error, Key, Result, Text, Value};
use super::members::Members;
use super::{
    Call, Fold, Index, LIST_COST, Lookup, Node, Program, Select, begins_with_name, is_attribute,
    no_qualifier, no_such_overload,
};

/// Makes a program of a checked expression.
///
/// # Errors
/// A constant cannot be converted to the type that the expression converts it to, or is no pattern.
pub fn plan(checked: &Checked, environment: &Environment) -> Result<Program> {
    let mut planner = Planner {
        checked,
        environment,
        scopes: Vec::new(),
    };
    let root = planner.node(&checked.root)?;
    Ok(Program { root })
}

struct Planner<'c> {
    checked: &'c Checked,
    environment: &'c Environment,
    /// The names of the variables of comprehensions, by their positions.
    scopes: Vec<String>,
}

impl Planner<'_> {
    fn boxed(&mut self, expr: &Expr) -> Result<Box<Node>> {
        self.node(expr).map(Box::new)
    }

    fn node(&mut self, expr: &Expr) -> Result<Node> {
        match &expr.kind {
            ExprKind::Unspecified => Err(Error::new("unsupported expr")),
            ExprKind::Literal(literal) => Ok(Node::Constant(Value::literal(literal))),
            ExprKind::Ident(name) => self.name(name),
            ExprKind::Select(select) => {
                let lookup = match select.test_only {
                    true => Lookup::Has,
                    false => Lookup::Select,
                };
                if let Some(node) = self.lazy_field(&select.operand, &select.field, lookup) {
                    return Ok(node);
                }
                let operand = self.node(&select.operand)?;
                let chained = is_attribute(&operand);
                let field: Arc<str> = select.field.as_str().into();
                if select.test_only {
                    return Ok(Node::Has(Box::new(operand), field, chained));
                }
                Ok(Node::Select(Box::new(Select {
                    operand,
                    field,
                    optional: false,
                    chained,
                })))
            }
            ExprKind::Call(call) => self.call(expr, call),
            ExprKind::List(list) => self.list(list),
            ExprKind::Map(entries) => self.map(entries),
            ExprKind::Struct(message) => {
                let mut fields = Vec::with_capacity(message.fields.len());
                for field in &message.fields {
                    let value = self.node(&field.value)?;
                    fields.push((field.name.as_str().into(), value, field.optional));
                }
                Ok(Node::Struct(message.type_name.as_str().into(), fields))
            }
            ExprKind::Comprehension(fold) => self.comprehension(fold),
        }
    }

    fn name(&self, name: &str) -> Result<Node> {
        if let Some(slot) = self.scopes.iter().rposition(|local| local == name) {
            return Ok(Node::Local(slot));
        }
        if let Some(position) = self.environment.position(name) {
            return Ok(Node::Variable(position));
        }
        if let Some(fields) = self.environment.lazy_fields(name) {
            let entries = fields.enumerate().map(|(position, field)| {
                let key = Node::Constant(Value::text(field));
                (key, Node::Lazy(position, Lookup::Select), false)
            });
            return Ok(Node::Map(entries.collect()));
        }
        if self.environment.makes(name) {
            return Err(Error::new(format!("reference to undefined type: {name}")));
        }
        let named = Environment::type_named(name);
        let ty = named.map_or(name.to_owned(), |ty| ty.runtime_name().to_owned());
        Ok(Node::Constant(Value::Type(Text::Shared(ty.into()))))
    }

    /// A field of the lazy variable, if the operand is that.
    fn lazy_field(&self, operand: &Expr, field: &str, lookup: Lookup) -> Option<Node> {
        let ExprKind::Ident(name) = &operand.kind else {
            return None;
        };
        if self.scopes.contains(name) {
            return None;
        }
        let position = self.environment.lazy_field(name, field)?;
        Some(Node::Lazy(position, lookup))
    }

    fn call(&mut self, expr: &Expr, call: &CallExpr) -> Result<Node> {
        let args: Vec<&Expr> = call.target.iter().chain(&call.args).collect();
        match (call.function.as_str(), args.as_slice()) {
            ("_&&_", [a, b]) => Ok(Node::And(Box::new((self.node(a)?, self.node(b)?)))),
            ("_||_", [a, b]) => Ok(Node::Or(Box::new((self.node(a)?, self.node(b)?)))),
            ("!_", [a]) => Ok(Node::Not(self.boxed(a)?)),
            ("@not_strictly_false", [a]) => Ok(Node::NotStrictlyFalse(self.boxed(a)?)),
            ("_?_:_", [a, b, c]) => {
                let parts = (self.node(a)?, self.node(b)?, self.node(c)?);
                Ok(Node::Conditional(Box::new(parts)))
            }
            ("_==_", [a, b]) => Ok(Node::Equal(Box::new([self.node(a)?, self.node(b)?]), true)),
            ("_!=_", [a, b]) => Ok(Node::Equal(Box::new([self.node(a)?, self.node(b)?]), false)),
            ("_[_]" | "_[?_]", [operand, key]) => self.index(call, operand, key),
            ("_?._", [operand, field]) => self.optional_select(operand, field),
            ("or", [a, b]) => Ok(Node::OrElse(
                Box::new((self.node(a)?, self.node(b)?)),
                false,
            )),
            ("orValue", [a, b]) => Ok(Node::OrElse(Box::new((self.node(a)?, self.node(b)?)), true)),
            (function, args) => self.function(expr, function, args),
        }
    }

    fn index(&mut self, call: &CallExpr, operand: &Expr, key: &Expr) -> Result<Node> {
        let (operand, key) = (self.node(operand)?, self.node(key)?);
        if let Node::Constant(key) = &key
            && let Some(ty) = no_qualifier(key, false)
        {
            return Err(Error::new(format!("invalid qualifier type: {ty}")));
        }
        Ok(Node::Index(Box::new(Index {
            optional: call.function == "_[?_]",
            chained: is_attribute(&operand),
            keyed_by_name: begins_with_name(&key),
            operand,
            key,
        })))
    }

    fn optional_select(&mut self, operand: &Expr, field: &Expr) -> Result<Node> {
        if let ExprKind::Literal(Literal::String(field)) = &field.kind
            && let Some(node) = self.lazy_field(operand, field, Lookup::SelectOptional)
        {
            return Ok(node);
        }
        let operand = self.node(operand)?;
        let field = match self.node(field)? {
            Node::Constant(Value::String(Text::Shared(field))) => field,
            _ => return Err(Error::new("unsupported optional field selection")),
        };
        Ok(Node::Select(Box::new(Select {
            chained: is_attribute(&operand),
            operand,
            field,
            optional: true,
        })))
    }

    fn function(&mut self, expr: &Expr, name: &str, args: &[&Expr]) -> Result<Node> {
        let function = library::function(name)
            .ok_or_else(|| Error::new(format!("no such overload: {name}")))?;
        let mut planned = Vec::with_capacity(args.len());
        for arg in args {
            planned.push(self.node(arg)?);
        }
        if let [Node::Constant(value)] = planned.as_slice()
            && library::is_conversion(name)
        {
            let converted = function.call(std::slice::from_ref(value));
            let args = std::slice::from_ref(value);
            let converted = converted.unwrap_or_else(|| Err(no_such_overload(name, args)))?;
            return Ok(Node::Constant(converted));
        }
        if self.checked.overloads(expr.id) == ["in_list"]
            && let [_, Node::Constant(Value::List(list))] = planned.as_slice()
            && let Some(known) = Members::of(list)
        {
            // In nothing is nothing, whatever it would be.
            if list.len() == 0 {
                return Ok(Node::Constant(Value::Bool(false)));
            }
            return Ok(Node::Member(Box::new(planned.swap_remove(0)), known));
        }
        if let ("matches" | "find" | "findAll", Some(Node::Constant(Value::String(text)))) =
            (name, planned.get(1))
        {
            let budget = self.environment.budget();
            let program = pattern::compile_constant(text.as_str(), &budget).map_err(Error::new)?;
            let text: Arc<str> = text.as_str().into();
            let compiled = Value::Extension(Arc::new(Pattern { text, program }));
            if let Some(place) = planned.get_mut(1) {
                *place = Node::Constant(compiled);
            }
        }
        let overloads = match self.checked.overloads(expr.id) {
            _ if library::looks_itself(name) => &[],
            [chosen] => {
                let found = function.overloads.iter().find(|one| one.id == *chosen);
                found.map_or(&[][..], std::slice::from_ref)
            }
            _ => function.overloads.as_slice(),
        };
        let is_compiled = matches!(planned.get(1), Some(Node::Constant(Value::Extension(_))));
        let overload = match self.checked.overloads(expr.id) {
            [overload] => overload,
            _ => "",
        };
        Ok(Node::Call(Box::new(Call {
            name: name.into(),
            function,
            // cel-go calls functions of two arguments as those of more where it finds the code by
            // the values, and where the pattern has been compiled.
            evaluates_all: planned.len() <= 2
                && !is_compiled
                && name != "format"
                && (!overload.is_empty() || name.starts_with(['_', '@', '-', '!'])),
            args: planned,
            overloads,
            charge: Charge::new(name, overload),
        })))
    }

    fn list(&mut self, list: &ListExpr) -> Result<Node> {
        let mut items = Vec::with_capacity(list.elements.len());
        let optional: HashSet<usize> = list.optional.iter().copied().collect();
        for (i, element) in list.elements.iter().enumerate() {
            items.push((self.node(element)?, optional.contains(&i)));
        }
        let constants: Option<Vec<Value<'static>>> = items
            .iter()
            .map(|item| match item {
                (Node::Constant(value), false) => Some(value.clone()),
                _ => None,
            })
            .collect();
        Ok(match constants {
            Some(values) => Node::Constant(Value::list(values)),
            None => Node::List(items),
        })
    }

    fn map(&mut self, entries: &[MapEntry]) -> Result<Node> {
        let mut nodes = Vec::with_capacity(entries.len());
        for entry in entries {
            nodes.push((
                self.node(&entry.key)?,
                self.node(&entry.value)?,
                entry.optional,
            ));
        }
        let constants: Option<Entries<'static>> = nodes
            .iter()
            .enumerate()
            .map(|(at, entry)| match entry {
                (Node::Constant(key), Node::Constant(value), false) => {
                    Some((Key::of_entry(key, at), (key.clone(), value.clone())))
                }
                _ => None,
            })
            .collect();
        Ok(match constants {
            Some(entries) => Node::Constant(Value::map(entries)),
            None => Node::Map(nodes),
        })
    }

    fn comprehension(&mut self, fold: &Comprehension) -> Result<Node> {
        let range = self.node(&fold.range)?;
        let init = self.node(&fold.init)?;
        let slot = self.scopes.len();
        self.scopes.push(fold.accumulator.clone());
        self.scopes.push(fold.variable.clone());
        self.scopes.extend(fold.second_variable.clone());
        let condition = self.node(&fold.condition)?;
        let step = self.step(slot, &fold.step)?;
        self.scopes.truncate(slot + 1);
        let result = self.node(&fold.result)?;
        self.scopes.truncate(slot);
        Ok(Node::Fold(Box::new(Fold {
            range,
            slot,
            two: fold.second_variable.is_some(),
            init,
            condition,
            step,
            result,
        })))
    }

    /// A step of a comprehension. One that adds to the accumulator does so where that is: to copy
    /// it each time would take the square of its length.
    fn step(&mut self, slot: usize, step: &Expr) -> Result<Node> {
        let ExprKind::Call(call) = &step.kind else {
            return self.node(step);
        };
        let is_accumulator = |expr: &Expr| match &expr.kind {
            ExprKind::Ident(name) => self.scopes.get(slot) == Some(name),
            _ => false,
        };
        match (call.function.as_str(), call.args.as_slice()) {
            ("_?_:_", [filter, added, same]) if is_accumulator(same) => {
                let filter = self.node(filter)?;
                let parts = (filter, self.step(slot, added)?, self.node(same)?);
                Ok(Node::Conditional(Box::new(parts)))
            }
            ("_+_", [accumulator, added]) if is_accumulator(accumulator) => match &added.kind {
                ExprKind::List(list) if list.optional.is_empty() => {
                    match list.elements.as_slice() {
                        [item] => {
                            let item = self.node(item)?;
                            // A list of constants is one, and is made before.
                            let cost = match item {
                                Node::Constant(_) => 0,
                                _ => LIST_COST,
                            };
                            Ok(Node::Append(slot, Box::new(item), cost))
                        }
                        _ => self.node(step),
                    }
                }
                _ => self.node(step),
            },
            ("cel.@mapInsert", [accumulator, added]) if is_accumulator(accumulator) => {
                Ok(Node::Merge(slot, self.boxed(added)?))
            }
            ("cel.@mapInsert", [accumulator, key, value]) if is_accumulator(accumulator) => {
                let entry = (self.node(key)?, self.node(value)?);
                Ok(Node::Insert(slot, Box::new(entry)))
            }
            _ => self.node(step),
        }
    }
}
