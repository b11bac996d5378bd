//! Label selectors: `a=b,c!=d,e in (f,g),!h` and LabelSelector objects (apimachinery `labels`).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::FieldReader;
use super::many::{FEW, ManyLabels};
use crate::meta::field::{ErrorList, FieldError, Path};
use crate::meta::{Map, Value, names, str_at};

/// The operator of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    In,
    NotIn,
    Equals,
    NotEquals,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// One condition on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    /// Sorted and unique.
    pub values: Vec<String>,
}

/// All of the requirements must hold; without any, everything matches.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LabelSelector {
    pub requirements: Vec<Requirement>,
    /// Set for a LabelSelector object that is absent: it selects nothing.
    pub nothing: bool,
    /// The requirements by their labels, where there are many.
    many: Option<Arc<ManyLabels>>,
}

impl Requirement {
    /// A requirement whose operator fits its values. `path` is where errors point to.
    fn new(
        key: String,
        operator: Operator,
        values: BTreeSet<String>,
        path: Option<&Path>,
    ) -> Result<Self, String> {
        let values: Vec<String> = values.into_iter().collect();
        let values_path = path.map_or_else(|| Path::new("values"), |path| path.child("values"));
        let mut errors = ErrorList::new();
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                errors.invalid(
                    &values_path,
                    Value::Array(vec![]),
                    "for 'in', 'notin' operators, values set can't be empty",
                );
            }
            Operator::GreaterThan | Operator::LessThan => {
                for (index, value) in values.iter().enumerate() {
                    if value.parse::<i64>().is_err() {
                        let why = "for 'Gt', 'Lt' operators, the value must be an integer";
                        errors.invalid(&values_path.index(index), value.clone(), why);
                    }
                }
            }
            _ => {}
        }
        for (index, value) in values.iter().enumerate() {
            let wrong = names::label_value(value);
            if !wrong.is_empty() {
                errors.invalid(
                    &values_path.index(index).key(&key),
                    value.clone(),
                    wrong.join("; "),
                );
            }
        }
        match errors.len() {
            0 => Ok(Self {
                key,
                operator,
                values,
            }),
            1 => Err(errors[0].to_string()),
            _ => Err(format!(
                "[{}]",
                errors
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(", ")
            )),
        }
    }

    /// Reads one of `matchExpressions`.
    ///
    /// # Errors
    /// The message that clients know.
    pub fn from_expression(expression: &Value) -> Result<Self, String> {
        let operator = match str_at(expression, "/operator") {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            other => {
                return Err(format!(
                    "\"{other}\" is not a valid label selector operator"
                ));
            }
        };
        let values = expression
            .get("values")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let values = values
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        Self::new(
            str_at(expression, "/key").to_owned(),
            operator,
            values,
            None,
        )
    }

    fn matches(&self, value: Option<&str>) -> bool {
        let has = |value: &str| {
            self.values
                .binary_search_by(|one| one.as_str().cmp(value))
                .is_ok()
        };
        match (self.operator, value) {
            (Operator::In | Operator::Equals, Some(value)) => has(value),
            (Operator::NotIn | Operator::NotEquals, Some(value)) => !has(value),
            (Operator::NotIn | Operator::NotEquals, None) => true,
            (Operator::Exists, value) => value.is_some(),
            (Operator::DoesNotExist, value) => value.is_none(),
            (Operator::GreaterThan | Operator::LessThan, Some(value)) => {
                let (Ok(value), Some(Ok(bound))) = (
                    value.parse::<i64>(),
                    self.values.first().map(|bound| bound.parse::<i64>()),
                ) else {
                    return false;
                };
                if self.operator == Operator::GreaterThan {
                    value > bound
                } else {
                    value < bound
                }
            }
            (_, None) => false,
        }
    }
}

impl LabelSelector {
    /// Reads the query form. Errors are the texts that clients know.
    ///
    /// # Errors
    /// The message that clients know.
    pub fn parse(text: &str) -> Result<Self, String> {
        Ok(Self::all_of(
            Parser {
                tokens: lex(text),
                at: 0,
            }
            .parse()?,
        ))
    }

    /// Reads a LabelSelector object (`matchLabels`, `matchExpressions`); absent selects nothing,
    /// empty everything.
    ///
    /// # Errors
    /// The message that clients know.
    pub fn from_object(selector: Option<&Value>) -> Result<Self, String> {
        let Some(selector) = selector.filter(|selector| !selector.is_null()) else {
            return Ok(Self {
                nothing: true,
                ..Self::default()
            });
        };
        let mut requirements = Vec::new();
        for (key, value) in selector
            .get("matchLabels")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let values = BTreeSet::from([value.as_str().unwrap_or("").to_owned()]);
            requirements.push(Requirement::new(
                key.to_string(),
                Operator::In,
                values,
                None,
            )?);
        }
        for expression in selector
            .get("matchExpressions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            requirements.push(Requirement::from_expression(expression)?);
        }
        Ok(Self::all_of(requirements))
    }

    fn all_of(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        let many = (requirements.len() > FEW).then(|| Arc::new(ManyLabels::of(&requirements)));
        Self {
            requirements,
            nothing: false,
            many,
        }
    }

    /// Reports whether everything matches.
    pub fn is_empty(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    pub fn matches(&self, labels: Option<&Map>) -> bool {
        let label = |key: &str| {
            labels
                .and_then(|labels| labels.get(key))
                .and_then(Value::as_str)
        };
        !self.nothing
            && self
                .requirements
                .iter()
                .all(|one| one.matches(label(&one.key)))
    }

    /// Like [`LabelSelector::matches`], with the labels of an object in any form.
    pub fn selects(&self, object: &dyn FieldReader) -> bool {
        match &self.many {
            _ if self.nothing => false,
            Some(many) => many.match_all(|look| object.each_label(look)),
            None => self
                .requirements
                .iter()
                .all(|one| one.matches(object.label(&one.key).as_deref())),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Identifier,
    In,
    NotIn,
    OpenPar,
    ClosedPar,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    NotEquals,
    Greater,
    Less,
    Broken,
    End,
}

type Token<'a> = (Kind, &'a str);

const SPECIAL: &[u8] = b"=!(),><";

fn lex(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if matches!(bytes[at], b' ' | b'\t' | b'\r' | b'\n') {
            at += 1;
            continue;
        }
        let (kind, len) = if SPECIAL.contains(&bytes[at]) {
            special(&bytes[at..])
        } else {
            word(&bytes[at..])
        };
        tokens.push((kind, &text[at..at + len]));
        at += len;
    }
    tokens.push((Kind::End, ""));
    tokens
}

fn special(rest: &[u8]) -> (Kind, usize) {
    match rest {
        [b'=', b'=', ..] => (Kind::DoubleEquals, 2),
        [b'!', b'=', ..] => (Kind::NotEquals, 2),
        [b'=', ..] => (Kind::Equals, 1),
        [b'!', ..] => (Kind::Not, 1),
        [b'(', ..] => (Kind::OpenPar, 1),
        [b')', ..] => (Kind::ClosedPar, 1),
        [b',', ..] => (Kind::Comma, 1),
        [b'>', ..] => (Kind::Greater, 1),
        [b'<', ..] => (Kind::Less, 1),
        _ => (Kind::Broken, 1),
    }
}

fn word(rest: &[u8]) -> (Kind, usize) {
    let ends = |byte: &u8| SPECIAL.contains(byte) || matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let len = rest.iter().position(ends).unwrap_or(rest.len());
    match &rest[..len] {
        b"in" => (Kind::In, len),
        b"notin" => (Kind::NotIn, len),
        _ => (Kind::Identifier, len),
    }
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Parser<'a> {
    /// The next token, left in place. Where a value may stand, `in` and `notin` are ordinary words.
    fn peek(&self) -> Token<'a> {
        let (kind, text) = self.tokens.get(self.at).copied().unwrap_or((Kind::End, ""));
        (
            if matches!(kind, Kind::In | Kind::NotIn) {
                Kind::Identifier
            } else {
                kind
            },
            text,
        )
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn parse(&mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                (Kind::Identifier | Kind::Not, _) => {
                    requirements.push(
                        self.requirement()
                            .map_err(|why| format!("unable to parse requirement: {why}"))?,
                    );
                    match self.next() {
                        (Kind::End, _) => return Ok(requirements),
                        (Kind::Comma, _) => match self.peek() {
                            (Kind::Identifier | Kind::Not, _) => {}
                            (_, text) => {
                                return Err(format!(
                                    "found '{text}', expected: identifier after ','"
                                ));
                            }
                        },
                        (_, text) => {
                            return Err(format!(
                                "found '{text}', expected: ',' or 'end of string'"
                            ));
                        }
                    }
                }
                (Kind::End, _) => return Ok(requirements),
                (_, text) => {
                    return Err(format!(
                        "found '{text}', expected: !, identifier, or 'end of string'"
                    ));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let mut negated = false;
        let (mut kind, mut key) = self.next();
        if kind == Kind::Not {
            negated = true;
            (kind, key) = self.next();
        }
        if kind != Kind::Identifier {
            return Err(format!("found '{key}', expected: identifier"));
        }
        let wrong = names::label_key(key);
        if !wrong.is_empty() {
            return Err(FieldError::invalid(&Path::default(), key, wrong.join("; ")).to_string());
        }
        let key = key.to_owned();
        if negated {
            return Requirement::new(key, Operator::DoesNotExist, BTreeSet::new(), None);
        }
        if matches!(self.peek().0, Kind::End | Kind::Comma) {
            return Requirement::new(key, Operator::Exists, BTreeSet::new(), None);
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => self.exact_value()?,
        };
        Requirement::new(key, operator, values, None)
    }

    fn operator(&mut self) -> Result<Operator, String> {
        let (kind, text) = self.tokens.get(self.at).copied().unwrap_or((Kind::End, ""));
        self.at += 1;
        Ok(match kind {
            Kind::In => Operator::In,
            Kind::NotIn => Operator::NotIn,
            Kind::Equals | Kind::DoubleEquals => Operator::Equals,
            Kind::NotEquals => Operator::NotEquals,
            Kind::Greater => Operator::GreaterThan,
            Kind::Less => Operator::LessThan,
            _ => {
                return Err(format!(
                    "found '{text}', expected: in, notin, =, ==, !=, gt, lt"
                ));
            }
        })
    }

    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        let (kind, text) = self.next();
        if kind != Kind::OpenPar {
            return Err(format!("found '{text}' expected: '('"));
        }
        match self.peek() {
            (Kind::Identifier | Kind::Comma, first) => {
                let values = self.identifiers()?;
                if self.next().0 != Kind::ClosedPar {
                    return Err(format!("found '{first}', expected: ')'"));
                }
                Ok(values)
            }
            (Kind::ClosedPar, _) => {
                self.next();
                Ok(BTreeSet::from([String::new()]))
            }
            (_, text) => Err(format!("found '{text}', expected: ',', ')' or identifier")),
        }
    }

    fn identifiers(&mut self) -> Result<BTreeSet<String>, String> {
        let mut values = BTreeSet::new();
        loop {
            match self.next() {
                (Kind::Identifier, text) => {
                    values.insert(text.to_owned());
                    match self.peek() {
                        (Kind::Comma, _) => {}
                        (Kind::ClosedPar, _) => return Ok(values),
                        (_, text) => return Err(format!("found '{text}', expected: ',' or ')'")),
                    }
                }
                (Kind::Comma, _) => {
                    if values.is_empty() {
                        values.insert(String::new());
                    }
                    match self.peek().0 {
                        Kind::ClosedPar => {
                            values.insert(String::new());
                            return Ok(values);
                        }
                        Kind::Comma => {
                            values.insert(String::new());
                        }
                        _ => {}
                    }
                }
                (_, text) => return Err(format!("found '{text}', expected: ',', or identifier")),
            }
        }
    }

    fn exact_value(&mut self) -> Result<BTreeSet<String>, String> {
        if matches!(self.peek().0, Kind::End | Kind::Comma) {
            return Ok(BTreeSet::from([String::new()]));
        }
        match self.next() {
            (Kind::Identifier, text) => Ok(BTreeSet::from([text.to_owned()])),
            (_, text) => Err(format!("found '{text}', expected: identifier")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::{Object, json};

    #[test]
    fn many_requirements_hold_as_one_by_one() {
        let padding: Vec<String> = (0..=FEW).map(|number| format!("!absent{number}")).collect();
        let objects: Vec<Object> = [
            json!({}),
            json!({"a": "1"}),
            json!({"a": "5", "b": "x"}),
            json!({"a": "x", "absent3": ""}),
            json!({"b": ""}),
        ]
        .into_iter()
        .map(|labels| {
            Object::from_value(json!({"metadata": {"labels": labels}})).expect("an object")
        })
        .collect();
        for text in [
            "a",
            "!a",
            "a=1",
            "a!=1",
            "a in (1,5)",
            "a notin (1,5)",
            "a>2",
            "a<2",
            "a>2,a<9",
            "a>2,a>7",
            "a in (1,5),a in (5,6)",
            "a=1,a=5",
            "a,!a",
            "a!=1,b",
            "b=",
            "a notin (1),a notin (5)",
            "a>x",
        ] {
            let Ok(few) = LabelSelector::parse(text) else {
                continue;
            };
            let many =
                LabelSelector::parse(&format!("{text},{}", padding.join(","))).expect("valid");
            assert!(few.many.is_none() && many.many.is_some());
            for object in &objects {
                let want = many.matches(object.labels());
                assert_eq!(
                    (many.selects(object), few.selects(object) && want),
                    (want, want),
                    "{text} {object:?}"
                );
            }
        }
    }

    #[test]
    fn selectors_match_as_kubectl_users_expect() {
        let labels = json!({"app": "web", "tier": "3", "in": "x"});
        let checks = [
            ("", true),
            ("app=web", true),
            ("app==web,tier!=4", true),
            ("app!=web", false),
            ("none!=x", true),
            ("app in (api, web)", true),
            ("app notin (api,web)", false),
            ("none notin (a)", true),
            ("app,!none", true),
            ("!app", false),
            ("tier>2,tier<4", true),
            ("tier>3", false),
            ("in=x", true),
            ("none in ()", false),
        ];
        for (text, want) in checks {
            let selector = LabelSelector::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!(selector.matches(labels.as_object()), want, "{text}");
        }
    }

    #[test]
    fn errors_are_the_ones_clients_know() {
        let checks = [
            (
                "=x",
                "found '=', expected: !, identifier, or 'end of string'",
            ),
            (
                "app in",
                "unable to parse requirement: found '' expected: '('",
            ),
            (
                "app in (web",
                "unable to parse requirement: found '', expected: ',' or ')'",
            ),
            ("app,,b", "found ',', expected: identifier after ','"),
            ("app=a b", "found 'b', expected: ',' or 'end of string'"),
            (
                "bad key!",
                "unable to parse requirement: found 'key', expected: in, notin, =, ==, !=, gt, lt",
            ),
            (
                "!!app",
                "unable to parse requirement: found '!', expected: identifier",
            ),
        ];
        for (text, want) in checks {
            assert_eq!(LabelSelector::parse(text), Err(want.to_owned()), "{text}");
        }
    }

    #[test]
    fn an_absent_selector_object_selects_nothing_and_an_empty_one_everything() {
        assert!(
            !LabelSelector::from_object(None)
                .expect("valid")
                .matches(None)
        );
        assert!(
            LabelSelector::from_object(Some(&json!({})))
                .expect("valid")
                .matches(None)
        );
    }
}
