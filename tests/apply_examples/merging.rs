//! Merging of objects: the documentation's "Merge strategy", "Custom resources", "Compatibility
//! across topology changes" and versions, and the proposal's "API topology".

use expect_test::expect;
use serde_json::{Value, json};

use crate::{Answer, DEPLOYMENT, Story, apply, deployment, json_patch, merge, named, strategic};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const FOO: &str = "/apis/example.com/v1/namespaces/default/foos/foo-sample";
const FOO_V2: &str = "/apis/example.com/v2/namespaces/default/foos/foo-sample";
const SPEC: &[&str] = &["/spec"];

fn foo(spec: Value) -> Value {
    named("example.com/v1", "Foo", "foo-sample", json!({"spec": spec}))
}

fn foo_v2(spec: Value) -> Value {
    named("example.com/v2", "Foo", "foo-sample", json!({"spec": spec}))
}

fn version(name: &str, storage: bool, spec: Value) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    json!({"name": name, "served": true, "storage": storage, "schema": schema})
}

fn definition(versions: &Value) -> Value {
    let names = json!({"plural": "foos", "kind": "Foo"});
    let spec = json!({"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions});
    named(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "foos.example.com",
        json!({"spec": spec}),
    )
}

/// A spec with a map, a struct, a list of scalars and one of objects: whole, or in their parts.
/// `mark` is a default, so that one can see which schema is in force.
fn topology(whole: bool, mark: &str) -> Value {
    let text = || json!({"type": "string"});
    let (map, set, items) = if whole {
        ("atomic", "atomic", "atomic")
    } else {
        ("granular", "set", "map")
    };
    let item = json!({"type": "object", "required": ["name"], "properties": {"name": text(), "value": text()}});
    let mut list = json!({"type": "array", "x-kubernetes-list-type": items, "items": item});
    if !whole {
        list["x-kubernetes-list-map-keys"] = json!(["name"]);
    }
    json!({"type": "object", "properties": {
        "mark": {"type": "string", "default": mark},
        "data": {"type": "object", "x-kubernetes-map-type": map, "additionalProperties": text()},
        "struct": {"type": "object", "x-kubernetes-map-type": map, "properties": {"a": text(), "b": text()}},
        "tags": {"type": "array", "x-kubernetes-list-type": set, "items": text()},
        "items": list,
    }})
}

/// A story about a custom resource of these versions.
async fn of_foo(versions: Value) -> Story {
    let story = Story::of(FOO, SPEC).await;
    story.make(DEFINITIONS, &definition(&versions)).await;
    let probe = apply("probe", foo(json!({}))).query("dryRun=All");
    story
        .until(FOO, &probe, |answer| answer.status == 201)
        .await;
    story
}

/// Puts other versions into force.
async fn redefine(story: &Story, versions: &Value, path: &str, mark: &str) {
    story
        .change(
            &format!("{DEFINITIONS}/foos.example.com"),
            &json!({"spec": {"versions": versions}}),
        )
        .await;
    let version = path.split('/').nth(3).expect("a version");
    let probe = named(
        &format!("example.com/{version}"),
        "Foo",
        "probe",
        json!({"spec": {}}),
    );
    let marked = |answer: &Answer| {
        answer
            .body
            .pointer("/spec/mark")
            .is_some_and(|found| found == mark)
    };
    story
        .until(
            &path.replace("foo-sample", "probe"),
            &apply("probe", probe).query("dryRun=All"),
            marked,
        )
        .await;
}

/// `patchStrategy=merge` is a list with keys: containers by name, ports by two keys of which one
/// has a default. The lists within that have none are whole, and so is a selector, which is an
/// atomic struct. Finalizers are a set.
#[tokio::test]
async fn lists_of_built_in_kinds() {
    let shown = [
        "/metadata/finalizers",
        "/spec/template/spec/containers/0/ports",
        "/spec/template/spec/containers/0/command",
    ];
    let mut story = Story::of(DEPLOYMENT, &shown).await;
    let mut one = deployment(None);
    one["metadata"]["finalizers"] = json!(["example.com/one"]);
    one["spec"]["template"]["spec"]["containers"][0]["ports"] = json!([{"containerPort": 53}]);
    one["spec"]["template"]["spec"]["containers"][0]["command"] = json!(["a", "b"]);
    story.tell(apply("one", &one)).await;
    let two = |container: Value| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"finalizers": ["example.com/two"]},
        "spec": {"template": {"spec": {"containers": [container]}}}})
    };
    story.tell(apply("two", two(json!({"name": "nginx", "ports": [{"containerPort": 53, "protocol": "UDP", "name": "dns"}]})))).await;
    story.tell(apply("two", two(json!({"name": "nginx", "ports": [{"containerPort": 53, "protocol": "TCP", "name": "dns"}]})))).await;
    story
        .tell(apply(
            "two",
            two(json!({"name": "nginx", "command": ["a", "c"]})),
        ))
        .await;
    let mut selector = deployment(None);
    selector["spec"]["selector"]["matchLabels"]["more"] = json!("1");
    selector["spec"]["template"]["metadata"]["labels"]["more"] = json!("1");
    story.tell(apply("two", selector)).await;
    one["metadata"]
        .as_object_mut()
        .expect("metadata")
        .remove("finalizers");
    one["spec"]["template"]["spec"]["containers"][0]["ports"] = json!([]);
    story.tell(apply("one", &one)).await;
    story.check(expect![[r#"
        PATCH(apply) nginx-deployment?fieldManager=one
          201 /metadata/finalizers=["example.com/one"] /spec/template/spec/containers/0/ports=[{"containerPort":53,"protocol":"TCP"}] /spec/template/spec/containers/0/command=["a","b"]
          Apply one apps/v1: {"f:metadata":{"f:finalizers":{"v:\"example.com/one\"":{}}},"f:spec":{"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"nginx\"}":{".":{},"f:command":{},"f:image":{},"f:name":{},"f:ports":{"k:{\"containerPort\":53,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}}}}}}}}
        PATCH(apply) nginx-deployment?fieldManager=two
          200 /metadata/finalizers=["example.com/one","example.com/two"] /spec/template/spec/containers/0/ports=[{"containerPort":53,"protocol":"TCP"},{"name":"dns","containerPort":53,"protocol":"UDP"}] /spec/template/spec/containers/0/command=["a","b"]
          Apply one apps/v1: {"f:metadata":{"f:finalizers":{"v:\"example.com/one\"":{}}},"f:spec":{"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"nginx\"}":{".":{},"f:command":{},"f:image":{},"f:name":{},"f:ports":{"k:{\"containerPort\":53,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}}}}}}}}
          Apply two apps/v1: {"f:metadata":{"f:finalizers":{"v:\"example.com/two\"":{}}},"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"nginx\"}":{".":{},"f:name":{},"f:ports":{"k:{\"containerPort\":53,\"protocol\":\"UDP\"}":{".":{},"f:containerPort":{},"f:name":{},"f:protocol":{}}}}}}}}}
        PATCH(apply) nginx-deployment?fieldManager=two
          200 /metadata/finalizers=["example.com/one","example.com/two"] /spec/template/spec/containers/0/ports=[{"name":"dns","containerPort":53,"protocol":"TCP"}] /spec/template/spec/containers/0/command=["a","b"]
          Apply one apps/v1: {"f:metadata":{"f:finalizers":{"v:\"example.com/one\"":{}}},"f:spec":{"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"nginx\"}":{".":{},"f:command":{},"f:image":{},"f:name":{},"f:ports":{"k:{\"containerPort\":53,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}}}}}}}}
          Apply two apps/v1: {"f:metadata":{"f:finalizers":{"v:\"example.com/two\"":{}}},"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"nginx\"}":{".":{},"f:name":{},"f:ports":{"k:{\"containerPort\":53,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:name":{},"f:protocol":{}}}}}}}}}
        PATCH(apply) nginx-deployment?fieldManager=two
          409 Apply failed with 1 conflict: conflict with "one": .spec.template.spec.containers[name="nginx"].command
        PATCH(apply) nginx-deployment?fieldManager=two
          409 Apply failed with 1 conflict: conflict with "one": .spec.selector
        PATCH(apply) nginx-deployment?fieldManager=one
          200 /metadata/finalizers=["example.com/two"] /spec/template/spec/containers/0/ports=[{"name":"dns","containerPort":53,"protocol":"TCP"}] /spec/template/spec/containers/0/command=["a","b"]
          Apply one apps/v1: {"f:spec":{"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"nginx\"}":{".":{},"f:command":{},"f:image":{},"f:name":{}}}}}}}
          Apply two apps/v1: {"f:metadata":{"f:finalizers":{"v:\"example.com/two\"":{}}},"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"nginx\"}":{".":{},"f:name":{},"f:ports":{"k:{\"containerPort\":53,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:name":{},"f:protocol":{}}}}}}}}}
    "#]]);
}

/// Custom resources without markers: keys are fields, lists are whole. Strategic patches need types
/// that they do not have.
#[tokio::test]
async fn custom_resources_are_unstructured_by_default() {
    let mut story = of_foo(json!([version(
        "v1",
        true,
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
    )]))
    .await;
    story
        .tell(apply(
            "one",
            foo(json!({"map": {"a": 1}, "list": [{"name": "a"}]})),
        ))
        .await;
    story
        .tell(apply("two", foo(json!({"map": {"b": 1}, "other": [1, 2]}))))
        .await;
    story
        .tell(apply("two", foo(json!({"list": [{"name": "b"}]}))))
        .await;
    story
        .tell(apply("two", foo(json!({"list": [{"name": "b"}]}))).forced())
        .await;
    story
        .tell(merge("three", json!({"spec": {"map": {"a": 2}}})))
        .await;
    story
        .tell(json_patch(
            "four",
            json!([{"op": "add", "path": "/spec/list/-", "value": {"name": "c"}}]),
        ))
        .await;
    story
        .tell(strategic("five", json!({"spec": {"map": {"a": 3}}})))
        .await;
    story.check(expect![[r#"
        PATCH(apply) foo-sample?fieldManager=one
          201 /spec={"list":[{"name":"a"}],"map":{"a":1}}
          Apply one example.com/v1: {"f:spec":{"f:list":{},"f:map":{".":{},"f:a":{}}}}
        PATCH(apply) foo-sample?fieldManager=two
          200 /spec={"list":[{"name":"a"}],"map":{"a":1,"b":1},"other":[1,2]}
          Apply one example.com/v1: {"f:spec":{"f:list":{},"f:map":{".":{},"f:a":{}}}}
          Apply two example.com/v1: {"f:spec":{"f:map":{".":{},"f:b":{}},"f:other":{}}}
        PATCH(apply) foo-sample?fieldManager=two
          409 Apply failed with 1 conflict: conflict with "one": .spec.list
        PATCH(apply) foo-sample?fieldManager=two&force=true
          200 /spec={"list":[{"name":"b"}],"map":{"a":1}}
          Apply one example.com/v1: {"f:spec":{"f:map":{".":{},"f:a":{}}}}
          Apply two example.com/v1: {"f:spec":{"f:list":{}}}
        PATCH(merge) foo-sample?fieldManager=three
          200 /spec={"list":[{"name":"b"}],"map":{"a":2}}
          Apply one example.com/v1: {"f:spec":{"f:map":{}}}
          Apply two example.com/v1: {"f:spec":{"f:list":{}}}
          Update three example.com/v1: {"f:spec":{"f:map":{"f:a":{}}}}
        PATCH(json) foo-sample?fieldManager=four
          200 /spec={"list":[{"name":"b"},{"name":"c"}],"map":{"a":2}}
          Apply one example.com/v1: {"f:spec":{"f:map":{}}}
          Update four example.com/v1: {"f:spec":{"f:list":{}}}
          Update three example.com/v1: {"f:spec":{"f:map":{"f:a":{}}}}
        PATCH(strategic-merge) foo-sample?fieldManager=five
          415 the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml
    "#]]);
}

/// Custom resources with markers: maps, structs, sets and lists with keys are shared part by part.
#[tokio::test]
async fn custom_resources_merge_as_their_schema_says() {
    let mut story = of_foo(json!([version("v1", true, topology(false, "v1"))])).await;
    let spec = |data: &str, tag: &str, item: &str| json!({"data": {data: "1"}, "struct": {data: "1"}, "tags": [tag], "items": [{"name": item}]});
    story.tell(apply("one", foo(spec("a", "x", "i")))).await;
    story.tell(apply("two", foo(spec("b", "y", "j")))).await;
    let same_item = json!({"struct": {"a": "2"}, "items": [{"name": "i", "value": "1"}]});
    story.tell(apply("two", foo(same_item.clone()))).await;
    story.tell(apply("two", foo(same_item)).forced()).await;
    story
        .tell(apply("one", foo(json!({"tags": ["x", "x"]}))))
        .await;
    story
        .tell(apply("one", foo(json!({"items": [{"value": "1"}]}))))
        .await;
    story.tell(apply("one", foo(json!({"nowhere": 1})))).await;
    story.check(expect![[r#"
        PATCH(apply) foo-sample?fieldManager=one
          201 /spec={"data":{"a":"1"},"items":[{"name":"i"}],"mark":"v1","struct":{"a":"1"},"tags":["x"]}
          Apply one example.com/v1: {"f:spec":{"f:data":{"f:a":{}},"f:items":{"k:{\"name\":\"i\"}":{".":{},"f:name":{}}},"f:struct":{"f:a":{}},"f:tags":{"v:\"x\"":{}}}}
        PATCH(apply) foo-sample?fieldManager=two
          200 /spec={"data":{"a":"1","b":"1"},"items":[{"name":"i"},{"name":"j"}],"mark":"v1","struct":{"a":"1","b":"1"},"tags":["x","y"]}
          Apply one example.com/v1: {"f:spec":{"f:data":{"f:a":{}},"f:items":{"k:{\"name\":\"i\"}":{".":{},"f:name":{}}},"f:struct":{"f:a":{}},"f:tags":{"v:\"x\"":{}}}}
          Apply two example.com/v1: {"f:spec":{"f:data":{"f:b":{}},"f:items":{"k:{\"name\":\"j\"}":{".":{},"f:name":{}}},"f:struct":{"f:b":{}},"f:tags":{"v:\"y\"":{}}}}
        PATCH(apply) foo-sample?fieldManager=two
          409 Apply failed with 1 conflict: conflict with "one": .spec.struct.a
        PATCH(apply) foo-sample?fieldManager=two&force=true
          200 /spec={"data":{"a":"1"},"items":[{"name":"i","value":"1"}],"mark":"v1","struct":{"a":"2"},"tags":["x"]}
          Apply one example.com/v1: {"f:spec":{"f:data":{"f:a":{}},"f:items":{"k:{\"name\":\"i\"}":{".":{},"f:name":{}}},"f:tags":{"v:\"x\"":{}}}}
          Apply two example.com/v1: {"f:spec":{"f:items":{"k:{\"name\":\"i\"}":{".":{},"f:name":{},"f:value":{}}},"f:struct":{"f:a":{}}}}
        PATCH(apply) foo-sample?fieldManager=one
          500 failed to create typed patch object (/foo-sample; example.com/v1, Kind=Foo): .spec.tags: duplicate entries for key [="x"]
        PATCH(apply) foo-sample?fieldManager=one
          500 failed to create typed patch object (/foo-sample; example.com/v1, Kind=Foo): .spec.items: element 0: associative list with keys has an element that omits all key fields ["name"] (and doesn't have default values for any key fields)
        PATCH(apply) foo-sample?fieldManager=one
          500 failed to create typed patch object (/foo-sample; example.com/v1, Kind=Foo): .spec.nowhere: field not declared in schema
    "#]]);
}

/// From atomic to granular, set and map: who owned it whole owns that it is there, its parts are
/// nobody's, nothing is a conflict.
#[tokio::test]
async fn atomic_field_becomes_granular() {
    let mut story = of_foo(json!([version("v1", true, topology(true, "whole"))])).await;
    let spec = json!({"data": {"key1": "val1", "key2": "val2"}, "struct": {"a": "1"}, "tags": ["x"], "items": [{"name": "i", "value": "1"}]});
    let other = json!({"data": {"key1": "other"}, "struct": {"a": "2"}, "tags": ["y"], "items": [{"name": "i", "value": "2"}]});
    story.tell(apply("manager-one", foo(spec.clone()))).await;
    story.tell(apply("two", foo(other.clone()))).await;
    redefine(
        &story,
        &json!([version("v1", true, topology(false, "parts"))]),
        FOO,
        "parts",
    )
    .await;
    story.tell_live().await;
    story.tell(apply("two", foo(other))).await;
    story.tell(apply("manager-one", foo(spec))).await;
    story.check(expect![[r#"
        PATCH(apply) foo-sample?fieldManager=manager-one
          201 /spec={"data":{"key1":"val1","key2":"val2"},"items":[{"name":"i","value":"1"}],"mark":"whole","struct":{"a":"1"},"tags":["x"]}
          Apply manager-one example.com/v1: {"f:spec":{"f:data":{},"f:items":{},"f:struct":{},"f:tags":{}}}
        PATCH(apply) foo-sample?fieldManager=two
          409 Apply failed with 4 conflicts: conflicts with "manager-one":
        - .spec.data
        - .spec.items
        - .spec.struct
        - .spec.tags
        GET foo-sample
          200 /spec={"data":{"key1":"val1","key2":"val2"},"items":[{"name":"i","value":"1"}],"mark":"whole","struct":{"a":"1"},"tags":["x"]}
          Apply manager-one example.com/v1: {"f:spec":{"f:data":{},"f:items":{},"f:struct":{},"f:tags":{}}}
        PATCH(apply) foo-sample?fieldManager=two
          200 /spec={"data":{"key1":"other","key2":"val2"},"items":[{"name":"i","value":"2"}],"mark":"whole","struct":{"a":"2"},"tags":["x","y"]}
          Apply manager-one example.com/v1: {"f:spec":{"f:data":{},"f:items":{},"f:struct":{},"f:tags":{}}}
          Apply two example.com/v1: {"f:spec":{"f:data":{"f:key1":{}},"f:items":{"k:{\"name\":\"i\"}":{".":{},"f:name":{},"f:value":{}}},"f:struct":{"f:a":{}},"f:tags":{"v:\"y\"":{}}}}
        PATCH(apply) foo-sample?fieldManager=manager-one
          409 Apply failed with 3 conflicts: conflicts with "two":
        - .spec.data.key1
        - .spec.items[name="i"].value
        - .spec.struct.a
    "#]]);
}

/// From granular, set and map to atomic: who owned a part owns the whole, and any change of it is a
/// conflict.
#[tokio::test]
async fn granular_field_becomes_atomic() {
    let mut story = of_foo(json!([version("v1", true, topology(false, "parts"))])).await;
    let one = json!({"data": {"key1": "val1"}, "struct": {"a": "1"}, "tags": ["x"], "items": [{"name": "i", "value": "1"}]});
    let two = json!({"data": {"key2": "val2"}, "struct": {"b": "1"}, "tags": ["y"], "items": [{"name": "j", "value": "1"}]});
    story.tell(apply("manager-one", foo(one))).await;
    story.tell(apply("two", foo(two.clone()))).await;
    redefine(
        &story,
        &json!([version("v1", true, topology(true, "whole"))]),
        FOO,
        "whole",
    )
    .await;
    story.tell(apply("two", foo(two.clone()))).await;
    story.tell(apply("two", foo(two)).forced()).await;
    story.check(expect![[r#"
        PATCH(apply) foo-sample?fieldManager=manager-one
          201 /spec={"data":{"key1":"val1"},"items":[{"name":"i","value":"1"}],"mark":"parts","struct":{"a":"1"},"tags":["x"]}
          Apply manager-one example.com/v1: {"f:spec":{"f:data":{"f:key1":{}},"f:items":{"k:{\"name\":\"i\"}":{".":{},"f:name":{},"f:value":{}}},"f:struct":{"f:a":{}},"f:tags":{"v:\"x\"":{}}}}
        PATCH(apply) foo-sample?fieldManager=two
          200 /spec={"data":{"key1":"val1","key2":"val2"},"items":[{"name":"i","value":"1"},{"name":"j","value":"1"}],"mark":"parts","struct":{"a":"1","b":"1"},"tags":["x","y"]}
          Apply manager-one example.com/v1: {"f:spec":{"f:data":{"f:key1":{}},"f:items":{"k:{\"name\":\"i\"}":{".":{},"f:name":{},"f:value":{}}},"f:struct":{"f:a":{}},"f:tags":{"v:\"x\"":{}}}}
          Apply two example.com/v1: {"f:spec":{"f:data":{"f:key2":{}},"f:items":{"k:{\"name\":\"j\"}":{".":{},"f:name":{},"f:value":{}}},"f:struct":{"f:b":{}},"f:tags":{"v:\"y\"":{}}}}
        PATCH(apply) foo-sample?fieldManager=two
          409 Apply failed with 4 conflicts: conflicts with "manager-one":
        - .spec.data
        - .spec.items
        - .spec.struct
        - .spec.tags
        PATCH(apply) foo-sample?fieldManager=two&force=true
          200 /spec={"data":{"key2":"val2"},"items":[{"name":"j","value":"1"}],"mark":"parts","struct":{"b":"1"},"tags":["y"]}
          Apply two example.com/v1: {"f:spec":{"f:data":{},"f:items":{},"f:struct":{},"f:tags":{}}}
    "#]]);
}

/// An applier may go from one version to another, and its entry with it; conflicts are found across
/// versions.
#[tokio::test]
async fn an_applier_changes_its_version() {
    let scales = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers/scales";
    let shown = [
        "/spec/maxReplicas",
        "/spec/targetCPUUtilizationPercentage",
        "/spec/metrics",
    ];
    let mut story = Story::of(scales, &shown).await;
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "nginx-deployment"});
    let old = |max: i64| {
        let spec = json!({"maxReplicas": max, "scaleTargetRef": target, "targetCPUUtilizationPercentage": 50});
        named(
            "autoscaling/v1",
            "HorizontalPodAutoscaler",
            "scales",
            json!({"spec": spec}),
        )
    };
    let new = |max: i64| {
        let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}});
        let spec = json!({"maxReplicas": max, "scaleTargetRef": target, "metrics": [metric]});
        named(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            "scales",
            json!({"spec": spec}),
        )
    };
    story.tell(apply("kubectl", old(10))).await;
    story.turn_to(&scales.replace("/v1/", "/v2/"), &shown);
    story.tell(apply("other", new(20))).await;
    story.tell(apply("kubectl", new(10))).await;
    story.turn_to(scales, &shown);
    story.tell_live().await;
    story.tell(apply("kubectl", new(10))).await;
    story.check(expect![[r#"
        PATCH(apply) scales?fieldManager=kubectl
          201 /spec/maxReplicas=10 /spec/targetCPUUtilizationPercentage=50
          Apply kubectl autoscaling/v1: {"f:spec":{"f:maxReplicas":{},"f:scaleTargetRef":{},"f:targetCPUUtilizationPercentage":{}}}
        PATCH(apply) scales?fieldManager=other
          409 Apply failed with 2 conflicts: conflicts with "kubectl":
        - .spec.maxReplicas
        - .spec.targetCPUUtilizationPercentage
        PATCH(apply) scales?fieldManager=kubectl
          200 /spec/maxReplicas=10 /spec/metrics=[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":60}}}]
          Apply kubectl autoscaling/v2: {"f:spec":{"f:maxReplicas":{},"f:metrics":{},"f:scaleTargetRef":{"f:apiVersion":{},"f:kind":{},"f:name":{}}}}
        GET scales
          200 /spec/maxReplicas=10 /spec/targetCPUUtilizationPercentage=60
          Apply kubectl autoscaling/v2: {"f:spec":{"f:maxReplicas":{},"f:metrics":{},"f:scaleTargetRef":{"f:apiVersion":{},"f:kind":{},"f:name":{}}}}
        PATCH(apply) scales?fieldManager=kubectl
          400 invalid object type: autoscaling/v2, Kind=HorizontalPodAutoscaler
    "#]]);
}

/// The proposal's "unknown/obsolete versions are present in managedFields": what was managed in a
/// version that is gone is nobody's.
#[tokio::test]
async fn entries_of_a_version_that_is_gone_are_dropped() {
    let both = json!([
        version("v1", false, topology(false, "v1")),
        version("v2", true, topology(false, "v2"))
    ]);
    let mut story = of_foo(both).await;
    story
        .tell(apply("old", foo(json!({"data": {"key": "1"}}))))
        .await;
    story.turn_to(FOO_V2, SPEC);
    story
        .tell(apply("new", foo_v2(json!({"data": {"key": "2"}}))))
        .await;
    redefine(
        &story,
        &json!([version("v2", true, topology(false, "alone"))]),
        FOO_V2,
        "alone",
    )
    .await;
    story.tell_live().await;
    story
        .tell(apply("new", foo_v2(json!({"data": {"key": "2"}}))))
        .await;
    story.check(expect![[r#"
        PATCH(apply) foo-sample?fieldManager=old
          201 /spec={"data":{"key":"1"},"mark":"v1"}
          Apply old example.com/v1: {"f:spec":{"f:data":{"f:key":{}}}}
        PATCH(apply) foo-sample?fieldManager=new
          409 Apply failed with 1 conflict: conflict with "old": .spec.data.key
        GET foo-sample
          200 /spec={"data":{"key":"1"},"mark":"v1"}
          Apply old example.com/v1: {"f:spec":{"f:data":{"f:key":{}}}}
        PATCH(apply) foo-sample?fieldManager=new
          200 /spec={"data":{"key":"2"},"mark":"v1"}
          Apply new example.com/v2: {"f:spec":{"f:data":{"f:key":{}}}}
    "#]]);
}

/// The order of a list with keys is the applier's; what others own keeps its own.
#[tokio::test]
async fn the_order_of_a_list_is_the_appliers() {
    let mut story = of_foo(json!([version("v1", true, topology(false, "v1"))])).await;
    let items = |names: &[&str]| {
        foo(json!({"items": names.iter().map(|name| json!({"name": name})).collect::<Value>()}))
    };
    story.tell(apply("one", items(&["a", "b"]))).await;
    story.tell(apply("two", items(&["d", "c"]))).await;
    story.tell(apply("one", items(&["b", "a"]))).await;
    story.check(expect![[r#"
        PATCH(apply) foo-sample?fieldManager=one
          201 /spec={"items":[{"name":"a"},{"name":"b"}],"mark":"v1"}
          Apply one example.com/v1: {"f:spec":{"f:items":{"k:{\"name\":\"a\"}":{".":{},"f:name":{}},"k:{\"name\":\"b\"}":{".":{},"f:name":{}}}}}
        PATCH(apply) foo-sample?fieldManager=two
          200 /spec={"items":[{"name":"a"},{"name":"b"},{"name":"d"},{"name":"c"}],"mark":"v1"}
          Apply one example.com/v1: {"f:spec":{"f:items":{"k:{\"name\":\"a\"}":{".":{},"f:name":{}},"k:{\"name\":\"b\"}":{".":{},"f:name":{}}}}}
          Apply two example.com/v1: {"f:spec":{"f:items":{"k:{\"name\":\"c\"}":{".":{},"f:name":{}},"k:{\"name\":\"d\"}":{".":{},"f:name":{}}}}}
        PATCH(apply) foo-sample?fieldManager=one
          200 /spec={"items":[{"name":"b"},{"name":"d"},{"name":"c"},{"name":"a"}],"mark":"v1"}
          Apply one example.com/v1: {"f:spec":{"f:items":{"k:{\"name\":\"a\"}":{".":{},"f:name":{}},"k:{\"name\":\"b\"}":{".":{},"f:name":{}}}}}
          Apply two example.com/v1: {"f:spec":{"f:items":{"k:{\"name\":\"c\"}":{".":{},"f:name":{}},"k:{\"name\":\"d\"}":{".":{},"f:name":{}}}}}
    "#]]);
}
