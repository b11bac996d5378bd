//! Pods keep to the level of the Pod Security Standards that their namespace chooses, by whatever
//! way they come.

use serde_json::{Value, json};

use super::support::TestServer;
use super::{Ask, ask, both};

const MERGE_PATCH: &str = "application/merge-patch+json";
const LABEL: &str = "pod-security.kubernetes.io/enforce";

/// The status, the message, and the texts of the warnings of an answer.
async fn told(ask: Ask<'_>, server: &TestServer) -> (u16, String, Vec<String>) {
    let answer = ask.send(server).await;
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let warnings = answer.headers.get_all("warning");
    let warnings = warnings
        .iter()
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        .collect();
    let message = body["message"].as_str().unwrap_or("").to_owned();
    (answer.status, message, warnings)
}

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "i"}]}});
    for (key, value) in spec.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    pod
}

/// Makes a namespace with labels, and the account that its pods run as.
async fn namespace(server: &TestServer, name: &str, labels: Value) {
    let namespace = json!({"metadata": {"name": name, "labels": labels}});
    let made = ask("POST", "/api/v1/namespaces")
        .json(&namespace)
        .status(server)
        .await;
    assert_eq!(made, 201);
    let path = format!("/api/v1/namespaces/{name}/serviceaccounts");
    let account = json!({"metadata": {"name": "default"}});
    assert_eq!(ask("POST", &path).json(&account).status(server).await, 201);
}

#[tokio::test]
async fn pods_that_violate_the_level_are_refused() {
    both(&[], async |server| {
        namespace(server, "guarded", json!({LABEL: "baseline"})).await;
        let pods = "/api/v1/namespaces/guarded/pods";
        let host = pod("a", json!({"hostNetwork": true}));
        let (status, message, _) = told(ask("POST", pods).json(&host), server).await;
        assert_eq!(
            (status, message.as_str()),
            (
                403,
                "pods \"a\" is forbidden: violates PodSecurity \"baseline:latest\": \
                 host namespaces (hostNetwork=true)"
            )
        );
        let mut generated = host.clone();
        generated["metadata"] = json!({"generateName": "a-"});
        let (status, message, _) = told(ask("POST", pods).json(&generated), server).await;
        assert!(
            status == 403 && message.starts_with("pods \"a-"),
            "{message}"
        );
        let apply = ask("PATCH", "/api/v1/namespaces/guarded/pods/a?fieldManager=m")
            .body("application/apply-patch+yaml", host.to_string());
        assert_eq!(told(apply, server).await.0, 403);
        // An allowed pod is no way in for what is not: not by its containers, nor by new ones.
        let allowed = pod("a", json!({}));
        assert_eq!(ask("POST", pods).json(&allowed).status(server).await, 201);
        let debug = json!({"spec": {"ephemeralContainers": [
            {"name": "d", "image": "i", "securityContext": {"privileged": true}}]}});
        let path = format!("{pods}/a/ephemeralcontainers");
        let patch =
            ask("PATCH", &path).body("application/strategic-merge-patch+json", debug.to_string());
        let (status, message, _) = told(patch, server).await;
        assert!(status == 403 || status == 422, "{message}");
        // The level of one namespace is not that of its neighbour.
        namespace(server, "open", json!({})).await;
        let elsewhere = ask("POST", "/api/v1/namespaces/open/pods").json(&host);
        assert_eq!(elsewhere.status(server).await, 201);
    })
    .await;
}

#[tokio::test]
async fn a_stricter_level_warns_of_pods_and_holds_for_the_next_ones() {
    both(&[], async |server| {
        namespace(server, "later", json!({})).await;
        let pods = "/api/v1/namespaces/later/pods";
        for name in ["b", "a"] {
            let host = pod(name, json!({"hostPID": true}));
            assert_eq!(ask("POST", pods).json(&host).status(server).await, 201);
        }
        let label = |level: &str| {
            let patch = json!({"metadata": {"labels": {LABEL: level}}});
            ask("PATCH", "/api/v1/namespaces/later").body(MERGE_PATCH, patch.to_string())
        };
        let (status, message, _) = told(label("strict"), server).await;
        assert_eq!(status, 422);
        assert_eq!(
            message,
            "Namespace \"later\" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: \
             Invalid value: \"strict\": must be one of privileged, baseline, restricted"
        );
        let (status, _, warnings) = told(label("baseline"), server).await;
        assert_eq!(status, 200);
        assert_eq!(
            warnings,
            [
                "299 - \"existing pods in namespace \\\"later\\\" violate the new PodSecurity \
                 enforce level \\\"baseline:latest\\\"\"",
                "299 - \"a (and 1 other pod): host namespaces\"",
            ]
        );
        let next = ask("POST", pods).json(&pod("c", json!({"hostPID": true})));
        assert_eq!(next.status(server).await, 403);
        // What is there already may change where that does not matter.
        let patch = json!({"metadata": {"labels": {"x": "y"}}}).to_string();
        let path = format!("{pods}/a");
        let labelled = ask("PATCH", &path).body(MERGE_PATCH, patch);
        assert_eq!(labelled.status(server).await, 200);
        let patch = r#"[{"op":"replace","path":"/spec/containers/0/image","value":"j"}]"#;
        let image = ask("PATCH", &path).body("application/json-patch+json", patch);
        assert_eq!(image.status(server).await, 403);
    })
    .await;
}

#[tokio::test]
async fn templates_that_violate_the_level_are_warned_of() {
    both(&[], async |server| {
        namespace(server, "watched", json!({LABEL: "baseline"})).await;
        let template = json!({"metadata": {"labels": {"a": "b"}},
            "spec": {"hostNetwork": true, "containers": [{"name": "c", "image": "i"}]}});
        let deployment = json!({"metadata": {"name": "d"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
        let path = "/apis/apps/v1/namespaces/watched/deployments";
        let (status, _, warnings) = told(ask("POST", path).json(&deployment), server).await;
        assert_eq!(status, 201);
        assert_eq!(
            warnings,
            [
                "299 - \"would violate PodSecurity \\\"baseline:latest\\\": host namespaces \
              (hostNetwork=true)\""
            ]
        );
    })
    .await;
}

#[tokio::test]
async fn defaults_and_exemptions_come_from_the_configuration_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admission.yaml");
    let file = "apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: baseline}
    exemptions: {namespaces: [exempt]}
";
    std::fs::write(&path, file).unwrap();
    let flag = format!("--admission-control-config-file={}", path.display());
    let (_folder, server) = super::embedded(&[&flag]).await;
    let host = pod("a", json!({"hostIPC": true}));
    for (name, expected) in [("plain", 403), ("exempt", 201)] {
        namespace(&server, name, json!({})).await;
        let pods = format!("/api/v1/namespaces/{name}/pods");
        let answer = ask("POST", &pods).json(&host).status(&server).await;
        assert_eq!(answer, expected, "{name}");
    }
    let patch = json!({"metadata": {"labels": {LABEL: "restricted"}}}).to_string();
    let exempt = ask("PATCH", "/api/v1/namespaces/exempt").body(MERGE_PATCH, patch);
    let (status, _, warnings) = told(exempt, &server).await;
    assert_eq!(status, 200);
    assert_eq!(
        warnings,
        [
            "299 - \"namespace \\\"exempt\\\" is exempt from Pod Security, and the policy \
          (enforce=restricted:latest) will be ignored\""
        ]
    );
}
