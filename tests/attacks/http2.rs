//! Hostile peers on HTTP/2 and below it: floods of frames, headers that grow when they are decoded,
//! windows that never open, handshakes that never end. What they make the server hold is bounded,
//! and others are served meanwhile.

use std::fs;

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::connections::{RawHttp2, frame, header_block};
use crate::support::{ADMIN, Store, TestServer, USER, http as wire};
use crate::{PATIENCE, ask, both, embedded};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const UNKNOWN: u8 = 0xfa;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

const NAMESPACE: &str = "/api/v1/namespaces/default";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// The memory that a flood may cost, in KiB.
const FLOOD_MEMORY: u64 = 96 * 1024;
/// The requests of another client that are answered during a flood.
const SERVED: usize = 30;

/// The number of files that a server has open.
fn open_files(server: &TestServer) -> usize {
    let files = fs::read_dir(format!("/proc/{}/fd", server.id()));
    files.unwrap().count()
}

/// Frames that a client sends without an end, as `next` gives them for each round.
async fn flood(server: &TestServer, start: Vec<u8>, next: impl Fn(u32) -> Vec<u8>) {
    let mut client = RawHttp2::to(server).await;
    client.get(NAMESPACE, ADMIN).await;
    // The server does not know who it is before that.
    client.frame_of(|frame| frame.kind == HEADERS).await;
    if client.stream.write_all(&start).await.is_err() {
        return;
    }
    for round in 0.. {
        let some: Vec<u8> = (round * 64..(round + 1) * 64).flat_map(&next).collect();
        // It has had enough, and says so by closing; or it reads no more until it is read itself.
        if client.stream.write_all(&some).await.is_err() {
            return;
        }
    }
}

/// The frames of a round.
type Round<'a> = Box<dyn Fn(u32) -> Vec<u8> + 'a>;

/// The stream of the round's request; the first is that of [`flood`] itself.
fn stream(round: u32) -> u32 {
    2 * round + 3
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_of_frames_cost_little_and_stop_nobody() {
    let get = header_block("GET", MAPS, ADMIN);
    let post = header_block("POST", MAPS, ADMIN);
    let literal = |name: &[u8], value: &[u8]| {
        [&[0, name.len() as u8], name, &[value.len() as u8], value].concat()
    };
    // An entry of the dynamic table, and a block of references to it.
    let (mut large, more) = (b"\x40\x01a\x7f\x81\x1e".to_vec(), vec![b'x'; 4000]);
    large.extend(more);
    let bomb = [get.clone(), large, vec![0xbe; 12_000]].concat();
    let attacks: [(&str, Vec<u8>, Round<'_>); 10] = [
        ("PING", vec![], Box::new(|_| frame(PING, 0, 0, b"12345678"))),
        (
            "SETTINGS",
            vec![],
            Box::new(|round| {
                let window = (round % 2 * 65_535).to_be_bytes();
                frame(SETTINGS, 0, 0, &[&[0, 4], &window[..]].concat())
            }),
        ),
        (
            "WINDOW_UPDATE",
            vec![],
            Box::new(|_| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ),
        (
            "PRIORITY",
            vec![],
            Box::new(|round| frame(PRIORITY, 0, stream(round), &[0, 0, 0, 0, 1])),
        ),
        (
            "unknown frames",
            vec![],
            Box::new(|_| frame(UNKNOWN, 0, 0, &[0; 64])),
        ),
        (
            "reads that are reset",
            vec![],
            Box::new(|round| {
                let mut both = frame(HEADERS, END_HEADERS | END_STREAM, stream(round), &get);
                both.extend(frame(RST_STREAM, 0, stream(round), &[0, 0, 0, 8]));
                both
            }),
        ),
        (
            "writes that are reset",
            vec![],
            Box::new(|round| {
                let mut both = frame(HEADERS, END_HEADERS, stream(round), &post);
                both.extend(frame(DATA, 0, stream(round), b"{"));
                both.extend(frame(RST_STREAM, 0, stream(round), &[0, 0, 0, 8]));
                both
            }),
        ),
        (
            "empty DATA",
            frame(HEADERS, END_HEADERS, stream(0), &post),
            Box::new(|_| frame(DATA, 0, stream(0), b"")),
        ),
        (
            "CONTINUATION",
            frame(HEADERS, 0, stream(0), &get),
            Box::new(|_| frame(CONTINUATION, 0, stream(0), &literal(b"a", b"b").repeat(100))),
        ),
        (
            "headers that grow",
            vec![],
            Box::new(|round| frame(HEADERS, END_HEADERS | END_STREAM, stream(round), &bomb)),
        ),
    ];
    both(&[], async |server| {
        for (attack, start, next) in &attacks {
            let before = server.memory_kib("VmHWM");
            let served = async {
                for _ in 0..SERVED {
                    let status = ask("GET", NAMESPACE).status(server).await;
                    assert_eq!(status, 200, "during {attack}");
                }
            };
            let served = tokio::time::timeout(PATIENCE, served);
            tokio::select! {
                done = served => done.unwrap_or_else(|_| panic!("{attack} stops others")),
                () = async {
                    flood(server, start.clone(), next).await;
                    std::future::pending().await
                } => {}
            }
            let more = server.memory_kib("VmHWM").saturating_sub(before);
            assert!(more < FLOOD_MEMORY, "{attack} costs {more} KiB");
        }
        assert!(!server.log().contains("panicked"), "{}", server.log());
    })
    .await;
}

/// Lists and watches on connections whose windows let a byte through, and never another.
#[tokio::test(flavor = "multi_thread")]
async fn streams_without_a_window_hold_little() {
    const READS: usize = 40;
    let (_folder, server) = embedded(&["--max-requests-inflight=40"]).await;
    let binding = json!({
        "metadata": {"name": "alice"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    assert_eq!(
        ask("POST", bindings).json(&binding).status(&server).await,
        201
    );
    for at in 0..20 {
        let map = json!({"metadata": {"name": format!("large-{at}")}, "data": {"text": "x".repeat(200_000)}});
        assert_eq!(ask("POST", MAPS).json(&map).status(&server).await, 201);
    }
    let before = server.memory_kib("VmHWM");
    let mut held = Vec::new();
    for _ in 0..8 {
        let mut client = RawHttp2::to(&server).await;
        let window = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1]);
        client.stream.write_all(&window).await.unwrap();
        for at in 0..100 {
            let path = if at % 2 == 0 {
                MAPS.to_owned()
            } else {
                format!("{MAPS}?watch=1&sendInitialEvents=false")
            };
            client.get(&path, USER).await;
        }
        held.push(client);
    }
    // Each holds its place, so the rest of the reads is turned away; writers and others are not.
    for client in &mut held {
        client.frame_of(|frame| frame.kind == HEADERS).await;
    }
    for at in 0..SERVED {
        let map = json!({"metadata": {"name": format!("small-{at}")}});
        assert_eq!(ask("POST", MAPS).json(&map).status(&server).await, 201);
    }
    let more = server.memory_kib("VmHWM").saturating_sub(before);
    let bound = FLOOD_MEMORY + READS as u64 * 1024;
    assert!(more < bound, "{more} KiB for {} streams", held.len() * 100);
}

/// Connections that say nothing, half a greeting, or nothing after the handshake.
#[tokio::test(flavor = "multi_thread")]
async fn handshakes_that_never_end_lock_nobody_out() {
    let folder = tempfile::tempdir().unwrap();
    let server =
        TestServer::start_after("ulimit -n 256", folder.path(), Store::Embedded, &[]).await;
    let (mut silent, mut greeted) = (Vec::new(), Vec::new());
    for at in 0..300 {
        match at % 3 {
            0 => greeted.push(wire::connect(server.port()).await.unwrap()),
            kind => {
                let mut stream = TcpStream::connect(("127.0.0.1", server.port()))
                    .await
                    .unwrap();
                if kind == 1 {
                    // The head of a record with a ClientHello, and half of that.
                    let _ = stream
                        .write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
                        .await;
                }
                silent.push(stream);
            }
        }
        if at % 10 == 9 {
            assert_eq!(
                ask("GET", NAMESPACE).status(&server).await,
                200,
                "after {at}"
            );
        }
    }
    let files = open_files(&server);
    assert!(files < 128, "{files} files");
}
