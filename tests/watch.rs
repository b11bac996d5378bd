//! Watches as their clients read them, over WebSocket and over HTTP.

#![allow(clippy::unwrap_used)]

mod support;

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use support::{ADMIN, Store, TestServer, http as wire};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn create(server: &TestServer, name: &str) -> Value {
    let body =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}).to_string();
    let request = Request::post(MAPS)
        .header("Host", "localhost")
        .header("Content-Type", "application/json");
    let request = request
        .header("Authorization", format!("Bearer {ADMIN}"))
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    let answer = wire::call(server.port(), request, std::time::Duration::from_secs(10))
        .await
        .unwrap();
    assert_eq!(answer.status, 201);
    serde_json::from_slice(&answer.body).unwrap()
}

/// Returns the content of an event, without what differs between runs.
fn told(event: &[u8]) -> String {
    let event: Value = serde_json::from_slice(event).unwrap();
    format!(
        "{} {}",
        event["type"].as_str().unwrap(),
        event["object"]["metadata"]["name"].as_str().unwrap_or("-")
    )
}

#[tokio::test]
async fn websocket_messages_hold_one_event_each() {
    let server = TestServer::start().await;
    let first = create(&server, "first").await;
    let from = first["metadata"]["resourceVersion"].as_str().unwrap();
    let url = format!("wss://localhost{MAPS}?watch=true&resourceVersion={from}");
    let mut request = url.into_client_request().unwrap();
    request
        .headers_mut()
        .insert("Authorization", format!("Bearer {ADMIN}").parse().unwrap());
    let (mut socket, answer) =
        tokio_tungstenite::client_async(request, wire::connect(server.port()).await.unwrap())
            .await
            .unwrap();
    assert_eq!(answer.status(), 101);
    create(&server, "second").await;
    create(&server, "third").await;
    let mut events = Vec::new();
    while events.len() < 2 {
        if let Message::Text(text) = socket.next().await.unwrap().unwrap() {
            events.push(told(text.as_bytes()));
        }
    }
    assert_eq!(events, ["ADDED second", "ADDED third"]);
    // The server answers a client that says goodbye.
    socket.close(None).await.unwrap();
    while let Some(Ok(message)) = socket.next().await {
        assert!(message.is_close(), "{message:?}");
    }
    assert!(socket.send(Message::Text("more".into())).await.is_err());
}

#[tokio::test]
async fn a_watch_goes_on_after_the_server_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = TestServer::start_in(folder.path(), Store::Embedded).await;
    let first = create(&server, "first").await;
    create(&server, "second").await;
    server.kill();
    drop(server);
    let server = TestServer::start_in(folder.path(), Store::Embedded).await;
    let from = first["metadata"]["resourceVersion"].as_str().unwrap();
    let request = Request::get(format!(
        "{MAPS}?watch=true&resourceVersion={from}&timeoutSeconds=60"
    ))
    .header("Host", "localhost");
    let request = request
        .header("Authorization", format!("Bearer {ADMIN}"))
        .body(Full::default())
        .unwrap();
    let mut body = wire::send(server.port(), request)
        .await
        .unwrap()
        .into_body();
    let (mut text, mut events) = (Vec::new(), Vec::new());
    for want in [
        vec!["ADDED second"],
        vec!["ADDED second", "ADDED third"],
        vec!["ADDED second", "ADDED third", "ADDED fourth"],
    ] {
        while events.len() < want.len() {
            text.extend_from_slice(&body.frame().await.unwrap().unwrap().into_data().unwrap());
            events = text
                .split_inclusive(|byte| *byte == b'\n')
                .filter(|line| line.ends_with(b"\n"))
                .map(told)
                .collect();
        }
        assert_eq!(events, want);
        create(&server, ["third", "fourth", "fifth"][want.len() - 1]).await;
    }
}

#[tokio::test]
async fn a_watch_without_a_version_begins_with_what_exists() {
    let server = TestServer::start().await;
    create(&server, "a").await;
    create(&server, "b").await;
    for (query, want) in [
        ("watch=true", "ADDED a,ADDED b"),
        ("watch=true&resourceVersion=0", "ADDED a,ADDED b"),
        (
            "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
            "ADDED a,ADDED b,BOOKMARK -",
        ),
        (
            "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&labelSelector=x=y&allowWatchBookmarks=true",
            "BOOKMARK -",
        ),
    ] {
        let request =
            Request::get(format!("{MAPS}?{query}&timeoutSeconds=60")).header("Host", "localhost");
        let request = request
            .header("Authorization", format!("Bearer {ADMIN}"))
            .body(Full::default())
            .unwrap();
        let mut body = wire::send(server.port(), request)
            .await
            .unwrap()
            .into_body();
        let want: Vec<&str> = want.split(',').collect();
        let (mut text, mut events) = (Vec::new(), Vec::new());
        while events.len() < want.len() {
            text.extend_from_slice(&body.frame().await.unwrap().unwrap().into_data().unwrap());
            events = text
                .split_inclusive(|byte| *byte == b'\n')
                .filter(|line| line.ends_with(b"\n"))
                .map(told)
                .collect();
        }
        assert_eq!(events, want, "{query}");
    }
}
