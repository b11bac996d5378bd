//! `keelson migrate`, between the embedded store and a real etcd.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use etcd_client::{Client, GetOptions, PutOptions, Txn, TxnOp};

use crate::support::etcd::Etcd;
use crate::support::{Store, TestServer, until};
use crate::{command, create, found, keelson};

async fn etcd() -> Etcd {
    tokio::task::spawn_blocking(Etcd::start).await.unwrap()
}

async fn client(etcd: &Etcd) -> Client {
    Client::connect([etcd.endpoint()], None).await.unwrap()
}

async fn migrate(args: &[&str]) -> crate::Outcome {
    keelson([&["migrate"][..], args].concat()).await
}

/// Every key under the prefix with its value, mod revision, and whether it has a lease.
async fn keys(client: &mut Client) -> BTreeMap<String, (Vec<u8>, i64, bool)> {
    let all = GetOptions::new().with_prefix();
    let answer = client.get("/registry/", Some(all)).await.unwrap();
    let one = |kv: &etcd_client::KeyValue| {
        let facts = (kv.value().to_vec(), kv.mod_revision(), kv.lease() != 0);
        (kv.key_str().unwrap().to_owned(), facts)
    };
    answer.kvs().iter().map(one).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_move_from_etcd_to_a_directory_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (etcd().await, etcd().await);
    let mut server = TestServer::start_in(folder.path(), Store::Etcd(&first.endpoint())).await;
    create(&server, "a").await;
    create(&server, "b").await;
    let before = found(&server).await;
    server.terminate().await;
    let mut client1 = client(&first).await;
    let lease = client1.lease_grant(3600, None).await.unwrap().id();
    let leased = PutOptions::new().with_lease(lease);
    client1
        .put("/registry/events/default/e", "an event", Some(leased))
        .await
        .unwrap();

    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let told = migrate(&[&first.endpoint(), data.to_str().unwrap()])
        .await
        .ok();
    assert!(told.contains("as a comparison of each shows"), "{told}");
    let mut server = TestServer::start_in(place.path(), Store::Embedded).await;
    assert_eq!(
        found(&server).await,
        before,
        "with the same resource versions"
    );
    create(&server, "c").await;
    let after = found(&server).await;
    server.terminate().await;

    migrate(&[data.to_str().unwrap(), &second.endpoint()])
        .await
        .ok();
    let (of_first, of_second) = (
        keys(&mut client1).await,
        keys(&mut client(&second).await).await,
    );
    let event = &of_second["/registry/events/default/e"];
    assert_eq!(
        (&event.0[..], event.2),
        (&b"an event"[..], true),
        "it still expires"
    );
    for (key, (value, _, _)) in &of_first {
        // Servers write objects of their own anew.
        if key.starts_with("/registry/configmaps/default/") {
            assert_eq!(&of_second[key].0, value, "{key}");
        }
    }
    let server = TestServer::start_in(folder.path(), Store::Etcd(&second.endpoint())).await;
    let names = |found: BTreeMap<String, _>| found.into_keys().collect::<Vec<_>>();
    assert_eq!(names(found(&server).await), names(after.clone()));
    // No revision that a client may know lies ahead.
    let newest = after["c"].metadata.resource_version.clone().unwrap();
    let next = create(&server, "d")
        .await
        .metadata
        .resource_version
        .unwrap();
    assert!(next.parse::<i64>().unwrap() > newest.parse::<i64>().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_file_of_etcd_becomes_a_directory() {
    let (folder, etcd) = (tempfile::tempdir().unwrap(), etcd().await);
    let mut client = client(&etcd).await;
    // Enough for a tree of pages, with values that need several, and old versions.
    for i in 0..400 {
        let value = "x".repeat(if i % 50 == 0 { 20_000 } else { 100 });
        client
            .put(format!("/registry/a/{i:03}"), value, None)
            .await
            .unwrap();
    }
    client.put("/registry/a/007", "again", None).await.unwrap();
    client.delete("/registry/a/008", None).await.unwrap();
    // Two keys of one revision, which a store of Keelson does not have.
    let both = [
        TxnOp::put("/registry/b/1", "1", None),
        TxnOp::put("/registry/b/2", "2", None),
    ];
    client.txn(Txn::new().and_then(both)).await.unwrap();
    client.put("/elsewhere", "no", None).await.unwrap();

    let (file, data) = (folder.path().join("etcd.db"), folder.path().join("data"));
    let mut out = std::fs::File::create(&file).unwrap();
    let mut stream = client.snapshot().await.unwrap();
    while let Some(part) = stream.message().await.unwrap() {
        out.write_all(part.blob()).unwrap();
    }
    drop(out);
    let told = migrate(&[file.to_str().unwrap(), data.to_str().unwrap()])
        .await
        .ok();
    assert!(told.contains("has the 401 keys of"), "{told}");
    assert!(
        told.contains("1 keys were written together with others"),
        "{told}"
    );
    // It is the same as what the etcd itself gives.
    let other = folder.path().join("other");
    migrate(&[&etcd.endpoint(), other.to_str().unwrap()])
        .await
        .ok();
    let save = async |data: &Path, name: &str| {
        let file = folder.path().join(name);
        let place = crate::flag("data-dir", data);
        keelson(["snapshot", "save", file.to_str().unwrap(), &place])
            .await
            .ok();
        std::fs::read(file).unwrap()
    };
    assert_eq!(
        save(&data, "a.snapshot").await,
        save(&other, "b.snapshot").await
    );

    let whole = std::fs::read(&file).unwrap();
    for (length, message) in [
        (whole.len() - 1, "it has no hash"),
        (whole.len() - 512, "its hash is another"),
        (0, "it is no database of etcd"),
    ] {
        std::fs::write(&file, &whole[..length]).unwrap();
        let nowhere = folder.path().join("nowhere");
        let mut args = vec![file.to_str().unwrap(), nowhere.to_str().unwrap()];
        if length == 0 {
            args.push("--skip-hash-check");
        }
        migrate(&args).await.refused(message);
        assert!(!nowhere.exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_is_killed_or_disturbed_can_be_repeated() {
    let (folder, source, target) = (tempfile::tempdir().unwrap(), etcd().await, etcd().await);
    let (mut from, mut to) = (client(&source).await, client(&target).await);
    for i in 0..3000 {
        from.put(format!("/registry/a/{i:04}"), "value", None)
            .await
            .unwrap();
    }
    let data = folder.path().join("data");
    migrate(&[&source.endpoint(), data.to_str().unwrap()])
        .await
        .ok();

    // Into etcd: what was copied stays, and nothing is overwritten.
    let arguments = ["migrate", data.to_str().unwrap(), &target.endpoint()].map(str::to_owned);
    let mut killed = command(&arguments).spawn().unwrap();
    until("a key is copied", async || !keys(&mut to).await.is_empty()).await;
    killed.kill().unwrap();
    killed.wait().unwrap();
    let plain: Vec<&str> = arguments[1..].iter().map(String::as_str).collect();
    let resumed = [&plain[..], &["--resume"]].concat();
    migrate(&plain)
        .await
        .refused("--resume goes on with a migration that did not end");
    to.put("/registry/a/2999", "another", None).await.unwrap();
    migrate(&resumed)
        .await
        .refused("/registry/a/2999 is there with another value");
    to.delete("/registry/a/2999", None).await.unwrap();
    to.put("/registry/b", "more", None).await.unwrap();
    migrate(&resumed)
        .await
        .refused("/registry/b is only in the destination");
    to.delete("/registry/b", None).await.unwrap();
    migrate(&resumed).await.ok();
    assert_eq!(keys(&mut to).await.len(), 3000);

    // Into a directory: killed, it is none.
    let (other, new) = (
        folder.path().join("other"),
        folder.path().join("other/keelson.redb.new"),
    );
    let mut killed = command(["migrate", &source.endpoint(), other.to_str().unwrap()])
        .spawn()
        .unwrap();
    while !new.exists() {
        assert!(
            !other.join("keelson.redb").exists(),
            "too fast for this test"
        );
        tokio::task::yield_now().await;
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(!other.join("keelson.redb").exists());
    migrate(&[&source.endpoint(), other.to_str().unwrap()])
        .await
        .ok();
    migrate(&[&source.endpoint(), other.to_str().unwrap()])
        .await
        .refused("has a store already; nothing was changed");
    migrate(&[
        "http://127.0.0.1:1",
        folder.path().join("x").to_str().unwrap(),
    ])
    .await
    .refused("http://127.0.0.1:1");
}
