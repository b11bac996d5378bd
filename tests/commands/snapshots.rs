//! `keelson snapshot`, and the snapshots that a server takes by itself.

use std::fs;
use std::io::Write;
use std::path::Path;

use crate::support::{ADMIN, Store, TestServer, http as wire, until};
use crate::{command, create, false_server, flag, found, keelson};

async fn status(file: &Path) -> serde_json::Value {
    let status = keelson([
        "snapshot",
        "status",
        "--output=json",
        file.to_str().unwrap(),
    ])
    .await;
    serde_json::from_str(&status.ok()).unwrap()
}

async fn save(data: &Path, file: &Path) -> String {
    let args = [
        "snapshot",
        "save",
        file.to_str().unwrap(),
        &flag("data-dir", data),
    ];
    keelson(args).await.ok()
}

/// Answers a watch from a revision with the code of its first event, if that is an error.
async fn watch_code(server: &TestServer, revision: &str) -> i64 {
    let path = format!(
        "/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1&resourceVersion={revision}"
    );
    let request = http::Request::get(path)
        .header("Host", "localhost")
        .header("Authorization", format!("Bearer {ADMIN}"))
        .body(Default::default())
        .unwrap();
    let answer = wire::call(server.port(), request, std::time::Duration::from_secs(30));
    let body = answer.await.unwrap().body;
    let event: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    let code = event["object"]["code"].as_i64();
    code.or(event["code"].as_i64()).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_a_running_server_becomes_another_server() {
    let folder = tempfile::tempdir().unwrap();
    let (data, file) = (folder.path().join("data"), folder.path().join("a.snapshot"));
    let mut server = TestServer::start_in(folder.path(), Store::Embedded).await;
    for name in ["a", "b"] {
        create(&server, name).await;
    }
    let told = save(&data, &file).await;
    assert!(told.starts_with("saved "), "{told}");
    let before = found(&server).await;
    let after = create(&server, "after").await;
    let facts = status(&file).await;
    assert_eq!(facts["totalSize"], fs::metadata(&file).unwrap().len());

    // It has the state of its moment, and no client goes on from a revision that it knew.
    let other = tempfile::tempdir().unwrap();
    let restored = other.path().join("data");
    let args = [
        "snapshot",
        "restore",
        file.to_str().unwrap(),
        &flag("data-dir", &restored),
    ];
    keelson(args).await.ok();
    let second = TestServer::start_in(other.path(), Store::Embedded).await;
    assert_eq!(found(&second).await, before);
    let known = after.metadata.resource_version.unwrap();
    assert_eq!(watch_code(&second, &known).await, 410);
    assert_eq!(
        watch_code(&server, &known).await,
        0,
        "where it was known, it is"
    );
    let next = create(&second, "after")
        .await
        .metadata
        .resource_version
        .unwrap();
    let bumped = facts["revision"].as_i64().unwrap() + 1_000_000_000;
    assert!(next.parse::<i64>().unwrap() > bumped, "{next}");
    keelson(args)
        .await
        .refused("has a store already; nothing was changed");

    // A stopped server has the same to give, byte for byte.
    server.terminate().await;
    assert!(!data.join("keelson.sock").exists());
    let (first, again) = (
        folder.path().join("b.snapshot"),
        folder.path().join("c.snapshot"),
    );
    save(&data, &first).await;
    save(&data, &again).await;
    assert_eq!(fs::read(&first).unwrap(), fs::read(&again).unwrap());
}

#[tokio::test]
async fn what_is_no_snapshot_or_was_cut_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (data, file) = (folder.path().join("data"), folder.path().join("a.snapshot"));
    let mut server = TestServer::start_in(folder.path(), Store::Embedded).await;
    save(&data, &file).await;
    server.kill();
    let bytes = fs::read(&file).unwrap();
    let mut changed = bytes.clone();
    changed[bytes.len() / 2] ^= 1;
    for (content, message) in [
        (&bytes[..bytes.len() - 1], "it ends too early"),
        (&bytes[..bytes.len() / 2], "it ends too early"),
        (&changed[..], "it is damaged"),
        (b"SQLite format 3", "it is no snapshot of Keelson"),
    ] {
        let (bad, target) = (folder.path().join("bad"), folder.path().join("restored"));
        fs::write(&bad, content).unwrap();
        let args = [
            "snapshot",
            "restore",
            bad.to_str().unwrap(),
            &flag("data-dir", &target),
        ];
        keelson(args).await.refused(message);
        assert!(!target.join("keelson.redb").exists());
        keelson(["snapshot", "status", bad.to_str().unwrap()])
            .await
            .refused(message);
    }
    let nowhere = flag("data-dir", &folder.path().join("nowhere"));
    keelson(["snapshot", "save", "x", &nowhere])
        .await
        .refused("there is no store in");
    assert!(!folder.path().join("nowhere").exists());
}

#[tokio::test]
async fn a_server_that_ends_in_the_middle_leaves_the_older_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let (data, file) = (folder.path().join("data"), folder.path().join("a.snapshot"));
    let mut server = TestServer::start_in(folder.path(), Store::Embedded).await;
    save(&data, &file).await;
    server.kill();
    let bytes = fs::read(&file).unwrap();
    for length in [0, 10, bytes.len() / 2, bytes.len() - 1] {
        let (elsewhere, answer) = (folder.path().join(format!("{length}")), &bytes[..length]);
        let server = false_server(&elsewhere, [b"ok\n", answer].concat(), || {});
        let args = [
            "snapshot",
            "save",
            file.to_str().unwrap(),
            &flag("data-dir", &elsewhere),
        ];
        keelson(args).await.refused("");
        assert_eq!(server.join().unwrap(), "snapshot\n");
        assert_eq!(fs::read(&file).unwrap(), bytes);
        assert!(!folder.path().join("a.snapshot.part").exists());
    }
}

#[tokio::test]
async fn a_restore_that_is_killed_leaves_no_store_and_can_be_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let (data, file) = (folder.path().join("data"), folder.path().join("a.snapshot"));
    let mut server = TestServer::start_in(folder.path(), Store::Embedded).await;
    save(&data, &file).await;
    server.kill();
    // The snapshot comes through a pipe, and its second half never.
    let (pipe, target) = (folder.path().join("pipe"), folder.path().join("restored"));
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let mut restore = command(["snapshot", "restore", pipe.to_str().unwrap()])
        .arg(flag("data-dir", &target))
        .spawn()
        .unwrap();
    let bytes = fs::read(&file).unwrap();
    let mut half = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    half.write_all(&bytes[..bytes.len() / 2]).unwrap();
    let begun = async || target.join("keelson.redb.new").exists();
    until("restoring has begun", begun).await;
    restore.kill().unwrap();
    restore.wait().unwrap();
    assert!(!target.join("keelson.redb").exists());
    let args = [
        "snapshot",
        "restore",
        file.to_str().unwrap(),
        &flag("data-dir", &target),
    ];
    keelson(args).await.ok();
    assert!(target.join("keelson.redb").exists());
    assert!(!target.join("keelson.redb.new").exists());
}

#[tokio::test]
async fn a_server_takes_snapshots_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let snapshots = folder.path().join("snapshots");
    fs::create_dir(&snapshots).unwrap();
    for old in ["keelson-2001.snapshot", "keelson-2002.snapshot"] {
        let old = fs::File::create(snapshots.join(old)).unwrap();
        old.set_modified(std::time::UNIX_EPOCH).unwrap();
    }
    let _server = TestServer::start_with(
        folder.path(),
        Store::Embedded,
        &[
            &format!("--snapshot-dir={}", snapshots.display()),
            "--snapshot-interval=1h",
            "--snapshot-retention=2",
        ],
    )
    .await;
    let names = || {
        let entries = fs::read_dir(&snapshots).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    until("two snapshots are kept", async || {
        names().len() == 2 && names()[0] != "keelson-2001.snapshot"
    })
    .await;
    let facts = status(&snapshots.join(&names()[1])).await;
    assert!(facts["revision"].as_i64().unwrap() >= 1, "{facts}");
}
