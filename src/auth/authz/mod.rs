//! Authorization: request attributes, the chain of authorizers, and their decisions.

pub mod abac;
pub mod chain;
pub mod configuration;
pub mod escalation;
pub mod metrics;
pub mod node;
pub mod node_metrics;
pub mod pod_references;
pub mod rbac;
mod reload;
mod review;
pub mod rule;
mod validation;
pub mod webhook;

use std::sync::Arc;

use async_trait::async_trait;

use super::{MASTERS, User};
use crate::meta::go;
use crate::meta::selector::{fields, labels};
use crate::meta::status::Result;
use crate::meta::{Gvr, Status};

pub use chain::{Chain, Link};
pub use rbac::RbacStore;
pub use reload::{Persistent, ReloadableAuthorizer};
pub use rule::Rule;

/// A question to the authorizers: a user, and what it wants to do (apiserver
/// `authorization/authorizer.Attributes`).
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    pub user: Arc<User>,
    /// get, list, watch, create, update, patch, delete, deletecollection, proxy, ...; for paths the
    /// lower-case HTTP method.
    pub verb: String,
    pub group: String,
    pub version: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    /// False for paths such as `/healthz`.
    pub resource_request: bool,
    pub path: String,
    /// The requirements of a list's, watch's or deletecollection's field selector, as far as they
    /// are understood: each narrows down what is asked for.
    pub field_selector: Vec<fields::Term>,
    /// Those of its label selector.
    pub label_selector: Vec<labels::Requirement>,
}

impl Attributes {
    /// Reports whether it is a question about reading.
    pub fn is_read_only(&self) -> bool {
        matches!(self.verb.as_str(), "get" | "list" | "watch")
    }
}

/// The outcome of asking an authorizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    /// No further authorizer is asked.
    Deny,
    NoOpinion,
}

/// An authorizer's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub verdict: Verdict,
    /// Empty for none.
    pub reason: String,
    /// The error that it met.
    pub error: Option<String>,
}

impl Decision {
    fn new(verdict: Verdict, reason: impl Into<String>) -> Self {
        Self {
            verdict,
            reason: reason.into(),
            error: None,
        }
    }

    pub fn allow(reason: impl Into<String>) -> Self {
        Self::new(Verdict::Allow, reason)
    }

    pub fn deny(reason: impl Into<String>) -> Self {
        Self::new(Verdict::Deny, reason)
    }

    pub fn no_opinion(reason: impl Into<String>) -> Self {
        Self::new(Verdict::NoOpinion, reason)
    }

    /// An answer that is not known because of an error.
    pub fn failed(verdict: Verdict, error: impl Into<String>) -> Self {
        Self {
            error: Some(error.into()),
            ..Self::new(verdict, "")
        }
    }

    pub fn is_allowed(&self) -> bool {
        self.verdict == Verdict::Allow
    }
}

/// The rules that apply to a user in a namespace, as far as an authorizer can list them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserRules {
    pub rules: Vec<Rule>,
    /// True where the authorizer allows more than it can list.
    pub incomplete: bool,
    pub errors: Vec<String>,
}

/// One authorizer of the chain.
#[async_trait]
pub trait Authorizer: Send + Sync {
    async fn authorize(&self, attributes: &Attributes) -> Decision;

    /// The rules for SelfSubjectRulesReview. An authorizer without rules lists none.
    async fn rules_for(&self, _user: &User, _namespace: &str) -> UserRules {
        UserRules::default()
    }
}

/// Allows `system:masters` everything; always the first of the chain.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrivilegedGroup;

#[async_trait]
impl Authorizer for PrivilegedGroup {
    async fn authorize(&self, attributes: &Attributes) -> Decision {
        match attributes.user.is_in(MASTERS) {
            true => Decision::allow(""),
            false => Decision::no_opinion(""),
        }
    }
}

/// `--authorization-mode=AlwaysAllow`.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlwaysAllow;

#[async_trait]
impl Authorizer for AlwaysAllow {
    async fn authorize(&self, _attributes: &Attributes) -> Decision {
        Decision::allow("")
    }

    async fn rules_for(&self, _user: &User, _namespace: &str) -> UserRules {
        UserRules {
            rules: Rule::everything(),
            ..UserRules::default()
        }
    }
}

/// `--authorization-mode=AlwaysDeny`.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlwaysDeny;

#[async_trait]
impl Authorizer for AlwaysDeny {
    async fn authorize(&self, _attributes: &Attributes) -> Decision {
        Decision::no_opinion("Everything is forbidden.")
    }
}

/// The message of a Forbidden answer: the user, and what it may not do.
pub fn forbidden_message(attributes: &Attributes) -> String {
    let user = go::quote(&attributes.user.name);
    let verb = &attributes.verb;
    if !attributes.resource_request {
        return format!(
            "User {user} cannot {verb} path {}",
            go::quote(&attributes.path)
        );
    }
    let resource = match attributes.subresource.as_str() {
        "" => go::quote(&attributes.resource),
        subresource => go::quote(&format!("{}/{subresource}", attributes.resource)),
    };
    let group = go::quote(&attributes.group);
    let scope = match attributes.namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {}", go::quote(namespace)),
    };
    format!("User {user} cannot {verb} resource {resource} in API group {group} {scope}")
}

/// The 403 for a request that no authorizer allowed, with the authorizers' `reason`.
pub fn forbidden(attributes: &Attributes, reason: &str) -> Status {
    // As upstream, so that no browser takes a part of the path for markup.
    let mut why = forbidden_message(attributes)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    if !reason.is_empty() {
        why = format!("{why}: {reason}");
    }
    Status::forbidden(
        &Gvr::new(&attributes.group, &attributes.version, &attributes.resource),
        &attributes.name,
        &why,
    )
}

/// Checks that an authorizer allows this.
///
/// # Errors
/// The [`forbidden`] of what no authorizer allows.
pub async fn require(authorizer: &dyn Authorizer, attributes: &Attributes) -> Result<()> {
    let decision = authorizer.authorize(attributes).await;
    match decision.is_allowed() {
        true => Ok(()),
        false => Err(forbidden(attributes, &decision.reason)),
    }
}

/// Several errors as one text, each included once (apimachinery `util/errors.Aggregate`).
pub fn aggregate(errors: &[String]) -> String {
    let mut seen: Vec<&str> = Vec::new();
    for error in errors {
        if !seen.contains(&error.as_str()) {
            seen.push(error);
        }
    }
    match seen.as_slice() {
        [one] => (*one).to_owned(),
        many => format!("[{}]", many.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alice(verb: &str, resource: &str, namespace: &str) -> Attributes {
        Attributes {
            user: User {
                name: "alice".to_owned(),
                ..User::default()
            }
            .into(),
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            resource_request: true,
            ..Attributes::default()
        }
    }

    #[test]
    fn forbidden_names_user_verb_resource_and_scope() {
        let path = Attributes {
            path: "/x".to_owned(),
            resource_request: false,
            ..alice("get", "", "")
        };
        let log = Attributes {
            subresource: "log".to_owned(),
            name: "p".to_owned(),
            ..alice("get", "pods", "x")
        };
        let checks = [
            (
                alice("list", "pods", ""),
                r#"pods is forbidden: User "alice" cannot list resource "pods" in API group "" at the cluster scope: why"#,
            ),
            (
                log,
                r#"pods "p" is forbidden: User "alice" cannot get resource "pods/log" in API group "" in the namespace "x": why"#,
            ),
            (path, r#"forbidden: User "alice" cannot get path "/x": why"#),
        ];
        for (attributes, want) in checks {
            assert_eq!(forbidden(&attributes, "why").message, want);
        }
    }
}
