//! Servers that end while clients use them.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::connections::RawHttp2;
use crate::overload::MAPS;
use crate::support::etcd::Etcd;
use crate::support::http::Answer;
use crate::support::{ADMIN, Store, TestServer, until};
use crate::{PATIENCE, ask, embedded, wire};

/// A POST of which the server awaits the body, and the body.
async fn begun_post(
    server: &TestServer,
    name: &str,
) -> (impl AsyncReadExt + AsyncWriteExt + Unpin + use<>, String) {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let body = map.to_string();
    let mut stream = wire::connect(server.port()).await.unwrap();
    let head = format!(
        "POST {MAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN}\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut told = [0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
    stream.read_exact(&mut told).await.unwrap();
    (stream, body)
}

fn header<'a>(answer: &'a Answer, name: &str) -> &'a str {
    let value = answer
        .headers
        .get(name)
        .and_then(|value| value.to_str().ok());
    value.unwrap_or("none")
}

#[tokio::test]
async fn new_requests_are_sent_elsewhere_while_others_finish() {
    let (_folder, mut server) = embedded(&["--shutdown-send-retry-after"]).await;
    let (mut running, body) = begun_post(&server, "late").await;
    server.process().terminate();
    until("it comes", async || {
        ask("GET", "/version").status(&server).await == 429
    })
    .await;
    let refused = ask("GET", "/version").send(&server).await;
    assert_eq!(refused.status, 429);
    assert_eq!(
        refused.body,
        "The apiserver is shutting down, please try again later.\n"
    );
    for (name, value) in [
        ("retry-after", "5"),
        ("connection", "close"),
        ("content-type", "text/plain; charset=utf-8"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(header(&refused, name), value, "{name}");
    }
    // Probes, scrapes and the server itself are answered to the end.
    assert_eq!(ask("GET", "/readyz").status(&server).await, 500);
    for path in ["/livez", "/metrics"] {
        assert_eq!(ask("GET", path).status(&server).await, 200, "{path}");
    }
    let own = ask("GET", MAPS).header("User-Agent", "kube-apiserver/v1.36");
    assert_eq!(own.status(&server).await, 200);
    let mut client = RawHttp2::to(&server).await;
    client.get("/version", ADMIN).await;
    client.frame_of(|frame| frame.kind == 7).await;

    running.write_all(body.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A connection that is closed without a word is closed, too.
    let _ = running.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 201 Created"), "{answer}");
    assert!(server.process().ends().await, "{}", server.log());
}

/// A request on a connection that its client does not know to be closing.
#[tokio::test]
async fn requests_that_come_too_late_are_sent_elsewhere() {
    let (_folder, mut server) = embedded(&[]).await;
    let (running, _body) = begun_post(&server, "late").await;
    let mut client = RawHttp2::to(&server).await;
    let first = client.get("/version", ADMIN).await;
    client
        .frame_of(|frame| frame.kind == 0 && frame.stream == first)
        .await;
    server.process().terminate();
    client.frame_of(|frame| frame.kind == 7).await;
    let late = client.get("/version", ADMIN).await;
    let answer = client
        .frame_of(|frame| frame.kind == 0 && frame.stream == late)
        .await;
    assert_eq!(
        String::from_utf8_lossy(&answer.payload),
        "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\
         \"message\":\"apiserver is shutting down\",\"reason\":\"ServiceUnavailable\",\"code\":503}\n\n"
    );
    let probe = client.get("/livez", ADMIN).await;
    let answer = client
        .frame_of(|frame| frame.kind == 0 && frame.stream == probe)
        .await;
    assert_eq!(String::from_utf8_lossy(&answer.payload), "ok");
    drop((running, client));
    assert!(server.process().ends().await, "{}", server.log());
}

/// The servers that a client knows of, by their ports.
struct Fleet {
    ports: Mutex<[u16; 2]>,
    turn: AtomicUsize,
    over: AtomicBool,
    /// Requests that were cut off, though their server had taken them.
    lost: Mutex<Vec<String>>,
}

impl Fleet {
    fn next_port(&self) -> u16 {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.ports.lock()[turn % 2]
    }

    /// Sends a request as client-go does: again to another server where none is listening, and
    /// where the answer says so. Whatever else fails is lost.
    async fn send(&self, method: &str, path: &str, body: &str) -> Answer {
        loop {
            let port = self.next_port();
            let request = Request::builder()
                .method(method)
                .uri(path)
                .header("Host", "localhost")
                .header("Authorization", format!("Bearer {ADMIN}"))
                .header("Content-Type", "application/json")
                .body(Full::new(Bytes::from(body.to_owned())))
                .unwrap();
            let Ok(stream) = wire::connect(port).await else {
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            };
            match wire::call_on(stream, request, PATIENCE).await {
                Ok(answer) if answer.headers.contains_key("retry-after") => {}
                Ok(answer) => return answer,
                Err(why) => self.lost.lock().push(format!("{why:?}")),
            }
        }
    }

    /// Makes objects until the end; returns their number.
    async fn write(&self, writer: usize) -> usize {
        let mut number = 0;
        while !self.over.load(Ordering::Relaxed) {
            let name = format!("w{writer}-{number}");
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
            let answer = self.send("POST", MAPS, &map.to_string()).await;
            assert_eq!(answer.status, 201, "{name}");
            number += 1;
        }
        number
    }

    /// Watches as an informer does, on another server when one ends; returns the names in the order
    /// of their events once the last is seen.
    async fn watch(&self, mut version: String, last: &str) -> Vec<String> {
        let mut seen = Vec::new();
        loop {
            let path = format!("{MAPS}?watch=1&allowWatchBookmarks=1&resourceVersion={version}");
            let request = Request::get(path)
                .header("Host", "localhost")
                .header("Authorization", format!("Bearer {ADMIN}"))
                .body(Full::default())
                .unwrap();
            let Ok(answer) = wire::send(self.next_port(), request).await else {
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            };
            if answer.status() != 200 {
                continue;
            }
            let (mut body, mut text) = (answer.into_body(), Vec::new());
            while let Some(Ok(frame)) = body.frame().await {
                text.extend_from_slice(&frame.into_data().unwrap_or_default());
                while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                    let event: Value = serde_json::from_slice(&text[..end]).unwrap();
                    text.drain(..=end);
                    let metadata = &event["object"]["metadata"];
                    version = metadata["resourceVersion"].as_str().unwrap().to_owned();
                    if event["type"] == "BOOKMARK" {
                        continue;
                    }
                    assert_eq!(event["type"], "ADDED", "{event}");
                    let name = metadata["name"].as_str().unwrap().to_owned();
                    if name == last {
                        return seen;
                    }
                    seen.push(name);
                }
            }
        }
    }
}

async fn start(folder: &Path, etcd: &str) -> TestServer {
    let flags = [
        "--shutdown-delay-duration=100ms",
        "--shutdown-send-retry-after",
        "--shutdown-watch-termination-grace-period=1s",
    ];
    TestServer::start_with(folder, Store::Etcd(etcd), &flags).await
}

/// Two servers on one etcd are restarted one after the other, again and again: no write is lost or
/// made twice, and no watch misses an event or sees one twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_loses_nothing() {
    let etcd = tokio::task::spawn_blocking(Etcd::start).await.unwrap();
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut servers = [
        start(folders[0].path(), &etcd.endpoint()).await,
        start(folders[1].path(), &etcd.endpoint()).await,
    ];
    let fleet = Arc::new(Fleet {
        ports: Mutex::new([servers[0].port(), servers[1].port()]),
        turn: AtomicUsize::new(0),
        over: AtomicBool::new(false),
        lost: Mutex::default(),
    });
    let (_, list) = ask("GET", MAPS).answer(&servers[0]).await;
    let version = list["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned();
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let fleet = fleet.clone();
            tokio::spawn(async move { fleet.write(writer).await })
        })
        .collect();
    let watchers: Vec<_> = (0..3)
        .map(|_| {
            let (fleet, version) = (fleet.clone(), version.clone());
            tokio::spawn(async move { fleet.watch(version, "the-end").await })
        })
        .collect();
    for restart in 0..6 {
        let at = restart % 2;
        servers[at].terminate().await;
        servers[at] = start(folders[at].path(), &etcd.endpoint()).await;
        fleet.ports.lock()[at] = servers[at].port();
    }
    fleet.over.store(true, Ordering::Relaxed);
    let mut written = BTreeSet::new();
    for (writer, task) in writers.into_iter().enumerate() {
        let count = task.await.unwrap();
        assert!(count > 10, "{count}");
        written.extend((0..count).map(|number| format!("w{writer}-{number}")));
    }
    let end = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "the-end"}});
    assert_eq!(fleet.send("POST", MAPS, &end.to_string()).await.status, 201);
    assert_eq!(*fleet.lost.lock(), [""; 0], "requests were cut off");
    for watcher in watchers {
        let seen = tokio::time::timeout(PATIENCE, watcher)
            .await
            .unwrap()
            .unwrap();
        // The configuration of authentication is in another namespace; this one has the root CA.
        let events = seen.len();
        let names: BTreeSet<String> = seen.into_iter().collect();
        assert_eq!(events, names.len(), "an event came twice");
        let missing: Vec<_> = written.difference(&names).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
