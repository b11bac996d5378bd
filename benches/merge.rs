//! The cost of field management and patches: the part of a write that is neither codec nor storage.

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use jiff::Timestamp;
use keelson::internals::merge::Set;
use keelson::internals::merge::{OneVersion, Ty, Writer, apply, patch, update};
use keelson::internals::meta::{Gvk, Map, Object, Value, json};
use keelson::internals::schema;

fn writer<'a>(
    manager: &'a str,
    api_version: &'a str,
    subresource: &'a str,
    gvk: &Gvk,
) -> Writer<'a> {
    let ty = schema::builtin().get(gvk).expect("a built-in kind");
    let now = Timestamp::from_second(1_700_000_000).expect("a time");
    Writer {
        manager,
        api_version,
        subresource,
        now,
        reset_fields: &["/status"],
        ty: Ty::from(ty),
        versions: &OneVersion,
    }
}

fn object(value: Value) -> Object {
    Object::from_value(value).expect("an object")
}

fn map(value: Value) -> Map {
    object(value).0
}

fn container(name: &str) -> Value {
    let env: Vec<Value> = (0..8)
        .map(|index| json!({"name": format!("VAR_{index}"), "value": "x"}))
        .collect();
    json!({
        "name": name, "image": "registry.example/app:1.0", "env": env, "imagePullPolicy": "IfNotPresent",
        "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}, {"containerPort": 9090, "name": "metrics", "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        "livenessProbe": {"httpGet": {"path": "/livez", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10, "timeoutSeconds": 1},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/app"}, {"name": "data", "mountPath": "/data"}],
    })
}

fn pod_spec() -> Value {
    json!({
        "containers": [container("app"), container("proxy")], "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
        "securityContext": {}, "schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 30,
        "volumes": [{"name": "config", "configMap": {"name": "c", "defaultMode": 420}}, {"name": "data", "emptyDir": {}}],
    })
}

fn deployment(replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web", "tier": "front"}},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod_spec()},
        },
    })
}

/// A Deployment that three managers apply to.
fn shared_deployment(gvk: &Gvk) -> Object {
    let first = writer("one", "apps/v1", "", gvk);
    let mut live = apply(None, &map(deployment(1)), gvk, &first, false).expect("applied");
    live.set_meta_str("uid", "1");
    for (manager, labels) in [
        ("two", json!({"team": "a"})),
        ("three", json!({"cost": "b"})),
    ] {
        let config = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": labels}});
        live = apply(
            Some(&live),
            &map(config),
            gvk,
            &writer(manager, "apps/v1", "", gvk),
            false,
        )
        .expect("applied");
    }
    live
}

fn applies(criterion: &mut Criterion) {
    let gvk = Gvk::new("apps", "v1", "Deployment");
    let live = shared_deployment(&gvk);
    let one = writer("one", "apps/v1", "", &gvk);
    let (same, changed) = (map(deployment(1)), map(deployment(2)));
    let mut without = changed.clone();
    if let Some(Value::Object(labels)) = without
        .get_mut("metadata")
        .and_then(|meta| meta.get_mut("labels"))
    {
        labels.shift_remove("tier");
    }
    for (name, config) in [
        ("that changes nothing", same),
        ("of another value", changed),
        ("that gives a field up", without),
    ] {
        criterion.bench_function(
            &format!("apply of a Deployment with three managers, {name}"),
            |bencher| {
                bencher.iter(|| apply(Some(&live), &config, &gvk, &one, false).expect("applied"));
            },
        );
    }
}

fn updates(criterion: &mut Criterion) {
    let gvk = Gvk::new("", "v1", "Pod");
    let kubelet = writer("kubelet", "v1", "", &gvk);
    let pod = object(
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "uid": "1"}, "spec": pod_spec(), "status": {}}),
    );
    criterion.bench_function("create of a Pod", |bencher| {
        bencher.iter_batched(
            || pod.clone(),
            |mut new| update(None, &mut new, &kubelet),
            BatchSize::SmallInput,
        );
    });
    let mut live = pod.clone();
    update(None, &mut live, &kubelet);
    let mut changed = live.clone();
    changed
        .metadata_mut()
        .insert("labels".to_owned(), json!({"a": "b"}));
    criterion.bench_function("update of a Pod's labels", |bencher| {
        bencher.iter_batched(
            || changed.clone(),
            |mut new| update(Some(&live), &mut new, &kubelet),
            BatchSize::SmallInput,
        );
    });
}

fn patches(criterion: &mut Criterion) {
    let ty = schema::builtin()
        .get(&Gvk::new("", "v1", "Pod"))
        .expect("a built-in kind");
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "lastTransitionTime": "2024-01-01T00:00:00Z"});
    let conditions: Vec<Value> = ["PodScheduled", "Initialized", "ContainersReady", "Ready"]
        .map(|kind| condition(kind, "False"))
        .into();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": pod_spec(),
        "status": {"phase": "Pending", "conditions": conditions},
    });
    let status = json!({"status": {
        "$setElementOrder/conditions": [{"type": "PodScheduled"}, {"type": "Initialized"}, {"type": "Ready"}, {"type": "ContainersReady"}],
        "conditions": [condition("Ready", "True"), condition("ContainersReady", "True")], "phase": "Running",
    }});
    criterion.bench_function("strategic merge patch of a Pod's status", |bencher| {
        bencher.iter_batched(
            || (map(pod.clone()), map(status.clone())),
            |(mut pod, patch)| patch::strategic::apply(&mut pod, patch, ty).expect("patched"),
            BatchSize::SmallInput,
        );
    });
    let merge = json!({"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"}});
    criterion.bench_function("JSON merge patch of a Pod", |bencher| {
        bencher.iter_batched(
            || (pod.clone(), merge.clone()),
            |(mut pod, patch)| patch::merge::apply(&mut pod, patch).expect("patched"),
            BatchSize::SmallInput,
        );
    });
}

/// The fields of a manager, in the form in which they are stored.
fn field_sets(criterion: &mut Criterion) {
    let live = shared_deployment(&Gvk::new("apps", "v1", "Deployment"));
    let fields = live
        .at("/metadata/managedFields/0/fieldsV1")
        .expect("an entry")
        .clone();
    criterion.bench_function("FieldsV1 of a Deployment, decoded", |bencher| {
        bencher.iter(|| Set::decode(&fields).expect("a set"));
    });
    let set = Set::decode(&fields).expect("a set");
    criterion.bench_function("FieldsV1 of a Deployment, encoded", |bencher| {
        bencher.iter(|| set.encode())
    });
}

criterion_group!(benches, field_sets, applies, updates, patches);
criterion_main!(benches);
