//! ResourceQuota: scopes, resizes, claims, and what needs a quota.

use super::*;

/// A quota of the namespace `a` of which nothing is used, with more fields of its spec.
fn quota(name: &str, hard: Value, spec: Value) -> (&'static str, Value) {
    let names = hard.as_object().expect("a map").keys();
    let used: Value = names.map(|name| (name.clone(), json!("0"))).collect();
    let metadata = json!({"name": name, "namespace": "a"});
    let status = json!({"hard": hard, "used": used});
    (
        "resourcequotas",
        json!({"metadata": metadata, "spec": spec, "status": status}),
    )
}

fn objects(more: Vec<(&str, Value)>) -> Arc<dyn Objects> {
    let account = json!({"metadata": {"name": "default", "namespace": "a"}, "automountServiceAccountToken": false});
    let mut all = vec![namespace("a", "Active"), ("serviceaccounts", account)];
    all.extend(more);
    memory(all)
}

async fn used(objects: &Arc<dyn Objects>, name: &str) -> Value {
    let gvr = Gvr::new("", "v1", "resourcequotas");
    let quota = objects
        .get(&gvr, "a", name)
        .await
        .expect("read")
        .expect("a quota");
    quota.at("/status/used").cloned().unwrap_or_default()
}

fn pod(spec: Value) -> Value {
    let mut spec = spec;
    if spec.get("containers").is_none() {
        spec["containers"] = json!([{"name": "c"}]);
    }
    json!({"metadata": {"name": "p"}, "spec": spec})
}

async fn create_pod(objects: &Arc<dyn Objects>, spec: Value) -> std::result::Result<(), String> {
    Request::create("", "pods", "a", pod(spec))
        .run(objects)
        .await
        .map(drop)
}

#[tokio::test]
async fn pods_count_in_the_scopes_that_they_are_in() {
    let scope = |scope: &str| json!({"scopes": [scope]});
    let selector = |scope: &str, operator: &str, values: Value| {
        json!({"scopeSelector": {"matchExpressions": [
            {"scopeName": scope, "operator": operator, "values": values},
        ]}})
    };
    let class = |operator: &str, values: Value| selector("PriorityClass", operator, values);
    let specs = [
        ("terminating", scope("Terminating")),
        ("lasting", scope("NotTerminating")),
        ("best", scope("BestEffort")),
        ("better", scope("NotBestEffort")),
        ("classed", class("Exists", json!([]))),
        ("unclassed", class("DoesNotExist", json!([]))),
        ("high", class("In", json!(["high"]))),
        ("not-high", class("NotIn", json!(["high"]))),
        ("cross", scope("CrossNamespacePodAffinity")),
        ("claims", scope("VolumeAttributesClass")),
    ];
    let quotas = specs
        .iter()
        .map(|(name, spec)| quota(name, json!({"pods": "9"}), spec.clone()));
    let high = (
        "priorityclasses",
        json!({"metadata": {"name": "high"}, "value": 5}),
    );
    let objects = objects(quotas.chain([high]).collect());
    let affinity = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"podAffinityTerm": {"namespaceSelector": {}}},
    ]}});
    create_pod(&objects, json!({"activeDeadlineSeconds": 5}))
        .await
        .expect("a pod");
    create_pod(&objects, json!({"priorityClassName": "high"}))
        .await
        .expect("a pod");
    create_pod(&objects, json!({"affinity": affinity}))
        .await
        .expect("a pod");
    create_pod(&objects, json!({"resources": {"limits": {"cpu": "1"}}}))
        .await
        .expect("a pod");
    // A class for the pod as a whole, even if a container asks for more.
    let spec = json!({"resources": {"limits": {}}, "containers": [
        {"name": "c", "resources": {"requests": {"cpu": "1"}}},
    ]});
    create_pod(&objects, spec).await.expect("a pod");
    let want = [
        ("terminating", "1"),
        ("lasting", "4"),
        ("best", "4"),
        ("better", "1"),
        ("classed", "1"),
        ("unclassed", "4"),
        ("high", "1"),
        ("not-high", "4"),
        ("cross", "1"),
        ("claims", "0"),
    ];
    for (name, pods) in want {
        assert_eq!(used(&objects, name).await["pods"], pods, "{name}");
    }
}

#[tokio::test]
async fn a_resize_costs_what_the_pod_has_until_it_is_done() {
    let objects = objects(vec![quota(
        "q",
        json!({"requests.cpu": "3", "limits.cpu": "9"}),
        json!({}),
    )]);
    let pod = |cpu: &str, status: Value| {
        let resources = json!({"requests": {"cpu": cpu}, "limits": {"cpu": cpu}});
        json!({
            "metadata": {"name": "p", "resourceVersion": "1", "generation": 1}, "status": status,
            "spec": {"containers": [{"name": "c", "resources": resources}]},
        })
    };
    let running = |has: &str, allocated: &str, reason: &str| {
        json!({
            "containerStatuses": [{
                "name": "c", "allocatedResources": {"cpu": allocated},
                "resources": {"requests": {"cpu": has}, "limits": {"cpu": has}},
            }],
            "conditions": [{"type": "PodResizePending", "reason": reason}],
        })
    };
    let resize = |old: Value, new: Value| Request {
        subresource: "resize",
        ..Request::update("pods", "a", old, new)
    };
    let status = || running("1", "1", "Deferred");
    let over = resize(pod("1", status()), pod("5", status()))
        .run(&objects)
        .await;
    let why = "pods \"p\" is forbidden: exceeded quota: q, requested: requests.cpu=4, used: requests.cpu=0, limited: requests.cpu=3";
    assert_eq!(over.err().as_deref(), Some(why));
    resize(pod("1", status()), pod("3", status()))
        .run(&objects)
        .await
        .expect("a resize");
    assert_eq!(
        used(&objects, "q").await,
        json!({"limits.cpu": "2", "requests.cpu": "2"})
    );
    // The pod has more than it asks for now, so it costs no more.
    let status = || running("4", "2", "Deferred");
    resize(pod("1", status()), pod("2", status()))
        .run(&objects)
        .await
        .expect("a resize");
    assert_eq!(
        used(&objects, "q").await,
        json!({"limits.cpu": "2", "requests.cpu": "2"})
    );
    // What cannot be done does not count.
    let status = || running("1", "1", "Infeasible");
    resize(pod("1", status()), pod("9", status()))
        .run(&objects)
        .await
        .expect("a resize");
    assert_eq!(
        used(&objects, "q").await,
        json!({"limits.cpu": "2", "requests.cpu": "2"})
    );
}

#[tokio::test]
async fn pods_that_should_be_gone_and_overhead_count_as_upstream_does() {
    let hard = json!({"requests.cpu": "9", "limits.cpu": "9", "requests.example.com/gpu": "9",
        "requests.deviceclass.resource.kubernetes.io/gpu": "9", "requests.hugepages-2Mi": "9"});
    let class = (
        "runtimeclasses",
        json!({"metadata": {"name": "r"}, "overhead": {"podFixed": {"cpu": "1"}}}),
    );
    let objects = objects(vec![quota("q", hard, json!({})), class]);
    let requests = json!({"cpu": "1", "example.com/gpu": "2", "deviceclass.resource.kubernetes.io/gpu": "3",
        "hugepages-2Mi": "4", "requests.example.com/gpu": "5", "kubernetes.io/x": "6"});
    let containers =
        json!([{"name": "c", "resources": {"requests": requests, "limits": {"cpu": "0"}}}]);
    let spec = json!({"containers": containers, "runtimeClassName": "r"});
    create_pod(&objects, spec).await.expect("a pod");
    let want = json!({"limits.cpu": "0", "requests.cpu": "2", "requests.example.com/gpu": "2",
        "requests.deviceclass.resource.kubernetes.io/gpu": "3", "requests.hugepages-2Mi": "4"});
    assert_eq!(used(&objects, "q").await, want);
    let old = json!({"metadata": {
        "name": "p", "resourceVersion": "1", "deletionTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30,
    }, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "8"}, "limits": {"cpu": "8"}}}]}});
    let mut new = old.clone();
    new["spec"]["activeDeadlineSeconds"] = json!(5);
    let update = Request::update("pods", "a", old, new).run(&objects).await;
    assert!(update.is_ok(), "{update:?}");
}

#[tokio::test]
async fn volume_claims_count_in_the_classes_that_they_refer_to() {
    let selector = |operator: &str, values: Value| {
        json!({"scopeSelector": {"matchExpressions": [
            {"scopeName": "VolumeAttributesClass", "operator": operator, "values": values},
        ]}})
    };
    let hard = || json!({"persistentvolumeclaims": "9", "requests.storage": "9"});
    let objects = objects(vec![
        quota("gold", hard(), selector("In", json!(["gold"]))),
        quota("not-gold", hard(), selector("NotIn", json!(["gold"]))),
        quota("none", hard(), selector("DoesNotExist", json!([]))),
        quota("pods", hard(), json!({"scopes": ["BestEffort"]})),
    ]);
    let claim = |class: Value, status: Value| {
        json!({"metadata": {"name": "v", "resourceVersion": "1"}, "status": status, "spec": {
            "volumeAttributesClassName": class, "resources": {"requests": {"storage": "1500m"}},
        }})
    };
    for class in [json!("gold"), json!("silver"), Value::Null] {
        let claim = claim(class, json!({}));
        Request::create("", "persistentvolumeclaims", "a", claim)
            .run(&objects)
            .await
            .expect("a claim");
    }
    let two = json!({"persistentvolumeclaims": "2", "requests.storage": "4"});
    assert_eq!(
        used(&objects, "gold").await,
        json!({"persistentvolumeclaims": "1", "requests.storage": "2"})
    );
    assert_eq!(used(&objects, "not-gold").await, two);
    assert_eq!(used(&objects, "none").await["persistentvolumeclaims"], "1");
    assert_eq!(used(&objects, "pods").await["persistentvolumeclaims"], "0");
    // On its way from one class to another it counts in both, and what has happened is booked
    // whatever the limit.
    let moving = json!({"currentVolumeAttributesClassName": "silver", "allocatedResources": {"storage": "20"}});
    let update = Request {
        subresource: "status",
        ..Request::update(
            "persistentvolumeclaims",
            "a",
            claim(json!("gold"), json!({})),
            claim(json!("gold"), moving),
        )
    };
    update.run(&objects).await.expect("an update");
    assert_eq!(used(&objects, "gold").await["requests.storage"], "20");
    assert_eq!(
        used(&objects, "not-gold").await,
        json!({"persistentvolumeclaims": "3", "requests.storage": "24"})
    );
}

#[tokio::test]
async fn device_claims_count_by_class_and_by_extended_resource() {
    let hard = json!({
        "count/resourceclaims.resource.k8s.io": "9", "gpu.deviceclass.resource.k8s.io/devices": "40",
        "nic.deviceclass.resource.k8s.io/devices": "40", "requests.example.com/gpu": "40",
        "requests.deviceclass.resource.kubernetes.io/gpu": "40", "requests.deviceclass.resource.kubernetes.io/nic": "40",
        "requests.deviceclass.resource.kubernetes.io/none": "40",
    });
    let class = |name: &str, spec: Value| {
        (
            "deviceclasses",
            json!({"metadata": {"name": name}, "spec": spec}),
        )
    };
    let owner =
        json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true});
    let made = |name: &str, created: &str| {
        json!({"name": name, "namespace": "a", "creationTimestamp": created,
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"}, "ownerReferences": [owner]})
    };
    let gpu = json!({"requests": {"example.com/gpu": "2"}});
    let pod = json!({"metadata": {"name": "p", "namespace": "a", "uid": "u"}, "spec": {"containers": [{"name": "c", "resources": gpu}]}});
    let objects = objects(vec![
        quota("q", hard, json!({})),
        class("gpu", json!({"extendedResourceName": "example.com/gpu"})),
        class("nic", json!({})),
        ("pods", pod),
    ]);
    let exactly = |class: &str, mode: &str, count: i64| json!({"exactly": {"deviceClassName": class, "allocationMode": mode, "count": count}});
    let either = json!({"firstAvailable": [
        {"deviceClassName": "nic", "allocationMode": "ExactCount", "count": 3},
        {"deviceClassName": "nic", "allocationMode": "ExactCount", "count": 2},
        {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1},
    ]});
    let create = async |metadata: Value, requests: Value| {
        let claim = json!({"metadata": metadata, "spec": {"devices": {"requests": requests}}});
        Request::create("resource.k8s.io", "resourceclaims", "a", claim)
            .run(&objects)
            .await
    };
    let requests = json!([
        exactly("gpu", "ExactCount", 2),
        exactly("gpu", "ExactCount", 1),
        either,
        {}
    ]);
    create(json!({"name": "c"}), requests)
        .await
        .expect("a claim");
    let want = json!({
        "count/resourceclaims.resource.k8s.io": "1", "gpu.deviceclass.resource.k8s.io/devices": "4",
        "nic.deviceclass.resource.k8s.io/devices": "3", "requests.example.com/gpu": "4",
        "requests.deviceclass.resource.kubernetes.io/gpu": "4", "requests.deviceclass.resource.kubernetes.io/nic": "3",
        "requests.deviceclass.resource.kubernetes.io/none": "0",
    });
    assert_eq!(used(&objects, "q").await, want);
    // The pod that the claim is for has paid for two of its three devices under their own name.
    create(
        made("first", "2026-01-02T00:00:00Z"),
        json!([exactly("gpu", "ExactCount", 3)]),
    )
    .await
    .expect("a claim");
    let found = used(&objects, "q").await;
    assert_eq!(found["requests.example.com/gpu"], "5");
    assert_eq!(
        found["requests.deviceclass.resource.kubernetes.io/gpu"],
        "7"
    );
    assert_eq!(found["gpu.deviceclass.resource.k8s.io/devices"], "7");
    // Only its first claim is.
    let first = json!({"metadata": made("first", "2026-01-02T00:00:00Z")});
    let claims = Gvr::new("resource.k8s.io", "v1", "resourceclaims");
    objects
        .update_status(&claims, object(first))
        .await
        .expect("written");
    create(
        made("second", "2026-01-02T00:00:00Z"),
        json!([exactly("gpu", "ExactCount", 1)]),
    )
    .await
    .expect("a claim");
    assert_eq!(used(&objects, "q").await["requests.example.com/gpu"], "6");
    let over = create(
        json!({"name": "c"}),
        json!([exactly("nic", "All", 0), exactly("nic", "All", 0)]),
    )
    .await;
    let why = "resourceclaims.resource.k8s.io \"c\" is forbidden: exceeded quota: q, requested: nic.deviceclass.resource.k8s.io/devices=64,requests.deviceclass.resource.kubernetes.io/nic=64, used: nic.deviceclass.resource.k8s.io/devices=3,requests.deviceclass.resource.kubernetes.io/nic=3, limited: nic.deviceclass.resource.k8s.io/devices=40,requests.deviceclass.resource.kubernetes.io/nic=40";
    assert_eq!(over.err().as_deref(), Some(why));
}

#[tokio::test]
async fn limited_resources_need_a_quota_that_covers_them() {
    let configuration = json!({
        "kind": "ResourceQuotaConfiguration", "apiVersion": "apiserver.config.k8s.io/v1",
        "limitedResources": [
            {"resource": "persistentvolumeclaims", "matchContains": [".storageclass.storage.k8s.io/requests.storage"]},
            {"resource": "pods", "matchScopes": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high", "higher"]}]},
            {"apiGroup": "apps", "resource": "deployments", "matchContains": ["count/"]},
        ],
    });
    let mut settings = Settings::default();
    settings
        .plugins
        .read("ResourceQuota", &configuration)
        .expect("a configuration");
    let high = || {
        (
            "priorityclasses",
            json!({"metadata": {"name": "high"}, "value": 5}),
        )
    };
    let run = async |objects: &Arc<dyn Objects>, group: &str, resource: &str, value: Value| {
        let request = Request {
            settings: settings.clone(),
            ..Request::create(group, resource, "a", value)
        };
        request.run(objects).await.err()
    };
    let without = objects(vec![high()]);
    let claim = |class: &str| json!({"metadata": {"name": "v"}, "spec": {"storageClassName": class, "resources": {"requests": {"storage": "1"}}}});
    let why = "persistentvolumeclaims \"v\" is forbidden: insufficient quota to consume: gold.storageclass.storage.k8s.io/requests.storage";
    assert_eq!(
        run(&without, "", "persistentvolumeclaims", claim("gold"))
            .await
            .as_deref(),
        Some(why)
    );
    assert_eq!(
        run(&without, "", "persistentvolumeclaims", claim("")).await,
        None
    );
    let of_class = |class: &str| pod(json!({"priorityClassName": class}));
    let why = "insufficient quota to match these scopes: [{PriorityClass In [high higher]}]";
    assert_eq!(
        run(&without, "", "pods", of_class("high")).await.as_deref(),
        Some(why)
    );
    assert_eq!(run(&without, "", "pods", pod(json!({}))).await, None);
    let deployment = || json!({"metadata": {"name": "d"}});
    let why = "deployments.apps \"d\" is forbidden: insufficient quota to consume: count/deployments.apps";
    assert_eq!(
        run(&without, "apps", "deployments", deployment())
            .await
            .as_deref(),
        Some(why)
    );
    let with = objects(vec![
        high(),
        quota(
            "q",
            json!({"gold.storageclass.storage.k8s.io/requests.storage": "5", "count/deployments.apps": "5"}),
            json!({}),
        ),
        quota(
            "p",
            json!({"pods": "5"}),
            json!({"scopeSelector": {"matchExpressions": [
                {"scopeName": "PriorityClass", "operator": "Exists"},
            ]}}),
        ),
    ]);
    assert_eq!(
        run(&with, "", "persistentvolumeclaims", claim("gold")).await,
        None
    );
    assert_eq!(run(&with, "", "pods", of_class("high")).await, None);
    assert_eq!(run(&with, "apps", "deployments", deployment()).await, None);
}
