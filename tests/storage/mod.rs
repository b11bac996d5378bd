//! The stores under test, and which test runs on which.

mod cached;
mod contract;
mod differential;
mod embedded;
mod etcd3;
mod faults;
mod simulation;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use futures::StreamExt;
use keelson::internals::storage::Embedded;
use keelson::internals::storage::{Config, Etcd3};
use keelson::internals::storage::{
    ListRequest, Result, Revision, Storage, StorageError, WatchEvent, WatchStream, WriteOutcome,
};

use crate::etcd::Etcd;

/// A store, and a part of its keys that no other test touches.
pub struct Backend {
    pub storage: Arc<dyn Storage>,
    pub prefix: String,
    _keep: Keep,
}

#[allow(dead_code)] // Held until the test is over.
enum Keep {
    Nothing,
    Dir(tempfile::TempDir),
    Etcd(Arc<Etcd>),
}

/// The etcd of the tests that run at the moment.
static SHARED: Mutex<Weak<Etcd>> = Mutex::new(Weak::new());
static NEXT: AtomicUsize = AtomicUsize::new(0);

impl Backend {
    pub async fn embedded() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self::new(
            Arc::new(Embedded::open(dir.path()).unwrap()),
            Keep::Dir(dir),
        )
    }

    pub async fn memory() -> Self {
        Self::new(Arc::new(Embedded::in_memory().unwrap()), Keep::Nothing)
    }

    /// On an etcd that other tests use too: revisions jump.
    pub async fn etcd3() -> Self {
        let etcd = tokio::task::spawn_blocking(|| {
            let mut shared = SHARED.lock().unwrap_or_else(|e| e.into_inner());
            shared.upgrade().unwrap_or_else(|| {
                let etcd = Arc::new(Etcd::start());
                *shared = Arc::downgrade(&etcd);
                etcd
            })
        });
        Self::on(etcd.await.unwrap()).await
    }

    /// On an etcd of its own.
    pub async fn fresh_etcd3() -> Self {
        Self::on(
            tokio::task::spawn_blocking(|| Arc::new(Etcd::start()))
                .await
                .unwrap(),
        )
        .await
    }

    async fn on(etcd: Arc<Etcd>) -> Self {
        Self::new(Arc::new(connect(&etcd.endpoint()).await), Keep::Etcd(etcd))
    }

    /// The same store behind the watch cache.
    pub async fn cached(self) -> Self {
        Self {
            storage: Arc::new(cached::Cached::new(self.storage.clone()).await),
            ..self
        }
    }

    fn new(storage: Arc<dyn Storage>, keep: Keep) -> Self {
        Self {
            storage,
            prefix: format!("/test{}/", NEXT.fetch_add(1, Ordering::Relaxed)),
            _keep: keep,
        }
    }

    pub fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub async fn create(&self, name: &str, value: &str) -> Revision {
        done(
            self.storage
                .create(&self.key(name), bytes(value), None)
                .await,
        )
    }

    pub async fn update(&self, name: &str, value: &str, expected: Revision) -> Revision {
        done(
            self.storage
                .update(&self.key(name), bytes(value), expected, None)
                .await,
        )
    }

    pub async fn delete(&self, name: &str, expected: Revision) -> Revision {
        done(self.storage.delete(&self.key(name), expected).await)
    }

    pub async fn watch(&self, after: Revision) -> WatchStream {
        self.storage.watch(&self.prefix, after).await.unwrap()
    }

    pub fn all(&self) -> ListRequest {
        ListRequest {
            prefix: self.prefix.clone(),
            ..ListRequest::default()
        }
    }

    /// The event without its prefix and revisions: `put a=1 (was 0)`.
    pub fn tell(&self, event: &WatchEvent) -> String {
        let text = |value: &Bytes| String::from_utf8_lossy(value).into_owned();
        let name = |key: &str| {
            key.strip_prefix(&self.prefix)
                .expect("a key of this test")
                .to_owned()
        };
        let was = |previous: &Option<keelson::internals::storage::Stored>| {
            previous
                .as_ref()
                .map_or(String::new(), |p| format!(" (was {})", text(&p.value)))
        };
        match event {
            WatchEvent::Put { current, previous } => format!(
                "put {}={}{}",
                name(&current.key),
                text(&current.value),
                was(previous)
            ),
            WatchEvent::Delete { key, previous, .. } => {
                format!("delete {}{}", name(key), was(previous))
            }
            WatchEvent::Unread { key, .. } => format!("unread {}", name(key)),
            WatchEvent::Progress(_) => "progress".into(),
        }
    }

    /// The next events, told.
    pub async fn told(&self, stream: &mut WatchStream, count: usize) -> Vec<String> {
        events(stream, count)
            .await
            .iter()
            .map(|e| self.tell(e))
            .collect()
    }
}

pub async fn connect(endpoint: &str) -> Etcd3 {
    Etcd3::connect(Config {
        endpoints: vec![endpoint.to_owned()],
        ..Config::default()
    })
    .await
    .unwrap()
}

pub fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// The revision of a write that had to succeed.
pub fn done(outcome: Result<WriteOutcome>) -> Revision {
    match outcome {
        Ok(WriteOutcome::Committed(revision)) => revision,
        other => panic!("not done: {other:?}"),
    }
}

/// The next events that are not progress.
pub async fn events(stream: &mut WatchStream, count: usize) -> Vec<WatchEvent> {
    let mut events = Vec::new();
    while events.len() < count {
        match next(stream).await.unwrap() {
            WatchEvent::Progress(_) => {}
            event => events.push(event),
        }
    }
    events
}

/// The next item; a stream that ends or stays silent for long fails the test.
pub async fn next(stream: &mut WatchStream) -> Result<WatchEvent> {
    let next = tokio::time::timeout(std::time::Duration::from_secs(60), stream.next());
    next.await
        .expect("an event in time")
        .expect("the stream goes on")
}

pub fn revision(event: &WatchEvent) -> Revision {
    match event {
        WatchEvent::Put { current, .. } => current.mod_revision,
        WatchEvent::Delete { revision, .. }
        | WatchEvent::Unread { revision, .. }
        | WatchEvent::Progress(revision) => *revision,
    }
}

/// Runs each test of [`contract`] on each store.
macro_rules! on_each_store {
    ($($test:ident)*) => {
        mod on_memory {
            $(#[tokio::test]
            async fn $test() {
                super::contract::$test(super::Backend::memory().await).await;
            })*
        }
        mod on_embedded {
            $(#[tokio::test]
            async fn $test() {
                super::contract::$test(super::Backend::embedded().await).await;
            })*
        }
        mod on_etcd3 {
            $(#[tokio::test]
            async fn $test() {
                super::contract::$test(super::Backend::etcd3().await).await;
            })*
        }
        mod on_cached_embedded {
            $(#[tokio::test]
            async fn $test() {
                super::contract::$test(super::Backend::embedded().await.cached().await).await;
            })*
        }
        mod on_cached_etcd3 {
            $(#[tokio::test]
            async fn $test() {
                super::contract::$test(super::Backend::etcd3().await.cached().await).await;
            })*
        }
    };
}

on_each_store! {
    create_wants_no_key
    update_wants_the_expected_revision
    delete_wants_the_expected_revision
    a_key_made_again_has_a_new_create_revision
    reads_name_their_revision
    list_pages_in_order
    list_keeps_to_its_prefix
    list_at_an_old_revision
    list_at_a_future_revision_fails
    values_may_be_any_bytes
    values_may_be_large_but_not_too_large
    many_keys_are_listed_whole
    watch_tells_changes_in_order_with_what_was_before
    watch_from_the_past_tells_the_same
    watch_keeps_to_its_prefix
    watch_from_the_future_waits
    watch_tells_its_progress_when_asked
    watchers_are_independent
    ttl_deletes_and_a_write_without_it_keeps
    concurrent_writers_lose_nothing
    health_is_good
}

macro_rules! on_each_fresh_store {
    ($($test:ident)*) => {
        mod on_fresh_memory {
            $(#[tokio::test]
            async fn $test() {
                super::contract::$test(super::Backend::memory().await).await;
            })*
        }
        mod on_fresh_embedded {
            $(#[tokio::test]
            async fn $test() {
                super::contract::$test(super::Backend::embedded().await).await;
            })*
        }
        mod on_fresh_etcd3 {
            $(#[tokio::test]
            async fn $test() {
                super::contract::$test(super::Backend::fresh_etcd3().await).await;
            })*
        }
        mod on_fresh_cached_embedded {
            $(#[tokio::test]
            async fn $test() {
                super::contract::$test(super::Backend::embedded().await.cached().await).await;
            })*
        }
        mod on_fresh_cached_etcd3 {
            $(#[tokio::test]
            async fn $test() {
                super::contract::$test(super::Backend::fresh_etcd3().await.cached().await).await;
            })*
        }
    };
}

on_each_fresh_store! {
    revisions_start_at_one_and_grow_by_one
    compaction_forgets_history_only
    one_of_several_compactors_keeps_history_for_two_turns
}

/// The error must be compaction.
pub fn compacted(outcome: Result<impl std::fmt::Debug>) {
    assert!(
        matches!(outcome, Err(StorageError::Compacted { .. })),
        "{outcome:?}"
    );
}
