//! Questions to the authorizer (apiserver `cel/library/authz.go`).

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::super::extension::Extension;
use super::super::value::{Error, Result, Value};
use super::Declaration;
use super::operators::declare;
use crate::meta::names::{dns1123_label, dns1123_subdomain};

pub const DECLARATIONS: &[Declaration] = &[
    declare!("path", path, "authorizer_path":
        "kubernetes.authorization.Authorizer(string) -> kubernetes.authorization.PathCheck"),
    declare!("group", group, "authorizer_group":
        "kubernetes.authorization.Authorizer(string) -> kubernetes.authorization.GroupCheck"),
    declare!("serviceAccount", service_account, "authorizer_serviceaccount":
        "kubernetes.authorization.Authorizer(string, string) -> \
         kubernetes.authorization.Authorizer"),
    declare!("resource", resource, "groupcheck_resource":
        "kubernetes.authorization.GroupCheck(string) -> kubernetes.authorization.ResourceCheck"),
    declare!("subresource", |args| narrowed(args, |to, text| to.subresource = text),
        "resourcecheck_subresource":
        "kubernetes.authorization.ResourceCheck(string) -> kubernetes.authorization.ResourceCheck"),
    declare!("namespace", |args| narrowed(args, |to, text| to.namespace = text),
        "resourcecheck_namespace":
        "kubernetes.authorization.ResourceCheck(string) -> kubernetes.authorization.ResourceCheck"),
    declare!("name", |args| narrowed(args, |to, text| to.name = text), "resourcecheck_name":
        "kubernetes.authorization.ResourceCheck(string) -> kubernetes.authorization.ResourceCheck"),
    declare!("fieldSelector", |args| narrowed(args, |to, text| to.field_selector = text),
        "authorizer_fieldselector":
        "kubernetes.authorization.ResourceCheck(string) -> kubernetes.authorization.ResourceCheck"),
    declare!("labelSelector", |args| narrowed(args, |to, text| to.label_selector = text),
        "authorizer_labelselector":
        "kubernetes.authorization.ResourceCheck(string) -> kubernetes.authorization.ResourceCheck"),
    declare!("check", check,
        "pathcheck_check":
        "kubernetes.authorization.PathCheck(string) -> kubernetes.authorization.Decision",
        "resourcecheck_check":
        "kubernetes.authorization.ResourceCheck(string) -> kubernetes.authorization.Decision"),
    declare!("allowed", |args| {
        Some(Ok(Value::Bool(decision(args)?.allowed)))
    }, "decision_allowed": "kubernetes.authorization.Decision() -> bool"),
    declare!("reason", |args| {
        Some(Ok(Value::text(decision(args)?.reason.as_str())))
    }, "decision_reason": "kubernetes.authorization.Decision() -> string"),
    declare!("errored", |args| {
        Some(Ok(Value::Bool(decision(args)?.error.is_some())))
    }, "decision_errored": "kubernetes.authorization.Decision() -> bool"),
    declare!("error", |args| {
        Some(Ok(Value::text(decision(args)?.error.as_deref().unwrap_or_default())))
    }, "decision_error": "kubernetes.authorization.Decision() -> string"),
];

/// An authorizer as expressions ask it.
pub trait Authorizer: fmt::Debug + Send + Sync {
    /// Decides a check.
    ///
    /// # Errors
    /// [`Error::Suspended`] where the answer is to be waited for.
    fn decide(&self, check: &Check) -> Result<Decision>;
}

/// The question whether somebody may do something.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Check {
    /// The service account that it is about; `None` for who made the request.
    pub service_account: Option<ServiceAccount>,
    pub verb: String,
    pub access: Access,
}

/// A service account by its names.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ServiceAccount {
    pub namespace: String,
    pub name: String,
}

/// The object of a check.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Access {
    Path(String),
    Resource(ResourceAccess),
}

/// A resource, as far as it has been narrowed down.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct ResourceAccess {
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub field_selector: String,
    pub label_selector: String,
}

/// The answer to a check.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Decision {
    pub allowed: bool,
    pub reason: String,
    pub error: Option<String>,
}

/// The variable `authorizer`.
pub fn authorizer<'a>(authorizer: Arc<dyn Authorizer>) -> Value<'a> {
    value(Asked {
        authorizer,
        service_account: None,
    })
}

/// The variable `authorizer.requestResource`.
pub fn resource_check<'a>(authorizer: Arc<dyn Authorizer>, access: ResourceAccess) -> Value<'a> {
    let asked = Asked {
        authorizer,
        service_account: None,
    };
    value(ResourceCheck { asked, access })
}

#[derive(Clone, Debug)]
struct Asked {
    authorizer: Arc<dyn Authorizer>,
    service_account: Option<ServiceAccount>,
}

#[derive(Debug)]
struct PathCheck {
    asked: Asked,
    path: String,
}

#[derive(Debug)]
struct GroupCheck {
    asked: Asked,
    group: String,
}

#[derive(Clone, Debug)]
struct ResourceCheck {
    asked: Asked,
    access: ResourceAccess,
}

macro_rules! extension {
    ($of:ty, $name:literal) => {
        impl Extension for $of {
            fn type_name(&self) -> &'static str {
                $name
            }

            /// No two of them are equal.
            fn equals(&self, _: &dyn Extension) -> bool {
                false
            }

            fn as_any(&self) -> &dyn Any {
                self
            }
        }
    };
}

extension!(Asked, "kubernetes.authorization.Authorizer");
extension!(PathCheck, "kubernetes.authorization.PathCheck");
extension!(GroupCheck, "kubernetes.authorization.GroupCheck");
extension!(ResourceCheck, "kubernetes.authorization.ResourceCheck");
extension!(Decision, "kubernetes.authorization.Decision");

fn value<'a>(extension: impl Extension + 'static) -> Value<'a> {
    Value::Extension(Arc::new(extension))
}

fn of<'v, T: 'static>(value: &'v Value<'_>) -> Option<&'v T> {
    match value {
        Value::Extension(value) => value.as_any().downcast_ref(),
        _ => None,
    }
}

/// The target and the text of a call.
fn parts<'v, T: 'static>(args: &'v [Value<'_>]) -> Option<(&'v T, &'v str)> {
    match args {
        [target, Value::String(text)] => Some((of(target)?, text.as_str())),
        _ => None,
    }
}

fn decision<'v>(args: &'v [Value<'_>]) -> Option<&'v Decision> {
    of(args.first()?)
}

fn path<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let (asked, path) = parts::<Asked>(args)?;
    if path.trim().is_empty() {
        return Some(Err(Error::new("path must not be empty")));
    }
    Some(Ok(value(PathCheck {
        asked: asked.clone(),
        path: path.to_owned(),
    })))
}

fn group<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let (asked, group) = parts::<Asked>(args)?;
    Some(Ok(value(GroupCheck {
        asked: asked.clone(),
        group: group.to_owned(),
    })))
}

fn service_account<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [asked, Value::String(namespace), Value::String(name)] = args else {
        return None;
    };
    let asked = of::<Asked>(asked)?;
    let (namespace, name) = (namespace.as_str(), name.as_str());
    if !dns1123_subdomain(name).is_empty() {
        return Some(Err(Error::new("Invalid service account name")));
    }
    if !dns1123_label(namespace).is_empty() {
        return Some(Err(Error::new("Invalid service account namespace")));
    }
    Some(Ok(value(Asked {
        authorizer: asked.authorizer.clone(),
        service_account: Some(ServiceAccount {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }),
    })))
}

fn resource<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let (check, resource) = parts::<GroupCheck>(args)?;
    if resource.trim().is_empty() {
        return Some(Err(Error::new("resource must not be empty")));
    }
    Some(Ok(value(ResourceCheck {
        asked: check.asked.clone(),
        access: ResourceAccess {
            group: check.group.clone(),
            resource: resource.to_owned(),
            ..ResourceAccess::default()
        },
    })))
}

/// The check with one more of its parts.
fn narrowed<'a>(
    args: &[Value<'a>],
    narrow: fn(&mut ResourceAccess, String),
) -> Option<Result<Value<'a>>> {
    let (check, text) = parts::<ResourceCheck>(args)?;
    let mut check = check.clone();
    narrow(&mut check.access, text.to_owned());
    Some(Ok(value(check)))
}

fn check<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [target, Value::String(verb)] = args else {
        return None;
    };
    let (asked, access) = if let Some(check) = of::<PathCheck>(target) {
        (&check.asked, Access::Path(check.path.clone()))
    } else {
        let check = of::<ResourceCheck>(target)?;
        (&check.asked, Access::Resource(check.access.clone()))
    };
    let decided = asked.authorizer.decide(&Check {
        service_account: asked.service_account.clone(),
        verb: verb.as_str().to_owned(),
        access,
    });
    Some(decided.map(value))
}
