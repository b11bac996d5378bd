//! The authorizers of a server, the chain of which follows its configuration (kubernetes
//! `kubeapiserver/authorizer/reload.go`).

use std::sync::Arc;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use parking_lot::Mutex;

use super::abac::PolicyList;
use super::configuration::{AuthorizerConfiguration, AuthorizerType, Configuration};
use super::node::NodeAuthorizer;
use super::webhook::WebhookAuthorizer;
use super::{
    AlwaysAllow, AlwaysDeny, Attributes, Authorizer, Chain, Decision, Link, PrivilegedGroup,
    RbacStore, UserRules,
};
use crate::auth::User;
use crate::base::clock::Clock;
use crate::base::dial::Dial;

/// The authorizers that stay the same, whatever the configuration: those that a server began with.
#[derive(Clone, Default)]
pub struct Persistent {
    pub node: Option<Arc<NodeAuthorizer>>,
    pub rbac: Option<Arc<RbacStore>>,
    pub abac: Option<Arc<PolicyList>>,
    /// The dialer of the webhooks' network; `None` where connections are direct.
    pub webhooks: Option<Arc<dyn Dial>>,
}

/// The authorizer of a server.
pub struct ReloadableAuthorizer {
    persistent: Persistent,
    required: Vec<AuthorizerType>,
    clock: Clock,
    current: ArcSwap<Chain>,
    loaded: Mutex<Configuration>,
}

impl ReloadableAuthorizer {
    /// # Errors
    /// A webhook's kubeconfig file cannot be read or understood.
    pub fn new(
        configuration: Configuration,
        persistent: Persistent,
        clock: Clock,
    ) -> Result<Self, String> {
        let chain = chain(&configuration, &persistent, &clock)?;
        let kinds = configuration.authorizers.iter().map(|one| one.kind);
        Ok(Self {
            persistent,
            required: kinds
                .filter(|kind| *kind != AuthorizerType::Webhook)
                .collect(),
            clock,
            current: ArcSwap::from_pointee(chain),
            loaded: Mutex::new(configuration),
        })
    }

    /// Reports whether the server began with an authorizer of that type.
    pub fn starts_with(&self, kind: AuthorizerType) -> bool {
        self.required.contains(&kind)
    }

    /// Decides by another configuration from now on. Answers of webhooks are forgotten. Returns
    /// false if it is the same.
    ///
    /// # Errors
    /// It is not valid, or names other types than the server began with: the one before stays.
    pub fn reload(&self, bytes: &[u8]) -> Result<bool, String> {
        let configuration = Configuration::parse(bytes, &self.required)?;
        let mut loaded = self.loaded.lock();
        if *loaded == configuration {
            return Ok(false);
        }
        let chain = chain(&configuration, &self.persistent, &self.clock)?;
        self.current.store(Arc::new(chain));
        *loaded = configuration;
        Ok(true)
    }
}

fn chain(
    configuration: &Configuration,
    persistent: &Persistent,
    clock: &Clock,
) -> Result<Chain, String> {
    let mut links = vec![Link::implicit(Arc::new(PrivilegedGroup))];
    for one in &configuration.authorizers {
        let authorizer = authorizer(one, persistent, clock)?;
        links.push(Link::new(one.kind.name(), &one.name, authorizer));
    }
    Ok(Chain(links))
}

fn authorizer(
    one: &AuthorizerConfiguration,
    persistent: &Persistent,
    clock: &Clock,
) -> Result<Arc<dyn Authorizer>, String> {
    let absent = || {
        format!(
            "authorizer type {} is not allowed if it was not enabled at initial server startup",
            one.kind.name()
        )
    };
    Ok(match one.kind {
        AuthorizerType::Node => persistent.node.clone().ok_or_else(absent)?,
        AuthorizerType::Rbac => persistent.rbac.clone().ok_or_else(absent)?,
        AuthorizerType::Abac => persistent.abac.clone().ok_or_else(absent)?,
        AuthorizerType::AlwaysAllow => Arc::new(AlwaysAllow),
        AuthorizerType::AlwaysDeny => Arc::new(AlwaysDeny),
        AuthorizerType::Webhook => {
            let webhook = one.webhook.as_ref().ok_or_else(absent)?;
            let made = WebhookAuthorizer::new(&one.name, webhook, clock.clone())?;
            Arc::new(made.with_dialer(persistent.webhooks.clone()))
        }
    })
}

#[async_trait]
impl Authorizer for ReloadableAuthorizer {
    async fn authorize(&self, attributes: &Attributes) -> Decision {
        let chain = self.current.load_full();
        chain.authorize(attributes).await
    }

    async fn rules_for(&self, user: &User, namespace: &str) -> UserRules {
        let chain = self.current.load_full();
        chain.rules_for(user, namespace).await
    }
}
