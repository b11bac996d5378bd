//! Ownership of fields: the documentation's "Field management", "Conflicts", "Field managers",
//! "Operations in scope", "Using Server-Side Apply in a controller", "Access control and
//! permissions", and "Clearing managedFields".

use expect_test::expect;
use serde_json::{Value, json};

use crate::{
    DEPLOYMENT, Story, apply, ask, cleared, config_map, deployment, get, json_patch, merge, put,
    strategic,
};

/// The first example, in YAML as people write it; the smallest message, which changes nothing; the
/// same as JSON, which is YAML.
#[tokio::test]
async fn a_config_map_is_made_by_apply() {
    let mut story = Story::of_config_map().await;
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: test-cm\n  labels: {test-label: test}\ndata:\n  key: some value\n";
    let made = story.tell(apply("kubectl", yaml)).await;
    let same = story
        .tell(apply("kubectl", config_map(json!({"metadata": {"labels": {"test-label": "test"}}, "data": {"key": "some value"}}))))
        .await;
    let smallest = story
        .tell(apply(
            "someone",
            json!({"apiVersion": "v1", "kind": "ConfigMap"}),
        ))
        .await;
    assert_eq!(made, same);
    assert_eq!(made, smallest);
    story.check(expect![[r#"
        PATCH(apply) test-cm?fieldManager=kubectl
          201 /metadata/labels={"test-label":"test"} /data={"key":"some value"}
          Apply kubectl v1: {"f:data":{"f:key":{}},"f:metadata":{"f:labels":{"f:test-label":{}}}}
        PATCH(apply) test-cm?fieldManager=kubectl
          200 /metadata/labels={"test-label":"test"} /data={"key":"some value"}
          Apply kubectl v1: {"f:data":{"f:key":{}},"f:metadata":{"f:labels":{"f:test-label":{}}}}
        PATCH(apply) test-cm?fieldManager=someone
          200 /metadata/labels={"test-label":"test"} /data={"key":"some value"}
          Apply kubectl v1: {"f:data":{"f:key":{}},"f:metadata":{"f:labels":{"f:test-label":{}}}}
    "#]]);
}

/// The second example: a client that names itself only by its User-Agent changes a value by PUT.
/// Had it applied, it would have failed.
#[tokio::test]
async fn an_update_takes_what_it_changes() {
    let mut story = Story::of_config_map().await;
    let config = |value: &str| {
        config_map(json!({"metadata": {"labels": {"test-label": "test"}}, "data": {"key": value}}))
    };
    story.tell(apply("kubectl", config("some value"))).await;
    story
        .tell(apply("kube-controller-manager", config("new value")))
        .await;
    story
        .tell(put(config("new value")).agent("kube-controller-manager/v1.36.0 (linux/amd64)"))
        .await;
    story.tell(apply("kubectl", config("some value"))).await;
    // What it says again without a change is nobody's news.
    story.tell(put(config("new value")).agent("curl/8.0")).await;
    story.check(expect![[r#"
        PATCH(apply) test-cm?fieldManager=kubectl
          201 /metadata/labels={"test-label":"test"} /data={"key":"some value"}
          Apply kubectl v1: {"f:data":{"f:key":{}},"f:metadata":{"f:labels":{"f:test-label":{}}}}
        PATCH(apply) test-cm?fieldManager=kube-controller-manager
          409 Apply failed with 1 conflict: conflict with "kubectl": .data.key
        PUT test-cm
          200 /metadata/labels={"test-label":"test"} /data={"key":"new value"}
          Apply kubectl v1: {"f:metadata":{"f:labels":{"f:test-label":{}}}}
          Update kube-controller-manager v1: {"f:data":{"f:key":{}}}
        PATCH(apply) test-cm?fieldManager=kubectl
          409 Apply failed with 1 conflict: conflict with "kube-controller-manager" using v1: .data.key
        PUT test-cm
          200 /metadata/labels={"test-label":"test"} /data={"key":"new value"}
          Apply kubectl v1: {"f:metadata":{"f:labels":{"f:test-label":{}}}}
          Update kube-controller-manager v1: {"f:data":{"f:key":{}}}
    "#]]);
}

/// POST, PUT and every patch that does not apply record a manager, and none of them fails for a
/// conflict.
#[tokio::test]
async fn every_write_records_its_manager() {
    let mut story = Story::of_config_map().await;
    story
        .make(
            "/api/v1/namespaces/default/configmaps?fieldManager=post",
            &config_map(json!({"data": {"a": "1"}})),
        )
        .await;
    story.tell_live().await;
    story
        .tell(merge("merge", json!({"data": {"b": "1"}})))
        .await;
    story
        .tell(strategic(
            "strategic",
            json!({"data": {"a": "2", "c": "1"}}),
        ))
        .await;
    story
        .tell(json_patch(
            "json",
            json!([{"op": "replace", "path": "/data/b", "value": "2"}]),
        ))
        .await;
    story
        .tell(put(config_map(json!({"data": {"a": "3", "b": "2"}}))).query("fieldManager=put"))
        .await;
    story.check(expect![[r#"
        GET test-cm
          200 /data={"a":"1"}
          Update post v1: {"f:data":{".":{},"f:a":{}}}
        PATCH(merge) test-cm?fieldManager=merge
          200 /data={"a":"1","b":"1"}
          Update merge v1: {"f:data":{"f:b":{}}}
          Update post v1: {"f:data":{".":{},"f:a":{}}}
        PATCH(strategic-merge) test-cm?fieldManager=strategic
          200 /data={"a":"2","b":"1","c":"1"}
          Update merge v1: {"f:data":{"f:b":{}}}
          Update post v1: {"f:data":{}}
          Update strategic v1: {"f:data":{"f:a":{},"f:c":{}}}
        PATCH(json) test-cm?fieldManager=json
          200 /data={"a":"2","b":"2","c":"1"}
          Update json v1: {"f:data":{"f:b":{}}}
          Update post v1: {"f:data":{}}
          Update strategic v1: {"f:data":{"f:a":{},"f:c":{}}}
        PUT test-cm?fieldManager=put
          200 /data={"a":"3","b":"2"}
          Update json v1: {"f:data":{"f:b":{}}}
          Update post v1: {"f:data":{}}
          Update put v1: {"f:data":{"f:a":{}}}
    "#]]);
}

/// "Conflicts": its status, then overwrite, give up the claim, or share it.
#[tokio::test]
async fn a_conflict_has_three_ways_out() {
    let mut story = Story::of_config_map().await;
    let key = |value: &str| config_map(json!({"data": {"key": value, "own": "1"}}));
    story
        .tell(apply("first", config_map(json!({"data": {"key": "1"}}))))
        .await;
    let refused = story.tell(apply("second", key("2"))).await;
    assert_eq!(
        (&refused["reason"], &refused["code"]),
        (&json!("Conflict"), &json!(409))
    );
    let cause = json!({"reason": "FieldManagerConflict", "message": "conflict with \"first\"", "field": ".data.key"});
    assert_eq!(refused["details"]["causes"], json!([cause]));
    story.tell(apply("second", key("2")).forced()).await;
    story
        .tell(apply(
            "first",
            config_map(json!({"data": {"key": "1", "other": "1"}})),
        ))
        .await;
    story
        .tell(apply("first", config_map(json!({"data": {"other": "1"}}))))
        .await;
    story
        .tell(apply(
            "first",
            config_map(json!({"data": {"key": "2", "other": "1"}})),
        ))
        .await;
    story.check(expect![[r#"
        PATCH(apply) test-cm?fieldManager=first
          201 /data={"key":"1"}
          Apply first v1: {"f:data":{"f:key":{}}}
        PATCH(apply) test-cm?fieldManager=second
          409 Apply failed with 1 conflict: conflict with "first": .data.key
        PATCH(apply) test-cm?fieldManager=second&force=true
          200 /data={"key":"2","own":"1"}
          Apply second v1: {"f:data":{"f:key":{},"f:own":{}}}
        PATCH(apply) test-cm?fieldManager=first
          409 Apply failed with 1 conflict: conflict with "second": .data.key
        PATCH(apply) test-cm?fieldManager=first
          200 /data={"key":"2","other":"1","own":"1"}
          Apply first v1: {"f:data":{"f:other":{}}}
          Apply second v1: {"f:data":{"f:key":{},"f:own":{}}}
        PATCH(apply) test-cm?fieldManager=first
          200 /data={"key":"2","other":"1","own":"1"}
          Apply first v1: {"f:data":{"f:key":{},"f:other":{}}}
          Apply second v1: {"f:data":{"f:key":{},"f:own":{}}}
    "#]]);
}

/// A manager that shares a field gets a conflict when changing it. "Transferring ownership between
/// managers": share, then give up.
#[tokio::test]
async fn a_shared_field_is_given_over() {
    let mut story = Story::of_config_map().await;
    let key = |value: &str| config_map(json!({"data": {"key": value}}));
    story.tell(apply("old", key("1"))).await;
    story.tell(apply("new", key("1"))).await;
    story.tell(apply("old", key("2"))).await;
    story.tell(apply("new", key("2"))).await;
    story.tell(apply("old", config_map(json!({})))).await;
    story.tell(apply("new", key("2"))).await;
    story.check(expect![[r#"
        PATCH(apply) test-cm?fieldManager=old
          201 /data={"key":"1"}
          Apply old v1: {"f:data":{"f:key":{}}}
        PATCH(apply) test-cm?fieldManager=new
          200 /data={"key":"1"}
          Apply new v1: {"f:data":{"f:key":{}}}
          Apply old v1: {"f:data":{"f:key":{}}}
        PATCH(apply) test-cm?fieldManager=old
          409 Apply failed with 1 conflict: conflict with "new": .data.key
        PATCH(apply) test-cm?fieldManager=new
          409 Apply failed with 1 conflict: conflict with "old": .data.key
        PATCH(apply) test-cm?fieldManager=old
          200 /data={"key":"1"}
          Apply new v1: {"f:data":{"f:key":{}}}
        PATCH(apply) test-cm?fieldManager=new
          200 /data={"key":"2"}
          Apply new v1: {"f:data":{"f:key":{}}}
    "#]]);
}

/// A field that is no longer applied is removed, or gets its default again, unless somebody else
/// owns it too: fields, items of maps, and items of lists with keys.
#[tokio::test]
async fn unowned_fields_are_removed_or_defaulted() {
    let shown = [
        "/metadata/labels",
        "/spec/replicas",
        "/spec/minReadySeconds",
        "/spec/template/spec/containers/0/env",
    ];
    let mut story = Story::of(DEPLOYMENT, &shown).await;
    let full = |env: Value| {
        let mut full = deployment(Some(3));
        full["metadata"]["labels"] = json!({"mine": "1", "ours": "1"});
        full["spec"]["minReadySeconds"] = json!(5);
        full["spec"]["template"]["spec"]["containers"][0]["env"] = env;
        full
    };
    story
        .tell(apply(
            "one",
            full(json!([{"name": "MINE", "value": "1"}, {"name": "OURS", "value": "1"}])),
        ))
        .await;
    let container = json!({"name": "nginx", "env": [{"name": "OURS", "value": "1"}, {"name": "THEIRS", "value": "1"}]});
    let mut theirs = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"labels": {"ours": "1"}}});
    theirs["spec"] = json!({"template": {"spec": {"containers": [container]}}});
    story.tell(apply("two", theirs)).await;
    story.tell(apply("one", deployment(None))).await;
    story.check(expect![[r#"
        PATCH(apply) nginx-deployment?fieldManager=one
          201 /metadata/labels={"mine":"1","ours":"1"} /spec/replicas=3 /spec/minReadySeconds=5 /spec/template/spec/containers/0/env=[{"name":"MINE","value":"1"},{"name":"OURS","value":"1"}]
          Apply one apps/v1: {"f:metadata":{"f:labels":{"f:mine":{},"f:ours":{}}},"f:spec":{"f:minReadySeconds":{},"f:replicas":{},"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"nginx\"}":{".":{},"f:env":{"k:{\"name\":\"MINE\"}":{".":{},"f:name":{},"f:value":{}},"k:{\"name\":\"OURS\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},"f:name":{}}}}}}}
        PATCH(apply) nginx-deployment?fieldManager=two
          200 /metadata/labels={"mine":"1","ours":"1"} /spec/replicas=3 /spec/minReadySeconds=5 /spec/template/spec/containers/0/env=[{"name":"MINE","value":"1"},{"name":"OURS","value":"1"},{"name":"THEIRS","value":"1"}]
          Apply one apps/v1: {"f:metadata":{"f:labels":{"f:mine":{},"f:ours":{}}},"f:spec":{"f:minReadySeconds":{},"f:replicas":{},"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"nginx\"}":{".":{},"f:env":{"k:{\"name\":\"MINE\"}":{".":{},"f:name":{},"f:value":{}},"k:{\"name\":\"OURS\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},"f:name":{}}}}}}}
          Apply two apps/v1: {"f:metadata":{"f:labels":{"f:ours":{}}},"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"nginx\"}":{".":{},"f:env":{"k:{\"name\":\"OURS\"}":{".":{},"f:name":{},"f:value":{}},"k:{\"name\":\"THEIRS\"}":{".":{},"f:name":{},"f:value":{}}},"f:name":{}}}}}}}
        PATCH(apply) nginx-deployment?fieldManager=one
          200 /metadata/labels={"ours":"1"} /spec/replicas=1 /spec/template/spec/containers/0/env=[{"name":"OURS","value":"1"},{"name":"THEIRS","value":"1"}]
          Apply one apps/v1: {"f:spec":{"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"nginx\"}":{".":{},"f:image":{},"f:name":{}}}}}}}
          Apply two apps/v1: {"f:metadata":{"f:labels":{"f:ours":{}}},"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"nginx\"}":{".":{},"f:env":{"k:{\"name\":\"OURS\"}":{".":{},"f:name":{},"f:value":{}},"k:{\"name\":\"THEIRS\"}":{".":{},"f:name":{},"f:value":{}}},"f:name":{}}}}}}}
    "#]]);
}

/// "Using Server-Side Apply in a controller": nothing is read before, what others applied cannot be
/// removed (a patch can), and conflicts are forced.
#[tokio::test]
async fn a_controller_applies_all_that_it_cares_about() {
    let mut story = Story::of_config_map().await;
    let own = |value: &str| config_map(json!({"data": {"own": value}}));
    story
        .tell(apply(
            "user",
            config_map(json!({"data": {"theirs": "1", "own": "0"}})),
        ))
        .await;
    story.tell(apply("controller", own("1")).forced()).await;
    story.tell(apply("controller", own("2")).forced()).await;
    story
        .tell(merge("controller", json!({"data": {"theirs": null}})))
        .await;
    story.check(expect![[r#"
        PATCH(apply) test-cm?fieldManager=user
          201 /data={"own":"0","theirs":"1"}
          Apply user v1: {"f:data":{"f:own":{},"f:theirs":{}}}
        PATCH(apply) test-cm?fieldManager=controller&force=true
          200 /data={"own":"1","theirs":"1"}
          Apply controller v1: {"f:data":{"f:own":{}}}
          Apply user v1: {"f:data":{"f:theirs":{}}}
        PATCH(apply) test-cm?fieldManager=controller&force=true
          200 /data={"own":"2","theirs":"1"}
          Apply controller v1: {"f:data":{"f:own":{}}}
          Apply user v1: {"f:data":{"f:theirs":{}}}
        PATCH(merge) test-cm?fieldManager=controller
          200 /data={"own":"2"}
          Apply controller v1: {"f:data":{"f:own":{}}}
    "#]]);
}

/// Parameters that every apply must, or must not, have.
#[tokio::test]
async fn apply_parameters_are_checked() {
    let mut story = Story::of_config_map().await;
    let config = || config_map(json!({"data": {"key": "1"}}));
    let nobody = |body: Value| ask("PATCH", "application/apply-patch+yaml", body);
    story.tell(nobody(config())).await;
    story.tell(nobody(config()).agent("kubectl/v1.36.0")).await;
    story.tell(apply("", config())).await;
    story.tell(merge("m", json!({})).query("force=false")).await;
    story
        .tell(apply(
            "m",
            config_map(json!({"metadata": {"managedFields": [{"manager": "m"}]}})),
        ))
        .await;
    story
        .tell(apply(
            "m",
            config_map(json!({"metadata": {"uid": "11111111-2222-3333-4444-555555555555"}})),
        ))
        .await;
    story.tell(apply("m", json!({"kind": "ConfigMap"}))).await;
    story.tell(apply("m", json!({"apiVersion": "v1"}))).await;
    story
        .tell(apply("m", json!({"apiVersion": "v1", "kind": "Secret"})))
        .await;
    story.tell(get()).await;
    // An intent that makes no valid object.
    story.turn_to(DEPLOYMENT, &["/spec/replicas"]);
    let mut invalid = deployment(Some(-1));
    story.tell(apply("m", &invalid)).await;
    invalid["spec"] = json!({"replicas": 1});
    let refused = story.tell(apply("m", &invalid)).await;
    assert_eq!(refused["reason"], "Invalid");
    story.tell(get()).await;
    story.check(expect![[r#"
        PATCH(apply) test-cm
          422 PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch
        PATCH(apply) test-cm
          422 PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch
        PATCH(apply) test-cm?fieldManager=
          422 PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch
        PATCH(merge) test-cm?fieldManager=m&force=false
          422 PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for non-apply patch
        PATCH(apply) test-cm?fieldManager=m
          400 metadata.managedFields must be nil
        PATCH(apply) test-cm?fieldManager=m
          409 Operation cannot be fulfilled on configmaps "test-cm": uid mismatch: the provided object specified uid 11111111-2222-3333-4444-555555555555, and no existing object was found
        PATCH(apply) test-cm?fieldManager=m
          400 invalid object type: /, Kind=ConfigMap
        PATCH(apply) test-cm?fieldManager=m
          400 invalid object type: /v1, Kind=
        PATCH(apply) test-cm?fieldManager=m
          400 invalid object type: /v1, Kind=Secret
        GET test-cm
          404 configmaps "test-cm" not found
        PATCH(apply) nginx-deployment?fieldManager=m
          422 Deployment.apps "nginx-deployment" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0
        PATCH(apply) nginx-deployment?fieldManager=m
          422 Deployment.apps "nginx-deployment" is invalid: [spec.selector: Required value, spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`, spec.template.spec.containers: Required value]
        GET nginx-deployment
          404 deployments.apps "nginx-deployment" not found
    "#]]);
}

/// The proposal's "ManagedFields has no entries for managers who manage no fields", and what is
/// never anybody's: kind and name.
#[tokio::test]
async fn managers_of_nothing_have_no_entry() {
    let mut story = Story::of_config_map().await;
    story.tell(apply("nothing", config_map(json!({})))).await;
    story.tell(merge("b", json!({"data": {"key": "1"}}))).await;
    story
        .tell(apply(
            "a",
            config_map(json!({"metadata": {"namespace": "default"}, "data": {"other": "1"}})),
        ))
        .await;
    story.tell(apply("a", config_map(json!({})))).await;
    story.tell(merge("c", json!({"data": {"key": "2"}}))).await;
    story.tell(merge("d", json!({"data": null}))).await;
    story.check(expect![[r#"
        PATCH(apply) test-cm?fieldManager=nothing
          201
        PATCH(merge) test-cm?fieldManager=b
          200 /data={"key":"1"}
        PATCH(apply) test-cm?fieldManager=a
          200 /data={"key":"1","other":"1"}
          Apply a v1: {"f:data":{"f:other":{}}}
          Update before-first-apply v1: {"f:data":{".":{},"f:key":{}}}
        PATCH(apply) test-cm?fieldManager=a
          200 /data={"key":"1"}
          Update before-first-apply v1: {"f:data":{".":{},"f:key":{}}}
        PATCH(merge) test-cm?fieldManager=c
          200 /data={"key":"2"}
          Update before-first-apply v1: {"f:data":{}}
          Update c v1: {"f:data":{"f:key":{}}}
        PATCH(merge) test-cm?fieldManager=d
          200
    "#]]);
}

/// "Clearing managedFields", in each of the four ways; clients that do not know of them clear
/// nothing. An empty list does, contrary to what the documentation says: a list that is there is
/// meant.
#[tokio::test]
async fn managers_are_cleared_in_four_ways() {
    let mut story = Story::of_config_map().await;
    let config = config_map(json!({"data": {"key": "1"}}));
    let clear = json!({"metadata": {"managedFields": [{}]}});
    let mut whole = config.clone();
    whole["metadata"]["managedFields"] = json!([{}]);
    story.tell(apply("kubectl", &config)).await;
    story
        .tell(merge("m", json!({"metadata": {"managedFields": null}})))
        .await;
    story.tell(put(&config)).await;
    story.tell(merge("m", &clear)).await;
    story.tell(apply("kubectl", &config)).await;
    // `If-Match` is of no consequence.
    story
        .tell(
            json_patch("m", json!([cleared("replace")])).header("If-Match", "1234567890123456789"),
        )
        .await;
    story.tell(apply("kubectl", &config)).await;
    story.tell(strategic("m", &clear)).await;
    story.tell(apply("kubectl", &config)).await;
    story.tell(put(&whole)).await;
    story.tell(apply("kubectl", &config)).await;
    story
        .tell(merge("m", json!({"metadata": {"managedFields": []}})))
        .await;
    story.check(expect![[r#"
        PATCH(apply) test-cm?fieldManager=kubectl
          201 /data={"key":"1"}
          Apply kubectl v1: {"f:data":{"f:key":{}}}
        PATCH(merge) test-cm?fieldManager=m
          200 /data={"key":"1"}
          Apply kubectl v1: {"f:data":{"f:key":{}}}
        PUT test-cm
          200 /data={"key":"1"}
          Apply kubectl v1: {"f:data":{"f:key":{}}}
        PATCH(merge) test-cm?fieldManager=m
          200 /data={"key":"1"}
        PATCH(apply) test-cm?fieldManager=kubectl
          200 /data={"key":"1"}
          Apply kubectl v1: {"f:data":{"f:key":{}}}
          Update before-first-apply v1: {"f:data":{".":{},"f:key":{}}}
        PATCH(json) test-cm?fieldManager=m
          200 /data={"key":"1"}
        PATCH(apply) test-cm?fieldManager=kubectl
          200 /data={"key":"1"}
          Apply kubectl v1: {"f:data":{"f:key":{}}}
          Update before-first-apply v1: {"f:data":{".":{},"f:key":{}}}
        PATCH(strategic-merge) test-cm?fieldManager=m
          200 /data={"key":"1"}
        PATCH(apply) test-cm?fieldManager=kubectl
          200 /data={"key":"1"}
          Apply kubectl v1: {"f:data":{"f:key":{}}}
          Update before-first-apply v1: {"f:data":{".":{},"f:key":{}}}
        PUT test-cm
          200 /data={"key":"1"}
        PATCH(apply) test-cm?fieldManager=kubectl
          200 /data={"key":"1"}
          Apply kubectl v1: {"f:data":{"f:key":{}}}
          Update before-first-apply v1: {"f:data":{".":{},"f:key":{}}}
        PATCH(merge) test-cm?fieldManager=m
          200 /data={"key":"1"}
    "#]]);
}

/// Clearing together with a change. The documentation says that who clears them owns what else
/// changes; the server has nobody own it, since an object without managers stays without until
/// somebody applies, and gives what there was to `before-first-apply`.
#[tokio::test]
async fn clearing_comes_before_other_changes() {
    let mut story = Story::of_config_map().await;
    story
        .tell(apply("kubectl", config_map(json!({"data": {"key": "1"}}))))
        .await;
    story
        .tell(merge(
            "m",
            json!({"metadata": {"managedFields": [{}]}, "data": {"key": "2", "more": "1"}}),
        ))
        .await;
    story
        .tell(apply("kubectl", config_map(json!({"data": {"key": "1"}}))))
        .await;
    story
        .tell(apply("kubectl", config_map(json!({"data": {"key": "2"}}))))
        .await;
    story.check(expect![[r#"
        PATCH(apply) test-cm?fieldManager=kubectl
          201 /data={"key":"1"}
          Apply kubectl v1: {"f:data":{"f:key":{}}}
        PATCH(merge) test-cm?fieldManager=m
          200 /data={"key":"2","more":"1"}
        PATCH(apply) test-cm?fieldManager=kubectl
          409 Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.key
        PATCH(apply) test-cm?fieldManager=kubectl
          200 /data={"key":"2","more":"1"}
          Apply kubectl v1: {"f:data":{"f:key":{}}}
          Update before-first-apply v1: {"f:data":{".":{},"f:key":{},"f:more":{}}}
    "#]]);
}

/// managedFields can be written by what does not apply: fields that can be read are taken, whatever
/// else leaves them as they were.
#[tokio::test]
async fn managers_can_be_edited() {
    let mut story = Story::of_config_map().await;
    let fields = |fields: Value| {
        json!({"metadata": {"managedFields": [{"manager": "edited", "operation": "Apply", "apiVersion": "v1",
        "time": "2010-10-10T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields}]}})
    };
    story
        .tell(apply("kubectl", config_map(json!({"data": {"key": "1"}}))))
        .await;
    story
        .tell(merge("m", fields(json!({"f:data": {"f:key": {}}}))))
        .await;
    story
        .tell(apply("kubectl", config_map(json!({"data": {"key": "2"}}))))
        .await;
    story
        .tell(merge("m", fields(json!({"f:data": {"nonsense": {}}}))))
        .await;
    story
        .tell(merge("m", fields(json!({"f:data": {"i:x": {}}}))))
        .await;
    story.tell(merge("m", json!({"metadata": {"managedFields": [{"manager": "edited", "operation": "Overwrite"}]}}))).await;
    story.check(expect![[r#"
        PATCH(apply) test-cm?fieldManager=kubectl
          201 /data={"key":"1"}
          Apply kubectl v1: {"f:data":{"f:key":{}}}
        PATCH(merge) test-cm?fieldManager=m
          200 /data={"key":"1"}
          Apply edited v1: {"f:data":{"f:key":{}}}
        PATCH(apply) test-cm?fieldManager=kubectl
          409 Apply failed with 1 conflict: conflict with "edited": .data.key
        PATCH(merge) test-cm?fieldManager=m
          200 /data={"key":"1"}
          Apply edited v1: {"f:data":{"f:key":{}}}
        PATCH(merge) test-cm?fieldManager=m
          200 /data={"key":"1"}
          Apply edited v1: {"f:data":{"f:key":{}}}
        PATCH(merge) test-cm?fieldManager=m
          200 /data={"key":"1"}
          Apply edited v1: {"f:data":{"f:key":{}}}
    "#]]);
}

/// "Access control and permissions" and "Dry-run authorization": apply is a patch, and a create
/// where there is nothing; a dry run needs what the real run does.
#[tokio::test]
async fn apply_needs_patch_and_create() {
    let mut story = Story::of_config_map().await;
    let config = |value: &str| config_map(json!({"data": {"key": value}}));
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = |verbs: Value| json!({"metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]});
    let allowed = |verb: &str| {
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": "alice",
        "resourceAttributes": {"namespace": "default", "verb": verb, "resource": "configmaps"}}})
    };
    let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let until = async |story: &Story, verb: &str| {
        story
            .until(
                reviews,
                &ask("POST", "application/json", allowed(verb)),
                |answer| answer.body["status"]["allowed"] == true,
            )
            .await;
    };
    story.tell(apply("kubectl", config("1")).by_alice()).await;
    story
        .make(&format!("{roles}/roles"), &role(json!(["patch"])))
        .await;
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"});
    let role_ref = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"});
    story
        .make(
            &format!("{roles}/rolebindings"),
            &json!({"metadata": {"name": "b"}, "subjects": [subject], "roleRef": role_ref}),
        )
        .await;
    until(&story, "patch").await;
    story.tell(apply("kubectl", config("1")).by_alice()).await;
    story
        .tell(apply("kubectl", config("1")).by_alice().query("dryRun=All"))
        .await;
    story
        .change(
            &format!("{roles}/roles/r"),
            &role(json!(["patch", "create"])),
        )
        .await;
    until(&story, "create").await;
    story.tell(apply("kubectl", config("1")).by_alice()).await;
    story
        .change(&format!("{roles}/roles/r"), &role(json!(["patch"])))
        .await;
    story.tell(apply("kubectl", config("2")).by_alice()).await;
    story
        .tell(apply("kubectl", config("3")).by_alice().query("dryRun=All"))
        .await;
    story.tell(get().by_alice()).await;
    story.tell(get()).await;
    story.check(expect![[r#"
        PATCH(apply) test-cm?fieldManager=kubectl
          403 configmaps "test-cm" is forbidden: User "alice" cannot patch resource "configmaps" in API group "" in the namespace "default"
        PATCH(apply) test-cm?fieldManager=kubectl
          403 configmaps "test-cm" is forbidden: User "alice" cannot create resource "configmaps" in API group "" in the namespace "default"
        PATCH(apply) test-cm?fieldManager=kubectl&dryRun=All
          403 configmaps "test-cm" is forbidden: User "alice" cannot create resource "configmaps" in API group "" in the namespace "default"
        PATCH(apply) test-cm?fieldManager=kubectl
          201 /data={"key":"1"}
          Apply kubectl v1: {"f:data":{"f:key":{}}}
        PATCH(apply) test-cm?fieldManager=kubectl
          200 /data={"key":"2"}
          Apply kubectl v1: {"f:data":{"f:key":{}}}
        PATCH(apply) test-cm?fieldManager=kubectl&dryRun=All
          200 /data={"key":"3"}
          Apply kubectl v1: {"f:data":{"f:key":{}}}
        GET test-cm
          403 configmaps "test-cm" is forbidden: User "alice" cannot get resource "configmaps" in API group "" in the namespace "default"
        GET test-cm
          200 /data={"key":"2"}
          Apply kubectl v1: {"f:data":{"f:key":{}}}
    "#]]);
}
