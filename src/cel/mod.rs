//! The Common Expression Language as Kubernetes has it: expressions are parsed, checked and planned
//! once, and evaluated on the objects as they lie in memory (cel-go 0.26, apiserver `cel`).
//!
//! | step | modules | result |
//! | --- | --- | --- |
//! | parse | `lexer`, `parser`, `macros` | a tree (`ast`) |
//! | check | `checker` with an [`Environment`], `validate` | [`Checked`]: types and overloads |
//! | estimate | `estimate` with the sizes that a [`Schema`] allows | the most that it may cost |
//! | plan | `program/plan` | [`Program`]: names resolved, constants folded |
//! | evaluate | `program`, which calls `library`; `charge` tells the cost | [`Outcome`] |
//!
//! The functions are tables: each file of `library` lists names, overloads with their signatures
//! and code, in the order of cel-go. Their costs are the rules of `charge` and, before they are
//! called, of `estimate/calls`. What a cost does not tell, as upstream counts it, `work` bounds.
//!
//! No crate's parser is used: the interpreters that there are have neither a type checker nor
//! costs, which are most of the work, and clients see the errors of the parser that cel-go uses.

mod ast;
mod charge;
mod checker;
mod compile_budget;
mod escaping;
mod environment;
mod estimate;
mod extension;
mod lexer;
mod library;
mod listmap;
mod macros;
pub mod metrics;
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

use std::time::Instant;

pub use checker::Checked;
pub use compile_budget::CompileBudget;
pub use environment::{Environment, JSON_PATCH, OBJECT};
pub use escaping::unescape;
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
    let begun = Instant::now();
    let compiled = parse_and_check(text, environment);
    metrics::compiled(begun);
    compiled
}

fn parse_and_check(text: &str, environment: &Environment) -> Result<Checked, CompileError> {
    let source = source::Source::new(text);
    let mut issues = source::Issues::default();
    let budget = environment.budget();
    let over = || Err(CompileError(compile_budget::too_many_nodes()));
    if !budget.take_nodes(0) {
        return over();
    }
    let parsed = parser::parse(&source, macros::of(environment.binds()), &mut issues);
    let fits = budget.take_nodes(parsed.positions.len());
    if let Some(error) = std::mem::take(&mut issues).into_error(&source) {
        return Err(error);
    }
    if !fits {
        return over();
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
