//! The RBAC authorizer: an index of rules by user and group, updated object by object
//! (`plugin/pkg/auth/authorizer/rbac`).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::meta::Value;
use async_trait::async_trait;
use parking_lot::RwLock;

use super::{Attributes, Authorizer, Decision, Rule, UserRules, aggregate};
use crate::auth::User;
use crate::meta::go;
use crate::meta::{Object, str_at};

/// The roles and bindings of a cluster, indexed by subject. An update costs what the object is
/// worth, whatever else there is, and an authorization a look at the bindings of the user and its
/// groups.
#[derive(Default)]
pub struct RbacStore {
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    cluster_roles: HashMap<String, Arc<[Rule]>>,
    roles: HashMap<String, HashMap<String, Arc<[Rule]>>>,
    cluster_bindings: Bindings,
    bindings: HashMap<String, Bindings>,
}

/// The bindings of one scope.
#[derive(Default)]
struct Bindings {
    by_name: HashMap<String, Arc<Binding>>,
    /// By user name; service accounts are users too.
    by_user: HashMap<String, Grants>,
    by_group: HashMap<String, Grants>,
}

/// The bindings of one subject by name, each with the subject's place in it.
type Grants = BTreeMap<String, (Arc<Binding>, usize)>;

struct Binding {
    name: String,
    /// Empty for ClusterRoleBindings.
    namespace: String,
    role_kind: String,
    role_name: String,
    subjects: Vec<Subject>,
}

struct Subject {
    kind: String,
    name: String,
    /// Of a service account.
    namespace: String,
}

/// The user or group that a subject stands for.
enum SubjectKey {
    User(String),
    Group(String),
}

impl Subject {
    /// The user or group that the subject of a binding in `scope` stands for; `None` for nobody.
    fn key(&self, scope: &str) -> Option<SubjectKey> {
        match self.kind.as_str() {
            "User" => Some(SubjectKey::User(self.name.clone())),
            "Group" => Some(SubjectKey::Group(self.name.clone())),
            "ServiceAccount" => {
                let namespace = if self.namespace.is_empty() {
                    scope
                } else {
                    &self.namespace
                };
                (!namespace.is_empty()).then(|| {
                    SubjectKey::User(format!("system:serviceaccount:{namespace}:{}", self.name))
                })
            }
            _ => None,
        }
    }
}

impl Binding {
    fn new(object: &Object) -> Self {
        let subject = |value: &Value| Subject {
            kind: str_at(value, "/kind").to_owned(),
            name: str_at(value, "/name").to_owned(),
            namespace: str_at(value, "/namespace").to_owned(),
        };
        Self {
            name: object.name().to_owned(),
            namespace: object.namespace().to_owned(),
            role_kind: object.str_at("/roleRef/kind").to_owned(),
            role_name: object.str_at("/roleRef/name").to_owned(),
            subjects: object.array_at("/subjects").iter().map(subject).collect(),
        }
    }

    /// The binding as a reason names it: `RoleBinding "b/ns" of Role "r" to User "u"`.
    fn describe(&self, subject: usize) -> String {
        let (kind, name) = match self.namespace.as_str() {
            "" => ("ClusterRoleBinding", go::quote(&self.name)),
            namespace => (
                "RoleBinding",
                go::quote(&format!("{}/{namespace}", self.name)),
            ),
        };
        let to = self
            .subjects
            .get(subject)
            .map_or_else(String::new, |subject| {
                let namespace = if subject.namespace.is_empty() {
                    &self.namespace
                } else {
                    &subject.namespace
                };
                match subject.kind.as_str() {
                    "ServiceAccount" => format!(
                        "{} {}",
                        subject.kind,
                        go::quote(&format!("{}/{namespace}", subject.name))
                    ),
                    kind => format!("{kind} {}", go::quote(&subject.name)),
                }
            });
        format!(
            "{kind} {name} of {} {} to {to}",
            self.role_kind,
            go::quote(&self.role_name)
        )
    }

    fn missing_role(&self) -> String {
        let role = self.role_kind.to_lowercase();
        match role.as_str() {
            "role" | "clusterrole" => format!(
                "{role}.rbac.authorization.k8s.io {} not found",
                go::quote(&self.role_name)
            ),
            _ => format!(
                "unsupported role reference kind: {}",
                go::quote(&self.role_kind)
            ),
        }
    }
}

impl Bindings {
    fn insert(&mut self, binding: Binding) {
        self.remove(&binding.name);
        let binding = Arc::new(binding);
        for (index, subject) in binding.subjects.iter().enumerate() {
            let grants = match subject.key(&binding.namespace) {
                Some(SubjectKey::User(name)) => self.by_user.entry(name).or_default(),
                Some(SubjectKey::Group(name)) => self.by_group.entry(name).or_default(),
                None => continue,
            };
            grants
                .entry(binding.name.clone())
                .or_insert_with(|| (binding.clone(), index));
        }
        self.by_name.insert(binding.name.clone(), binding);
    }

    fn remove(&mut self, name: &str) {
        let Some(binding) = self.by_name.remove(name) else {
            return;
        };
        let forget = |index: &mut HashMap<String, Grants>, subject: &str| {
            if let Some(grants) = index.get_mut(subject) {
                grants.remove(name);
                if grants.is_empty() {
                    index.remove(subject);
                }
            }
        };
        for subject in &binding.subjects {
            match subject.key(&binding.namespace) {
                Some(SubjectKey::User(subject)) => forget(&mut self.by_user, &subject),
                Some(SubjectKey::Group(subject)) => forget(&mut self.by_group, &subject),
                None => {}
            }
        }
    }

    /// The bindings that apply to `user`: its own first, then those of its groups. One that names
    /// the user twice comes twice.
    fn of<'a>(&'a self, user: &'a User) -> impl Iterator<Item = (&'a Arc<Binding>, usize)> {
        let own = self.by_user.get(&user.name).into_iter();
        let groups = user
            .groups
            .iter()
            .filter_map(|group| self.by_group.get(group));
        own.chain(groups)
            .flat_map(BTreeMap::values)
            .map(|(binding, subject)| (binding, *subject))
    }
}

impl State {
    fn rules_of(&self, kind: &str, namespace: &str, name: &str) -> Option<&Arc<[Rule]>> {
        match kind {
            "ClusterRole" => self.cluster_roles.get(name),
            "Role" => self.roles.get(namespace)?.get(name),
            _ => None,
        }
    }

    /// Shows `visit` each binding of `user` that holds in `namespace`, with its rules, `None` where
    /// its role is missing, until it returns false.
    fn visit<'a>(
        &'a self,
        user: &'a User,
        namespace: &str,
        mut visit: impl FnMut(&'a Binding, usize, Option<&'a Arc<[Rule]>>) -> bool,
    ) {
        let local = if namespace.is_empty() {
            None
        } else {
            self.bindings.get(namespace)
        };
        let bindings = self
            .cluster_bindings
            .of(user)
            .chain(local.into_iter().flat_map(|bindings| bindings.of(user)));
        for (binding, subject) in bindings {
            let rules = self.rules_of(&binding.role_kind, &binding.namespace, &binding.role_name);
            if !visit(binding, subject, rules) {
                return;
            }
        }
    }
}

impl RbacStore {
    /// Takes in a Role, ClusterRole, RoleBinding or ClusterRoleBinding, new or changed. Other kinds
    /// are ignored.
    pub fn upsert(&self, object: &Object) {
        let (namespace, name) = (object.namespace(), object.name());
        // What is built from the object is built before the lock is taken.
        match object.kind() {
            "ClusterRole" => {
                let rules = Rule::list(object.array_at("/rules")).into();
                self.state
                    .write()
                    .cluster_roles
                    .insert(name.to_owned(), rules);
            }
            "Role" => {
                let rules = Rule::list(object.array_at("/rules")).into();
                self.state
                    .write()
                    .roles
                    .entry(namespace.to_owned())
                    .or_default()
                    .insert(name.to_owned(), rules);
            }
            "ClusterRoleBinding" => {
                let binding = Binding::new(object);
                self.state.write().cluster_bindings.insert(binding);
            }
            "RoleBinding" => {
                let binding = Binding::new(object);
                self.state
                    .write()
                    .bindings
                    .entry(namespace.to_owned())
                    .or_default()
                    .insert(binding);
            }
            _ => {}
        }
    }

    /// Forgets a deleted object; `namespace` is empty for the kinds of the cluster.
    pub fn remove(&self, kind: &str, namespace: &str, name: &str) {
        let mut state = self.state.write();
        match kind {
            "ClusterRole" => {
                state.cluster_roles.remove(name);
            }
            "Role" => {
                if let Some(roles) = state.roles.get_mut(namespace) {
                    roles.remove(name);
                    if roles.is_empty() {
                        state.roles.remove(namespace);
                    }
                }
            }
            "ClusterRoleBinding" => state.cluster_bindings.remove(name),
            "RoleBinding" => {
                if let Some(bindings) = state.bindings.get_mut(namespace) {
                    bindings.remove(name);
                    if bindings.by_name.is_empty() {
                        state.bindings.remove(namespace);
                    }
                }
            }
            _ => {}
        }
    }

    /// Makes `objects` all there is of `kind`, as after a fresh list. Nothing in between is seen.
    pub fn replace<'a>(&self, kind: &str, objects: impl IntoIterator<Item = &'a Object>) {
        let fresh = Self::default();
        objects
            .into_iter()
            .filter(|object| object.kind() == kind)
            .for_each(|object| fresh.upsert(object));
        let fresh = fresh.state.into_inner();
        let mut state = self.state.write();
        match kind {
            "ClusterRole" => state.cluster_roles = fresh.cluster_roles,
            "Role" => state.roles = fresh.roles,
            "ClusterRoleBinding" => state.cluster_bindings = fresh.cluster_bindings,
            "RoleBinding" => state.bindings = fresh.bindings,
            _ => {}
        }
    }

    /// The rules of a role; `kind` is Role or ClusterRole, `namespace` that of the binding. `None`
    /// where it is missing.
    pub fn role_rules(&self, kind: &str, namespace: &str, name: &str) -> Option<Arc<[Rule]>> {
        self.state.read().rules_of(kind, namespace, name).cloned()
    }

    /// Every rule that applies to `user` in `namespace` (the cluster where empty), cluster bindings
    /// first.
    pub fn rules_for_user(&self, user: &User, namespace: &str) -> UserRules {
        let state = self.state.read();
        let mut all = UserRules::default();
        let mut seen: Vec<*const Binding> = Vec::new();
        state.visit(user, namespace, |binding, _, rules| {
            if !seen.contains(&std::ptr::from_ref(binding)) {
                seen.push(binding);
                match rules {
                    Some(rules) => all.rules.extend(rules.iter().cloned()),
                    None => all.errors.push(binding.missing_role()),
                }
            }
            true
        });
        all
    }

    /// Reports whether RBAC allows what is asked; never denies.
    pub fn check(&self, asked: &Attributes) -> Decision {
        let state = self.state.read();
        let mut allowed = None;
        let mut errors = Vec::new();
        state.visit(&asked.user, &asked.namespace, |binding, subject, rules| {
            match rules {
                Some(rules) if rules.iter().any(|rule| rule.allows(asked)) => {
                    allowed = Some((binding, subject))
                }
                Some(_) => {}
                None => errors.push(binding.missing_role()),
            }
            allowed.is_none()
        });
        match allowed {
            Some((binding, subject)) => {
                Decision::allow(format!("RBAC: allowed by {}", binding.describe(subject)))
            }
            None if errors.is_empty() => Decision::no_opinion(""),
            None => Decision::no_opinion(format!("RBAC: {}", aggregate(&errors))),
        }
    }
}

#[async_trait]
impl Authorizer for RbacStore {
    async fn authorize(&self, attributes: &Attributes) -> Decision {
        self.check(attributes)
    }

    async fn rules_for(&self, user: &User, namespace: &str) -> UserRules {
        self.rules_for_user(user, namespace)
    }
}

#[cfg(test)]
mod tests;
