//! Logs.

use std::time::Instant;

use http_body_util::{BodyExt, Full};
use serde_json::json;

use super::support::kubelet::{Act, Kubelet, Pki, say};
use super::support::{free_port, http as wire};
use super::{Cluster, PATIENCE, POD, request, status};

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// The flags that name the credentials for kubelets.
pub const CREDENTIALS: [&str; 3] = [
    "--kubelet-certificate-authority",
    "--kubelet-client-certificate",
    "--kubelet-client-key",
];

fn log(query: &str) -> String {
    format!("{POD}/log{query}")
}

#[tokio::test]
async fn logs_are_streamed_as_they_come_and_end_with_their_client() {
    let cluster =
        Cluster::start(|_| Act::Hold(format!("{CHUNKED}6\r\nline 1\r\n").into_bytes())).await;
    let path = log("?follow=true&tailLines=5&timestamps=true&limitBytes=9&previous=false");
    let request = request("GET", &path).body(Full::default()).unwrap();
    let mut answer = wire::send(cluster.server.port(), request).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], "text/plain");
    let first = answer.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(first, "line 1");
    // The client vanishes in the middle, and nobody reads the log any more.
    drop(answer);
    tokio::time::timeout(PATIENCE, cluster.kubelet.left())
        .await
        .unwrap();
    let seen = cluster.kubelet.seen();
    assert_eq!(
        (seen[0].method.as_str(), seen[0].uri.as_str()),
        (
            "GET",
            "/containerLogs/default/p/c?follow=true&limitBytes=9&tailLines=5&timestamps=true"
        )
    );
}

#[tokio::test]
async fn kubelets_see_the_client_certificate_and_no_credentials_of_clients() {
    let cluster = Cluster::start(|_| say("200 OK", "hello")).await;
    let answer = cluster.get(&log("")).await;
    assert_eq!((answer.status, &answer.body[..]), (200, &b"hello"[..]));
    let proxied = cluster
        .ask("POST", &format!("{POD}/attach"), &json!(null))
        .await;
    assert_eq!(status(&proxied).2, "Upgrade request required");
    let seen = cluster.kubelet.seen();
    assert!(seen[0].has_certificate);
    assert!(!seen[0].headers.contains_key("authorization"), "{seen:?}");
}

/// A client gets a Status with the reason, whatever a kubelet does instead of answering.
#[tokio::test]
async fn kubelets_that_do_not_answer_are_told() {
    let cluster = Cluster::start(|seen| {
        let long = "x".repeat(2 << 20);
        match seen
            .uri
            .split_once("tailLines=")
            .map_or("", |(_, what)| what)
        {
            "1" => Act::Say(b"\x15\x03\x01 garbage\r\n\r\n".to_vec()),
            "2" => Act::Say(Vec::new()),
            "3" => Act::Say(format!("HTTP/1.1 200 OK\r\nX-Long: {long}\r\n\r\n").into_bytes()),
            "4" => {
                Act::Say(b"HTTP/1.1 302 Found\r\nLocation: https://evil.example/\r\n\r\n".to_vec())
            }
            "5" => say("404 Not Found", "no such container"),
            "6" => say("500 Internal Server Error", "broken"),
            "7" => say("403 Forbidden", "not you"),
            "8" => Act::Say(format!("{CHUNKED}6\r\nline 1\r\n5\r\nli").into_bytes()),
            _ => say("400 Bad Request", "previous terminated container not found"),
        }
    })
    .await;
    let url = |what: &str| {
        let port = cluster.kubelet.port;
        format!("Get \"https://127.0.0.1:{port}/containerLogs/default/p/c?tailLines={what}\": ")
    };
    let broken = "net/http: HTTP/1.x transport connection broken: malformed HTTP response";
    for (what, code, reason, message) in [
        ("1", 500, "", url("1") + broken),
        ("2", 500, "", url("2") + "EOF"),
        (
            "3",
            500,
            "",
            url("3") + "net/http: server response headers exceeded 1048576 bytes; aborted",
        ),
        ("4", 500, "", url("4") + "redirects forbidden"),
        (
            "5",
            404,
            "NotFound",
            "the server could not find the requested resource ( pods/log p)".to_owned(),
        ),
        (
            "6",
            500,
            "InternalError",
            "Internal error occurred: broken".to_owned(),
        ),
        ("7", 403, "Forbidden", "not you ( pods/log p)".to_owned()),
        (
            "9",
            400,
            "BadRequest",
            "previous terminated container not found".to_owned(),
        ),
    ] {
        let answer = cluster.get(&log(&format!("?tailLines={what}"))).await;
        let want = (code, reason.to_owned(), message);
        assert_eq!(status(&answer), want, "{what}");
    }
    // A log that breaks off has an end.
    let answer = cluster.get(&log("?tailLines=8")).await;
    assert_eq!(answer.status, 200);
    assert!(answer.body.starts_with(b"line 1"), "{answer:?}");
    // Nobody listens.
    let port = free_port();
    let addresses = json!([{"type": "InternalIP", "address": "127.0.0.1"}]);
    cluster.add_node("gone", &addresses, port, &[]).await;
    cluster.add_pod("q", "gone").await;
    let answer = cluster.get("/api/v1/namespaces/default/pods/q/log").await;
    let why = format!(
        "Get \"https://127.0.0.1:{port}/containerLogs/default/q/c\": dial tcp 127.0.0.1:{port}: connect: connection refused"
    );
    assert_eq!(status(&answer), (500, String::new(), why));
}

#[tokio::test]
async fn kubelets_must_be_who_they_are_said_to_be() {
    let pki = Pki::new("127.0.0.1");
    let cluster = Cluster::start_with(&pki, &[], |_| say("200 OK", "hello")).await;
    let other = Pki::new("127.0.0.1").with_clients_of(&pki);
    let impostor = Kubelet::start(&other, |_| say("200 OK", "hello")).await;
    let addresses = json!([{"type": "InternalIP", "address": "127.0.0.1"}]);
    cluster
        .add_node("other", &addresses, impostor.port, &[])
        .await;
    cluster.add_pod("q", "other").await;
    let path = "/api/v1/namespaces/default/pods/q/log";
    let answer = cluster.get(path).await;
    let why = format!(
        "Get \"https://127.0.0.1:{}/containerLogs/default/q/c\": tls: failed to verify certificate: x509: certificate signed by unknown authority",
        impostor.port
    );
    assert_eq!(status(&answer), (500, String::new(), why));
    assert!(impostor.seen().is_empty());
    // Unless the client does not care.
    let answer = cluster
        .get(&format!("{path}?insecureSkipTLSVerifyBackend=true"))
        .await;
    assert_eq!((answer.status, &answer.body[..]), (200, &b"hello"[..]));
}

#[tokio::test]
async fn kubelets_are_reached_by_the_preferred_address() {
    let flags = ["--kubelet-preferred-address-types=ExternalIP,InternalIP"];
    let pki = Pki::new("127.0.0.1");
    let cluster = Cluster::start_with(&pki, &flags, |_| say("200 OK", "hello")).await;
    let addresses = json!([
        {"type": "InternalIP", "address": "192.0.2.1"},
        {"type": "ExternalIP", "address": "127.0.0.1"},
    ]);
    cluster
        .add_node("m", &addresses, cluster.kubelet.port, &[])
        .await;
    cluster.add_pod("q", "m").await;
    let answer = cluster.get("/api/v1/namespaces/default/pods/q/log").await;
    assert_eq!((answer.status, &answer.body[..]), (200, &b"hello"[..]));
    let addresses = json!([{"type": "Hostname", "address": "m3"}]);
    cluster.add_node("m3", &addresses, 1, &[]).await;
    cluster.add_pod("r", "m3").await;
    let answer = cluster.get("/api/v1/namespaces/default/pods/r/log").await;
    let why = "no preferred addresses found; known addresses: [{Hostname m3}]";
    assert_eq!(status(&answer), (500, String::new(), why.to_owned()));
}

/// A kubelet that hangs holds nobody but those who wait for it.
#[tokio::test]
async fn a_kubelet_that_hangs_holds_nobody_else() {
    let mut cluster = Cluster::start(|_| Act::Hold(Vec::new())).await;
    let port = cluster.server.port();
    let waiting: Vec<_> = (0..50)
        .map(|_| {
            let request = request("GET", &log("")).body(Full::default()).unwrap();
            tokio::spawn(wire::send(port, request))
        })
        .collect();
    while cluster.kubelet.seen().len() < 50 {
        tokio::task::yield_now().await;
    }
    let begun = Instant::now();
    assert_eq!(cluster.get(POD).await.status, 200);
    assert!(begun.elapsed() < PATIENCE / 3);
    for one in waiting {
        one.abort();
    }
    // The server goes, whoever waits.
    cluster.server.terminate().await;
}
