//! The layout on disk and its readers: the tables, one version of a key, and snapshots of the whole
//! store.
//!
//! Every change has a revision and one row in [`CHANGES`], without gaps. [`INDEX`] finds a key's
//! versions, so a read at any kept revision costs the same as a read of the present.

use std::io;

use bytes::Bytes;
use redb::{ReadOnlyTable, ReadableTable, TableDefinition};

use crate::storage::{ListPage, ListRequest, Result, Revision, StorageError, Stored, WatchEvent};

/// (key, revision) -> the revision the key was made at, 0 where this version is its deletion.
pub const INDEX: TableDefinition<(&str, Revision), Revision> = TableDefinition::new("index");
/// A row of [`CHANGES`].
pub type Change = (&'static str, Revision, Revision, &'static [u8]);
/// revision -> (key, made at (0: deleted), revision of the value before (0: none), value).
pub const CHANGES: TableDefinition<Revision, Change> = TableDefinition::new("changes");
/// (deadline in microseconds since 1970, revision of the write that set it). Stays behind when the
/// key is written again.
pub const EXPIRY: TableDefinition<(i64, Revision), ()> = TableDefinition::new("expiry");
/// Single numbers under the names below.
pub const META: TableDefinition<&str, i64> = TableDefinition::new("meta");

/// The latest revision.
pub const REVISION: &str = "revision";
/// The oldest revision that can be read at.
pub const COMPACTED: &str = "compacted";
/// The revision up to which superseded versions have been removed; catches up with [`COMPACTED`].
pub const CLEANED: &str = "cleaned";
/// The bytes in use: the sum of [`row_bytes`] over [`CHANGES`].
pub const BYTES: &str = "bytes";
/// The layout of the tables.
pub const FORMAT: &str = "format";

/// The bytes that a row takes beside its key (in two tables) and value, about.
const ROW_BYTES: usize = 64;

/// Returns the bytes that a row of [`CHANGES`] and its entry in [`INDEX`] take, about: the file is
/// larger by what its pages leave free.
pub fn row_bytes(key: &str, value: &[u8]) -> i64 {
    (2 * key.len() + value.len() + ROW_BYTES) as i64
}

/// Any failure of redb is the store's own, unless the disk is full, or the file has failed before
/// and is about to be opened again.
pub fn broken(error: impl Into<redb::Error>) -> StorageError {
    match error.into() {
        redb::Error::Io(error) if is_full(&error) => StorageError::NoSpace(error.to_string()),
        redb::Error::PreviousIo | redb::Error::DatabaseClosed => StorageError::Unavailable(
            "the embedded store is opened again after a failure".to_owned(),
        ),
        error => StorageError::Internal(error.to_string()),
    }
}

/// Reports whether a write failed because it would need more room than there is: on the disk, of a
/// quota, or below the limit on a file's size.
fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// One version of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Version {
    pub revision: Revision,
    pub created: Revision,
}

/// The version of `key` at revision `at`; `None` if it does not exist then.
///
/// # Errors
/// A failure to read the file.
pub fn version(
    index: &impl ReadableTable<(&'static str, Revision), Revision>,
    key: &str,
    at: Revision,
) -> Result<Option<Version>> {
    let Some(found) = index
        .range((key, 0)..=(key, at))
        .map_err(broken)?
        .next_back()
    else {
        return Ok(None);
    };
    let (at, created) = found.map_err(broken)?;
    let version = Version {
        revision: at.value().1,
        created: created.value(),
    };
    Ok((version.created != 0).then_some(version))
}

/// The value written at `revision`; a missing row is a bug.
///
/// # Errors
/// A failure to read the file, or a missing row.
pub fn stored(
    changes: &impl ReadableTable<Revision, Change>,
    revision: Revision,
) -> Result<Stored> {
    let row = changes.get(revision).map_err(broken)?;
    let row =
        row.ok_or_else(|| StorageError::Internal(format!("revision {revision} is missing")))?;
    let (key, created, _, value) = row.value();
    Ok(Stored {
        key: key.to_owned(),
        value: Bytes::copy_from_slice(value),
        create_revision: created,
        mod_revision: revision,
    })
}

/// The store as of one commit. Holding it keeps the pages it reads from being reused.
pub struct Snapshot {
    pub index: ReadOnlyTable<(&'static str, Revision), Revision>,
    pub changes: ReadOnlyTable<Revision, Change>,
    pub expiry: ReadOnlyTable<(i64, Revision), ()>,
    pub revision: Revision,
    pub compacted: Revision,
    pub cleaned: Revision,
    /// The bytes in use.
    pub bytes: i64,
}

impl Snapshot {
    /// Takes a snapshot of the last commit of `db`.
    ///
    /// # Errors
    /// A failure to read the file.
    pub fn take(db: &redb::Database) -> Result<Self> {
        use redb::ReadableDatabase;
        let read = db.begin_read().map_err(broken)?;
        let meta = read.open_table(META).map_err(broken)?;
        let number = |name| Ok(meta.get(name).map_err(broken)?.map_or(0, |n| n.value()));
        Ok(Self {
            index: read.open_table(INDEX).map_err(broken)?,
            changes: read.open_table(CHANGES).map_err(broken)?,
            expiry: read.open_table(EXPIRY).map_err(broken)?,
            revision: number(REVISION)?,
            compacted: number(COMPACTED)?,
            cleaned: number(CLEANED)?,
            bytes: number(BYTES)?,
        })
    }

    /// The value under `key` in this snapshot.
    ///
    /// # Errors
    /// A failure to read the file.
    pub fn get(&self, key: &str) -> Result<Option<Stored>> {
        version(&self.index, key, self.revision)?
            .map(|v| stored(&self.changes, v.revision))
            .transpose()
    }

    /// A page of the keys in this snapshot.
    ///
    /// # Errors
    /// A revision that is compacted or not reached yet, or a failure to read the file.
    pub fn list(&self, request: &ListRequest) -> Result<ListPage> {
        let at = self.readable(request.revision)?;
        let mut page = ListPage {
            revision: at,
            ..ListPage::default()
        };
        let mut add = |standing: Option<Revision>| {
            let Some(revision) = standing else {
                return Ok(());
            };
            page.count += 1;
            match request.limit {
                limit if limit > 0 && page.items.len() >= limit => page.more = true,
                _ => page.items.push(stored(&self.changes, revision)?),
            }
            Ok(())
        };
        let start = request.start.as_str().max(request.prefix.as_str());
        let (mut key, mut standing) = (String::new(), None);
        for entry in self.index.range((start, 0)..).map_err(broken)? {
            let (name, created) = entry.map_err(broken)?;
            let (name, revision) = name.value();
            if !name.starts_with(request.prefix.as_str()) {
                break;
            }
            if name != key {
                add(standing.take())?;
                key.clear();
                key.push_str(name);
            }
            if revision <= at {
                standing = (created.value() != 0).then_some(revision);
            }
        }
        add(standing)?;
        Ok(page)
    }

    /// The revision to read at, if it can be.
    fn readable(&self, asked: Option<Revision>) -> Result<Revision> {
        match asked.unwrap_or(0) {
            0 => Ok(self.revision),
            asked if asked > self.revision => Err(StorageError::FutureRevision {
                asked,
                current: self.revision,
            }),
            asked if asked < self.compacted => Err(StorageError::Compacted {
                oldest: Some(self.compacted),
            }),
            asked => Ok(asked),
        }
    }

    /// The changes under `prefix` from revision `from` on, from at most `rows` rows and no more
    /// than about `bytes` of values, and the revision to go on from.
    ///
    /// # Errors
    /// A failure to read the file.
    pub fn replay(
        &self,
        prefix: &str,
        from: Revision,
        rows: i64,
        bytes: usize,
    ) -> Result<(Vec<WatchEvent>, Revision)> {
        let until = self.revision.min(from.saturating_add(rows - 1));
        let (mut events, mut size, mut next) = (Vec::new(), 0, from);
        for row in self.changes.range(from..=until).map_err(broken)? {
            let (revision, row) = row.map_err(broken)?;
            let (key, created, previous, value) = row.value();
            next = revision.value() + 1;
            if !key.starts_with(prefix) {
                continue;
            }
            let previous = (previous != 0)
                .then(|| stored(&self.changes, previous))
                .transpose()?;
            size += value.len() + previous.as_ref().map_or(0, |p| p.value.len());
            events.push(event(
                revision.value(),
                key,
                created,
                Bytes::copy_from_slice(value),
                previous,
            ));
            if size >= bytes {
                return Ok((events, next));
            }
        }
        Ok((events, next.max(until + 1)))
    }
}

/// The event for a row of [`CHANGES`].
pub fn event(
    revision: Revision,
    key: &str,
    created: Revision,
    value: Bytes,
    previous: Option<Stored>,
) -> WatchEvent {
    let key = key.to_owned();
    match created {
        0 => WatchEvent::Delete {
            key,
            revision,
            previous,
        },
        created => WatchEvent::Put {
            current: Stored {
                key,
                value,
                create_revision: created,
                mod_revision: revision,
            },
            previous,
        },
    }
}
