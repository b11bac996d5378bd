//! Admission plugins that are off by default, with their configuration file: what they refuse, over
//! the wire.

use serde_json::{Value, json};

use super::support::webhook::{Reply, Webhook};
use super::support::{TestServer, USER, until};
use super::{ask, embedded};

const PODS: &str = "/api/v1/namespaces/default/pods";
const EVENTS: &str = "/api/v1/namespaces/default/events";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

const FILE: &str = "apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodNodeSelector
  configuration:
    podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: env=test}
- name: PodTolerationRestriction
  configuration:
    apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1
    kind: Configuration
    default: [{key: cluster, operator: Exists}]
- name: EventRateLimit
  path: events.yaml
- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources: [{resource: secrets, matchContains: [count/]}]
";
const EVENT_LIMITS: &str = "apiVersion: eventratelimit.admission.k8s.io/v1alpha1
kind: Configuration
limits: [{type: Server, qps: 1, burst: 2}]
";

/// The status and message of a request, or all of the answer where it has no message.
async fn post(server: &TestServer, token: &str, path: &str, body: &Value) -> (u16, Value) {
    let (status, answer) = ask("POST", path).by(token).json(body).answer(server).await;
    let message = answer.get("message").cloned();
    (status, message.filter(|_| status >= 400).unwrap_or(answer))
}

#[tokio::test]
async fn plugins_do_what_their_configuration_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admission.yaml");
    std::fs::write(&path, FILE).unwrap();
    std::fs::write(folder.path().join("events.yaml"), EVENT_LIMITS).unwrap();
    let file = format!("--admission-control-config-file={}", path.display());
    let plugins = "--enable-admission-plugins=PodNodeSelector,PodTolerationRestriction,\
                   EventRateLimit,OwnerReferencesPermissionEnforcement";
    let (_folder, server) = embedded(&[&file, plugins]).await;
    let account = json!({"metadata": {"name": "default"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    post(&server, super::ADMIN, accounts, &account).await;

    let pod = json!({"metadata": {"name": "a"}, "spec": {
        "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}],
    }});
    let (status, made) = post(&server, super::ADMIN, PODS, &pod).await;
    assert_eq!(status, 201, "{made}");
    assert_eq!(made["spec"]["nodeSelector"], json!({"env": "test"}));
    let last = made["spec"]["tolerations"]
        .as_array()
        .unwrap()
        .last()
        .unwrap();
    assert_eq!(last, &json!({"key": "cluster", "operator": "Exists"}));

    let secret = json!({"metadata": {"name": "s"}});
    let secrets = "/api/v1/namespaces/default/secrets";
    let why = "secrets \"s\" is forbidden: insufficient quota to consume: count/secrets";
    assert_eq!(
        post(&server, super::ADMIN, secrets, &secret).await,
        (403, json!(why))
    );

    let event =
        json!({"metadata": {"generateName": "e"}, "involvedObject": {"namespace": "default"}});
    let mut answers = Vec::new();
    for _ in 0..4 {
        answers.push(post(&server, super::ADMIN, EVENTS, &event).await.0);
    }
    assert_eq!(
        answers.iter().filter(|status| **status == 201).count(),
        2,
        "{answers:?}"
    );
    let why = json!("Too many requests: limit reached on type Server for key ");
    assert_eq!(
        post(&server, super::ADMIN, EVENTS, &event).await,
        (429, why)
    );

    let rules =
        json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "update"]}]);
    let role = json!({"metadata": {"name": "maps"}, "rules": rules});
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let made = post(
        &server,
        super::ADMIN,
        &format!("{rbac}/clusterroles"),
        &role,
    )
    .await;
    assert_eq!(made.0, 201);
    let bound = json!({"metadata": {"name": "maps"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "maps"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}]});
    let made = post(
        &server,
        super::ADMIN,
        &format!("{rbac}/clusterrolebindings"),
        &bound,
    )
    .await;
    assert_eq!(made.0, 201);
    let map = |name: &str, blocks: bool| {
        json!({"metadata": {"name": name, "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u", "blockOwnerDeletion": blocks},
        ]}})
    };
    // As soon as the binding is known.
    until("it comes", async || {
        post(&server, USER, MAPS, &map("free", false)).await.0 == 201
    })
    .await;
    let (status, why) = post(&server, USER, MAPS, &map("held", true)).await;
    let want = "configmaps \"held\" is forbidden: cannot set blockOwnerDeletion if an \
                ownerReference refers to a resource you can't set finalizers on: , <nil>";
    assert_eq!((status, why), (403, json!(want)));
    let path = format!("{MAPS}/free");
    let change = ask("PUT", &path).by(USER).json(&map("free", true));
    let (status, answer) = change.answer(&server).await;
    let want = "configmaps \"free\" is forbidden: cannot set an ownerRef on a resource you can't \
                delete: , <nil>";
    assert_eq!((status, &answer["message"]), (403, &json!(want)));
}

/// A kubeconfig file for a webhook, and the flags that have it asked about images.
fn image_policy(folder: &std::path::Path, webhook: &Webhook, more: &str) -> [String; 2] {
    let config = json!({
        "kind": "Config", "apiVersion": "v1", "current-context": "c",
        "clusters": [{"name": "s", "cluster": {
            "server": format!("https://localhost:{}/images", webhook.port),
            "certificate-authority": "ca.pem",
        }}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "c", "context": {"cluster": "s", "user": "u"}}],
    });
    std::fs::write(folder.join("ca.pem"), &webhook.ca).unwrap();
    let kubeconfig = folder.join("kubeconfig");
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    let file = folder.join("images.yaml");
    let kubeconfig = kubeconfig.display();
    // The whole file is the configuration of the plugin, as it could be before it had a kind.
    let text = format!("imagePolicy: {{kubeConfigFile: {kubeconfig}, retryBackoff: 1{more}}}\n");
    std::fs::write(&file, text).unwrap();
    [
        "--enable-admission-plugins=ImagePolicyWebhook".to_owned(),
        format!("--admission-control-config-file={}", file.display()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn images_run_if_the_webhook_says_so() {
    let webhook = Webhook::start(|seen| {
        let image = seen.body["spec"]["containers"][0]["image"].as_str().unwrap_or_default();
        let (code, status) = match image {
            "good" => (200, json!({"allowed": true, "auditAnnotations": {"a": "b"}})),
            "wordy" => (200, json!({"allowed": true, "auditAnnotations": {"a": "b".repeat(20_000)}})),
            "bad" => (200, json!({"allowed": false, "reason": "not signed"})),
            "silent" => (200, json!({"allowed": false})),
            "gone" => return Reply::Close,
            _ => (500, json!({})),
        };
        let review = json!({"apiVersion": "imagepolicy.k8s.io/v1alpha1", "kind": "ImageReview", "status": status});
        Reply::Raw(code, vec![("Content-Type", "application/json".to_owned())], review.to_string().into_bytes())
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let flags = image_policy(folder.path(), &webhook, "");
    let (_folder, server) = embedded(&[&flags[0], &flags[1]]).await;
    let account = json!({"metadata": {"name": "default"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    post(&server, super::ADMIN, accounts, &account).await;
    let pod = |name: &str, image: &str| {
        json!({"metadata": {"name": name, "annotations": {"x.image-policy.k8s.io/y": "z", "other": "o"}}, "spec": {
            "automountServiceAccountToken": false, "containers": [{"name": "c", "image": image}],
        }})
    };
    let create =
        async |name: &str, image: &str| post(&server, super::ADMIN, PODS, &pod(name, image)).await;
    assert_eq!(create("a", "good").await.0, 201);
    assert_eq!(create("b", "good").await.0, 201);
    let seen = webhook.take();
    assert_eq!(seen.len(), 1, "the answer is kept");
    assert_eq!(seen[0].uri, "/images?timeout=30s");
    assert_eq!(seen[0].headers["authorization"], "Bearer secret");
    let asked = json!({
        "kind": "ImageReview", "apiVersion": "imagepolicy.k8s.io/v1alpha1", "metadata": {},
        "spec": {
            "containers": [{"image": "good"}], "annotations": {"x.image-policy.k8s.io/y": "z"},
            "namespace": "default",
        },
        "status": {"allowed": false},
    });
    assert_eq!(seen[0].body, asked);
    for name in ["large-a", "large-b"] {
        assert_eq!(create(name, "wordy").await.0, 201);
    }
    assert_eq!(webhook.take().len(), 2, "a large answer is not kept");
    for (image, why) in [
        (
            "bad",
            "image policy webhook backend denied one or more images: not signed",
        ),
        ("silent", "one or more images rejected by webhook backend"),
        ("broken", "an error on the server ("),
        ("gone", "Post \"https://localhost:"),
    ] {
        let (status, told) = create("c", image).await;
        let told = told.as_str().unwrap();
        let told = told
            .strip_prefix("pods \"c\" is forbidden: ")
            .unwrap_or_default();
        assert!(
            status == 403 && told.starts_with(why),
            "{image}: {status} {told}"
        );
    }
    let seen = webhook.take();
    let of = |image: &str| {
        seen.iter()
            .filter(|one| one.body["spec"]["containers"][0]["image"] == image)
            .count()
    };
    assert_eq!(
        [of("bad"), of("broken"), of("gone")],
        [1, 5, 1],
        "errors of the server are tried again"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn images_run_without_an_answer_where_the_configuration_says_so() {
    let webhook = Webhook::start(|_| Reply::Close).await;
    let folder = tempfile::tempdir().unwrap();
    let flags = image_policy(folder.path(), &webhook, ", defaultAllow: true");
    let (_folder, server) = embedded(&[&flags[0], &flags[1]]).await;
    let account = json!({"metadata": {"name": "default"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    post(&server, super::ADMIN, accounts, &account).await;
    let pod = json!({"metadata": {"name": "a"}, "spec": {
        "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}],
    }});
    assert_eq!(post(&server, super::ADMIN, PODS, &pod).await.0, 201);
    assert!(!webhook.take().is_empty());
}
