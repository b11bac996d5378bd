//! JSON paths of printer columns (client-go `util/jsonpath`), and the printing of their results.

use std::cell::Cell;
use std::cmp::Ordering;
use std::iter;

use crate::meta::{Value, go};

/// The depth to which `..` looks.
const MAX_DEPTH: usize = 64;
/// The depth to which filters may nest in each other.
const MAX_NESTED: usize = 16;
/// The maximum number of values that are looked at for one row of a table. Without a bound, a path
/// of `..` and `[*]` looks at more than any power of their number.
const MAX_STEPS: usize = 200_000;

/// A compiled path, such as `.status.conditions[?(@.type=="Ready")].status`.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    /// `[*]` and `.*`.
    Any,
    /// `..`
    Descend,
    /// `[1]`, `[0:2]`, `[-1:]`.
    Slice(Option<i64>, Option<i64>, i64),
    /// `[?(@.a=="b")]`: a path, an operator and what it is compared with.
    Filter(Vec<Step>, String, Operand),
    /// `['a','b']`
    Union(Vec<Step>),
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    /// The filter asks whether the path leads anywhere.
    None,
    Literal(Value),
    Path(Vec<Step>),
}

impl JsonPath {
    /// Reads a path that starts at the object; `None` where it cannot be read.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parser = Parser {
            rest: text.trim(),
            nested: 0,
        };
        let steps = parser.steps()?;
        parser.rest.trim().is_empty().then_some(Self(steps))
    }

    /// Returns the first value that the path leads to; `None` also where the budget does not
    /// suffice to find it.
    pub fn first<'a>(&'a self, root: &'a Value, budget: &'a Budget) -> Option<&'a Value> {
        first(&self.0, root, budget)
    }
}

struct Parser<'a> {
    rest: &'a str,
    /// The number of open filters.
    nested: usize,
}

impl Parser<'_> {
    fn eat(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn spaces(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn steps(&mut self) -> Option<Vec<Step>> {
        let mut steps = Vec::new();
        self.eat("$");
        self.eat("@");
        loop {
            if self.eat("..") {
                steps.push(Step::Descend);
                if !self.rest.starts_with('[') {
                    steps.push(self.field()?);
                }
            } else if self.eat(".") {
                if self.rest.is_empty() && steps.is_empty() {
                    return Some(steps);
                }
                if !self.rest.starts_with('[') {
                    steps.push(self.field()?);
                }
            } else if self.eat("[") {
                steps.push(self.bracket()?);
            } else {
                return Some(steps);
            }
        }
    }

    fn field(&mut self) -> Option<Step> {
        if self.eat("*") {
            return Some(Step::Any);
        }
        let mut name = String::new();
        let mut chars = self.rest.char_indices();
        let mut end = self.rest.len();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => name.extend(chars.next().map(|(_, c)| c)),
                '.' | '[' | ' ' | '=' | '!' | '<' | '>' | ')' | ']' | ',' => {
                    end = at;
                    break;
                }
                c => name.push(c),
            }
        }
        self.rest = &self.rest[end..];
        (!name.is_empty()).then_some(Step::Field(name))
    }

    fn bracket(&mut self) -> Option<Step> {
        self.spaces();
        if self.eat("?(") {
            self.nested += 1;
            let filter = (self.nested <= MAX_NESTED).then(|| self.filter()).flatten();
            self.nested -= 1;
            return filter;
        }
        if self.eat("*]") {
            return Some(Step::Any);
        }
        let mut steps = Vec::new();
        loop {
            self.spaces();
            steps.push(self.subscript()?);
            self.spaces();
            if self.eat("]") {
                break;
            }
            if !self.eat(",") {
                return None;
            }
        }
        if steps.len() == 1 {
            steps.pop()
        } else {
            Some(Step::Union(steps))
        }
    }

    fn subscript(&mut self) -> Option<Step> {
        if let Some(text) = self.quoted() {
            return Some(Step::Field(text));
        }
        let end = self.rest.find([']', ','])?;
        let text = self.rest[..end].trim();
        self.rest = &self.rest[end..];
        let number = |text: &str| {
            if text.is_empty() {
                Some(None)
            } else {
                text.parse::<i64>().ok().map(Some)
            }
        };
        let parts: Vec<&str> = text.split(':').collect();
        match parts.as_slice() {
            [one] => {
                let at = one.parse::<i64>().ok()?;
                Some(Step::Slice(
                    Some(at),
                    if at == -1 { None } else { Some(at + 1) },
                    1,
                ))
            }
            [from, to] => Some(Step::Slice(number(from)?, number(to)?, 1)),
            [from, to, step] => Some(Step::Slice(
                number(from)?,
                number(to)?,
                number(step)?.unwrap_or(1),
            )),
            _ => None,
        }
    }

    fn quoted(&mut self) -> Option<String> {
        let quote = self
            .rest
            .chars()
            .next()
            .filter(|c| matches!(c, '\'' | '"'))?;
        let mut text = String::new();
        let mut chars = self.rest[1..].char_indices();
        while let Some((at, c)) = chars.next() {
            if c == quote {
                self.rest = &self.rest[at + 2..];
                return Some(text);
            }
            text.push(if c == '\\' { chars.next()?.1 } else { c });
        }
        None
    }

    fn filter(&mut self) -> Option<Step> {
        self.spaces();
        let left = self.steps()?;
        self.spaces();
        for operator in ["==", "!=", "<=", ">=", "<", ">"] {
            if self.eat(operator) {
                self.spaces();
                let right = self.operand()?;
                self.spaces();
                return (self.eat(")") && self.eat("]"))
                    .then(|| Step::Filter(left, operator.to_owned(), right));
            }
        }
        (self.eat(")") && self.eat("]"))
            .then(|| Step::Filter(left, "exists".to_owned(), Operand::None))
    }

    fn operand(&mut self) -> Option<Operand> {
        if let Some(text) = self.quoted() {
            return Some(Operand::Literal(text.into()));
        }
        if self.rest.starts_with(['@', '$', '.']) {
            return self.steps().map(Operand::Path);
        }
        let end = self.rest.find([')', ' '])?;
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        serde_json::from_str(text).ok().map(Operand::Literal)
    }
}

/// The steps that walks may still take.
#[derive(Debug)]
pub struct Budget(Cell<usize>);

impl Default for Budget {
    fn default() -> Self {
        Self(Cell::new(MAX_STEPS))
    }
}

impl Budget {
    /// Takes a step; false if there is none left.
    fn step(&self) -> bool {
        let left = self.0.get();
        self.0.set(left.saturating_sub(1));
        left > 0
    }
}

/// Values that lead on from the same step of a path.
struct Level<'a> {
    /// The step that comes next.
    next: usize,
    /// The levels that `..` has gone down.
    depth: usize,
    values: Box<dyn Iterator<Item = &'a Value> + 'a>,
}

/// The first value that a path leads to, found depth first, without looking for others.
fn first<'a>(path: &'a [Step], root: &'a Value, budget: &'a Budget) -> Option<&'a Value> {
    let mut levels = vec![Level {
        next: 0,
        depth: 0,
        values: Box::new(iter::once(root)),
    }];
    while let Some(level) = levels.last_mut() {
        let (next, depth) = (level.next, level.depth);
        let Some(value) = level.values.next() else {
            levels.pop();
            continue;
        };
        if !budget.step() {
            return None;
        }
        match path.get(next) {
            None => return Some(value),
            Some(Step::Descend) => {
                if depth < MAX_DEPTH {
                    levels.push(Level {
                        next,
                        depth: depth + 1,
                        values: children(value),
                    });
                }
                levels.push(Level {
                    next: next + 1,
                    depth: 0,
                    values: Box::new(iter::once(value)),
                });
            }
            Some(step) => levels.push(Level {
                next: next + 1,
                depth: 0,
                values: advance(step, value, budget),
            }),
        }
    }
    None
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Object(entries) => Box::new(entries.values()),
        Value::Array(items) => Box::new(items.iter()),
        _ => Box::new(iter::empty()),
    }
}

fn advance<'a>(
    step: &'a Step,
    value: &'a Value,
    budget: &'a Budget,
) -> Box<dyn Iterator<Item = &'a Value> + 'a> {
    match (step, value) {
        (Step::Field(name), Value::Object(entries)) => Box::new(entries.get(name).into_iter()),
        (Step::Any, value) => children(value),
        (Step::Slice(from, to, step), Value::Array(items)) => {
            Box::new(slice(items, *from, *to, *step))
        }
        (Step::Filter(left, operator, right), Value::Array(items)) => {
            let meets = move |item: &&Value| {
                budget.step() && meets_condition(item, left, operator, right, budget)
            };
            Box::new(items.iter().filter(meets))
        }
        (Step::Union(steps), value) => {
            let each = move |step| budget.step().then(|| advance(step, value, budget));
            Box::new(steps.iter().filter_map(each).flatten())
        }
        _ => Box::new(iter::empty()),
    }
}

fn slice(
    items: &[Value],
    from: Option<i64>,
    to: Option<i64>,
    step: i64,
) -> impl Iterator<Item = &Value> {
    let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let place = |at: i64| {
        if at < 0 {
            at.saturating_add(length)
        } else {
            at
        }
    };
    let (from, to) = (
        place(from.unwrap_or(0)).max(0),
        place(to.unwrap_or(length)).min(length),
    );
    let step = usize::try_from(step).unwrap_or(1).max(1);
    let range = usize::try_from(from).unwrap_or(0)..usize::try_from(to).unwrap_or(0);
    let items = items.get(range).unwrap_or_default();
    items.iter().step_by(step)
}

/// Reports whether an item meets the condition of a filter.
fn meets_condition(
    item: &Value,
    left: &[Step],
    operator: &str,
    right: &Operand,
    budget: &Budget,
) -> bool {
    let Some(left) = first(left, item, budget) else {
        return false;
    };
    let other = match right {
        Operand::None => return true,
        Operand::Literal(value) => Some(value),
        Operand::Path(steps) => first(steps, item, budget),
    };
    let Some(right) = other else { return false };
    let order = match (left, right) {
        (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (a, b) if a == b => Some(Ordering::Equal),
        _ => None,
    };
    match operator {
        "==" => order.is_some_and(Ordering::is_eq),
        "!=" => !order.is_some_and(Ordering::is_eq),
        "<" => order.is_some_and(Ordering::is_lt),
        "<=" => order.is_some_and(Ordering::is_le),
        ">" => order.is_some_and(Ordering::is_gt),
        _ => order.is_some_and(Ordering::is_ge),
    }
}

/// A value as a column of strings shows it: text as it is, containers as JSON.
pub fn print(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".to_owned(),
        Value::Number(number) if number.is_f64() => {
            go::sprint_float(number.as_f64().unwrap_or(0.0))
        }
        Value::Object(_) | Value::Array(_) => {
            let mut sorted = value.clone();
            sorted.sort_all_objects();
            sorted.to_string()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    #[test]
    fn paths_lead_to_values() {
        let object = json!({"a": {"b.c": 1}, "l": [{"t": "x", "v": 1}, {"t": "y", "v": 2.5}], "s": ["p", "q", "r"]});
        let cases = [
            (".a['b.c']", vec!["1"]),
            (".a.b\\.c", vec!["1"]),
            (".l[?(@.t==\"y\")].v", vec!["2.5"]),
            (".l[?(@.v>1)].t", vec!["y"]),
            (".l[*].t", vec!["x", "y"]),
            (".s[0]", vec!["p"]),
            (".s[-1]", vec!["r"]),
            (".s[0:2]", vec!["p", "q"]),
            ("..t", vec!["x", "y"]),
            (".s[5,1,0]", vec!["q", "p"]),
            (".none.at.all", vec![]),
        ];
        for (path, want) in cases {
            let path = JsonPath::parse(path).expect("a path");
            let found = path.first(&object, &Budget::default()).map(print);
            assert_eq!(found.as_deref(), want.first().copied(), "{path:?}");
        }
        for wrong in [".a[", ".l[?(@.t==)]", "a b"] {
            assert_eq!(JsonPath::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn paths_that_multiply_are_given_up() {
        let inner = Value::Array(vec![json!({"a": {"b": [1, 2]}}); 200]);
        let object = json!({"l": inner.clone(), "m": inner});
        let (descents, conditions) = ("..[*]".repeat(20), "[?(@..[*]..[*].z)]".repeat(3));
        for path in [format!("{descents}.none"), format!(".l{conditions}")] {
            let path = JsonPath::parse(&path).expect("a path");
            let budget = Budget::default();
            assert_eq!(path.first(&object, &budget), None);
        }
        let mut many = vec![json!({"t": "x"}); 10_000];
        many.push(json!({"t": "y", "v": 1}));
        let (many, budget) = (Value::Array(many), Budget::default());
        let path = JsonPath::parse("[?(@.t==\"y\")].v").expect("a path");
        assert_eq!(path.first(&many, &budget), Some(&json!(1)));
        let nested = format!("{}.a{}", ".l[?(@".repeat(100), ")]".repeat(100));
        assert_eq!(JsonPath::parse(&nested), None);
    }
}
