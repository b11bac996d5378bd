//! The authorizer as expressions of one request ask it, which keeps its answers (apiserver
//! `admission/plugin/authorizer/caching_authorizer.go`).

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::auth::User;
use crate::auth::authn::service_account::{groups, username};
use crate::auth::authz::{self, Authorizer};
use crate::cel::{self, Access, Check, ResourceAccess, ServiceAccount, Value};
use crate::meta::selector::fields::{FieldSelector, Term};
use crate::meta::selector::labels::{LabelSelector, Requirement};

/// The answers of an authorizer about one user. An expression that asks for one that is not there
/// is suspended, [`Authorizations::answer`] fetches it, and the expression begins anew. Each check
/// costs so much that few of them can be made.
#[derive(Clone)]
pub struct Authorizations {
    authorizer: Arc<dyn Authorizer>,
    answers: Arc<Answers>,
}

#[derive(Debug)]
struct Answers {
    user: Arc<User>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    known: HashMap<Check, cel::Decision>,
    wanted: Option<Check>,
}

impl fmt::Debug for Authorizations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorizations").finish_non_exhaustive()
    }
}

impl Authorizations {
    pub fn new(authorizer: Arc<dyn Authorizer>, user: Arc<User>) -> Self {
        let answers = Answers {
            user,
            state: Mutex::default(),
        };
        Self {
            authorizer,
            answers: Arc::new(answers),
        }
    }

    /// The variable `authorizer`.
    pub(super) fn value<'a>(&self) -> Value<'a> {
        cel::authorizer(self.answers.clone())
    }

    /// The variable `authorizer.requestResource`.
    pub(super) fn request_resource<'a>(&self, access: ResourceAccess) -> Value<'a> {
        cel::resource_check(self.answers.clone(), access)
    }

    /// Fetches the answer that an expression was suspended for. Returns false if there was none.
    pub(super) async fn answer(&self) -> bool {
        let Some(check) = self.answers.state().wanted.take() else {
            return false;
        };
        let attributes = self.answers.attributes(&check);
        let decision = self.authorizer.authorize(&attributes).await;
        let decision = cel::Decision {
            allowed: decision.is_allowed(),
            reason: decision.reason,
            error: decision.error,
        };
        self.answers.state().known.insert(check, decision);
        true
    }
}

impl Answers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A check as the authorizers are asked it.
    fn attributes(&self, check: &Check) -> authz::Attributes {
        let user = match &check.service_account {
            None => self.user.clone(),
            Some(account) => Arc::new(user_of(account)),
        };
        let attributes = authz::Attributes {
            user,
            verb: check.verb.clone(),
            ..authz::Attributes::default()
        };
        match &check.access {
            Access::Path(path) => authz::Attributes {
                path: path.clone(),
                ..attributes
            },
            Access::Resource(access) => authz::Attributes {
                resource_request: true,
                group: access.group.clone(),
                version: "*".to_owned(),
                resource: access.resource.clone(),
                subresource: access.subresource.clone(),
                namespace: access.namespace.clone(),
                name: access.name.clone(),
                field_selector: fields_of(&access.field_selector),
                label_selector: labels_of(&access.label_selector),
                ..attributes
            },
        }
    }
}

impl cel::Authorizer for Answers {
    fn decide(&self, check: &Check) -> Result<cel::Decision, cel::Error> {
        let mut state = self.state();
        if let Some(known) = state.known.get(check) {
            return Ok(known.clone());
        }
        state.wanted = Some(check.clone());
        Err(cel::Error::Suspended)
    }
}

/// The user that a service account is.
fn user_of(account: &ServiceAccount) -> User {
    User {
        name: username(&account.namespace, &account.name),
        groups: groups(&account.namespace),
        ..User::default()
    }
}

/// The requirements of a field selector. One that cannot be read narrows nothing down.
fn fields_of(selector: &str) -> Vec<Term> {
    FieldSelector::parse(selector).unwrap_or_default().terms
}

/// The requirements of a label selector. One that cannot be read narrows nothing down.
fn labels_of(selector: &str) -> Vec<Requirement> {
    LabelSelector::parse(selector)
        .unwrap_or_default()
        .requirements
}
