//! The values of variables for one evaluation (apiserver `admission/plugin/cel/activation.go`,
//! `composition.go`).

use super::authorizations::Authorizations;
use super::compiler::{Declarations, Expression, Name, Variable, Variables};
use super::request::{self, Request};
use crate::cel::{Activation as Values, Error, Outcome, PER_CALL_LIMIT, ResourceAccess, Value};
use crate::meta::Object;

/// The maximum number of variables that may be evaluated one within the other. Each takes a part of
/// the stack.
const MAX_DEPTH: usize = 64;

/// The inputs of expressions.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    pub object: Option<&'a Object>,
    pub old_object: Option<&'a Object>,
    pub request: &'a Request<'a>,
    pub params: Option<&'a Object>,
    /// The namespace of the object as it is stored.
    pub namespace: Option<&'a Object>,
    /// The authorizer of the variables about it; `None` where expressions must not ask it.
    pub authorizer: Option<&'a Authorizations>,
}

/// The variables of one or more expressions about the same inputs. Composited variables are
/// evaluated when they are first asked for, and once.
pub(super) struct Activation<'a> {
    inputs: Inputs<'a>,
    variables: &'a Variables,
    known: Vec<Option<Result<Value<'a>, Error>>>,
    request: Option<Value<'a>>,
    namespace: Option<Value<'a>>,
    depth: usize,
    /// The cost of the composited variables that have been evaluated.
    cost: u64,
}

impl<'a> Activation<'a> {
    pub(super) fn new(variables: &'a Variables, inputs: Inputs<'a>) -> Self {
        Self {
            inputs,
            variables,
            known: vec![None; variables.0.len()],
            request: None,
            namespace: None,
            depth: 0,
            cost: 0,
        }
    }

    pub(super) fn inputs(&self) -> &Inputs<'a> {
        &self.inputs
    }

    /// The cost of the composited variables that have been evaluated since it was last taken.
    pub(super) fn take_cost(&mut self) -> u64 {
        std::mem::take(&mut self.cost)
    }

    /// Evaluates an expression that compiled.
    pub(super) fn evaluate(&mut self, expression: &Expression) -> Option<Outcome<'a>> {
        let program = expression.program.as_ref().ok()?;
        let mut bound = Bound {
            declarations: expression.declarations,
            activation: self,
        };
        Some(program.evaluate_with(&mut bound, PER_CALL_LIMIT))
    }

    fn value(&mut self, name: Name) -> Result<Value<'a>, Error> {
        let inputs = self.inputs;
        Ok(match name {
            Name::Object => request::object(inputs.object),
            Name::OldObject => request::object(inputs.old_object),
            Name::Params => request::object(inputs.params),
            Name::Request => {
                let known = self.request.get_or_insert_with(|| inputs.request.value());
                known.clone()
            }
            Name::NamespaceObject => {
                let known = self.namespace.get_or_insert_with(|| {
                    inputs.namespace.map_or(Value::Null, request::namespace)
                });
                known.clone()
            }
            Name::Authorizer | Name::RequestResource => {
                let authorizer = inputs.authorizer.ok_or_else(|| {
                    Error::new(format!("no such attribute(s): {}", name.as_str()))
                })?;
                match name {
                    Name::Authorizer => authorizer.value(),
                    _ => authorizer.request_resource(ResourceAccess {
                        group: inputs.request.request_resource.group.clone(),
                        resource: inputs.request.request_resource.resource.clone(),
                        subresource: inputs.request.request_sub_resource.to_owned(),
                        namespace: inputs.request.namespace.to_owned(),
                        name: inputs.request.name.to_owned(),
                        ..ResourceAccess::default()
                    }),
                }
            }
        })
    }

    fn variable(&mut self, position: usize) -> Result<Value<'a>, Error> {
        if let Some(Some(known)) = self.known.get(position) {
            return known.clone();
        }
        let variables = self.variables;
        let variable = variables.0.get(position);
        let variable = variable.ok_or_else(|| Error::new("no such attribute"))?;
        let value = self.computed(variable);
        if !matches!(value, Err(Error::Suspended))
            && let Some(place) = self.known.get_mut(position)
        {
            *place = Some(value.clone());
        }
        value
    }

    fn computed(&mut self, variable: &'a Variable) -> Result<Value<'a>, Error> {
        let name = &variable.name;
        if let Some(error) = variable.expression.error() {
            let message = format!("composited variable \"{name}\" fails to compile: {error}");
            return Err(Error::new(message));
        }
        if self.depth == MAX_DEPTH {
            let message = format!("composited variable \"{name}\" fails to evaluate: too deep");
            return Err(Error::new(message));
        }
        self.depth += 1;
        let outcome = self.evaluate(&variable.expression);
        self.depth -= 1;
        let outcome = outcome.ok_or_else(|| Error::new("no such attribute"))?;
        if !matches!(outcome.value, Err(Error::Suspended)) {
            self.cost = self.cost.saturating_add(outcome.cost);
        }
        outcome.value.map_err(|error| match error {
            Error::Suspended => Error::Suspended,
            error => Error::new(format!(
                "composited variable \"{name}\" fails to evaluate: {error}"
            )),
        })
    }
}

/// The variables as an expression declares them.
struct Bound<'b, 'a> {
    declarations: Declarations,
    activation: &'b mut Activation<'a>,
}

impl<'a> Values<'a> for Bound<'_, 'a> {
    fn variable(&mut self, position: usize) -> Result<Value<'a>, Error> {
        match self.declarations.name(position) {
            Some(name) => self.activation.value(name),
            None => Err(Error::new("no such attribute")),
        }
    }

    fn lazy_field(&mut self, position: usize) -> Result<Value<'a>, Error> {
        self.activation.variable(position)
    }
}
