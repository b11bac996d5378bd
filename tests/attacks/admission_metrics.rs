//! Metrics of admission: its steps and plugins, webhooks by their outcome, and match conditions.

use serde_json::{Value, json};

use super::support::TestServer;
use super::support::webhook::{Reply, Webhook};
use super::{ask, embedded};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The values of the metrics of admission, by name and labels.
async fn metrics(server: &TestServer) -> Vec<(String, String)> {
    let text = server.metrics().await;
    let lines = text
        .lines()
        .filter(|line| line.starts_with("apiserver_admission_"));
    let pairs = lines.filter_map(|line| line.rsplit_once(' '));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn value<'a>(metrics: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = metrics.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_str())
}

/// Registers a webhook about ConfigMaps of a name.
async fn register(server: &TestServer, kind: &str, name: &str, client: Value, more: Value) {
    let mut hook = json!({
        "name": format!("{name}.example.com"), "clientConfig": client, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "timeoutSeconds": 5, "matchConditions": [
            {"name": "named", "expression": format!("object.metadata.name == '{name}'")},
        ],
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
    });
    for (key, value) in more.as_object().unwrap() {
        hook[key] = value.clone();
    }
    let configuration = json!({"metadata": {"name": name}, "webhooks": [hook]});
    let path = format!("{GROUP}/{kind}webhookconfigurations");
    assert_eq!(
        ask("POST", &path).json(&configuration).status(server).await,
        201
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_plugins_webhooks_and_conditions_are_counted() {
    let (_folder, server) = embedded(&[]).await;
    let webhook = Webhook::start(|seen| {
        let uid = seen.body["request"]["uid"].clone();
        let review = |response: Value| {
            Reply::Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
        };
        match seen.uri.split('?').next().unwrap_or_default() {
            "/allow" => review(json!({"uid": uid, "allowed": true})),
            "/refuse" => review(json!({"uid": uid, "allowed": false, "status": {"code": 700}})),
            "/patch" => review(json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": "W3sib3AiOiJyZW1vdmUiLCJwYXRoIjoiL25vbmUifV0="})),
            _ => Reply::Close,
        }
    })
    .await;
    let client = |path: &str| webhook.client_config(path);
    register(&server, "validating", "allow", client("/allow"), json!({})).await;
    register(&server, "mutating", "refuse", client("/refuse"), json!({})).await;
    register(&server, "mutating", "patch", client("/patch"), json!({})).await;
    register(
        &server,
        "validating",
        "open",
        client("/close"),
        json!({"failurePolicy": "Ignore"}),
    )
    .await;
    register(&server, "mutating", "closed", client("/close"), json!({})).await;
    let condition = json!([{"name": "c", "expression": "object.data.a == 'b'"}]);
    register(
        &server,
        "mutating",
        "condition",
        client("/allow"),
        json!({"matchConditions": condition, "failurePolicy": "Ignore"}),
    )
    .await;
    for (name, status) in [
        ("allow", 201),
        ("refuse", 700),
        ("patch", 500),
        ("open", 201),
        ("closed", 500),
    ] {
        let map = json!({"metadata": {"name": name}, "data": {}});
        let answer = ask("POST", MAPS).json(&map).status(&server).await;
        assert_eq!(answer, status, "{name}");
    }
    let found = metrics(&server).await;
    let request = |code: &str, name: &str, rejected: &str, kind: &str| {
        format!(
            "apiserver_admission_webhook_request_total{{code=\"{code}\",name=\"{name}.example.com\",operation=\"CREATE\",rejected=\"{rejected}\",type=\"{kind}\"}}"
        )
    };
    let rejection = |error: &str, name: &str, code: &str| {
        format!(
            "apiserver_admission_webhook_rejection_count{{error_type=\"{error}\",name=\"{name}.example.com\",operation=\"CREATE\",rejection_code=\"{code}\",type=\"admit\"}}"
        )
    };
    let step = |name: &str, rejected: &str, step: &str| {
        format!(
            "apiserver_admission_{name}{{operation=\"CREATE\",rejected=\"{rejected}\",type=\"{step}\"}}"
        )
    };
    let plugin = |name: &str, step: &str| {
        format!(
            "apiserver_admission_controller_admission_duration_seconds_count{{name=\"{name}\",operation=\"CREATE\",rejected=\"false\",type=\"{step}\"}}"
        )
    };
    let one = "1".to_owned();
    for (name, want) in [
        (request("200", "allow", "false", "validating"), &one),
        (request("600", "refuse", "true", "admit"), &one),
        (request("0", "patch", "true", "admit"), &one),
        (request("503", "open", "false", "validating"), &one),
        (request("503", "closed", "true", "admit"), &one),
        (rejection("no_error", "refuse", "600"), &one),
        (rejection("apiserver_internal_error", "patch", "0"), &one),
        (rejection("calling_webhook_error", "closed", "503"), &one),
        (r#"apiserver_admission_webhook_fail_open_count{name="open.example.com",type="validating"}"#.to_owned(), &one),
        (r#"apiserver_admission_webhook_admission_duration_seconds_bucket{name="allow.example.com",operation="CREATE",rejected="false",type="validating",le="25"}"#.to_owned(), &one),
        (r#"apiserver_admission_match_condition_evaluation_errors_total{kind="webhook",name="condition.example.com",operation="CREATE",type="admit"}"#.to_owned(), &"4".to_owned()),
        (r#"apiserver_admission_match_condition_exclusions_total{kind="webhook",name="condition.example.com",operation="CREATE",type="admit"}"#.to_owned(), &"4".to_owned()),
        (r#"apiserver_admission_match_condition_exclusions_total{kind="webhook",name="refuse.example.com",operation="CREATE",type="admit"}"#.to_owned(), &"2".to_owned()),
        (r#"apiserver_admission_match_condition_evaluation_seconds_count{kind="webhook",name="refuse.example.com",operation="CREATE",type="admit"}"#.to_owned(), &"3".to_owned()),
        (step("step_admission_duration_seconds_count", "true", "admit"), &"3".to_owned()),
    ] {
        assert_eq!(value(&found, &name), Some(want.as_str()), "{name}\n{found:#?}");
    }
    // Those that are asked about every creation are counted, whether they have something to do or
    // not; those that are not, are not.
    for name in [
        step(
            "step_admission_duration_seconds_bucket",
            "false",
            "validate",
        )
        .replace('}', ",le=\"2.5\"}"),
        step("step_admission_duration_seconds_summary", "false", "admit")
            .replace('}', ",quantile=\"0.99\"}"),
        plugin("NamespaceLifecycle", "admit"),
        plugin("ValidatingAdmissionPolicy", "validate"),
        plugin("PodGroupProtection", "admit"),
    ] {
        assert!(value(&found, &name).is_some(), "{name}\n{found:#?}");
    }
    for name in [
        plugin("NamespaceLifecycle", "validate"),
        plugin("PodResizeValidator", "validate"),
    ] {
        assert_eq!(value(&found, &name), None, "{name}");
    }
}
