//! Field selectors: `metadata.name=a,spec.nodeName!=b` (apimachinery `fields`).

use std::borrow::Cow;
use std::sync::Arc;

use super::many::{FEW, ManyFields};

/// One condition on one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    pub field: String,
    pub value: String,
    pub negated: bool,
}

/// All of the terms must hold; without any, everything matches.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct FieldSelector {
    pub terms: Vec<Term>,
    /// The terms by their fields, where there are many.
    many: Option<Arc<ManyFields>>,
}

impl FieldSelector {
    /// Reads the query form. Errors are the texts that clients know.
    ///
    /// # Errors
    /// The message that clients know.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let Some((field, negated, value)) = split_term(part) else {
                return Err(format!(
                    "invalid selector: '{text}'; can't understand '{part}'"
                ));
            };
            terms.push(Term {
                field: field.to_owned(),
                value: unescape(value)?,
                negated,
            });
        }
        Ok(Self::of(terms))
    }

    /// The selector of one exact field.
    pub fn exactly(field: &str, value: &str) -> Self {
        Self {
            terms: vec![Term {
                field: field.to_owned(),
                value: value.to_owned(),
                negated: false,
            }],
            many: None,
        }
    }

    /// The terms on the fields that `takes` takes.
    pub fn only(&self, takes: impl Fn(&str) -> bool) -> Self {
        let kept = self.terms.iter().filter(|term| takes(&term.field));
        Self::of(kept.cloned().collect())
    }

    fn of(terms: Vec<Term>) -> Self {
        let many = (terms.len() > FEW).then(|| Arc::new(ManyFields::of(&terms)));
        Self { terms, many }
    }

    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The value that `field` must have, where the selector names one.
    pub fn required(&self, field: &str) -> Option<&str> {
        self.terms
            .iter()
            .find(|term| !term.negated && term.field == field)
            .map(|term| term.value.as_str())
    }

    /// Reports whether the terms hold for the values that `look_up` gives.
    pub fn matches<'a>(&self, look_up: impl Fn(&str) -> Cow<'a, str>) -> bool {
        if let Some(many) = &self.many {
            return many.match_all(|field, takes| takes(&look_up(field)));
        }
        self.terms
            .iter()
            .all(|term| (look_up(&term.field) == term.value) != term.negated)
    }
}

/// Splits at commas that no backslash escapes.
fn split_terms(text: &str) -> Vec<&str> {
    if text.is_empty() {
        return Vec::new();
    }
    let (mut terms, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// The field, whether the operator negates, and the escaped value.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    for (at, _) in term.char_indices() {
        let rest = &term[at..];
        for (operator, negated) in [("!=", true), ("==", false), ("=", false)] {
            if let Some(value) = rest.strip_prefix(operator) {
                return Some((&term[..at], negated, value));
            }
        }
    }
    None
}

/// Undoes the escapes `\\`, `\,` and `\=`.
fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
                Some(other) => {
                    return Err(format!(
                        "invalid field selector: invalid escape sequence: \\{other}"
                    ));
                }
                None => {
                    return Err("invalid field selector: invalid escape sequence: \\".to_owned());
                }
            },
            ',' | '=' => return Err(format!("invalid field selector: unescaped {c} in value")),
            other => out.push(other),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_split_and_unescaped() {
        let selector = FieldSelector::parse(r"metadata.name=a\,b,spec.nodeName!=n").expect("valid");
        assert_eq!(selector.required("metadata.name"), Some("a,b"));
        assert!(selector.matches(|field| if field == "metadata.name" {
            "a,b".into()
        } else {
            "other".into()
        }));
        assert!(!selector.matches(|field| if field == "metadata.name" {
            "a,b".into()
        } else {
            "n".into()
        }));
    }

    #[test]
    fn many_terms_hold_as_one_by_one() {
        let others: Vec<String> = (0..=FEW).map(|number| format!("a!=x{number}")).collect();
        for (text, values) in [
            ("a=1", ["1", "2"]),
            ("a!=1,b=3", ["2", "1"]),
            ("a=1,a=2", ["none", "1"]),
        ] {
            let many =
                FieldSelector::parse(&format!("{text},{}", others.join(","))).expect("valid");
            assert!(many.many.is_some());
            let holds = |value: &'static str| {
                many.matches(|field| {
                    if field == "a" {
                        value.into()
                    } else {
                        "3".into()
                    }
                })
            };
            assert_eq!(
                (holds(values[0]), holds(values[1]), holds("x3")),
                (values[0] != "none", false, false),
                "{text}"
            );
        }
    }

    #[test]
    fn errors_are_the_ones_clients_know() {
        assert_eq!(
            FieldSelector::parse("nonsense"),
            Err("invalid selector: 'nonsense'; can't understand 'nonsense'".to_owned())
        );
        assert_eq!(
            FieldSelector::parse("metadata.name=a,b"),
            Err("invalid selector: 'metadata.name=a,b'; can't understand 'b'".to_owned())
        );
    }
}
