//! Impersonation: who the request wants to be, and whether its user may be that (apiserver `filters/impersonation`).

use crate::auth::authz::{self, Attributes, Authorizer, Decision};
use crate::auth::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User};
use crate::endpoints::Request;
use crate::meta::Status;
use crate::meta::status::Result;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The user to go on as, `None` without impersonation headers, which are removed.
pub async fn apply(request: &mut Request, authorizer: &dyn Authorizer) -> Result<Option<User>> {
    let Some(mut wanted) = wanted(request)? else { return Ok(None) };
    let ask = Ask { request, authorizer };
    match wanted.name.strip_prefix(SERVICE_ACCOUNT).and_then(|rest| rest.split_once(':')) {
        Some((namespace, name)) => {
            ask.may("serviceaccounts", "", namespace, name).await?;
            if wanted.groups.is_empty() {
                wanted.groups = vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
            }
        }
        None => ask.may("users", "", "", &wanted.name).await?,
    }
    for group in request.headers.get_all(GROUP).iter().filter_map(|value| value.to_str().ok()) {
        ask.may("groups", "", "", group).await?;
    }
    for (key, values) in &wanted.extra {
        for value in values {
            ask.may_in("authentication.k8s.io", "userextras", key, value).await?;
        }
    }
    if !wanted.uid.is_empty() {
        ask.may_in("authentication.k8s.io", "uids", "", &wanted.uid).await?;
    }
    complete_groups(&mut wanted);
    let names: Vec<_> = request.headers.keys().filter(|name| name.as_str().starts_with("impersonate-")).cloned().collect();
    for name in names {
        request.headers.remove(name);
    }
    Ok(Some(wanted))
}

/// The user that the headers name.
fn wanted(request: &Request) -> Result<Option<User>> {
    let mut user = User::default();
    let mut others = false;
    for (name, value) in &request.headers {
        let Ok(value) = value.to_str() else { continue };
        match name.as_str() {
            USER => user.name = value.to_owned(),
            UID => (user.uid, others) = (value.to_owned(), true),
            GROUP => {
                user.groups.push(value.to_owned());
                others = true;
            }
            other => {
                if let Some(key) = other.strip_prefix(EXTRA) {
                    let key = percent_encoding::percent_decode_str(key).decode_utf8_lossy().into_owned();
                    user.extra.entry(key).or_default().push(value.to_owned());
                    others = true;
                }
            }
        }
    }
    if !user.name.is_empty() {
        return Ok(Some(user));
    }
    if others {
        let why = "requested [{UserInfo ...}] without impersonating a user";
        return Err(Status::internal(why));
    }
    Ok(None)
}

/// Everyone but the anonymous user is authenticated.
fn complete_groups(user: &mut User) {
    let group = if user.name == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED };
    let told = user.groups.iter().any(|one| one == AUTHENTICATED || one == UNAUTHENTICATED);
    if !told {
        user.groups.push(group.to_owned());
    }
}

struct Ask<'a> {
    request: &'a Request,
    authorizer: &'a dyn Authorizer,
}

impl Ask<'_> {
    async fn may(&self, resource: &str, subresource: &str, namespace: &str, name: &str) -> Result<()> {
        let attributes = Attributes {
            user: self.request.user.clone(),
            verb: "impersonate".to_owned(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            resource_request: true,
            path: self.request.info.path.clone(),
            ..Attributes::default()
        };
        self.decide(attributes).await
    }

    async fn may_in(&self, group: &str, resource: &str, subresource: &str, name: &str) -> Result<()> {
        let attributes = Attributes {
            user: self.request.user.clone(),
            verb: "impersonate".to_owned(),
            group: group.to_owned(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            name: name.to_owned(),
            resource_request: true,
            path: self.request.info.path.clone(),
            ..Attributes::default()
        };
        self.decide(attributes).await
    }

    async fn decide(&self, attributes: Attributes) -> Result<()> {
        match self.authorizer.authorize(&attributes).await {
            Decision::Allow(_) => Ok(()),
            Decision::Deny(reason) | Decision::NoOpinion(reason) => Err(authz::forbidden(&attributes, &reason)),
        }
    }
}
