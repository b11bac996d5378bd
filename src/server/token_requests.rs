//! TokenRequest: the bound object and the lifetime of a new service account token
//! (`pkg/registry/core/serviceaccount/storage/token.go`).

use std::sync::Arc;

use async_trait::async_trait;

use crate::admission::Objects;
use crate::auth::authn::jwt::Ref;
use crate::auth::authn::service_account::{Issuer, TokenSpec};
use crate::base::clock::Clock;
use crate::controlplane::loopback_client::LoopbackClient;
use crate::endpoints::handlers::token::{DEFAULT_SECONDS, TokenIssuer};
use crate::meta::status::Result;
use crate::meta::{ErrorList, FieldError, Gvk, Gvr, Map, Object, Path, Status, Value, json, time};
use crate::options::config::Config;

/// The lifetime that kubelets ask for where tokens may be extended: an hour and seven seconds.
const WARN_ONLY_SECONDS: i64 = 60 * 60 + 7;
/// The lifetime of an extended token: a year.
const EXTENDED_SECONDS: i64 = 365 * 24 * 60 * 60;
const MIN_SECONDS: i64 = 10 * 60;
const MAX_SECONDS: i64 = 1 << 32;

/// Issues tokens for TokenRequests.
pub struct TokenRequestIssuer {
    issuer: Arc<Issuer>,
    objects: Arc<LoopbackClient>,
    clock: Clock,
    audiences: Vec<String>,
    extend: bool,
    max_seconds: Option<i64>,
    extended_seconds: i64,
}

/// The objects that a token is bound to.
#[derive(Default)]
struct BoundObjects {
    pod: Option<Ref>,
    secret: Option<Ref>,
    node: Option<Ref>,
}

impl TokenRequestIssuer {
    /// `longest` is the longest lifetime, in seconds, that an external signer supports.
    pub fn new(
        issuer: Arc<Issuer>,
        objects: Arc<LoopbackClient>,
        config: &Config,
        longest: Option<i64>,
        clock: Clock,
    ) -> Self {
        let accounts = &config.service_accounts;
        let audiences = match config.authentication.api_audiences.as_slice() {
            [] => accounts.issuers.clone(),
            given => given.to_vec(),
        };
        let max_seconds = accounts
            .max_expiration
            .and_then(|max| i64::try_from(max.as_secs()).ok());
        Self {
            issuer,
            objects,
            clock,
            audiences,
            extend: accounts.extend_expiration,
            max_seconds: max_seconds.or(longest),
            extended_seconds: longest.map_or(EXTENDED_SECONDS, |most| most.min(EXTENDED_SECONDS)),
        }
    }

    async fn find(&self, resource: &str, namespace: &str, name: &str) -> Result<Arc<Object>> {
        let gvr = Gvr::new("", "v1", resource);
        self.objects
            .get(&gvr, namespace, name)
            .await?
            .ok_or_else(|| Status::not_found(&gvr, name))
    }

    /// The object that the request names, checked.
    async fn bound(&self, account: &Object, request: &Object) -> Result<BoundObjects> {
        let mut bound = BoundObjects::default();
        let Some(reference) = request
            .at("/spec/boundObjectRef")
            .filter(|reference| !reference.is_null())
        else {
            return Ok(bound);
        };
        let text = |key: &str| reference.get(key).and_then(Value::as_str).unwrap_or("");
        let gvk = Gvk::from_api_version(text("apiVersion"), text("kind"));
        let (namespace, name) = (account.namespace(), text("name"));
        let found = match (gvk.group.as_str(), gvk.kind.as_str()) {
            ("", "Pod") => {
                let pod = self.find("pods", namespace, name).await?;
                if pod.str_at("/spec/serviceAccountName") != account.name() {
                    let why = "to pod running with different serviceaccount name.";
                    return Err(Status::bad_request(format!(
                        "cannot bind token for serviceaccount {:?} {why}",
                        account.name()
                    )));
                }
                bound.pod = Some(reference_to(&pod));
                bound.node = self.node_of(&pod).await?;
                pod
            }
            ("", "Node") => {
                let node = self.find("nodes", "", name).await?;
                bound.node = Some(reference_to(&node));
                node
            }
            ("", "Secret") => {
                let secret = self.find("secrets", namespace, name).await?;
                bound.secret = Some(reference_to(&secret));
                secret
            }
            _ => {
                // As Go prints a kind: the group's place stays where it is empty.
                let kind = format!("{}/{}, Kind={}", gvk.group, gvk.version, gvk.kind);
                return Err(Status::bad_request(format!(
                    "cannot bind token to object of type {kind}"
                )));
            }
        };
        if !text("uid").is_empty() && text("uid") != found.uid() {
            let why = format!(
                "the UID in the bound object reference ({}) does not match the UID in record. \
                 The object might have been deleted and then recreated",
                text("uid")
            );
            return Err(Status::conflict(
                &Gvr::new(&gvk.group, &gvk.version, &gvk.kind),
                name,
                &why,
            ));
        }
        Ok(bound)
    }

    /// The node of a pod's token; one that is gone is named without a UID.
    async fn node_of(&self, pod: &Object) -> Result<Option<Ref>> {
        let name = pod.str_at("/spec/nodeName");
        if name.is_empty() {
            return Ok(None);
        }
        let node = self
            .objects
            .get(&Gvr::new("", "v1", "nodes"), "", name)
            .await?;
        Ok(Some(node.map_or_else(
            || Ref {
                name: name.to_owned(),
                ..Ref::default()
            },
            |node| reference_to(&node),
        )))
    }
}

fn reference_to(object: &Object) -> Ref {
    Ref {
        name: object.name().to_owned(),
        uid: object.uid().to_owned(),
    }
}

fn gvk() -> Gvk {
    Gvk::new("authentication.k8s.io", "v1", "TokenRequest")
}

/// Validates a TokenRequest (`ValidateTokenRequest`).
fn validate(request: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let seconds = request
        .i64_at("/spec/expirationSeconds")
        .unwrap_or(DEFAULT_SECONDS);
    let path_seconds = path.child("expirationSeconds");
    if seconds < MIN_SECONDS {
        errors.invalid(
            &path_seconds,
            seconds,
            "may not specify a duration less than 10 minutes",
        );
    }
    if seconds > MAX_SECONDS {
        errors.invalid(
            &path_seconds,
            seconds,
            "may not specify a duration larger than 2^32 seconds",
        );
    }
    errors
}

/// Checks that a TokenRequest names its own service account, where it names one.
fn check_account(account: &Object, request: &Object) -> Result<()> {
    if !request.name().is_empty() && request.name() != account.name() {
        let path = Path::new("metadata").child("name");
        let error = FieldError::invalid(
            &path,
            request.name(),
            "must match the service account name if specified",
        );
        return Err(Status::invalid(&gvk(), account.name(), [error].into()));
    }
    if !request.uid().is_empty() && request.uid() != account.uid() {
        let why = format!(
            "the UID in the token request ({}) does not match the UID of the service account ({})",
            request.uid(),
            account.uid()
        );
        let kind = gvk();
        return Err(Status::conflict(
            &Gvr::new(kind.group, kind.version, kind.kind),
            account.name(),
            &why,
        ));
    }
    Ok(())
}

#[async_trait]
impl TokenIssuer for TokenRequestIssuer {
    async fn issue(&self, account: &Object, mut request: Object) -> Result<Object> {
        check_account(account, &request)?;
        let errors = validate(&request);
        if !errors.is_empty() {
            return Err(Status::invalid(&gvk(), "", errors));
        }
        let bound = self.bound(account, &request).await?;
        let mut audiences: Vec<String> = request
            .array_at("/spec/audiences")
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        if audiences.is_empty() {
            audiences.clone_from(&self.audiences);
        }
        let asked = request
            .i64_at("/spec/expirationSeconds")
            .unwrap_or(DEFAULT_SECONDS);
        let shown = self.max_seconds.map_or(asked, |max| asked.min(max));
        let ours = audiences.iter().all(|one| self.audiences.contains(one));
        let extended = self.extend && bound.pod.is_some() && shown == WARN_ONLY_SECONDS && ours;
        let spec = TokenSpec {
            namespace: account.namespace(),
            account: reference_to(account),
            pod: bound.pod,
            secret: bound.secret,
            node: bound.node,
            audiences: &audiences,
            expiration_seconds: if extended {
                self.extended_seconds
            } else {
                shown
            },
            warn_after_seconds: if extended { shown } else { 0 },
        };
        let issued = self
            .issuer
            .issue(&spec)
            .await
            .map_err(|why| Status::internal(format!("failed to generate token: {why}")))?;
        let now = self.clock.now().as_second();
        request.set_meta_str("name", account.name());
        request.set_meta_str("namespace", account.namespace());
        request.set_meta_str("uid", account.uid());
        request.set_meta_str("creationTimestamp", &time::format(now));
        let spec = request.section_mut("spec");
        spec.insert("audiences", json!(audiences));
        spec.insert("expirationSeconds", shown.into());
        spec.entry("boundObjectRef").or_insert(Value::Null);
        let status = Map::from_iter([
            ("token".to_owned(), Value::from(issued.token)),
            (
                "expirationTimestamp".to_owned(),
                Value::from(time::format(now + shown)),
            ),
        ]);
        request.insert("status", Value::Object(status));
        Ok(request)
    }
}
