//! Tests for the embedded store only: files, restarts, kills, a clock that stands still.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use jiff::Timestamp;
use keelson::internals::base::Clock;
use keelson::internals::storage::Embedded;
use keelson::internals::storage::{ListRequest, Storage, StorageError, WatchEvent};

use super::{bytes, compacted, done, events, next, revision};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn data_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    let first = done(store.create("/a", bytes("1"), None).await);
    let second = done(store.update("/a", bytes("2"), first, None).await);
    let other = done(store.create("/b", bytes("1"), None).await);
    done(store.delete("/b", other).await);
    store.compact(second).await.unwrap();
    let (before, stands) = (
        store.current_revision().await.unwrap(),
        store.get("/a").await.unwrap(),
    );
    let told = events(&mut store.watch("/", second).await.unwrap(), 2).await;
    drop(store);

    let store = Embedded::open(dir.path()).unwrap();
    assert_eq!(store.current_revision().await, Ok(before));
    assert_eq!(store.get("/a").await, Ok(stands));
    assert_eq!(
        store
            .list(ListRequest {
                revision: Some(other),
                ..ListRequest::default()
            })
            .await
            .unwrap()
            .count,
        2
    );
    assert_eq!(
        events(&mut store.watch("/", second).await.unwrap(), 2).await,
        told
    );
    compacted(
        store
            .list(ListRequest {
                revision: Some(first),
                ..ListRequest::default()
            })
            .await,
    );
    compacted(next(&mut store.watch("/", first).await.unwrap()).await);
    assert_eq!(done(store.create("/c", bytes("1"), None).await), before + 1);
}

#[tokio::test]
async fn a_directory_has_one_user() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path().join("made/on/the/way")).unwrap();
    let second = Embedded::open(dir.path().join("made/on/the/way")).map(drop);
    let Err(StorageError::Unavailable(why)) = second else {
        panic!("{second:?}")
    };
    assert!(
        why.ends_with("made/on/the/way is in use by another process"),
        "{why}"
    );
    drop(store);
    Embedded::open(dir.path().join("made/on/the/way")).unwrap();
}

#[tokio::test]
async fn a_store_that_does_not_wait_for_the_disk_is_the_same_file() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open_unsynced(dir.path()).unwrap();
    let revision = done(store.create("/a", bytes("1"), None).await);
    for second in [
        Embedded::open(dir.path()),
        Embedded::open_unsynced(dir.path()),
    ] {
        let Err(StorageError::Unavailable(why)) = second.map(drop) else {
            panic!("a second user")
        };
        assert!(why.ends_with("is in use by another process"), "{why}");
    }
    drop(store);
    let store = Embedded::open(dir.path()).unwrap();
    let stored = store.get("/a").await.unwrap().unwrap();
    assert_eq!(
        (stored.mod_revision, &stored.value[..]),
        (revision, &b"1"[..])
    );
}

#[tokio::test]
async fn stores_in_memory_have_nothing_in_common() {
    let (one, other) = (
        Embedded::in_memory().unwrap(),
        Embedded::in_memory().unwrap(),
    );
    let empty = one.size().await.unwrap();
    done(one.create("/a", bytes(&"1".repeat(1 << 20)), None).await);
    assert_eq!(other.get("/a").await.unwrap(), None);
    assert!(one.size().await.unwrap() >= empty + (1 << 20));
}

#[tokio::test]
async fn foreign_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("keelson.redb"), "something else").unwrap();
    let Err(StorageError::Internal(why)) = Embedded::open(dir.path()).map(drop) else {
        panic!("opened")
    };
    assert!(
        why.starts_with(&format!("cannot open {}", dir.path().display())),
        "{why}"
    );
}

#[tokio::test]
async fn watches_end_with_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    let mut stream = store.watch("/", 1).await.unwrap();
    drop(store);
    assert!(matches!(
        next(&mut stream).await,
        Err(StorageError::Unavailable(_))
    ));
    assert!(stream.next().await.is_none());
    Embedded::open(dir.path()).expect("a watch does not keep the file");
}

#[tokio::test]
async fn keys_expire_by_the_clock_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::manual(Timestamp::UNIX_EPOCH);
    let store = Embedded::open_with_clock(dir.path(), clock.clone()).unwrap();
    let start = store.current_revision().await.unwrap();
    for (name, ttl) in [
        ("/one", HOUR),
        ("/two", 2 * HOUR),
        ("/three", 3 * HOUR),
        ("/kept", HOUR),
        ("/renewed", HOUR),
    ] {
        done(store.create(name, bytes("1"), Some(ttl)).await);
    }
    for (name, ttl) in [("/kept", None), ("/renewed", Some(4 * HOUR))] {
        let at = store.get(name).await.unwrap().unwrap().mod_revision;
        done(store.update(name, bytes("2"), at, ttl).await);
    }
    let names = async |store: &Embedded| {
        store.expire().await.unwrap();
        store
            .list(ListRequest::default())
            .await
            .unwrap()
            .items
            .into_iter()
            .map(|s| s.key)
            .collect::<Vec<_>>()
            .join(" ")
    };
    clock.advance(HOUR - Duration::from_millis(1));
    assert_eq!(names(&store).await, "/kept /one /renewed /three /two");
    clock.advance(Duration::from_millis(1));
    assert_eq!(names(&store).await, "/kept /renewed /three /two");
    drop(store);
    clock.advance(HOUR);
    let store = Embedded::open_with_clock(dir.path(), clock.clone()).unwrap();
    assert_eq!(names(&store).await, "/kept /renewed /three");
    clock.advance(9 * HOUR);
    assert_eq!(names(&store).await, "/kept");
    let told = events(&mut store.watch("/", start).await.unwrap(), 11).await;
    let deleted = told.iter().filter_map(|e| match e {
        WatchEvent::Delete {
            key,
            previous: Some(was),
            ..
        } => Some(format!("{key} was {}", String::from_utf8_lossy(&was.value))),
        _ => None,
    });
    assert_eq!(
        deleted.collect::<Vec<_>>(),
        ["/one was 1", "/two was 1", "/three was 1", "/renewed was 2"]
    );
}

/// More events than are kept in memory: watchers that are behind read the table, and meet those who
/// are not.
#[tokio::test]
async fn a_slow_watcher_misses_nothing() {
    const EVENTS: usize = 6000;
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(Embedded::open(dir.path()).unwrap());
    let mut slow = store.watch("/", 1).await.unwrap();
    let mut quiet = store.watch("/quiet", 1).await.unwrap();
    let mut keen = store.watch("/", 1).await.unwrap();
    let keen = tokio::spawn(async move { events(&mut keen, EVENTS + 1).await });
    done(store.create("/n/first", bytes("x"), None).await);
    let first = events(&mut slow, 1).await;
    let writers = (0..60).map(|w| {
        let store = store.clone();
        tokio::spawn(async move {
            for i in 0..EVENTS / 60 - 1 {
                done(store.create(&format!("/n/{w}/{i}"), bytes("x"), None).await);
            }
        })
    });
    join_all(writers).await.into_iter().for_each(|w| w.unwrap());
    for i in 0..60 {
        done(store.create(&format!("/quiet/{i}"), bytes("x"), None).await);
    }
    let rest = events(&mut slow, EVENTS).await;
    let all: Vec<_> = first.into_iter().chain(rest).collect();
    assert!(
        all.iter().map(revision).eq(2..EVENTS as i64 + 3),
        "each revision once and in order"
    );
    assert!(keen.await.unwrap() == all);
    assert!(events(&mut quiet, 60).await == all[all.len() - 60..]);
    // One that starts in the middle of what is in memory no more.
    let mut late = store.watch("/", 700).await.unwrap();
    assert!(events(&mut late, 100).await == all[699..799]);
}

#[tokio::test]
async fn a_watcher_that_is_too_slow_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    let mut stream = store.watch("/", 1).await.unwrap();
    let mut caught_up = store.watch("/", 1).await.unwrap();
    let mut at = done(store.create("/a", bytes("1"), None).await);
    events(&mut caught_up, 1).await;
    for _ in 0..3 {
        at = done(store.update("/a", bytes("2"), at, None).await);
        events(&mut caught_up, 1).await;
    }
    store.compact(at).await.unwrap();
    compacted(next(&mut stream).await);
    assert!(stream.next().await.is_none());
    at = done(store.update("/a", bytes("3"), at, None).await);
    assert_eq!(revision(&events(&mut caught_up, 1).await[0]), at);
}

/// Environment variable with the folder that the child of the test below writes to.
const CHILD: &str = "KEELSON_TEST_KILLED_WRITER";

/// Runs itself as a child that writes and says so, kills it in the middle of that, and looks for
/// what it said.
#[tokio::test]
async fn acknowledged_writes_survive_a_kill() {
    if let Some(dir) = std::env::var_os(CHILD) {
        let store = Arc::new(Embedded::open(dir).unwrap());
        return write_until_killed(store).await;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut said = BTreeMap::new();
    for round in 1..=3 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "storage::embedded::acknowledged_writes_survive_a_kill",
                "--nocapture",
            ])
            .env(CHILD, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut kill_at = Some(round * 150);
        // What was said before the kill is read to its end.
        for line in lines.map_while(Result::ok) {
            let Some(acknowledged) = line.strip_prefix("wrote ") else {
                continue;
            };
            let (key, revision) = acknowledged.split_once(' ').unwrap();
            said.insert(key.to_owned(), revision.parse::<i64>().unwrap());
            if kill_at.is_some_and(|n| said.len() >= n) {
                child.kill().unwrap();
                kill_at = None;
            }
        }
        assert!(!child.wait().unwrap().success());
        assert!(kill_at.is_none(), "the child ended by itself");
        let store = Embedded::open(dir.path()).unwrap();
        for (key, revision) in &said {
            let stands = store
                .get(key)
                .await
                .unwrap()
                .unwrap_or_else(|| panic!("{key} is lost"));
            assert_eq!(
                (stands.mod_revision, &stands.value),
                (*revision, &bytes(key))
            );
        }
        let current = store.current_revision().await.unwrap();
        let told = events(
            &mut store.watch("/", 1).await.unwrap(),
            current as usize - 1,
        )
        .await;
        assert!(
            told.iter().map(revision).eq(2..=current),
            "the history has no holes"
        );
    }
}

async fn write_until_killed(store: Arc<Embedded>) {
    let id = std::process::id();
    let writers = (0..8).map(|w| {
        let store = store.clone();
        tokio::spawn(async move {
            for i in 0.. {
                let key = format!("/{id}/{w}/{i}");
                let revision = done(store.create(&key, bytes(&key), None).await);
                println!("wrote {key} {revision}");
            }
        })
    });
    join_all(writers).await;
}
