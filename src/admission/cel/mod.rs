//! Expressions of admission: they are compiled once for the variables that they may name, and
//! evaluated on a request (apiserver `admission/plugin/cel`).
//!
//! In v1.36 the environments of new and of stored expressions are the same, so there is one.
//!
//! Policies and webhooks alike compile their match conditions with a [`Compiler`] and call
//! [`matches`], which evaluates them on a request within their budget. Expressions that are not
//! about a request have functions of their own: those of the authentication and authorization
//! configuration `auth::cel::compile` and its `Expression::evaluate`, selectors of devices
//! `builtin::resource_k8s_io`, rules of definitions `extensions::schema::cel_rules`.

mod activation;
mod authorizations;
mod compiler;
mod conditions;
mod declared;
mod evaluation;
mod patch;
mod request;
mod tree;

pub use activation::Inputs;
pub use authorizations::Authorizations;
pub use compiler::{CompileError, Compiler, Declarations, Expression, Returns, Variables};
pub use conditions::{Match, MatchCondition, compile_conditions, matches};
pub use evaluation::{Evaluation, EvaluationError, evaluate};
pub use patch::{PatchError, PatchTypes, Patcher};
pub use request::Request;

/// The most that the expressions of a policy may cost for one request.
pub const RUNTIME_COST_BUDGET: u64 = 10_000_000;
/// The most that match conditions may cost for one request.
pub const MATCH_CONDITIONS_COST_BUDGET: u64 = 2_500_000;

#[cfg(test)]
mod tests;
