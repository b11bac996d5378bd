//! Streams to kubelets: logs, commands and ports, with kubelets that answer, hang, break off and
//! talk nonsense, and clients that vanish.

#![allow(clippy::unwrap_used)]

mod admission;
mod commands;
mod egress;
mod frames;
mod hostile;
mod limits;
mod logs;
mod networks;
mod ports;
mod proxied;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};
use support::http::Answer;
use support::kubelet::{Act, Kubelet, Pki, Seen};
use support::{ADMIN, Store, TestServer, http as wire};
use tempfile::TempDir;

/// The longest that anything may take.
const PATIENCE: Duration = Duration::from_secs(30);
const POD: &str = "/api/v1/namespaces/default/pods/p";
const JSON: &str = "application/json";

/// A server, and a kubelet that runs the pod `p` with the container `c`.
struct Cluster {
    server: TestServer,
    kubelet: Kubelet,
    _folder: TempDir,
}

impl Cluster {
    async fn start(answer: impl Fn(&Seen) -> Act + Send + Sync + 'static) -> Self {
        Self::start_with(&Pki::new("127.0.0.1"), &[], answer).await
    }

    async fn start_with(
        pki: &Pki,
        flags: &[&str],
        answer: impl Fn(&Seen) -> Act + Send + Sync + 'static,
    ) -> Self {
        Self::start_after("", pki, flags, answer).await
    }

    /// A server in a process that a shell has prepared with some commands.
    async fn start_after(
        commands: &str,
        pki: &Pki,
        flags: &[&str],
        answer: impl Fn(&Seen) -> Act + Send + Sync + 'static,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut all = pki.write(folder.path(), logs::CREDENTIALS);
        all.push("--disable-admission-plugins=ServiceAccount".to_owned());
        all.extend(flags.iter().map(ToString::to_string));
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let server = TestServer::start_after(commands, folder.path(), Store::Embedded, &all).await;
        let kubelet = Kubelet::start(pki, answer).await;
        let cluster = Self {
            server,
            kubelet,
            _folder: folder,
        };
        let addresses = json!([{"type": "InternalIP", "address": "127.0.0.1"}]);
        cluster
            .add_node("n", &addresses, cluster.kubelet.port, &[])
            .await;
        cluster.add_pod("p", "n").await;
        cluster
    }

    async fn add_node(&self, name: &str, addresses: &Value, port: u16, features: &[&str]) {
        let node = json!({"metadata": {"name": name}});
        assert_eq!(self.ask("POST", "/api/v1/nodes", &node).await.status, 201);
        let node = json!({
            "metadata": {"name": name},
            "status": {
                "addresses": addresses,
                "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
                "declaredFeatures": features,
            },
        });
        let path = format!("/api/v1/nodes/{name}/status");
        let answer = self.ask("PUT", &path, &node).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    async fn add_pod(&self, name: &str, node: &str) {
        let pod = json!({
            "metadata": {"name": name},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
        });
        let answer = self
            .ask("POST", "/api/v1/namespaces/default/pods", &pod)
            .await;
        assert_eq!(answer.status, 201, "{answer:?}");
    }

    /// Sends a request with a JSON body, or none.
    async fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        let body = match body {
            Value::Null => Bytes::new(),
            body => body.to_string().into(),
        };
        let request = request(method, path)
            .header("Content-Type", JSON)
            .body(Full::new(body));
        let answer = wire::call(self.server.port(), request.unwrap(), PATIENCE).await;
        answer.unwrap_or_else(|why| panic!("{method} {path}: {why}"))
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &Value::Null).await
    }
}

fn request(method: &str, path: &str) -> http::request::Builder {
    Request::builder()
        .method(method)
        .uri(path)
        .header("Host", "localhost")
        .header("Authorization", format!("Bearer {ADMIN}"))
}

/// The code, reason and message of a Status.
fn status(answer: &Answer) -> (u16, String, String) {
    let status: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let text = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
    (answer.status, text("reason"), text("message"))
}
