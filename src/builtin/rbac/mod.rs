//! rbac.authorization.k8s.io: roles and bindings (`pkg/apis/rbac/{v1,validation}`). Whether
//! somebody may grant what they write is not asked here but by [`crate::auth::authz::escalation`].

pub mod columns;

use crate::builtin::columns::DefaultPrinter;
use crate::builtin::resource_traits::{DEFAULT, ResourceEntry, ResourceTraits};
use crate::meta::{ErrorList, Object, Path, Value, json, names};
use crate::registry::validation::{
    Fields, SelectorOptions, invalid_each, requirement_has_invalid_value, validate_label_selector,
};
use crate::registry::{Context, MetaChecks, NameRule, Strategy};

/// RBAC: any name that fits into a URL, and PUT creates.
const RBAC: ResourceTraits = ResourceTraits {
    name: NameRule::PathSegment,
    create_on_update: true,
    meta_checks: MetaChecks::Everything,
    ..DEFAULT
};

/// The resources of the group.
pub static ENTRIES: &[&ResourceEntry] = &[
    &CLUSTER_ROLE_BINDINGS,
    &CLUSTER_ROLES,
    &ROLE_BINDINGS,
    &ROLES,
];

/// The entry of `clusterrolebindings`.
pub static CLUSTER_ROLE_BINDINGS: ResourceEntry = ResourceEntry {
    resource: "clusterrolebindings",
    traits: RBAC,
    strategy: &ClusterRoleBindingStrategy,
    printer: &columns::PRINTER,
};

/// The entry of `clusterroles`.
pub static CLUSTER_ROLES: ResourceEntry = ResourceEntry {
    resource: "clusterroles",
    traits: RBAC,
    strategy: &ClusterRoleStrategy,
    printer: &DefaultPrinter,
};

/// The entry of `rolebindings`.
pub static ROLE_BINDINGS: ResourceEntry = ResourceEntry {
    resource: "rolebindings",
    traits: RBAC,
    strategy: &RoleBindingStrategy,
    printer: &columns::PRINTER,
};

/// The entry of `roles`.
pub static ROLES: ResourceEntry = ResourceEntry {
    resource: "roles",
    traits: RBAC,
    strategy: &RoleStrategy,
    printer: &DefaultPrinter,
};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Roles in a namespace.
pub struct RoleStrategy;

/// Roles of the cluster, which may also be about paths and gather other roles' rules.
pub struct ClusterRoleStrategy;

/// Bindings in a namespace.
pub struct RoleBindingStrategy;

/// Bindings of the cluster.
pub struct ClusterRoleBindingStrategy;

impl Strategy for RoleStrategy {
    fn validate(&self, _ctx: &Context, role: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        validate_rules(&mut errors, role, true);
        errors
    }
}

impl Strategy for ClusterRoleStrategy {
    fn validate(&self, _ctx: &Context, role: &Object) -> ErrorList {
        validate_cluster_role(role, SelectorOptions::default())
    }

    fn validate_update(&self, _ctx: &Context, role: &Object, old: &Object) -> ErrorList {
        let selectors = old.array_at("/aggregationRule/clusterRoleSelectors");
        let allow_invalid_values = selectors
            .iter()
            .any(|selector| requirement_has_invalid_value(selector.as_object()));
        validate_cluster_role(
            role,
            SelectorOptions {
                allow_invalid_values,
            },
        )
    }
}

impl Strategy for RoleBindingStrategy {
    fn default(&self, binding: &mut Object) {
        default_binding(binding);
    }

    fn validate(&self, _ctx: &Context, binding: &Object) -> ErrorList {
        validate_binding(binding, true)
    }

    fn validate_update(&self, _ctx: &Context, binding: &Object, old: &Object) -> ErrorList {
        validate_binding_update(binding, old, true)
    }
}

impl Strategy for ClusterRoleBindingStrategy {
    fn default(&self, binding: &mut Object) {
        default_binding(binding);
    }

    fn validate(&self, _ctx: &Context, binding: &Object) -> ErrorList {
        validate_binding(binding, false)
    }

    fn validate_update(&self, _ctx: &Context, binding: &Object, old: &Object) -> ErrorList {
        validate_binding_update(binding, old, false)
    }
}

fn validate_cluster_role(role: &Object, options: SelectorOptions) -> ErrorList {
    let mut errors = ErrorList::new();
    validate_rules(&mut errors, role, false);
    let Some(rule) = role.get("aggregationRule").filter(|rule| rule.is_object()) else {
        return errors;
    };
    let path = Path::new("aggregationRule").child("clusterRoleSelectors");
    let selectors = rule.list("clusterRoleSelectors");
    if selectors.is_empty() {
        errors.required(
            &path,
            "at least one clusterRoleSelector required if aggregationRule is non-nil",
        );
    }
    for (index, selector) in selectors.iter().enumerate() {
        let path = path.index(index);
        validate_label_selector(&mut errors, &path, selector.as_object(), options);
        // A selector cannot be made of what is invalid, whatever `options` let pass.
        let mut strict = ErrorList::new();
        let none = SelectorOptions::default();
        validate_label_selector(&mut strict, &path, selector.as_object(), none);
        if !strict.is_empty() {
            let detail = "invalid label selector.";
            errors.invalid(&path, Value::Null, detail);
        }
    }
    errors
}

fn validate_rules(errors: &mut ErrorList, role: &Object, namespaced: bool) {
    let path = Path::new("rules");
    for (index, rule) in role.array_at("/rules").iter().enumerate() {
        validate_rule(errors, &path.index(index), rule, namespaced);
    }
}

fn validate_rule(errors: &mut ErrorList, path: &Path, rule: &Value, namespaced: bool) {
    let empty = |key: &str| rule.list(key).is_empty();
    if empty("verbs") {
        errors.required(
            &path.child("verbs"),
            "verbs must contain at least one value",
        );
    }
    if !empty("nonResourceURLs") {
        let urls = path.child("nonResourceURLs");
        let mut refuse =
            |why: &str| errors.invalid(&urls, rule.list("nonResourceURLs").to_vec(), why);
        if namespaced {
            refuse("namespaced rules cannot apply to non-resource URLs");
        }
        if !empty("apiGroups") || !empty("resources") || !empty("resourceNames") {
            refuse("rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    if empty("apiGroups") {
        errors.required(
            &path.child("apiGroups"),
            "resource rules must supply at least one api group",
        );
    }
    if empty("resources") {
        errors.required(
            &path.child("resources"),
            "resource rules must supply at least one resource",
        );
    }
}

/// Users, groups and the role are of this group unless they say otherwise.
fn default_binding(binding: &mut Object) {
    let role = binding.section_mut("roleRef");
    if role
        .get("apiGroup")
        .and_then(Value::as_str)
        .is_none_or(str::is_empty)
    {
        role.insert("apiGroup", GROUP.into());
    }
    let subjects = binding
        .get_mut("subjects")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten();
    for subject in subjects.filter(|subject| {
        matches!(subject.str("kind"), "User" | "Group") && subject.str("apiGroup").is_empty()
    }) {
        subject["apiGroup"] = GROUP.into();
    }
}

fn validate_binding(binding: &Object, namespaced: bool) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("roleRef");
    let (group, kind, name) = (
        binding.str_at("/roleRef/apiGroup"),
        binding.str_at("/roleRef/kind"),
        binding.str_at("/roleRef/name"),
    );
    if group != GROUP {
        errors.not_supported(&path.child("apiGroup"), group, &[GROUP]);
    }
    let kinds: &[&str] = if namespaced {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    if !kinds.contains(&kind) {
        errors.not_supported(&path.child("kind"), kind, kinds);
    }
    if name.is_empty() {
        errors.required(&path.child("name"), "");
    } else {
        invalid_each(
            &mut errors,
            &path.child("name"),
            name,
            names::path_segment_name(name),
        );
    }
    let path = Path::new("subjects");
    for (index, subject) in binding.array_at("/subjects").iter().enumerate() {
        validate_subject(&mut errors, &path.index(index), subject, namespaced);
    }
    errors
}

fn validate_subject(errors: &mut ErrorList, path: &Path, subject: &Value, namespaced: bool) {
    let (kind, name, group) = (
        subject.str("kind"),
        subject.str("name"),
        subject.str("apiGroup"),
    );
    if name.is_empty() {
        errors.required(&path.child("name"), "");
    }
    match kind {
        "ServiceAccount" => {
            if !name.is_empty() {
                invalid_each(
                    errors,
                    &path.child("name"),
                    name,
                    names::dns1123_subdomain(name),
                );
            }
            if !group.is_empty() {
                errors.not_supported(&path.child("apiGroup"), group, &[""]);
            }
            if !namespaced && subject.str("namespace").is_empty() {
                errors.required(&path.child("namespace"), "");
            }
        }
        "User" | "Group" if group != GROUP => {
            errors.not_supported(&path.child("apiGroup"), group, &[GROUP])
        }
        "User" | "Group" => {}
        other => errors.not_supported(
            &path.child("kind"),
            other,
            &["ServiceAccount", "User", "Group"],
        ),
    }
}

fn validate_binding_update(binding: &Object, old: &Object, namespaced: bool) -> ErrorList {
    let mut errors = validate_binding(binding, namespaced);
    let role = |object: &Object| {
        ["apiGroup", "kind", "name"].map(|key| {
            object
                .get("roleRef")
                .map_or("", |role| role.str(key))
                .to_owned()
        })
    };
    let [group, kind, name] = role(binding);
    if [&group, &kind, &name] != role(old).each_ref() {
        // The value is told as the server's own type spells its members.
        let value = json!({"APIGroup": group, "Kind": kind, "Name": name});
        errors.invalid(&Path::new("roleRef"), value, "cannot change roleRef");
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::User;
    use crate::registry::Subresource;

    fn object(value: Value) -> Object {
        Object::from_value(value).expect("an object")
    }

    fn check(strategy: &dyn Strategy, value: Value, old: Option<Value>) -> Vec<String> {
        let user = User::default();
        let ctx = Context {
            now: jiff::Timestamp::UNIX_EPOCH,
            user: &user,
            allow_privileged: false,
            subresource: Subresource::Main,
            warnings: &crate::registry::store::Warnings::default(),
        };
        let mut new = object(value);
        strategy.default(&mut new);
        let errors = match old {
            None => strategy.validate(&ctx, &new),
            Some(old) => strategy.validate_update(&ctx, &new, &object(old)),
        };
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rules_need_verbs_and_something_to_apply_to() {
        let rules = |rule: Value| json!({"rules": [rule]});
        let verbs = "rules[0].verbs: Required value: verbs must contain at least one value";
        let groups =
            "rules[0].apiGroups: Required value: resource rules must supply at least one api group";
        let resources =
            "rules[0].resources: Required value: resource rules must supply at least one resource";
        let local = "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs";
        let both = "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: rules cannot apply to both regular resources and non-resource URLs";
        let cases: [(&dyn Strategy, Value, &[&str]); 6] = [
            (&RoleStrategy, json!({"rules": null}), &[]),
            (&RoleStrategy, rules(json!({})), &[verbs, groups, resources]),
            (
                &RoleStrategy,
                rules(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]})),
                &[],
            ),
            (
                &RoleStrategy,
                rules(json!({"verbs": ["get"], "nonResourceURLs": ["/x"]})),
                &[local],
            ),
            (
                &ClusterRoleStrategy,
                rules(json!({"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["pods"]})),
                &[both],
            ),
            (
                &ClusterRoleStrategy,
                json!({"aggregationRule": {}}),
                &[
                    "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil",
                ],
            ),
        ];
        for (strategy, value, want) in cases {
            assert_eq!(check(strategy, value.clone(), None), want, "{value}");
        }
    }

    #[test]
    fn bindings_name_a_role_and_subjects_that_can_be() {
        let bind = |kind: &str, name: &str, subject: Value| json!({"roleRef": {"kind": kind, "name": name}, "subjects": [subject]});
        let user = || json!({"kind": "User", "name": "u"});
        let cases: [(&dyn Strategy, Value, &[&str]); 6] = [
            (&RoleBindingStrategy, bind("Role", "r", user()), &[]),
            (
                &RoleBindingStrategy,
                bind("", "", user()),
                &[
                    r#"roleRef.kind: Unsupported value: "": supported values: "Role", "ClusterRole""#,
                    "roleRef.name: Required value",
                ],
            ),
            (
                &ClusterRoleBindingStrategy,
                bind("Role", "r", user()),
                &[r#"roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole""#],
            ),
            (
                &RoleBindingStrategy,
                bind("Role", "a/b", user()),
                &[r#"roleRef.name: Invalid value: "a/b": may not contain '/'"#],
            ),
            (
                &RoleBindingStrategy,
                bind("Role", "r", json!({"kind": "Alien", "name": ""})),
                &[
                    "subjects[0].name: Required value",
                    r#"subjects[0].kind: Unsupported value: "Alien": supported values: "ServiceAccount", "User", "Group""#,
                ],
            ),
            (
                &ClusterRoleBindingStrategy,
                bind(
                    "ClusterRole",
                    "r",
                    json!({"kind": "ServiceAccount", "name": "a"}),
                ),
                &["subjects[0].namespace: Required value"],
            ),
        ];
        for (strategy, value, want) in cases {
            assert_eq!(check(strategy, value.clone(), None), want, "{value}");
        }
        let (old, new) = (
            json!({"roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "r"}}),
            json!({"roleRef": {"kind": "Role", "name": "s"}}),
        );
        let why = r#"roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"Role","Name":"s"}: cannot change roleRef"#;
        assert_eq!(check(&RoleBindingStrategy, new, Some(old.clone())), [why]);
        assert_eq!(check(&RoleBindingStrategy, old.clone(), Some(old)), [""; 0]);
    }
}
