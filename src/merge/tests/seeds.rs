//! The examples of the Server-Side Apply documentation and of its enhancement proposal as stories.

use expect_test::expect;

use super::Verb::*;
use super::{Op, builtin, op, widget, widget_schema};
use crate::meta::json;

/// "Field management" and "Operations in scope": one applies, another updates, and what would have
/// been had it applied.
#[test]
fn a_config_map_with_two_managers() {
    let config =
        json!({"metadata": {"labels": {"test-label": "test"}}, "data": {"key": "some value"}});
    let ops = [
        op(Apply, "kubectl", config.clone()),
        op(
            Apply,
            "kube-controller-manager",
            json!({"data": {"key": "new value"}}),
        ),
        op(
            Merge,
            "kube-controller-manager",
            json!({"data": {"key": "new value"}}),
        ),
        op(Apply, "nobody", json!({})),
        op(Apply, "kubectl", config),
    ];
    builtin("v1", "ConfigMap").check(
        &ops,
        expect![[r#"
        {"metadata":{"labels":{"test-label":"test"}},"data":{"key":"some value"}}
          kubectl Apply 00: .data.key .metadata.labels.test-label
        ! Apply failed with 1 conflict: conflict with "kubectl": .data.key
        {"data":{"key":"new value"},"metadata":{"labels":{"test-label":"test"}}}
          kubectl Apply 00: .metadata.labels.test-label
          kube-controller-manager Update 02: .data.key
        {"data":{"key":"new value"},"metadata":{"labels":{"test-label":"test"}}}
          kubectl Apply 00: .metadata.labels.test-label
          kube-controller-manager Update 02: .data.key
        ! Apply failed with 1 conflict: conflict with "kube-controller-manager" using v1: .data.key
    "#]],
    );
}

/// "Conflicts": overwrite, give up the claim, or share.
#[test]
fn three_ways_out_of_a_conflict() {
    let ops = [
        op(Apply, "a", json!({"data": {"key": "1", "other": "1"}})),
        op(Apply, "b", json!({"data": {"key": "2"}})),
        op(Force, "b", json!({"data": {"key": "2"}})),
        op(Apply, "c", json!({"data": {"key": "3"}})),
        op(Apply, "c", json!({"data": {}})),
        op(Apply, "c", json!({"data": {"key": "2"}})),
        op(Apply, "b", json!({})),
    ];
    builtin("v1", "ConfigMap").check(
        &ops,
        expect![[r#"
        {"data":{"key":"1","other":"1"}}
          a Apply 00: .data.key .data.other
        ! Apply failed with 1 conflict: conflict with "a": .data.key
        {"data":{"key":"2","other":"1"}}
          a Apply 00: .data.other
          b Apply 02: .data.key
        ! Apply failed with 1 conflict: conflict with "b": .data.key
        {"data":{"key":"2","other":"1"}}
          a Apply 00: .data.other
          c Apply -: .data
          b Apply 02: .data.key
        {"data":{"key":"2","other":"1"}}
          a Apply 00: .data.other
          c Apply -: .data.key
          b Apply 02: .data.key
        {"data":{"key":"2","other":"1"}}
          a Apply 00: .data.other
          c Apply -: .data.key
    "#]],
    );
}

/// "Compatibility across topology changes", both ways: the example of `spec.data`, here `spec.map`.
#[test]
fn a_map_becomes_whole_and_comes_apart() {
    let (apart, whole) = (widget_schema(false), widget_schema(true));
    let owned = |schema: &(crate::schema::Schema, crate::schema::TypeId),
                 op: Op,
                 live: Option<&crate::meta::Object>,
                 second| { widget(schema).write(live, &op, second) };
    let map = json!({"spec": {"map": {"key1": "val1", "key2": "val2"}}});
    // Owned whole, then apart: the map stays owned, its entries are nobody's.
    let live = owned(&whole, op(Apply, "manager-one", map.clone()), None, 0).expect("applied");
    let live = owned(
        &apart,
        op(Apply, "two", json!({"spec": {"map": {"key1": "mine"}}})),
        Some(&live),
        1,
    )
    .expect("no conflict");
    expect![[r#"
        {"spec":{"map":{"key1":"mine","key2":"val2"}}}
          manager-one Apply 00: .spec.map
          two Apply 01: .spec.map.key1"#]]
    .assert_eq(&super::describe(&live));
    // Owned apart, then whole: each owner of an entry owns it all, and any change is a conflict.
    let live = owned(
        &apart,
        op(
            Apply,
            "manager-one",
            json!({"spec": {"map": {"key1": "val1"}}}),
        ),
        None,
        0,
    )
    .expect("applied");
    let live = owned(
        &apart,
        op(Apply, "two", json!({"spec": {"map": {"key2": "val2"}}})),
        Some(&live),
        1,
    )
    .expect("applied");
    let refused = owned(
        &whole,
        op(Apply, "two", json!({"spec": {"map": {"key2": "new"}}})),
        Some(&live),
        2,
    )
    .expect_err("a conflict");
    expect![[r#"Apply failed with 1 conflict: conflict with "manager-one": .spec.map"#]]
        .assert_eq(&refused);
    let live = owned(&whole, op(Apply, "three", map), Some(&live), 3).expect("the same");
    expect![[r#"
        {"spec":{"map":{"key1":"val1","key2":"val2"}}}
          manager-one Apply 00: .spec.map
          three Apply -: .spec.map
          two Apply 01: .spec.map"#]]
    .assert_eq(&super::describe(&live));
}

/// "Transferring ownership": replicas go from a user to an autoscaler, with a manager of its own in
/// between.
#[test]
fn replicas_are_handed_to_an_autoscaler() {
    let template = json!({
        "metadata": {"labels": {"app": "nginx"}}, "spec": {"containers": [{"name": "nginx", "image": "nginx:1.14.2"}]}
    });
    let with = json!({
        "metadata": {"labels": {"app": "nginx"}},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "nginx"}}, "template": template},
    });
    let mut without = with.clone();
    without["spec"]
        .as_object_mut()
        .expect("a spec")
        .shift_remove("replicas");
    let ops = [
        op(Apply, "kubectl", with),
        op(Apply, "handover-to-hpa", json!({"spec": {"replicas": 3}})),
        op(Apply, "kubectl", without),
        op(Merge, "hpa", json!({"spec": {"replicas": 5}})),
        op(Apply, "handover-to-hpa", json!({"spec": {"replicas": 3}})),
    ];
    builtin("apps/v1", "Deployment").check(&ops, expect![[r#"
        {"metadata":{"labels":{"app":"nginx"}},"spec":{"selector":{"matchLabels":{"app":"nginx"}},"template":{"metadata":{"labels":{"app":"nginx"}},"spec":{"containers":[{"name":"nginx","image":"nginx:1.14.2"}]}},"strategy":{},"replicas":3},"status":{}}
          kubectl Apply 00: .metadata.labels.app .spec.replicas .spec.selector .spec.template.metadata.labels.app .spec.template.spec.containers[name="nginx"] .spec.template.spec.containers[name="nginx"].image .spec.template.spec.containers[name="nginx"].name
        {"metadata":{"labels":{"app":"nginx"}},"spec":{"selector":{"matchLabels":{"app":"nginx"}},"template":{"metadata":{"labels":{"app":"nginx"}},"spec":{"containers":[{"name":"nginx","image":"nginx:1.14.2"}]}},"strategy":{},"replicas":3},"status":{}}
          handover-to-hpa Apply -: .spec.replicas
          kubectl Apply 00: .metadata.labels.app .spec.replicas .spec.selector .spec.template.metadata.labels.app .spec.template.spec.containers[name="nginx"] .spec.template.spec.containers[name="nginx"].image .spec.template.spec.containers[name="nginx"].name
        {"metadata":{"labels":{"app":"nginx"}},"spec":{"selector":{"matchLabels":{"app":"nginx"}},"template":{"metadata":{"labels":{"app":"nginx"}},"spec":{"containers":[{"name":"nginx","image":"nginx:1.14.2"}]}},"strategy":{},"replicas":3},"status":{}}
          handover-to-hpa Apply -: .spec.replicas
          kubectl Apply 00: .metadata.labels.app .spec.selector .spec.template.metadata.labels.app .spec.template.spec.containers[name="nginx"] .spec.template.spec.containers[name="nginx"].image .spec.template.spec.containers[name="nginx"].name
        {"metadata":{"labels":{"app":"nginx"}},"spec":{"replicas":5,"selector":{"matchLabels":{"app":"nginx"}},"strategy":{},"template":{"metadata":{"labels":{"app":"nginx"}},"spec":{"containers":[{"name":"nginx","image":"nginx:1.14.2"}]}}},"status":{}}
          kubectl Apply 00: .metadata.labels.app .spec.selector .spec.template.metadata.labels.app .spec.template.spec.containers[name="nginx"] .spec.template.spec.containers[name="nginx"].image .spec.template.spec.containers[name="nginx"].name
          hpa Update 03: .spec.replicas
        ! Apply failed with 1 conflict: conflict with "hpa" using apps/v1: .spec.replicas
    "#]]);
}

/// "Clearing managedFields". The documentation says that the client that clears them owns whatever
/// else the request changes; the server has nobody own it, since an object without managers stays
/// without.
#[test]
fn managers_are_cleared() {
    let ops = [
        op(Create, "a", json!({"data": {"k": "1"}})),
        op(Merge, "b", json!({"metadata": {"managedFields": [{}]}})),
        op(Apply, "c", json!({"data": {"l": "1"}})),
        op(
            Merge,
            "d",
            json!({"metadata": {"managedFields": [{}]}, "data": {"k": "2"}}),
        ),
    ];
    builtin("v1", "ConfigMap").check(
        &ops,
        expect![[r#"
        {"data":{"k":"1"}}
          a Update 00: .data .data.k
        {"data":{"k":"1"}}
        {"data":{"k":"1","l":"1"}}
          c Apply 02: .data.l
          before-first-apply Update 02: .data .data.k
        {"data":{"k":"2","l":"1"}}
    "#]],
    );
}

/// "Upgrading from client-side apply": what the annotation accounts for is no conflict for kubectl,
/// what was scaled since is.
#[test]
fn client_side_apply_is_taken_over() {
    let last = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"x"},"spec":{"paused":true,"replicas":1}}"#;
    let created = json!({
        "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": last}}, "spec": {"paused": true, "replicas": 1}
    });
    let config = json!({"spec": {"paused": false, "replicas": 2}});
    let ops = [
        op(Create, "kubectl-client-side-apply", created),
        op(Apply, "my-manager", config.clone()),
        Op {
            subresource: "scale",
            ..op(Merge, "kubectl", json!({"spec": {"replicas": 7}}))
        },
        op(Apply, "kubectl", config),
        op(Apply, "kubectl", json!({"spec": {"paused": false}})),
    ];
    builtin("apps/v1", "Deployment").check(&ops, expect![[r#"
        {"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"apiVersion\":\"apps/v1\",\"kind\":\"Deployment\",\"metadata\":{\"name\":\"x\"},\"spec\":{\"paused\":true,\"replicas\":1}}"}},"spec":{"paused":true,"replicas":1}}
          kubectl-client-side-apply Update 00: .metadata.annotations .metadata.annotations.kubectl.kubernetes.io/last-applied-configuration .spec.paused .spec.replicas
        ! Apply failed with 2 conflicts: conflicts with "kubectl-client-side-apply" using apps/v1:
        - .spec.paused
        - .spec.replicas
        {"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"apiVersion\":\"apps/v1\",\"kind\":\"Deployment\",\"metadata\":{\"name\":\"x\"},\"spec\":{\"paused\":true,\"replicas\":1}}"}},"spec":{"paused":true,"replicas":7}}
          kubectl-client-side-apply Update 00: .metadata.annotations .metadata.annotations.kubectl.kubernetes.io/last-applied-configuration .spec.paused
          kubectl Update /scale 02: .spec.replicas
        ! Apply failed with 1 conflict: conflict with "kubectl" with subresource "scale" using apps/v1: .spec.replicas
        {"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"apiVersion\":\"apps/v1\",\"kind\":\"Deployment\",\"metadata\":{\"name\":\"x\"},\"spec\":{\"paused\":false}}\n"}},"spec":{"paused":false,"replicas":7}}
          kubectl Apply 04: .spec.paused
          kubectl-client-side-apply Update 00: .metadata.annotations .metadata.annotations.kubectl.kubernetes.io/last-applied-configuration
          kubectl Update /scale 02: .spec.replicas
    "#]]);
}

/// The proposal's "Lists" and "Maps and structs": atomic, set, associative; separate and whole.
#[test]
fn lists_and_maps_by_their_topology() {
    let ops = [
        op(
            Apply,
            "a",
            json!({"spec": {"tags": ["x"], "ports": [{"port": 80}], "map": {"k": "1"}, "any": {"list": [1]}}}),
        ),
        op(
            Apply,
            "b",
            json!({"spec": {"tags": ["y"], "ports": [{"port": 80, "protocol": "UDP"}], "map": {"l": "1"}}}),
        ),
        op(Apply, "b", json!({"spec": {"any": {"list": [2]}}})),
        op(
            Apply,
            "a",
            json!({"spec": {"tags": ["z"], "ports": [{"port": 80, "protocol": "TCP", "name": "web"}]}}),
        ),
    ];
    widget(&widget_schema(false)).check(&ops, expect![[r#"
        {"spec":{"tags":["x"],"ports":[{"port":80}],"map":{"k":"1"},"any":{"list":[1]}}}
          a Apply 00: .spec.any.list .spec.map.k .spec.ports[port=80,protocol="TCP"] .spec.ports[port=80,protocol="TCP"].port .spec.tags[="x"]
        {"spec":{"tags":["x","y"],"ports":[{"port":80},{"port":80,"protocol":"UDP"}],"map":{"k":"1","l":"1"},"any":{"list":[1]}}}
          a Apply 00: .spec.any.list .spec.map.k .spec.ports[port=80,protocol="TCP"] .spec.ports[port=80,protocol="TCP"].port .spec.tags[="x"]
          b Apply 01: .spec.map.l .spec.ports[port=80,protocol="UDP"] .spec.ports[port=80,protocol="UDP"].port .spec.ports[port=80,protocol="UDP"].protocol .spec.tags[="y"]
        ! Apply failed with 1 conflict: conflict with "a": .spec.any.list
        {"spec":{"tags":["y","z"],"ports":[{"port":80,"protocol":"TCP","name":"web"},{"port":80,"protocol":"UDP"}],"map":{"l":"1"}}}
          b Apply 01: .spec.map.l .spec.ports[port=80,protocol="UDP"] .spec.ports[port=80,protocol="UDP"].port .spec.ports[port=80,protocol="UDP"].protocol .spec.tags[="y"]
          a Apply 03: .spec.ports[port=80,protocol="TCP"] .spec.ports[port=80,protocol="TCP"].name .spec.ports[port=80,protocol="TCP"].port .spec.ports[port=80,protocol="TCP"].protocol .spec.tags[="z"]
    "#]]);
}
