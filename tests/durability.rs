//! Acknowledged writes survive: SIGKILL in the middle of writes, on both stores; and one data
//! folder has one server.

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use support::etcd::Etcd;
use support::{ADMIN, Store, TestServer, free_port};

/// Clients that write at a time.
const WRITERS: usize = 8;
/// Number of writes that are acknowledged before the server is killed.
const ACKNOWLEDGED: usize = 200;
/// More than a writer can write before that.
const ATTEMPTS: usize = 10_000;

fn api(client: Client) -> Api<ConfigMap> {
    Api::namespaced(client, "default")
}

fn object(name: String) -> ConfigMap {
    let data = BTreeMap::from([("text".to_owned(), "x".repeat(1000))]);
    let mut object = ConfigMap {
        data: Some(data),
        ..ConfigMap::default()
    };
    object.metadata.name = Some(name);
    object
}

/// Writes until the server is gone; the objects that it said it has.
async fn write(client: Client, writer: usize, acknowledged: &AtomicUsize) -> Vec<ConfigMap> {
    let (api, mut made) = (api(client), Vec::new());
    for attempt in 0..ATTEMPTS {
        let Ok(object) = api
            .create(
                &PostParams::default(),
                &object(format!("w{writer}-{attempt}")),
            )
            .await
        else {
            break;
        };
        made.push(object);
        acknowledged.fetch_add(1, Ordering::Relaxed);
    }
    made
}

/// Kills the server while clients write, starts another on the same store, and compares what it has
/// with what was said.
async fn survives_a_kill(folder: &Path, store: Store<'_>) {
    let mut server = TestServer::start_in(folder, store).await;
    let acknowledged = AtomicUsize::new(0);
    let writers =
        join_all((0..WRITERS).map(|writer| write(server.client(ADMIN), writer, &acknowledged)));
    let kill = async {
        while acknowledged.load(Ordering::Relaxed) < ACKNOWLEDGED {
            tokio::task::yield_now().await;
        }
        server.kill();
    };
    let (made, ()) = futures::join!(writers, kill);
    let made: Vec<ConfigMap> = made.into_iter().flatten().collect();
    assert!(made.len() >= ACKNOWLEDGED);

    let server = TestServer::start_in(folder, store).await;
    let api = api(server.client(ADMIN));
    let list = api.list(&ListParams::default()).await.expect("listed");
    let found: BTreeMap<String, ConfigMap> = list
        .items
        .into_iter()
        .map(|object| (object.name_any(), object))
        .collect();
    for object in &made {
        assert_eq!(
            found.get(&object.name_any()),
            Some(object),
            "acknowledged, and not the same after the kill"
        );
    }
    let version = |object: &ConfigMap| {
        object
            .resource_version()
            .and_then(|version| version.parse::<i64>().ok())
    };
    let next = api
        .create(&PostParams::default(), &object("next".to_owned()))
        .await
        .expect("created");
    assert!(
        found
            .values()
            .all(|object| version(object) < version(&next)),
        "versions go on growing"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn embedded() {
    let folder = tempfile::tempdir().expect("a folder");
    survives_a_kill(folder.path(), Store::Embedded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd() {
    let (folder, etcd) = (tempfile::tempdir().expect("a folder"), Etcd::start());
    survives_a_kill(folder.path(), Store::Etcd(&etcd.endpoint())).await;
}

#[tokio::test]
async fn a_second_server_on_the_same_folder_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = TestServer::start_in(folder.path(), Store::Embedded).await;
    let mut second = TestServer::spawn(folder.path(), Store::Embedded, free_port());
    assert!(!second.ends().await, "it came up:\n{}", second.log());
    let (log, data) = (
        second.log(),
        folder.path().join("data").display().to_string(),
    );
    assert!(
        log.contains(&data) && !log.contains("panicked"),
        "the error names the folder:\n{log}"
    );
    first
        .client(ADMIN)
        .apiserver_version()
        .await
        .expect("the first goes on");
}
