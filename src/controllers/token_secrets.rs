//! The token controller: fills the secrets that ask for the token of a service account, and deletes
//! them with their account (`pkg/controller/serviceaccount/tokens_controller.go`).

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::client::{Client, Failure, Result, Target};
use super::{ControllerDeps, Retry, workers};
use crate::auth::authn::jwt::Ref;
use crate::auth::authn::service_account::Issuer;
use crate::base::work_queue::WorkQueue;
use crate::controlplane::informer::EventHandler;
use crate::meta::{Map, Object, Value, json, str_at};
use crate::registry::Store;
use crate::storage::Revision;
use crate::telemetry::work_queues::QueueMetrics;

/// The service account of the controller.
const ACCOUNT: &str = "tokens-controller";
/// The type of the secrets.
const TYPE: &str = "kubernetes.io/service-account-token";
/// The annotations that name the account.
const NAME: &str = "kubernetes.io/service-account.name";
const UID: &str = "kubernetes.io/service-account.uid";
/// Secrets and accounts that are worked on at the same time.
const WORKERS: usize = 5;
/// The first and the longest wait before one is worked on again after a failure.
const FIRST_DELAY: Duration = Duration::from_millis(20);
const MAX_DELAY: Duration = Duration::from_secs(60);

/// The names in the queue: a secret to be filled, an account that is gone, and a secret that is
/// gone, with the account that may refer to it.
enum Item<'a> {
    Secret(&'a str, &'a str),
    Account(&'a str, &'a str),
    Reference(&'a str, &'a str, &'a str),
}

impl<'a> Item<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.splitn(4, '/');
        let mut next = || parts.next();
        match next()? {
            "secret" => Some(Self::Secret(next()?, next()?)),
            "account" => Some(Self::Account(next()?, next()?)),
            _ => Some(Self::Reference(next()?, next()?, next()?)),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Secret(namespace, name) => format!("secret/{namespace}/{name}"),
            Self::Account(namespace, name) => format!("account/{namespace}/{name}"),
            Self::Reference(namespace, secret, account) => {
                format!("reference/{namespace}/{secret}/{account}")
            }
        }
    }
}

fn annotation<'a>(secret: &'a Object, name: &str) -> &'a str {
    let annotations = secret.annotations();
    annotations
        .and_then(|all| all.get(name)?.as_str())
        .unwrap_or_default()
}

/// Puts the secrets with tokens into the queue.
struct Secrets(Arc<WorkQueue>);

impl EventHandler for Secrets {
    fn fields(&self) -> Option<&'static [&'static str]> {
        Some(&[
            "type",
            "metadata.name",
            "metadata.namespace",
            "metadata.annotations",
        ])
    }

    fn replace(&self, objects: &[Object], _revision: Revision) {
        objects.iter().for_each(|object| self.upsert(object));
    }

    fn upsert(&self, object: &Object) {
        if object.str_at("/type") == TYPE {
            self.0
                .add(&Item::Secret(object.namespace(), object.name()).text());
        }
    }

    fn remove(&self, object: &Object) {
        if object.str_at("/type") == TYPE {
            let account = annotation(object, NAME);
            let item = Item::Reference(object.namespace(), object.name(), account);
            self.0.add(&item.text());
        }
    }

    // It is there.
    fn unreadable(&self, _object: &Object) {}
}

/// Puts the accounts that are gone into the queue.
struct Accounts(Arc<WorkQueue>);

impl EventHandler for Accounts {
    fn fields(&self) -> Option<&'static [&'static str]> {
        Some(&["metadata.name", "metadata.namespace"])
    }

    // Secrets whose account is gone are found when they are looked at.
    fn replace(&self, _objects: &[Object], _revision: Revision) {}

    fn upsert(&self, _object: &Object) {}

    fn remove(&self, object: &Object) {
        self.0
            .add(&Item::Account(object.namespace(), object.name()).text());
    }

    // It is there.
    fn unreadable(&self, _object: &Object) {}
}

/// The controller.
struct Tokens {
    client: Client,
    secrets: Arc<Store>,
    accounts: Arc<Store>,
    issuer: Arc<Issuer>,
    /// The certificates that verify this server, in base64.
    authority: String,
    queue: Arc<WorkQueue>,
}

/// Starts the controller.
///
/// # Errors
/// Tokens cannot be signed, or the store's, of the first lists.
pub async fn start(deps: &ControllerDeps) -> Result<()> {
    let issuer = deps.issuer.clone();
    let issuer = issuer.ok_or_else(|| Failure::internal("there is no key to sign tokens with"))?;
    let client = Client::new(&deps.api, ACCOUNT);
    let queue = Arc::new(
        WorkQueue::new(FIRST_DELAY, MAX_DELAY)
            .observed_by(QueueMetrics::new("serviceaccount_tokens_service")),
    );
    let secrets = client.store("", "v1", "secrets")?;
    let accounts = client.store("", "v1", "serviceaccounts")?;
    let informers = &deps.informers;
    let handler = Arc::new(Accounts(queue.clone()));
    informers.start(accounts.clone(), handler).await?;
    let handler = Arc::new(Secrets(queue.clone()));
    informers.start(secrets.clone(), handler).await?;
    let tokens = Arc::new(Tokens {
        client,
        secrets,
        accounts,
        issuer,
        authority: BASE64_STANDARD.encode(deps.root_ca.as_bytes()),
        queue: queue.clone(),
    });
    workers(
        deps,
        "service account tokens",
        &queue,
        WORKERS,
        move |item| {
            let tokens = tokens.clone();
            async move {
                match Item::parse(&item) {
                    Some(Item::Secret(namespace, name)) => {
                        tokens.sync_secret(namespace, name).await
                    }
                    Some(Item::Account(namespace, name)) => {
                        tokens.queue_secrets(namespace, name).await
                    }
                    Some(Item::Reference(namespace, secret, account)) => {
                        tokens.remove_reference(namespace, secret, account).await
                    }
                    None => Ok(()),
                }
                .map_err(Retry::from)
            }
        },
    );
    Ok(())
}

impl Tokens {
    /// Fills a secret, or deletes it if its account is not there.
    async fn sync_secret(&self, namespace: &str, name: &str) -> Result<()> {
        let Some(secret) = self.client.get(&self.secrets, namespace, name).await? else {
            return Ok(());
        };
        if secret.str_at("/type") != TYPE {
            return Ok(());
        }
        let (account, uid) = (annotation(&secret, NAME), annotation(&secret, UID));
        let account = self.client.get(&self.accounts, namespace, account).await?;
        let account = account.filter(|account| uid.is_empty() || account.uid() == uid);
        let target = Target::new(&self.secrets, namespace, name);
        let Some(account) = account else {
            let mut options = Map::new();
            options.insert("preconditions", json!({"uid": secret.uid()}));
            return ignore_changes(self.client.delete(target, options).await);
        };
        let Some(filled) = self.filled(&secret, &account).await? else {
            return Ok(());
        };
        // Who has changed it meanwhile has put it into the queue.
        ignore_changes(self.client.update(target, &filled).await.map(drop))
    }

    /// The secret with what is missing in it; `None` if that is nothing.
    async fn filled(&self, secret: &Object, account: &Object) -> Result<Option<Object>> {
        let has = |key: &str| !secret.str_at(&format!("/data/{key}")).is_empty();
        let needs_authority =
            !self.authority.is_empty() && secret.str_at("/data/ca.crt") != self.authority;
        let (needs_namespace, needs_token) = (!has("namespace"), !has("token"));
        if !needs_authority && !needs_namespace && !needs_token {
            return Ok(None);
        }
        let mut filled = secret.clone();
        let data = filled.section_mut("data");
        if needs_authority {
            data.insert("ca.crt", self.authority.as_str().into());
        }
        if needs_namespace {
            let namespace = BASE64_STANDARD.encode(secret.namespace());
            data.insert("namespace", namespace.as_str().into());
        }
        if needs_token {
            let account = Ref {
                name: account.name().to_owned(),
                uid: account.uid().to_owned(),
            };
            let token = self
                .issuer
                .issue_legacy(secret.namespace(), &account, secret.name())
                .map_err(Failure::internal)?;
            data.insert("token", BASE64_STANDARD.encode(token).as_str().into());
        }
        filled.set_annotation(NAME, account.name());
        filled.set_annotation(UID, account.uid());
        Ok(Some(filled))
    }

    /// Puts the secrets of an account that is gone into the queue.
    async fn queue_secrets(&self, namespace: &str, account: &str) -> Result<()> {
        for secret in self.client.list(&self.secrets, namespace).await? {
            if secret.str_at("/type") == TYPE && annotation(&secret, NAME) == account {
                self.queue
                    .add(&Item::Secret(namespace, secret.name()).text());
            }
        }
        Ok(())
    }

    /// Takes a secret that is gone from the list of its account.
    async fn remove_reference(&self, namespace: &str, secret: &str, account: &str) -> Result<()> {
        let found = self.client.get(&self.secrets, namespace, secret).await?;
        let Some(mut account) = self.client.get(&self.accounts, namespace, account).await? else {
            return Ok(());
        };
        let mut listed = account.array_at("/secrets").to_vec();
        let before = listed.len();
        listed.retain(|reference| str_at(reference, "/name") != secret);
        if found.is_some() || listed.len() == before {
            return Ok(());
        }
        account.insert("secrets", Value::Array(listed));
        let name = account.name().to_owned();
        let target = Target::new(&self.accounts, namespace, &name);
        match self.client.update(target, &account).await {
            Err(why) if !why.is_not_found() => Err(why),
            _ => Ok(()),
        }
    }
}

/// Lets others win: what they changed comes to the queue again.
fn ignore_changes(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(why) if why.is_not_found() || why.is_conflict() => Ok(()),
        other => other,
    }
}
