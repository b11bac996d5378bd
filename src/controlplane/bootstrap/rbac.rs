//! The RBAC objects of a fresh server, made from the tables beside, and the reconciliation of
//! existing ones at each start (`component-helpers/auth/rbac/reconciliation`).

use super::controllers::CONTROLLERS;
use super::roles::{BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, ROLES};
use crate::auth::authz::rule::{self, Rule};
use crate::meta::{Gvr, Map, Object, Value, json};

const GROUP: &str = "rbac.authorization.k8s.io";
const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
const AGGREGATE_TO: &str = "rbac.authorization.k8s.io/aggregate-to-";

pub(super) const READ: &str = "get,list,watch";
pub(super) const WRITE: &str = "create,delete,deletecollection,patch,update";
pub(super) const READ_WRITE: &str = "create,delete,deletecollection,get,list,patch,update,watch";
/// The rule of all components that record events.
pub(super) const EVENTS: RuleRow = rule("create,patch,update", ",events.k8s.io", "events");

/// A rule as comma-separated lists. The core group is the empty string, so `,apps` is core and
/// apps.
#[derive(Clone, Copy)]
pub(super) struct RuleRow {
    verbs: &'static str,
    groups: Option<&'static str>,
    resources: &'static str,
    names: &'static str,
    urls: &'static str,
}

/// A ClusterRole of the table.
pub(super) struct ClusterRole {
    pub name: &'static str,
    /// The aggregated role that gathers this one's rules, or empty.
    pub feeds: &'static str,
    /// For an aggregated role: the label of the roles it gathers. Its rules are the controller's to
    /// fill in.
    pub gathers: &'static str,
    pub rules: &'static [RuleRow],
}

pub(super) struct Subject {
    kind: &'static str,
    name: &'static str,
}

pub(super) const fn rule(
    verbs: &'static str,
    groups: &'static str,
    resources: &'static str,
) -> RuleRow {
    RuleRow {
        verbs,
        groups: Some(groups),
        resources,
        names: "",
        urls: "",
    }
}

pub(super) const fn named(
    verbs: &'static str,
    groups: &'static str,
    resources: &'static str,
    names: &'static str,
) -> RuleRow {
    RuleRow {
        verbs,
        groups: Some(groups),
        resources,
        names,
        urls: "",
    }
}

pub(super) const fn urls(verbs: &'static str, urls: &'static str) -> RuleRow {
    RuleRow {
        verbs,
        groups: None,
        resources: "",
        names: "",
        urls,
    }
}

pub(super) const fn role(name: &'static str, rules: &'static [RuleRow]) -> ClusterRole {
    ClusterRole {
        name,
        feeds: "",
        gathers: "",
        rules,
    }
}

pub(super) const fn user(name: &'static str) -> Subject {
    Subject { kind: "User", name }
}

pub(super) const fn group(name: &'static str) -> Subject {
    Subject {
        kind: "Group",
        name,
    }
}

/// A service account of kube-system.
pub(super) const fn account(name: &'static str) -> Subject {
    Subject {
        kind: "ServiceAccount",
        name,
    }
}

/// Every RBAC object of a fresh server.
pub(super) fn objects() -> Vec<(Gvr, Object)> {
    let gvr = |resource: &str| Gvr::new(GROUP, "v1", resource);
    let mut out = Vec::new();
    for role in CLUSTER_ROLES {
        out.push((gvr("clusterroles"), cluster_role(role)));
    }
    for (name, rules) in CONTROLLERS {
        let name = format!("system:controller:{name}");
        let role = new("ClusterRole", "", &name, &[]);
        out.push((gvr("clusterroles"), with(role, "rules", rule_values(rules))));
    }
    for (name, subjects) in CLUSTER_BINDINGS {
        out.push((
            gvr("clusterrolebindings"),
            binding(
                "ClusterRoleBinding",
                "",
                name,
                ("ClusterRole", name),
                subjects,
            ),
        ));
    }
    for (name, _) in CONTROLLERS {
        let role = format!("system:controller:{name}");
        out.push((
            gvr("clusterrolebindings"),
            binding(
                "ClusterRoleBinding",
                "",
                &role,
                ("ClusterRole", &role),
                &[account(name)],
            ),
        ));
    }
    for (namespace, name, rules) in ROLES {
        out.push((
            gvr("roles"),
            with(
                new("Role", namespace, name, &[]),
                "rules",
                rule_values(rules),
            ),
        ));
    }
    for (namespace, name, role, subjects) in BINDINGS {
        out.push((
            gvr("rolebindings"),
            binding("RoleBinding", namespace, name, ("Role", role), subjects),
        ));
    }
    out
}

/// The rules of the ClusterRole `system:node`, by which the Node authorizer goes.
pub fn node_rules() -> Vec<Rule> {
    let role = CLUSTER_ROLES.iter().find(|role| role.name == "system:node");
    role.map_or_else(Vec::new, |role| {
        role.rules.iter().map(RuleRow::rule).collect()
    })
}

fn new(kind: &str, namespace: &str, name: &str, labels: &[(String, &str)]) -> Object {
    let mut object = super::object(&format!("{GROUP}/v1"), kind, namespace, name);
    let mut all = Map::new();
    all.insert(
        "kubernetes.io/bootstrapping".to_owned(),
        "rbac-defaults".into(),
    );
    all.extend(
        labels
            .iter()
            .map(|(key, value)| (key.clone(), Value::from(*value))),
    );
    object.metadata_mut().insert("labels", Value::Object(all));
    object
        .metadata_mut()
        .insert("annotations", json!({AUTO_UPDATE: "true"}));
    object
}

fn with(mut object: Object, key: &str, value: Value) -> Object {
    object.insert(key.to_owned(), value);
    object
}

fn cluster_role(role: &ClusterRole) -> Object {
    let feeds: Vec<(String, &str)> = if role.feeds.is_empty() {
        Vec::new()
    } else {
        vec![(format!("{AGGREGATE_TO}{}", role.feeds), "true")]
    };
    let object = new("ClusterRole", "", role.name, &feeds);
    if role.gathers.is_empty() {
        return with(object, "rules", rule_values(role.rules));
    }
    let label = format!("{AGGREGATE_TO}{}", role.gathers);
    let selector = json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]});
    with(
        with(object, "rules", Value::Null),
        "aggregationRule",
        selector,
    )
}

impl RuleRow {
    fn rule(&self) -> Rule {
        let split = |list: &str| -> Vec<String> { list.split(',').map(str::to_owned).collect() };
        let some = |list: &str| {
            if list.is_empty() {
                Vec::new()
            } else {
                split(list)
            }
        };
        Rule {
            verbs: some(self.verbs),
            api_groups: self.groups.map_or_else(Vec::new, split),
            resources: some(self.resources),
            resource_names: some(self.names),
            non_resource_urls: some(self.urls),
        }
    }
}

fn rule_values(rows: &[RuleRow]) -> Value {
    rows.iter().map(|row| row.rule().to_value()).collect()
}

fn binding(
    kind: &str,
    namespace: &str,
    name: &str,
    (role_kind, role): (&str, &str),
    subjects: &[Subject],
) -> Object {
    let mut object = new(kind, namespace, name, &[]);
    let subject = |subject: &Subject| match subject.kind {
        "ServiceAccount" => {
            json!({"kind": subject.kind, "name": subject.name, "namespace": "kube-system"})
        }
        kind => json!({"kind": kind, "apiGroup": GROUP, "name": subject.name}),
    };
    if !subjects.is_empty() {
        object.insert("subjects", subjects.iter().map(subject).collect());
    }
    with(
        object,
        "roleRef",
        json!({"apiGroup": GROUP, "kind": role_kind, "name": role}),
    )
}

/// The repair of an RBAC object that exists.
#[derive(Debug, PartialEq)]
pub(super) enum Repair {
    Nothing,
    Update(Object),
    /// A roleRef cannot change: delete, then create anew.
    Recreate,
}

/// Adds to `existing` what `expected` has and it has not: labels, annotations, rules, aggregation
/// selectors, subjects. Nothing is taken away, and an object that opted out is left alone.
pub(super) fn reconcile(existing: &Object, expected: &Object) -> Repair {
    if existing
        .annotations()
        .and_then(|all| all.get(AUTO_UPDATE))
        .and_then(Value::as_str)
        == Some("false")
    {
        return Repair::Nothing;
    }
    if existing.get("roleRef") != expected.get("roleRef") {
        return Repair::Recreate;
    }
    let mut object = existing.clone();
    for map in ["labels", "annotations"] {
        let wanted = expected
            .metadata()
            .and_then(|meta| meta.get(map))
            .and_then(Value::as_object);
        add_missing_keys(object.metadata_mut(), map, wanted);
    }
    if expected.contains_key("roleRef") {
        add_missing_items(
            &mut object,
            "subjects",
            expected.array_at("/subjects").to_vec(),
        );
    } else {
        let rules = Rule::list(expected.array_at("/rules"));
        // If there are too many to compare, all are added.
        let missing =
            rule::uncovered(&Rule::list(existing.array_at("/rules")), &rules).unwrap_or(rules);
        add_missing_items(
            &mut object,
            "rules",
            missing.iter().map(Rule::to_value).collect(),
        );
        match expected.array_at("/aggregationRule/clusterRoleSelectors") {
            [] => {
                object.shift_remove("aggregationRule");
            }
            selectors => {
                let selectors = selectors.to_vec();
                let rule = object.section_mut("aggregationRule");
                add_missing_values(
                    rule.entry("clusterRoleSelectors").or_insert(Value::Null),
                    selectors,
                );
            }
        }
    }
    if object == *existing {
        Repair::Nothing
    } else {
        Repair::Update(object)
    }
}

fn add_missing_keys(metadata: &mut Map, map: &'static str, wanted: Option<&Map>) {
    let Some(wanted) = wanted else { return };
    let slot = metadata
        .entry(map)
        .or_insert_with(|| Value::Object(Map::new()));
    if let Some(slot) = slot.as_object_mut() {
        for (key, value) in wanted {
            slot.entry(key).or_insert_with(|| value.clone());
        }
    }
}

fn add_missing_items(object: &mut Object, key: &'static str, wanted: Vec<Value>) {
    if !wanted.is_empty() {
        add_missing_values(object.entry(key).or_insert(Value::Null), wanted);
    }
}

fn add_missing_values(list: &mut Value, wanted: Vec<Value>) {
    if !list.is_array() {
        *list = Value::Array(Vec::new());
    }
    if let Some(list) = list.as_array_mut() {
        for value in wanted {
            if !list.contains(&value) {
                list.push(value);
            }
        }
    }
}
