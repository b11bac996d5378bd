//! Accepted options take effect, are refused, or are reported to have none.

use serde_json::{Value, json};

use super::support::{Store, TestServer};
use super::{PATIENCE, ask, both, start};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn message(answer: &(u16, Value)) -> (u16, &str) {
    (answer.0, answer.1["message"].as_str().unwrap_or_default())
}

/// A server on the embedded store with these flags, and the folder that it needs.
async fn embedded(flags: &[&str]) -> (tempfile::TempDir, TestServer) {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), Store::Embedded, flags).await;
    (folder, server)
}

/// Returns the message of a server that does not start with these flags.
async fn refusal(flags: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut process = TestServer::run(
        folder.path(),
        &flags
            .iter()
            .map(|flag| (*flag).to_owned())
            .collect::<Vec<_>>(),
    );
    assert!(!process.ends().await, "{flags:?} was accepted");
    process.log()
}

/// A kind `widgets.example.com` whose versions v1 and v2 call the same field otherwise, with
/// `storage` stored.
fn widgets(storage: &str) -> Value {
    let version = |name: &str, field: &str| {
        json!({"name": name, "served": true, "storage": name == storage, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": {"type": "object", "properties": {field: {"type": "string"}}}},
        }}})
    };
    let client = json!({"url": "https://127.0.0.1:1/convert"});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [version("v1", "before"), version("v2", "after")],
            "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}},
        },
    })
}

fn widget(version: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

fn widgets_in(version: &str) -> String {
    format!("/apis/example.com/{version}/namespaces/default/widgets")
}

/// Waits until a custom resource is served: its definition is answered before.
async fn served(server: &TestServer, path: &str) {
    let begun = std::time::Instant::now();
    while ask("GET", path).status(server).await == 404 {
        assert!(begun.elapsed() < super::PATIENCE, "{path} is not served");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// Refused as kube-apiserver refuses where the webhook cannot be reached.
fn assert_unconverted(answer: &(u16, Value), from: &str) {
    let want = format!("conversion webhook for example.com/{from}, Kind=Widget failed: ");
    assert!(
        answer.0 == 500 && message(answer).1.contains(&want),
        "{answer:?}"
    );
}

/// Without the webhook a field that the other version calls otherwise would be gone.
#[tokio::test]
async fn objects_of_webhook_converted_versions_are_kept_whole() {
    both(&[], async |server| {
        let made = ask("POST", CRDS).json(&widgets("v1")).send(server).await;
        assert_eq!(made.status, 201);
        let (v1, v2) = (widgets_in("v1"), widgets_in("v2"));
        let (one, other) = (format!("{v1}/a"), format!("{v2}/a"));
        served(server, &v1).await;
        assert_eq!(
            ask("POST", &v1)
                .json(&widget("v1", "a", json!({"before": "kept"})))
                .status(server)
                .await,
            201
        );

        assert_unconverted(&ask("GET", &other).answer(server).await, "v1");
        assert_unconverted(&ask("GET", &v2).answer(server).await, "v1");
        assert_unconverted(
            &ask("GET", &format!("{v2}?watch=1&timeoutSeconds=1"))
                .answer(server)
                .await,
            "v1",
        );
        let body = widget("v2", "a", json!({"after": "new"}));
        assert_unconverted(&ask("PUT", &other).json(&body).answer(server).await, "v1");
        let merge = ask("PATCH", &other).body(
            "application/merge-patch+json",
            r#"{"spec":{"after":"new"}}"#,
        );
        assert_unconverted(&merge.answer(server).await, "v1");
        let apply = format!("{other}?fieldManager=m&force=true");
        assert_unconverted(
            &ask("PATCH", &apply)
                .body("application/apply-patch+yaml", body.to_string())
                .answer(server)
                .await,
            "v1",
        );
        assert_unconverted(&ask("DELETE", &other).answer(server).await, "v1");
        assert_unconverted(&ask("DELETE", &v2).answer(server).await, "v1");
        assert_unconverted(
            &ask("POST", &v2)
                .json(&widget("v2", "b", json!({"after": "new"})))
                .answer(server)
                .await,
            "v2",
        );
        assert_unconverted(
            &ask("POST", &format!("{v2}?dryRun=All"))
                .json(&widget("v2", "b", json!({})))
                .answer(server)
                .await,
            "v2",
        );

        let (status, list) = ask("GET", &v1).answer(server).await;
        assert_eq!((status, list["items"].as_array().unwrap().len()), (200, 1));
        assert_eq!(list["items"][0]["spec"], json!({"before": "kept"}));

        // What is stored in an older version stays what it is until it is converted.
        let (_, definition) = ask("GET", &format!("{CRDS}/widgets.example.com"))
            .answer(server)
            .await;
        let mut moved = widgets("v2");
        moved["metadata"]["resourceVersion"] = definition["metadata"]["resourceVersion"].clone();
        assert_eq!(
            ask("PUT", &format!("{CRDS}/widgets.example.com"))
                .json(&moved)
                .status(server)
                .await,
            200
        );
        assert_eq!(
            ask("POST", &v2)
                .json(&widget("v2", "c", json!({"after": "new"})))
                .status(server)
                .await,
            201
        );
        assert_unconverted(&ask("GET", &other).answer(server).await, "v1");
        assert_unconverted(&ask("GET", &v2).answer(server).await, "v1");
        assert_unconverted(&ask("GET", &format!("{v1}/c")).answer(server).await, "v2");
        let (status, old) = ask("GET", &one).answer(server).await;
        assert_eq!((status, &old["spec"]), (200, &json!({"before": "kept"})));
        assert_unconverted(
            &ask("PATCH", &one)
                .body("application/merge-patch+json", r#"{"spec":{"before":"x"}}"#)
                .answer(server)
                .await,
            "v1",
        );
        assert_eq!(
            ask("GET", &format!("{v2}/c")).answer(server).await.1["spec"],
            json!({"after": "new"})
        );
    })
    .await;
}

fn pod(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

const PODS: &str = "/api/v1/namespaces/default/pods";

async fn account(server: &TestServer) {
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let made = ask("POST", "/api/v1/namespaces/default/serviceaccounts")
        .json(&account)
        .status(server)
        .await;
    assert!(matches!(made, 201 | 409), "{made}");
}

#[tokio::test]
async fn privileged_containers_need_the_flag() {
    let spec = |list: &str| {
        let container = json!({"name": "c", "image": "i", "securityContext": {"privileged": true}});
        let mut spec = json!({"containers": [{"name": "d", "image": "i"}]});
        spec[list] = json!([container]);
        spec
    };
    let template = |spec: Value| json!({"metadata": {"labels": {"a": "b"}}, "spec": spec});
    let selector = json!({"matchLabels": {"a": "b"}});
    let once = |mut spec: Value| {
        spec["restartPolicy"] = json!("Never");
        spec
    };
    let apps = "/apis/apps/v1/namespaces/default";
    let object = |version: &str, kind: &str, spec: Value| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": spec});
    let main = spec("containers");
    let cases = |spec: Value| {
        let (pods, jobs) = (template(spec.clone()), template(once(spec.clone())));
        [
            (PODS.to_owned(), pod("x", spec), "spec"),
            (
                format!("{apps}/deployments"),
                object(
                    "apps/v1",
                    "Deployment",
                    json!({"selector": selector, "template": pods}),
                ),
                "spec.template.spec",
            ),
            (
                format!("{apps}/replicasets"),
                object(
                    "apps/v1",
                    "ReplicaSet",
                    json!({"selector": selector, "template": pods}),
                ),
                "spec.template.spec",
            ),
            (
                format!("{apps}/daemonsets"),
                object(
                    "apps/v1",
                    "DaemonSet",
                    json!({"selector": selector, "template": pods}),
                ),
                "spec.template.spec",
            ),
            (
                format!("{apps}/statefulsets"),
                object(
                    "apps/v1",
                    "StatefulSet",
                    json!({"selector": selector, "template": pods, "serviceName": "s"}),
                ),
                "spec.template.spec",
            ),
            (
                "/apis/batch/v1/namespaces/default/jobs".to_owned(),
                object("batch/v1", "Job", json!({"template": jobs})),
                "spec.template.spec",
            ),
            (
                "/apis/batch/v1/namespaces/default/cronjobs".to_owned(),
                object(
                    "batch/v1",
                    "CronJob",
                    json!({"schedule": "* * * * *", "jobTemplate": {"spec": {"template": jobs}}}),
                ),
                "spec.jobTemplate.spec.template.spec",
            ),
            (
                "/api/v1/namespaces/default/replicationcontrollers".to_owned(),
                object(
                    "v1",
                    "ReplicationController",
                    json!({"selector": {"a": "b"}, "template": pods}),
                ),
                "spec.template.spec",
            ),
            (
                "/api/v1/namespaces/default/podtemplates".to_owned(),
                json!({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": pods}),
                "template.spec",
            ),
        ]
    };
    let (_folder, server) = embedded(&["--allow-privileged=false"]).await;
    account(&server).await;
    for (path, object, at) in cases(main.clone())
        .into_iter()
        .chain(cases(spec("initContainers")))
    {
        let list = if object.to_string().contains("initContainers") {
            "initContainers"
        } else {
            "containers"
        };
        let answer = ask("POST", &path).json(&object).answer(&server).await;
        let cause = json!([{
            "reason": "FieldValueForbidden",
            "message": "Forbidden: disallowed by cluster policy",
            "field": format!("{at}.{list}[0].securityContext.privileged"),
        }]);
        assert_eq!(
            (answer.0, &answer.1["details"]["causes"]),
            (422, &cause),
            "{path}"
        );
    }
    // An ephemeral container is one, too; one that says no is none.
    let unprivileged = json!({"containers": [{"name": "c", "image": "i", "securityContext": {"privileged": false}}]});
    assert_eq!(
        ask("POST", PODS)
            .json(&pod("plain", unprivileged))
            .status(&server)
            .await,
        201
    );
    let debug = json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "i", "securityContext": {"privileged": true}}]}});
    let debug = ask(
        "PATCH",
        "/api/v1/namespaces/default/pods/plain/ephemeralcontainers",
    )
    .body("application/strategic-merge-patch+json", debug.to_string());
    let answer = debug.answer(&server).await;
    assert!(
        answer.0 == 422 && message(&answer).1.contains("disallowed by cluster policy"),
        "{answer:?}"
    );

    let (_folder, server) = embedded(&["--allow-privileged=true"]).await;
    account(&server).await;
    for (path, object, _) in cases(main) {
        assert_eq!(
            ask("POST", &path).json(&object).status(&server).await,
            201,
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_plugin_that_is_asked_for_runs() {
    let plugins = "--enable-admission-plugins=AlwaysAdmit,AlwaysPullImages,DenyServiceExternalIPs,ExtendedResourceToleration,\
                   LimitPodHardAntiAffinityTopology,NamespaceAutoProvision,NamespaceExists";
    both(&[plugins], async |server| {
        // The namespace comes with the first object in it, but not with a rehearsal.
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
        let maps = "/api/v1/namespaces/fresh/configmaps";
        let rehearsed = ask("POST", &format!("{maps}?dryRun=All")).json(&map).answer(server).await;
        assert_eq!(message(&rehearsed), (404, "namespaces \"fresh\" not found"));
        assert_eq!(ask("POST", maps).json(&map).status(server).await, 201);
        let (status, made) = ask("GET", "/api/v1/namespaces/fresh").answer(server).await;
        assert_eq!((status, &made["spec"]["finalizers"]), (200, &json!(["kubernetes"])));
        let gone = ask("DELETE", "/api/v1/namespaces/none/configmaps/m").answer(server).await;
        assert_eq!(gone.0, 404);

        account(server).await;
        let requests = json!({"requests": {"example.com/b": "1", "example.com/a": "1", "cpu": "1"}, "limits": {"example.com/b": "1", "example.com/a": "1"}});
        let spec = json!({
            "containers": [{"name": "c", "image": "i:1", "imagePullPolicy": "Never", "resources": requests}],
            "volumes": [{"name": "v", "image": {"reference": "i:2", "pullPolicy": "Never"}}],
        });
        let (status, made) = ask("POST", PODS).json(&pod("p", spec)).answer(server).await;
        assert_eq!(status, 201, "{made}");
        assert_eq!(made["spec"]["containers"][0]["imagePullPolicy"], "Always");
        assert_eq!(made["spec"]["volumes"][0]["image"]["pullPolicy"], "Always");
        let toleration = |resource: &str| json!({"key": resource, "operator": "Exists", "effect": "NoSchedule"});
        let tolerations = made["spec"]["tolerations"].as_array().unwrap();
        let extended: Vec<&Value> = tolerations.iter().filter(|one| one["effect"] == "NoSchedule").collect();
        assert_eq!(extended, [&toleration("example.com/a"), &toleration("example.com/b")]);

        let term = |key: &str| {
            let term = json!([{"topologyKey": key, "labelSelector": {"matchLabels": {"a": "b"}}}]);
            json!({
                "containers": [{"name": "c", "image": "i"}],
                "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}},
            })
        };
        assert_eq!(ask("POST", PODS).json(&pod("near", term("kubernetes.io/hostname"))).status(server).await, 201);
        let far = ask("POST", PODS).json(&pod("far", term("topology.kubernetes.io/zone"))).answer(server).await;
        let why = "pods \"far\" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey \
                   topology.kubernetes.io/zone but only key kubernetes.io/hostname is allowed";
        assert_eq!(message(&far), (403, why));

        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
            "spec": {"ports": [{"port": 80}], "externalIPs": ["192.0.2.1"]}});
        let answer = ask("POST", "/api/v1/namespaces/default/services").json(&service).answer(server).await;
        assert_eq!(message(&answer), (403, "services \"s\" is forbidden: Use of external IPs is denied by admission control"));
    })
    .await;
}

#[tokio::test]
async fn always_deny_denies() {
    let (_folder, server) = embedded(&["--enable-admission-plugins=AlwaysDeny"]).await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    let answer = ask("POST", "/api/v1/namespaces/default/configmaps")
        .json(&map)
        .answer(&server)
        .await;
    assert_eq!(
        message(&answer),
        (
            403,
            "configmaps \"m\" is forbidden: admission control is denying all modifications"
        )
    );
    assert_eq!(
        ask("DELETE", "/api/v1/namespaces/kube-public")
            .status(&server)
            .await,
        403
    );
    assert_eq!(
        ask("GET", "/api/v1/namespaces/kube-public")
            .status(&server)
            .await,
        200
    );
}

#[tokio::test]
async fn disabled_versions_are_absent_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let mut server = start(folder.path(), Store::Embedded, &[]).await;
    assert_eq!(
        ask("GET", &format!("{services}/v1.apps"))
            .status(&server)
            .await,
        200
    );
    server.terminate().await;
    let server = start(
        folder.path(),
        Store::Embedded,
        &[
            "--runtime-config=apps/v1=false,batch/v1/cronjobs=false",
            "--runtime-config=autoscaling/v1=false",
        ],
    )
    .await;

    for path in [
        "/apis/apps/v1",
        "/apis/apps",
        "/apis/autoscaling/v1",
        "/apis/apps/v1/deployments",
        "/openapi/v3/apis/apps/v1",
    ] {
        assert_eq!(ask("GET", path).status(&server).await, 404, "{path}");
    }
    let missing = [
        "/apis/batch/v1/cronjobs",
        "/apis/batch/v1/namespaces/default/cronjobs/x",
        "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers",
    ];
    for path in missing {
        for method in ["GET", "POST", "DELETE"] {
            assert_eq!(
                ask(method, path).json(&json!({})).status(&server).await,
                404,
                "{method} {path}"
            );
        }
    }
    for path in [
        "/apis/batch/v1/jobs",
        "/apis/autoscaling/v2/horizontalpodautoscalers",
        "/api/v1/pods",
    ] {
        assert_eq!(ask("GET", path).status(&server).await, 200, "{path}");
    }
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    for request in [
        ask("GET", "/apis"),
        ask("GET", "/apis").header("Accept", aggregated),
        ask("GET", "/"),
    ] {
        let text = request.answer(&server).await.1.to_string();
        assert!(
            !text.contains("\"apps") && !text.contains("/apis/apps") && !text.contains("cronjobs"),
            "{text}"
        );
        assert!(text.contains("batch") && text.contains("autoscaling"));
    }
    let jobs = ask("GET", "/apis/batch/v1")
        .answer(&server)
        .await
        .1
        .to_string();
    assert!(
        jobs.contains("\"jobs\"") && !jobs.contains("cronjobs"),
        "{jobs}"
    );
    assert_eq!(
        ask("GET", "/apis/autoscaling").answer(&server).await.1["preferredVersion"]["version"],
        "v2"
    );
    let (_, document) = ask("GET", "/openapi/v2").answer(&server).await;
    let paths = document["paths"].as_object().unwrap();
    assert!(
        paths.contains_key("/apis/batch/v1/jobs")
            && !paths
                .keys()
                .any(|path| path.contains("cronjobs") || path.starts_with("/apis/apps"))
    );
    let definitions = document["definitions"].as_object().unwrap();
    assert!(definitions.contains_key("io.k8s.api.batch.v1.Job"));
    assert!(
        !definitions.contains_key("io.k8s.api.apps.v1.Deployment")
            && !definitions.contains_key("io.k8s.api.batch.v1.CronJob")
    );
    let (_, index) = ask("GET", "/openapi/v3").answer(&server).await;
    assert!(
        index["paths"]["apis/batch/v1"].is_object()
            && index["paths"]["apis/apps/v1"].is_null()
            && index["paths"]["apis/apps"].is_null()
    );
    let (_, batch) = ask("GET", "/openapi/v3/apis/batch/v1")
        .answer(&server)
        .await;
    assert!(
        batch["paths"]["/apis/batch/v1/jobs"].is_object()
            && batch["paths"]["/apis/batch/v1/cronjobs"].is_null()
    );
    assert_eq!(
        ask("GET", &format!("{services}/v1.apps"))
            .status(&server)
            .await,
        404
    );
    assert_eq!(
        ask("GET", &format!("{services}/v1.batch"))
            .status(&server)
            .await,
        200
    );
}

#[tokio::test]
async fn unsupported_versions_and_gates_are_refused() {
    for (flag, said) in [
        (
            "--runtime-config=api/all=true",
            "alpha and beta versions are not implemented (admissionregistration.k8s.io/v1alpha1, ",
        ),
        (
            "--runtime-config=resource.k8s.io/v1beta2=true",
            "alpha and beta versions are not implemented (resource.k8s.io/v1beta2)",
        ),
        (
            "--runtime-config=example.com/v1=true",
            "unknown api groups example.com/v1",
        ),
        (
            "--feature-gates=HPAScaleToZero=true",
            "--feature-gates: HPAScaleToZero=true is not supported: ",
        ),
        (
            "--feature-gates=AllAlpha=true",
            "CBORServingAndStorage=true",
        ),
        (
            "--feature-gates=WatchList=false",
            "--feature-gates: WatchList=false is not supported: ",
        ),
    ] {
        let log = refusal(&[flag]).await;
        assert!(log.contains(said), "{flag}: {log}");
    }
}

/// Fields whose gates are off are dropped before anybody acts on them, and kept where an older
/// server stored them.
#[tokio::test]
async fn fields_of_gates_that_are_off_are_not_stored() {
    let (_folder, server) = embedded(&[]).await;
    account(&server).await;
    let sources = json!([{"serviceAccountToken": {"path": "t"}}, {"podCertificate": {"keyType": "ED25519", "signerName": "a.example/b", "credentialBundlePath": "c"}}]);
    let container = json!({"name": "c", "image": "i", "lifecycle": {"stopSignal": "SIGUSR1"}});
    let spec = json!({
        "os": {"name": "linux"}, "containers": [container], "schedulingGroup": {"podGroupName": "g"},
        "volumes": [{"name": "v", "projected": {"sources": sources}}],
    });
    let selector = json!({"matchLabels": {"a": "b"}});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"},
        "spec": {"selector": selector, "template": {"metadata": {"labels": {"a": "b"}}, "spec": spec}}});
    let made = [
        (
            ask("POST", "/apis/apps/v1/namespaces/default/deployments")
                .json(&deployment)
                .answer(&server)
                .await,
            "/spec/template/spec",
        ),
        (
            ask("POST", PODS)
                .json(&pod("x", spec))
                .answer(&server)
                .await,
            "/spec",
        ),
    ];
    for ((status, object), path) in &made {
        assert_eq!(*status, 201, "{object}");
        let spec = object.pointer(path).unwrap();
        assert_eq!(
            (
                &spec["containers"][0]["lifecycle"],
                &spec["schedulingGroup"]
            ),
            (&Value::Null, &Value::Null)
        );
        let projected = &spec["volumes"][0]["projected"]["sources"];
        assert!(
            projected[0]["serviceAccountToken"].is_object()
                && projected[1]["podCertificate"].is_null(),
            "{projected}"
        );
    }
}

const NODES: &str = "/api/v1/nodes";

/// A server with a service account for pods and a node of these labels.
async fn with_node(labels: Value) -> (tempfile::TempDir, TestServer) {
    let (folder, server) = embedded(&[]).await;
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let node =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": labels}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    for (path, object) in [(accounts, account), (NODES, node)] {
        assert_eq!(ask("POST", path).json(&object).status(&server).await, 201);
    }
    (folder, server)
}

fn pod_on(name: &str, node: &str, cpu: &str) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
    let mut spec = json!({"containers": [container]});
    if !node.is_empty() {
        spec["nodeName"] = json!(node);
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"a": "b"}}, "spec": spec})
}

#[tokio::test]
async fn pods_get_the_topology_labels_of_their_node() {
    let (zone, region) = (
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
    );
    let (_folder, server) = with_node(json!({zone: "z", region: "r", "other": "o"})).await;
    let want = json!({"a": "b", zone: "z", region: "r"});
    let (_, made) = ask("POST", PODS)
        .json(&pod_on("placed", "n", "1"))
        .answer(&server)
        .await;
    assert_eq!(made["metadata"]["labels"], want, "{made}");
    let (_, made) = ask("POST", PODS)
        .json(&pod_on("lost", "gone", "1"))
        .answer(&server)
        .await;
    assert_eq!(made["metadata"]["labels"], json!({"a": "b"}), "{made}");
    let (_, made) = ask("POST", PODS)
        .json(&pod_on("bound", "", "1"))
        .answer(&server)
        .await;
    assert_eq!(made["metadata"]["labels"], json!({"a": "b"}), "{made}");
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "bound"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n"}});
    let path = format!("{PODS}/bound");
    let answer = ask("POST", &format!("{path}/binding"))
        .json(&binding)
        .answer(&server)
        .await;
    assert_eq!(answer.0, 201, "{answer:?}");
    let (_, bound) = ask("GET", &path).answer(&server).await;
    assert_eq!(bound["spec"]["nodeName"], "n");
    assert_eq!(bound["metadata"]["labels"], want, "{bound}");
}

#[tokio::test]
async fn pods_are_resized_to_what_their_node_can_give() {
    let (_folder, server) = with_node(json!({"kubernetes.io/os": "linux"})).await;
    const MERGE: &str = "application/merge-patch+json";
    let node = format!("{NODES}/n");
    let status = json!({"status": {"allocatable": {"cpu": "4", "memory": "1Gi"}}});
    let path = format!("{node}/status");
    let answer = ask("PATCH", &path).body(MERGE, status.to_string());
    assert_eq!(answer.status(&server).await, 200);
    let made = ask("POST", PODS)
        .json(&pod_on("p", "n", "1"))
        .answer(&server)
        .await;
    assert_eq!(made.0, 201, "{made:?}");
    let resize = async |cpu: &str| {
        let resources = json!({"requests": {"cpu": cpu}});
        let patch = json!({"spec": {"containers": [{"name": "c", "resources": resources}]}});
        let path = format!("{PODS}/p/resize");
        let media = "application/strategic-merge-patch+json";
        ask("PATCH", &path)
            .body(media, patch.to_string())
            .answer(&server)
            .await
    };
    assert_eq!(resize("4").await.0, 200);
    let why = "pods \"p\" is forbidden: node didn't have enough allocatable resources: \
               cpu, requested: 4001, allocatable: 4000";
    let refused = resize("4001m").await;
    assert_eq!(message(&refused), (403, why));
    assert_eq!(
        refused.1["details"]["causes"],
        json!([{"reason": "NodeCapacity"}])
    );

    let os = json!({"metadata": {"labels": {"kubernetes.io/os": "windows"}}});
    assert_eq!(
        ask("PATCH", &node)
            .body(MERGE, os.to_string())
            .status(&server)
            .await,
        200
    );
    let why = "pods \"p\" is forbidden: pod resize is only supported on linux nodes, \
               node \"n\" is \"windows\"";
    assert_eq!(message(&resize("2").await), (403, why));
    assert_eq!(resize("4").await.0, 200, "nothing is resized");
    assert_eq!(ask("DELETE", &node).status(&server).await, 200);
    let why = "pods \"p\" is forbidden: node \"n\" not found";
    assert_eq!(message(&resize("2").await), (403, why));
}

/// A FlowSchema tells whether the priority level that it names exists, now and later.
#[tokio::test]
async fn flow_schemas_tell_whether_their_level_exists() {
    const GROUP: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
    both(&[], async |server| {
        let schema = json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": "mine"},
            "spec": {"matchingPrecedence": 100, "priorityLevelConfiguration": {"name": "missing"}},
        });
        let path = format!("{GROUP}/flowschemas");
        assert_eq!(ask("POST", &path).json(&schema).status(server).await, 201);
        let becomes = async |wanted: &str| {
            let end = tokio::time::Instant::now() + PATIENCE;
            loop {
                let (_, schema) = ask("GET", &format!("{path}/mine")).answer(server).await;
                if schema["status"]["conditions"][0]["status"] == wanted {
                    return schema;
                }
                assert!(tokio::time::Instant::now() < end, "{wanted}: {schema}");
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        };
        let schema = becomes("True").await;
        assert_eq!(
            schema["status"]["conditions"][0]["message"],
            "This FlowSchema references the PriorityLevelConfiguration object named \"missing\" but there is no such object"
        );
        let managers = schema["metadata"]["managedFields"].as_array().unwrap();
        let own = managers.iter().find(|one| one["subresource"] == "status").unwrap();
        assert_eq!(
            (own["manager"].as_str(), own["operation"].as_str()),
            (Some("api-priority-and-fairness-config-consumer-v1"), Some("Apply"))
        );
        let level = json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration", "metadata": {"name": "missing"},
            "spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}}},
        });
        let levels = format!("{GROUP}/prioritylevelconfigurations");
        assert_eq!(ask("POST", &levels).json(&level).status(server).await, 201);
        becomes("False").await;
        assert_eq!(ask("DELETE", &format!("{levels}/missing")).status(server).await, 200);
        becomes("True").await;
    })
    .await;
}
