//! Tests of the plugins, each against objects in memory.

mod quotas;
mod restrictions;

use std::collections::HashMap;

use parking_lot::Mutex;

use super::*;
use crate::auth::authz::{AlwaysDeny, Authorizer};
use crate::meta::{Value, json};
use crate::webhook::{NoServices, ServiceResolver};
use std::time::Duration;

/// Objects by resource, namespace and name.
#[derive(Default)]
struct Memory(Mutex<HashMap<(String, String, String), Arc<Object>>>);

#[async_trait]
impl Objects for Memory {
    async fn get(&self, gvr: &Gvr, namespace: &str, name: &str) -> Result<Option<Arc<Object>>> {
        Ok(self
            .0
            .lock()
            .get(&(gvr.resource.clone(), namespace.to_owned(), name.to_owned()))
            .cloned())
    }

    async fn list(&self, gvr: &Gvr, namespace: &str) -> Result<Vec<Arc<Object>>> {
        let all = self.0.lock();
        let found = all.iter().filter(|((resource, of, _), _)| {
            *resource == gvr.resource && (namespace.is_empty() || of == namespace)
        });
        Ok(found.map(|(_, object)| object.clone()).collect())
    }

    async fn update_status(&self, gvr: &Gvr, object: Object) -> Result<()> {
        let key = (
            gvr.resource.clone(),
            object.namespace().to_owned(),
            object.name().to_owned(),
        );
        self.0.lock().insert(key, Arc::new(object));
        Ok(())
    }
}

/// Listens to no note.
struct Silent;

impl Notes for Silent {
    fn warn(&self, _text: String) {}
    fn annotate(&self, _key: String, _value: String) {}
}

fn object(value: Value) -> Object {
    Object::from_value(value).expect("an object")
}

fn memory(objects: Vec<(&str, Value)>) -> Arc<dyn Objects> {
    let keyed = objects.into_iter().map(|(resource, value)| {
        let object = object(value);
        (
            (
                resource.to_owned(),
                object.namespace().to_owned(),
                object.name().to_owned(),
            ),
            Arc::new(object),
        )
    });
    Arc::new(Memory(Mutex::new(keyed.collect())))
}

/// A request: group and resource, operation, namespace, the object and the old one.
struct Request {
    gvr: Gvr,
    subresource: &'static str,
    operation: Operation,
    namespace: &'static str,
    name: String,
    object: Option<Object>,
    old: Option<Object>,
    user: User,
    /// A plugin that runs besides the default ones.
    also: &'static str,
    settings: Settings,
    authorizer: Arc<dyn Authorizer>,
    kinds: Arc<dyn kinds::Kinds>,
}

impl Request {
    fn create(group: &str, resource: &str, namespace: &'static str, value: Value) -> Self {
        let object = object(value);
        let name = object.name().to_owned();
        Self {
            gvr: Gvr::new(group, "v1", resource),
            subresource: "",
            operation: Operation::Create,
            namespace,
            name,
            object: Some(object),
            old: None,
            user: User::default(),
            also: "",
            settings: Settings::default(),
            authorizer: Arc::new(AlwaysDeny),
            kinds: Arc::new(kinds::NoKinds),
        }
    }

    /// A request that makes an object out of another one.
    fn update(resource: &str, namespace: &'static str, old: Value, new: Value) -> Self {
        Self {
            operation: Operation::Update,
            old: Some(object(old)),
            ..Self::create("", resource, namespace, new)
        }
    }

    /// Runs the default chain over it: the object as admitted, or the message and causes of the
    /// refusal.
    async fn run(mut self, objects: &Arc<dyn Objects>) -> std::result::Result<Value, String> {
        let services: Arc<dyn ServiceResolver> = Arc::new(NoServices);
        let parts = PluginDeps {
            objects,
            authorizer: &self.authorizer,
            settings: &self.settings,
            kinds: &self.kinds,
            registrations: &Registrations::default(),
            services: &services,
        };
        let chain = chain(&parts, |name, by_default| {
            by_default || name == "NodeRestriction" || self.also == name
        });
        let gvk = match self.gvr.resource.as_str() {
            "events" => Gvk::new("", "v1", "Event"),
            _ => Gvk::default(),
        };
        let user = Arc::new(self.user);
        let mut attributes = Attributes {
            operation: self.operation,
            gvr: &self.gvr,
            gvk: &gvk,
            subresource: self.subresource,
            namespace: self.namespace,
            name: &self.name,
            object: self.object.as_mut(),
            old: self.old.as_ref(),
            user: &user,
            dry_run: false,
            deadline: Instant::now() + Duration::from_secs(60),
            options: OperationOptions::None,
            notes: &Silent,
            reinvocation: Reinvocation::default(),
        };
        let mut result = chain.admit(&mut attributes).await;
        if result.is_ok() {
            result = chain.validate(&attributes).await;
        }
        match result {
            Ok(()) => Ok(self.object.map_or(Value::Null, Value::from)),
            Err(status) => Err(status.message),
        }
    }
}

fn namespace(name: &str, phase: &str) -> (&'static str, Value) {
    (
        "namespaces",
        json!({"metadata": {"name": name}, "status": {"phase": phase}}),
    )
}

#[tokio::test]
async fn creates_in_missing_or_terminating_namespaces_are_refused() {
    let objects = memory(vec![
        namespace("a", "Active"),
        namespace("t", "Terminating"),
    ]);
    let map = |name: &str| json!({"metadata": {"name": name}});
    let create = |namespace| Request::create("", "configmaps", namespace, map("x"));
    assert!(create("a").run(&objects).await.is_ok());
    assert_eq!(
        create("none").run(&objects).await,
        Err(r#"namespaces "none" not found"#.to_owned())
    );
    let why = r#"configmaps "x" is forbidden: unable to create new content in namespace t because it is being terminated"#;
    assert_eq!(create("t").run(&objects).await, Err(why.to_owned()));
    let update = Request {
        operation: Operation::Update,
        ..create("t")
    };
    assert!(update.run(&objects).await.is_ok());
    let review = Request::create(
        "authorization.k8s.io",
        "localsubjectaccessreviews",
        "none",
        map(""),
    );
    assert!(review.run(&objects).await.is_ok());
    for (name, deletable) in [
        ("default", false),
        ("kube-system", false),
        ("kube-public", false),
        ("kube-node-lease", true),
    ] {
        let delete = Request {
            operation: Operation::Delete,
            ..Request::create("", "namespaces", "", map(name))
        };
        let want = format!("namespaces {name:?} is forbidden: this namespace may not be deleted");
        assert_eq!(
            delete.run(&objects).await.err(),
            (!deletable).then_some(want)
        );
    }
}

#[tokio::test]
async fn a_plain_pod_gets_its_account_token_priority_and_tolerations() {
    let account = json!({"metadata": {"name": "default", "namespace": "a"}, "imagePullSecrets": [{"name": "pull"}]});
    let objects = memory(vec![namespace("a", "Active"), ("serviceaccounts", account)]);
    let taken =
        json!([{"name": "mine", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]);
    let containers = json!([{"name": "c"}, {"name": "d", "volumeMounts": taken}]);
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": containers}});
    let pod = Request::create("", "pods", "a", pod)
        .run(&objects)
        .await
        .expect("admitted");
    let spec = &pod["spec"];
    assert_eq!(
        (&spec["serviceAccountName"], &spec["serviceAccount"]),
        (&json!("default"), &json!("default"))
    );
    assert_eq!(spec["imagePullSecrets"], json!([{"name": "pull"}]));
    assert_eq!(
        (&spec["priority"], &spec["preemptionPolicy"]),
        (&json!(0), &json!("PreemptLowerPriority"))
    );
    let volume = spec["volumes"][0]["name"].as_str().expect("a volume");
    assert!(
        volume.starts_with("kube-api-access-") && volume.len() == "kube-api-access-xxxxx".len()
    );
    assert_eq!(
        spec["volumes"][0]["projected"]["sources"]
            .as_array()
            .map(Vec::len),
        Some(3)
    );
    let mount = json!([{"name": volume, "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]);
    assert_eq!(spec["containers"][0]["volumeMounts"], mount);
    assert_eq!(
        spec["containers"][1]["volumeMounts"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    let toleration = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    assert_eq!(
        spec["tolerations"],
        json!([
            toleration("node.kubernetes.io/not-ready"),
            toleration("node.kubernetes.io/unreachable")
        ])
    );
}

#[tokio::test]
async fn pods_are_refused_in_the_words_of_kube_apiserver() {
    let critical = json!({"metadata": {"name": "critical"}, "value": 7, "preemptionPolicy": "PreemptLowerPriority"});
    let runtime = json!({"metadata": {"name": "rc"}, "overhead": {"podFixed": {"cpu": "1"}}, "scheduling": {"nodeSelector": {"a": "b"}}});
    let strict = json!({
        "metadata": {"name": "strict", "namespace": "a", "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}},
        "secrets": [{"name": "mine"}],
    });
    let account = json!({"metadata": {"name": "sa", "namespace": "a"}, "automountServiceAccountToken": false});
    let objects = memory(vec![
        namespace("a", "Active"),
        ("serviceaccounts", account),
        ("serviceaccounts", strict),
        ("priorityclasses", critical),
        ("runtimeclasses", runtime),
    ]);
    let from = "must not be provided in pod spec; priority admission controller computed";
    let class = "from the given PriorityClass name";
    let cases = [
        (json!({}), None),
        (
            json!({"serviceAccountName": "none"}),
            Some(r#"error looking up service account a/none: serviceaccount "none" not found"#.to_owned()),
        ),
        (json!({"priorityClassName": "critical", "priority": 7}), None),
        (json!({"priorityClassName": "critical", "priority": 5}), Some(format!("the integer value of priority (5) {from} 7 {class}"))),
        (
            json!({"preemptionPolicy": "Never"}),
            Some(format!("the string value of PreemptionPolicy (Never) {from} PreemptLowerPriority {class}")),
        ),
        (json!({"priorityClassName": "none"}), Some("no PriorityClass with name none was found".to_owned())),
        (json!({"runtimeClassName": "none"}), Some(r#"pod rejected: RuntimeClass "none" not found"#.to_owned())),
        (json!({"runtimeClassName": "rc", "overhead": {"cpu": "1"}}), None),
        (
            json!({"runtimeClassName": "rc", "overhead": {"cpu": "2"}}),
            Some("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead".to_owned()),
        ),
        (
            json!({"overhead": {"cpu": "2"}}),
            Some("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead".to_owned()),
        ),
        (
            json!({"runtimeClassName": "rc", "nodeSelector": {"a": "c"}}),
            Some("conflict: runtimeClass.scheduling.nodeSelector[a] = b; pod.spec.nodeSelector[a] = c".to_owned()),
        ),
        (
            json!({"serviceAccountName": "strict", "volumes": [{"name": "v", "secret": {"secretName": "other"}}]}),
            Some(
                "volume with secret.secretName=\"other\" is not allowed because service account strict does not reference that secret"
                    .to_owned(),
            ),
        ),
    ];
    for (mut spec, want) in cases {
        if spec.get("serviceAccountName").is_none() {
            spec["serviceAccountName"] = json!("sa");
        }
        let pod = json!({"metadata": {"name": "p"}, "spec": spec});
        let got = Request::create("", "pods", "a", pod).run(&objects).await;
        assert_eq!(
            got.err(),
            want.map(|why| format!(r#"pods "p" is forbidden: {why}"#)),
            "{spec}"
        );
    }
}

#[tokio::test]
async fn defaults_come_from_the_newest_default_class() {
    let class = |name: &str, created: &str, annotation: &str| json!({"metadata": {"name": name, "creationTimestamp": created, "annotations": {annotation: "true"}}});
    let storage = "storageclass.kubernetes.io/is-default-class";
    let ingress = "ingressclass.kubernetes.io/is-default-class";
    let objects = memory(vec![
        namespace("a", "Active"),
        (
            "storageclasses",
            class("old", "2026-01-01T00:00:00Z", storage),
        ),
        (
            "storageclasses",
            class("new", "2026-01-02T00:00:00Z", storage),
        ),
        (
            "ingressclasses",
            class("b", "2026-01-01T00:00:00Z", ingress),
        ),
        (
            "ingressclasses",
            class("a", "2026-01-01T00:00:00Z", ingress),
        ),
    ]);
    let claim = |spec: Value| {
        Request::create(
            "",
            "persistentvolumeclaims",
            "a",
            json!({"metadata": {"name": "c"}, "spec": spec}),
        )
    };
    let admitted = claim(json!({})).run(&objects).await.expect("admitted");
    assert_eq!(admitted["spec"]["storageClassName"], "new");
    assert_eq!(
        admitted["metadata"]["finalizers"],
        json!(["kubernetes.io/pvc-protection"])
    );
    assert_eq!(
        claim(json!({"storageClassName": ""}))
            .run(&objects)
            .await
            .expect("admitted")["spec"]["storageClassName"],
        ""
    );
    let made = Request::create(
        "networking.k8s.io",
        "ingresses",
        "a",
        json!({"metadata": {"name": "i"}}),
    )
    .run(&objects)
    .await;
    assert_eq!(made.expect("admitted")["spec"]["ingressClassName"], "a");
    let node = Request::create("", "nodes", "", json!({"metadata": {"name": "n"}}))
        .run(&objects)
        .await
        .expect("admitted");
    assert_eq!(
        node["spec"]["taints"],
        json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
    );
}

#[tokio::test]
async fn signers_are_for_those_who_may_use_them() {
    let objects = memory(vec![]);
    let request = || json!({"metadata": {"name": "c"}, "spec": {"signerName": "x.io/y"}});
    let approval = Request {
        subresource: "approval",
        operation: Operation::Update,
        old: Some(object(request())),
        ..Request::create(
            "certificates.k8s.io",
            "certificatesigningrequests",
            "",
            request(),
        )
    };
    let why = r#"certificatesigningrequests.certificates.k8s.io "c" is forbidden: user not permitted to approve requests with signerName "x.io/y""#;
    assert_eq!(approval.run(&objects).await, Err(why.to_owned()));
}

#[tokio::test]
async fn limit_ranges_fill_in_and_bound_what_containers_ask_for() {
    let container = json!({
        "type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "1", "memory": "1Gi"}, "maxLimitRequestRatio": {"cpu": "2"},
        "default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"cpu": "1", "memory": "1Gi"},
    });
    let pod = json!({"type": "Pod", "max": {"cpu": "1500m"}, "min": {"memory": "1Mi"}});
    let claim = json!({"type": "PersistentVolumeClaim", "max": {"storage": "5Gi"}, "min": {"storage": "1Gi"}});
    let range = json!({"metadata": {"name": "l", "namespace": "a"}, "spec": {"limits": [container, pod, claim]}});
    let account = json!({"metadata": {"name": "default", "namespace": "a"}, "automountServiceAccountToken": false});
    let objects = memory(vec![
        namespace("a", "Active"),
        ("limitranges", range),
        ("serviceaccounts", account),
    ]);
    let both = |cpu: &str, limit: &str| json!({"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"cpu": limit, "memory": "1Gi"}});
    let (least, most) = (
        "minimum cpu usage per Container is 100m",
        "maximum cpu usage per Container is 1",
    );
    let (ratio, whole) = (
        "cpu max limit to request ratio per Container is 2",
        "maximum cpu usage per Pod is 1500m",
    );
    let cases = [
        (vec![json!({})], None),
        (
            vec![both("50m", "50m")],
            Some(format!("{least}, but request is 50m")),
        ),
        (
            vec![both("100m", "1")],
            Some(format!("{ratio}, but provided ratio is 10.000000")),
        ),
        (
            vec![both("50m", "2")],
            Some(format!(
                "[{least}, but request is 50m, {most}, but limit is 2, {ratio}, but provided ratio is 40.000000, {whole}, but limit is 2]"
            )),
        ),
        (
            vec![both("1", "1"), both("1", "1")],
            Some(format!("{whole}, but limit is 2")),
        ),
    ];
    for (resources, want) in cases {
        let containers: Vec<Value> = resources
            .iter()
            .map(|resources| json!({"name": "c", "resources": resources}))
            .collect();
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": containers}});
        let got = Request::create("", "pods", "a", pod).run(&objects).await;
        assert_eq!(
            got.as_ref().err(),
            want.map(|why| format!(r#"pods "p" is forbidden: {why}"#))
                .as_ref(),
            "{resources:?}"
        );
        if let Ok(pod) = got {
            let note = "LimitRanger plugin set: cpu, memory request for container c; cpu, memory limit for container c";
            assert_eq!(
                pod["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
                note
            );
            assert_eq!(pod["spec"]["containers"][0]["resources"], both("1", "1"));
        }
    }
    let claim = |size: &str| json!({"metadata": {"name": "c"}, "spec": {"resources": {"requests": {"storage": size}}}});
    let got = Request::create("", "persistentvolumeclaims", "a", claim("10Gi"))
        .run(&objects)
        .await;
    let why = r#"persistentvolumeclaims "c" is forbidden: maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 10Gi"#;
    assert_eq!(got, Err(why.to_owned()));
    let grow = Request {
        operation: Operation::Update,
        old: Some(object(
            json!({"spec": {"resources": {"requests": {"storage": "1Gi"}}}, "status": {"phase": "Bound"}}),
        )),
        ..Request::create("", "persistentvolumeclaims", "a", claim("2Gi"))
    };
    assert!(grow.run(&objects).await.is_err_and(|why| {
        why.ends_with("the storageclass that provisions the pvc must support resize")
    }));
}

#[tokio::test]
async fn quotas_bound_and_book_what_a_namespace_uses() {
    let hard = json!({"count/configmaps": "2", "secrets": "1", "requests.cpu": "1", "limits.memory": "1Gi", "pods": "3", "services.nodeports": "1",
        "requests.storage": "3Gi", "gold.storageclass.storage.k8s.io/requests.storage": "1Gi"});
    let used: Value = hard
        .as_object()
        .expect("a map")
        .keys()
        .map(|name| (name.clone(), json!("0")))
        .collect();
    let quota = json!({"metadata": {"name": "q", "namespace": "a"}, "status": {"hard": hard, "used": used}});
    let account = json!({"metadata": {"name": "default", "namespace": "a"}, "automountServiceAccountToken": false});
    let objects = memory(vec![
        namespace("a", "Active"),
        ("resourcequotas", quota),
        ("serviceaccounts", account),
    ]);
    let pod = |cpu: &str, memory: &str| json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}, "limits": {"memory": memory}}}]}});
    let claim = |class: &str, size: &str| json!({"spec": {"storageClassName": class, "resources": {"requests": {"storage": size}}}});
    let gold = "gold.storageclass.storage.k8s.io/requests.storage";
    let steps = [
        ("configmaps", json!({}), None),
        ("configmaps", json!({}), None),
        ("configmaps", json!({}), Some("exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=2, limited: count/configmaps=2".to_owned())),
        ("secrets", json!({}), None),
        ("secrets", json!({}), Some("exceeded quota: q, requested: secrets=1, used: secrets=1, limited: secrets=1".to_owned())),
        ("pods", json!({"spec": {"containers": [{"name": "c"}]}}), Some("failed quota: q: must specify limits.memory for: c; requests.cpu for: c".to_owned())),
        ("pods", pod("500m", "512Mi"), None),
        (
            "pods",
            pod("600m", "600Mi"),
            Some("exceeded quota: q, requested: limits.memory=600Mi,requests.cpu=600m, used: limits.memory=512Mi,requests.cpu=500m, limited: limits.memory=1Gi,requests.cpu=1".to_owned()),
        ),
        ("pods", pod("500m", "512Mi"), None),
        ("services", json!({"spec": {"type": "NodePort", "ports": [{}, {}]}}), Some("exceeded quota: q, requested: services.nodeports=2, used: services.nodeports=0, limited: services.nodeports=1".to_owned())),
        ("persistentvolumeclaims", claim("gold", "2Gi"), Some(format!("exceeded quota: q, requested: {gold}=2Gi, used: {gold}=0, limited: {gold}=1Gi"))),
        ("persistentvolumeclaims", claim("gold", "1Gi"), None),
    ];
    for (resource, mut value, want) in steps {
        value["metadata"] = json!({"name": "x"});
        let got = Request::create("", resource, "a", value)
            .run(&objects)
            .await;
        assert_eq!(
            got.err(),
            want.map(|why| format!("{resource} \"x\" is forbidden: {why}"))
        );
    }
    let quota = objects
        .get(&Gvr::new("", "v1", "resourcequotas"), "a", "q")
        .await
        .expect("read")
        .expect("there");
    let want = json!({"count/configmaps": "2", "secrets": "1", "requests.cpu": "1", "limits.memory": "1Gi", "pods": "2", "services.nodeports": "0",
        "requests.storage": "1Gi", "gold.storageclass.storage.k8s.io/requests.storage": "1Gi"});
    assert_eq!(quota.at("/status/used"), Some(&want));
}

#[tokio::test]
async fn kubelets_change_their_own_nodes_and_mirror_pods_only() {
    let stored = json!({"metadata": {"name": "n", "uid": "u"}});
    let objects = memory(vec![namespace("a", "Active"), ("nodes", stored.clone())]);
    let kubelet = || User {
        name: "system:node:n".to_owned(),
        groups: vec!["system:nodes".to_owned()],
        ..User::default()
    };
    let node = |name: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}});
    let foreign = json!({"node-restriction.kubernetes.io/x": "", "kubernetes.io/custom": "v", "a.k8s.io/b": "c", "foo": "bar", "node.kubernetes.io/x": "y"});
    let cases = [
        (
            Operation::Create,
            node(
                "n",
                json!({"kubernetes.io/hostname": "h", "kubelet.kubernetes.io/x": "y"}),
            ),
            None,
        ),
        (
            Operation::Create,
            node("m", json!({})),
            Some(r#"node "n" is not allowed to modify node "m""#),
        ),
        (
            Operation::Create,
            node("n", foreign),
            Some(
                r#"node "n" is not allowed to set the following labels: a.k8s.io/b, kubernetes.io/custom, node-restriction.kubernetes.io/x"#,
            ),
        ),
        (Operation::Update, node("n", json!({"mine": "x"})), None),
        (
            Operation::Update,
            node("n", json!({"k8s.io/zz": "2"})),
            Some("is not allowed to modify labels: k8s.io/zz"),
        ),
        (
            Operation::Update,
            json!({"metadata": {"name": "n"}, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
            Some(r#"node "n" is not allowed to modify taints"#),
        ),
    ];
    for (operation, value, want) in cases {
        let old = (operation == Operation::Update).then(|| object(stored.clone()));
        let name = value["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let request = Request {
            operation,
            old,
            user: kubelet(),
            ..Request::create("", "nodes", "", value)
        };
        assert_eq!(
            request.run(&objects).await.err(),
            want.map(|why| format!("nodes {name:?} is forbidden: {why}"))
        );
    }
    let owner = |uid: &str, controller: bool| json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": uid, "controller": controller});
    let pod = |owners: Value, spec: Value| json!({"metadata": {"name": "p", "annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": owners}, "spec": spec});
    let own = || json!({"nodeName": "n"});
    let mapped = json!({"nodeName": "n", "volumes": [{"name": "v", "configMap": {"name": "m"}}]});
    let cases = [
        (pod(json!([owner("u", true)]), own()), None),
        (
            pod(json!([owner("u", true)]), json!({"nodeName": "other"})),
            Some(r#"node "n" can only create pods with spec.nodeName set to itself"#),
        ),
        (
            pod(json!([]), own()),
            Some(r#"node "n" can only create pods with an owner reference set to itself"#),
        ),
        (
            pod(json!([owner("x", true)]), own()),
            Some("node n UID mismatch: expected x got u"),
        ),
        (
            pod(json!([owner("u", false)]), own()),
            Some(
                r#"node "n" can only create pods with a controller owner reference set to itself"#,
            ),
        ),
        (
            pod(json!([owner("u", true)]), mapped),
            Some(r#"node "n" can not create pods that reference configmaps"#),
        ),
    ];
    for (value, want) in cases {
        let request = Request {
            user: kubelet(),
            ..Request::create("", "pods", "a", value)
        };
        assert_eq!(
            request.run(&objects).await.err(),
            want.map(|why| format!(r#"pods "p" is forbidden: {why}"#))
        );
    }
}

#[tokio::test]
async fn images_are_pulled_always_where_one_is_new() {
    let objects = memory(vec![namespace("a", "Active")]);
    let pod = |image: &str| {
        json!({"metadata": {"name": "p"}, "spec": {
            "serviceAccountName": "sa", "containers": [{"name": "c", "image": image, "imagePullPolicy": "Never"}], "tolerations": [],
        }})
    };
    let update = |image: &str| Request {
        operation: Operation::Update,
        old: Some(object(pod("i:1"))),
        also: "AlwaysPullImages",
        ..Request::create("", "pods", "a", pod(image))
    };
    let policy = |pod: Value| {
        pod["spec"]["containers"][0]["imagePullPolicy"]
            .as_str()
            .map(str::to_owned)
    };
    assert_eq!(
        policy(update("i:1").run(&objects).await.expect("admitted")).as_deref(),
        Some("Never")
    );
    assert_eq!(
        policy(update("i:2").run(&objects).await.expect("admitted")).as_deref(),
        Some("Always")
    );
    let scale = Request {
        subresource: "status",
        ..update("i:2")
    };
    assert_eq!(
        policy(scale.run(&objects).await.expect("admitted")).as_deref(),
        Some("Never")
    );
}

#[tokio::test]
async fn external_addresses_that_a_service_has_stay() {
    let objects = memory(vec![namespace("a", "Active")]);
    let service =
        |addresses: Value| json!({"metadata": {"name": "s"}, "spec": {"externalIPs": addresses}});
    let update = |addresses: Value| Request {
        operation: Operation::Update,
        old: Some(object(service(json!(["192.0.2.1", "192.0.2.2"])))),
        also: "DenyServiceExternalIPs",
        ..Request::create("", "services", "a", service(addresses))
    };
    assert!(update(json!(["192.0.2.2"])).run(&objects).await.is_ok());
    assert!(update(json!([])).run(&objects).await.is_ok());
    let why = r#"services "s" is forbidden: Use of external IPs is denied by admission control"#
        .to_owned();
    assert_eq!(
        update(json!(["192.0.2.1", "192.0.2.3"]))
            .run(&objects)
            .await,
        Err(why)
    );
}

#[tokio::test]
async fn an_extended_resource_is_tolerated_once() {
    let objects = memory(vec![namespace("a", "Active")]);
    let requests = json!({"requests": {"example.com/gpu": "1", "requests.example.com/x": "1", "kubernetes.io/y": "1", "memory": "1"}});
    let kept = json!({"key": "example.com/gpu", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5});
    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "serviceAccountName": "sa", "containers": [{"name": "c", "resources": requests}], "tolerations": [kept],
    }});
    let request = Request {
        operation: Operation::Update,
        old: Some(object(pod.clone())),
        also: "ExtendedResourceToleration",
        ..Request::create("", "pods", "a", pod)
    };
    let pod = request.run(&objects).await.expect("admitted");
    let found: Vec<&Value> = pod["spec"]["tolerations"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|one| one["effect"] == "NoSchedule")
        .collect();
    assert_eq!(
        found,
        [&json!({"key": "example.com/gpu", "operator": "Exists", "effect": "NoSchedule"})]
    );
}
