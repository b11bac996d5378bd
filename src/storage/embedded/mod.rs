//! A store in a local directory: redb, with history, conditional writes and watches like etcd's on
//! top.
//!
//! - [`tables`]: what is on disk, and snapshots to read from. Reads never wait for the writer.
//! - [`writer`]: the one thread that writes, many writes per fsync.
//! - [`hub`]: recent events and the watchers that wait for them.
//! - [`medium`]: what holds the pages: the file, or memory.
//! - [`format`]: the version of the layout, and the way from older ones.
//! - [`contents`]: all that stands, read or written as a whole.
//! - [`rewrite`]: a smaller file in the place of a large one.
//! - [`hold`]: a pause in which the file can be copied.
//! - [`usage`]: the bytes in use, and the quota.

pub mod contents;
#[cfg(test)]
mod faults;
mod format;
pub mod hold;
mod hub;
mod medium;
mod rewrite;
mod tables;
pub mod usage;
mod watch;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use redb::{Database, DatabaseError, StorageBackend};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use self::contents::Entries;
use self::hold::Hold;
use self::hub::Hub;
pub use self::medium::Medium;
use self::medium::{Memory, UnsyncedFile};
use self::rewrite::Replacement;
use self::tables::Snapshot;
pub use self::usage::Usage;
use self::usage::UsageTracker;
use self::writer::{Command, Exclusive, Op, Order, Write, Writer};
use super::{
    ListPage, ListRequest, Result, Revision, Storage, StorageError, Stored, WatchStream,
    WriteOutcome,
};
use crate::base::clock::Clock;
use crate::base::files;
use crate::telemetry::latency::{Layer, measure};

/// The one file in the directory.
pub const FILE: &str = "keelson.redb";
/// The revision of a store that was never written to, as in etcd.
const FIRST_REVISION: Revision = 1;
/// Memory for pages of the file. The system caches the rest.
const PAGE_CACHE_BYTES: usize = 8 << 20;
/// Key and value of one write together, at most: etcd's default (`--max-request-bytes`).
pub const MAX_REQUEST_BYTES: usize = 3 << 19;
/// Writes that may wait for the writer; more wait for their turn to wait.
const QUEUED_WRITES: usize = 1024;

/// The embedded store. Dropping it ends its watches and closes the file.
pub struct Embedded {
    directory: PathBuf,
    medium: Medium,
    /// The pages of a store without a file.
    memory: Option<Memory>,
    shared: Arc<Shared>,
    /// `None` only while dropping.
    commands: Option<Sender<Order>>,
    queue: Arc<Semaphore>,
    writer: Option<JoinHandle<()>>,
}

/// State that readers, watchers and the writer share.
struct Shared {
    /// The last commit; `None` once closed.
    snapshot: ArcSwapOption<Snapshot>,
    hub: Hub,
    /// Set while the file lacks changes that were acknowledged.
    data_loss: Mutex<Option<StorageError>>,
    /// The bytes that may be in use; 0 for any number.
    quota: AtomicI64,
    usage: UsageTracker,
    /// Lives while the file is being rewritten.
    rewrite: Mutex<Weak<()>>,
}

impl Shared {
    fn snapshot(&self) -> Result<Arc<Snapshot>> {
        self.snapshot.load_full().ok_or_else(closed)
    }

    fn renew(&self, snapshot: Snapshot) {
        self.snapshot.store(Some(Arc::new(snapshot)));
    }

    fn is_rewritten(&self) -> bool {
        self.rewrite.lock().strong_count() > 0
    }

    fn close(&self) {
        self.snapshot.store(None);
        self.hub.close(closed());
    }
}

fn closed() -> StorageError {
    StorageError::Unavailable("the embedded store is closed".into())
}

fn in_memory() -> StorageError {
    StorageError::Internal("the store is in memory: there is no file".into())
}

impl Embedded {
    /// Returns what the store is kept on.
    pub fn medium(&self) -> Medium {
        self.medium
    }

    /// Opens the store in `directory`, making both if they do not exist.
    ///
    /// # Errors
    /// Another process (or this one) has the store open, or a newer program wrote it.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self> {
        Self::open_with_clock(directory, Clock::system())
    }

    /// [`Embedded::open`] without waiting for the disk: a write that was acknowledged, or the whole
    /// store, may be gone if the machine fails.
    ///
    /// # Errors
    /// Those of [`Embedded::open`].
    pub fn open_unsynced(directory: impl AsRef<Path>) -> Result<Self> {
        let path = prepare_directory(directory.as_ref())?;
        let open = move || open_unsynced_file(&path);
        let directory = directory.as_ref().to_owned();
        let mut store = Self::start(directory, None, Box::new(open), Clock::system())?;
        store.medium = Medium::UnsyncedFile;
        Ok(store)
    }

    /// Opens the store that is in `directory`, unless it is in memory.
    ///
    /// # Errors
    /// Those of [`Embedded::open`].
    pub fn open_on(medium: Medium, directory: &Path) -> Result<Self> {
        match medium {
            Medium::File => Self::open(directory),
            Medium::UnsyncedFile => Self::open_unsynced(directory),
            Medium::Memory => Self::in_memory(),
        }
    }

    /// A store that is in memory alone, and ends with its last user.
    ///
    /// # Errors
    /// The system has no thread for the writer.
    pub fn in_memory() -> Result<Self> {
        Self::in_memory_with_clock(Clock::system())
    }

    /// [`Embedded::in_memory`] with the clock that keys expire by.
    ///
    /// # Errors
    /// Those of [`Embedded::in_memory`].
    pub fn in_memory_with_clock(clock: Clock) -> Result<Self> {
        let memory = Memory::default();
        let pages = memory.clone();
        let open = move || builder().create_with_backend(pages.clone());
        Self::start(PathBuf::from("memory"), Some(memory), Box::new(open), clock)
    }

    /// [`Embedded::open`] with the clock that keys expire by. With a manual one, call
    /// [`Embedded::expire`] after moving it.
    ///
    /// # Errors
    /// Those of [`Embedded::open`].
    pub fn open_with_clock(directory: impl AsRef<Path>, clock: Clock) -> Result<Self> {
        let path = prepare_directory(directory.as_ref())?;
        Self::start(
            directory.as_ref().to_owned(),
            None,
            Box::new(move || open_file(&path)),
            clock,
        )
    }

    /// The store in the file that `open` opens, now and after a failure.
    fn start(directory: PathBuf, memory: Option<Memory>, open: Open, clock: Clock) -> Result<Self> {
        let place = directory.clone();
        let failed = |error: &dyn std::fmt::Display| cannot_open(&place, error);
        let db = open().map_err(|e| not_opened(&place, &e))?;
        format::prepare(&db).map_err(|e| failed(&e))?;
        let snapshot = Snapshot::take(&db)?;
        let shared = Arc::new(Shared {
            hub: Hub::new(snapshot.revision),
            snapshot: ArcSwapOption::empty(),
            data_loss: Mutex::default(),
            quota: AtomicI64::new(0),
            usage: UsageTracker::new(snapshot.bytes),
            rewrite: Mutex::default(),
        });
        shared.renew(snapshot);
        let (commands, inbox) = channel();
        let writer = Writer::new(db, open, inbox, shared.clone(), clock)?;
        let thread = std::thread::Builder::new()
            .name("storage-writer".into())
            .spawn(move || writer.run())
            .map_err(|e| failed(&e))?;
        Ok(Self {
            directory,
            medium: if memory.is_some() {
                Medium::Memory
            } else {
                Medium::File
            },
            memory,
            shared,
            commands: Some(commands),
            queue: Arc::new(Semaphore::new(QUEUED_WRITES)),
            writer: Some(thread),
        })
    }

    /// Deletes the keys whose time has come. Happens by itself; with a manual clock, this is how to
    /// have it happen at once.
    ///
    /// # Errors
    /// A failure of the writer.
    pub async fn expire(&self) -> Result<()> {
        self.order(Op::Tick).await.map(drop)
    }

    /// Hands the writer an order and waits until the outcome is on disk.
    async fn order(&self, op: Op) -> Result<WriteOutcome> {
        let written = async {
            let place = self.queue.clone().acquire_owned().await;
            let place = place.map_err(|_| closed())?;
            let outcome = self.enqueue(op, place)?.await;
            outcome.unwrap_or_else(|_| Err(closed()))
        };
        measure(Layer::Storage, written).await
    }

    /// Hands the writer an order with its place in the queue, which it keeps until it is answered,
    /// whether or not anybody still waits.
    fn enqueue(
        &self,
        op: Op,
        place: OwnedSemaphorePermit,
    ) -> Result<oneshot::Receiver<Result<WriteOutcome>>> {
        let (reply, outcome) = oneshot::channel();
        let commands = self.commands.as_ref().ok_or_else(closed)?;
        commands
            .send(Order::Transact(Command { op, reply, place }))
            .map_err(|_| closed())?;
        Ok(outcome)
    }

    /// Reads all that stands now.
    ///
    /// # Errors
    /// A failure to read the file.
    pub fn entries(&self) -> Result<Entries> {
        Entries::of(self.shared.snapshot()?)
    }

    /// Limits the bytes in use; 0 is no limit. Beyond it writes are refused, deletions are not.
    pub fn set_quota(&self, bytes: i64) {
        self.shared.quota.store(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes in use, and the limit on them.
    ///
    /// # Errors
    /// The store is closed.
    pub fn usage(&self) -> Result<Usage> {
        Ok(Usage {
            in_use: self.shared.snapshot()?.bytes,
            quota: self.shared.quota.load(Ordering::Relaxed),
        })
    }

    /// Reports whether versions that were compacted away are still to be removed.
    ///
    /// # Errors
    /// The store is closed.
    pub fn is_cleaning(&self) -> Result<bool> {
        let snapshot = self.shared.snapshot()?;
        Ok(snapshot.cleaned < snapshot.compacted)
    }

    /// Keeps everything from being written until the pause is ended, or [`hold::LIMIT`] is over.
    /// The file is complete then, and can be copied.
    ///
    /// # Errors
    /// A failure of the writer.
    pub async fn hold(&self) -> Result<Hold> {
        if self.medium == Medium::Memory {
            return Err(in_memory());
        }
        let (hold, held) = hold::pair();
        self.stop_for(Exclusive::Hold(held)).await?;
        Ok(hold)
    }

    /// Writes the file anew, without what is free in it. Reads and writes go on meanwhile.
    ///
    /// # Errors
    /// It is being done already, or the disk fails: the old file stays in use then.
    pub async fn defragment(&self) -> Result<()> {
        match self.medium {
            Medium::File => self.defragment_on(open_file).await,
            Medium::UnsyncedFile => self.defragment_on(open_unsynced_file).await,
            Medium::Memory => Err(in_memory()),
        }
    }

    async fn defragment_on(
        &self,
        open: impl Fn(&Path) -> std::result::Result<Database, DatabaseError> + Send + 'static,
    ) -> Result<()> {
        let began = self.begin_rewrite().await?;
        let (snapshot, directory) = (began.snapshot.clone(), self.directory.clone());
        let copy = tokio::task::spawn_blocking(move || rewrite::copy(&snapshot, &directory, &open));
        let copied = copy
            .await
            .map_err(|e| StorageError::Internal(format!("rewriting: {e}")))??;
        self.finish_rewrite(began, copied).await
    }

    async fn begin_rewrite(&self) -> Result<Rewrite> {
        let token = Arc::new(());
        {
            let mut rewrite = self.shared.rewrite.lock();
            if rewrite.strong_count() > 0 {
                return Err(StorageError::Unavailable(
                    "the file is being rewritten already".to_owned(),
                ));
            }
            *rewrite = Arc::downgrade(&token);
        }
        // From the next transaction on, no row is removed.
        self.order(Op::Tick).await?;
        let snapshot = self.shared.snapshot()?;
        Ok(Rewrite {
            snapshot,
            _token: token,
        })
    }

    async fn finish_rewrite(&self, began: Rewrite, copied: Replacement) -> Result<()> {
        let directory = self.directory.clone();
        let replaced = self.stop_for(Exclusive::Replace(copied, directory)).await;
        drop(began);
        replaced.inspect_err(|_| rewrite::discard(&self.directory))
    }

    async fn stop_for(&self, exclusive: Exclusive) -> Result<()> {
        let (reply, outcome) = oneshot::channel();
        let commands = self.commands.as_ref().ok_or_else(closed)?;
        commands
            .send(Order::Stop(exclusive, reply))
            .map_err(|_| closed())?;
        outcome.await.unwrap_or_else(|_| Err(closed()))
    }

    async fn write(
        &self,
        key: &str,
        value: Option<Bytes>,
        expected: Revision,
        ttl: Option<Duration>,
    ) -> Result<WriteOutcome> {
        if key.len() + value.as_ref().map_or(0, Bytes::len) > MAX_REQUEST_BYTES {
            return Err(StorageError::TooLarge(super::TOO_LARGE.into()));
        }
        self.order(Op::Write(Write {
            key: key.to_owned(),
            value,
            expected,
            ttl,
        }))
        .await
    }
}

/// A rewrite of the file that has begun: no row of the snapshot is removed while it lives.
struct Rewrite {
    snapshot: Arc<Snapshot>,
    _token: Arc<()>,
}

/// Opens the database, making it if it does not exist.
type Open = Box<dyn Fn() -> std::result::Result<Database, DatabaseError> + Send>;

/// Makes the directory if it does not exist, its owner's alone, and returns the path of the file.
fn prepare_directory(directory: &Path) -> Result<PathBuf> {
    files::create_private_dir(directory).map_err(|error| cannot_open(directory, &error))?;
    files::restrict_own_dir(directory, &[FILE]);
    Ok(directory.join(FILE))
}

/// Opens the file, which is its owner's alone.
fn open_file(path: &Path) -> std::result::Result<Database, DatabaseError> {
    let file = files::open_private(path).map_err(redb::StorageError::from)?;
    builder().create_file(file)
}

/// Opens the file so that nothing waits for the disk.
fn open_unsynced_file(path: &Path) -> std::result::Result<Database, DatabaseError> {
    let file = files::open_private(path).map_err(redb::StorageError::from)?;
    builder().create_with_backend(UnsyncedFile::new(file)?)
}

fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(PAGE_CACHE_BYTES);
    builder
}

fn not_opened(directory: &Path, error: &DatabaseError) -> StorageError {
    match error {
        DatabaseError::DatabaseAlreadyOpen => StorageError::Unavailable(format!(
            "{} is in use by another process",
            directory.display()
        )),
        error => cannot_open(directory, error),
    }
}

fn cannot_open(directory: &Path, error: &dyn std::fmt::Display) -> StorageError {
    StorageError::Internal(format!("cannot open {}: {error}", directory.display()))
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(writer) = self.writer.take() {
            // It has only ever failed to write, never panicked; nothing could be done here if it
            // had.
            let _ = writer.join();
        }
        self.shared.close();
    }
}

#[async_trait]
impl Storage for Embedded {
    async fn get(&self, key: &str) -> Result<Option<Stored>> {
        self.shared.snapshot()?.get(key)
    }

    async fn get_with_revision(&self, key: &str) -> Result<(Option<Stored>, Revision)> {
        let snapshot = self.shared.snapshot()?;
        Ok((snapshot.get(key)?, snapshot.revision))
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        let snapshot = self.shared.snapshot()?;
        let list = tokio::task::spawn_blocking(move || snapshot.list(&request));
        list.await
            .map_err(|e| StorageError::Internal(format!("list: {e}")))?
    }

    async fn create(&self, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<WriteOutcome> {
        self.write(key, Some(value), 0, ttl).await
    }

    async fn update(
        &self,
        key: &str,
        value: Bytes,
        expected: Revision,
        ttl: Option<Duration>,
    ) -> Result<WriteOutcome> {
        self.write(key, Some(value), expected, ttl).await
    }

    async fn delete(&self, key: &str, expected: Revision) -> Result<WriteOutcome> {
        self.write(key, None, expected, None).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<WatchStream> {
        self.shared.snapshot()?;
        Ok(watch::open(self.shared.clone(), prefix, after))
    }

    async fn request_progress(&self) -> Result<()> {
        self.shared.hub.ask_progress();
        Ok(())
    }

    async fn current_revision(&self) -> Result<Revision> {
        Ok(self.shared.snapshot()?.revision)
    }

    async fn compact(&self, revision: Revision) -> Result<()> {
        self.order(Op::Compact(revision)).await.map(drop)
    }

    async fn check_health(&self) -> Result<()> {
        self.order(Op::Tick).await.map(drop)
    }

    async fn size(&self) -> Result<u64> {
        if let Some(memory) = &self.memory {
            let length = memory.len();
            return length.map_err(|error| StorageError::Internal(error.to_string()));
        }
        let file = tokio::fs::metadata(self.directory.join(FILE)).await;
        file.map(|file| file.len())
            .map_err(|error| StorageError::Internal(error.to_string()))
    }

    fn check_integrity(&self) -> Result<()> {
        self.shared.data_loss.lock().clone().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use redb::{ReadableDatabase, ReadableTableMetadata};

    use super::tables::{CHANGES, EXPIRY, INDEX};
    use super::*;

    /// Counts the rows of the tables: changes, index, expiry.
    fn rows(directory: &Path) -> [u64; 3] {
        let db = Database::create(directory.join(FILE)).unwrap();
        let read = db.begin_read().unwrap();
        [
            read.open_table(CHANGES).unwrap().len().unwrap(),
            read.open_table(INDEX).unwrap().len().unwrap(),
            read.open_table(EXPIRY).unwrap().len().unwrap(),
        ]
    }

    #[tokio::test]
    async fn compaction_removes_rows_a_few_at_a_time_and_goes_on_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::manual(jiff::Timestamp::UNIX_EPOCH);
        let open = || Embedded::open_with_clock(dir.path(), clock.clone()).unwrap();
        let store = open();
        // More than one turn removes. Two keys stay, one goes; what a lease was on and is written
        // again needs it no more.
        for round in 0..200 {
            for (key, ttl) in [
                ("/kept", None),
                ("/lease", Some(Duration::from_secs(60))),
                ("/gone", None),
            ] {
                let at = store.get(key).await.unwrap().map_or(0, |s| s.mod_revision);
                store
                    .update(key, format!("{round}").into(), at, ttl)
                    .await
                    .unwrap();
            }
        }
        let (gone, last) = store.get_with_revision("/gone").await.unwrap();
        store
            .delete("/gone", gone.unwrap().mod_revision)
            .await
            .unwrap();
        store.compact(last + 1).await.unwrap();
        // However far it has come.
        drop(store);
        let store = open();
        // Each turn removes some: after two of them nothing is left to remove.
        store.check_health().await.unwrap();
        store.check_health().await.unwrap();
        clock.advance(Duration::from_secs(60));
        store.expire().await.unwrap();
        assert_eq!(store.get("/lease").await, Ok(None));
        assert_eq!(store.get("/kept").await.unwrap().unwrap().value, "199");
        drop(store);
        assert_eq!(
            rows(dir.path()),
            [3, 3, 0],
            "two that stand, and the deletion by the clock"
        );
    }
}
