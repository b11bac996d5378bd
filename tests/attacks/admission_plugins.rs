//! Admission plugins that are off by default, with their configuration file: what they refuse, over
//! the wire.

use serde_json::{Value, json};

use super::support::{TestServer, USER};
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
    assert_eq!(post(&server, USER, MAPS, &map("free", false)).await.0, 201);
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
