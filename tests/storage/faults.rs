//! Behaviour of the etcd store while etcd dies, hangs, loses its leader, its quorum or its data.

use std::collections::BTreeMap;
use std::time::Duration;

use etcd_client::Client;
use futures::StreamExt;
use keelson::internals::storage::{Config, Etcd3};
use keelson::internals::storage::{
    ListRequest, Revision, Storage, StorageError, WatchEvent, WatchStream, WriteOutcome,
};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::{bytes, connect, done, events, next, revision};
use crate::etcd::Etcd;

/// Time limit for the recovery of a cluster on a busy machine.
const RECOVERY: Duration = Duration::from_secs(60);

/// Writes a key until the store says that it has, whatever happened before: an attempt may have
/// succeeded unheard.
async fn insist(store: &Etcd3, key: &str) -> Revision {
    let end = Instant::now() + RECOVERY;
    loop {
        match store.create(key, bytes(key), None).await {
            Ok(WriteOutcome::Committed(revision)) => return revision,
            Ok(WriteOutcome::Conflict(found)) => {
                return found.expect("what stands in the way").mod_revision;
            }
            Err(StorageError::Unavailable(why)) => {
                assert!(Instant::now() < end, "{key} cannot be written: {why}")
            }
            Err(error) => panic!("{key}: {error}"),
        }
    }
}

/// Writes `keys`, and checks that the watch tells each of them once, in order, and that a list has
/// them all.
async fn nothing_is_lost(
    store: &Etcd3,
    stream: &mut WatchStream,
    written: &BTreeMap<Revision, String>,
) {
    let told = events(stream, written.len()).await;
    let told: Vec<(Revision, String)> = told
        .into_iter()
        .map(|event| match event {
            WatchEvent::Put {
                current,
                previous: None,
            } => (current.mod_revision, current.key),
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(
        told.iter()
            .map(|(revision, key)| (revision, key))
            .eq(written),
        "each key once, in order:\n{told:?}\n{written:?}"
    );
    let page = store
        .list(ListRequest {
            prefix: "/w/".into(),
            ..ListRequest::default()
        })
        .await
        .unwrap();
    assert_eq!(page.items.len(), written.len());
}

/// Short enough that a test can wait for it.
fn impatient(endpoints: Vec<String>) -> Config {
    let short = Duration::from_secs(1);
    Config {
        endpoints,
        request_timeout: short,
        health_timeout: short,
        ..Config::default()
    }
}

#[tokio::test]
async fn etcd_dies_and_comes_back() {
    let mut etcd = spawn_blocking(Etcd::start).await.unwrap();
    let store = Etcd3::connect(impatient(vec![etcd.endpoint()]))
        .await
        .unwrap();
    let mut stream = store.watch("/w/", 1).await.unwrap();
    let mut written = BTreeMap::new();
    for round in 0..3 {
        for i in 0..20 {
            let key = format!("/w/{round}-{i:02}");
            written.insert(insist(&store, &key).await, key);
        }
        etcd.kill();
        assert!(matches!(
            store.check_health().await,
            Err(StorageError::Unavailable(_))
        ));
        assert!(matches!(
            store.create("/none", bytes("x"), None).await,
            Err(StorageError::Unavailable(_))
        ));
        etcd = restarted(etcd).await;
    }
    nothing_is_lost(&store, &mut stream, &written).await;
}

#[tokio::test]
async fn etcd_hangs_and_goes_on() {
    let etcd = spawn_blocking(Etcd::start).await.unwrap();
    let (patient, store) = (
        connect(&etcd.endpoint()).await,
        Etcd3::connect(impatient(vec![etcd.endpoint()]))
            .await
            .unwrap(),
    );
    let mut stream = store.watch("/w/", 1).await.unwrap();
    let mut written = BTreeMap::from([(insist(&store, "/w/first").await, "/w/first".to_owned())]);
    etcd.pause();
    for outcome in [
        store.check_health().await,
        store.get("/w/first").await.map(drop),
        store.create("/w/lost", bytes("x"), None).await.map(drop),
    ] {
        assert_eq!(
            outcome,
            Err(StorageError::Unavailable(
                "etcd does not answer in time".into()
            ))
        );
    }
    // Who has the time gets an answer in the end.
    let (late, ()) = futures::join!(patient.create("/w/late", bytes("x"), None), async {
        etcd.resume()
    });
    written.insert(done(late), "/w/late".into());
    // What was given up may have happened, or happen yet: then it is told like everything else.
    written.insert(insist(&store, "/w/lost").await, "/w/lost".into());
    written.insert(insist(&store, "/w/last").await, "/w/last".into());
    nothing_is_lost(&store, &mut stream, &written).await;
}

#[tokio::test]
async fn the_leader_dies_then_the_quorum_is_away() {
    let mut members = spawn_blocking(Etcd::start_three).await.unwrap();
    let endpoints: Vec<String> = members.iter().map(Etcd::endpoint).collect();
    let config = impatient(endpoints.clone());
    let store = Etcd3::connect(Config {
        request_timeout: Duration::from_secs(5),
        ..config
    })
    .await
    .unwrap();
    let mut stream = store.watch("/w/", 1).await.unwrap();
    let mut written = BTreeMap::new();
    for i in 0..10 {
        let key = format!("/w/a{i}");
        written.insert(insist(&store, &key).await, key);
    }
    let mut leader = None;
    for (i, endpoint) in endpoints.iter().enumerate() {
        let status = Client::connect([endpoint], None)
            .await
            .unwrap()
            .status()
            .await
            .unwrap();
        if status.leader() == status.header().unwrap().member_id() {
            leader = Some(i);
        }
    }
    let mut dead = members.remove(leader.expect("a leader"));
    dead.kill();
    for i in 0..10 {
        let key = format!("/w/b{i}");
        written.insert(insist(&store, &key).await, key);
    }
    // Two of three are away: nothing can be read for sure or written.
    members[0].pause();
    assert!(matches!(
        store.create("/none", bytes("x"), None).await,
        Err(StorageError::Unavailable(_))
    ));
    members[0].resume();
    let key = "/w/c".to_owned();
    written.insert(insist(&store, &key).await, key);
    nothing_is_lost(&store, &mut stream, &written).await;
}

/// The history between what a watch has told and where it goes on is compacted while etcd is away:
/// it says so, and tells nothing that would hide the gap.
#[tokio::test]
async fn compaction_while_the_connection_is_down_is_an_error() {
    let etcd = spawn_blocking(Etcd::start).await.unwrap();
    let store = Etcd3::connect(impatient(vec![etcd.endpoint()]))
        .await
        .unwrap();
    let mut stream = store.watch("/w/", 1).await.unwrap();
    let first = insist(&store, "/w/first").await;
    assert_eq!(revision(&events(&mut stream, 1).await[0]), first);
    // The watch goes on only when somebody asks it for more, and nobody does until the history is
    // gone.
    let etcd = restarted(etcd).await;
    let mut at = store.get("/w/first").await.unwrap().unwrap().mod_revision;
    for i in 0..3 {
        at = done(
            store
                .update("/w/first", bytes(&i.to_string()), at, None)
                .await,
        );
    }
    store.compact(at).await.unwrap();
    assert_eq!(
        next(&mut stream).await,
        Err(StorageError::Compacted { oldest: Some(at) })
    );
    assert!(stream.next().await.is_none(), "nothing follows the error");
    drop(etcd);
}

async fn restarted(mut etcd: Etcd) -> Etcd {
    let restart = move || {
        etcd.restart();
        etcd
    };
    spawn_blocking(restart).await.unwrap()
}
