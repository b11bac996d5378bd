//! JSON paths as printer columns have them (client-go `util/jsonpath`), and how their results are
//! printed.

use crate::meta::{Value, go};

/// How deep `..` looks.
const MAX_DEPTH: usize = 64;

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
        let mut parser = Parser { rest: text.trim() };
        let steps = parser.steps()?;
        parser.rest.trim().is_empty().then_some(Self(steps))
    }

    /// Everything that the path leads to.
    pub fn find<'a>(&self, root: &'a Value) -> Vec<&'a Value> {
        walk(&self.0, vec![root])
    }
}

struct Parser<'a> {
    rest: &'a str,
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
            return self.filter();
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

fn walk<'a>(steps: &[Step], start: Vec<&'a Value>) -> Vec<&'a Value> {
    steps.iter().fold(start, |values, step| {
        values
            .into_iter()
            .flat_map(|value| advance(step, value))
            .collect()
    })
}

fn advance<'a>(step: &Step, value: &'a Value) -> Vec<&'a Value> {
    match (step, value) {
        (Step::Field(name), Value::Object(entries)) => entries.get(name).into_iter().collect(),
        (Step::Any, Value::Object(entries)) => entries.values().collect(),
        (Step::Any, Value::Array(items)) => items.iter().collect(),
        (Step::Descend, value) => descend(value, 0),
        (Step::Slice(from, to, step), Value::Array(items)) => slice(items, *from, *to, *step),
        (Step::Filter(left, operator, right), Value::Array(items)) => items
            .iter()
            .filter(|item| holds(item, left, operator, right))
            .collect(),
        (Step::Union(steps), value) => steps.iter().flat_map(|step| advance(step, value)).collect(),
        _ => Vec::new(),
    }
}

fn descend(value: &Value, depth: usize) -> Vec<&Value> {
    let mut out = vec![value];
    if depth < MAX_DEPTH {
        match value {
            Value::Object(entries) => {
                out.extend(entries.values().flat_map(|one| descend(one, depth + 1)))
            }
            Value::Array(items) => out.extend(items.iter().flat_map(|one| descend(one, depth + 1))),
            _ => {}
        }
    }
    out
}

fn slice(items: &[Value], from: Option<i64>, to: Option<i64>, step: i64) -> Vec<&Value> {
    let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let place = |at: i64| if at < 0 { at + length } else { at };
    let (from, to) = (
        place(from.unwrap_or(0)).max(0),
        place(to.unwrap_or(length)).min(length),
    );
    let step = usize::try_from(step).unwrap_or(1).max(1);
    let range = usize::try_from(from).unwrap_or(0)..usize::try_from(to).unwrap_or(0);
    items
        .get(range)
        .unwrap_or_default()
        .iter()
        .step_by(step)
        .collect()
}

fn holds(item: &Value, left: &[Step], operator: &str, right: &Operand) -> bool {
    let found = walk(left, vec![item]);
    let Some(left) = found.first() else {
        return false;
    };
    let other = match right {
        Operand::None => return true,
        Operand::Literal(value) => Some(value),
        Operand::Path(steps) => walk(steps, vec![item]).first().copied(),
    };
    let Some(right) = other else { return false };
    let order = match (left, right) {
        (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (a, b) if a == &right => Some(std::cmp::Ordering::Equal).filter(|_| a == &b),
        _ => None,
    };
    match operator {
        "==" => order.is_some_and(std::cmp::Ordering::is_eq),
        "!=" => !order.is_some_and(std::cmp::Ordering::is_eq),
        "<" => order.is_some_and(std::cmp::Ordering::is_lt),
        "<=" => order.is_some_and(std::cmp::Ordering::is_le),
        ">" => order.is_some_and(std::cmp::Ordering::is_gt),
        _ => order.is_some_and(std::cmp::Ordering::is_ge),
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
            (".none.at.all", vec![]),
        ];
        for (path, want) in cases {
            let path = JsonPath::parse(path).expect("a path");
            let found: Vec<String> = path.find(&object).into_iter().map(print).collect();
            assert_eq!(found, want, "{path:?}");
        }
        for wrong in [".a[", ".l[?(@.t==)]", "a b"] {
            assert_eq!(JsonPath::parse(wrong), None, "{wrong}");
        }
    }
}
