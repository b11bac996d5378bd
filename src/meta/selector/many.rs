//! Selectors with many requirements, grouped by label or field: one pass over an object, however
//! many there are.

use std::collections::{HashMap, HashSet};

use super::labels::{Operator, Requirement};

/// Number of requirements that are still checked one by one. A query may hold twenty thousand.
pub(super) const FEW: usize = 8;

/// All that is asked of one label or field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Condition {
    present: bool,
    absent: bool,
    /// The only values allowed; `None` for any.
    allowed: Option<HashSet<String>>,
    excluded: HashSet<String>,
    /// Bounds that an integer must be beyond.
    above: Option<i64>,
    below: Option<i64>,
}

impl Condition {
    /// Takes another requirement in.
    fn add(&mut self, requirement: &Requirement) {
        let values = || requirement.values.iter().cloned();
        self.present |= !matches!(
            requirement.operator,
            Operator::NotIn | Operator::NotEquals | Operator::DoesNotExist
        );
        match requirement.operator {
            Operator::In | Operator::Equals => self.allow(values().collect()),
            Operator::NotIn | Operator::NotEquals => self.excluded.extend(values()),
            Operator::Exists => {}
            Operator::DoesNotExist => self.absent = true,
            Operator::GreaterThan | Operator::LessThan => {
                let bound = requirement
                    .values
                    .first()
                    .and_then(|bound| bound.parse::<i64>().ok());
                match (bound, requirement.operator) {
                    (None, _) => self.allow(HashSet::new()),
                    (Some(bound), Operator::GreaterThan) => {
                        self.above = self.above.max(Some(bound))
                    }
                    (Some(bound), _) => {
                        self.below = Some(self.below.map_or(bound, |below| below.min(bound)))
                    }
                }
            }
        }
    }

    fn allow(&mut self, values: HashSet<String>) {
        self.allowed = Some(match self.allowed.take() {
            Some(before) => before.intersection(&values).cloned().collect(),
            None => values,
        });
    }

    /// Reports whether a value that is there is in order.
    fn takes(&self, value: &str) -> bool {
        let within = || {
            self.above.is_none() && self.below.is_none()
                || value.parse::<i64>().is_ok_and(|value| {
                    self.above.is_none_or(|above| value > above)
                        && self.below.is_none_or(|below| value < below)
                })
        };
        !self.absent
            && !self.excluded.contains(value)
            && self
                .allowed
                .as_ref()
                .is_none_or(|allowed| allowed.contains(value))
            && within()
    }
}

/// The requirements of a label selector by their labels.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ManyLabels {
    by_key: HashMap<String, Condition>,
    /// Number of labels that must exist.
    present: usize,
}

impl ManyLabels {
    pub fn of(requirements: &[Requirement]) -> Self {
        let mut by_key: HashMap<String, Condition> = HashMap::new();
        for requirement in requirements {
            by_key
                .entry(requirement.key.clone())
                .or_default()
                .add(requirement);
        }
        let present = by_key
            .values()
            .filter(|condition| condition.present)
            .count();
        Self { by_key, present }
    }

    /// Reports whether labels, which `each` goes through, satisfy all requirements.
    pub fn match_all(&self, each: impl FnOnce(&mut dyn FnMut(&str, &str))) -> bool {
        let (mut found, mut fit) = (0, true);
        each(&mut |key, value| {
            if let Some(condition) = self.by_key.get(key) {
                found += usize::from(condition.present);
                fit &= condition.takes(value);
            }
        });
        fit && found == self.present
    }
}

/// The terms of a field selector by their fields.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ManyFields(HashMap<String, Condition>);

impl ManyFields {
    pub fn of(terms: &[super::fields::Term]) -> Self {
        let mut by_field: HashMap<String, Condition> = HashMap::new();
        for term in terms {
            let condition = by_field.entry(term.field.clone()).or_default();
            if term.negated {
                condition.excluded.insert(term.value.clone());
            } else {
                condition.allow(HashSet::from([term.value.clone()]));
            }
        }
        Self(by_field)
    }

    /// Reports whether the values that `holds` shows satisfy all terms.
    pub fn match_all(&self, mut value_of: impl FnMut(&str, &dyn Fn(&str) -> bool) -> bool) -> bool {
        self.0
            .iter()
            .all(|(field, condition)| value_of(field, &|value| condition.takes(value)))
    }
}
