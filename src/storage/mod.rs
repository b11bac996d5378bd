//! The Storage contract: bytes under keys, with etcd's revisions, transactions and watches. Knows
//! nothing of objects.
//!
//! Two implementations, [`etcd3`] and [`embedded`], pass one contract suite
//! (`tests/storage_contract.rs`).

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

/// Message of etcd for a request over its size limit; clients see it.
pub const TOO_LARGE: &str = "etcdserver: request is too large";
/// Message of etcd for a write that it has no space for; clients see it from either store.
pub const NO_SPACE: &str = "etcdserver: mvcc: database space exceeded";

/// A point in the history of a store. Every change has a revision of its own; revisions only grow.
pub type Revision = i64;

/// A value with the revisions that frame it.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    pub key: String,
    pub value: Bytes,
    /// The revision at which the key was created (last, if it was deleted between).
    pub create_revision: Revision,
    /// The revision at which the value was last written.
    pub mod_revision: Revision,
}

impl Stored {
    /// Returns the revision at which the value was last written; `None` for a dry run's.
    pub fn written_at(&self) -> Option<Revision> {
        (self.mod_revision > 0).then_some(self.mod_revision)
    }
}

/// A list request: keys below `prefix`, from `start` (inclusive; the prefix itself where empty) in
/// ascending order.
#[derive(Clone, Debug, Default)]
pub struct ListRequest {
    pub prefix: String,
    /// The key at which a page starts; `next_key(key)` names the first key behind another.
    pub start: String,
    /// At most so many items; 0 for all.
    pub limit: usize,
    /// Exactly as of this revision; `None` for now.
    pub revision: Option<Revision>,
}

/// One page of a list.
#[derive(Clone, Debug, Default)]
pub struct ListPage {
    pub items: Vec<Stored>,
    /// The revision that the page is true at.
    pub revision: Revision,
    /// True if keys remain behind the last item.
    pub more: bool,
    /// Total number of keys from `start` on (at the same revision), this page included.
    pub count: i64,
}

/// One change under a watched prefix.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent {
    /// A key was made or written; `previous` is what it held (`None` when it was made).
    Put {
        current: Stored,
        previous: Option<Stored>,
    },
    /// A key went; `revision` is when, `previous` what it held.
    Delete {
        key: String,
        revision: Revision,
        previous: Option<Stored>,
    },
    /// A key was written, and what it holds cannot be told now: a list may tell. Only
    /// [`Storage::watch_without_previous`] has these.
    Unread { key: String, revision: Revision },
    /// Progress: every event at or before this revision has been delivered.
    Progress(Revision),
}

impl WatchEvent {
    /// The key that changed; `None` for progress.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Put { current, .. } => Some(&current.key),
            Self::Delete { key, .. } | Self::Unread { key, .. } => Some(key),
            Self::Progress(_) => None,
        }
    }

    /// Returns the revision of the change, or of the progress.
    pub fn revision(&self) -> Revision {
        match self {
            Self::Put { current, .. } => current.mod_revision,
            Self::Delete { revision, .. }
            | Self::Unread { revision, .. }
            | Self::Progress(revision) => *revision,
        }
    }
}

/// An error of a store.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
pub enum StorageError {
    /// The revision asked for is older than the history that is kept. `oldest` is the oldest that
    /// can still be asked for, if known.
    #[error("required revision has been compacted")]
    Compacted { oldest: Option<Revision> },
    /// The revision asked for has not happened yet.
    #[error("required revision {asked} is a future revision, current is {current}")]
    FutureRevision { asked: Revision, current: Revision },
    /// The store is not as far as it was when it told of revision `was`: it was restored from a
    /// backup.
    #[error("the store was restored to a state before revision {was}")]
    Restored { was: Revision },
    /// The value (or request) is over the store's size limit.
    #[error("request is too large: {0}")]
    TooLarge(String),
    /// The store has no room for a write. Reads go on, and so do writes once there is room.
    #[error("{NO_SPACE} ({0})")]
    NoSpace(String),
    /// The value cannot be encrypted. Nothing was written.
    #[error("{0}")]
    NotEncrypted(String),
    /// The store cannot be reached, or lost its quorum; whether a write happened is unknown.
    #[error("storage is unavailable: {0}")]
    Unavailable(String),
    /// The store is broken, or this is a bug.
    #[error("storage failed: {0}")]
    Internal(String),
}

pub type Result<T> = std::result::Result<T, StorageError>;

/// The outcome of a conditional write.
#[derive(Clone, Debug, PartialEq)]
pub enum WriteOutcome {
    /// Done, at this revision.
    Committed(Revision),
    /// The condition did not hold; this is the current value (`None`: no such key).
    Conflict(Option<Stored>),
}

/// A stream of watch events. It ends after an error.
pub type WatchStream = BoxStream<'static, Result<WatchEvent>>;

/// A key-value store with history. Everything acknowledged is durable; all operations are
/// linearizable unless they name a revision.
#[async_trait]
pub trait Storage: Send + Sync + 'static {
    /// The value under `key` now.
    async fn get(&self, key: &str) -> Result<Option<Stored>>;

    /// The value under `key` now, with the store's revision at that moment.
    async fn get_with_revision(&self, key: &str) -> Result<(Option<Stored>, Revision)>;

    /// A page of the keys below a prefix, consistent at one revision.
    async fn list(&self, request: ListRequest) -> Result<ListPage>;

    /// Writes `key` if it does not exist. With `ttl`, the key expires no sooner than that.
    async fn create(&self, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<WriteOutcome>;

    /// Writes `key` if it is still at `expected` (a mod revision).
    async fn update(
        &self,
        key: &str,
        value: Bytes,
        expected: Revision,
        ttl: Option<Duration>,
    ) -> Result<WriteOutcome>;

    /// Deletes `key` if it is still at `expected` (a mod revision).
    async fn delete(&self, key: &str, expected: Revision) -> Result<WriteOutcome>;

    /// Reports whether the value of a key should be written again though it is to stay the same: it
    /// is encrypted with another key than a new value would be.
    async fn is_stale(&self, _key: &str) -> Result<bool> {
        Ok(false)
    }

    /// Every change under `prefix` after revision `after`, in order, none lost and none twice,
    /// across reconnects. The first thing is an error where that history is compacted. All events
    /// of one revision come together.
    async fn watch(&self, prefix: &str, after: Revision) -> Result<WatchStream>;

    /// Like [`Storage::watch`], for callers that know the current state: events may lack the
    /// previous value.
    async fn watch_without_previous(&self, prefix: &str, after: Revision) -> Result<WatchStream> {
        self.watch(prefix, after).await
    }

    /// Asks every open watch of this store to report its progress with a [`WatchEvent::Progress`]
    /// behind the events up to there. That may be less than the current revision, and may fail to
    /// come (a member of an etcd cluster that lags): ask again then. A watch reports nothing while
    /// no change at all has happened after the revision that it was opened at.
    async fn request_progress(&self) -> Result<()>;

    /// Reports whether [`Storage::request_progress`] can be relied on: all events up to a revision
    /// have been delivered when progress reports it.
    fn has_reliable_progress(&self) -> bool {
        true
    }

    /// The revision of the latest change.
    async fn current_revision(&self) -> Result<Revision>;

    /// Discards the history before `revision`; the state at `revision` can still be read, and
    /// watched after it. Fails with [`StorageError::Compacted`] where that has happened already,
    /// [`StorageError::FutureRevision`] where it cannot yet.
    async fn compact(&self, revision: Revision) -> Result<()>;

    /// Checks that the store answers.
    async fn check_health(&self) -> Result<()>;

    /// Returns how many bytes the store takes on disk.
    async fn size(&self) -> Result<u64>;

    /// Checks that the store still has every change that it acknowledged.
    ///
    /// # Errors
    /// Says what is missing. A store that has lost changes accepts no writes.
    fn check_integrity(&self) -> Result<()>;
}

/// The first key behind `key`, for [`ListRequest::start`].
pub fn next_key(key: &str) -> String {
    format!("{key}\0")
}

pub mod compaction;
pub mod embedded;
pub mod encryption;
pub mod etcd3;
pub mod etcd_snapshot;
pub mod metered;
pub mod snapshot;
