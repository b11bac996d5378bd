//! Rewriting of the file while the store is in use: what stands is copied into a new file without
//! gaps, the writer adds what was written meanwhile, and the new file takes the place of the old.
//!
//! A process that ends in the middle leaves the old file, or the new one in its place.

use std::fs;
use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTableMetadata};

use super::contents::NEW_FILE;
use super::tables::{
    BYTES, CHANGES, CLEANED, COMPACTED, EXPIRY, INDEX, META, REVISION, Snapshot, broken,
};
use super::{FILE, format};
use crate::base::files;
use crate::storage::{Result, Revision, StorageError};

/// Rows in one commit.
const COMMIT_ROWS: usize = 10_000;

/// A file that is to replace the store's, complete up to `revision`.
pub struct Replacement {
    pub db: Database,
    pub revision: Revision,
}

/// Copies a snapshot into a new file in `directory`, which `open` opens.
///
/// # Errors
/// A failure to read or write. The new file is removed.
pub fn copy(
    snapshot: &Snapshot,
    directory: &Path,
    open: &dyn Fn(&Path) -> std::result::Result<Database, redb::DatabaseError>,
) -> Result<Replacement> {
    let path = directory.join(NEW_FILE);
    let attempt = || {
        files::remove_if_exists(&path)
            .map_err(redb::StorageError::from)
            .map_err(broken)?;
        let mut db = open(&path).map_err(broken)?;
        format::prepare(&db)?;
        copy_rows(snapshot, &db)?;
        db.compact()
            .map_err(|e| StorageError::Internal(e.to_string()))?;
        let revision = snapshot.revision;
        Ok(Replacement { db, revision })
    };
    attempt().inspect_err(|_| discard(directory))
}

/// Removes a new file that is not going to be used.
pub fn discard(directory: &Path) {
    if let Err(error) = files::remove_if_exists(&directory.join(NEW_FILE)) {
        tracing::warn!("{NEW_FILE} is left in {}: {error}", directory.display());
    }
}

fn copy_rows(snapshot: &Snapshot, db: &Database) -> Result<()> {
    let mut changes = snapshot.changes.range::<Revision>(..).map_err(broken)?;
    in_batches(db, |txn| {
        let mut table = txn.open_table(CHANGES).map_err(broken)?;
        for row in changes.by_ref().take(COMMIT_ROWS) {
            let (revision, row) = row.map_err(broken)?;
            table
                .insert(revision.value(), row.value())
                .map_err(broken)?;
        }
        table.len().map_err(broken)
    })?;
    let mut index = snapshot
        .index
        .range::<(&str, Revision)>(..)
        .map_err(broken)?;
    in_batches(db, |txn| {
        let mut table = txn.open_table(INDEX).map_err(broken)?;
        for row in index.by_ref().take(COMMIT_ROWS) {
            let (at, created) = row.map_err(broken)?;
            table.insert(at.value(), created.value()).map_err(broken)?;
        }
        table.len().map_err(broken)
    })?;
    let mut expiry = snapshot
        .expiry
        .range::<(i64, Revision)>(..)
        .map_err(broken)?;
    in_batches(db, |txn| {
        let mut table = txn.open_table(EXPIRY).map_err(broken)?;
        for row in expiry.by_ref().take(COMMIT_ROWS) {
            table
                .insert(row.map_err(broken)?.0.value(), ())
                .map_err(broken)?;
        }
        table.len().map_err(broken)
    })?;
    let txn = db.begin_write().map_err(broken)?;
    write_position(&txn, snapshot, snapshot.cleaned)?;
    txn.commit().map_err(broken)
}

/// Commits what `fill` adds to a table, again and again until it adds nothing. `fill` returns how
/// many rows the table has.
fn in_batches(
    db: &Database,
    mut fill: impl FnMut(&redb::WriteTransaction) -> Result<u64>,
) -> Result<()> {
    let mut rows = 0;
    loop {
        let txn = db.begin_write().map_err(broken)?;
        let now = fill(&txn)?;
        txn.commit().map_err(broken)?;
        if now == rows {
            return Ok(());
        }
        rows = now;
    }
}

fn write_position(txn: &redb::WriteTransaction, at: &Snapshot, cleaned: Revision) -> Result<()> {
    let mut meta = txn.open_table(META).map_err(broken)?;
    for (name, number) in [
        (REVISION, at.revision),
        (COMPACTED, at.compacted),
        (CLEANED, cleaned),
        (BYTES, at.bytes),
    ] {
        meta.insert(name, number).map_err(broken)?;
    }
    Ok(())
}

/// Adds the changes up to `now` to a replacement, of which no row was removed since, and puts it in
/// the place of the store's file.
///
/// # Errors
/// A failure to read or write. The store's file is still the old one then.
pub fn complete(replacement: Replacement, now: &Snapshot, directory: &Path) -> Result<Database> {
    let Replacement { db, revision } = replacement;
    let read = db.begin_read().map_err(broken)?;
    let meta = read.open_table(META).map_err(broken)?;
    let cleaned = meta.get(CLEANED).map_err(broken)?.map_or(0, |n| n.value());
    drop((meta, read));
    let txn = db.begin_write().map_err(broken)?;
    {
        let mut changes = txn.open_table(CHANGES).map_err(broken)?;
        let mut index = txn.open_table(INDEX).map_err(broken)?;
        for row in now.changes.range(revision + 1..).map_err(broken)? {
            let (at, row) = row.map_err(broken)?;
            let (key, created, _, _) = row.value();
            index.insert((key, at.value()), created).map_err(broken)?;
            changes.insert(at.value(), row.value()).map_err(broken)?;
        }
        let mut expiry = txn.open_table(EXPIRY).map_err(broken)?;
        for row in now.expiry.range::<(i64, Revision)>(..).map_err(broken)? {
            let deadline = row.map_err(broken)?.0.value();
            if deadline.1 > revision {
                expiry.insert(deadline, ()).map_err(broken)?;
            }
        }
    }
    write_position(&txn, now, cleaned)?;
    txn.commit().map_err(broken)?;
    fs::rename(directory.join(NEW_FILE), directory.join(FILE))
        .map_err(redb::StorageError::from)
        .map_err(broken)?;
    if let Err(error) = files::sync_dir(directory) {
        tracing::warn!("{}: {error}", directory.display());
    }
    Ok(db)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::base::clock::Clock;
    use crate::storage::embedded::{Embedded, open_file};
    use crate::storage::{ListRequest, Storage, Stored, WriteOutcome};

    /// Overwrites some keys often, deletes others, and lets one expire.
    async fn churn(store: &Embedded, round: usize) {
        for i in 0..40 {
            let key = format!("/key{}", i % 8);
            let at = store.get(&key).await.unwrap().map_or(0, |s| s.mod_revision);
            let value = vec![b'a' + (round % 20) as u8; 4000].into();
            let ttl = (i == 39).then_some(Duration::from_secs(1000));
            store.update(&key, value, at, ttl).await.unwrap();
        }
        let gone = store.get("/key3").await.unwrap().unwrap();
        store.delete("/key3", gone.mod_revision).await.unwrap();
    }

    async fn state(store: &Embedded) -> (Vec<Stored>, Revision) {
        let page = store.list(ListRequest::default()).await.unwrap();
        (page.items, page.revision)
    }

    #[tokio::test]
    async fn the_file_shrinks_and_the_store_stays_what_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::manual(jiff::Timestamp::UNIX_EPOCH);
        let store = Embedded::open_with_clock(folder.path(), clock.clone()).unwrap();
        for round in 0..30 {
            churn(&store, round).await;
        }
        let before = state(&store).await;
        store.compact(before.1).await.unwrap();
        while store.is_cleaning().unwrap() {
            store.check_health().await.unwrap();
        }
        let large = store.size().await.unwrap();
        store.defragment().await.unwrap();
        let small = store.size().await.unwrap();
        assert!(small < large / 2, "{large} became {small}");
        assert_eq!(state(&store).await, before);
        let usage = store.usage().unwrap();
        churn(&store, 1).await;
        assert!(store.usage().unwrap().in_use > usage.in_use, "it goes on");
        let before = state(&store).await;
        drop(store);
        let store = Embedded::open_with_clock(folder.path(), clock.clone()).unwrap();
        assert_eq!(state(&store).await, before);
        clock.advance(Duration::from_secs(1000));
        store.expire().await.unwrap();
        assert_eq!(store.get("/key7").await, Ok(None));
    }

    #[tokio::test]
    async fn writes_deletions_and_compactions_meanwhile_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let store = Embedded::open(folder.path()).unwrap();
        churn(&store, 1).await;
        let began = store.begin_rewrite().await.unwrap();
        let copied = copy(&began.snapshot, folder.path(), &open_file).unwrap();
        // Whatever is deleted and compacted away now is in the copy.
        let gone = store.get("/key5").await.unwrap().unwrap();
        store.delete("/key5", gone.mod_revision).await.unwrap();
        churn(&store, 2).await;
        let now = store.current_revision().await.unwrap();
        store.compact(now).await.unwrap();
        churn(&store, 3).await;
        let before = state(&store).await;
        store.finish_rewrite(began, copied).await.unwrap();
        assert_eq!(state(&store).await, before);
        // Cleaning goes on where it was.
        for _ in 0..4 {
            store.check_health().await.unwrap();
        }
        assert_eq!(state(&store).await, before);
        let in_use = store.usage().unwrap().in_use;
        drop(store);
        let mut counted = 0;
        let db = Database::open(folder.path().join(FILE)).unwrap();
        let read = Snapshot::take(&db).unwrap();
        for row in read.changes.range::<Revision>(..).unwrap() {
            let (_, row) = row.unwrap();
            counted += super::super::tables::row_bytes(row.value().0, row.value().3);
        }
        assert_eq!(
            in_use, counted,
            "every byte is counted, and no row is left behind"
        );
    }

    /// Each moment at which the disk can fail leaves a store with everything in it.
    #[tokio::test]
    async fn a_rewrite_that_fails_leaves_the_store_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Embedded::open(folder.path()).unwrap());
        churn(&store, 1).await;
        for moment in 0.. {
            let before = state(&store).await;
            let outcome = store
                .defragment_on(super::super::faults::failing(moment))
                .await;
            assert_eq!(state(&store).await, before, "at {moment}");
            if outcome.is_ok() {
                assert!(moment > 3, "some attempts have failed");
                return;
            }
            let made = store
                .create(&format!("/new{moment}"), "x".into(), None)
                .await;
            assert!(
                matches!(made, Ok(WriteOutcome::Committed(_))),
                "at {moment}"
            );
        }
    }
}
