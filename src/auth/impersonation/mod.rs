//! Impersonation: who the request wants to be, and whether its user may be that (apiserver
//! `filters/impersonation`, KEP-5284).
//!
//! There are several modes, each with verbs of its own. In the constrained ones a user needs
//! `impersonate:MODE` for whom it wants to be, and `impersonate-on:MODE:VERB` for what it wants to
//! do as that. The legacy one needs `impersonate`, and then everything goes that the other user
//! may.

use crate::meta::go;
use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use moka::sync::Cache;

use crate::auth::authn::request_header::{header_text, unescape_extra};
use crate::auth::authn::service_account;
use crate::auth::authz::{self, Attributes, Authorizer, node};
use crate::auth::{ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED, User};
use crate::meta::Status;
use crate::meta::field::{ErrorList, Path, domain_prefixed_path};
use crate::meta::names::dns1123_subdomain;
use crate::meta::status::Result;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
/// What an agent that stands for its node is known by: which facts its token has, not what they
/// are.
const NODE_KEYS: &str = "authentication.kubernetes.io/associated-node-keys";
/// The group of users, groups and the rest in the constrained modes; of uids and extras in the
/// legacy one, too.
const AUTHENTICATION: &str = "authentication.k8s.io";
/// How many groups or extras make it worth asking for all of them first.
const MANY: usize = 4;
/// Of how many users it is remembered which mode worked.
const MAX_REMEMBERED: u64 = 10_000;

/// Modes in the order they are tried: the narrow ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// An agent on a node, by a token that says so, is that node.
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    /// Whoever is neither a node nor a service account, with groups and all.
    UserInfo,
    Legacy,
}

const MODES: [Mode; 5] = [
    Mode::AssociatedNode,
    Mode::ArbitraryNode,
    Mode::ServiceAccount,
    Mode::UserInfo,
    Mode::Legacy,
];

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::AssociatedNode => "associated-node",
            Self::ArbitraryNode => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
            Self::Legacy => "",
        }
    }

    fn is_constrained(self) -> bool {
        self != Self::Legacy
    }

    fn verb(self) -> String {
        if self.is_constrained() {
            format!("impersonate:{}", self.name())
        } else {
            "impersonate".to_owned()
        }
    }

    /// Whether it is about such users at all.
    fn takes(self, wanted: &User, requestor: &User) -> bool {
        let bare = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        match self {
            Self::AssociatedNode => {
                bare && node_of(&wanted.name).is_some_and(|node| is_agent_of(requestor, node))
            }
            Self::ArbitraryNode => bare && node_of(&wanted.name).is_some(),
            Self::ServiceAccount => bare && service_account::of_username(&wanted.name).is_some(),
            Self::UserInfo => {
                node_of(&wanted.name).is_none()
                    && service_account::of_username(&wanted.name).is_none()
            }
            Self::Legacy => true,
        }
    }
}

/// Decides who may be whom.
pub struct Impersonation {
    authorizer: Arc<dyn Authorizer>,
    modes: &'static [Mode],
    /// The mode that worked last, by user: it is tried first, and what it says is said if none
    /// works.
    latest: Cache<String, Mode>,
}

impl Impersonation {
    /// Only in the legacy mode unless `constrained` (the feature gate `ConstrainedImpersonation`).
    pub fn new(authorizer: Arc<dyn Authorizer>, constrained: bool) -> Self {
        let modes: &[Mode] = if constrained { &MODES } else { &[Mode::Legacy] };
        Self {
            authorizer,
            modes,
            latest: Cache::new(MAX_REMEMBERED),
        }
    }

    /// Returns who a requestor becomes that wants to be `wanted` for what `attributes` say.
    ///
    /// # Errors
    /// 403 where the requestor may not be that user in any mode: that of the mode tried first.
    pub async fn impersonate(&self, wanted: &User, attributes: &Attributes) -> Result<User> {
        let latest = self.latest.get(&attributes.user.name);
        let others = self
            .modes
            .iter()
            .copied()
            .filter(|mode| Some(*mode) != latest);
        let mut refusal = None;
        for mode in latest
            .into_iter()
            .chain(others)
            .filter(|mode| mode.takes(wanted, &attributes.user))
        {
            match self.check(mode, wanted, attributes).await {
                Ok(user) => {
                    if latest != Some(mode) {
                        self.latest.insert(attributes.user.name.clone(), mode);
                    }
                    return Ok(user);
                }
                Err(status) => drop(refusal.get_or_insert(status)),
            }
        }
        Err(refusal.unwrap_or_else(|| Status::internal("all impersonation modes failed")))
    }

    async fn check(&self, mode: Mode, wanted: &User, attributes: &Attributes) -> Result<User> {
        let mut requestor = attributes.user.clone();
        if mode == Mode::AssociatedNode {
            requestor.extra =
                [(NODE_KEYS.to_owned(), requestor.extra.into_keys().collect())].into();
        }
        if mode.is_constrained() {
            let verb = format!("impersonate-on:{}:{}", mode.name(), attributes.verb);
            self.demand(&Attributes {
                user: requestor.clone(),
                verb,
                ..attributes.clone()
            })
            .await?;
        }
        let ask = Ask {
            by: self,
            mode,
            requestor,
        };
        let mut user = wanted.clone();
        ask.name(&mut user).await?;
        if !wanted.uid.is_empty() {
            ask.may(&ask.about(AUTHENTICATION, "uids", &wanted.uid))
                .await?;
        }
        ask.groups(&wanted.groups).await?;
        ask.extra(wanted).await?;
        complete_groups(&mut user);
        Ok(user)
    }

    async fn demand(&self, attributes: &Attributes) -> Result<()> {
        authz::require(self.authorizer.as_ref(), attributes).await
    }
}

/// Asks in one mode for one requestor.
struct Ask<'a> {
    by: &'a Impersonation,
    mode: Mode,
    requestor: User,
}

impl Ask<'_> {
    fn about(&self, group: &str, resource: &str, name: &str) -> Attributes {
        Attributes {
            user: self.requestor.clone(),
            verb: self.mode.verb(),
            group: group.to_owned(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            resource_request: true,
            ..Attributes::default()
        }
    }

    async fn may(&self, attributes: &Attributes) -> Result<()> {
        self.by.demand(attributes).await
    }

    /// The group of users and groups.
    fn names_group(&self) -> &'static str {
        if self.mode.is_constrained() {
            AUTHENTICATION
        } else {
            ""
        }
    }

    /// Whether it may have the name. Nodes and service accounts have the groups that go with
    /// theirs.
    async fn name(&self, user: &mut User) -> Result<()> {
        let mut attributes = self.about(self.names_group(), "users", &user.name);
        if let Some(node) = node_of(&user.name).filter(|_| self.mode.is_constrained()) {
            attributes.resource = "nodes".to_owned();
            // What holds for one node must hold for all that the agent runs on.
            attributes.name = if self.mode == Mode::AssociatedNode {
                "*"
            } else {
                node
            }
            .to_owned();
            user.groups = vec![node::NODES.to_owned()];
        }
        if let Some((namespace, name)) = service_account::of_username(&user.name) {
            attributes.resource = "serviceaccounts".to_owned();
            (attributes.namespace, attributes.name) = (namespace.to_owned(), name.to_owned());
            if user.groups.is_empty() {
                user.groups = service_account::groups(namespace);
            }
        }
        self.may(&attributes).await
    }

    async fn groups(&self, groups: &[String]) -> Result<()> {
        let about = |name: &str| self.about(self.names_group(), "groups", name);
        if self.mode.is_constrained() {
            if groups.iter().any(String::is_empty) {
                return Err(authz::forbidden(
                    &about(""),
                    "impersonating the empty string group is not allowed",
                ));
            }
            if groups.iter().any(|group| group == MASTERS) {
                return Err(authz::forbidden(
                    &about(MASTERS),
                    "impersonating the system:masters group is not allowed",
                ));
            }
            if groups.len() >= MANY && self.may(&about("*")).await.is_ok() {
                return Ok(());
            }
        }
        for group in groups {
            self.may(&about(group)).await?;
        }
        Ok(())
    }

    async fn extra(&self, wanted: &User) -> Result<()> {
        let about = |key: &str, value: &str| Attributes {
            subresource: key.to_owned(),
            ..self.about(AUTHENTICATION, "userextras", value)
        };
        if self.mode.is_constrained() {
            check_extra(wanted).map_err(|why| authz::forbidden(&about("", ""), &why))?;
            let values: usize = wanted.extra.values().map(Vec::len).sum();
            if wanted.extra.len().max(values) >= MANY && self.may(&about("*", "*")).await.is_ok() {
                return Ok(());
            }
        }
        for (key, values) in &wanted.extra {
            for value in values {
                self.may(&about(key, value)).await?;
            }
        }
        Ok(())
    }
}

/// What the constrained modes say of extras that nobody has.
fn check_extra(wanted: &User) -> std::result::Result<(), String> {
    for (key, values) in &wanted.extra {
        if key.is_empty() {
            return Err("impersonating the empty string key in extra is not allowed".to_owned());
        }
        let mut errors = ErrorList::new();
        domain_prefixed_path(&mut errors, &Path::new("extra").child("key"), key);
        if !errors.is_empty() {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            return Err(format!(
                "impersonating an invalid key in extra is not allowed: {}",
                authz::aggregate(&errors)
            ));
        }
        if key.chars().any(char::is_uppercase) {
            return Err(format!(
                "impersonating a non-lowercase key in extra is not allowed: {}",
                go::quote(key)
            ));
        }
        if values.iter().any(String::is_empty) {
            return Err("impersonating the empty string value in extra is not allowed".to_owned());
        }
    }
    Ok(())
}

fn is_ours(header: &str) -> bool {
    matches!(header, USER | GROUP | UID) || header.starts_with(EXTRA)
}

/// Returns the user that the impersonation headers ask for, `None` without any, and removes those
/// headers.
///
/// # Errors
/// 400 for headers that are not text or name no user.
pub fn requested_user(headers: &mut HeaderMap) -> Result<Option<User>> {
    let user = wanted(headers)?;
    if user.is_some() {
        let names: Vec<_> = headers
            .keys()
            .filter(|name| is_ours(name.as_str()))
            .cloned()
            .collect();
        for name in names {
            headers.remove(name);
        }
    }
    Ok(user)
}

/// The user that the headers name, as they name it. Of several names and UIDs the first counts.
///
/// # Errors
/// 400 for headers that are no text, or that are about nobody: such a request must not go on as the
/// requestor.
fn wanted(headers: &HeaderMap) -> Result<Option<User>> {
    let unreadable = |name: &HeaderName| {
        Status::bad_request(format!("the value of the header {name} is not valid UTF-8"))
    };
    let mut user = User::default();
    let mut others = false;
    let first = |name: &HeaderName| {
        let value = headers
            .get(name)
            .map(|value| header_text(value).ok_or_else(|| unreadable(name)));
        value
            .transpose()
            .map(|value| value.unwrap_or_default().to_owned())
    };
    for (name, value) in headers.iter().filter(|(name, _)| is_ours(name.as_str())) {
        let value = header_text(value).ok_or_else(|| unreadable(name))?;
        match name.as_str() {
            USER => user.name = first(name)?,
            UID => user.uid = first(name)?,
            GROUP => {
                user.groups.push(value.to_owned());
                others = true;
            }
            other => {
                let key = unescape_extra(other.strip_prefix(EXTRA).unwrap_or_default())
                    .ok_or_else(|| {
                        Status::bad_request(format!(
                            "the name of the header {name} is not valid UTF-8"
                        ))
                    })?;
                user.extra.entry(key).or_default().push(value.to_owned());
                others = true;
            }
        }
    }
    others |= !user.uid.is_empty();
    match (user.name.is_empty(), others) {
        (false, _) => Ok(Some(user)),
        (true, true) => Err(Status::bad_request(format!(
            "requested {} without impersonating a user name",
            in_go(&user)
        ))),
        (true, false) => Ok(None),
    }
}

/// A user as Go writes one down (`%#v`), which clients are told.
fn in_go(user: &User) -> String {
    let list = |values: &[String]| {
        values
            .iter()
            .map(|value| go::quote(value))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let groups = if user.groups.is_empty() {
        "[]string(nil)".to_owned()
    } else {
        format!("[]string{{{}}}", list(&user.groups))
    };
    let extra = user
        .extra
        .iter()
        .map(|(key, values)| format!("{}:[]string{{{}}}", go::quote(key), list(values)));
    let extra = extra.collect::<Vec<_>>().join(", ");
    let extra = if extra.is_empty() {
        "map[string][]string(nil)".to_owned()
    } else {
        format!("map[string][]string{{{extra}}}")
    };
    let (name, uid) = (go::quote(&user.name), go::quote(&user.uid));
    format!("&user.DefaultInfo{{Name:{name}, UID:{uid}, Groups:{groups}, Extra:{extra}}}")
}

/// The node that a user name is of.
fn node_of(username: &str) -> Option<&str> {
    username
        .strip_prefix(node::USER_PREFIX)
        .filter(|name| dns1123_subdomain(name).is_empty())
}

/// Whether it is a service account by a token that was made for a pod on that node.
fn is_agent_of(user: &User, node: &str) -> bool {
    let on = user
        .extra
        .get(service_account::NODE_NAME)
        .map(Vec::as_slice);
    service_account::of_username(&user.name).is_some() && matches!(on, Some([name]) if name == node)
}

/// Everyone but the anonymous user is authenticated.
fn complete_groups(user: &mut User) {
    let has = |group: &str| user.groups.iter().any(|one| one == group);
    let group = if user.name == ANONYMOUS {
        UNAUTHENTICATED
    } else {
        AUTHENTICATED
    };
    if !has(group) && !has(UNAUTHENTICATED) {
        user.groups.push(group.to_owned());
    }
}

#[cfg(test)]
mod tests;
