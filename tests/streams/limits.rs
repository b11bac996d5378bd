//! Clients that want more of other servers than there is for them, and those that go while a
//! kubelet hangs.

use futures::SinkExt;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::json;
use tokio::time::timeout;

use super::commands::{Socket, open};
use super::support::kubelet::{Act, Pki};
use super::support::{ADMIN, USER, http as wire};
use super::{Cluster, PATIENCE, POD};

const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
/// A log that has begun.
const BEGUN: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";

/// A log that is being read.
async fn log(
    cluster: &Cluster,
    token: &str,
) -> http::Response<impl BodyExt<Data = bytes::Bytes> + Unpin + use<>> {
    let request = Request::get(format!("{POD}/log?follow=true"))
        .header("Host", "localhost")
        .header("Authorization", format!("Bearer {token}"));
    let request = request.body(Full::default()).unwrap();
    wire::send(cluster.server.port(), request).await.unwrap()
}

/// The descriptors of the server are not one user's.
#[tokio::test]
async fn one_user_cannot_hold_all_connections_to_other_servers() {
    // Of 256 files 76 may be such connections, and of these 19 one user's.
    let pki = Pki::new("127.0.0.1");
    let cluster = Cluster::start_after("ulimit -n 256", &pki, &[], |_| Act::Hold(BEGUN.to_vec()));
    let cluster = cluster.await;
    let subject = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"});
    let role = json!({"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": "cluster-admin"});
    let binding = json!({"metadata": {"name": "alice"}, "subjects": [subject], "roleRef": role});
    assert_eq!(cluster.ask("POST", BINDINGS, &binding).await.status, 201);
    let mut held = Vec::new();
    let allowed = async {
        while held.len() < 19 {
            let answer = log(&cluster, USER).await;
            match answer.status().as_u16() {
                200 => held.push(answer),
                // The binding is not known yet.
                403 if held.is_empty() => {}
                other => panic!("{other} after {}", held.len()),
            }
        }
    };
    timeout(PATIENCE, allowed).await.unwrap();
    let refused = log(&cluster, USER).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(
        log(&cluster, ADMIN).await.status(),
        200,
        "the administrator"
    );
    // What she does not read any more is free for her again.
    held.pop();
    let again = async { while log(&cluster, USER).await.status() != 200 {} };
    timeout(PATIENCE, again).await.unwrap();
}

/// A kubelet that takes connections and says nothing is not waited for in the name of the gone.
#[tokio::test]
async fn clients_that_go_while_a_kubelet_hangs_are_not_waited_for() {
    let cluster = Cluster::start(|_| Act::Hold(Vec::new())).await;
    let path = format!("{POD}/exec?command=sh&stdin=1&stdout=1");
    let mut socket: Socket = open(&cluster, &path, "v5.channel.k8s.io").await.unwrap();
    let asked = async {
        while cluster.kubelet.seen().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, asked).await.unwrap();
    let early = b"\0what is typed early".to_vec().into();
    let early = tokio_tungstenite::tungstenite::Message::Binary(early);
    socket.send(early).await.unwrap();
    drop(socket);
    timeout(PATIENCE, cluster.kubelet.left()).await.unwrap();
}
