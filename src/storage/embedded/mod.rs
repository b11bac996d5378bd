//! A store in a local directory: redb, with history, conditional writes and watches like etcd's on
//! top.
//!
//! - [`tables`]: what is on disk, and snapshots to read from. Reads never wait for the writer.
//! - [`writer`]: the one thread that writes, many writes per fsync.
//! - [`hub`]: recent events and the watchers that wait for them.
//! - [`medium`]: what holds the pages: the file, or memory.

#[cfg(test)]
mod faults;
mod hub;
mod medium;
mod tables;
mod watch;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use redb::{Database, DatabaseError, ReadableTable, StorageBackend};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use self::hub::Hub;
pub use self::medium::Medium;
use self::medium::{Memory, UnsyncedFile};
use self::tables::{CHANGES, EXPIRY, FORMAT, INDEX, META, REVISION, Snapshot, broken};
use self::writer::{Command, Op, Write, Writer};
use super::{
    ListPage, ListRequest, Result, Revision, Storage, StorageError, Stored, WatchStream,
    WriteOutcome,
};
use crate::base::clock::Clock;
use crate::base::files;
use crate::telemetry::latency::{Layer, measure};

/// The one file in the directory.
pub const FILE: &str = "keelson.redb";
/// The layout of the tables this program reads and writes.
const FORMAT_VERSION: i64 = 1;
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
    /// The pages of a store without a file.
    memory: Option<Memory>,
    shared: Arc<Shared>,
    /// `None` only while dropping.
    commands: Option<Sender<Command>>,
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
}

impl Shared {
    fn snapshot(&self) -> Result<Arc<Snapshot>> {
        self.snapshot.load_full().ok_or_else(closed)
    }

    fn renew(&self, snapshot: Snapshot) {
        self.snapshot.store(Some(Arc::new(snapshot)));
    }

    fn close(&self) {
        self.snapshot.store(None);
        self.hub.close(closed());
    }
}

fn closed() -> StorageError {
    StorageError::Unavailable("the embedded store is closed".into())
}

impl Embedded {
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
        let open = move || {
            let file = files::open_private(&path).map_err(redb::StorageError::from)?;
            builder().create_with_backend(UnsyncedFile::new(file)?)
        };
        let directory = directory.as_ref().to_owned();
        Self::start(directory, None, Box::new(open), Clock::system())
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
        let db = open().map_err(|e| match e {
            DatabaseError::DatabaseAlreadyOpen => StorageError::Unavailable(format!(
                "{} is in use by another process",
                place.display()
            )),
            e => failed(&e),
        })?;
        prepare(&db).map_err(|e| failed(&e))?;
        let snapshot = Snapshot::take(&db)?;
        let shared = Arc::new(Shared {
            hub: Hub::new(snapshot.revision),
            snapshot: ArcSwapOption::empty(),
            data_loss: Mutex::default(),
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
            .send(Command { op, reply, place })
            .map_err(|_| closed())?;
        Ok(outcome)
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

fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(PAGE_CACHE_BYTES);
    builder
}

fn cannot_open(directory: &Path, error: &dyn std::fmt::Display) -> StorageError {
    StorageError::Internal(format!("cannot open {}: {error}", directory.display()))
}

/// Makes the tables of a new file; checks the format of an old one.
fn prepare(db: &Database) -> Result<()> {
    let txn = db.begin_write().map_err(broken)?;
    let format = txn
        .open_table(META)
        .map_err(broken)?
        .get(FORMAT)
        .map_err(broken)?
        .map(|n| n.value());
    match format {
        Some(FORMAT_VERSION) => return txn.abort().map_err(broken),
        Some(other) => {
            return Err(StorageError::Internal(format!(
                "its format is {other}, this program knows {FORMAT_VERSION}"
            )));
        }
        None => {}
    }
    {
        let mut meta = txn.open_table(META).map_err(broken)?;
        meta.insert(FORMAT, FORMAT_VERSION).map_err(broken)?;
        meta.insert(REVISION, FIRST_REVISION).map_err(broken)?;
        txn.open_table(INDEX).map_err(broken)?;
        txn.open_table(CHANGES).map_err(broken)?;
        txn.open_table(EXPIRY).map_err(broken)?;
    }
    txn.commit().map_err(broken)
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
