//! Match conditions of policies and of webhooks (apiserver
//! `admission/plugin/webhook/matchconditions`).

use std::time::Instant;

use super::activation::{Activation, Inputs};
use super::compiler::{Compiler, Declarations, Expression, Returns, Variables};
use super::evaluation::evaluate_one;
use crate::admission::observation::ConditionLabels;
use crate::auth::authz::aggregate;
use crate::cel::{Value, metrics};
use crate::meta::{self, str_at};

/// A condition by its name. Its expression returns a bool.
#[derive(Debug)]
pub struct MatchCondition {
    pub name: String,
    pub expression: Expression,
}

/// Compiles conditions as they are written in policies and webhooks.
pub fn compile_conditions(
    compiler: &Compiler,
    conditions: &[meta::Value],
    declarations: Declarations,
) -> Vec<MatchCondition> {
    let compile = |condition: &meta::Value| MatchCondition {
        name: str_at(condition, "/name").to_owned(),
        expression: compiler.compile(
            str_at(condition, "/expression"),
            Returns::Bool,
            declarations,
        ),
    };
    conditions.iter().map(compile).collect()
}

/// Reports whether conditions hold.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Match {
    Matches,
    /// The condition of this name is false; without one, an error counts as such.
    DoesNotMatch(Option<String>),
    /// None is false, and not all could be evaluated.
    Error(String),
}

/// Evaluates match conditions within their own budget. `fails` is true where the failure policy is
/// `Fail`. Conditions do not see the namespace object.
pub async fn matches(
    conditions: &[MatchCondition],
    variables: &Variables,
    inputs: Inputs<'_>,
    fails: bool,
    labels: ConditionLabels<'_>,
) -> Match {
    let start = Instant::now();
    let (result, errors) = evaluate(conditions, variables, inputs, fails).await;
    metrics::evaluated(start);
    labels.evaluated(errors, start.elapsed());
    result
}

/// Evaluates conditions; returns how many of them failed before the first that is false, too.
async fn evaluate(
    conditions: &[MatchCondition],
    variables: &Variables,
    inputs: Inputs<'_>,
    fails: bool,
) -> (Match, usize) {
    let failure = |why: String| match fails {
        true => Match::Error(why),
        false => Match::DoesNotMatch(None),
    };
    let inputs = Inputs {
        namespace: None,
        ..inputs
    };
    let mut activation = Activation::new(variables, inputs);
    let mut budget = super::MATCH_CONDITIONS_COST_BUDGET;
    let (mut errors, mut not_met) = (Vec::new(), None);
    // All are evaluated before any counts: the budget may end at the last.
    for condition in conditions {
        match evaluate_one(&mut activation, &condition.expression, &mut budget).await {
            // An evaluation that cannot go on is not counted as a condition that failed.
            Err(ended) => return (failure(ended.to_string()), 0),
            Ok(Err(why)) => errors.push(why),
            Ok(Ok(Value::Bool(false))) if not_met.is_none() => {
                not_met = Some((&condition.name, errors.len()));
            }
            Ok(Ok(_)) => {}
        }
    }
    match not_met {
        Some((name, failed)) => (Match::DoesNotMatch(Some(name.clone())), failed),
        None if errors.is_empty() => (Match::Matches, 0),
        None => (failure(aggregate(&errors)), errors.len()),
    }
}
