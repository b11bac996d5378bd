//! The commands that take, move and copy data, against servers that run, were stopped, or are
//! killed: nothing is lost, and what went wrong is said.

#![allow(clippy::unwrap_used)]

mod forks;
mod hosts;
mod migrations;
mod snapshots;
mod space;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use support::{ADMIN, TestServer};

/// The outcome of a command: whether it succeeded, and its output and messages.
struct Outcome {
    succeeded: bool,
    text: String,
}

impl Outcome {
    /// The output of a command that is to succeed.
    #[track_caller]
    fn ok(self) -> String {
        assert!(self.succeeded, "{}", self.text);
        self.text
    }

    /// The message of a command that is to fail with it.
    #[track_caller]
    fn refused(self, message: &str) -> String {
        assert!(
            !self.succeeded && self.text.contains(message),
            "{}",
            self.text
        );
        self.text
    }
}

fn command(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keelson"));
    command.args(args).stdin(Stdio::null());
    command
}

/// Runs a command to its end.
async fn keelson(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Outcome {
    let mut command = command(args);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    let output = output.await.unwrap();
    Outcome {
        succeeded: output.status.success(),
        text: String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr),
    }
}

fn flag(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

fn config_maps(server: &TestServer) -> Api<ConfigMap> {
    Api::namespaced(server.client(ADMIN), "default")
}

async fn create(server: &TestServer, name: &str) -> ConfigMap {
    let mut object = ConfigMap {
        data: Some(BTreeMap::from([("text".to_owned(), "x".repeat(1000))])),
        ..ConfigMap::default()
    };
    object.metadata.name = Some(name.to_owned());
    config_maps(server)
        .create(&PostParams::default(), &object)
        .await
        .unwrap()
}

/// The ConfigMaps of namespace default by name, without the one that controllers make.
async fn found(server: &TestServer) -> BTreeMap<String, ConfigMap> {
    let list = config_maps(server)
        .list(&ListParams::default())
        .await
        .unwrap();
    let named = list
        .items
        .into_iter()
        .map(|object| (object.name_any(), object));
    named
        .filter(|(name, _)| name != "kube-root-ca.crt")
        .collect()
}

/// Pretends to be the server of a data directory: answers the first client with some bytes, waits
/// for `then`, and goes.
fn false_server(
    folder: &Path,
    answer: Vec<u8>,
    then: impl FnOnce() + Send + 'static,
) -> std::thread::JoinHandle<String> {
    use std::io::{BufRead, BufReader, Write};
    std::fs::create_dir_all(folder).unwrap();
    let listener = UnixListener::bind(folder.join("keelson.sock")).unwrap();
    std::thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let mut line = String::new();
        BufReader::new(&client).read_line(&mut line).unwrap();
        // It may have gone.
        let _ = (&client).write_all(&answer);
        then();
        line
    })
}
