//! Tests of the embedded store on a disk that is full or fails: nothing acknowledged is lost, reads
//! continue, and writes resume once they can.

use std::fs::File;
use std::io;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use parking_lot::Mutex;
use redb::StorageBackend;
use redb::backends::FileBackend;

use super::*;
use crate::storage::{WatchEvent, WatchStream};

/// Time limit for the recovery of a store; it takes a fraction of a second.
const RECOVERY: Duration = Duration::from_secs(60);

/// A disk that tests can fill and break.
#[derive(Debug, Default)]
struct Disk {
    /// Bytes that can still be written; `None` where there is room for all.
    room: Option<usize>,
    /// Changes of the file that succeed before one fails, once.
    until_failure: Option<usize>,
    /// The file cannot be opened.
    gone: bool,
}

impl Disk {
    fn change(&mut self, bytes: usize) -> io::Result<()> {
        if let Some(left) = &mut self.until_failure {
            match left.checked_sub(1) {
                Some(fewer) => *left = fewer,
                None => {
                    self.until_failure = None;
                    return Err(io::Error::other("input/output error"));
                }
            }
        }
        match &mut self.room {
            Some(room) if *room < bytes => Err(io::ErrorKind::StorageFull.into()),
            Some(room) => {
                *room -= bytes;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// A file on such a disk.
#[derive(Debug)]
struct Faulty {
    file: FileBackend,
    disk: Arc<Mutex<Disk>>,
}

impl StorageBackend for Faulty {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.lock().change(0)?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.lock().change(0)?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.disk.lock().change(data.len())?;
        self.file.write(offset, data)
    }
}

/// Opens a file on a disk that fails at one moment.
pub(super) fn failing(
    moment: usize,
) -> impl Fn(&Path) -> std::result::Result<Database, DatabaseError> + Send + 'static {
    move |path| {
        let file = files::open_private(path).map_err(redb::StorageError::from)?;
        let disk = Disk {
            until_failure: Some(moment),
            ..Disk::default()
        };
        builder().create_with_backend(Faulty {
            file: FileBackend::new(file)?,
            disk: Arc::new(Mutex::new(disk)),
        })
    }
}

/// A store on such a disk, and the disk.
struct Fixture {
    folder: tempfile::TempDir,
    disk: Arc<Mutex<Disk>>,
    store: Embedded,
}

impl Fixture {
    fn new() -> Self {
        let (folder, disk) = (tempfile::tempdir().unwrap(), Arc::<Mutex<Disk>>::default());
        let (path, of_store) = (folder.path().join(FILE), disk.clone());
        let open = move || {
            if of_store.lock().gone {
                return Err(redb::StorageError::from(io::Error::other("no such device")).into());
            }
            let file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path);
            let file = FileBackend::new(file.map_err(redb::StorageError::from)?)?;
            builder().create_with_backend(Faulty {
                file,
                disk: of_store.clone(),
            })
        };
        let store = Embedded::start(
            folder.path().to_owned(),
            None,
            Box::new(open),
            Clock::system(),
        )
        .unwrap();
        Self {
            folder,
            disk,
            store,
        }
    }

    /// Writes a key of some size.
    async fn put(&self, key: &str) -> Result<WriteOutcome> {
        self.store
            .create(key, vec![b'x'; 10_000].into(), None)
            .await
    }

    /// Writes a key until the store has it; the revision at which it was made. An attempt that
    /// failed may have succeeded all the same.
    async fn insist(&self, key: &str) -> Revision {
        let end = Instant::now() + RECOVERY;
        loop {
            match self.put(key).await {
                Ok(WriteOutcome::Committed(revision)) => return revision,
                Ok(WriteOutcome::Conflict(found)) => return found.unwrap().mod_revision,
                Err(why) => assert!(Instant::now() < end, "{key}: {why}"),
            }
            tokio::task::yield_now().await;
        }
    }

    /// Checks that a watch delivers exactly what the store has, also when it is opened another
    /// time: `acknowledged` keys and others.
    async fn check(self, mut watch: WatchStream, acknowledged: &[(String, Revision)]) {
        let page = self.store.list(ListRequest::default()).await.unwrap();
        let received_events = received_events(&mut watch, page.items.len()).await;
        assert_eq!(
            received_events
                .iter()
                .map(|(_, revision)| *revision)
                .collect::<Vec<_>>(),
            (2..=page.revision).collect::<Vec<_>>(),
            "no gaps"
        );
        let mut stands: Vec<(String, Revision)> = page
            .items
            .into_iter()
            .map(|stored| (stored.key, stored.mod_revision))
            .collect();
        stands.sort_by_key(|(_, revision)| *revision);
        assert_eq!(received_events, stands);
        for written in acknowledged {
            assert!(
                stands.contains(written),
                "{written:?} was acknowledged, and is not among {stands:?}"
            );
        }
        let folder = self.folder;
        drop(self.store);
        let again = Embedded::open(folder.path()).unwrap();
        assert_eq!(
            again
                .list(ListRequest::default())
                .await
                .unwrap()
                .items
                .len(),
            stands.len()
        );
    }
}

/// The keys and revisions of the next events.
async fn received_events(watch: &mut WatchStream, count: usize) -> Vec<(String, Revision)> {
    let mut received_events = Vec::new();
    while received_events.len() < count {
        let event = tokio::time::timeout(RECOVERY, watch.next())
            .await
            .expect("in time")
            .expect("it goes on")
            .expect("no error");
        if let WatchEvent::Put { current, .. } = event {
            received_events.push((current.key, current.mod_revision));
        }
    }
    received_events
}

#[tokio::test]
async fn a_full_disk_refuses_writes_serves_reads_and_is_left_behind() {
    let fixture = Fixture::new();
    let watch = fixture.store.watch("/", 1).await.unwrap();
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        fixture.disk.lock().room = Some(200_000);
        let refused = loop {
            let key = format!("/{round}/{}", acknowledged.len());
            match fixture.put(&key).await {
                Ok(WriteOutcome::Committed(revision)) => acknowledged.push((key, revision)),
                other => break other,
            }
        };
        assert!(
            matches!(refused, Err(StorageError::NoSpace(_))),
            "{refused:?}"
        );
        let refused = fixture.put("/none").await;
        assert!(
            matches!(refused, Err(StorageError::NoSpace(_))),
            "at once and as often as it is tried: {refused:?}"
        );
        assert!(matches!(
            fixture.store.check_health().await,
            Err(StorageError::NoSpace(_))
        ));
        let (key, revision) = acknowledged.last().unwrap();
        assert_eq!(
            fixture.store.get(key).await.unwrap().unwrap().mod_revision,
            *revision
        );
        assert_eq!(fixture.store.current_revision().await, Ok(*revision));
        assert_eq!(
            fixture
                .store
                .list(ListRequest::default())
                .await
                .unwrap()
                .items
                .len(),
            acknowledged.len()
        );
        fixture.disk.lock().room = None;
        let key = format!("/{round}/room");
        acknowledged.push((key.clone(), fixture.insist(&key).await));
        fixture.store.check_health().await.unwrap();
    }
    fixture.check(watch, &acknowledged).await;
}

/// Acknowledged writes survive a failure of any change of the file: the commit before it counts, or
/// the last.
#[tokio::test]
async fn an_error_at_any_moment_loses_nothing_that_was_acknowledged() {
    for moment in 0..24 {
        let fixture = Fixture::new();
        let watch = fixture.store.watch("/", 1).await.unwrap();
        let mut acknowledged = Vec::new();
        for i in 0..8 {
            if i == 3 {
                fixture.disk.lock().until_failure = Some(moment);
            }
            let key = format!("/{i}");
            acknowledged.push((key.clone(), fixture.insist(&key).await));
        }
        fixture.check(watch, &acknowledged).await;
    }
}

#[tokio::test]
async fn reads_fail_while_the_file_cannot_be_opened_and_then_recover() {
    let fixture = Fixture::new();
    let first = fixture.insist("/first").await;
    let mut late = fixture.store.watch("/", 1).await.unwrap();
    {
        let mut disk = fixture.disk.lock();
        (disk.gone, disk.until_failure) = (true, Some(0));
    }
    assert!(fixture.put("/second").await.is_err());
    assert_eq!(
        fixture.store.current_revision().await,
        Ok(first),
        "no write since was acknowledged"
    );
    match fixture.store.get("/first").await {
        Ok(Some(stored)) => assert_eq!(stored.mod_revision, first, "what is in memory is served"),
        other => assert!(
            matches!(other, Err(StorageError::Unavailable(_))),
            "{other:?}"
        ),
    }
    assert!(fixture.store.check_health().await.is_err());
    fixture.disk.lock().gone = false;
    let second = fixture.insist("/second").await;
    assert_eq!(
        received_events(&mut late, 2).await,
        [("/first".to_owned(), first), ("/second".to_owned(), second)]
    );
}

/// Writes whose clients have gone keep their places until they are done.
#[tokio::test]
async fn cancelled_writes_keep_their_places_in_the_queue() {
    let fixture = Fixture::new();
    // The writer stands still while the disk is held.
    let (disk, (go_on, wait), (begin, begun)) =
        (fixture.disk.clone(), mpsc::channel::<()>(), mpsc::channel());
    let holder = std::thread::spawn(move || {
        let _held = disk.lock();
        begin.send(()).unwrap();
        wait.recv().unwrap();
    });
    begun.recv().unwrap();
    let keys: Vec<String> = (0..QUEUED_WRITES).map(|i| format!("/{i}")).collect();
    let mut waiting = Vec::new();
    for key in &keys {
        let mut write = fixture.store.create(key, Bytes::new(), None);
        assert!(futures::poll!(&mut write).is_pending());
        waiting.push(write);
        // A task that never waits is made to wait by tokio.
        tokio::task::yield_now().await;
    }
    drop(waiting);
    assert_eq!(
        fixture.store.queue.available_permits(),
        0,
        "what is queued has not been done"
    );
    go_on.send(()).unwrap();
    holder.join().unwrap();
    fixture.insist("/last").await;
    assert_eq!(
        fixture
            .store
            .list(ListRequest::default())
            .await
            .unwrap()
            .items
            .len(),
        QUEUED_WRITES + 1
    );
}
