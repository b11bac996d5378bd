//! Evaluates expressions within a budget (apiserver `admission/plugin/cel/activation.go`
//! `Evaluate`, `condition.go` `ForInput`).

use std::fmt;
use std::time::Instant;

use super::activation::{Activation, Inputs};
use super::compiler::{Expression, Variables};
use crate::cel::{Error, Value, metrics};

/// The result of an expression.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Evaluation {
    /// There was no expression.
    Placeholder,
    /// It could not be evaluated; the text says why.
    Error(String),
    Bool(bool),
    String(String),
    Null,
    /// A value of another type, by its name.
    Other(String),
}

/// The reason why no further expression is evaluated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EvaluationError {
    OutOfBudget,
}

impl fmt::Display for EvaluationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfBudget => f.write_str(
                "validation failed due to running out of cost budget, no further validation \
                 rules will be run",
            ),
        }
    }
}

impl std::error::Error for EvaluationError {}

/// Evaluates expressions one after the other and takes their costs, and those of the variables that
/// they name, from a budget. `None` stands for an expression that is not there.
///
/// # Errors
/// The budget is spent.
pub async fn evaluate(
    expressions: &[Option<Expression>],
    variables: &Variables,
    inputs: Inputs<'_>,
    budget: &mut u64,
) -> Result<Vec<Evaluation>, EvaluationError> {
    let begun = Instant::now();
    let mut activation = Activation::new(variables, inputs);
    let mut evaluations = Vec::with_capacity(expressions.len());
    for expression in expressions {
        evaluations.push(match expression {
            None => Evaluation::Placeholder,
            Some(expression) => match evaluate_one(&mut activation, expression, budget).await? {
                Err(why) => Evaluation::Error(why),
                Ok(Value::Bool(value)) => Evaluation::Bool(value),
                Ok(Value::String(text)) => Evaluation::String(text.as_str().to_owned()),
                Ok(Value::Null) => Evaluation::Null,
                Ok(value) => Evaluation::Other(value.type_name().to_owned()),
            },
        });
    }
    metrics::evaluated(begun);
    Ok(evaluations)
}

/// Evaluates one expression: its value, or why there is none.
pub(super) async fn evaluate_one<'a>(
    activation: &mut Activation<'a>,
    expression: &Expression,
    budget: &mut u64,
) -> Result<Result<Value<'a>, String>, EvaluationError> {
    if let Some(error) = expression.error() {
        return Ok(Err(format!("compilation error: {error}")));
    }
    loop {
        let Some(outcome) = activation.evaluate(expression) else {
            return Ok(Err(
                "unexpected internal error compiling expression".to_owned()
            ));
        };
        if let (Err(Error::Suspended), Some(authorizer)) =
            (&outcome.value, activation.inputs().authorizer)
            && authorizer.answer().await
        {
            continue;
        }
        let cost = activation.take_cost().saturating_add(outcome.cost);
        *budget = budget
            .checked_sub(cost)
            .ok_or(EvaluationError::OutOfBudget)?;
        let text = expression.text();
        return Ok(outcome
            .value
            .map_err(|error| format!("expression '{text}' resulted in error: {error}")));
    }
}
