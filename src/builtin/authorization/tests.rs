//! Tests of the reviews, over a store with one role.

use super::*;
use crate::auth::authz::RbacStore;

fn object(value: Value) -> Object {
    Object::from_value(value).expect("an object")
}

fn store() -> RbacStore {
    let store = RbacStore::default();
    let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]});
    let paths = json!({"verbs": ["get"], "nonResourceURLs": ["/x"]});
    store.upsert(&object(
        json!({"kind": "ClusterRole", "metadata": {"name": "r"}, "rules": [rule, paths]}),
    ));
    store.upsert(&object(json!({
        "kind": "RoleBinding", "metadata": {"name": "b", "namespace": "ns"},
        "roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": [{"kind": "User", "name": "alice"}],
    })));
    store
}

fn get(namespace: &str) -> Value {
    json!({"verb": "get", "resource": "configmaps", "namespace": namespace})
}

#[tokio::test]
async fn reviews_answer_with_the_authorizer_s_decision_and_reason() {
    let store = store();
    let reason = r#"RBAC: allowed by RoleBinding "b/ns" of ClusterRole "r" to User "alice""#;
    let cases = [
        (
            json!({"user": "alice", "resourceAttributes": get("ns")}),
            json!({"allowed": true, "reason": reason}),
        ),
        (
            json!({"user": "bob", "resourceAttributes": get("ns")}),
            json!({"allowed": false}),
        ),
        (
            json!({"user": "alice", "nonResourceAttributes": {"path": "/x", "verb": "get"}}),
            json!({"allowed": false}),
        ),
        (
            json!({"user": "bob", "resourceAttributes": {"fieldSelector": {"requirements": [{"key": "x", "operator": "Bad"}]}}}),
            json!({"allowed": false, "evaluationError": "spec.resourceAttributes.fieldSelector ignored due to parse error"}),
        ),
    ];
    for (spec, want) in cases {
        let answer = subject_access_review(object(json!({"spec": spec.clone()})), &store)
            .await
            .expect("an answer");
        assert_eq!(answer.get("status"), Some(&want), "{spec}");
        let own = User {
            name: spec["user"].as_str().unwrap_or_default().to_owned(),
            ..User::default()
        };
        let answer =
            self_subject_access_review(object(json!({"spec": spec.clone()})), &own, &store)
                .await
                .expect("an answer");
        assert_eq!(answer.get("status"), Some(&want), "{spec}");
    }
}

#[tokio::test]
async fn a_review_asks_one_complete_question() {
    let store = store();
    let one = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
    let cases = [
        (json!({"spec": {"user": "a"}}), format!("spec.resourceAttributes: Invalid value: null: {one}")),
        (
            json!({"spec": {"resourceAttributes": get("ns")}}),
            r#"spec.user: Invalid value: "": at least one of user or group must be specified"#.to_owned(),
        ),
        (
            json!({"spec": {"user": "a", "resourceAttributes": get("ns"), "nonResourceAttributes": {"path": "/", "verb": "get"}}}),
            r#"spec.nonResourceAttributes: Invalid value: {"Path":"/","Verb":"get"}: cannot be specified in combination with resourceAttributes"#.to_owned(),
        ),
        (
            json!({"metadata": {"name": "x"}, "spec": {"user": "a", "resourceAttributes": get("ns")}}),
            r#"metadata: Invalid value: {"name":"x"}: must be empty"#.to_owned(),
        ),
        (
            json!({"spec": {"user": "a", "resourceAttributes": {"fieldSelector": {}}}}),
            "spec.resourceAttributes.fieldSelector.requirements: Required value: when spec.resourceAttributes.fieldSelector is specified, requirements or rawSelector is required".to_owned(),
        ),
    ];
    for (value, want) in cases {
        let status = subject_access_review(object(value), &store)
            .await
            .expect_err("refused");
        assert_eq!(
            (status.code, status.message),
            (
                422,
                format!(r#".authorization.k8s.io "" is invalid: {want}"#)
            )
        );
    }
    let local = json!({"metadata": {"namespace": "other"}, "spec": {"user": "a", "resourceAttributes": get("ns")}});
    let status = local_subject_access_review(object(local), &store)
        .await
        .expect_err("refused");
    assert!(status.message.ends_with(
        r#"spec.resourceAttributes.namespace: Invalid value: "ns": must match metadata.namespace"#
    ));
}

#[tokio::test]
async fn a_rules_review_lists_the_rules() {
    let store = store();
    let alice = User {
        name: "alice".to_owned(),
        ..User::default()
    };
    let review = || {
        object(
            json!({"kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1", "spec": {"namespace": "ns"}}),
        )
    };
    let answer = self_subject_rules_review(review(), &alice, &store)
        .await
        .expect("an answer");
    let want = json!({
        "kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {}, "spec": {},
        "status": {
            "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}],
            "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}],
            "incomplete": false,
        },
    });
    assert_eq!(Value::from(answer), want);
    let status = self_subject_rules_review(object(json!({"spec": {}})), &alice, &store)
        .await
        .expect_err("refused");
    assert_eq!(status.message, "no namespace on request");
}
