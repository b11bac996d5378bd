//! Impersonation: the user that a request asks to act as, and the permission of its own user to do
//! so (apiserver `filters/impersonation`, KEP-5284).
//!
//! There are several modes, each with verbs of its own. In the constrained ones the requestor needs
//! `impersonate:MODE` for the other user, and `impersonate-on:MODE:VERB` for the request. The
//! legacy one needs `impersonate` only, and then allows whatever the other user may do.

pub mod metrics;

use std::sync::Arc;
use std::time::Instant;

use http::{HeaderMap, HeaderName};
use moka::sync::Cache;

use crate::auth::authn::request_header::{header_text, unescape_extra};
use crate::auth::authn::service_account;
use crate::auth::authz::{self, Attributes, Authorizer, node};
use crate::auth::{ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED, User};
use crate::meta::Status;
use crate::meta::field::{ErrorList, Path, domain_prefixed_path};
use crate::meta::go;
use crate::meta::names::dns1123_subdomain;
use crate::meta::status::Result;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
/// The extra that describes an agent which impersonates its node: the keys of its token's extras,
/// without their values.
const NODE_KEYS: &str = "authentication.kubernetes.io/associated-node-keys";
/// The API group of all that is impersonated in the constrained modes, and of uids and extras in
/// the legacy one.
const AUTHENTICATION: &str = "authentication.k8s.io";
/// From this many groups or extras on, a rule for all of them (`*`) is tried first.
const WILDCARD_THRESHOLD: usize = 4;
/// The number of requestors whose last mode is remembered.
const MAX_REMEMBERED_USERS: u64 = 10_000;

/// The modes, in the order in which they are tried: the narrow ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// An agent whose token was made for a pod on a node impersonates that node.
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    /// Users that are neither nodes nor service accounts, with groups, uid and extras.
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

    /// The name of the mode in metrics.
    fn label(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            other => other.name(),
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

    /// Reports whether the mode is for such users at all.
    fn applies_to(self, wanted: &User, requestor: &User) -> bool {
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

/// Authorizes impersonation.
pub struct Impersonation {
    authorizer: Arc<dyn Authorizer>,
    modes: &'static [Mode],
    /// The mode that worked last, by requestor: it is tried first, and its refusal is the answer if
    /// none works.
    last_modes: Cache<String, Mode>,
}

impl Impersonation {
    /// `constrained` is the feature gate `ConstrainedImpersonation`; without it there is the legacy
    /// mode only.
    pub fn new(authorizer: Arc<dyn Authorizer>, constrained: bool) -> Self {
        let modes: &[Mode] = if constrained { &MODES } else { &[Mode::Legacy] };
        Self {
            authorizer,
            modes,
            last_modes: Cache::new(MAX_REMEMBERED_USERS),
        }
    }

    /// Returns the user that a requestor becomes who asks to act as `wanted` in the request of
    /// `attributes`.
    ///
    /// # Errors
    /// 403 where the requestor may not be that user in any mode: that of the mode tried first.
    pub async fn impersonate(
        &self,
        wanted: &User,
        attributes: &Attributes,
    ) -> Result<(User, String)> {
        let begun = Instant::now();
        let found = self.first_that_allows(wanted, attributes).await;
        let mode = found.as_ref().map_or("", |(_, mode)| mode.label());
        metrics::attempted(mode, found.is_ok(), begun.elapsed());
        let (user, mode) = found?;
        let constraint = match mode.is_constrained() {
            true => format!("impersonate:{}", mode.name()),
            false => String::new(),
        };
        Ok((user, constraint))
    }

    /// Tries the modes, and returns the user with the mode that allows it.
    async fn first_that_allows(
        &self,
        wanted: &User,
        attributes: &Attributes,
    ) -> Result<(User, Mode)> {
        let last = self.last_modes.get(&attributes.user.name);
        let others = self
            .modes
            .iter()
            .copied()
            .filter(|mode| Some(*mode) != last);
        let mut refusal = None;
        for mode in last
            .into_iter()
            .chain(others)
            .filter(|mode| mode.applies_to(wanted, &attributes.user))
        {
            match self.check(mode, wanted, attributes).await {
                Ok(user) => {
                    if last != Some(mode) {
                        self.last_modes.insert(attributes.user.name.clone(), mode);
                    }
                    return Ok((user, mode));
                }
                Err(status) => drop(refusal.get_or_insert(status)),
            }
        }
        Err(refusal.unwrap_or_else(|| Status::internal("all impersonation modes failed")))
    }

    async fn check(&self, mode: Mode, wanted: &User, attributes: &Attributes) -> Result<User> {
        let mut requestor = User::clone(&attributes.user);
        if mode == Mode::AssociatedNode {
            requestor.extra =
                [(NODE_KEYS.to_owned(), requestor.extra.into_keys().collect())].into();
        }
        let requestor = Arc::new(requestor);
        if mode.is_constrained() {
            let verb = format!("impersonate-on:{}:{}", mode.name(), attributes.verb);
            let attributes = Attributes {
                user: requestor.clone(),
                verb,
                ..attributes.clone()
            };
            self.require(mode, &attributes).await?;
        }
        let check = ModeCheck {
            impersonation: self,
            mode,
            requestor,
        };
        let mut user = wanted.clone();
        check.name(&mut user).await?;
        if !wanted.uid.is_empty() {
            check
                .require(&check.attributes(AUTHENTICATION, "uids", &wanted.uid))
                .await?;
        }
        check.groups(&wanted.groups).await?;
        check.extra(wanted).await?;
        complete_groups(&mut user);
        Ok(user)
    }

    async fn require(&self, mode: Mode, attributes: &Attributes) -> Result<()> {
        let begun = Instant::now();
        let outcome = authz::require(self.authorizer.as_ref(), attributes).await;
        metrics::asked(mode.label(), outcome.is_ok(), begun.elapsed());
        outcome
    }
}

/// Checks for one requestor in one mode.
struct ModeCheck<'a> {
    impersonation: &'a Impersonation,
    mode: Mode,
    requestor: Arc<User>,
}

impl ModeCheck<'_> {
    fn attributes(&self, group: &str, resource: &str, name: &str) -> Attributes {
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

    async fn require(&self, attributes: &Attributes) -> Result<()> {
        self.impersonation.require(self.mode, attributes).await
    }

    /// The API group of users and groups.
    fn names_group(&self) -> &'static str {
        if self.mode.is_constrained() {
            AUTHENTICATION
        } else {
            ""
        }
    }

    /// Checks the name. Nodes and service accounts get the groups that go with it.
    async fn name(&self, user: &mut User) -> Result<()> {
        let mut attributes = self.attributes(self.names_group(), "users", &user.name);
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
        self.require(&attributes).await
    }

    async fn groups(&self, groups: &[String]) -> Result<()> {
        let about = |name: &str| self.attributes(self.names_group(), "groups", name);
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
            if groups.len() >= WILDCARD_THRESHOLD && self.require(&about("*")).await.is_ok() {
                return Ok(());
            }
        }
        for group in groups {
            self.require(&about(group)).await?;
        }
        Ok(())
    }

    async fn extra(&self, wanted: &User) -> Result<()> {
        let about = |key: &str, value: &str| Attributes {
            subresource: key.to_owned(),
            ..self.attributes(AUTHENTICATION, "userextras", value)
        };
        if self.mode.is_constrained() {
            check_extra(wanted).map_err(|why| authz::forbidden(&about("", ""), &why))?;
            let values: usize = wanted.extra.values().map(Vec::len).sum();
            if wanted.extra.len().max(values) >= WILDCARD_THRESHOLD
                && self.require(&about("*", "*")).await.is_ok()
            {
                return Ok(());
            }
        }
        for (key, values) in &wanted.extra {
            for value in values {
                self.require(&about(key, value)).await?;
            }
        }
        Ok(())
    }
}

/// Checks the extras for the constrained modes, which refuse those that no user has.
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

fn is_impersonation_header(header: &str) -> bool {
    matches!(header, USER | GROUP | UID) || header.starts_with(EXTRA)
}

/// Returns the user that the impersonation headers ask for, `None` without any, and removes those
/// headers.
///
/// # Errors
/// 400 for headers that are not text or name no user.
pub fn requested_user(headers: &mut HeaderMap) -> Result<Option<User>> {
    let user = parse_headers(headers)?;
    if user.is_some() {
        let names: Vec<_> = headers
            .keys()
            .filter(|name| is_impersonation_header(name.as_str()))
            .cloned()
            .collect();
        for name in names {
            headers.remove(name);
        }
    }
    Ok(user)
}

/// Returns the user that the headers describe. Of several names and UIDs the first counts.
///
/// # Errors
/// 400 for headers that are not text or name no user: such a request must not go on as the
/// requestor.
fn parse_headers(headers: &HeaderMap) -> Result<Option<User>> {
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
    for (name, value) in headers
        .iter()
        .filter(|(name, _)| is_impersonation_header(name.as_str()))
    {
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
            go_syntax(&user)
        ))),
        (true, false) => Ok(None),
    }
}

/// A user in Go's syntax (`%#v`), as it is in messages.
fn go_syntax(user: &User) -> String {
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

/// Reports whether a user is a service account whose token was made for a pod on that node.
fn is_agent_of(user: &User, node: &str) -> bool {
    let on = user
        .extra
        .get(service_account::NODE_NAME)
        .map(Vec::as_slice);
    service_account::of_username(&user.name).is_some() && matches!(on, Some([name]) if name == node)
}

/// Adds the group of all authenticated users, or that of anonymous ones.
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
