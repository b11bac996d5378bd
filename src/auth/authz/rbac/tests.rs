//! Tests of the RBAC store, and of the escalation checks over it.

use super::*;
use crate::auth::authz::escalation::{self, Write};
use crate::meta::{Gvr, json};

fn object(value: Value) -> Object {
    Object::from_value(value).expect("an object")
}

fn role(kind: &str, namespace: &str, name: &str, rules: Value) -> Object {
    object(
        json!({"kind": kind, "metadata": {"name": name, "namespace": namespace}, "rules": rules}),
    )
}

fn binding(kind: &str, namespace: &str, name: &str, role: (&str, &str), subjects: Value) -> Object {
    object(json!({
        "kind": kind, "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role.0, "name": role.1}, "subjects": subjects,
    }))
}

fn user(name: &str, groups: &[&str]) -> User {
    User {
        name: name.to_owned(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        ..User::default()
    }
}

fn asked(user: User, verb: &str, resource: &str, namespace: &str) -> Attributes {
    Attributes {
        user: user.into(),
        verb: verb.to_owned(),
        resource: resource.to_owned(),
        namespace: namespace.to_owned(),
        resource_request: true,
        ..Attributes::default()
    }
}

fn store() -> RbacStore {
    let store = RbacStore::default();
    for object in [
        role(
            "ClusterRole",
            "",
            "reader",
            json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "nodes"]}]),
        ),
        role(
            "Role",
            "x",
            "writer",
            json!([{"verbs": ["update", "create"], "apiGroups": [""], "resources": ["pods"]}]),
        ),
        binding(
            "ClusterRoleBinding",
            "",
            "all-read",
            ("ClusterRole", "reader"),
            json!([{"kind": "Group", "name": "readers"}]),
        ),
        binding(
            "RoleBinding",
            "x",
            "local",
            ("ClusterRole", "reader"),
            json!([{"kind": "ServiceAccount", "name": "sa"}]),
        ),
        binding(
            "RoleBinding",
            "x",
            "write",
            ("Role", "writer"),
            json!([{"kind": "User", "name": "bob"}, {"kind": "User", "name": "alice"}]),
        ),
        binding(
            "RoleBinding",
            "x",
            "lost",
            ("Role", "gone"),
            json!([{"kind": "User", "name": "carol"}]),
        ),
    ] {
        store.upsert(&object);
    }
    store
}

#[test]
fn rbac_bindings_grant_their_rules_to_their_subjects() {
    let store = store();
    let allow = |why: &str| Decision::allow(format!("RBAC: allowed by {why}"));
    let none = || Decision::no_opinion("");
    let cases = [
        (
            asked(user("eve", &["readers"]), "get", "nodes", ""),
            allow(r#"ClusterRoleBinding "all-read" of ClusterRole "reader" to Group "readers""#),
        ),
        (asked(user("eve", &["others"]), "get", "nodes", ""), none()),
        (
            asked(user("system:serviceaccount:x:sa", &[]), "list", "pods", "x"),
            allow(r#"RoleBinding "local/x" of ClusterRole "reader" to ServiceAccount "sa/x""#),
        ),
        (
            asked(user("system:serviceaccount:x:sa", &[]), "list", "pods", ""),
            none(),
        ),
        (
            asked(user("system:serviceaccount:x:sa", &[]), "list", "pods", "y"),
            none(),
        ),
        (
            asked(user("alice", &[]), "update", "pods", "x"),
            allow(r#"RoleBinding "write/x" of Role "writer" to User "alice""#),
        ),
        (asked(user("alice", &[]), "delete", "pods", "x"), none()),
        (
            asked(user("carol", &[]), "get", "pods", "x"),
            Decision::no_opinion(
                r#"RBAC: role.rbac.authorization.k8s.io "gone" not found"#.to_owned(),
            ),
        ),
    ];
    for (asked, want) in cases {
        assert_eq!(
            store.check(&asked),
            want,
            "{} {} {}",
            asked.user.name,
            asked.verb,
            asked.resource
        );
    }
}

#[test]
fn rbac_changes_take_effect_at_once() {
    let store = store();
    let update = asked(user("alice", &[]), "update", "pods", "x");
    store.upsert(&binding(
        "RoleBinding",
        "x",
        "write",
        ("Role", "writer"),
        json!([{"kind": "User", "name": "bob"}]),
    ));
    assert_eq!(store.check(&update), Decision::no_opinion(""));
    store.upsert(&binding(
        "RoleBinding",
        "x",
        "write",
        ("Role", "writer"),
        json!([{"kind": "User", "name": "alice"}]),
    ));
    assert!(store.check(&update).is_allowed());
    store.remove("Role", "x", "writer");
    assert_eq!(
        store.check(&update),
        Decision::no_opinion(
            r#"RBAC: role.rbac.authorization.k8s.io "writer" not found"#.to_owned()
        )
    );
    store.replace("RoleBinding", []);
    assert_eq!(store.check(&update), Decision::no_opinion(""));
    store.remove("ClusterRoleBinding", "", "all-read");
    let state = store.state.read();
    assert!(
        state.bindings.is_empty()
            && state.roles.is_empty()
            && state.cluster_bindings.by_group.is_empty()
    );
}

#[test]
fn rules_for_lists_rules_once_for_each_binding() {
    let store = store();
    let subjects = json!([{"kind": "User", "name": "dan"}, {"kind": "Group", "name": "g"}]);
    store.upsert(&binding(
        "RoleBinding",
        "x",
        "twice",
        ("Role", "writer"),
        subjects,
    ));
    assert_eq!(
        store.rules_for_user(&user("dan", &["g"]), "x").rules.len(),
        1
    );
    assert_eq!(
        store.rules_for_user(&user("dan", &["g"]), "y").rules.len(),
        0
    );
}

#[tokio::test]
async fn escalation_is_refused() {
    let store = store();
    let rules = |verb: &str| json!([{"verbs": [verb], "apiGroups": [""], "resources": ["pods"]}]);
    let alice = user("alice", &["devs"]);
    let lacks = |what: &str| {
        format!(
            "user \"alice\" (groups=[\"devs\"]) is attempting to grant RBAC permissions not currently held:\n{what}"
        )
    };
    let aggregated = object(
        json!({"metadata": {"name": "a"}, "aggregationRule": {"clusterRoleSelectors": [{}]}}),
    );
    let user = json!([{"kind": "User", "name": "u"}]);
    let cases = [
        ("roles", role("Role", "x", "ok", rules("update")), Ok(())),
        (
            "roles",
            role("Role", "x", "no", rules("get")),
            Err(lacks(
                "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\"]}",
            )),
        ),
        (
            "clusterroles",
            aggregated,
            Err("must have cluster-admin privileges to use the aggregationRule".to_owned()),
        ),
        (
            "rolebindings",
            binding("RoleBinding", "x", "b", ("Role", "writer"), user.clone()),
            Ok(()),
        ),
        (
            "rolebindings",
            binding("RoleBinding", "x", "b", ("Role", "none"), user),
            Err(r#"rolebindings.rbac.authorization.k8s.io "none" not found"#.to_owned()),
        ),
    ];
    for (resource, object, want) in cases {
        let gvr = Gvr::new("rbac.authorization.k8s.io", "v1", resource);
        let write = Write {
            gvr: &gvr,
            namespace: "x",
            name: "",
            object: &object,
            old: None,
            user: &alice,
        };
        let got = escalation::check(&write, &store, &store)
            .await
            .map_err(|status| status.message);
        match want {
            Ok(()) => assert_eq!(got, Ok(()), "{resource} {}", object.name()),
            Err(why) => assert!(
                got.as_ref().is_err_and(|got| got.ends_with(&why)),
                "{got:?}"
            ),
        }
    }
}
