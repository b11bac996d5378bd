//! Ports of pods: SPDY within the messages of a WebSocket.

use futures::{SinkExt, StreamExt};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use super::commands::open;
use super::support::kubelet::{Act, say, switched};
use super::{Cluster, PATIENCE, POD};

const PROTOCOL: &str = "SPDY/3.1+portforward.k8s.io";

#[tokio::test]
async fn ports_are_forwarded_within_messages() {
    let cluster = Cluster::start(|_| Act::Echo(switched("portforward.k8s.io").into_bytes())).await;
    let path = format!("{POD}/portforward?ports=80");
    let mut socket = open(&cluster, &path, PROTOCOL).await.unwrap();
    let sent = vec![7; 100_000];
    socket
        .send(Message::Binary(sent.clone().into()))
        .await
        .unwrap();
    let mut heard = Vec::new();
    while heard.len() < sent.len() {
        let message = timeout(PATIENCE, socket.next()).await.unwrap();
        heard.extend_from_slice(&message.unwrap().unwrap().into_data());
    }
    assert!(heard == sent);
    let seen = &cluster.kubelet.seen()[0];
    assert_eq!(
        (seen.method.as_str(), seen.uri.as_str()),
        ("POST", "/portForward/default/p?port=80")
    );
    assert_eq!(seen.header("upgrade"), "SPDY/3.1");
    assert_eq!(
        seen.header("x-stream-protocol-version"),
        "portforward.k8s.io"
    );
    assert!(!seen.headers.contains_key("sec-websocket-key"));
    // The end of the client is the kubelet's.
    socket.close(None).await.unwrap();
    timeout(PATIENCE, cluster.kubelet.left()).await.unwrap();
}

#[tokio::test]
async fn kubelets_that_forward_no_ports_are_told() {
    let cluster = Cluster::start(|seen| match seen.uri.contains("81") {
        true => Act::Say(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
                .to_vec(),
        ),
        false => say("403 Forbidden", "not you"),
    })
    .await;
    for (port, code) in [(80, "403"), (81, "500")] {
        let path = format!("{POD}/portforward?ports={port}");
        let refused = open(&cluster, &path, PROTOCOL).await.unwrap_err();
        assert!(
            refused.starts_with(&format!("http/1.1 {code} ")),
            "{refused}"
        );
    }
}
