//! Attacks over the wire: each module is an area, each test an attack that must fail. Most run on
//! both stores ([`both`]).

#![allow(clippy::unwrap_used)]

mod admission_metrics;
mod admission_plugins;
mod aggregation;
mod audit;
mod audit_events;
mod authorization_webhooks;
mod bodies;
mod connections;
mod conversions;
mod documented;
mod encodings;
mod encryption;
mod etcd_flags;
mod exact_reads;
mod external_signer;
mod fairness;
mod files;
mod flags;
mod honesty;
mod http2;
mod identity;
mod kms_v1;
mod leaving;
mod memory;
mod metrics;
mod mutating_policies;
mod oidc;
mod overload;
mod paths;
mod pod_security;
mod policies;
mod profiling;
mod protocol;
mod rules;
mod rotation;
mod services;
mod store_faults;
#[path = "../support/mod.rs"]
mod support;
mod token_webhook;
mod traces;
mod webhooks;

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::Value;
use support::etcd::Etcd;
use support::http::Answer;
use support::{ADMIN, Store, TestServer, http as wire};

pub const JSON: &str = "application/json";
/// The longest a request may take.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the attack on a server with the embedded store, then on one with etcd, each started with
/// the flags.
pub async fn both(flags: &[&str], attack: impl AsyncFn(&TestServer)) {
    let folder = tempfile::tempdir().unwrap();
    attack(&start(folder.path(), Store::Embedded, flags).await).await;
    let (folder, etcd) = (
        tempfile::tempdir().unwrap(),
        tokio::task::spawn_blocking(Etcd::start).await.unwrap(),
    );
    attack(&start(folder.path(), Store::Etcd(&etcd.endpoint()), flags).await).await;
}

/// A server with the embedded store, in a folder that lasts as long as what is returned.
pub async fn embedded(flags: &[&str]) -> (tempfile::TempDir, TestServer) {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), Store::Embedded, flags).await;
    (folder, server)
}

async fn start(folder: &Path, store: Store<'_>, flags: &[&str]) -> TestServer {
    TestServer::start_with(folder, store, flags).await
}

/// A request to be sent; built by [`ask`].
pub struct Ask<'a> {
    method: &'a str,
    path: &'a str,
    token: &'a str,
    headers: Vec<(&'a str, Vec<u8>)>,
    body: Bytes,
}

/// A request by the administrator, without a body.
pub fn ask<'a>(method: &'a str, path: &'a str) -> Ask<'a> {
    Ask {
        method,
        path,
        token: ADMIN,
        headers: Vec::new(),
        body: Bytes::new(),
    }
}

impl<'a> Ask<'a> {
    /// Sends another token; none where it is empty.
    pub fn by(self, token: &'a str) -> Self {
        Self { token, ..self }
    }

    /// Adds a header, whose value may be any bytes that HTTP lets through.
    pub fn header(mut self, name: &'a str, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Adds a body of a media type.
    pub fn body(self, media: &'a str, body: impl Into<Bytes>) -> Self {
        Self {
            body: body.into(),
            ..self
        }
        .header("Content-Type", media)
    }

    /// Adds a body of JSON.
    pub fn json(self, body: &Value) -> Self {
        self.body(JSON, body.to_string())
    }

    /// Sends it on a connection of its own and reads the whole answer.
    pub async fn send(self, server: &TestServer) -> Answer {
        let mut request = Request::builder()
            .method(self.method)
            .uri(self.path)
            .header("Host", "localhost");
        if !self.token.is_empty() {
            request = request.header("Authorization", format!("Bearer {}", self.token));
        }
        for (name, value) in &self.headers {
            request = request.header(*name, value.as_slice());
        }
        let shown = format!("{} {}", self.method, self.path);
        let answer = wire::call(
            server.port(),
            request.body(Full::new(self.body)).unwrap(),
            PATIENCE,
        )
        .await;
        answer.unwrap_or_else(|why| panic!("{shown}: {why}"))
    }

    /// The status and the body, read as JSON, of [`Ask::send`].
    pub async fn answer(self, server: &TestServer) -> (u16, Value) {
        let answer = self.send(server).await;
        (
            answer.status,
            serde_json::from_slice(&answer.body).unwrap_or_default(),
        )
    }

    /// The status alone of [`Ask::send`].
    pub async fn status(self, server: &TestServer) -> u16 {
        self.send(server).await.status
    }
}
