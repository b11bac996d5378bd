//! The binaries that envtest starts: `etcd`, which is this program under that name, and a server
//! that keeps its data where it says.

#![allow(clippy::unwrap_used)]
#![cfg(unix)]

mod support;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use support::{ADMIN, Store, TestServer, free_port};

/// The time within which what must happen does.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval of polling for an expected state.
const LOOK: Duration = Duration::from_millis(10);

/// A stand-in. Dropping it kills it.
struct Etcd {
    process: Child,
    port: u16,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The program under the name `etcd`.
fn etcd(folder: &Path) -> Command {
    let link = folder.join("etcd");
    if !link.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_keelson"), &link).unwrap();
    }
    Command::new(link)
}

impl Etcd {
    async fn start(folder: &Path) -> Self {
        let port = free_port();
        let url = format!("http://127.0.0.1:{port}");
        let process = etcd(folder)
            .arg(format!("--advertise-client-urls={url}"))
            .arg(format!("--data-dir={}", folder.join("store").display()))
            .arg(format!("--listen-client-urls={url}"))
            .args([
                "--listen-peer-urls=http://127.0.0.1:0",
                "--unsafe-no-fsync=true",
            ])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let etcd = Self { process, port };
        let begun = Instant::now();
        while etcd.get("/health").await.is_none() {
            assert!(begun.elapsed() < PATIENCE);
            tokio::time::sleep(LOOK).await;
        }
        etcd
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The status and the body of an answer; `None` if nobody listens.
    async fn get(&self, path: &str) -> Option<(u16, String)> {
        let stream = tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream.ok()?));
        let (mut sender, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        let request = http::Request::get(path)
            .header("Host", "etcd")
            .body(Empty::<bytes::Bytes>::new())
            .unwrap();
        let answer = sender.send_request(request).await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        Some((status, String::from_utf8(body.to_vec()).unwrap()))
    }
}

#[tokio::test]
async fn the_stand_in_answers_health_checks_and_nothing_of_etcd() {
    let folder = tempfile::tempdir().unwrap();
    let mut etcd = Etcd::start(folder.path()).await;
    let (status, body) = etcd.get("/health").await.unwrap();
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &body["health"]), (200, &json!("true")));
    assert_eq!(etcd.get("/v2/keys").await.unwrap().0, 404);
    let killed = Command::new("kill")
        .arg(etcd.process.id().to_string())
        .status();
    assert!(killed.unwrap().success());
    assert!(etcd.process.wait().unwrap().success(), "SIGTERM is its end");
}

#[test]
fn help_and_mistakes_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let help = etcd(folder.path()).arg("--help").output().unwrap();
    assert!(help.status.success());
    let text = String::from_utf8(help.stdout).unwrap();
    assert!(text.lines().any(|line| line.trim() == "--unsafe-no-fsync"));
    let wrong = etcd(folder.path()).arg("--cert-file=a").output().unwrap();
    assert!(!wrong.status.success());
    let text = String::from_utf8(wrong.stderr).unwrap();
    assert!(text.contains("--cert-file is not a flag"), "{text}");
}

#[tokio::test]
async fn a_server_keeps_its_data_where_the_stand_in_says() {
    let folder = tempfile::tempdir().unwrap();
    let etcd = Etcd::start(folder.path()).await;
    let config_maps = "/api/v1/namespaces/default/configmaps";
    let url = etcd.url();
    let mut server = TestServer::start_in(folder.path(), Store::Etcd(&url)).await;
    let object = json!({"metadata": {"name": "kept"}});
    let request = http::Request::post(config_maps)
        .header("Content-Type", "application/json")
        .body(object.to_string().into_bytes())
        .unwrap();
    let client = server.client(ADMIN);
    client.request::<Value>(request).await.unwrap();
    assert!(folder.path().join("store/keelson.redb").exists());
    server.kill();
    // Another server on the same etcd goes on from there.
    let server = TestServer::start_in(folder.path(), Store::Etcd(&url)).await;
    let request = http::Request::get(format!("{config_maps}/kept")).body(Vec::new());
    let client = server.client(ADMIN);
    client.request::<Value>(request.unwrap()).await.unwrap();
    // Nothing else has been made.
    let mut names: Vec<_> = fs::read_dir(folder.path().join("store"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert!(names.contains(&"keelson.redb".to_owned()), "{names:?}");
}
