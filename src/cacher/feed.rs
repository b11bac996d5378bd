//! One watch of a whole store, from which all of its caches are fed.
//!
//! One watch for all resources means one order of all changes: as soon as any of them is told, every cache is known to be that
//! far, and a read that must see the latest state seldom has to ask the store twice.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::storage::{ListRequest, Result, Revision, Storage, StorageError, WatchEvent, WatchStream, after};

use super::Cacher;
pub use super::freshness::Reached;
use super::index::IndexFn;
use super::ring::Limits;
use super::snapshot::Snapshot;

/// Changes taken in at once, about (those of one revision stay together).
const BATCH: usize = 512;
/// Caches that are filled at the same time, at most.
const FILLS_AT_ONCE: usize = 8;
/// Objects read at once while a cache is filled.
const FILL_PAGE: usize = 1000;
/// The pause before a broken watch or a failed fill is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// Keeps the caches of one store up to date until it is dropped.
pub struct Feed {
    reached: Arc<Reached>,
    cachers: Mutex<BTreeMap<String, Arc<Cacher>>>,
    limits: Limits,
    orders: mpsc::UnboundedSender<Order>,
    task: AbortHandle,
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Feed({} cachers)", self.cachers.lock().len())
    }
}

enum Order {
    Add(Arc<Cacher>),
    Remove(String),
}

impl Feed {
    /// Follows everything below `root` in `storage`. Needs a runtime.
    pub fn start(storage: Arc<dyn Storage>, root: &str) -> Self {
        Self::with_limits(storage, root, Limits::default())
    }

    /// [`Feed::start`] with caches that keep so many changes.
    pub fn with_limits(storage: Arc<dyn Storage>, root: &str, limits: Limits) -> Self {
        let reached = Arc::new(Reached::new(storage.clone()));
        let (orders, inbox) = mpsc::unbounded_channel();
        let follower = Follower {
            storage,
            root: root.to_owned(),
            reached: reached.clone(),
            inbox,
            cachers: BTreeMap::new(),
            fills: FuturesUnordered::new(),
            places: Arc::new(Semaphore::new(FILLS_AT_ONCE)),
        };
        let task = tokio::spawn(follower.run()).abort_handle();
        Self { reached, cachers: Mutex::default(), limits, orders, task }
    }

    /// The cache of the keys below `prefix`, which begins to fill if it is new. `index`: what its objects are found by; it
    /// counts where the cache is made.
    pub fn cacher(&self, prefix: &str, index: Option<IndexFn>) -> Arc<Cacher> {
        let mut cachers = self.cachers.lock();
        if let Some(cacher) = cachers.get(prefix) {
            return cacher.clone();
        }
        let cacher = Arc::new(Cacher::new(prefix, index, self.limits, self.reached.clone()));
        cachers.insert(prefix.to_owned(), cacher.clone());
        // The task lives as long as this.
        let _ = self.orders.send(Order::Add(cacher.clone()));
        cacher
    }

    /// Lets go of the cache of the keys below `prefix`: nobody follows it any more.
    pub fn remove(&self, prefix: &str) {
        if self.cachers.lock().remove(prefix).is_some() {
            let _ = self.orders.send(Order::Remove(prefix.to_owned()));
        }
    }

    /// The store has forgotten what was before `revision`: the caches answer no exact reads from before it either, as another
    /// server could not.
    pub fn compacted(&self, revision: Revision) {
        self.reached.compacted(revision);
    }

    /// Whether every cache can answer; the error says which cannot and why.
    pub fn ready(&self) -> std::result::Result<(), String> {
        let cachers = self.cachers.lock();
        let troubles: Vec<String> =
            cachers.values().filter_map(|cacher| Some(format!("{}: {}", cacher.prefix(), cacher.ready().err()?))).collect();
        if troubles.is_empty() { Ok(()) } else { Err(troubles.join("; ")) }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A cache with what a list found for it.
type Filled = (Arc<Cacher>, Result<Snapshot>);

/// The task behind a [`Feed`].
struct Follower {
    storage: Arc<dyn Storage>,
    root: String,
    reached: Arc<Reached>,
    inbox: mpsc::UnboundedReceiver<Order>,
    cachers: BTreeMap<String, Arc<Cacher>>,
    fills: FuturesUnordered<BoxFuture<'static, Filled>>,
    places: Arc<Semaphore>,
}

impl Follower {
    async fn run(mut self) {
        loop {
            let error = match self.begin().await {
                Ok(changes) => self.follow(changes).await,
                Err(error) => error,
            };
            tracing::warn!(%error, "the watch cache begins anew");
            self.fills.clear();
            let why = error.to_string();
            self.cachers.values().for_each(|cacher| cacher.restart(Some(&why)));
            sleep(RETRY).await;
        }
    }

    /// Opens the watch, then has every cache filled: what changes meanwhile is told by the watch.
    async fn begin(&mut self) -> Result<WatchStream> {
        let now = self.storage.current_revision().await?;
        let changes = self.storage.follow(&self.root, now).await?;
        self.reached.advance(now);
        for cacher in self.cachers.values() {
            self.fills.push(fill(self.storage.clone(), cacher.clone(), self.places.clone(), Duration::ZERO));
        }
        Ok(changes)
    }

    /// Feeds the caches until the watch breaks.
    async fn follow(&mut self, mut changes: WatchStream) -> StorageError {
        loop {
            tokio::select! {
                batch = next_batch(&mut changes) => match batch {
                    Ok(batch) => self.tell(batch),
                    Err(error) => return error,
                },
                Some(order) = self.inbox.recv() => self.obey(order),
                Some((cacher, outcome)) = self.fills.next(), if !self.fills.is_empty() => self.filled(cacher, outcome),
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Add(cacher) => {
                self.cachers.insert(cacher.prefix().to_owned(), cacher.clone());
                self.fills.push(fill(self.storage.clone(), cacher, self.places.clone(), Duration::ZERO));
            }
            Order::Remove(prefix) => {
                if let Some(cacher) = self.cachers.remove(&prefix) {
                    cacher.restart(None);
                }
            }
        }
    }

    fn filled(&mut self, cacher: Arc<Cacher>, outcome: Result<Snapshot>) {
        if !self.cachers.get(cacher.prefix()).is_some_and(|known| Arc::ptr_eq(known, &cacher)) {
            return;
        }
        match outcome {
            Ok(snapshot) => cacher.fill(snapshot),
            Err(error) => {
                tracing::warn!(prefix = cacher.prefix(), %error, "a watch cache cannot be filled yet");
                cacher.troubled(&error.to_string());
                self.fills.push(fill(self.storage.clone(), cacher, self.places.clone(), RETRY));
            }
        }
    }

    /// Hands each cache its changes, then tells how far that is.
    fn tell(&self, batch: Vec<WatchEvent>) {
        let mut reached = 0;
        let mut shares: HashMap<&str, (&Arc<Cacher>, Vec<WatchEvent>)> = HashMap::new();
        for event in batch {
            reached = event.revision().max(reached);
            if let Some(cacher) = event.key().and_then(|key| self.cacher_of(key)) {
                shares.entry(cacher.prefix()).or_insert_with(|| (cacher, Vec::new())).1.push(event);
            }
        }
        shares.into_values().for_each(|(cacher, events)| cacher.apply(events));
        self.reached.advance(reached);
    }

    /// The cache that a key belongs to: no prefix is the beginning of another.
    fn cacher_of(&self, key: &str) -> Option<&Arc<Cacher>> {
        let below: (Bound<&str>, Bound<&str>) = (Bound::Unbounded, Bound::Included(key));
        let (prefix, cacher) = self.cachers.range::<str, _>(below).next_back()?;
        key.starts_with(prefix.as_str()).then_some(cacher)
    }
}

/// Waits for the next change and takes what else is there, up to the end of a revision.
async fn next_batch(changes: &mut WatchStream) -> Result<Vec<WatchEvent>> {
    let over = || StorageError::Unavailable("the watch of the store ended".into());
    let mut batch = vec![changes.next().await.ok_or_else(over)??];
    // All events of one revision come together: where none is there, none is missing.
    while let Some(Some(Ok(event))) = changes.next().now_or_never() {
        let complete = batch.len() >= BATCH && batch.last().is_some_and(|last| last.revision() != event.revision());
        batch.push(event);
        if complete {
            break;
        }
    }
    Ok(batch)
}

/// Reads what is below a prefix, a page at a time, all of it as of one revision.
fn fill(storage: Arc<dyn Storage>, cacher: Arc<Cacher>, places: Arc<Semaphore>, pause: Duration) -> BoxFuture<'static, Filled> {
    async move {
        sleep(pause).await;
        // Nobody closes it.
        let _place = places.acquire().await;
        let outcome = read(storage.as_ref(), &cacher).await;
        (cacher, outcome)
    }
    .boxed()
}

async fn read(storage: &dyn Storage, cacher: &Cacher) -> Result<Snapshot> {
    let mut snapshot = cacher.empty();
    let mut request = ListRequest { prefix: cacher.prefix().to_owned(), limit: FILL_PAGE, ..ListRequest::default() };
    loop {
        let page = storage.list(request.clone()).await?;
        snapshot.revision = page.revision;
        request.revision = Some(page.revision);
        let last = page.items.last().map(|stored| after(&stored.key));
        for stored in page.items {
            snapshot.put(Arc::new(stored));
        }
        match last.filter(|_| page.more) {
            Some(next) => request.start = next,
            None => return Ok(snapshot),
        }
    }
}
