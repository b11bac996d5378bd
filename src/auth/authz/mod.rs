//! Authorization: request attributes, the chain of authorizers, and their decisions.

pub mod escalation;
pub mod node;
pub mod pod_references;
pub mod rbac;
pub mod rule;

use std::sync::Arc;

use async_trait::async_trait;

use super::{MASTERS, User};
use crate::meta::go;
use crate::meta::status::Result;
use crate::meta::{Gvr, Status};

pub use rbac::RbacStore;
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
    /// The `field=value` requirements of a list's, watch's or deletecollection's field selector.
    pub field_equals: Vec<(String, String)>,
}

/// An authorizer's answer. The text is its reason, empty for none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Allow(String),
    NoOpinion(String),
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

/// Asks one authorizer after the other until one allows or denies.
#[derive(Clone, Default)]
pub struct Chain(pub Vec<Arc<dyn Authorizer>>);

#[async_trait]
impl Authorizer for Chain {
    async fn authorize(&self, attributes: &Attributes) -> Decision {
        let mut reasons = String::new();
        for authorizer in &self.0 {
            match authorizer.authorize(attributes).await {
                Decision::NoOpinion(reason) if reason.is_empty() => {}
                Decision::NoOpinion(reason) => {
                    if !reasons.is_empty() {
                        reasons.push('\n');
                    }
                    reasons.push_str(&reason);
                }
                decided => return decided,
            }
        }
        Decision::NoOpinion(reasons)
    }

    async fn rules_for(&self, user: &User, namespace: &str) -> UserRules {
        let mut all = UserRules::default();
        for authorizer in &self.0 {
            let one = authorizer.rules_for(user, namespace).await;
            all.rules.extend(one.rules);
            all.incomplete |= one.incomplete;
            all.errors.extend(one.errors);
        }
        all
    }
}

/// Allows `system:masters` everything; always the first of the chain.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrivilegedGroup;

#[async_trait]
impl Authorizer for PrivilegedGroup {
    async fn authorize(&self, attributes: &Attributes) -> Decision {
        match attributes.user.is_in(MASTERS) {
            true => Decision::Allow(String::new()),
            false => Decision::NoOpinion(String::new()),
        }
    }
}

/// `--authorization-mode=AlwaysAllow`.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlwaysAllow;

#[async_trait]
impl Authorizer for AlwaysAllow {
    async fn authorize(&self, _attributes: &Attributes) -> Decision {
        Decision::Allow(String::new())
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
        Decision::NoOpinion("Everything is forbidden.".to_owned())
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
    match authorizer.authorize(attributes).await {
        Decision::Allow(_) => Ok(()),
        Decision::NoOpinion(reason) => Err(forbidden(attributes, &reason)),
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

    #[tokio::test]
    async fn authorizer_chain_ends_with_the_first_decision() {
        let chain = Chain(vec![Arc::new(PrivilegedGroup), Arc::new(AlwaysDeny)]);
        let mut asked = alice("get", "pods", "x");
        assert_eq!(
            chain.authorize(&asked).await,
            Decision::NoOpinion("Everything is forbidden.".to_owned())
        );
        Arc::make_mut(&mut asked.user)
            .groups
            .push(MASTERS.to_owned());
        assert_eq!(
            chain.authorize(&asked).await,
            Decision::Allow(String::new())
        );
    }
}
