//! `keelson fork`.

use std::fs;
use std::path::Path;

use crate::support::{Store, TestServer, until};
use crate::{command, create, false_server, found, keelson};

async fn fork(source: &Path, destination: &Path) -> crate::Outcome {
    keelson([
        "fork",
        source.to_str().unwrap(),
        destination.to_str().unwrap(),
    ])
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_has_everything_and_goes_its_own_way() {
    let folder = tempfile::tempdir().unwrap();
    let (data, place) = (folder.path().join("data"), folder.path().join("fork"));
    let mut server = TestServer::start_in(folder.path(), Store::Embedded).await;
    create(&server, "shared").await;
    let before = found(&server).await;
    fork(&data, &place.join("data")).await.ok();
    create(&server, "only-here").await;
    let second = TestServer::start_in(&place, Store::Embedded).await;
    assert_eq!(found(&second).await, before);
    create(&second, "only-there").await;
    assert!(!found(&server).await.contains_key("only-there"));
    for file in ["pki/ca.crt", "pki/ca.key", "pki/sa.key"] {
        let read = |data: &Path| fs::read(data.join(file)).unwrap();
        assert_eq!(read(&data), read(&place.join("data")), "{file}");
    }

    // Its administrator has the same certificate, and reaches it by any name.
    let shown = keelson([
        "kubeconfig",
        "--server=https://elsewhere:7443",
        "--server-name=b.example.com",
        &crate::flag("data-dir", &place.join("data")),
    ])
    .await
    .ok();
    assert!(
        shown.contains("server: https://elsewhere:7443\n    tls-server-name: b.example.com\n"),
        "{shown}"
    );
    let original = fs::read_to_string(data.join("admin.kubeconfig")).unwrap();
    assert_eq!(
        shown
            .lines()
            .filter(|line| !line.contains("server"))
            .collect::<Vec<_>>(),
        original
            .lines()
            .filter(|line| !line.contains("server"))
            .collect::<Vec<_>>()
    );

    // A server that was stopped, even by a kill, has all that it acknowledged.
    let at_last = found(&server).await;
    server.kill();
    let third = folder.path().join("third");
    fork(&data, &third.join("data")).await.ok();
    let third = TestServer::start_in(&third, Store::Embedded).await;
    assert_eq!(found(&third).await, at_last);
}

#[tokio::test]
async fn a_fork_needs_a_source_and_an_empty_place() {
    let folder = tempfile::tempdir().unwrap();
    let (data, place) = (folder.path().join("data"), folder.path().join("fork"));
    fork(&data, &place).await.refused("there is no store in");
    assert!(!place.exists() && !folder.path().join("fork.partial").exists());
    fs::create_dir(&place).unwrap();
    fs::write(place.join("theirs"), "").unwrap();
    fork(&data, &place).await.refused("is not empty");
    assert!(place.join("theirs").exists());
}

#[tokio::test]
async fn a_fork_that_does_not_end_leaves_no_data_directory() {
    let folder = tempfile::tempdir().unwrap();
    // The server goes while the file is copied: whether it was one moment's is unknown.
    let (gone, place) = (folder.path().join("gone"), folder.path().join("fork"));
    fs::create_dir(&gone).unwrap();
    fs::write(gone.join("keelson.redb"), "a file").unwrap();
    let server = false_server(&gone, b"ok\n".to_vec(), || {});
    fork(&gone, &place)
        .await
        .refused("the server has ended in the middle");
    assert_eq!(server.join().unwrap(), "hold\n");
    assert!(!place.exists() && !folder.path().join("fork.partial").exists());

    // The command itself is killed.
    let held = folder.path().join("held");
    fs::create_dir(&held).unwrap();
    fs::write(held.join("keelson.redb"), "a file").unwrap();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let server = false_server(&held, b"ok\n".to_vec(), move || wait.recv().unwrap());
    let args = ["fork", held.to_str().unwrap(), place.to_str().unwrap()];
    let mut killed = command(args).spawn().unwrap();
    let copied = folder.path().join("fork.partial/keelson.redb");
    until("copying has begun", async || copied.exists()).await;
    killed.kill().unwrap();
    killed.wait().unwrap();
    go.send(()).unwrap();
    server.join().unwrap();
    assert!(!place.exists());
    fork(&held, &place)
        .await
        .refused("is left from a fork that did not end");
}
