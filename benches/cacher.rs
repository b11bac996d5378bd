//! The cost of the watch cache: changes of its snapshot, their delivery to watchers, and selectors.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use futures::StreamExt;
use futures::future::join_all;
use keelson::internals::cacher::{Cacher, Cursor, Interest, Reflector};
use keelson::internals::codec::{json, protobuf};
use keelson::internals::meta::Gvk;
use keelson::internals::meta::LabelSelector;
use keelson::internals::schema;
use keelson::internals::storage::{
    ListPage, ListRequest, Result, Revision, Storage, StorageError, Stored, WatchEvent,
    WatchStream, WriteOutcome,
};
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

const PREFIX: &str = "/registry/pods/";
const POD: &str = include_str!("pod.json");
/// The number of objects in the cache.
const OBJECTS: i64 = 10_000;
/// The number of watchers.
const WATCHERS: usize = 1000;

/// A storage with [`OBJECTS`] objects that passes on the events that it is given.
struct ScriptedStorage {
    value: Bytes,
    revision: AtomicI64,
    changes: Mutex<Option<mpsc::UnboundedReceiver<Result<WatchEvent>>>>,
}

fn unsupported<T>() -> Result<T> {
    Err(StorageError::Internal("not scripted".into()))
}

impl ScriptedStorage {
    fn stored(&self, number: i64, revision: Revision) -> Stored {
        Stored {
            key: format!("{PREFIX}ns/pod-{number:06}"),
            value: self.value.clone(),
            create_revision: 1,
            mod_revision: revision,
        }
    }
}

#[async_trait]
impl Storage for ScriptedStorage {
    async fn get(&self, _: &str) -> Result<Option<Stored>> {
        unsupported()
    }

    async fn get_with_revision(&self, _: &str) -> Result<(Option<Stored>, Revision)> {
        unsupported()
    }

    async fn list(&self, _: ListRequest) -> Result<ListPage> {
        let items = (0..OBJECTS).map(|number| self.stored(number, 1)).collect();
        Ok(ListPage {
            items,
            revision: 1,
            more: false,
            count: OBJECTS,
        })
    }

    async fn create(&self, _: &str, _: Bytes, _: Option<Duration>) -> Result<WriteOutcome> {
        unsupported()
    }

    async fn update(
        &self,
        _: &str,
        _: Bytes,
        _: Revision,
        _: Option<Duration>,
    ) -> Result<WriteOutcome> {
        unsupported()
    }

    async fn delete(&self, _: &str, _: Revision) -> Result<WriteOutcome> {
        unsupported()
    }

    async fn watch(&self, _: &str, _: Revision) -> Result<WatchStream> {
        let Some(mut changes) = self.changes.lock().take() else {
            return unsupported();
        };
        Ok(futures::stream::poll_fn(move |context| changes.poll_recv(context)).boxed())
    }

    async fn request_progress(&self) -> Result<()> {
        Ok(())
    }

    async fn current_revision(&self) -> Result<Revision> {
        Ok(self.revision.load(Ordering::Relaxed))
    }

    async fn compact(&self, _: Revision) -> Result<()> {
        Ok(())
    }

    async fn check_health(&self) -> Result<()> {
        Ok(())
    }

    async fn size(&self) -> Result<u64> {
        Ok(0)
    }

    fn check_integrity(&self) -> Result<()> {
        Ok(())
    }
}

/// A filled cache, and the sender of its storage's events.
struct Fixture {
    storage: Arc<ScriptedStorage>,
    events: mpsc::UnboundedSender<Result<WatchEvent>>,
    cacher: Arc<Cacher>,
    /// Keeps the cache fed.
    _reflector: Reflector,
}

impl Fixture {
    async fn new() -> Self {
        let (events, changes) = mpsc::unbounded_channel();
        let value = Bytes::from_static(&[0; 2048]);
        let storage = Arc::new(ScriptedStorage {
            value,
            revision: AtomicI64::new(1),
            changes: Mutex::new(Some(changes)),
        });
        let reflector = Reflector::start(storage.clone(), "/registry");
        let cacher = reflector.cacher(PREFIX, None);
        while cacher.snapshot().is_none() {
            tokio::task::yield_now().await;
        }
        Self {
            storage,
            events,
            cacher,
            _reflector: reflector,
        }
    }

    /// Sends the next change and returns its revision.
    fn change(&self) -> Revision {
        let revision = self.storage.revision.fetch_add(1, Ordering::Relaxed) + 1;
        let number = revision.wrapping_mul(7919) % OBJECTS;
        let (current, previous) = (
            self.storage.stored(number, revision),
            Some(self.storage.stored(number, 1)),
        );
        // The reflector lives as long as this.
        let _ = self.events.send(Ok(WatchEvent::Put { current, previous }));
        revision
    }
}

/// Waits until a cursor has returned a revision.
async fn wait_for(cursor: &mut Cursor, revision: Revision) {
    while cursor.next().await.expect("changes").revision < revision {}
}

fn changes(c: &mut Criterion) {
    const BATCH: usize = 512;
    let runtime = Runtime::new().expect("a runtime");
    let fixture = runtime.block_on(Fixture::new());
    let now = fixture.storage.revision.load(Ordering::Relaxed);
    let mut one = fixture
        .cacher
        .watch(now, Interest::Everything)
        .expect("a filled cache");
    c.bench_function("snapshot: 512 changes among 10 000 objects", |b| {
        b.iter(|| {
            let last = (0..BATCH).fold(0, |_, _| fixture.change());
            runtime.block_on(wait_for(&mut one, last));
        });
    });
    drop(one);
    let now = fixture.storage.revision.load(Ordering::Relaxed);
    let mut many: Vec<Cursor> = (0..WATCHERS)
        .map(|_| {
            fixture
                .cacher
                .watch(now, Interest::Everything)
                .expect("a filled cache")
        })
        .collect();
    c.bench_function("ring: one change to 1000 cursors", |b| {
        b.iter(|| {
            let revision = fixture.change();
            runtime.block_on(join_all(
                many.iter_mut().map(|cursor| wait_for(cursor, revision)),
            ));
        });
    });
}

fn selectors(c: &mut Criterion) {
    let ty = schema::builtin()
        .get(&Gvk::new("", "v1", "Pod"))
        .expect("the type of pods");
    let stored = protobuf::encode(&json::decode(POD.as_bytes(), ty).expect("a pod").object, ty);
    for text in ["tier=none", "tier in (none,other),!gone"] {
        let selector = LabelSelector::parse(text).expect("a selector");
        c.bench_function(&format!("selector {text} of a stored pod"), |b| {
            b.iter(|| {
                let message = protobuf::Message {
                    bytes: black_box(&stored),
                    ty,
                };
                selector.selects(&message)
            });
        });
    }
}

criterion_group!(benches, changes, selectors);
criterion_main!(benches);
