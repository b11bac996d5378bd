//! Followers of a watch cache under faults: slow ones, ones that are cut off and come back, a store
//! whose watches break. From a seed; each must end with the state of the store, having seen every
//! change once and in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::join_all;
use keelson::internals::cacher::{
    CachedObject, Cacher, Change, Cursor, CursorError, HistoryLimits, IndexKey, Interest, Reflector,
};
use keelson::internals::storage::{
    ListPage, ListRequest, Result, Revision, Storage, StorageError, Stored, WatchStream,
    WriteOutcome, next_key,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;

use super::{Backend, bytes};

/// Writes of one run.
const WRITES: usize = 600;
/// Keys that are written.
const KEYS: usize = 40;
const FOLLOWERS: u64 = 12;

#[tokio::test]
async fn every_follower_ends_with_the_state_of_the_store() {
    join_all([11, 12].map(|seed| async move {
        run(seed, Backend::embedded().await, false).await;
        run(seed, Backend::embedded().await, true).await;
        run(seed, Backend::fresh_etcd3().await, true).await;
    }))
    .await;
}

async fn run(seed: u64, backend: Backend, breaking: bool) {
    let storage: Arc<dyn Storage> = Arc::new(Breaking {
        inner: backend.storage.clone(),
        every: if breaking { 90 } else { usize::MAX },
    });
    // A ring so small that who is slow falls behind it.
    let limits = HistoryLimits {
        changes: 30,
        ..HistoryLimits::default()
    };
    let reflector = Reflector::with_limits(storage.clone(), "/", limits);
    let index = |stored: &Stored, terms: &mut Vec<IndexKey>| {
        terms.push(group(stored));
        true
    };
    let cacher = reflector.cacher("/a/", Some(Arc::new(index)));
    let (done, end) = watch::channel(0);
    let followers = (0..FOLLOWERS).map(|number| {
        tokio::spawn(follow(
            cacher.clone(),
            seed * 100 + number,
            number,
            end.clone(),
        ))
    });
    let followers: Vec<_> = followers.collect();
    write(seed, storage.as_ref()).await;
    done.send_replace(storage.current_revision().await.unwrap());
    let state = storage
        .list(ListRequest {
            prefix: "/a/".into(),
            ..ListRequest::default()
        })
        .await
        .unwrap()
        .items;
    for follower in join_all(followers).await {
        let (interest, seen) = follower.expect("a follower that did not panic");
        let want = state
            .iter()
            .filter(|stored| concerns(&interest, stored))
            .map(|s| (s.key.clone(), s.mod_revision))
            .collect();
        assert_eq!(seen, want, "seed {seed}, {interest:?}");
    }
}

/// Returns the index key of an object: the first letter of its value.
fn group(stored: &Stored) -> IndexKey {
    letter(if stored.value.first() == Some(&b'x') {
        "x"
    } else {
        "y"
    })
}

fn letter(letter: &str) -> IndexKey {
    IndexKey::new("letter", letter, "")
}

fn concerns(interest: &Interest, stored: &Stored) -> bool {
    match interest {
        Interest::Everything => true,
        Interest::Key(key) => **key == *stored.key,
        Interest::Indexed(term) => *term == group(stored),
    }
}

/// Random creates, updates and deletes, some of them of keys that nobody follows.
async fn write(seed: u64, storage: &dyn Storage) {
    let mut rng = StdRng::seed_from_u64(seed);
    for number in 0..WRITES {
        let key = match rng.random_range(0..KEYS + 2) {
            n if n < KEYS => format!("/a/{n}"),
            n => format!("/b/{n}"),
        };
        let stands = storage
            .get(&key)
            .await
            .unwrap()
            .map_or(0, |s| s.mod_revision);
        let letter = if rng.random_bool(0.5) { "x" } else { "y" };
        let outcome = match rng.random_range(0..4) {
            0 if stands > 0 => storage.delete(&key, stands).await,
            _ if stands > 0 => {
                storage
                    .update(&key, bytes(&format!("{letter}{number}")), stands, None)
                    .await
            }
            _ => {
                storage
                    .create(&key, bytes(&format!("{letter}{number}")), None)
                    .await
            }
        };
        assert!(
            matches!(outcome, Ok(WriteOutcome::Committed(_))),
            "{outcome:?}"
        );
        if number % 7 == 0 {
            tokio::task::yield_now().await;
        }
    }
}

/// One who lists and follows, is slow and is cut off, until it has seen everything up to the end.
/// What it then knows: the keys and their revisions.
async fn follow(
    cacher: Arc<Cacher>,
    seed: u64,
    number: u64,
    mut end: watch::Receiver<Revision>,
) -> (Interest, BTreeMap<String, Revision>) {
    let mut rng = StdRng::seed_from_u64(seed);
    let interest = match number % 3 {
        0 => Interest::Everything,
        1 => Interest::Key("/a/3".into()),
        _ => Interest::Indexed(letter("x")),
    };
    let mut know = Knowledge::default();
    loop {
        let Some(mut cursor) = begin(&cacher, &interest, &mut know).await else {
            continue;
        };
        // How long until it is cut off.
        for _ in 0..rng.random_range(1..60) {
            if rng.random_bool(0.3) {
                for _ in 0..rng.random_range(0..200) {
                    tokio::task::yield_now().await;
                }
            }
            let last = *end.borrow_and_update();
            if last > 0 && cursor.progress().is_some_and(|told| told >= last) {
                return (interest, know.state);
            }
            tokio::select! {
                change = cursor.next() => match change {
                    Ok(change) => know.take(&interest, &change),
                    Err(ended) => {
                        know.lost |= matches!(ended, CursorError::TooOld { .. });
                        break;
                    }
                },
                _ = end.changed() => {}
                () = tokio::time::sleep(Duration::from_millis(1)), if last > 0 => {}
            }
        }
    }
}

#[derive(Default)]
struct Knowledge {
    state: BTreeMap<String, Revision>,
    /// The revision of the last change taken in.
    at: Revision,
    /// True if what comes next can no longer be had, so that only a list helps.
    lost: bool,
}

impl Knowledge {
    fn take(&mut self, interest: &Interest, change: &Change) {
        assert!(
            change.revision > self.at,
            "{} after {}",
            change.revision,
            self.at
        );
        self.at = change.revision;
        let concerns = |stored: &Option<Arc<CachedObject>>| {
            stored
                .as_ref()
                .is_some_and(|stored| concerns(interest, stored))
        };
        let known = self.state.get(change.key()).copied();
        let before = change
            .previous
            .as_ref()
            .filter(|_| concerns(&change.previous))
            .map(|stored| stored.mod_revision);
        assert_eq!(known, before, "what was before {change:?}");
        match &change.current {
            Some(current) if concerns(&change.current) => {
                self.state.insert(current.key.clone(), current.mod_revision);
            }
            _ => drop(self.state.remove(change.key())),
        }
    }
}

/// Goes on from where it was; from a list where that is not possible. `None` to try again.
async fn begin(cacher: &Arc<Cacher>, interest: &Interest, know: &mut Knowledge) -> Option<Cursor> {
    if know.at == 0 || know.lost {
        tokio::task::yield_now().await;
        let snapshot = cacher.snapshot()?;
        assert!(snapshot.revision >= know.at, "the past is listed");
        know.state = match interest {
            Interest::Indexed(term) => snapshot
                .range_by_index(*term, "/a/", "")
                .map(|s| (s.key.clone(), s.mod_revision))
                .collect(),
            _ => {
                let all = snapshot
                    .range("/a/", "")
                    .filter(|stored| concerns(interest, stored));
                all.map(|s| (s.key.clone(), s.mod_revision)).collect()
            }
        };
        (know.at, know.lost) = (snapshot.revision, false);
    }
    match cacher.watch(know.at, interest.clone()) {
        Ok(cursor) => Some(cursor),
        Err(ended) => {
            know.lost = matches!(ended, CursorError::TooOld { .. });
            tokio::task::yield_now().await;
            None
        }
    }
}

/// A store whose watches break after so many events.
struct Breaking {
    inner: Arc<dyn Storage>,
    every: usize,
}

#[async_trait]
impl Storage for Breaking {
    async fn get(&self, key: &str) -> Result<Option<Stored>> {
        self.inner.get(key).await
    }

    async fn get_with_revision(&self, key: &str) -> Result<(Option<Stored>, Revision)> {
        self.inner.get_with_revision(key).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        self.inner.list(request).await
    }

    async fn create(&self, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<WriteOutcome> {
        self.inner.create(key, value, ttl).await
    }

    async fn update(
        &self,
        key: &str,
        value: Bytes,
        expected: Revision,
        ttl: Option<Duration>,
    ) -> Result<WriteOutcome> {
        self.inner.update(key, value, expected, ttl).await
    }

    async fn delete(&self, key: &str, expected: Revision) -> Result<WriteOutcome> {
        self.inner.delete(key, expected).await
    }

    async fn watch(&self, prefix: &str, from: Revision) -> Result<WatchStream> {
        let broken = futures::stream::iter([Err(StorageError::Compacted { oldest: None })]);
        Ok(self
            .inner
            .watch(prefix, from)
            .await?
            .take(self.every)
            .chain(broken)
            .boxed())
    }

    async fn request_progress(&self) -> Result<()> {
        self.inner.request_progress().await
    }

    async fn current_revision(&self) -> Result<Revision> {
        self.inner.current_revision().await
    }

    async fn compact(&self, revision: Revision) -> Result<()> {
        self.inner.compact(revision).await
    }

    async fn check_health(&self) -> Result<()> {
        self.inner.check_health().await
    }

    async fn size(&self) -> Result<u64> {
        self.inner.size().await
    }

    fn check_integrity(&self) -> Result<()> {
        self.inner.check_integrity()
    }
}

/// Changes of others do not make one fall behind, however small the ring is.
#[tokio::test]
async fn cursor_of_one_key_is_not_evicted_by_other_keys() {
    let backend = Backend::embedded().await;
    let reflector = Reflector::with_limits(
        backend.storage.clone(),
        "/",
        HistoryLimits {
            changes: 10,
            ..HistoryLimits::default()
        },
    );
    let cacher = reflector.cacher(&backend.prefix, None);
    while cacher.ready().is_err() {
        tokio::task::yield_now().await;
    }
    let begun = backend.storage.current_revision().await.unwrap();
    let mut one = cacher
        .watch(begun, Interest::Key(backend.key("own").into()))
        .expect("a filled cache");
    let mut all = cacher
        .watch(begun, Interest::Everything)
        .expect("a filled cache");
    for number in 0..30 {
        backend.create(&format!("other{number}"), "").await;
    }
    let own = backend.create("own", "").await;
    let change = one.next().await.expect("the change of its own");
    assert_eq!((change.key(), change.revision), (&*backend.key("own"), own));
    assert!(
        matches!(all.next().await, Err(CursorError::TooOld { requested, .. }) if requested == begun)
    );
    drop((one, all));
}

/// A page of a state that has moved on is the page of that state, as long as the ring remembers.
#[tokio::test]
async fn the_past_is_read_from_the_ring() {
    let backend = Backend::embedded().await;
    let reflector = Reflector::start(backend.storage.clone(), "/");
    let cacher = reflector.cacher(&backend.prefix, None);
    let mut rng = StdRng::seed_from_u64(7);
    let mut past = Vec::new();
    for number in 0..200 {
        let name = format!("k{}", rng.random_range(0..20));
        let stands = backend
            .storage
            .get(&backend.key(&name))
            .await
            .unwrap()
            .map_or(0, |s| s.mod_revision);
        match rng.random_range(0..3) {
            0 if stands > 0 => drop(backend.delete(&name, stands).await),
            _ if stands > 0 => drop(backend.update(&name, &number.to_string(), stands).await),
            _ => drop(backend.create(&name, &number.to_string()).await),
        }
        let page = backend.storage.list(backend.all()).await.unwrap();
        past.push((page.revision, page.items));
    }
    let latest = loop {
        match cacher.linearizable_snapshot().await {
            Some(snapshot) => break snapshot,
            None => tokio::task::yield_now().await,
        }
    };
    assert_eq!(latest.revision, past.last().unwrap().0);
    for (revision, items) in past {
        if let Some(snapshot) = cacher.snapshot_at(revision).await {
            let read: Vec<Stored> = snapshot
                .range(&backend.prefix, "")
                .map(|s| Stored::clone(s))
                .collect();
            assert_eq!(read, items, "at {revision}");
            let second = items
                .get(1)
                .map(|stored| next_key(&stored.key))
                .unwrap_or_default();
            assert_eq!(
                snapshot.range(&backend.prefix, &second).count(),
                items
                    .len()
                    .saturating_sub(if items.len() > 1 { 2 } else { 0 })
            );
            cacher.retain_snapshot(&snapshot);
        }
    }
}
