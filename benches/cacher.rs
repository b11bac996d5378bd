//! What the watch cache costs: taking changes into its snapshot, telling them to those who follow,
//! and selecting objects.

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
/// Objects that stand.
const OBJECTS: i64 = 10_000;
/// Those who follow.
const FOLLOWERS: usize = 1000;

/// A store that holds [`OBJECTS`] objects and tells the changes that it is told.
struct Script {
    value: Bytes,
    revision: AtomicI64,
    changes: Mutex<Option<mpsc::UnboundedReceiver<Result<WatchEvent>>>>,
}

fn scripted<T>() -> Result<T> {
    Err(StorageError::Internal("not in the script".into()))
}

impl Script {
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
impl Storage for Script {
    async fn get(&self, _: &str) -> Result<Option<Stored>> {
        scripted()
    }

    async fn get_with_revision(&self, _: &str) -> Result<(Option<Stored>, Revision)> {
        scripted()
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
        scripted()
    }

    async fn update(
        &self,
        _: &str,
        _: Bytes,
        _: Revision,
        _: Option<Duration>,
    ) -> Result<WriteOutcome> {
        scripted()
    }

    async fn delete(&self, _: &str, _: Revision) -> Result<WriteOutcome> {
        scripted()
    }

    async fn watch(&self, _: &str, _: Revision) -> Result<WatchStream> {
        let Some(mut changes) = self.changes.lock().take() else {
            return scripted();
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
}

/// A filled cache, and the way to tell it changes.
struct Stage {
    script: Arc<Script>,
    tell: mpsc::UnboundedSender<Result<WatchEvent>>,
    cacher: Arc<Cacher>,
    /// Keeps the cache fed.
    _reflector: Reflector,
}

impl Stage {
    async fn set() -> Self {
        let (tell, changes) = mpsc::unbounded_channel();
        let value = Bytes::from_static(&[0; 2048]);
        let script = Arc::new(Script {
            value,
            revision: AtomicI64::new(1),
            changes: Mutex::new(Some(changes)),
        });
        let reflector = Reflector::start(script.clone(), "/registry");
        let cacher = reflector.cacher(PREFIX, None);
        while cacher.snapshot().is_none() {
            tokio::task::yield_now().await;
        }
        Self {
            script,
            tell,
            cacher,
            _reflector: reflector,
        }
    }

    /// Tells the next change; answers its revision.
    fn change(&self) -> Revision {
        let revision = self.script.revision.fetch_add(1, Ordering::Relaxed) + 1;
        let number = revision.wrapping_mul(7919) % OBJECTS;
        let (current, previous) = (
            self.script.stored(number, revision),
            Some(self.script.stored(number, 1)),
        );
        // The reflector lives as long as this.
        let _ = self.tell.send(Ok(WatchEvent::Put { current, previous }));
        revision
    }
}

/// Waits until a cursor has told a revision.
async fn told(cursor: &mut Cursor, revision: Revision) {
    while cursor.next().await.expect("changes").revision < revision {}
}

fn changes(c: &mut Criterion) {
    const BATCH: usize = 512;
    let runtime = Runtime::new().expect("a runtime");
    let stage = runtime.block_on(Stage::set());
    let now = stage.script.revision.load(Ordering::Relaxed);
    let mut one = stage
        .cacher
        .watch(now, Interest::Everything)
        .expect("a filled cache");
    c.bench_function("snapshot: 512 changes among 10 000 objects", |b| {
        b.iter(|| {
            let last = (0..BATCH).fold(0, |_, _| stage.change());
            runtime.block_on(told(&mut one, last));
        });
    });
    drop(one);
    let now = stage.script.revision.load(Ordering::Relaxed);
    let mut many: Vec<Cursor> = (0..FOLLOWERS)
        .map(|_| {
            stage
                .cacher
                .watch(now, Interest::Everything)
                .expect("a filled cache")
        })
        .collect();
    c.bench_function("ring: one change to 1000 cursors", |b| {
        b.iter(|| {
            let revision = stage.change();
            runtime.block_on(join_all(
                many.iter_mut().map(|cursor| told(cursor, revision)),
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
