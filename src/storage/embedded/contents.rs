//! The whole content of a store: read in the order of keys, and written into a new file.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Database, Range};

use super::tables::{
    self, BYTES, CHANGES, CLEANED, COMPACTED, EXPIRY, INDEX, META, REVISION, Snapshot, broken,
    row_bytes,
};
use super::{FILE, cannot_open, format, open_file};
use crate::base::files;
use crate::storage::snapshot::Entry;
use crate::storage::{Result, Revision, StorageError};

/// The file that becomes the store once it is complete.
pub const NEW_FILE: &str = "keelson.redb.new";
/// Bytes of keys and values in one commit, about.
const COMMIT_BYTES: i64 = 16 << 20;

/// The keys that stand in a snapshot with their values, in the order of the keys.
pub struct Entries {
    snapshot: Arc<Snapshot>,
    versions: Range<'static, (&'static str, Revision), Revision>,
    /// The times at which the versions of some revisions expire.
    deadlines: HashMap<Revision, i64>,
    /// The last version of the key that was read last: its revision, and whether it stands.
    last: Option<(String, Revision, bool)>,
}

impl Entries {
    /// Begins to read a snapshot, which is held until the end.
    ///
    /// # Errors
    /// A failure to read the file.
    pub fn of(snapshot: Arc<Snapshot>) -> Result<Self> {
        let mut deadlines = HashMap::new();
        for row in snapshot
            .expiry
            .range::<(i64, Revision)>(..)
            .map_err(broken)?
        {
            let (deadline, revision) = row.map_err(broken)?.0.value();
            deadlines.insert(revision, deadline);
        }
        let versions = snapshot
            .index
            .range::<(&str, Revision)>(..)
            .map_err(broken)?;
        Ok(Self {
            snapshot,
            versions,
            deadlines,
            last: None,
        })
    }

    /// The revision of the snapshot.
    pub fn revision(&self) -> Revision {
        self.snapshot.revision
    }

    /// The entry of the next key; `None` behind the last.
    ///
    /// # Errors
    /// A failure to read the file.
    pub fn next_entry(&mut self) -> Result<Option<Entry>> {
        for version in self.versions.by_ref() {
            let (at, created) = version.map_err(broken)?;
            let (key, revision) = at.value();
            let stands = created.value() != 0;
            match &mut self.last {
                Some(last) if last.0 == key => (last.1, last.2) = (revision, stands),
                last => {
                    let before = last.replace((key.to_owned(), revision, stands));
                    if let Some((_, revision, true)) = before {
                        return self.entry(revision).map(Some);
                    }
                }
            }
        }
        match self.last.take() {
            Some((_, revision, true)) => self.entry(revision).map(Some),
            _ => Ok(None),
        }
    }

    fn entry(&self, revision: Revision) -> Result<Entry> {
        Ok(Entry {
            stored: tables::stored(&self.snapshot.changes, revision)?,
            expires: self.deadlines.get(&revision).copied(),
        })
    }
}

/// The store of a directory that no server uses, and that none can use for as long as this lives.
pub struct StoppedStore {
    snapshot: Arc<Snapshot>,
    /// Closing it ends the snapshot.
    _db: Database,
}

impl StoppedStore {
    /// Opens the store in `directory`.
    ///
    /// # Errors
    /// There is none, a server uses it, or it cannot be read.
    pub fn open(directory: &Path) -> Result<Self> {
        let path = directory.join(FILE);
        if !path.exists() {
            let place = directory.display();
            return Err(StorageError::Internal(format!(
                "there is no store in {place}"
            )));
        }
        let db = open_file(&path).map_err(|error| super::not_opened(directory, &error))?;
        format::prepare(&db).map_err(|error| cannot_open(directory, &error))?;
        let snapshot = Arc::new(Snapshot::take(&db)?);
        Ok(Self { snapshot, _db: db })
    }

    /// Reads all that stands.
    ///
    /// # Errors
    /// A failure to read the file.
    pub fn entries(&self) -> Result<Entries> {
        Entries::of(self.snapshot.clone())
    }
}

/// A store that is being written: a file beside where the store will be, which takes its place when
/// it is complete. A process that ends before leaves no store.
pub struct NewStore {
    directory: PathBuf,
    /// Keeps other commands from writing a store there.
    _lock: fs::File,
    /// `None` only at the end.
    db: Option<Database>,
    bytes: i64,
    pending: Vec<Entry>,
    pending_bytes: i64,
}

impl NewStore {
    /// Begins a store in `directory`, which may not have one yet.
    ///
    /// # Errors
    /// There is a store, or the directory cannot be written.
    pub fn create(directory: &Path) -> Result<Self> {
        let failed = |error: &dyn std::fmt::Display| cannot_open(directory, error);
        if directory.join(FILE).exists() {
            return Err(has_store(directory));
        }
        files::create_private_dir(directory).map_err(|e| failed(&e))?;
        let lock = lock(directory)?;
        let path = directory.join(NEW_FILE);
        files::remove_if_exists(&path).map_err(|e| failed(&e))?;
        let db = open_file(&path).map_err(|e| failed(&e))?;
        format::prepare(&db)?;
        Ok(Self {
            directory: directory.to_owned(),
            _lock: lock,
            db: Some(db),
            bytes: 0,
            pending: Vec::new(),
            pending_bytes: 0,
        })
    }

    /// Adds a key with its value and revisions.
    ///
    /// # Errors
    /// Two keys of one revision, or a failure to write the file.
    pub fn add(&mut self, entry: Entry) -> Result<()> {
        self.pending_bytes += row_bytes(&entry.stored.key, &entry.stored.value);
        self.pending.push(entry);
        if self.pending_bytes >= COMMIT_BYTES {
            self.commit()?;
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        let db = self.db.as_ref().ok_or_else(super::closed)?;
        let txn = db.begin_write().map_err(broken)?;
        let mut index = txn.open_table(INDEX).map_err(broken)?;
        let mut changes = txn.open_table(CHANGES).map_err(broken)?;
        let mut expiry = txn.open_table(EXPIRY).map_err(broken)?;
        for Entry { stored, expires } in self.pending.drain(..) {
            let (key, created, revision) = (
                stored.key.as_str(),
                stored.create_revision,
                stored.mod_revision,
            );
            index.insert((key, revision), created).map_err(broken)?;
            let row = (key, created, 0, &stored.value[..]);
            if changes.insert(revision, row).map_err(broken)?.is_some() {
                return Err(StorageError::Internal(format!(
                    "{key} has revision {revision}, as another key has"
                )));
            }
            if let Some(deadline) = expires {
                expiry.insert((deadline, revision), ()).map_err(broken)?;
            }
        }
        drop((index, changes, expiry));
        txn.commit().map_err(broken)?;
        self.bytes += std::mem::take(&mut self.pending_bytes);
        Ok(())
    }

    /// Makes it the store of its directory, at `revision`. History up to there counts as compacted,
    /// so that clients which know an older revision list again.
    ///
    /// # Errors
    /// A failure to write the file or the directory. There is no store then.
    pub fn finish(mut self, revision: Revision) -> Result<()> {
        self.commit()?;
        let db = self.db.take().ok_or_else(super::closed)?;
        let txn = db.begin_write().map_err(broken)?;
        let mut meta = txn.open_table(META).map_err(broken)?;
        for (name, number) in [
            (REVISION, revision),
            (COMPACTED, revision),
            (CLEANED, revision),
            (BYTES, self.bytes),
        ] {
            meta.insert(name, number).map_err(broken)?;
        }
        drop(meta);
        txn.commit().map_err(broken)?;
        drop(db);
        let (new, target) = (self.directory.join(NEW_FILE), self.directory.join(FILE));
        // A server may have made a store there meanwhile.
        let placed = files::rename_new(&new, &target);
        let placed = placed.inspect_err(|_| {
            // The next attempt would remove it as well.
            let _ = fs::remove_file(&new);
        });
        match placed.and_then(|()| files::sync_dir(&self.directory)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(has_store(&self.directory))
            }
            placed => placed.map_err(|error| cannot_open(&self.directory, &error)),
        }
    }
}

fn has_store(directory: &Path) -> StorageError {
    StorageError::Internal(format!(
        "{} has a store already; nothing was changed",
        directory.display()
    ))
}

/// Takes the directory for one command; the lock ends with the file.
fn lock(directory: &Path) -> Result<fs::File> {
    let locked = fs::File::open(directory).and_then(|file| match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => {
            Err(io::Error::other("another command is writing a store there"))
        }
        // Not all systems lock directories.
        Err(fs::TryLockError::Error(_)) => Ok(file),
    });
    locked.map_err(|error| cannot_open(directory, &error))
}

impl Drop for NewStore {
    fn drop(&mut self) {
        if self.db.take().is_some() {
            // What is left of it is removed by the next attempt.
            let _ = fs::remove_file(self.directory.join(NEW_FILE));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::clock::Clock;
    use crate::storage::embedded::Embedded;
    use crate::storage::{ListRequest, Storage};

    async fn fill(store: &Embedded) -> Vec<Entry> {
        let hour = Duration::from_secs(3600);
        store.create("/b", "old".into(), Some(hour)).await.unwrap();
        store.create("/a", "a".into(), Some(hour)).await.unwrap();
        store.create("/gone", "gone".into(), None).await.unwrap();
        store.update("/b", "b".into(), 2, None).await.unwrap();
        store.delete("/gone", 4).await.unwrap();
        store.create("/c", "c".into(), None).await.unwrap();
        let page = store.list(ListRequest::default()).await.unwrap();
        let expires = |key: &str| (key == "/a").then_some(3_600_000_000);
        let entry = |stored: crate::storage::Stored| Entry {
            expires: expires(&stored.key),
            stored,
        };
        page.items.into_iter().map(entry).collect()
    }

    fn read(store: &Embedded) -> Vec<Entry> {
        let mut entries = store.entries().unwrap();
        std::iter::from_fn(|| entries.next_entry().unwrap()).collect()
    }

    #[tokio::test]
    async fn a_store_is_written_again_as_it_was() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let clock = Clock::manual(jiff::Timestamp::UNIX_EPOCH);
        let store = Embedded::open_with_clock(folder.path(), clock.clone()).unwrap();
        let content = fill(&store).await;
        assert_eq!(
            read(&store),
            content,
            "what stands, in order, with its deadline"
        );

        let mut new = NewStore::create(other.path()).unwrap();
        let mut entries = store.entries().unwrap();
        while let Some(entry) = entries.next_entry().unwrap() {
            new.add(entry).unwrap();
        }
        new.finish(1000).unwrap();

        let copy = Embedded::open_with_clock(other.path(), clock.clone()).unwrap();
        assert_eq!(read(&copy), content);
        assert_eq!(copy.current_revision().await, Ok(1000));
        let old = copy
            .list(ListRequest {
                revision: Some(6),
                ..ListRequest::default()
            })
            .await;
        assert_eq!(
            old.unwrap_err(),
            StorageError::Compacted { oldest: Some(1000) }
        );
        let next = copy.create("/d", "d".into(), None).await.unwrap();
        assert_eq!(next, crate::storage::WriteOutcome::Committed(1001));
        clock.advance(Duration::from_secs(3600));
        copy.expire().await.unwrap();
        assert_eq!(
            copy.get("/a").await,
            Ok(None),
            "it expires there as it did here"
        );
    }

    #[tokio::test]
    async fn a_store_that_came_meanwhile_stays() {
        let folder = tempfile::tempdir().unwrap();
        let new = NewStore::create(folder.path()).unwrap();
        let refused = NewStore::create(folder.path()).err().unwrap().to_string();
        assert!(refused.contains("another command is writing"), "{refused}");
        let store = Embedded::open(folder.path()).unwrap();
        store.create("/a", "a".into(), None).await.unwrap();
        let refused = new.finish(9).unwrap_err().to_string();
        assert!(refused.contains("has a store already"), "{refused}");
        assert!(!folder.path().join(NEW_FILE).exists());
        drop(store);
        let store = Embedded::open(folder.path()).unwrap();
        assert!(store.get("/a").await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_store_that_is_not_finished_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let entry = |key: &str| Entry {
            stored: crate::storage::Stored {
                key: key.to_owned(),
                value: "value".into(),
                create_revision: 2,
                mod_revision: 2,
            },
            expires: None,
        };
        let mut twice = NewStore::create(folder.path()).unwrap();
        twice.add(entry("/a")).unwrap();
        twice.add(entry("/b")).unwrap();
        let refused = twice.finish(9).unwrap_err().to_string();
        assert!(
            refused.contains("/b has revision 2, as another key has"),
            "{refused}"
        );
        std::fs::write(
            folder.path().join(NEW_FILE),
            "what a killed process has left",
        )
        .unwrap();
        drop(NewStore::create(folder.path()).unwrap());
        assert!(!folder.path().join(FILE).exists());

        let mut new = NewStore::create(folder.path()).unwrap();
        new.add(entry("/a")).unwrap();
        new.finish(9).unwrap();
        let refused = NewStore::create(folder.path()).err().unwrap().to_string();
        assert!(refused.contains("has a store already"), "{refused}");
    }
}
