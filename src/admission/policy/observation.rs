//! Observations of policies, for metrics (apiserver
//! `admission/plugin/policy/{validating,mutating}/metrics`).

use std::time::Duration;

/// The effect of a policy on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforcement {
    /// The request went on.
    Allow,
    Deny,
    Audit,
    Warn,
}

/// The kind of an error in the evaluation of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorType {
    NoError,
    CompileError,
    InvalidError,
    OutOfBudget,
}

impl ErrorType {
    /// The type of an error by its text; `None` for an evaluation that worked.
    pub fn of(error: Option<&str>) -> Self {
        match error {
            None => Self::NoError,
            Some(text) if text.starts_with("compilation") => Self::CompileError,
            Some(text)
                if text.starts_with("validation failed due to running out of cost budget") =>
            {
                Self::OutOfBudget
            }
            Some(_) => Self::InvalidError,
        }
    }
}

/// The two kinds of policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    Validating,
    Mutating,
}

/// One decision of a policy, or one mutation.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    pub kind: PolicyKind,
    pub policy: &'a str,
    pub binding: &'a str,
    pub enforcement: Enforcement,
    pub error: ErrorType,
    pub elapsed: Duration,
}

/// Keeps count.
pub trait PolicyMetrics: Send + Sync {
    fn observe(&self, observation: Observation<'_>);
}

/// Writes to the log, at its finest level.
pub struct Traced;

impl PolicyMetrics for Traced {
    fn observe(&self, seen: Observation<'_>) {
        tracing::trace!(
            kind = ?seen.kind,
            policy = seen.policy,
            binding = seen.binding,
            enforcement = ?seen.enforcement,
            error = ?seen.error,
            elapsed = ?seen.elapsed,
            "admission policy"
        );
    }
}
