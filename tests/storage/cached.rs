//! A store behind the watch cache, as a store again: what it answers from memory must be what the
//! store would have answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use keelson::internals::cacher::{
    CachedObject, Cacher, Change, Cursor, CursorError, Interest, Reflector, Snapshot,
};
use keelson::internals::storage::{
    ListPage, ListRequest, Result, Revision, Storage, StorageError, Stored, WatchEvent,
    WatchStream, WriteOutcome,
};
use tokio::sync::watch;

pub struct Cached {
    storage: Arc<dyn Storage>,
    reflector: Reflector,
    cacher: Arc<Cacher>,
    compacted: AtomicI64,
    asked: watch::Sender<Revision>,
}

impl Cached {
    /// The store with a cache of all its keys, which is filled.
    pub async fn new(storage: Arc<dyn Storage>) -> Self {
        let reflector = Reflector::start(storage.clone(), "");
        let cacher = reflector.cacher("", None);
        let cached = Self {
            storage,
            reflector,
            cacher,
            compacted: AtomicI64::new(0),
            asked: watch::Sender::new(0),
        };
        while cached.cacher.ready().is_err() {
            tokio::task::yield_now().await;
        }
        cached
    }

    async fn latest(&self) -> Snapshot {
        self.cacher
            .linearizable_snapshot()
            .await
            .expect("the cache keeps up")
    }
}

fn unwrap(stored: Option<&Arc<CachedObject>>) -> Option<Stored> {
    stored.map(|stored| Stored::clone(stored))
}

#[async_trait]
impl Storage for Cached {
    async fn get(&self, key: &str) -> Result<Option<Stored>> {
        Ok(unwrap(self.latest().await.get(key)))
    }

    async fn get_with_revision(&self, key: &str) -> Result<(Option<Stored>, Revision)> {
        let snapshot = self.latest().await;
        Ok((unwrap(snapshot.get(key)), snapshot.revision))
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        let snapshot = match request.revision {
            None => self.latest().await,
            Some(revision) => match self.cacher.snapshot_at(revision).await {
                Some(snapshot) => snapshot,
                None => return self.storage.list(request).await,
            },
        };
        let all: Vec<Stored> = snapshot
            .range(&request.prefix, &request.start)
            .map(|stored| Stored::clone(stored))
            .collect();
        let limit = if request.limit == 0 {
            usize::MAX
        } else {
            request.limit
        };
        Ok(ListPage {
            revision: snapshot.revision,
            more: all.len() > limit,
            count: all.len() as i64,
            items: all.into_iter().take(limit).collect(),
        })
    }

    async fn create(&self, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<WriteOutcome> {
        self.storage.create(key, value, ttl).await
    }

    async fn update(
        &self,
        key: &str,
        value: Bytes,
        expected: Revision,
        ttl: Option<Duration>,
    ) -> Result<WriteOutcome> {
        self.storage.update(key, value, expected, ttl).await
    }

    async fn delete(&self, key: &str, expected: Revision) -> Result<WriteOutcome> {
        self.storage.delete(key, expected).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<WatchStream> {
        let forgotten = after + 1 < self.compacted.load(Ordering::SeqCst);
        match self.cacher.watch(after, Interest::Everything) {
            Ok(cursor) if !forgotten => Ok(events(
                cursor,
                prefix.to_owned(),
                after,
                self.asked.subscribe(),
            )),
            _ => self.storage.watch(prefix, after).await,
        }
    }

    async fn request_progress(&self) -> Result<()> {
        self.asked.send_replace(self.latest().await.revision);
        self.storage.request_progress().await
    }

    async fn current_revision(&self) -> Result<Revision> {
        self.storage.current_revision().await
    }

    async fn compact(&self, revision: Revision) -> Result<()> {
        self.storage.compact(revision).await?;
        self.reflector.record_compaction(revision);
        self.compacted.store(revision, Ordering::SeqCst);
        Ok(())
    }

    async fn check_health(&self) -> Result<()> {
        self.storage.check_health().await
    }

    async fn size(&self) -> Result<u64> {
        self.storage.size().await
    }

    fn check_integrity(&self) -> Result<()> {
        self.storage.check_integrity()
    }
}

/// Returns the events of a cursor, with progress if requested.
fn events(
    cursor: Cursor,
    prefix: String,
    after: Revision,
    asked: watch::Receiver<Revision>,
) -> WatchStream {
    let next = move |(mut cursor, mut asked): (Cursor, watch::Receiver<Revision>)| async move {
        let told = loop {
            tokio::select! {
                biased;
                change = cursor.next() => match change {
                    Ok(change) => break Ok(event(&change)),
                    Err(CursorError::Restarted | CursorError::Restored { .. }) => return None,
                    Err(CursorError::TooOld { oldest, .. }) => break Err(StorageError::Compacted { oldest: Some(oldest) }),
                },
                Ok(()) = asked.changed() => match cursor.progress() {
                    Some(revision) if revision > after => break Ok(WatchEvent::Progress(revision)),
                    _ => {}
                },
            }
        };
        Some((told, (cursor, asked)))
    };
    let under = move |event: &Result<WatchEvent>| {
        std::future::ready(match event {
            Ok(WatchEvent::Put { current, .. }) => current.key.starts_with(&prefix),
            Ok(WatchEvent::Delete { key, .. }) => key.starts_with(&prefix),
            _ => true,
        })
    };
    futures::stream::unfold((cursor, asked), next)
        .filter(under)
        .boxed()
}

fn event(change: &Change) -> WatchEvent {
    let previous = change
        .previous
        .as_deref()
        .map(|previous| Stored::clone(previous));
    match &change.current {
        Some(current) => WatchEvent::Put {
            current: Stored::clone(current),
            previous,
        },
        None => WatchEvent::Delete {
            key: change.key().to_owned(),
            revision: change.revision,
            previous,
        },
    }
}
