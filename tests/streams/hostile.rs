//! Kubelets and clients that talk without end, do not listen, or vanish: what they can make the
//! server hold is bounded, and given back.

use futures::{SinkExt, StreamExt, future};
use http_body_util::Full;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use super::commands::open;
use super::support::http as wire;
use super::support::kubelet::{Act, Kubelet, Pki, say, switched};
use super::{Cluster, PATIENCE, POD, request, status};

const V5: &str = "v5.channel.k8s.io";
const PORTS: &str = "SPDY/3.1+portforward.k8s.io";
/// More than the sockets between the two hold.
const MUCH: usize = 64 << 20;
/// The memory that a waiting stream takes at most, in a build for tests.
const MAX_IDLE_BYTES: usize = 200 * 1024;
/// The memory that a flood takes at most.
const MAX_FLOOD_BYTES: usize = 24 << 20;

fn exec(command: &str) -> String {
    format!("{POD}/exec?command={command}&stdin=1&stdout=1")
}

/// The resident bytes of the server.
pub fn memory(cluster: &Cluster) -> usize {
    cluster.server.memory_kib("VmRSS") as usize * 1024
}

/// The streams that the server counts.
async fn open_streams(cluster: &Cluster) -> usize {
    let metrics = cluster.get("/metrics").await;
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    let lines = text.lines().filter(|line| {
        line.starts_with("apiserver_longrunning_requests{") && line.contains("\"pods\"")
    });
    lines
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<usize>().unwrap())
        .sum()
}

/// Waits until no stream is left.
pub async fn freed(cluster: &Cluster) {
    let all = async { while open_streams(cluster).await > 0 {} };
    timeout(PATIENCE, all).await.unwrap();
}

#[tokio::test]
async fn a_thousand_idle_streams_are_small_counted_and_freed() {
    const COUNT: usize = 1000;
    let cluster = Cluster::start(|_| Act::Command).await;
    let path = exec("stay");
    drop(open(&cluster, &path, V5).await.unwrap());
    freed(&cluster).await;
    let before = memory(&cluster);
    let mut sockets = Vec::new();
    while sockets.len() < COUNT {
        // A few at once: the server waits for a first request no longer than it must.
        let some = (0..8).map(|_| open(&cluster, &path, V5));
        for socket in future::join_all(some).await {
            let refused = |why| {
                panic!(
                    "{} are open: {why}\n{}",
                    sockets.len(),
                    cluster.server.log()
                )
            };
            sockets.push(socket.unwrap_or_else(refused));
        }
    }
    while cluster.kubelet.seen().len() <= COUNT {
        tokio::task::yield_now().await;
    }
    assert_eq!(open_streams(&cluster).await, COUNT);
    let each = memory(&cluster).saturating_sub(before) / COUNT;
    assert!(each < MAX_IDLE_BYTES, "{each} bytes each");
    drop(sockets);
    freed(&cluster).await;
}

/// Bytes that one side does not take are not read from the other.
#[tokio::test]
async fn floods_wait_for_those_who_do_not_listen() {
    // Data of the stream of stdout, the third that is opened.
    let mut data = vec![0, 0, 0, 5, 0, 0, 0x40, 0];
    data.resize(8 + 0x4000, 7);
    let cluster = Cluster::start(move |seen| match &*seen.uri {
        uri if uri.starts_with("/portForward") => {
            Act::Flood(switched("portforward.k8s.io").into(), vec![7; 1 << 16])
        }
        uri if uri.contains("flood") => Act::Flood(switched(V5).into(), data.clone()),
        uri if uri.starts_with("/containerLogs") => {
            Act::Flood(b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b'x'; 1 << 16])
        }
        _ => say("404 Not Found", ""),
    })
    .await;
    let before = memory(&cluster);
    // Kubelets that talk to clients that do not listen.
    let mut streams = Vec::new();
    for _ in 0..10 {
        streams.push(open(&cluster, &exec("flood"), V5).await.unwrap());
        let ports = format!("{POD}/portforward?ports=80");
        streams.push(open(&cluster, &ports, PORTS).await.unwrap());
    }
    // A client that talks to a kubelet that does not listen, as long as it is let.
    let mut deaf = open(&cluster, &exec("flood"), V5).await.unwrap();
    let mut message = vec![0; 1 << 16];
    message[0] = 0;
    let mut sent = 0;
    while sent < MUCH {
        let sending = deaf.send(Message::Binary(message.clone().into()));
        match timeout(std::time::Duration::from_millis(500), sending).await {
            Ok(said) => said.unwrap(),
            Err(_) => break,
        }
        sent += message.len();
    }
    assert!(sent < MUCH, "the server takes all that it cannot hand on");
    let held = memory(&cluster).saturating_sub(before);
    assert!(held < MAX_FLOOD_BYTES, "{held} bytes");
    assert_eq!(open_streams(&cluster).await, 21);
    // They vanish in the middle.
    drop((streams, deaf));
    freed(&cluster).await;
    // So does a reader of a log.
    let mut stream = wire::connect(cluster.server.port()).await.unwrap();
    let head = format!(
        "GET {POD}/log?follow=true HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n",
        super::support::ADMIN
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.read_u8().await.unwrap();
    drop(stream);
    freed(&cluster).await;
}

/// Clients that break the protocol, and kubelets that talk of what nobody has asked for.
#[tokio::test]
async fn nonsense_within_streams_ends_them_or_is_left_out() {
    // Frames of unknown streams, answers again and again, pings of both sides, an unknown frame.
    let mut nonsense = Vec::new();
    for frame in [
        &b"\x00\x00\x00\x63\x00\x00\x00\x02hi"[..],
        b"\x80\x03\x00\x02\x00\x00\x00\x04\x00\x00\x00\x05",
        b"\x80\x03\x00\x06\x00\x00\x00\x04\x00\x00\x00\x02",
        b"\x80\x03\x00\x06\x00\x00\x00\x04\x00\x00\x00\x03",
        b"\x80\x03\xff\x00\x00\x00\x00\x00",
        b"\x80\x03\x00\x01\x00\x00\x00\x0a\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00",
        b"\x00\x00\x00\x05\x00\x00\x00\x00",
    ] {
        nonsense.extend_from_slice(&frame.repeat(1000));
    }
    let mut rest = nonsense.clone();
    // Something at last, and the ends of all.
    rest.extend_from_slice(b"\x00\x00\x00\x05\x01\x00\x00\x02ok\x00\x00\x00\x01\x01\x00\x00\x00");
    let cluster = Cluster::start(move |seen| match seen.uri.contains("nonsense") {
        true => Act::Hold([switched(V5).as_bytes(), &rest[..]].concat()),
        false => Act::Command,
    })
    .await;
    let mut socket = open(&cluster, &exec("nonsense"), V5).await.unwrap();
    let mut heard = Vec::new();
    while let Some(Ok(message)) = timeout(PATIENCE, socket.next()).await.unwrap() {
        if let Message::Binary(bytes) = message
            && bytes.len() > 1
        {
            heard.push(String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    let success = r#"{"metadata":{},"status":"Success"}"#;
    assert_eq!(heard, ["\u{1}ok", &format!("\u{3}{success}")]);
    // Messages of no channel are left out; ends of channels that there are not end the stream.
    for (message, goes_on) in [
        (Message::Binary(vec![9, 1, 2].into()), true),
        (Message::Binary(Vec::new().into()), true),
        (Message::Text("\u{4}no size".into()), true),
        (Message::Binary(vec![255].into()), false),
        (Message::Binary(vec![255, 77].into()), false),
    ] {
        let shown = format!("{:?}", message.clone().into_data().get(..2));
        let mut socket = open(&cluster, &exec("cat"), V5).await.unwrap();
        // The server may cut the connection before it has taken all.
        let said = socket.send(message).await;
        let asked = match said {
            Ok(()) => socket.send(Message::Binary(b"\0x".to_vec().into())).await,
            Err(why) => Err(why),
        };
        let mut echoed = false;
        while asked.is_ok() && !echoed {
            match timeout(PATIENCE, socket.next()).await.unwrap() {
                Some(Ok(Message::Binary(bytes))) => echoed = &bytes[..] == b"\x01x",
                Some(Ok(_)) => {}
                _ => break,
            }
        }
        assert_eq!(echoed, goes_on, "{shown}");
        drop(socket);
        freed(&cluster).await;
    }
}

/// Streams are not opened to a kubelet whose certificate is by somebody else; the client is told so
/// as upstream tells it.
#[tokio::test]
async fn streams_go_to_no_impostor() {
    let pki = Pki::new("127.0.0.1");
    let cluster = Cluster::start_with(&pki, &[], |_| Act::Command).await;
    let other = Pki::new("127.0.0.1").with_clients_of(&pki);
    let impostor = Kubelet::start(&other, |_| Act::Command).await;
    let addresses = json!([{"type": "InternalIP", "address": "127.0.0.1"}]);
    cluster
        .add_node("other", &addresses, impostor.port, &[])
        .await;
    cluster.add_pod("q", "other").await;
    let q = "/api/v1/namespaces/default/pods/q";
    let unknown =
        "tls: failed to verify certificate: x509: certificate signed by unknown authority";
    // The client of a translated command has been answered already.
    let path = format!("{q}/exec?command=cat&stdin=1&stdout=1");
    let mut socket = open(&cluster, &path, V5).await.unwrap();
    let mut told = String::new();
    while let Some(Ok(message)) = timeout(PATIENCE, socket.next()).await.unwrap() {
        told.push_str(&String::from_utf8_lossy(&message.into_data()));
    }
    assert!(told.contains(unknown), "{told}");
    for (method, path, upgrade) in [
        ("POST", path, "SPDY/3.1"),
        ("GET", format!("{q}/portforward?ports=80"), "websocket"),
    ] {
        let request = request(method, &path)
            .header("Connection", "Upgrade")
            .header("Upgrade", upgrade)
            .header("Sec-WebSocket-Protocol", PORTS)
            .header("Sec-WebSocket-Version", "13")
            .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
            .body(Full::default());
        let answer = wire::call(cluster.server.port(), request.unwrap(), PATIENCE).await;
        let why = format!("error dialing backend: {unknown}");
        assert_eq!(
            status(&answer.unwrap()),
            (500, String::new(), why),
            "{path}"
        );
    }
    assert!(impostor.seen().is_empty());
}

/// Refusals and heads without end are cut.
#[tokio::test]
async fn endless_answers_to_upgrades_are_cut() {
    let cluster = Cluster::start(|seen| match &*seen.uri {
        uri if uri.contains("head") => Act::Flood(
            b"HTTP/1.1 101 Switching Protocols\r\nX-Long: ".to_vec(),
            vec![b'x'; 1 << 16],
        ),
        uri if uri.contains("body") => Act::Flood(
            b"HTTP/1.1 403 Forbidden\r\n\r\n".to_vec(),
            vec![b'x'; 1 << 16],
        ),
        _ => say("403 Forbidden", ""),
    })
    .await;
    let before = memory(&cluster);
    for (command, why) in [
        ("head", "header size limit exceeded"),
        ("body", "unable to upgrade connection: xxxx"),
        (
            "none",
            "unable to upgrade connection: empty server response",
        ),
    ] {
        let mut socket = open(&cluster, &exec(command), V5).await.unwrap();
        let mut told = String::new();
        while let Some(Ok(message)) = timeout(PATIENCE, socket.next()).await.unwrap() {
            told.push_str(&String::from_utf8_lossy(&message.into_data()));
        }
        assert!(told.contains(why), "{}", &told[..told.len().min(500)]);
        freed(&cluster).await;
    }
    let held = memory(&cluster).saturating_sub(before);
    assert!(held < MAX_FLOOD_BYTES, "{held} bytes");
}
