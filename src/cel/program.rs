//! Expressions that are ready to be evaluated: names resolved, constants folded, patterns compiled
//! (cel-go `interpreter/planner.go`).

mod errors;
mod members;
mod plan;

use std::ops::ControlFlow;
use std::sync::Arc;

use indexmap::IndexMap;

use super::charge::Charge;
use super::library::{self, Function};
use super::signature::Overload;
use super::value::{Entries, Error, Key, List, Map, Result, Struct, Value};
use super::work::{self, Budget};

use errors::{go_type, no_field_of_list, no_qualifier, no_such_overload};
use members::Members;
pub use plan::plan;

/// The most that an evaluation may cost, in units of cel-go.
pub const PER_CALL_LIMIT: u64 = 1_000_000;
/// The cost of making a list.
const LIST_COST: u64 = 10;

/// A program.
#[derive(Debug)]
pub struct Program {
    root: Node,
}

/// A step of a program.
#[derive(Debug)]
enum Node {
    Constant(Value<'static>),
    /// A variable, by the position of its value.
    Variable(usize),
    /// A variable of a comprehension, by its position among those around it.
    Local(usize),
    Select(Box<Select>),
    Index(Box<Index>),
    /// Reports whether a field is there.
    Has(Box<Node>, Arc<str>, bool),
    And(Box<(Node, Node)>),
    Or(Box<(Node, Node)>),
    Not(Box<Node>),
    NotStrictlyFalse(Box<Node>),
    Conditional(Box<(Node, Node, Node)>),
    /// Reports whether two values are equal, or are not.
    Equal(Box<[Node; 2]>, bool),
    /// Reports whether a value is one of some constants.
    Member(Box<Node>, Members),
    Call(Box<Call>),
    List(Vec<(Node, bool)>),
    Map(Vec<(Node, Node, bool)>),
    Fold(Box<Fold>),
    /// The accumulator with one more item, and what it costs to make a list of that.
    Append(usize, Box<Node>, u64),
    /// The accumulator with one more entry.
    Insert(usize, Box<(Node, Node)>),
    /// The accumulator with the entries of a map.
    Merge(usize, Box<Node>),
    /// The value of an optional, or another value or optional where it has none.
    OrElse(Box<(Node, Node)>, bool),
    /// A field of the lazy variable, by its position.
    Lazy(usize, Lookup),
    Struct(Arc<str>, Vec<(Arc<str>, Node, bool)>),
}

/// The way in which a field of the lazy variable is looked at.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Lookup {
    Select,
    SelectOptional,
    Has,
}

#[derive(Debug)]
struct Select {
    operand: Node,
    field: Arc<str>,
    optional: bool,
    /// Reports whether the operand is a name or a selection, which this continues.
    chained: bool,
}

#[derive(Debug)]
struct Index {
    operand: Node,
    key: Node,
    optional: bool,
    chained: bool,
    /// Reports whether the key is a name or a selection.
    keyed_by_name: bool,
}

#[derive(Debug)]
struct Call {
    name: Arc<str>,
    function: &'static Function,
    args: Vec<Node>,
    charge: Charge,
    /// The overloads one of which is to take the arguments; none if the function looks at them
    /// itself.
    overloads: &'static [Overload],
    /// Reports whether all arguments are evaluated, also behind one that fails.
    evaluates_all: bool,
}

#[derive(Debug)]
struct Fold {
    range: Node,
    /// The position of the accumulator; the variables follow it.
    slot: usize,
    two: bool,
    init: Node,
    condition: Node,
    step: Node,
    result: Node,
}

/// Reports whether a step begins with a name, which costs nothing where it is part of another name
/// or a side of a conditional.
fn begins_with_name(node: &Node) -> bool {
    match node {
        Node::Conditional(_) => false,
        Node::Select(select) if select.chained => begins_with_name(&select.operand),
        Node::Index(index) if index.chained => begins_with_name(&index.operand),
        other => is_attribute(other),
    }
}

/// Reports whether a step is a part of a variable, as it lies in an object.
fn is_of_variable(node: &Node) -> bool {
    match node {
        Node::Variable(_) => true,
        Node::Select(select) => is_of_variable(&select.operand),
        Node::Index(index) => is_of_variable(&index.operand),
        _ => false,
    }
}

/// Reports whether a step is a name or a selection, which another selection continues at no cost of
/// its own.
fn is_attribute(node: &Node) -> bool {
    matches!(
        node,
        Node::Variable(_)
            | Node::Local(_)
            | Node::Select(_)
            | Node::Index(_)
            | Node::Conditional(_)
            | Node::Lazy(..)
    )
}

/// The result of an evaluation, and its cost.
#[derive(Debug)]
pub struct Outcome<'a> {
    pub value: Result<Value<'a>>,
    pub cost: u64,
}

/// The values of an environment's variables.
pub trait Activation<'a> {
    /// The value of a variable, by its position.
    ///
    /// # Errors
    /// It has none.
    fn variable(&mut self, position: usize) -> Result<Value<'a>>;

    /// The value of a field of the lazy variable, by its position.
    ///
    /// # Errors
    /// It has none.
    fn lazy_field(&mut self, _position: usize) -> Result<Value<'a>> {
        Err(Error::new("no such attribute"))
    }
}

impl<'a> Activation<'a> for &[Value<'a>] {
    fn variable(&mut self, position: usize) -> Result<Value<'a>> {
        let value = self.get(position).cloned();
        value.ok_or_else(|| Error::new("no such attribute"))
    }
}

impl Program {
    /// Evaluates the program with the values of the environment's variables, up to a cost.
    pub fn evaluate<'a>(&self, mut variables: &[Value<'a>], limit: u64) -> Outcome<'a> {
        self.evaluate_with(&mut variables, limit)
    }

    /// Evaluates the program with variables that are looked at as they are needed, up to a cost.
    pub fn evaluate_with<'a>(&self, variables: &mut dyn Activation<'a>, limit: u64) -> Outcome<'a> {
        let mut state = State {
            variables,
            locals: Vec::new(),
            cost: 0,
            limit,
        };
        let _budget = Budget::begin();
        let value = state.eval(&self.root);
        let value = if work::is_spent() {
            Err(Error::CostLimit)
        } else {
            value
        };
        let cost = state.cost;
        Outcome { value, cost }
    }
}

struct State<'s, 'a> {
    variables: &'s mut dyn Activation<'a>,
    locals: Vec<Local<'s, 'a>>,
    cost: u64,
    limit: u64,
}

/// A variable of a comprehension.
enum Local<'s, 'a> {
    Ready(Result<Value<'a>>),
    /// The value of a name that a macro gives it, not evaluated before it is asked for.
    Pending(&'s Node),
}

/// Reports whether nothing is gone through: the comprehension gives a value a name.
fn is_empty(range: &Node) -> bool {
    matches!(range, Node::Constant(Value::List(list)) if list.len() == 0)
}

/// Reports whether an error may be absorbed: the end of what may be spent may not, nor what is to
/// be waited for.
fn absorbed<T>(result: Result<T>) -> Result<Result<T>> {
    match result {
        Err(error @ (Error::CostLimit | Error::Suspended)) => Err(error),
        other => Ok(other),
    }
}

impl<'s, 'a> State<'s, 'a> {
    fn spend(&mut self, cost: u64) -> Result<()> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit || work::is_spent() {
            return Err(Error::CostLimit);
        }
        Ok(())
    }

    fn eval(&mut self, node: &'s Node) -> Result<Value<'a>> {
        match node {
            Node::Constant(value) => Ok(value.clone()),
            Node::Variable(position) => {
                self.spend(1)?;
                self.variables.variable(*position)
            }
            Node::Local(slot) => {
                let value = absorbed(self.local(*slot))?;
                self.spend(1)?;
                value
            }
            Node::Select(select) => self.select(select),
            Node::Index(index) => self.index(index),
            Node::Has(operand, field, chained) => self.has(operand, field, *chained),
            Node::And(operands) => self.logical(&operands.0, &operands.1, false),
            Node::Or(operands) => self.logical(&operands.0, &operands.1, true),
            Node::Not(operand) => {
                let value = absorbed(self.eval(operand))?;
                self.spend(1)?;
                match value? {
                    Value::Bool(value) => Ok(Value::Bool(!value)),
                    _ => Err(Error::no_such_overload()),
                }
            }
            Node::NotStrictlyFalse(operand) => {
                let value = self.eval(operand);
                let value = absorbed(value)?;
                self.spend(1)?;
                Ok(Value::Bool(!matches!(value, Ok(Value::Bool(false)))))
            }
            Node::Conditional(parts) => match self.eval(&parts.0)? {
                Value::Bool(true) => self.branch(&parts.1),
                Value::Bool(false) => self.branch(&parts.2),
                _ => Err(Error::no_such_overload()),
            },
            Node::Equal(operands, wanted) => {
                let args = self.arguments(operands.as_slice(), Charge::Equality, true)?;
                self.spend(Charge::Equality.of(&args, None))?;
                match args.as_slice() {
                    // What cannot be compared is different.
                    [a, b] => match absorbed(a.is_equal(b))? {
                        Err(_) if !wanted => Ok(Value::Bool(true)),
                        equal => Ok(Value::Bool(equal? == *wanted)),
                    },
                    _ => Err(Error::no_such_overload()),
                }
            }
            Node::Member(item, known) => {
                let item = self.eval(item)?;
                Ok(Value::Bool(known.has(&item)))
            }
            Node::Call(call) => self.call(call),
            Node::List(items) => self.list(items),
            Node::Map(entries) => self.map(entries),
            Node::Fold(fold) => self.fold(fold),
            Node::Append(slot, item, list) => self.append(*slot, item, *list),
            Node::Insert(slot, entry) => self.insert(*slot, entry),
            Node::Merge(slot, added) => self.merge(*slot, added),
            Node::OrElse(parts, unwraps) => match self.eval(&parts.0)? {
                Value::Optional(Some(value)) if *unwraps => Ok((*value).clone()),
                Value::Optional(None) => self.eval(&parts.1),
                other => Ok(other),
            },
            Node::Lazy(position, lookup) => self.lazy(*position, *lookup),
            Node::Struct(name, fields) => self.object(name, fields),
        }
    }

    fn lazy(&mut self, position: usize, lookup: Lookup) -> Result<Value<'a>> {
        self.spend(1)?;
        let value = self.variables.lazy_field(position)?;
        if lookup == Lookup::Has {
            return Ok(Value::Bool(true));
        }
        self.spend(1)?;
        Ok(match lookup {
            Lookup::SelectOptional => Value::some(value),
            _ => value,
        })
    }

    /// `&&` or `||`: the value `decides` of either operand decides, whatever the other is.
    fn logical(&mut self, left: &'s Node, right: &'s Node, decides: bool) -> Result<Value<'a>> {
        let left = absorbed(self.eval(left))?;
        if matches!(left, Ok(Value::Bool(value)) if value == decides) {
            return left;
        }
        let right = absorbed(self.eval(right))?;
        match (left, right) {
            (_, Ok(Value::Bool(value))) if value == decides => Ok(Value::Bool(decides)),
            (Ok(Value::Bool(_)), Ok(Value::Bool(_))) => Ok(Value::Bool(!decides)),
            (Err(error), _) | (Ok(Value::Bool(_)), Err(error)) => Err(error),
            _ => Err(Error::no_such_overload()),
        }
    }

    /// Evaluates one side of a conditional. A name that it is or begins with costs nothing there.
    fn branch(&mut self, node: &'s Node) -> Result<Value<'a>> {
        if !begins_with_name(node) {
            return self.eval(node);
        }
        // What is given here is taken by the name.
        let (cost, limit) = (self.cost, self.limit);
        self.limit = limit.saturating_add(1);
        let value = self.eval(node);
        self.limit = limit;
        self.cost = self.cost.saturating_sub(1).max(cost);
        if self.cost > limit {
            return Err(Error::CostLimit);
        }
        value
    }

    /// Evaluates an operand. What is no name or selection costs one more to be selected from.
    fn operand(&mut self, operand: &'s Node, chained: bool) -> Result<Value<'a>> {
        let value = absorbed(self.eval(operand))?;
        if !chained {
            self.spend(1)?;
        }
        value
    }

    fn select(&mut self, select: &'s Select) -> Result<Value<'a>> {
        let operand = self.operand(&select.operand, select.chained)?;
        let name = &select.field;
        let (operand, optional) = match operand {
            Value::Optional(None) => return Ok(Value::none()),
            Value::Optional(Some(inner)) => ((*inner).clone(), true),
            other => (other, select.optional),
        };
        let found = match &operand {
            Value::Map(map) => map.field(name).transpose(),
            Value::List(_) => Err(no_field_of_list()),
            Value::Struct(object) => Ok(object.get(name)),
            _ => Ok(None),
        };
        match self.qualified(found, optional)? {
            Some(value) => {
                self.spend(1)?;
                Ok(if optional { Value::some(value) } else { value })
            }
            None if optional => Ok(Value::none()),
            None => {
                self.spend(1)?;
                Err(Error::new(format!("no such key: {name}")))
            }
        }
    }

    fn index(&mut self, index: &'s Index) -> Result<Value<'a>> {
        let operand = self.operand(&index.operand, index.chained)?;
        let (operand, optional) = match operand {
            Value::Optional(None) => return Ok(operand),
            Value::Optional(Some(inner)) => ((*inner).clone(), true),
            other => (other, index.optional),
        };
        let key = if index.keyed_by_name {
            // A name within brackets costs what the brackets do.
            let before = self.cost;
            let key = absorbed(self.eval(&index.key))?;
            // One that fails costs the brackets, unless they are optional.
            if key.is_ok() || optional {
                self.cost = self.cost.saturating_sub(1).max(before);
            }
            key?
        } else {
            let key = absorbed(self.eval(&index.key))?;
            if key.is_err() && !optional {
                self.spend(1)?;
            }
            key?
        };
        if let Some(ty) = no_qualifier(&key, is_of_variable(&index.key)) {
            let refused = Err(Error::new(format!("invalid qualifier type: {ty}")));
            return self.qualified(refused, optional).map(|_| Value::Null);
        }
        let found = match &operand {
            Value::List(list) => library::item(list, &key),
            Value::Map(map) => map.get(&key).transpose(),
            _ => Ok(None),
        };
        match self.qualified(found, optional)? {
            Some(value) => {
                self.spend(1)?;
                Ok(if optional { Value::some(value) } else { value })
            }
            None if optional => Ok(Value::none()),
            None => {
                self.spend(1)?;
                let shown = library::shown(&key);
                Err(Error::new(match operand {
                    Value::List(_) => format!("index out of bounds: {shown}"),
                    _ => format!("no such key: {shown}"),
                }))
            }
        }
    }

    /// The result of a selection, which costs where it fails, too, unless it is optional.
    fn qualified(
        &mut self,
        found: Result<Option<Value<'a>>>,
        optional: bool,
    ) -> Result<Option<Value<'a>>> {
        if found.is_err() && !optional {
            self.spend(1)?;
        }
        found
    }

    fn has(&mut self, operand: &'s Node, field: &str, chained: bool) -> Result<Value<'a>> {
        let before = self.cost;
        let operand = absorbed(self.operand(operand, chained))?;
        if operand.is_err() {
            self.cost = self.cost.saturating_sub(1).max(before);
        }
        let (operand, optional) = match operand? {
            Value::Optional(Some(inner)) => ((*inner).clone(), true),
            other @ Value::Optional(None) => (other, true),
            other => (other, false),
        };
        let found = match operand {
            Value::Map(map) => map.field(field).is_some(),
            Value::List(_) => return Err(no_field_of_list()),
            Value::Struct(object) => object.has(field),
            _ => false,
        };
        if optional && !found {
            self.cost = self.cost.saturating_sub(1).max(before);
        }
        Ok(Value::Bool(found))
    }

    /// Evaluates the arguments of a call: all of them, or those up to the first that is an error.
    /// Then the call costs nothing unless that is the last.
    fn arguments(
        &mut self,
        nodes: &'s [Node],
        charge: Charge,
        all: bool,
    ) -> Result<Vec<Value<'a>>> {
        let mut args = Vec::with_capacity(nodes.len());
        let mut failure = None;
        for (position, node) in nodes.iter().enumerate() {
            match absorbed(self.eval(node))? {
                Ok(value) => args.push(value),
                Err(error) if !all && position + 1 < nodes.len() => return Err(error),
                Err(error) => {
                    args.push(Value::Null);
                    failure.get_or_insert(error);
                }
            }
        }
        match failure {
            Some(error) => {
                self.spend(charge.of(&args, None))?;
                Err(error)
            }
            None => Ok(args),
        }
    }

    fn call(&mut self, call: &'s Call) -> Result<Value<'a>> {
        let args = self.arguments(&call.args, call.charge, call.evaluates_all)?;
        let before = call.charge.is_before().then(|| call.charge.of(&args, None));
        if let Some(cost) = before {
            self.spend(cost)?;
        }
        let taken = call.overloads.is_empty()
            || call.overloads.iter().any(|overload| overload.takes(&args));
        let value = taken
            .then(|| call.function.call(&args))
            .flatten()
            .unwrap_or_else(|| Err(no_such_overload(&call.name, &args)));
        if before.is_none() {
            let cost = call.charge.of(&args, value.as_ref().ok());
            self.spend(cost)?;
        }
        value
    }

    /// Makes a list. It costs the same where an item fails, as a map does.
    fn list(&mut self, items: &'s [(Node, bool)]) -> Result<Value<'a>> {
        let list = absorbed(self.items(items))?;
        self.spend(LIST_COST)?;
        list.map(Value::list)
    }

    fn items(&mut self, items: &'s [(Node, bool)]) -> Result<Vec<Value<'a>>> {
        let mut out = Vec::with_capacity(items.len());
        for (item, optional) in items {
            match (self.eval(item)?, optional) {
                (Value::Optional(Some(value)), true) => out.push((*value).clone()),
                (Value::Optional(None), true) => {}
                (other, true) => {
                    let shown = library::shown(&other);
                    return Err(Error::new(format!(
                        "cannot initialize optional list element from non-optional value {shown}"
                    )));
                }
                (value, false) => out.push(value),
            }
        }
        Ok(out)
    }

    fn map(&mut self, entries: &'s [(Node, Node, bool)]) -> Result<Value<'a>> {
        let map = absorbed(self.entries(entries))?;
        self.spend(30)?;
        map.map(Value::map)
    }

    fn entries(&mut self, entries: &'s [(Node, Node, bool)]) -> Result<Entries<'a>> {
        let mut out = Entries::with_capacity(entries.len());
        for (key, value, optional) in entries {
            let key = self.eval(key)?;
            let value = match (self.eval(value)?, optional) {
                (Value::Optional(Some(value)), true) => (*value).clone(),
                (Value::Optional(None), true) => continue,
                (other, true) => {
                    let (key, shown) = (library::shown(&key), library::shown(&other));
                    return Err(Error::new(format!(
                        "cannot initialize optional entry '{key}' from non-optional value {shown}"
                    )));
                }
                (value, false) => value,
            };
            out.insert(Key::of_entry(&key, out.len()), (key, value));
        }
        Ok(out)
    }

    fn object(
        &mut self,
        name: &Arc<str>,
        fields: &'s [(Arc<str>, Node, bool)],
    ) -> Result<Value<'a>> {
        let mut out = IndexMap::with_capacity(fields.len());
        for (field, node, optional) in fields {
            let value = match (self.eval(node)?, optional) {
                (Value::Optional(Some(value)), true) => (*value).clone(),
                (Value::Optional(None), true) => continue,
                (other, true) => {
                    let shown = library::shown(&other);
                    return Err(Error::new(format!(
                        "cannot initialize optional entry '{field}' from non-optional value {shown}"
                    )));
                }
                (value, false) => value,
            };
            out.insert(field.clone(), value);
        }
        self.spend(40)?;
        let object = Struct {
            name: name.clone(),
            fields: out,
        };
        object.check()?;
        Ok(Value::Struct(Arc::new(object)))
    }

    fn fold(&mut self, fold: &'s Fold) -> Result<Value<'a>> {
        let range = self.eval(&fold.range)?;
        let init = if is_empty(&fold.range) {
            Local::Pending(&fold.init)
        } else {
            Local::Ready(absorbed(self.eval(&fold.init))?.map(accumulator))
        };
        self.locals.truncate(fold.slot);
        self.locals.push(init);
        let done = match &range {
            Value::List(list) => self.fold_list(fold, list),
            Value::Map(map) => self.fold_map(fold, map),
            other if fold.two => Err(Error::new(format!(
                "unsupported comprehension range type: {}",
                go_type(other)
            ))),
            other => Err(Error::new(format!(
                "got '{}', expected iterable type",
                go_type(other)
            ))),
        };
        self.locals.truncate(fold.slot + 1);
        let result = done.and_then(|()| self.eval(&fold.result));
        self.locals.truncate(fold.slot);
        result
    }

    fn fold_list(&mut self, fold: &'s Fold, list: &List<'a>) -> Result<()> {
        for (position, item) in list.iter().enumerate() {
            let second = fold.two.then(|| item.clone());
            let first = match fold.two {
                true => Ok(Value::Int(i64::try_from(position).unwrap_or(i64::MAX))),
                false => item,
            };
            if self.fold_step(fold, first, second)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn fold_map(&mut self, fold: &'s Fold, map: &Map<'a>) -> Result<()> {
        for (key, value) in map.entries() {
            let second = fold.two.then_some(value);
            if self.fold_step(fold, Ok(key), second)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn fold_step(
        &mut self,
        fold: &'s Fold,
        first: Result<Value<'a>>,
        second: Option<Result<Value<'a>>>,
    ) -> Result<ControlFlow<()>> {
        self.locals.truncate(fold.slot + 1);
        self.locals.push(Local::Ready(first));
        self.locals.extend(second.map(Local::Ready));
        let goes_on = absorbed(self.eval(&fold.condition))?;
        if matches!(goes_on, Ok(Value::Bool(false))) {
            return Ok(ControlFlow::Break(()));
        }
        let step = absorbed(self.eval(&fold.step))?;
        if let Some(accumulator) = self.locals.get_mut(fold.slot) {
            *accumulator = Local::Ready(step);
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The value of a variable of a comprehension.
    fn local(&mut self, slot: usize) -> Result<Value<'a>> {
        let init = match self.locals.get(slot) {
            Some(Local::Ready(value)) => return value.clone(),
            Some(Local::Pending(init)) => *init,
            None => return Err(Error::new("no such attribute")),
        };
        // It is evaluated as if nothing was around it yet.
        let inner = self.locals.split_off(slot);
        let value = self.eval(init).map(accumulator);
        self.locals.truncate(slot);
        self.locals.extend(inner);
        if let Some(place) = self.locals.get_mut(slot) {
            *place = Local::Ready(value.clone());
        }
        value
    }

    /// Takes the accumulator out of its place, so that it is nobody else's.
    fn take(&mut self, slot: usize) -> Result<Value<'a>> {
        match self.locals.get_mut(slot) {
            Some(Local::Ready(accumulator)) => std::mem::replace(accumulator, Ok(Value::Null)),
            _ => Err(Error::new("no such attribute")),
        }
    }

    /// Adds an item to the accumulator where it is. It costs what reading it, making a list of the
    /// item and adding the two costs.
    fn append(&mut self, slot: usize, item: &'s Node, list: u64) -> Result<Value<'a>> {
        self.spend(1)?;
        let item = absorbed(self.eval(item))?;
        self.spend(list + 1)?;
        // An accumulator that is an error stays that one.
        let accumulator = self.take(slot)?;
        let item = item?;
        match accumulator {
            Value::List(List::Made(mut items)) => {
                Arc::make_mut(&mut items).push(item);
                Ok(Value::List(List::Made(items)))
            }
            _ => Err(Error::no_such_overload()),
        }
    }

    /// Adds an entry to the accumulator where it is.
    fn insert(&mut self, slot: usize, entry: &'s (Node, Node)) -> Result<Value<'a>> {
        self.spend(1)?;
        // A function of three arguments ends at the first that is an error; one of two has both
        // evaluated.
        if let Some(Local::Ready(Err(error))) = self.locals.get(slot) {
            return Err(error.clone());
        }
        let key = self.eval(&entry.0)?;
        let value = absorbed(self.eval(&entry.1))?;
        self.spend(1)?;
        let value = value?;
        inserted(self.take(slot)?, [(key, value)])
    }

    /// Adds the entries of a map to the accumulator where it is.
    fn merge(&mut self, slot: usize, added: &'s Node) -> Result<Value<'a>> {
        self.spend(1)?;
        let added = absorbed(self.eval(added))?;
        self.spend(1)?;
        let accumulator = self.take(slot)?;
        let Value::Map(added) = added? else {
            return Err(Error::no_such_overload());
        };
        let entries = added.entries().into_iter();
        let entries: Result<Vec<_>> = entries.map(|(key, value)| Ok((key, value?))).collect();
        inserted(accumulator, entries?)
    }
}

/// The value that an accumulator begins with: empty lists and maps are made anew.
fn accumulator(value: Value<'_>) -> Value<'_> {
    match value {
        Value::List(list) if list.len() == 0 => Value::list(Vec::new()),
        Value::Map(map) if map.len() == 0 => Value::map(Entries::new()),
        other => other,
    }
}

/// A map with more entries, none of whose keys it has.
fn inserted<'a>(
    map: Value<'a>,
    added: impl IntoIterator<Item = (Value<'a>, Value<'a>)>,
) -> Result<Value<'a>> {
    let Value::Map(Map::Made(mut entries)) = map else {
        return Err(Error::no_such_overload());
    };
    let into = Arc::make_mut(&mut entries);
    for (key, value) in added {
        let index = Key::of_entry(&key, into.len());
        if into.contains_key(&index) {
            let shown = library::shown(&key);
            return Err(Error::new(format!(
                "insert failed: key {shown} already exists"
            )));
        }
        into.insert(index, (key, value));
    }
    Ok(Value::Map(Map::Made(entries)))
}
