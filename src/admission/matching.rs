//! The selection of requests by policies and webhooks: rules, selectors, and resources that are
//! equivalent to the one of the request (apiserver `admission/plugin/policy/matching`,
//! `admission/plugin/webhook/predicates`).

use std::borrow::Cow;
use std::sync::Arc;

use tokio::sync::OnceCell;

use crate::admission::kinds::Kinds;
use crate::admission::{Attributes, Objects, Operation};
use crate::meta::selector::labels::LabelSelector;
use crate::meta::status;
use crate::meta::{Gvk, Gvr, Object, Status, Value, array_at, str_at};

const ANY: &str = "*";

/// The scope of the objects that a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Any,
    Namespaced,
    Cluster,
    /// One that there is not, which nothing matches.
    Unknown,
}

/// A rule that selects requests.
#[derive(Clone, Debug)]
pub struct ResourceRule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    /// Resources with their subresources, which are empty for the resource itself.
    resources: Vec<(String, String)>,
    scope: Scope,
    /// The objects that it is about; all of them where it names none.
    names: Vec<String>,
}

fn texts(rule: &Value, path: &str) -> Vec<String> {
    array_at(rule, path)
        .iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

fn has(items: &[String], wanted: &str) -> bool {
    items.iter().any(|item| item == ANY || item == wanted)
}

impl ResourceRule {
    /// Reads a rule of a policy or webhook.
    pub fn read(rule: &Value) -> Self {
        let resources = texts(rule, "/resources").into_iter();
        Self {
            operations: texts(rule, "/operations"),
            groups: texts(rule, "/apiGroups"),
            versions: texts(rule, "/apiVersions"),
            resources: resources
                .map(|text| match text.split_once('/') {
                    Some((resource, sub)) => (resource.to_owned(), sub.to_owned()),
                    None => (text, String::new()),
                })
                .collect(),
            scope: match str_at(rule, "/scope") {
                "" | ANY => Scope::Any,
                "Namespaced" => Scope::Namespaced,
                "Cluster" => Scope::Cluster,
                _ => Scope::Unknown,
            },
            names: texts(rule, "/resourceNames"),
        }
    }

    fn matches(&self, attributes: &Attributes<'_>, gvr: &Gvr) -> bool {
        self.matches_but_version(attributes, gvr)
            && has(&self.groups, &gvr.group)
            && has(&self.versions, &gvr.version)
    }

    /// Reports whether the rule is about the request, in whatever group and version.
    fn matches_but_version(&self, attributes: &Attributes<'_>, gvr: &Gvr) -> bool {
        self.in_scope(attributes, gvr)
            && has(&self.operations, attributes.operation.as_str())
            && self.resources.iter().any(|(resource, sub)| {
                (resource == ANY || *resource == gvr.resource)
                    && (sub == ANY || sub == attributes.subresource)
            })
            && (self.names.is_empty() || self.names.iter().any(|name| name == attributes.name))
    }

    fn in_scope(&self, attributes: &Attributes<'_>, gvr: &Gvr) -> bool {
        // Requests about a namespace carry its name as their namespace.
        let is_namespace =
            gvr.resource == "namespaces" && gvr.group.is_empty() && gvr.version == "v1";
        let of_cluster = is_namespace || attributes.namespace.is_empty();
        match self.scope {
            Scope::Any => true,
            Scope::Namespaced => !of_cluster,
            Scope::Cluster => of_cluster,
            Scope::Unknown => false,
        }
    }
}

/// The selection of requests that a policy, a binding or a webhook makes.
#[derive(Clone, Debug)]
pub struct MatchResources {
    pub rules: Vec<ResourceRule>,
    pub excluded: Vec<ResourceRule>,
    /// The error is that of a selector that cannot be read.
    namespaces: Result<LabelSelector, String>,
    objects: Result<LabelSelector, String>,
    /// True if requests in other versions match as well.
    equivalent: bool,
}

impl MatchResources {
    /// Reads `matchConstraints` or `matchResources`.
    ///
    /// # Errors
    /// A selector is missing.
    pub fn read(value: &Value) -> Result<Self, String> {
        let rules = |path: &str| {
            array_at(value, path)
                .iter()
                .map(ResourceRule::read)
                .collect()
        };
        let selector = |path: &str, what: &str| match crate::meta::value_at(value, path) {
            Some(selector) if !selector.is_null() => Ok(LabelSelector::from_object(Some(selector))),
            _ => Err(format!(
                "a nil {what} selector was passed, please ensure selectors are initialized properly"
            )),
        };
        Ok(Self {
            namespaces: selector("/namespaceSelector", "namespace")?,
            objects: selector("/objectSelector", "object")?,
            rules: rules("/resourceRules"),
            excluded: rules("/excludeResourceRules"),
            equivalent: str_at(value, "/matchPolicy") == "Equivalent",
        })
    }

    /// Reads what selects the requests of a webhook.
    ///
    /// # Errors
    /// A selector is missing.
    pub fn of_webhook(value: &Value) -> Result<Self, String> {
        Ok(Self {
            rules: array_at(value, "/rules")
                .iter()
                .map(ResourceRule::read)
                .collect(),
            ..Self::read(value)?
        })
    }

    /// The plurals that the rules name, `*` among them; every resource where there are no rules.
    pub fn plurals(&self) -> impl Iterator<Item = &str> {
        let any = self.rules.is_empty().then_some(ANY);
        self.rules
            .iter()
            .flat_map(|rule| rule.resources.iter().map(|(resource, _)| resource.as_str()))
            .chain(any)
    }
}

/// The resource and kind in which a request matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matched<'a> {
    pub gvr: Cow<'a, Gvr>,
    pub gvk: Cow<'a, Gvk>,
}

impl Matched<'_> {
    /// Returns the same for longer than the request is borrowed.
    pub fn into_owned(self) -> Matched<'static> {
        Matched {
            gvr: Cow::Owned(self.gvr.into_owned()),
            gvk: Cow::Owned(self.gvk.into_owned()),
        }
    }
}

/// One request, and what is looked up for it, once for all that it is compared with.
pub struct RequestMatcher<'a> {
    objects: &'a dyn Objects,
    kinds: &'a dyn Kinds,
    namespace: OnceCell<status::Result<Arc<Object>>>,
    equivalents: std::sync::OnceLock<Vec<(Gvr, Gvk)>>,
}

impl<'a> RequestMatcher<'a> {
    pub fn new(objects: &'a dyn Objects, kinds: &'a dyn Kinds) -> Self {
        Self {
            objects,
            kinds,
            namespace: OnceCell::new(),
            equivalents: std::sync::OnceLock::new(),
        }
    }

    /// Returns the resource and kind in which the request matches; `None` if it does not.
    ///
    /// # Errors
    /// It matches but for a selector that cannot be compared.
    pub async fn matches<'r>(
        &self,
        criteria: &MatchResources,
        attributes: &'r Attributes<'_>,
    ) -> status::Result<Option<Matched<'r>>> {
        let excluded = self.matching_rule(&criteria.excluded, criteria.equivalent, attributes);
        if excluded.is_some() {
            return Ok(None);
        }
        let matched = if criteria.rules.is_empty() {
            Some(own(attributes))
        } else {
            self.matching_rule(&criteria.rules, criteria.equivalent, attributes)
        };
        let Some(matched) = matched else {
            return Ok(None);
        };
        let object = object_matches(&criteria.objects, attributes);
        if object == Ok(false) {
            return Ok(None);
        }
        if !self
            .namespace_matches(&criteria.namespaces, attributes)
            .await?
        {
            return Ok(None);
        }
        object?;
        Ok(Some(matched))
    }

    fn matching_rule<'r>(
        &self,
        rules: &[ResourceRule],
        equivalent: bool,
        attributes: &'r Attributes<'_>,
    ) -> Option<Matched<'r>> {
        if rules
            .iter()
            .any(|rule| rule.matches(attributes, attributes.gvr))
        {
            return Some(own(attributes));
        }
        // Equivalent resources have the same name. To look for them takes time.
        let maybe = |rule: &ResourceRule| rule.matches_but_version(attributes, attributes.gvr);
        if !equivalent || !rules.iter().any(maybe) {
            return None;
        }
        let others = self.equivalents.get_or_init(|| {
            self.kinds
                .equivalents(attributes.gvr, attributes.subresource)
        });
        for rule in rules {
            let found = others.iter().find(|(gvr, _)| rule.matches(attributes, gvr));
            if let Some((gvr, gvk)) = found {
                return Some(Matched {
                    gvr: Cow::Owned(gvr.clone()),
                    gvk: Cow::Owned(gvk.clone()),
                });
            }
        }
        None
    }

    async fn namespace_matches(
        &self,
        selector: &Result<LabelSelector, String>,
        attributes: &Attributes<'_>,
    ) -> status::Result<bool> {
        if attributes.namespace.is_empty() && attributes.gvr.resource != "namespaces" {
            return Ok(true);
        }
        let selector = selector.as_ref().map_err(Status::internal)?;
        if selector.is_empty() {
            return Ok(true);
        }
        let itself = attributes.gvr.resource == "namespaces"
            && attributes.subresource.is_empty()
            && matches!(attributes.operation, Operation::Create | Operation::Update);
        if itself {
            return Ok(selector.matches(attributes.object().and_then(Object::labels)));
        }
        let namespace = self.namespace(attributes.namespace).await?;
        Ok(selector.matches(namespace.labels()))
    }

    /// Returns the namespace of the request.
    ///
    /// # Errors
    /// 404 where there is none.
    pub async fn namespace(&self, name: &str) -> status::Result<Arc<Object>> {
        let find = || async {
            let gvr = Gvr::new("", "v1", "namespaces");
            let found = self.objects.get(&gvr, "", name).await?;
            found.ok_or_else(|| Status::not_found(&gvr, name))
        };
        self.namespace.get_or_init(find).await.clone()
    }
}

fn own<'r>(attributes: &'r Attributes<'_>) -> Matched<'r> {
    Matched {
        gvr: Cow::Borrowed(attributes.gvr),
        gvk: Cow::Borrowed(attributes.gvk),
    }
}

/// Reports whether the selector takes the new object or the old one.
fn object_matches(
    selector: &Result<LabelSelector, String>,
    attributes: &Attributes<'_>,
) -> status::Result<bool> {
    let selector = selector.as_ref().map_err(Status::internal)?;
    let takes = |object: &Object| selector.matches(object.labels());
    Ok(selector.is_empty()
        || attributes.object().is_some_and(takes)
        || attributes.old.is_some_and(takes))
}
