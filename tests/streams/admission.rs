//! Streams are made of the options that admission wants, whatever the client has asked for.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::commands::open;
use super::support::kubelet::{Act, switched};
use super::support::webhook::{Reply, Seen, Webhook};
use super::{Cluster, PATIENCE, POD, status};

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const V5: &str = "v5.channel.k8s.io";

/// The patch of the options of each kind.
fn changes(seen: &Seen) -> Value {
    let options = &seen.body["request"]["object"];
    let has = |key: &str| !options[key].is_null();
    match options["kind"].as_str() {
        Some("PodExecOptions") if options["command"] == json!(["elsewhere"]) => {
            json!([{"op": "add", "path": "/container", "value": "other"}])
        }
        Some("PodExecOptions") => json!([
            {"op": "replace", "path": "/command", "value": ["both", "a b"]},
            {"op": "remove", "path": "/stdin"},
            {"op": "add", "path": "/stderr", "value": true},
        ]),
        Some("PodAttachOptions") if has("stdin") => json!([{"op": "remove", "path": "/stdin"}]),
        Some("PodPortForwardOptions") => {
            json!([{"op": "add", "path": "/ports", "value": [8080]}])
        }
        _ => json!([]),
    }
}

fn patched(seen: &Seen) -> Reply {
    let patch = BASE64_STANDARD.encode(changes(seen).to_string());
    let response = json!({
        "uid": seen.body["request"]["uid"], "allowed": true, "patchType": "JSONPatch", "patch": patch,
    });
    Reply::Json(json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response,
    }))
}

#[tokio::test]
async fn streams_are_made_of_the_options_that_webhooks_want() {
    let cluster = Cluster::start(|seen| match seen.uri.starts_with("/portForward/") {
        true => Act::Hold(switched("portforward.k8s.io").into_bytes()),
        false => Act::Command,
    })
    .await;
    let webhook = Webhook::start(patched).await;
    let configuration = json!({
        "metadata": {"name": "streams"},
        "webhooks": [{
            "name": "streams.example.com", "clientConfig": webhook.client_config("/"),
            "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CONNECT"],
                "resources": ["pods/exec", "pods/attach", "pods/portforward"],
            }],
        }],
    });
    let answer = cluster.ask("POST", CONFIGURATIONS, &configuration).await;
    assert_eq!(answer.status, 201, "{answer:?}");

    let streams = [
        (
            "exec?command=cat&stdin=1&stdout=1",
            V5,
            "/exec/default/p/c?command=both&command=a+b&error=1&output=1",
        ),
        (
            "attach?stdin=1&stdout=1",
            V5,
            "/attach/default/p/c?output=1",
        ),
        (
            "portforward?ports=22",
            "SPDY/3.1+portforward.k8s.io",
            "/portForward/default/p?port=8080",
        ),
    ];
    for (at, (path, protocol, want)) in streams.into_iter().enumerate() {
        let path = format!("{POD}/{path}");
        let _stream = open(&cluster, &path, protocol).await.unwrap();
        let asked = async {
            while cluster.kubelet.seen().len() <= at {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, asked).await.unwrap();
        assert_eq!(cluster.kubelet.seen()[at].uri, want);
    }
    // The container must be one of the pod's, whoever names it.
    let refused = cluster.get(&format!("{POD}/exec?command=elsewhere")).await;
    let (code, _, message) = status(&refused);
    assert_eq!(
        (code, message.as_str()),
        (400, "container other is not valid for pod p")
    );
}
