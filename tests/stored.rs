//! Objects that a kube-apiserver left in etcd are served as it would serve them, and treated as if
//! this server had written them.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use etcd_client::Client;
use http::Request;
use http_body_util::Full;
use serde_json::Value;
use support::etcd::Etcd;
use support::{ADMIN, Store, TestServer, http as wire};

/// The longest a request may take.
const PATIENCE: Duration = Duration::from_secs(30);

async fn call(server: &TestServer, method: &str, path: &str, body: &'static str) -> (u16, Value) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("Host", "localhost");
    let request = request
        .header("Authorization", format!("Bearer {ADMIN}"))
        .header("Content-Type", "application/merge-patch+json");
    let answer = wire::call(
        server.port(),
        request
            .body(Full::new(Bytes::from_static(body.as_bytes())))
            .unwrap(),
        PATIENCE,
    )
    .await
    .unwrap();
    (answer.status, serde_json::from_slice(&answer.body).unwrap())
}

/// Keys of a real cluster's etcd with their bytes, and what its API server answers for them.
fn recorded() -> impl Iterator<Item = Value> {
    include_str!("data/stored.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
}

fn text<'a>(line: &'a Value, field: &str) -> &'a str {
    line[field].as_str().unwrap()
}

#[tokio::test]
async fn objects_of_another_server_are_read_and_nothing_about_them_is_new() {
    let (folder, etcd) = (tempfile::tempdir().unwrap(), Etcd::start());
    let mut client = Client::connect([etcd.endpoint()], None).await.unwrap();
    for line in recorded() {
        client
            .put(
                text(&line, "key"),
                BASE64_STANDARD.decode(text(&line, "value")).unwrap(),
                None,
            )
            .await
            .unwrap();
    }
    let server = TestServer::start_in(folder.path(), Store::Etcd(&etcd.endpoint())).await;
    let mut different = Vec::new();
    for line in recorded() {
        let (path, mut want) = (text(&line, "path"), line["object"].clone());
        let before = client.get(text(&line, "key"), None).await.unwrap().kvs()[0].clone();
        want["metadata"]["resourceVersion"] = before.mod_revision().to_string().into();
        let read = call(&server, "GET", path, "").await;
        let patched = call(&server, "PATCH", path, "{}").await;
        let after = client.get(text(&line, "key"), None).await.unwrap().kvs()[0].clone();
        for (what, (status, got)) in [("read", read), ("patched", patched)] {
            if (status, &got) != (200, &want) {
                different.push(format!(
                    "{path}, {what}: {status}\n  got  {got}\n  want {want}"
                ));
            }
        }
        // A patch that changes nothing is not written: the bytes would be the same.
        if before.mod_revision() != after.mod_revision() {
            different.push(format!(
                "{path} was written anew: {}",
                BASE64_STANDARD.encode(after.value())
            ));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}
