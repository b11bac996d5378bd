//! Rules of the API concepts for all writes, where patches and apply differ: "Field validation",
//! "Dry-run", and resource versions.

use expect_test::expect;
use serde_json::{Value, json};

use crate::{
    Ask, CONFIG_MAP, Story, apply, ask, config_map, get, json_patch, merge, put, strategic,
};

/// The same request with each level of validation: none given, which is `Warn`.
async fn at_each_level(story: &mut Story, ask: &Ask) {
    for level in ["", "Ignore", "Warn", "Strict"] {
        let ask = ask.clone().query("dryRun=All");
        story
            .tell(if level.is_empty() {
                ask
            } else {
                ask.query(format!("fieldValidation={level}"))
            })
            .await;
    }
}

/// Unknown and duplicate fields in PUT and the patches. Apply knows only what the schema has, at
/// every level, and is told of duplicates.
#[tokio::test]
async fn fields_are_validated_at_the_level_that_is_asked_for() {
    let mut story = Story::of(CONFIG_MAP, &["/data"]).await;
    story
        .make(
            "/api/v1/namespaces/default/configmaps",
            &config_map(json!({"data": {"key": "1"}})),
        )
        .await;
    let twice = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"test-cm"},"data":{"key":"1","key":"2"}}"#;
    at_each_level(
        &mut story,
        &put(config_map(json!({"data": {"key": "2"}, "colour": "red"}))),
    )
    .await;
    at_each_level(&mut story, &put(twice)).await;
    at_each_level(
        &mut story,
        &merge("m", json!({"data": {"key": "2"}, "colour": "red"})),
    )
    .await;
    at_each_level(&mut story, &merge("m", r#"{"data":{"key":"1","key":"2"}}"#)).await;
    at_each_level(
        &mut story,
        &strategic("m", json!({"data": {"key": "2"}, "colour": "red"})),
    )
    .await;
    at_each_level(
        &mut story,
        &json_patch(
            "m",
            json!([{"op": "add", "path": "/colour", "value": "red"}]),
        ),
    )
    .await;
    at_each_level(
        &mut story,
        &apply("m", config_map(json!({"colour": "red"}))),
    )
    .await;
    at_each_level(&mut story, &apply("story", twice).forced()).await;
    story.check(expect![[r#"
        PUT test-cm?dryRun=All
          200 /data={"key":"2"}
          warning: 299 - "unknown field \"colour\""
          Update story v1: {"f:data":{".":{},"f:key":{}}}
        PUT test-cm?dryRun=All&fieldValidation=Ignore
          200 /data={"key":"2"}
          Update story v1: {"f:data":{".":{},"f:key":{}}}
        PUT test-cm?dryRun=All&fieldValidation=Warn
          200 /data={"key":"2"}
          warning: 299 - "unknown field \"colour\""
          Update story v1: {"f:data":{".":{},"f:key":{}}}
        PUT test-cm?dryRun=All&fieldValidation=Strict
          400 ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "colour"
        PUT test-cm?dryRun=All
          200 /data={"key":"2"}
          warning: 299 - "duplicate field \"data.key\""
          Update story v1: {"f:data":{".":{},"f:key":{}}}
        PUT test-cm?dryRun=All&fieldValidation=Ignore
          200 /data={"key":"2"}
          Update story v1: {"f:data":{".":{},"f:key":{}}}
        PUT test-cm?dryRun=All&fieldValidation=Warn
          200 /data={"key":"2"}
          warning: 299 - "duplicate field \"data.key\""
          Update story v1: {"f:data":{".":{},"f:key":{}}}
        PUT test-cm?dryRun=All&fieldValidation=Strict
          400 ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: duplicate field "data.key"
        PATCH(merge) test-cm?fieldManager=m&dryRun=All
          200 /data={"key":"2"}
          warning: 299 - "unknown field \"colour\""
          Update m v1: {"f:data":{"f:key":{}}}
          Update story v1: {"f:data":{}}
        PATCH(merge) test-cm?fieldManager=m&dryRun=All&fieldValidation=Ignore
          200 /data={"key":"2"}
          Update m v1: {"f:data":{"f:key":{}}}
          Update story v1: {"f:data":{}}
        PATCH(merge) test-cm?fieldManager=m&dryRun=All&fieldValidation=Warn
          200 /data={"key":"2"}
          warning: 299 - "unknown field \"colour\""
          Update m v1: {"f:data":{"f:key":{}}}
          Update story v1: {"f:data":{}}
        PATCH(merge) test-cm?fieldManager=m&dryRun=All&fieldValidation=Strict
          422  "" is invalid: patch: Invalid value: <object>: strict decoding error: unknown field "colour"
        PATCH(merge) test-cm?fieldManager=m&dryRun=All
          200 /data={"key":"2"}
          warning: 299 - "duplicate field \"data.key\""
          Update m v1: {"f:data":{"f:key":{}}}
          Update story v1: {"f:data":{}}
        PATCH(merge) test-cm?fieldManager=m&dryRun=All&fieldValidation=Ignore
          200 /data={"key":"2"}
          Update m v1: {"f:data":{"f:key":{}}}
          Update story v1: {"f:data":{}}
        PATCH(merge) test-cm?fieldManager=m&dryRun=All&fieldValidation=Warn
          200 /data={"key":"2"}
          warning: 299 - "duplicate field \"data.key\""
          Update m v1: {"f:data":{"f:key":{}}}
          Update story v1: {"f:data":{}}
        PATCH(merge) test-cm?fieldManager=m&dryRun=All&fieldValidation=Strict
          422  "" is invalid: patch: Invalid value: <object>: strict decoding error: duplicate field "data.key"
        PATCH(strategic-merge) test-cm?fieldManager=m&dryRun=All
          200 /data={"key":"2"}
          warning: 299 - "unknown field \"colour\""
          Update m v1: {"f:data":{"f:key":{}}}
          Update story v1: {"f:data":{}}
        PATCH(strategic-merge) test-cm?fieldManager=m&dryRun=All&fieldValidation=Ignore
          200 /data={"key":"2"}
          Update m v1: {"f:data":{"f:key":{}}}
          Update story v1: {"f:data":{}}
        PATCH(strategic-merge) test-cm?fieldManager=m&dryRun=All&fieldValidation=Warn
          200 /data={"key":"2"}
          warning: 299 - "unknown field \"colour\""
          Update m v1: {"f:data":{"f:key":{}}}
          Update story v1: {"f:data":{}}
        PATCH(strategic-merge) test-cm?fieldManager=m&dryRun=All&fieldValidation=Strict
          422  "" is invalid: patch: Invalid value: "map[colour:red data:map[key:2]]": strict decoding error: unknown field "colour"
        PATCH(json) test-cm?fieldManager=m&dryRun=All
          200 /data={"key":"1"}
          warning: 299 - "unknown field \"colour\""
          Update story v1: {"f:data":{".":{},"f:key":{}}}
        PATCH(json) test-cm?fieldManager=m&dryRun=All&fieldValidation=Ignore
          200 /data={"key":"1"}
          Update story v1: {"f:data":{".":{},"f:key":{}}}
        PATCH(json) test-cm?fieldManager=m&dryRun=All&fieldValidation=Warn
          200 /data={"key":"1"}
          warning: 299 - "unknown field \"colour\""
          Update story v1: {"f:data":{".":{},"f:key":{}}}
        PATCH(json) test-cm?fieldManager=m&dryRun=All&fieldValidation=Strict
          422  "" is invalid: patch: Invalid value: <object>: strict decoding error: unknown field "colour"
        PATCH(apply) test-cm?fieldManager=m&dryRun=All
          500 failed to create typed patch object (/test-cm; /v1, Kind=ConfigMap): .colour: field not declared in schema
        PATCH(apply) test-cm?fieldManager=m&dryRun=All&fieldValidation=Ignore
          500 failed to create typed patch object (/test-cm; /v1, Kind=ConfigMap): .colour: field not declared in schema
        PATCH(apply) test-cm?fieldManager=m&dryRun=All&fieldValidation=Warn
          500 failed to create typed patch object (/test-cm; /v1, Kind=ConfigMap): .colour: field not declared in schema
        PATCH(apply) test-cm?fieldManager=m&dryRun=All&fieldValidation=Strict
          500 failed to create typed patch object (/test-cm; /v1, Kind=ConfigMap): .colour: field not declared in schema
        PATCH(apply) test-cm?fieldManager=story&force=true&dryRun=All
          200 /data={"key":"2"}
          warning: 299 - "line 1: key \"key\" already set in map"
          Apply story v1: {"f:data":{"f:key":{}}}
          Update story v1: {"f:data":{}}
        PATCH(apply) test-cm?fieldManager=story&force=true&dryRun=All&fieldValidation=Ignore
          200 /data={"key":"2"}
          Apply story v1: {"f:data":{"f:key":{}}}
          Update story v1: {"f:data":{}}
        PATCH(apply) test-cm?fieldManager=story&force=true&dryRun=All&fieldValidation=Warn
          200 /data={"key":"2"}
          warning: 299 - "line 1: key \"key\" already set in map"
          Apply story v1: {"f:data":{"f:key":{}}}
          Update story v1: {"f:data":{}}
        PATCH(apply) test-cm?fieldManager=story&force=true&dryRun=All&fieldValidation=Strict
          400 error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:
          line 1: key "key" already set in map
    "#]]);
}

/// A dry run of apply goes through every stage but the last: it answers as the real run would,
/// conflicts included, and keeps nothing.
#[tokio::test]
async fn a_dry_run_keeps_nothing() {
    let mut story = Story::of_config_map().await;
    let config = |value: &str| config_map(json!({"data": {"key": value}}));
    let dry = |ask: Ask| ask.query("dryRun=All");
    let made = story.tell(dry(apply("one", config("1")))).await;
    assert!(
        made["metadata"]["uid"].is_string() && made["metadata"]["creationTimestamp"].is_string(),
        "{made}"
    );
    assert_eq!(made["metadata"]["resourceVersion"], Value::Null);
    story.tell(get()).await;
    let made = story.tell(apply("one", config("1"))).await;
    let dried = story.tell(dry(apply("one", config("2")))).await;
    assert_eq!(
        dried["metadata"]["resourceVersion"],
        made["metadata"]["resourceVersion"]
    );
    story.tell(dry(apply("two", config("2")))).await;
    story.tell(dry(apply("two", config("2")).forced())).await;
    story
        .tell(dry(apply(
            "one",
            config_map(json!({"data": {"Bad Key": "1"}})),
        )))
        .await;
    story
        .tell(apply("one", config("2")).query("dryRun=Some"))
        .await;
    assert_eq!(story.tell(get()).await, made);
    story.check(expect![[r#"
        PATCH(apply) test-cm?fieldManager=one&dryRun=All
          201 /data={"key":"1"}
          Apply one v1: {"f:data":{"f:key":{}}}
        GET test-cm
          404 configmaps "test-cm" not found
        PATCH(apply) test-cm?fieldManager=one
          201 /data={"key":"1"}
          Apply one v1: {"f:data":{"f:key":{}}}
        PATCH(apply) test-cm?fieldManager=one&dryRun=All
          200 /data={"key":"2"}
          Apply one v1: {"f:data":{"f:key":{}}}
        PATCH(apply) test-cm?fieldManager=two&dryRun=All
          409 Apply failed with 1 conflict: conflict with "one": .data.key
        PATCH(apply) test-cm?fieldManager=two&force=true&dryRun=All
          200 /data={"key":"2"}
          Apply two v1: {"f:data":{"f:key":{}}}
        PATCH(apply) test-cm?fieldManager=one&dryRun=All
          422 ConfigMap "test-cm" is invalid: data[Bad Key]: Invalid value: "Bad Key": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')
        PATCH(apply) test-cm?fieldManager=one&dryRun=Some
          422 PatchOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported values: "All"
        GET test-cm
          200 /data={"key":"1"}
          Apply one v1: {"f:data":{"f:key":{}}}
    "#]]);
}

/// The other verbs: the example's Pod is answered as if it were made, and what is replaced, patched
/// or deleted stays as it is.
#[tokio::test]
async fn a_dry_run_of_any_verb_keeps_nothing() {
    let mut story = Story::of_config_map().await;
    let account = json!({"metadata": {"name": "default"}});
    story
        .make("/api/v1/namespaces/default/serviceaccounts", &account)
        .await;
    let pod = json!({"metadata": {"name": "test-pod"}, "spec": {"containers": [{"name": "c", "image": "nginx:1"}]}});
    story.turn_to(
        "/api/v1/namespaces/default/pods",
        &["/metadata/name", "/spec/restartPolicy"],
    );
    story
        .tell(ask("POST", "application/json", pod).query("dryRun=All"))
        .await;
    story.turn_to("/api/v1/namespaces/default/pods/test-pod", &[]);
    story.tell(get()).await;
    story
        .make(
            "/api/v1/namespaces/default/configmaps",
            &config_map(json!({"data": {"key": "1"}})),
        )
        .await;
    story.turn_to(CONFIG_MAP, &["/data"]);
    let made = story.tell(get()).await;
    story
        .tell(put(config_map(json!({"data": {"key": "2"}}))).query("dryRun=All"))
        .await;
    story
        .tell(merge("m", json!({"data": {"key": "3"}})).query("dryRun=All"))
        .await;
    story
        .tell(strategic("m", json!({"data": {"key": "4"}})).query("dryRun=All"))
        .await;
    story
        .tell(json_patch("m", json!([{"op": "remove", "path": "/data/key"}])).query("dryRun=All"))
        .await;
    let deleted = story
        .send(
            CONFIG_MAP,
            &ask("DELETE", "application/json", "").query("dryRun=All"),
        )
        .await;
    assert_eq!(
        (deleted.status, &deleted.body["status"]),
        (200, &json!("Success"))
    );
    assert_eq!(story.tell(get()).await, made);
    story.check(expect![[r#"
        POST pods?dryRun=All
          201 /metadata/name="test-pod" /spec/restartPolicy="Always"
          Update story v1: {"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}
        GET test-pod
          404 pods "test-pod" not found
        GET test-cm
          200 /data={"key":"1"}
          Update story v1: {"f:data":{".":{},"f:key":{}}}
        PUT test-cm?dryRun=All
          200 /data={"key":"2"}
          Update story v1: {"f:data":{".":{},"f:key":{}}}
        PATCH(merge) test-cm?fieldManager=m&dryRun=All
          200 /data={"key":"3"}
          Update m v1: {"f:data":{"f:key":{}}}
          Update story v1: {"f:data":{}}
        PATCH(strategic-merge) test-cm?fieldManager=m&dryRun=All
          200 /data={"key":"4"}
          Update m v1: {"f:data":{"f:key":{}}}
          Update story v1: {"f:data":{}}
        PATCH(json) test-cm?fieldManager=m&dryRun=All
          200
        GET test-cm
          200 /data={"key":"1"}
          Update story v1: {"f:data":{".":{},"f:key":{}}}
    "#]]);
}

/// A resourceVersion in what is applied is a condition, also for who forces; a conflict of managers
/// is found first. It need not be there, and is no condition of a creation.
#[tokio::test]
async fn a_resource_version_is_a_condition() {
    let mut story = Story::of_config_map().await;
    let config = |value: &str, version: &Value| {
        config_map(json!({"metadata": {"resourceVersion": version}, "data": {"key": value}}))
    };
    let first =
        story.tell(apply("one", config("1", &json!("1")))).await["metadata"]["resourceVersion"]
            .clone();
    let second =
        story.tell(apply("one", config("2", &first))).await["metadata"]["resourceVersion"].clone();
    assert_ne!(first, second);
    story.tell(apply("one", config("3", &first))).await;
    story.tell(apply("two", config("3", &first)).forced()).await;
    story.tell(apply("two", config("3", &second))).await;
    let same = story
        .tell(apply("one", config_map(json!({"data": {"key": "2"}}))))
        .await;
    assert_eq!(same["metadata"]["resourceVersion"], second);
    story.check(expect![[r#"
        PATCH(apply) test-cm?fieldManager=one
          201 /data={"key":"1"}
          Apply one v1: {"f:data":{"f:key":{}}}
        PATCH(apply) test-cm?fieldManager=one
          200 /data={"key":"2"}
          Apply one v1: {"f:data":{"f:key":{}}}
        PATCH(apply) test-cm?fieldManager=one
          409 Operation cannot be fulfilled on configmaps "test-cm": the object has been modified; please apply your changes to the latest version and try again
        PATCH(apply) test-cm?fieldManager=two&force=true
          409 Operation cannot be fulfilled on configmaps "test-cm": the object has been modified; please apply your changes to the latest version and try again
        PATCH(apply) test-cm?fieldManager=two
          409 Apply failed with 1 conflict: conflict with "one": .data.key
        PATCH(apply) test-cm?fieldManager=one
          200 /data={"key":"2"}
          Apply one v1: {"f:data":{"f:key":{}}}
    "#]]);
}
