//! The version of the layout on disk: new files get the latest, older ones are brought to it, and
//! newer ones are left alone.

use redb::{Database, ReadableTable, WriteTransaction};

use super::tables::{BYTES, CHANGES, EXPIRY, FORMAT, INDEX, META, REVISION, broken, row_bytes};
use super::{FIRST_REVISION, Result};
use crate::storage::StorageError;

/// A step from one version of the layout to the next, in a transaction that the others share.
type Step = fn(&WriteTransaction) -> Result<()>;

/// The steps from version 1 on. The latest version is behind the last of them.
const STEPS: &[Step] = &[count_bytes];

/// Makes the tables of a new file; brings an old one to the latest version of the layout, all at
/// once or not at all.
///
/// # Errors
/// A newer program wrote the file, or it cannot be written.
pub fn prepare(db: &Database) -> Result<()> {
    upgrade(db, STEPS)
}

fn upgrade(db: &Database, steps: &[Step]) -> Result<()> {
    let latest = 1 + steps.len() as i64;
    let txn = db.begin_write().map_err(broken)?;
    let found = txn
        .open_table(META)
        .map_err(broken)?
        .get(FORMAT)
        .map_err(broken)?
        .map(|n| n.value());
    match found {
        None => create(&txn)?,
        Some(found) if found == latest => return txn.abort().map_err(broken),
        Some(found) if !(1..latest).contains(&found) => {
            return Err(StorageError::Internal(format!(
                "its format is {found}, this program knows those up to {latest}; take a snapshot \
                 with the program that wrote it, and restore that here"
            )));
        }
        Some(found) => {
            tracing::info!("the format of the embedded store becomes {latest}, it was {found}");
            for step in &steps[(found - 1) as usize..] {
                step(&txn)?;
            }
        }
    }
    let mut meta = txn.open_table(META).map_err(broken)?;
    meta.insert(FORMAT, latest).map_err(broken)?;
    drop(meta);
    txn.commit().map_err(broken)
}

fn create(txn: &WriteTransaction) -> Result<()> {
    let mut meta = txn.open_table(META).map_err(broken)?;
    meta.insert(REVISION, FIRST_REVISION).map_err(broken)?;
    meta.insert(BYTES, 0).map_err(broken)?;
    txn.open_table(INDEX).map_err(broken)?;
    txn.open_table(CHANGES).map_err(broken)?;
    txn.open_table(EXPIRY).map_err(broken)?;
    Ok(())
}

/// Version 2 counts the bytes in use.
fn count_bytes(txn: &WriteTransaction) -> Result<()> {
    let mut bytes = 0;
    for row in txn
        .open_table(CHANGES)
        .map_err(broken)?
        .iter()
        .map_err(broken)?
    {
        let (_, row) = row.map_err(broken)?;
        let (key, _, _, value) = row.value();
        bytes += row_bytes(key, value);
    }
    let mut meta = txn.open_table(META).map_err(broken)?;
    meta.insert(BYTES, bytes).map_err(broken)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use redb::ReadableDatabase;

    use super::*;
    use crate::storage::Storage;
    use crate::storage::embedded::{Embedded, FILE};

    const VERSION: i64 = 1 + STEPS.len() as i64;

    fn number(db: &Database, name: &str) -> Option<i64> {
        let read = db.begin_read().unwrap();
        let meta = read.open_table(META).unwrap();
        meta.get(name).unwrap().map(|n| n.value())
    }

    /// A folder with a store of the first version, which has one key.
    async fn of_version_1() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let store = Embedded::open(folder.path()).unwrap();
        store.create("/a", "value".into(), None).await.unwrap();
        drop(store);
        let db = Database::open(folder.path().join(FILE)).unwrap();
        let txn = db.begin_write().unwrap();
        {
            let mut meta = txn.open_table(META).unwrap();
            meta.insert(FORMAT, 1).unwrap();
            meta.remove(BYTES).unwrap();
        }
        txn.commit().unwrap();
        folder
    }

    #[tokio::test]
    async fn an_older_file_is_brought_to_the_latest_version() {
        let folder = of_version_1().await;
        let store = Embedded::open(folder.path()).unwrap();
        let (found, revision) = store.get_with_revision("/a").await.unwrap();
        assert_eq!((found.unwrap().value, revision), ("value".into(), 2));
        drop(store);
        let db = Database::open(folder.path().join(FILE)).unwrap();
        assert_eq!(number(&db, FORMAT), Some(VERSION));
        assert_eq!(number(&db, BYTES), Some(row_bytes("/a", b"value")));
    }

    #[tokio::test]
    async fn a_step_that_fails_changes_nothing() {
        fn spoils(txn: &WriteTransaction) -> Result<()> {
            txn.open_table(META)
                .map_err(broken)?
                .insert(REVISION, 0)
                .map_err(broken)?;
            Ok(())
        }
        fn fails(_: &WriteTransaction) -> Result<()> {
            Err(StorageError::Internal("no".into()))
        }
        let folder = of_version_1().await;
        let db = Database::open(folder.path().join(FILE)).unwrap();
        assert!(upgrade(&db, &[spoils, fails]).is_err());
        assert_eq!(number(&db, FORMAT), Some(1));
        assert_eq!(number(&db, REVISION), Some(2));
        upgrade(&db, &[spoils]).unwrap();
        assert_eq!(
            (number(&db, FORMAT), number(&db, REVISION)),
            (Some(2), Some(0))
        );
    }

    #[tokio::test]
    async fn a_newer_file_is_left_alone() {
        let folder = of_version_1().await;
        for other in [VERSION + 1, 0, -1] {
            let db = Database::open(folder.path().join(FILE)).unwrap();
            let txn = db.begin_write().unwrap();
            txn.open_table(META).unwrap().insert(FORMAT, other).unwrap();
            txn.commit().unwrap();
            drop(db);
            let refused = Embedded::open(folder.path()).err().unwrap().to_string();
            assert!(
                refused.contains(&format!("its format is {other}, this program knows")),
                "{refused}"
            );
        }
    }
}
