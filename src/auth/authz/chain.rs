//! The chain of authorizers (apiserver `authorization/union`).

use std::sync::Arc;

use async_trait::async_trait;

use super::{Attributes, Authorizer, Decision, UserRules, Verdict, aggregate, metrics};
use crate::auth::User;

/// Asks one authorizer after the other until one allows or denies.
#[derive(Clone, Default)]
pub struct Chain(pub Vec<Link>);

/// An authorizer in a chain, and what its decisions are counted under.
#[derive(Clone)]
pub struct Link {
    authorizer: Arc<dyn Authorizer>,
    /// Type and name; `None` for one that no configuration names.
    counted: Option<(&'static str, String)>,
}

impl Link {
    /// One that no configuration names.
    pub fn implicit(authorizer: Arc<dyn Authorizer>) -> Self {
        Self {
            authorizer,
            counted: None,
        }
    }

    pub fn new(kind: &'static str, name: &str, authorizer: Arc<dyn Authorizer>) -> Self {
        Self {
            authorizer,
            counted: Some((kind, name.to_owned())),
        }
    }

    async fn ask(&self, attributes: &Attributes) -> Decision {
        let decision = self.authorizer.authorize(attributes).await;
        let told = match decision.verdict {
            Verdict::Allow => "allowed",
            Verdict::Deny => "denied",
            Verdict::NoOpinion => return decision,
        };
        if let Some((kind, name)) = &self.counted {
            metrics::DECISIONS.inc(&[kind, name, told]);
        }
        decision
    }
}

#[async_trait]
impl Authorizer for Chain {
    async fn authorize(&self, attributes: &Attributes) -> Decision {
        let mut reasons = String::new();
        let mut errors = Vec::new();
        for link in &self.0 {
            let decision = link.ask(attributes).await;
            if decision.verdict != Verdict::NoOpinion {
                return decision;
            }
            if !decision.reason.is_empty() {
                if !reasons.is_empty() {
                    reasons.push('\n');
                }
                reasons.push_str(&decision.reason);
            }
            errors.extend(decision.error);
        }
        Decision {
            error: (!errors.is_empty()).then(|| aggregate(&errors)),
            ..Decision::no_opinion(reasons)
        }
    }

    async fn rules_for(&self, user: &User, namespace: &str) -> UserRules {
        let mut all = UserRules::default();
        for link in &self.0 {
            let one = link.authorizer.rules_for(user, namespace).await;
            all.rules.extend(one.rules);
            all.incomplete |= one.incomplete;
            all.errors.extend(one.errors);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AlwaysDeny, MASTERS, PrivilegedGroup};
    use super::*;

    struct Says(Decision);

    #[async_trait]
    impl Authorizer for Says {
        async fn authorize(&self, _: &Attributes) -> Decision {
            self.0.clone()
        }
    }

    fn chain(decisions: Vec<Decision>) -> Chain {
        let link = |decision| Link::new("Webhook", "w", Arc::new(Says(decision)));
        Chain(decisions.into_iter().map(link).collect())
    }

    #[tokio::test]
    async fn authorizer_chain_ends_with_the_first_decision() {
        let chain = Chain(vec![
            Link::implicit(Arc::new(PrivilegedGroup)),
            Link::new("AlwaysDeny", "alwaysdeny", Arc::new(AlwaysDeny)),
        ]);
        let mut asked = Attributes::default();
        assert_eq!(
            chain.authorize(&asked).await,
            Decision::no_opinion("Everything is forbidden.")
        );
        Arc::make_mut(&mut asked.user)
            .groups
            .push(MASTERS.to_owned());
        assert_eq!(chain.authorize(&asked).await, Decision::allow(""));
    }

    #[tokio::test]
    async fn a_denial_is_final_and_errors_are_collected() {
        let (asked, failed) = (Attributes::default(), |why: &str| {
            Decision::failed(Verdict::NoOpinion, why)
        });
        let denied = chain(vec![
            Decision::no_opinion("one"),
            Decision::deny("two"),
            Decision::allow(""),
        ]);
        assert_eq!(denied.authorize(&asked).await, Decision::deny("two"));
        let unknown = chain(vec![failed("a"), Decision::no_opinion("why"), failed("b")]);
        let want = Decision {
            error: Some("[a, b]".to_owned()),
            ..Decision::no_opinion("why")
        };
        assert_eq!(unknown.authorize(&asked).await, want);
        let allowed = chain(vec![failed("a"), Decision::allow("yes")]);
        assert_eq!(allowed.authorize(&asked).await, Decision::allow("yes"));
    }
}
