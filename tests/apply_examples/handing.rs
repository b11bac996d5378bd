//! Handing fields over: the documentation's "Transferring ownership" of replicas to an autoscaler,
//! kubectl's way from client-side to server-side apply and back, subresources, and the surprises
//! that the proposal starts with.

use expect_test::expect;
use serde_json::{Value, json};

use crate::{
    DEPLOYMENT, Story, apply, config_map, deployment, json_patch, merge, named, put, strategic,
};

const REPLICAS: &[&str] = &["/spec/replicas"];
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The request of the autoscaler's controller.
fn scale(replicas: i64) -> crate::Ask {
    let metadata = json!({"metadata": {"namespace": "default"}, "spec": {"replicas": replicas}});
    let scale = named("autoscaling/v1", "Scale", "nginx-deployment", metadata);
    put(scale)
        .below("/scale")
        .agent("kube-controller-manager/v1.36.0")
}

/// The basic way: keep the field until the autoscaler writes it. The conflict says that it can go.
#[tokio::test]
async fn replicas_stay_until_there_is_a_conflict() {
    let mut story = Story::of(DEPLOYMENT, REPLICAS).await;
    story.tell(apply("kubectl", deployment(Some(3)))).await;
    story.tell(scale(5)).await;
    story.tell(apply("kubectl", deployment(Some(3)))).await;
    story.tell(apply("kubectl", deployment(None))).await;
    story.check(expect![[r#"
        PATCH(apply) nginx-deployment?fieldManager=kubectl
          201 /spec/replicas=3
          Apply kubectl apps/v1: {"f:spec":{"f:replicas":{},"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"nginx\"}":{".":{},"f:image":{},"f:name":{}}}}}}}
        PUT nginx-deployment/scale
          200 /spec/replicas=5
        PATCH(apply) nginx-deployment?fieldManager=kubectl
          409 Apply failed with 1 conflict: conflict with "kube-controller-manager" with subresource "scale" using apps/v1: .spec.replicas
        PATCH(apply) nginx-deployment?fieldManager=kubectl
          200 /spec/replicas=5
          Apply kubectl apps/v1: {"f:spec":{"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"nginx\"}":{".":{},"f:image":{},"f:name":{}}}}}}}
          Update kube-controller-manager /scale apps/v1: {"f:spec":{"f:replicas":{}}}
    "#]]);
}

/// The race: whoever removes the field before the autoscaler writes it gets the default.
#[tokio::test]
async fn replicas_removed_too_early_are_one() {
    let mut story = Story::of(DEPLOYMENT, REPLICAS).await;
    story.tell(apply("kubectl", deployment(Some(3)))).await;
    story.tell(apply("kubectl", deployment(None))).await;
    story.check(expect![[r#"
        PATCH(apply) nginx-deployment?fieldManager=kubectl
          201 /spec/replicas=3
          Apply kubectl apps/v1: {"f:spec":{"f:replicas":{},"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"nginx\"}":{".":{},"f:image":{},"f:name":{}}}}}}}
        PATCH(apply) nginx-deployment?fieldManager=kubectl
          200 /spec/replicas=1
          Apply kubectl apps/v1: {"f:spec":{"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"nginx\"}":{".":{},"f:image":{},"f:name":{}}}}}}}
    "#]]);
}

/// The advanced way: a manifest with nothing but the replicas, by a manager that exists for it and
/// is gone once the autoscaler writes.
#[tokio::test]
async fn replicas_are_handed_over_by_a_manager_between() {
    let mut story = Story::of(DEPLOYMENT, REPLICAS).await;
    let only = named(
        "apps/v1",
        "Deployment",
        "nginx-deployment",
        json!({"spec": {"replicas": 3}}),
    );
    story.tell(apply("kubectl", deployment(Some(3)))).await;
    story.tell(apply("handover-to-hpa", &only)).await;
    story.tell(apply("kubectl", deployment(None))).await;
    story.tell(scale(7)).await;
    story.tell_live().await;
    // Had the autoscaler been faster, there would be a conflict, and nothing to do.
    story.tell(apply("handover-to-hpa", &only)).await;
    story.check(expect![[r#"
        PATCH(apply) nginx-deployment?fieldManager=kubectl
          201 /spec/replicas=3
          Apply kubectl apps/v1: {"f:spec":{"f:replicas":{},"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"nginx\"}":{".":{},"f:image":{},"f:name":{}}}}}}}
        PATCH(apply) nginx-deployment?fieldManager=handover-to-hpa
          200 /spec/replicas=3
          Apply handover-to-hpa apps/v1: {"f:spec":{"f:replicas":{}}}
          Apply kubectl apps/v1: {"f:spec":{"f:replicas":{},"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"nginx\"}":{".":{},"f:image":{},"f:name":{}}}}}}}
        PATCH(apply) nginx-deployment?fieldManager=kubectl
          200 /spec/replicas=3
          Apply handover-to-hpa apps/v1: {"f:spec":{"f:replicas":{}}}
          Apply kubectl apps/v1: {"f:spec":{"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"nginx\"}":{".":{},"f:image":{},"f:name":{}}}}}}}
        PUT nginx-deployment/scale
          200 /spec/replicas=7
        GET nginx-deployment
          200 /spec/replicas=7
          Apply kubectl apps/v1: {"f:spec":{"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"nginx\"}":{".":{},"f:image":{},"f:name":{}}}}}}}
          Update kube-controller-manager /scale apps/v1: {"f:spec":{"f:replicas":{}}}
        PATCH(apply) nginx-deployment?fieldManager=handover-to-hpa
          409 Apply failed with 1 conflict: conflict with "kube-controller-manager" with subresource "scale" using apps/v1: .spec.replicas
    "#]]);
}

/// A ConfigMap as client-side apply makes it.
async fn applied_by_the_client(story: &Story, data: Value) {
    let config = config_map(json!({"data": data}));
    let mut made = config.clone();
    made["metadata"]["annotations"] = json!({LAST_APPLIED: format!("{config}\n")});
    story
        .make(
            "/api/v1/namespaces/default/configmaps?fieldManager=kubectl-client-side-apply",
            &made,
        )
        .await;
}

/// "Upgrading": what client-side apply manages is no conflict for kubectl, what others changed
/// since is; the annotation is kept. "Downgrading": so client-side apply can go on from it.
#[tokio::test]
async fn kubectl_goes_to_the_server_and_back() {
    let mut story = Story::of(crate::CONFIG_MAP, &["/metadata/annotations", "/data"]).await;
    applied_by_the_client(&story, json!({"key": "1", "scaled": "1"})).await;
    story.tell_live().await;
    story
        .tell(merge("kubectl-edit", json!({"data": {"scaled": "5"}})))
        .await;
    story
        .tell(apply(
            "kubectl",
            config_map(json!({"data": {"key": "2", "scaled": "1"}})),
        ))
        .await;
    story
        .tell(apply("kubectl", config_map(json!({"data": {"key": "2"}}))))
        .await;
    let config = config_map(json!({"data": {"key": "3"}}));
    let changes = json!({"metadata": {"annotations": {LAST_APPLIED: format!("{config}\n")}}, "data": {"key": "3"}});
    story
        .tell(strategic("kubectl-client-side-apply", changes))
        .await;
    story.check(expect![[r#"
        GET test-cm
          200 /metadata/annotations={"kubectl.kubernetes.io/last-applied-configuration":"{\"data\":{\"key\":\"1\",\"scaled\":\"1\"},\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"test-cm\"}}\n"} /data={"key":"1","scaled":"1"}
          Update kubectl-client-side-apply v1: {"f:data":{".":{},"f:key":{},"f:scaled":{}},"f:metadata":{"f:annotations":{".":{},"f:kubectl.kubernetes.io/last-applied-configuration":{}}}}
        PATCH(merge) test-cm?fieldManager=kubectl-edit
          200 /metadata/annotations={"kubectl.kubernetes.io/last-applied-configuration":"{\"data\":{\"key\":\"1\",\"scaled\":\"1\"},\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"test-cm\"}}\n"} /data={"key":"1","scaled":"5"}
          Update kubectl-client-side-apply v1: {"f:data":{".":{},"f:key":{}},"f:metadata":{"f:annotations":{".":{},"f:kubectl.kubernetes.io/last-applied-configuration":{}}}}
          Update kubectl-edit v1: {"f:data":{"f:scaled":{}}}
        PATCH(apply) test-cm?fieldManager=kubectl
          409 Apply failed with 1 conflict: conflict with "kubectl-edit" using v1: .data.scaled
        PATCH(apply) test-cm?fieldManager=kubectl
          200 /metadata/annotations={"kubectl.kubernetes.io/last-applied-configuration":"{\"apiVersion\":\"v1\",\"data\":{\"key\":\"2\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"test-cm\"}}\n"} /data={"key":"2","scaled":"5"}
          Apply kubectl v1: {"f:data":{"f:key":{}}}
          Update kubectl-client-side-apply v1: {"f:data":{},"f:metadata":{"f:annotations":{".":{},"f:kubectl.kubernetes.io/last-applied-configuration":{}}}}
          Update kubectl-edit v1: {"f:data":{"f:scaled":{}}}
        PATCH(strategic-merge) test-cm?fieldManager=kubectl-client-side-apply
          200 /metadata/annotations={"kubectl.kubernetes.io/last-applied-configuration":"{\"data\":{\"key\":\"3\"},\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"test-cm\"}}\n"} /data={"key":"3","scaled":"5"}
          Update kubectl-client-side-apply v1: {"f:data":{".":{},"f:key":{}},"f:metadata":{"f:annotations":{".":{},"f:kubectl.kubernetes.io/last-applied-configuration":{}}}}
          Update kubectl-edit v1: {"f:data":{"f:scaled":{}}}
    "#]]);
}

/// Any other name opts out: conflicts, and an annotation that stays as it was.
#[tokio::test]
async fn other_managers_do_not_take_over_from_kubectl() {
    let mut story = Story::of(crate::CONFIG_MAP, &["/metadata/annotations", "/data"]).await;
    applied_by_the_client(&story, json!({"key": "1"})).await;
    story
        .tell(apply("my-manager", config_map(json!({"data": {"key": "2"}}))).query("dryRun=All"))
        .await;
    story
        .tell(apply(
            "my-manager",
            config_map(json!({"data": {"key": "2"}})),
        ))
        .await;
    story
        .tell(apply("my-manager", config_map(json!({"data": {"key": "2"}}))).forced())
        .await;
    story.check(expect![[r#"
        PATCH(apply) test-cm?fieldManager=my-manager&dryRun=All
          409 Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using v1: .data.key
        PATCH(apply) test-cm?fieldManager=my-manager
          409 Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using v1: .data.key
        PATCH(apply) test-cm?fieldManager=my-manager&force=true
          200 /metadata/annotations={"kubectl.kubernetes.io/last-applied-configuration":"{\"data\":{\"key\":\"1\"},\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"test-cm\"}}\n"} /data={"key":"2"}
          Apply my-manager v1: {"f:data":{"f:key":{}}}
          Update kubectl-client-side-apply v1: {"f:data":{},"f:metadata":{"f:annotations":{".":{},"f:kubectl.kubernetes.io/last-applied-configuration":{}}}}
    "#]]);
}

/// A migration of a client's own manager: the entry of its updates becomes one of apply, provided
/// that nobody was faster.
#[tokio::test]
async fn an_updater_becomes_an_applier() {
    let mut story = Story::of_config_map().await;
    story
        .make(
            "/api/v1/namespaces/default/configmaps?fieldManager=client",
            &config_map(json!({"data": {"key": "1", "more": "1"}})),
        )
        .await;
    let live = story.tell_live().await;
    let mut entry = live["metadata"]["managedFields"][0].clone();
    entry["operation"] = json!("Apply");
    let migrate = |version: &Value| {
        json!([
            {"op": "replace", "path": "/metadata/managedFields", "value": [entry]},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
        ])
    };
    story.tell(json_patch("client", migrate(&json!("1")))).await;
    story
        .tell(json_patch(
            "client",
            migrate(&live["metadata"]["resourceVersion"]),
        ))
        .await;
    story
        .tell(apply("client", config_map(json!({"data": {"key": "2"}}))))
        .await;
    story.check(expect![[r#"
        GET test-cm
          200 /data={"key":"1","more":"1"}
          Update client v1: {"f:data":{".":{},"f:key":{},"f:more":{}}}
        PATCH(json) test-cm?fieldManager=client
          409 Operation cannot be fulfilled on configmaps "test-cm": the object has been modified; please apply your changes to the latest version and try again
        PATCH(json) test-cm?fieldManager=client
          200 /data={"key":"1","more":"1"}
          Apply client v1: {"f:data":{".":{},"f:key":{},"f:more":{}}}
        PATCH(apply) test-cm?fieldManager=client
          200 /data={"key":"2"}
          Apply client v1: {"f:data":{"f:key":{}}}
    "#]]);
}

/// The status is managed apart from the rest, whoever writes it; a write of either part leaves the
/// other alone.
#[tokio::test]
async fn subresources_are_managed_apart() {
    let mut story = Story::of(DEPLOYMENT, &["/spec/replicas", "/spec/paused", "/status"]).await;
    let status = |count: i64| {
        named(
            "apps/v1",
            "Deployment",
            "nginx-deployment",
            json!({"spec": {"paused": true}, "status": {"replicas": count}}),
        )
    };
    story.tell(apply("controller", deployment(Some(2)))).await;
    story
        .tell(apply("controller", status(1)).below("/status"))
        .await;
    story.tell(apply("other", status(2)).below("/status")).await;
    story
        .tell(apply("other", status(2)).below("/status").forced())
        .await;
    story.tell(apply("other", status(3))).await;
    story
        .tell(
            merge(
                "kubelet",
                json!({"status": {"replicas": 4}, "spec": {"replicas": 9}}),
            )
            .below("/status"),
        )
        .await;
    story.check(expect![[r#"
        PATCH(apply) nginx-deployment?fieldManager=controller
          201 /spec/replicas=2 /status={}
          Apply controller apps/v1: {"f:spec":{"f:replicas":{},"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"nginx\"}":{".":{},"f:image":{},"f:name":{}}}}}}}
        PATCH(apply) nginx-deployment/status?fieldManager=controller
          200 /spec/replicas=2 /status={"replicas":1}
          Apply controller /status apps/v1: {"f:status":{"f:replicas":{}}}
          Apply controller apps/v1: {"f:spec":{"f:replicas":{},"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"nginx\"}":{".":{},"f:image":{},"f:name":{}}}}}}}
        PATCH(apply) nginx-deployment/status?fieldManager=other
          409 Apply failed with 1 conflict: conflict with "controller" with subresource "status": .status.replicas
        PATCH(apply) nginx-deployment/status?fieldManager=other&force=true
          200 /spec/replicas=2 /status={"replicas":2}
          Apply controller apps/v1: {"f:spec":{"f:replicas":{},"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"nginx\"}":{".":{},"f:image":{},"f:name":{}}}}}}}
          Apply other /status apps/v1: {"f:status":{"f:replicas":{}}}
        PATCH(apply) nginx-deployment?fieldManager=other
          200 /spec/replicas=2 /spec/paused=true /status={"replicas":2}
          Apply controller apps/v1: {"f:spec":{"f:replicas":{},"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"nginx\"}":{".":{},"f:image":{},"f:name":{}}}}}}}
          Apply other /status apps/v1: {"f:status":{"f:replicas":{}}}
          Apply other apps/v1: {"f:spec":{"f:paused":{}}}
        PATCH(merge) nginx-deployment/status?fieldManager=kubelet
          200 /spec/replicas=2 /spec/paused=true /status={"replicas":4}
          Apply controller apps/v1: {"f:spec":{"f:replicas":{},"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"nginx\"}":{".":{},"f:image":{},"f:name":{}}}}}}}
          Apply other apps/v1: {"f:spec":{"f:paused":{}}}
          Update kubelet /status apps/v1: {"f:status":{"f:replicas":{}}}
    "#]]);
}

/// The proposal's motivation: five ways to mix writes that surprised people. Each is a conflict, or
/// is refused, or does no harm.
#[tokio::test]
async fn surprises_of_the_proposal_are_answered_as_it_says() {
    let mut story = Story::of_config_map().await;
    let config = |value: &str| config_map(json!({"data": {"key": value}}));
    // POST, then something is changed and applied.
    story
        .make(
            "/api/v1/namespaces/default/configmaps?fieldManager=curl",
            &config("1"),
        )
        .await;
    story.tell(apply("kubectl", config("2"))).await;
    story.tell(apply("kubectl", config("2")).forced()).await;
    // `kubectl edit`, then apply again.
    story
        .tell(merge("kubectl-edit", json!({"data": {"key": "3"}})))
        .await;
    story.tell(apply("kubectl", config("2"))).await;
    // GET, an edit of what it answered, then apply.
    let mut read = story.tell_live().await;
    read["data"]["key"] = json!("4");
    story.tell(apply("kubectl", &read)).await;
    // An annotation is tweaked, then apply.
    story.tell(apply("kubectl", config("3"))).await;
    story.shown = vec!["/metadata/annotations", "/data"];
    story
        .tell(merge(
            "tweak",
            json!({"metadata": {"annotations": {"note": "1"}}}),
        ))
        .await;
    story.tell(apply("kubectl", config("3"))).await;
    // Alice applies, then Bob does.
    story
        .tell(apply(
            "alice",
            config_map(json!({"data": {"key": "3", "a": "1"}})),
        ))
        .await;
    story
        .tell(apply(
            "bob",
            config_map(json!({"data": {"key": "4", "b": "1"}})),
        ))
        .await;
    story
        .tell(apply(
            "bob",
            config_map(json!({"data": {"key": "3", "b": "1"}})),
        ))
        .await;
    story.check(expect![[r#"
        PATCH(apply) test-cm?fieldManager=kubectl
          409 Apply failed with 1 conflict: conflict with "curl" using v1: .data.key
        PATCH(apply) test-cm?fieldManager=kubectl&force=true
          200 /data={"key":"2"}
          Apply kubectl v1: {"f:data":{"f:key":{}}}
          Update curl v1: {"f:data":{}}
        PATCH(merge) test-cm?fieldManager=kubectl-edit
          200 /data={"key":"3"}
          Update curl v1: {"f:data":{}}
          Update kubectl-edit v1: {"f:data":{"f:key":{}}}
        PATCH(apply) test-cm?fieldManager=kubectl
          409 Apply failed with 1 conflict: conflict with "kubectl-edit" using v1: .data.key
        GET test-cm
          200 /data={"key":"3"}
          Update curl v1: {"f:data":{}}
          Update kubectl-edit v1: {"f:data":{"f:key":{}}}
        PATCH(apply) test-cm?fieldManager=kubectl
          400 metadata.managedFields must be nil
        PATCH(apply) test-cm?fieldManager=kubectl
          200 /data={"key":"3"}
          Apply kubectl v1: {"f:data":{"f:key":{}}}
          Update curl v1: {"f:data":{}}
          Update kubectl-edit v1: {"f:data":{"f:key":{}}}
        PATCH(merge) test-cm?fieldManager=tweak
          200 /metadata/annotations={"note":"1"} /data={"key":"3"}
          Apply kubectl v1: {"f:data":{"f:key":{}}}
          Update curl v1: {"f:data":{}}
          Update kubectl-edit v1: {"f:data":{"f:key":{}}}
          Update tweak v1: {"f:metadata":{"f:annotations":{".":{},"f:note":{}}}}
        PATCH(apply) test-cm?fieldManager=kubectl
          200 /metadata/annotations={"note":"1"} /data={"key":"3"}
          Apply kubectl v1: {"f:data":{"f:key":{}}}
          Update curl v1: {"f:data":{}}
          Update kubectl-edit v1: {"f:data":{"f:key":{}}}
          Update tweak v1: {"f:metadata":{"f:annotations":{".":{},"f:note":{}}}}
        PATCH(apply) test-cm?fieldManager=alice
          200 /metadata/annotations={"note":"1"} /data={"a":"1","key":"3"}
          Apply alice v1: {"f:data":{"f:a":{},"f:key":{}}}
          Apply kubectl v1: {"f:data":{"f:key":{}}}
          Update curl v1: {"f:data":{}}
          Update kubectl-edit v1: {"f:data":{"f:key":{}}}
          Update tweak v1: {"f:metadata":{"f:annotations":{".":{},"f:note":{}}}}
        PATCH(apply) test-cm?fieldManager=bob
          409 Apply failed with 3 conflicts: conflicts with "alice":
        - .data.key
        conflicts with "kubectl":
        - .data.key
        conflicts with "kubectl-edit" using v1:
        - .data.key
        PATCH(apply) test-cm?fieldManager=bob
          200 /metadata/annotations={"note":"1"} /data={"a":"1","b":"1","key":"3"}
          Apply alice v1: {"f:data":{"f:a":{},"f:key":{}}}
          Apply bob v1: {"f:data":{"f:b":{},"f:key":{}}}
          Apply kubectl v1: {"f:data":{"f:key":{}}}
          Update curl v1: {"f:data":{}}
          Update kubectl-edit v1: {"f:data":{"f:key":{}}}
          Update tweak v1: {"f:metadata":{"f:annotations":{".":{},"f:note":{}}}}
    "#]]);
}
