//! One watch of a whole store that keeps all of its caches up to date.
//!
//! A single watch orders the events of all resources: as soon as one of them arrives, every cache
//! is known to be that fresh, so that a consistent read rarely has to request progress.

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

use super::index::IndexFn;
pub use super::progress::ProgressTracker;
use super::ring::HistoryLimits;
use super::snapshot::Snapshot;
use super::{CachedObject, Cacher, metrics};

/// About how many events are applied at once. Events of one revision are never split.
const BATCH_EVENTS: usize = 512;
/// The maximum number of caches that are filled at the same time.
const MAX_CONCURRENT_FILLS: usize = 8;
/// The page size of the lists that fill caches.
const FILL_PAGE_SIZE: usize = 1000;
/// The initial delay before a broken watch or a failed fill is retried.
const RETRY_INITIAL: Duration = Duration::from_millis(500);
/// The longest delay before a retry.
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Watches a store and reflects its events in the caches of its resources, until it is dropped.
pub struct Reflector {
    progress: Arc<ProgressTracker>,
    registrations: Arc<Registrations>,
    limits: HistoryLimits,
    task: AbortHandle,
}

/// The caches to keep up to date, by their prefixes.
#[derive(Default)]
struct Registrations {
    cachers: Mutex<BTreeMap<String, Arc<Cacher>>>,
    changed: Notify,
}

impl std::fmt::Debug for Reflector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = self.registrations.cachers.lock().len();
        write!(f, "Reflector({count} cachers)")
    }
}

impl Reflector {
    /// Starts to watch everything below `root` in `storage`. Must be called in a runtime.
    pub fn start(storage: Arc<dyn Storage>, root: &str) -> Self {
        Self::with_limits(storage, root, HistoryLimits::default())
    }

    /// [`Reflector::start`] with other limits on the history of each cache.
    pub fn with_limits(storage: Arc<dyn Storage>, root: &str, limits: HistoryLimits) -> Self {
        let progress = Arc::new(ProgressTracker::new(storage.clone()));
        let registrations = Arc::<Registrations>::default();
        let task = ReflectorTask {
            storage,
            root: root.to_owned(),
            progress: progress.clone(),
            registrations: registrations.clone(),
            cachers: BTreeMap::new(),
            fills: FuturesUnordered::new(),
            fill_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_FILLS)),
            lookahead: None,
            watching: FailureTracker::new("following the store for the watch cache"),
        };
        let task = tokio::spawn(task.run()).abort_handle();
        Self {
            progress,
            registrations,
            limits,
            task,
        }
    }

    /// Returns the cache of the keys below `prefix`, which starts to fill if it is new. A new one
    /// indexes its objects with `index`.
    pub fn cacher(&self, prefix: &str, index: Option<IndexFn>) -> Arc<Cacher> {
        let mut cachers = self.registrations.cachers.lock();
        if let Some(cacher) = cachers.get(prefix) {
            return cacher.clone();
        }
        let cacher = Arc::new(Cacher::new(
            prefix,
            index,
            self.limits,
            self.progress.clone(),
        ));
        cachers.insert(prefix.to_owned(), cacher.clone());
        self.registrations.changed.notify_one();
        cacher
    }

    /// Drops the cache of the keys below `prefix`.
    pub fn remove(&self, prefix: &str) {
        if let Some(cacher) = self.registrations.cachers.lock().remove(prefix) {
            if let Some(metrics) = cacher.metrics() {
                metrics.hide();
            }
            self.registrations.changed.notify_one();
        }
    }

    /// Records that the store was compacted at `revision`: from then on the caches answer no exact
    /// reads of older revisions either, as other servers on the same store cannot.
    pub fn record_compaction(&self, revision: Revision) {
        self.progress.record_compaction(revision);
    }

    /// Shows the sizes of the caches in their metrics.
    pub fn show_sizes(&self) {
        let cachers = self.registrations.cachers.lock().clone();
        cachers.values().for_each(|cacher| cacher.show_size());
    }

    /// Checks that every cache is filled and kept up to date.
    ///
    /// # Errors
    /// Names the caches that are not, with the reasons.
    pub fn ready(&self) -> std::result::Result<(), String> {
        if self.task.is_finished() {
            return Err("nobody follows the store any more".to_owned());
        }
        let cachers = self.registrations.cachers.lock();
        let errors: Vec<String> = cachers
            .values()
            .filter_map(|cacher| Some(format!("{}: {}", cacher.prefix(), cacher.ready().err()?)))
            .collect();
        if errors.is_empty() {
            Ok(())
        } else {
            Err(errors.join("; "))
        }
    }
}

impl Drop for Reflector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The outcome of an attempt to fill a cache, and the backoff for the next one.
type FillOutcome = (Arc<Cacher>, Result<Snapshot>, Backoff);

/// The task behind a [`Reflector`].
struct ReflectorTask {
    storage: Arc<dyn Storage>,
    root: String,
    progress: Arc<ProgressTracker>,
    registrations: Arc<Registrations>,
    /// The registered caches that are filled or being filled.
    cachers: BTreeMap<String, Arc<Cacher>>,
    fills: FuturesUnordered<BoxFuture<'static, FillOutcome>>,
    fill_permits: Arc<Semaphore>,
    /// The item of the watch after the last batch.
    lookahead: Option<Result<WatchEvent>>,
    watching: FailureTracker,
}

impl ReflectorTask {
    async fn run(mut self) {
        let mut backoff = Backoff::new(RETRY_INITIAL, RETRY_MAX);
        loop {
            // A panic may have left a cache half changed, so all of them are restarted.
            let error = catch_panic("watch-cache", self.list_and_watch(&mut backoff))
                .await
                .unwrap_or_else(StorageError::Internal);
            let why = error.to_string();
            self.watching.record_failure(&why);
            self.fills.clear();
            self.lookahead = None;
            let restored = matches!(error, StorageError::Restored { .. });
            self.cachers
                .values()
                .for_each(|cacher| cacher.restart(Some(&why), restored));
            sleep(backoff.next_delay()).await;
        }
    }

    /// Keeps the caches up to date until something fails.
    async fn list_and_watch(&mut self, backoff: &mut Backoff) -> StorageError {
        match self.open_watch().await {
            Ok(changes) => {
                self.watching.record_success();
                backoff.reset();
                self.watch(changes).await
            }
            Err(error) => error,
        }
    }

    /// Opens the watch, then starts to fill every cache. Changes during a fill arrive by the watch.
    async fn open_watch(&mut self) -> Result<WatchStream> {
        let now = self.storage.current_revision().await?;
        if now < self.progress.revision() {
            tracing::warn!(
                was = self.progress.revision(),
                now,
                "the store was restored to an earlier revision; the watch caches are filled again"
            );
            self.cachers
                .values()
                .for_each(|cacher| cacher.restart(None, true));
            self.progress.reset(now);
        }
        let changes = self.storage.watch_without_previous(&self.root, now).await?;
        self.progress.advance(now);
        self.cachers.clear();
        self.sync_registrations();
        Ok(changes)
    }

    /// Applies events to the caches until the watch breaks.
    async fn watch(&mut self, mut changes: WatchStream) -> StorageError {
        let (registrations, progress) = (self.registrations.clone(), self.progress.clone());
        loop {
            tokio::select! {
                batch = next_batch(&mut changes, &mut self.lookahead) => match batch {
                    Ok(batch) => self.dispatch(batch),
                    Err(error) => return error,
                },
                () = registrations.changed.notified() => self.sync_registrations(),
                Some(outcome) = self.fills.next(), if !self.fills.is_empty() => self.finish_fill(outcome),
                error = progress.restored() => return error,
            }
        }
    }

    /// Drops the caches that were removed and starts to fill the new ones.
    fn sync_registrations(&mut self) {
        let registered = self.registrations.cachers.lock().clone();
        self.cachers.retain(|prefix, cacher| {
            let keep = registered
                .get(prefix)
                .is_some_and(|registered| Arc::ptr_eq(registered, cacher));
            if !keep {
                cacher.restart(None, false);
            }
            keep
        });
        for (prefix, cacher) in registered {
            if !self.cachers.contains_key(&prefix) {
                self.start_fill(
                    cacher.clone(),
                    Backoff::new(RETRY_INITIAL, RETRY_MAX),
                    false,
                );
                self.cachers.insert(prefix, cacher);
            }
        }
    }

    /// Starts to fill a cache, after a delay if an attempt has failed before.
    fn start_fill(&self, cacher: Arc<Cacher>, backoff: Backoff, failed_before: bool) {
        self.fills.push(fill(
            self.storage.clone(),
            cacher,
            self.fill_permits.clone(),
            backoff,
            failed_before,
        ));
    }

    /// Takes the outcome of a fill and starts another one if it failed.
    fn finish_fill(&mut self, (cacher, outcome, backoff): FillOutcome) {
        if !self
            .cachers
            .get(cacher.prefix())
            .is_some_and(|registered| Arc::ptr_eq(registered, &cacher))
        {
            return;
        }
        let why = match outcome.map(|snapshot| cacher.fill(snapshot)) {
            Ok(true) => return,
            Ok(false) => "too many changes while it was filled".to_owned(),
            Err(error) => error.to_string(),
        };
        if cacher.record_fill_error(&why) {
            tracing::warn!(
                prefix = cacher.prefix(),
                "a watch cache cannot be filled yet: {why}"
            );
        }
        self.start_fill(cacher, backoff, true);
    }

    /// Hands each cache its events, then advances the progress.
    fn dispatch(&self, batch: Vec<WatchEvent>) {
        let mut revision = 0;
        let mut by_cacher: HashMap<&str, (&Arc<Cacher>, Vec<WatchEvent>)> = HashMap::new();
        for event in batch {
            revision = event.revision().max(revision);
            if matches!(event, WatchEvent::Progress(_)) {
                metrics::bookmark();
            }
            if let Some(cacher) = event.key().and_then(|key| self.cacher_of(key)) {
                by_cacher
                    .entry(cacher.prefix())
                    .or_insert_with(|| (cacher, Vec::new()))
                    .1
                    .push(event);
            }
        }
        for (cacher, events) in by_cacher.into_values() {
            if !cacher.apply(events) {
                let backoff = Backoff::new(RETRY_INITIAL, RETRY_MAX);
                self.start_fill(cacher.clone(), backoff, false);
            }
        }
        self.progress.advance(revision);
    }

    /// Returns the cache that a key belongs to: no prefix is a prefix of another.
    fn cacher_of(&self, key: &str) -> Option<&Arc<Cacher>> {
        let below: (Bound<&str>, Bound<&str>) = (Bound::Unbounded, Bound::Included(key));
        let (prefix, cacher) = self.cachers.range::<str, _>(below).next_back()?;
        key.starts_with(prefix.as_str()).then_some(cacher)
    }
}

/// Waits for the next event and takes those that are ready after it, up to the end of a revision.
/// The item after that, an event or an error, is left in `lookahead` for the next call. Cancel
/// safe.
async fn next_batch(
    changes: &mut WatchStream,
    lookahead: &mut Option<Result<WatchEvent>>,
) -> Result<Vec<WatchEvent>> {
    let ended = || StorageError::Unavailable("the watch of the store ended".into());
    let first = match lookahead.take() {
        Some(item) => item,
        None => changes.next().await.ok_or_else(ended)?,
    };
    let mut batch = vec![first?];
    // Events of one revision become ready together, so none of them is missing.
    while let Some(next) = changes.next().now_or_never() {
        match next.unwrap_or_else(|| Err(ended())) {
            Ok(event)
                if batch.len() < BATCH_EVENTS
                    || batch
                        .last()
                        .is_some_and(|last| last.revision() == event.revision()) =>
            {
                batch.push(event)
            }
            item => {
                *lookahead = Some(item);
                break;
            }
        }
    }
    Ok(batch)
}

/// Lists the objects of a cache, once a permit is free; after a delay if an attempt failed before.
fn fill(
    storage: Arc<dyn Storage>,
    cacher: Arc<Cacher>,
    permits: Arc<Semaphore>,
    mut backoff: Backoff,
    failed_before: bool,
) -> BoxFuture<'static, FillOutcome> {
    async move {
        if failed_before {
            sleep(backoff.next_delay()).await;
        }
        // The semaphore is never closed.
        let _permit = permits.acquire().await;
        cacher.begin_filling();
        let outcome = list(storage.as_ref(), &cacher).await;
        (cacher, outcome, backoff)
    }
    .boxed()
}

/// Reads the objects of a cache, page by page, all at one revision.
async fn list(storage: &dyn Storage, cacher: &Cacher) -> Result<Snapshot> {
    let (mut snapshot, mut budget) = (cacher.empty_snapshot(), CoopBudget::default());
    let mut request = ListRequest {
        prefix: cacher.prefix().to_owned(),
        limit: FILL_PAGE_SIZE,
        ..ListRequest::default()
    };
    loop {
        let page = storage.list(request.clone());
        let page = match cacher.metrics() {
            Some(metrics) => metrics.fills.count(page).await?,
            None => page.await?,
        };
        snapshot.revision = page.revision;
        request.revision = Some(page.revision);
        let last = page.items.last().map(|stored| next_key(&stored.key));
        for stored in page.items {
            snapshot.put(CachedObject::shared(stored));
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

    /// Returns the lengths and last revisions of the batches that events come in, and the error
    /// after them.
    async fn batches(events: Vec<Result<WatchEvent>>) -> (Vec<(usize, Revision)>, StorageError) {
        let (mut changes, mut lookahead, mut batches) =
            (stream::iter(events).boxed(), None, Vec::new());
        loop {
            match next_batch(&mut changes, &mut lookahead).await {
                Ok(batch) => {
                    let last = batch.last().expect("no batch is empty").revision();
                    assert!(lookahead.as_ref().is_none_or(|item| {
                        item.as_ref().is_ok_and(|item| item.revision() > last) || item.is_err()
                    }));
                    batches.push((batch.len(), last));
                }
                Err(error) => return (batches, error),
            }
        }
    }

    #[tokio::test]
    async fn batches_never_split_a_revision() {
        // Many keys of one lease expire at one revision.
        let expired = |revision, count| (0..count).map(move |key| put(key, revision));
        let events = expired(7, BATCH_EVENTS + 100)
            .chain(expired(8, 1000))
            .chain(expired(9, 3))
            .chain([Err(gone())])
            .collect();
        assert_eq!(
            batches(events).await,
            (vec![(BATCH_EVENTS + 100, 7), (1000, 8), (3, 9)], gone())
        );
        let events = expired(7, 300)
            .chain(expired(8, 300))
            .chain(expired(9, 300))
            .collect();
        let ended = StorageError::Unavailable("the watch of the store ended".into());
        assert_eq!(
            batches(events).await,
            (vec![(600, 8), (300, 9)], ended),
            "a full batch ends with its revision"
        );
    }

    #[tokio::test]
    async fn an_error_after_events_is_returned_after_them() {
        assert_eq!(
            batches(vec![put(1, 5), put(2, 6), Err(gone())]).await,
            (vec![(2, 6)], gone())
        );
    }

    /// A panic while events are applied restarts the caches and never exposes a half-applied state.
    #[tokio::test]
    async fn caches_are_filled_again_after_a_panic() {
        let folder = tempfile::tempdir().expect("a folder");
        let storage: Arc<dyn Storage> =
            Arc::new(crate::storage::embedded::Embedded::open(folder.path()).expect("a store"));
        let reflector = Reflector::start(storage.clone(), "/");
        let (fatal, panicked) = (Arc::new(AtomicBool::new(true)), Arc::new(Notify::new()));
        let (is_fatal, notify) = (fatal.clone(), panicked.clone());
        let index: IndexFn = Arc::new(move |stored, _| {
            if stored.key.ends_with("/fatal") && is_fatal.load(Ordering::Acquire) {
                notify.notify_one();
                panic!("an unexpected object");
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
        // It panics again on each restart, and readiness reports the reason.
        panicked.notified().await;
        assert!(
            reflector
                .ready()
                .expect_err("it is not")
                .contains("an unexpected object")
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
