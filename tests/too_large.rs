//! Objects that the store takes only without their managed fields.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Map, Value, json};
use support::{ADMIN, TestServer, http as wire};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// The longest a request may take.
const PATIENCE: Duration = Duration::from_secs(60);

async fn call(
    server: &TestServer,
    method: &str,
    path: &str,
    kind: &str,
    body: &Value,
) -> (u16, Value) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("Host", "localhost")
        .header("Content-Type", kind);
    let request = request
        .header("Authorization", format!("Bearer {ADMIN}"))
        .body(Full::new(Bytes::from(body.to_string())))
        .unwrap();
    let answer = wire::call(server.port(), request, PATIENCE).await.unwrap();
    (answer.status, serde_json::from_slice(&answer.body).unwrap())
}

/// A ConfigMap with so many keys that it and the names of its fields are too large together, but
/// not alone.
fn wide(name: &str) -> Value {
    let data: Map<String, Value> = (0..6000)
        .map(|index| (format!("{index:0>150}"), "v".into()))
        .collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

fn managers(object: &Value) -> usize {
    object["metadata"]["managedFields"]
        .as_array()
        .map_or(0, Vec::len)
}

#[tokio::test]
async fn too_large_objects_lose_their_managers_unless_applied() {
    let server = TestServer::start().await;
    let (json, apply) = ("application/json", "application/apply-patch+yaml");
    let (status, made) = call(&server, "POST", MAPS, json, &wide("made")).await;
    assert_eq!((status, managers(&made)), (201, 0));

    let small = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "grown"}, "data": {"k": "v"}});
    let (status, grown) = call(&server, "POST", MAPS, json, &small).await;
    assert_eq!((status, managers(&grown)), (201, 1));
    let path = format!("{MAPS}/grown");
    let (status, refused) = call(
        &server,
        "PATCH",
        &format!("{path}?fieldManager=m"),
        apply,
        &wide("grown"),
    )
    .await;
    assert_eq!(
        (status, refused["message"].as_str()),
        (500, Some("etcdserver: request is too large"))
    );
    let (status, grown) = call(&server, "PUT", &path, json, &wide("grown")).await;
    assert_eq!((status, managers(&grown)), (200, 0));

    let (status, _) = call(&server, "PUT", &path, json, &small).await;
    assert_eq!(status, 200);
    let patch = json!({"data": wide("grown")["data"]});
    let (status, patched) = call(
        &server,
        "PATCH",
        &path,
        "application/merge-patch+json",
        &patch,
    )
    .await;
    assert_eq!((status, managers(&patched)), (200, 0));
}
