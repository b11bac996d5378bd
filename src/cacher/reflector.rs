//! One watch of a whole store, from which all of its caches are fed.
//!
//! One watch for all resources means one order of all changes: as soon as any of them is told,
//! every cache is known to be that far, and a read that must see the latest state seldom has to ask
//! the store twice.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::base::backoff::Backoff;
use crate::base::coop::CoopBudget;
use crate::base::supervise::{FailureTracker, catch_panic};
use crate::storage::{
    ListRequest, Result, Revision, Storage, StorageError, WatchEvent, WatchStream, next_key,
};

use super::Cacher;
use super::index::IndexFn;
pub use super::progress::ProgressTracker;
use super::ring::HistoryLimits;
use super::snapshot::Snapshot;

/// Changes taken in at once, about (those of one revision stay together).
const BATCH: usize = 512;
/// Caches that are filled at the same time, at most.
const FILLS_AT_ONCE: usize = 8;
/// Objects read at once while a cache is filled.
const FILL_PAGE: usize = 1000;
/// The pause before a broken watch or a failed fill is tried again; doubles with each attempt that
/// fails.
const RETRY: Duration = Duration::from_millis(500);
/// The longest pause before that.
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Keeps the caches of one store up to date until it is dropped.
pub struct Reflector {
    reached: Arc<ProgressTracker>,
    wanted: Arc<Wanted>,
    limits: HistoryLimits,
    task: AbortHandle,
}

/// The caches that are to be kept up to date, by their prefixes.
#[derive(Default)]
struct Wanted {
    cachers: Mutex<BTreeMap<String, Arc<Cacher>>>,
    changed: Notify,
}

impl std::fmt::Debug for Reflector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reflector({} cachers)", self.wanted.cachers.lock().len())
    }
}

impl Reflector {
    /// Follows everything below `root` in `storage`. Needs a runtime.
    pub fn start(storage: Arc<dyn Storage>, root: &str) -> Self {
        Self::with_limits(storage, root, HistoryLimits::default())
    }

    /// [`Reflector::start`] with caches that keep so many changes.
    pub fn with_limits(storage: Arc<dyn Storage>, root: &str, limits: HistoryLimits) -> Self {
        let (reached, wanted) = (
            Arc::new(ProgressTracker::new(storage.clone())),
            Arc::<Wanted>::default(),
        );
        let follower = ReflectorTask {
            storage,
            root: root.to_owned(),
            reached: reached.clone(),
            wanted: wanted.clone(),
            cachers: BTreeMap::new(),
            fills: FuturesUnordered::new(),
            places: Arc::new(Semaphore::new(FILLS_AT_ONCE)),
            held: None,
            following: FailureTracker::new("following the store for the watch cache"),
        };
        let task = tokio::spawn(follower.run()).abort_handle();
        Self {
            reached,
            wanted,
            limits,
            task,
        }
    }

    /// The cache of the keys below `prefix`, which begins to fill if it is new. `index`: what its
    /// objects are found by; it counts where the cache is made.
    pub fn cacher(&self, prefix: &str, index: Option<IndexFn>) -> Arc<Cacher> {
        let mut cachers = self.wanted.cachers.lock();
        if let Some(cacher) = cachers.get(prefix) {
            return cacher.clone();
        }
        let cacher = Arc::new(Cacher::new(
            prefix,
            index,
            self.limits,
            self.reached.clone(),
        ));
        cachers.insert(prefix.to_owned(), cacher.clone());
        self.wanted.changed.notify_one();
        cacher
    }

    /// Lets go of the cache of the keys below `prefix`: nobody follows it any more.
    pub fn remove(&self, prefix: &str) {
        if self.wanted.cachers.lock().remove(prefix).is_some() {
            self.wanted.changed.notify_one();
        }
    }

    /// The store has forgotten what was before `revision`: the caches answer no exact reads from
    /// before it either, as another server could not.
    pub fn record_compaction(&self, revision: Revision) {
        self.reached.record_compaction(revision);
    }

    /// Whether every cache can answer and is kept up to date; the error says which is not and why.
    pub fn ready(&self) -> std::result::Result<(), String> {
        if self.task.is_finished() {
            return Err("nobody follows the store any more".to_owned());
        }
        let cachers = self.wanted.cachers.lock();
        let troubles: Vec<String> = cachers
            .values()
            .filter_map(|cacher| Some(format!("{}: {}", cacher.prefix(), cacher.ready().err()?)))
            .collect();
        if troubles.is_empty() {
            Ok(())
        } else {
            Err(troubles.join("; "))
        }
    }
}

impl Drop for Reflector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A cache with what a list found for it, and the pauses between attempts to fill it.
type Filled = (Arc<Cacher>, Result<Snapshot>, Backoff);

/// The task behind a [`Reflector`].
struct ReflectorTask {
    storage: Arc<dyn Storage>,
    root: String,
    reached: Arc<ProgressTracker>,
    wanted: Arc<Wanted>,
    /// Those of the wanted that are being filled or fed.
    cachers: BTreeMap<String, Arc<Cacher>>,
    fills: FuturesUnordered<BoxFuture<'static, Filled>>,
    places: Arc<Semaphore>,
    /// What the watch has told behind the last batch.
    held: Option<Result<WatchEvent>>,
    following: FailureTracker,
}

impl ReflectorTask {
    async fn run(mut self) {
        let mut backoff = Backoff::new(RETRY, RETRY_MAX);
        loop {
            // A panic may have left a cache half changed; all of them begin anew.
            let error = catch_panic("watch-cache", self.serve(&mut backoff))
                .await
                .unwrap_or_else(StorageError::Internal);
            let why = error.to_string();
            self.following.record_failure(&why);
            self.fills.clear();
            self.held = None;
            let restored = matches!(error, StorageError::Restored { .. });
            self.cachers
                .values()
                .for_each(|cacher| cacher.restart(Some(&why), restored));
            sleep(backoff.next_delay()).await;
        }
    }

    /// Feeds the caches for as long as nothing fails.
    async fn serve(&mut self, backoff: &mut Backoff) -> StorageError {
        match self.begin().await {
            Ok(changes) => {
                self.following.record_success();
                backoff.reset();
                self.follow(changes).await
            }
            Err(error) => error,
        }
    }

    /// Opens the watch, then has every cache filled: what changes meanwhile is told by the watch.
    async fn begin(&mut self) -> Result<WatchStream> {
        let now = self.storage.current_revision().await?;
        if now < self.reached.revision() {
            tracing::warn!(
                was = self.reached.revision(),
                now,
                "the store has gone back: it was restored, and the watch caches begin anew"
            );
            self.cachers
                .values()
                .for_each(|cacher| cacher.restart(None, true));
            self.reached.go_back(now);
        }
        let changes = self.storage.watch_without_previous(&self.root, now).await?;
        self.reached.advance(now);
        self.cachers.clear();
        self.adopt();
        Ok(changes)
    }

    /// Feeds the caches until the watch breaks.
    async fn follow(&mut self, mut changes: WatchStream) -> StorageError {
        let (wanted, reached) = (self.wanted.clone(), self.reached.clone());
        loop {
            tokio::select! {
                batch = next_batch(&mut changes, &mut self.held) => match batch {
                    Ok(batch) => self.tell(batch),
                    Err(error) => return error,
                },
                () = wanted.changed.notified() => self.adopt(),
                Some((cacher, outcome, backoff)) = self.fills.next(), if !self.fills.is_empty() => self.filled(cacher, outcome, backoff),
                error = reached.restored() => return error,
            }
        }
    }

    /// Lets go of the caches that nobody wants any more, and has the new ones filled.
    fn adopt(&mut self) {
        let wanted = self.wanted.cachers.lock().clone();
        self.cachers.retain(|prefix, cacher| {
            let kept = wanted
                .get(prefix)
                .is_some_and(|wanted| Arc::ptr_eq(wanted, cacher));
            if !kept {
                cacher.restart(None, false);
            }
            kept
        });
        for (prefix, cacher) in wanted {
            if !self.cachers.contains_key(&prefix) {
                self.fills.push(fill(
                    self.storage.clone(),
                    cacher.clone(),
                    self.places.clone(),
                    Backoff::new(RETRY, RETRY_MAX),
                    false,
                ));
                self.cachers.insert(prefix, cacher);
            }
        }
    }

    fn filled(&mut self, cacher: Arc<Cacher>, outcome: Result<Snapshot>, backoff: Backoff) {
        if !self
            .cachers
            .get(cacher.prefix())
            .is_some_and(|known| Arc::ptr_eq(known, &cacher))
        {
            return;
        }
        let why = match outcome.map(|snapshot| cacher.fill(snapshot)) {
            Ok(true) => return,
            Ok(false) => "more has changed meanwhile than is kept".to_owned(),
            Err(error) => error.to_string(),
        };
        if cacher.troubled(&why) {
            tracing::warn!(
                prefix = cacher.prefix(),
                "a watch cache cannot be filled yet: {why}"
            );
        }
        self.fills.push(fill(
            self.storage.clone(),
            cacher,
            self.places.clone(),
            backoff,
            true,
        ));
    }

    /// Hands each cache its changes, then tells how far that is.
    fn tell(&self, batch: Vec<WatchEvent>) {
        let mut reached = 0;
        let mut shares: HashMap<&str, (&Arc<Cacher>, Vec<WatchEvent>)> = HashMap::new();
        for event in batch {
            reached = event.revision().max(reached);
            if let Some(cacher) = event.key().and_then(|key| self.cacher_of(key)) {
                shares
                    .entry(cacher.prefix())
                    .or_insert_with(|| (cacher, Vec::new()))
                    .1
                    .push(event);
            }
        }
        shares
            .into_values()
            .for_each(|(cacher, events)| cacher.apply(events));
        self.reached.advance(reached);
    }

    /// The cache that a key belongs to: no prefix is the beginning of another.
    fn cacher_of(&self, key: &str) -> Option<&Arc<Cacher>> {
        let below: (Bound<&str>, Bound<&str>) = (Bound::Unbounded, Bound::Included(key));
        let (prefix, cacher) = self.cachers.range::<str, _>(below).next_back()?;
        key.starts_with(prefix.as_str()).then_some(cacher)
    }
}

/// Waits for the next change and takes what else is there, up to the end of a revision. What has
/// been told behind that, an event or an error, is `held` for the next call. Dropping the future
/// loses nothing.
async fn next_batch(
    changes: &mut WatchStream,
    held: &mut Option<Result<WatchEvent>>,
) -> Result<Vec<WatchEvent>> {
    let over = || StorageError::Unavailable("the watch of the store ended".into());
    let first = match held.take() {
        Some(held) => held,
        None => changes.next().await.ok_or_else(over)?,
    };
    let mut batch = vec![first?];
    // All events of one revision come together: where none is there, none is missing.
    while let Some(next) = changes.next().now_or_never() {
        match next.unwrap_or_else(|| Err(over())) {
            Ok(event)
                if batch.len() < BATCH
                    || batch
                        .last()
                        .is_some_and(|last| last.revision() == event.revision()) =>
            {
                batch.push(event)
            }
            behind => {
                *held = Some(behind);
                break;
            }
        }
    }
    Ok(batch)
}

/// Reads what is below a prefix, a page at a time, all of it as of one revision. After a failure,
/// not at once.
fn fill(
    storage: Arc<dyn Storage>,
    cacher: Arc<Cacher>,
    places: Arc<Semaphore>,
    mut backoff: Backoff,
    failed: bool,
) -> BoxFuture<'static, Filled> {
    async move {
        if failed {
            sleep(backoff.next_delay()).await;
        }
        // Nobody closes it.
        let _place = places.acquire().await;
        // What was told before is in what is read from here on.
        cacher.begin_filling();
        let outcome = read(storage.as_ref(), &cacher).await;
        (cacher, outcome, backoff)
    }
    .boxed()
}

async fn read(storage: &dyn Storage, cacher: &Cacher) -> Result<Snapshot> {
    let (mut snapshot, mut budget) = (cacher.empty(), CoopBudget::default());
    let mut request = ListRequest {
        prefix: cacher.prefix().to_owned(),
        limit: FILL_PAGE,
        ..ListRequest::default()
    };
    loop {
        let page = storage.list(request.clone()).await?;
        snapshot.revision = page.revision;
        request.revision = Some(page.revision);
        let last = page.items.last().map(|stored| next_key(&stored.key));
        for stored in page.items {
            snapshot.put(Arc::new(stored));
            budget.step().await;
        }
        match last.filter(|_| page.more) {
            Some(next) => request.start = next,
            None => return Ok(snapshot),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures::stream;

    use super::*;
    use crate::storage::Stored;

    fn put(key: usize, revision: Revision) -> Result<WatchEvent> {
        let current = Stored {
            key: format!("/{key}"),
            value: bytes::Bytes::new(),
            create_revision: 1,
            mod_revision: revision,
        };
        Ok(WatchEvent::Put {
            current,
            previous: None,
        })
    }

    fn gone() -> StorageError {
        StorageError::Unavailable("gone".into())
    }

    /// The lengths and last revisions of the batches that a watch comes in, and the error behind
    /// them.
    async fn batches(events: Vec<Result<WatchEvent>>) -> (Vec<(usize, Revision)>, StorageError) {
        let (mut changes, mut held, mut batches) = (stream::iter(events).boxed(), None, Vec::new());
        loop {
            match next_batch(&mut changes, &mut held).await {
                Ok(batch) => {
                    let last = batch.last().expect("no batch is empty").revision();
                    assert!(held.as_ref().is_none_or(|held| {
                        held.as_ref().is_ok_and(|held| held.revision() > last) || held.is_err()
                    }));
                    batches.push((batch.len(), last));
                }
                Err(error) => return (batches, error),
            }
        }
    }

    #[tokio::test]
    async fn a_batch_ends_with_a_revision_and_never_within_one() {
        // Many keys of one lease expire at one revision.
        let expired = |revision, count| (0..count).map(move |key| put(key, revision));
        let events = expired(7, BATCH + 100)
            .chain(expired(8, 1000))
            .chain(expired(9, 3))
            .chain([Err(gone())])
            .collect();
        assert_eq!(
            batches(events).await,
            (vec![(BATCH + 100, 7), (1000, 8), (3, 9)], gone())
        );
        let events = expired(7, 300)
            .chain(expired(8, 300))
            .chain(expired(9, 300))
            .collect();
        let over = StorageError::Unavailable("the watch of the store ended".into());
        assert_eq!(
            batches(events).await,
            (vec![(600, 8), (300, 9)], over),
            "a full batch ends with its revision"
        );
    }

    #[tokio::test]
    async fn an_error_behind_events_is_told_after_them() {
        assert_eq!(
            batches(vec![put(1, 5), put(2, 6), Err(gone())]).await,
            (vec![(2, 6)], gone())
        );
    }

    /// A panic while changes are taken in ends nothing for good, and nobody is told what is only
    /// half true.
    #[tokio::test]
    async fn caches_begin_anew_after_a_panic() {
        let folder = tempfile::tempdir().expect("a folder");
        let storage: Arc<dyn Storage> =
            Arc::new(crate::storage::embedded::Embedded::open(folder.path()).expect("a store"));
        let reflector = Reflector::start(storage.clone(), "/");
        let (fatal, panicked) = (Arc::new(AtomicBool::new(true)), Arc::new(Notify::new()));
        let (is_fatal, tell) = (fatal.clone(), panicked.clone());
        let index: IndexFn = Arc::new(move |stored, _| {
            if stored.key.ends_with("/fatal") && is_fatal.load(Ordering::Acquire) {
                tell.notify_one();
                panic!("an object that nobody expected");
            }
            true
        });
        let cacher = reflector.cacher("/a/", Some(index));
        storage
            .create("/a/first", bytes::Bytes::new(), None)
            .await
            .expect("written");
        storage
            .create("/a/fatal", bytes::Bytes::new(), None)
            .await
            .expect("written");
        panicked.notified().await;
        // While it goes wrong again and again, it says so.
        panicked.notified().await;
        assert!(
            reflector
                .ready()
                .expect_err("it is not")
                .contains("an object that nobody expected")
        );
        assert!(cacher.linearizable_snapshot().await.is_none());
        fatal.store(false, Ordering::Release);
        while reflector.ready().is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(
            cacher
                .linearizable_snapshot()
                .await
                .expect("it is kept up to date")
                .len(),
            2
        );
    }
}
