//! The Common Expression Language as Kubernetes has it: expressions are parsed, checked and planned
//! once, and evaluated on the objects as they lie in memory (cel-go 0.26, apiserver `cel`).

mod ast;
mod charge;
mod checker;
mod environment;
mod estimate;
mod extension;
mod lexer;
mod library;
mod listmap;
mod macros;
mod number;
mod parser;
mod pattern;
mod program;
mod schema;
mod signature;
mod source;
mod time;
mod types;
mod validate;
mod value;
mod work;

pub use checker::Checked;
pub use environment::{Environment, JSON_PATCH, OBJECT};
pub use estimate::estimate;
pub use library::{
    Access, Authorizer, Check, Decision, ResourceAccess, ServiceAccount, authorizer, resource_check,
};
pub use parser::RESERVED;
pub use program::{Activation, Outcome, PER_CALL_LIMIT, Program, plan};
pub use schema::{Field, ListType, MAX_REQUEST_BYTES, Object, Schema, Shape};
pub use source::CompileError;
pub use types::Type;
pub use value::{Entries, Error, Key, Struct, Text, Value};

/// Parses and checks an expression.
///
/// # Errors
/// It is none, or names what the environment does not have, or mixes types.
pub fn compile(text: &str, environment: &Environment) -> Result<Checked, CompileError> {
    let source = source::Source::new(text);
    let mut issues = source::Issues::default();
    let parsed = parser::parse(&source, macros::of(environment.binds()), &mut issues);
    if let Some(error) = std::mem::take(&mut issues).into_error(&source) {
        return Err(error);
    }
    let checked = checker::check(parsed, &source, environment, &mut issues);
    if issues.is_empty() {
        validate::validate(&checked, &source, &mut issues);
    }
    match issues.into_error(&source) {
        Some(error) => Err(error),
        None => Ok(checked),
    }
}
