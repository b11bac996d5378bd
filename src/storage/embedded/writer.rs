//! The writer thread. It takes the queued writes, checks their conditions in order, commits them
//! with one fsync, notifies the watchers and only then answers. It also removes expired keys and
//! compacted versions.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use redb::{Database, ReadableDatabase, ReadableTable, Table, WriteTransaction};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::hold::Held;
use super::rewrite::{self, Replacement};
use super::tables::{
    self, BYTES, CHANGES, CLEANED, COMPACTED, EXPIRY, INDEX, META, REVISION, Snapshot, broken,
    row_bytes,
};
use super::{Open, Shared};
use crate::base::backoff::Backoff;
use crate::base::clock::Clock;
use crate::base::supervise::{FailureTracker, catch_panic_sync};
use crate::storage::{Result, Revision, StorageError, WatchEvent, WriteOutcome, compaction};

/// Commands in one commit, at most.
const BATCH_COMMANDS: usize = 512;
/// Bytes of values in one commit, about.
const BATCH_BYTES: usize = 8 << 20;
/// Keys expired in one commit, at most.
const EXPIRE_KEYS: usize = 512;
/// Rows looked at for removal in one commit after a compaction, at most: other writers wait for it.
const CLEAN_ROWS: Revision = 512;
/// The longest sleep while keys are going to expire: how late a clock that was set forward is
/// noticed.
const CLOCK_CHECK: Duration = Duration::from_secs(10);
/// Time for which writes are refused after a failure before one is tried again; doubles with each
/// failure that follows.
const FAILURE_PAUSE: Duration = Duration::from_millis(250);
/// The longest such pause.
const FAILURE_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Changes read at once that a failure kept from the watchers, and bytes of their values, about.
const RECOVERY_ROWS: Revision = 1024;
const RECOVERY_BYTES: usize = 4 << 20;

/// A conditional write: done if the key's mod revision is `expected` (0: there is no such key).
#[derive(Debug)]
pub struct Write {
    pub key: String,
    /// `None` deletes.
    pub value: Option<Bytes>,
    pub expected: Revision,
    pub ttl: Option<Duration>,
}

/// A request to the writer.
#[derive(Debug)]
pub enum Op {
    Write(Write),
    /// Forget the history before this revision.
    Compact(Revision),
    /// Only what every transaction does: delete what is due by the clock. Also shows that
    /// writing works.
    Tick,
}

/// An order and where the answer goes.
#[derive(Debug)]
pub struct Command {
    pub op: Op,
    pub reply: oneshot::Sender<Result<WriteOutcome>>,
    /// Its place in the queue.
    pub place: OwnedSemaphorePermit,
}

/// Work for which the writer stops to write.
pub enum Exclusive {
    /// A pause, which has begun when it is answered.
    Hold(Held),
    /// Another file, with the same content, takes the place of the store's in this directory.
    Replace(Replacement, PathBuf),
}

/// A message to the writer.
pub enum Order {
    Transact(Command),
    Stop(Exclusive, oneshot::Sender<Result<()>>),
}

/// The orders that are done at a time: the commands in one transaction, then the other.
#[derive(Default)]
struct Batch {
    commands: Vec<Command>,
    exclusive: Option<(Exclusive, oneshot::Sender<Result<()>>)>,
}

impl Command {
    fn answer(self, outcome: Result<WriteOutcome>) {
        let Self { reply, place, .. } = self;
        drop(place);
        // Nobody may be there any more to hear it.
        let _ = reply.send(outcome);
    }
}

/// The numbers that a commit moves.
#[derive(Clone, Copy, Debug)]
struct Position {
    revision: Revision,
    compacted: Revision,
    cleaned: Revision,
    /// The bytes in use.
    bytes: i64,
    /// The earliest deadline, in microseconds since 1970.
    deadline: Option<i64>,
}

impl Position {
    /// Reads the present state of `db`.
    fn of(db: &Database) -> Result<Self> {
        let read = db.begin_read().map_err(broken)?;
        let meta = read.open_table(META).map_err(broken)?;
        let number = |name| Ok(meta.get(name).map_err(broken)?.map_or(0, |n| n.value()));
        let deadline = earliest(&read.open_table(EXPIRY).map_err(broken)?)?;
        Ok(Self {
            revision: number(REVISION)?,
            compacted: number(COMPACTED)?,
            cleaned: number(CLEANED)?,
            bytes: number(BYTES)?,
            deadline,
        })
    }
}

/// A failure that keeps everything from being written for now.
struct Fault {
    error: StorageError,
    /// The time of the next attempt.
    again: Instant,
}

pub struct Writer {
    /// `None` where it could not be opened again after a failure.
    db: Option<Database>,
    open: Open,
    inbox: Receiver<Order>,
    shared: Arc<Shared>,
    clock: Clock,
    at: Position,
    fault: Option<Fault>,
    backoff: Backoff,
    writing: FailureTracker,
}

impl Writer {
    /// A writer that continues from the last commit of `db`, and reopens it with `open` after a
    /// failure.
    ///
    /// # Errors
    /// A failure to read the file.
    pub fn new(
        db: Database,
        open: Open,
        inbox: Receiver<Order>,
        shared: Arc<Shared>,
        clock: Clock,
    ) -> Result<Self> {
        let (at, backoff) = (
            Position::of(&db)?,
            Backoff::new(FAILURE_PAUSE, FAILURE_PAUSE_MAX),
        );
        Ok(Self {
            db: Some(db),
            open,
            inbox,
            shared,
            clock,
            at,
            fault: None,
            backoff,
            writing: FailureTracker::new("writing to the embedded store"),
        })
    }

    /// Works until all senders are dropped.
    pub fn run(mut self) {
        while let Some(batch) = self.wait() {
            self.transact(batch.commands);
            if let Some((exclusive, reply)) = batch.exclusive {
                self.stop_for(exclusive, reply);
            }
        }
        self.shared.close();
    }

    /// Runs commands in one transaction, and answers them.
    fn transact(&mut self, commands: Vec<Command>) {
        if let Some(fault) = self
            .fault
            .as_ref()
            .filter(|fault| Instant::now() < fault.again)
        {
            let error = fault.error.clone();
            commands
                .into_iter()
                .for_each(|command| command.answer(Err(error.clone())));
            return;
        }
        match self.attempt(&commands) {
            Ok(outcomes) => {
                self.fault = None;
                self.backoff.reset();
                self.writing.record_success();
                commands
                    .into_iter()
                    .zip(outcomes)
                    .for_each(|(command, outcome)| command.answer(outcome));
            }
            Err(error) => {
                self.writing.record_failure(&error.to_string());
                self.reopen();
                self.fault = Some(Fault {
                    error: error.clone(),
                    again: Instant::now() + self.backoff.next_delay(),
                });
                commands
                    .into_iter()
                    .for_each(|command| command.answer(Err(error.clone())));
            }
        }
    }

    /// Runs what cannot run while transactions do.
    fn stop_for(&mut self, exclusive: Exclusive, reply: oneshot::Sender<Result<()>>) {
        if let Some(fault) = &self.fault {
            let _ = reply.send(Err(fault.error.clone()));
            return;
        }
        match exclusive {
            Exclusive::Hold(held) => {
                let prepared = self.save_allocations();
                let ready = prepared.is_ok();
                // A copy is not to begin unless it is waited for.
                if reply.send(prepared).is_ok() && ready {
                    held.wait();
                }
            }
            Exclusive::Replace(replacement, directory) => {
                let replaced =
                    catch_panic_sync("storage-writer", || self.replace(replacement, &directory));
                let _ = reply.send(replaced.map_err(StorageError::Internal).flatten());
            }
        }
    }

    /// Commits with what lets a copy of the file be opened at once, rather than after reading all
    /// of it.
    fn save_allocations(&mut self) -> Result<()> {
        let db = self.db.as_ref().ok_or_else(super::closed)?;
        let mut txn = db.begin_write().map_err(broken)?;
        txn.set_quick_repair(true);
        txn.open_table(META)
            .map_err(broken)?
            .insert(REVISION, self.at.revision)
            .map_err(broken)?;
        txn.commit().map_err(broken)
    }

    fn replace(&mut self, replacement: Replacement, directory: &Path) -> Result<()> {
        let now = self.shared.snapshot()?;
        let db = rewrite::complete(replacement, &now, directory)?;
        let (at, snapshot) = (Position::of(&db), Snapshot::take(&db));
        self.db = Some(db);
        self.at = at?;
        self.shared.renew(snapshot?);
        Ok(())
    }

    /// A transaction on the open file. A panic is a failure like others.
    fn attempt(&mut self, commands: &[Command]) -> Result<Vec<Result<WriteOutcome>>> {
        if self.db.is_none() {
            self.recover()?;
        }
        catch_panic_sync("storage-writer", || self.commit(commands))
            .unwrap_or_else(|panic| Err(StorageError::Internal(panic)))
    }

    /// Opens the file again: after an I/O error redb does nothing more with one that was open then.
    /// Whatever is in the file then has been committed, also where the failure left that open;
    /// watchers are told of it, and readers see it.
    fn reopen(&mut self) {
        self.db = None;
        if let Err(error) = self.recover() {
            self.writing.record_failure(&error.to_string());
        }
    }

    fn recover(&mut self) -> Result<()> {
        let opened = catch_panic_sync("storage-writer", || (self.open)());
        let db = opened.map_err(StorageError::Internal)?.map_err(broken)?;
        let (at, snapshot) = (Position::of(&db)?, Snapshot::take(&db)?);
        let (mut missed, mut next) = (Vec::new(), self.shared.hub.head() + 1);
        if snapshot.revision + 1 < next {
            let lost = StorageError::Internal(
                "the file has lost changes that were acknowledged".to_owned(),
            );
            *self.shared.data_loss.lock() = Some(lost.clone());
            return Err(lost);
        }
        *self.shared.data_loss.lock() = None;
        while next <= snapshot.revision {
            let (events, after) = snapshot.replay("", next, RECOVERY_ROWS, RECOVERY_BYTES)?;
            missed.extend(events.into_iter().map(Arc::new));
            next = after;
        }
        (self.at, self.db) = (at, Some(db));
        self.shared.renew(snapshot);
        self.shared.hub.publish(missed);
        Ok(())
    }

    /// The next orders; there may be none when something is due. `None` when all senders are gone.
    fn wait(&self) -> Option<Batch> {
        let first = match self.pause() {
            None => self
                .inbox
                .recv()
                .map_err(|_| RecvTimeoutError::Disconnected),
            Some(pause) => self.inbox.recv_timeout(pause),
        };
        let mut next = match first {
            Ok(order) => Some(order),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return None,
        };
        let (mut batch, mut bytes) = (Batch::default(), 0);
        while let Some(order) = next {
            let command = match order {
                Order::Transact(command) => command,
                Order::Stop(exclusive, reply) => {
                    batch.exclusive = Some((exclusive, reply));
                    break;
                }
            };
            if let Op::Write(Write {
                value: Some(value), ..
            }) = &command.op
            {
                bytes += value.len();
            }
            batch.commands.push(command);
            if batch.commands.len() >= BATCH_COMMANDS || bytes >= BATCH_BYTES {
                break;
            }
            next = self.inbox.try_recv().ok();
        }
        Some(batch)
    }

    /// Time until there is something to do without a request; `None` if there never is.
    fn pause(&self) -> Option<Duration> {
        let refused = self.fault.as_ref().map_or(Duration::ZERO, |fault| {
            fault.again.saturating_duration_since(Instant::now())
        });
        let cleans = self.at.cleaned < self.at.compacted && !self.shared.is_rewritten();
        if cleans || self.db.is_none() {
            return Some(refused);
        }
        let left = self.at.deadline? - self.clock.now().as_microsecond();
        Some(
            Duration::from_micros(left.max(0) as u64)
                .min(CLOCK_CHECK)
                .max(refused),
        )
    }

    /// One transaction: an outcome for each command, or the failure of all of them.
    fn commit(&mut self, commands: &[Command]) -> Result<Vec<Result<WriteOutcome>>> {
        let db = self
            .db
            .as_ref()
            .ok_or_else(|| StorageError::Unavailable("the embedded store is not open".into()))?;
        let now = self.clock.now().as_microsecond();
        let txn = db.begin_write().map_err(broken)?;
        let mut transaction = Transaction::open(&txn, self.at, now)?;
        transaction.quota = self.shared.quota.load(Ordering::Relaxed);
        // Only a write shows that writing works again.
        transaction.changed = self.fault.is_some();
        transaction.expire()?;
        // A copy that is being made has the rows of its snapshot and those that follow, no fewer.
        if !self.shared.is_rewritten() {
            transaction.clean()?;
        }
        let outcomes = commands
            .iter()
            .map(|command| transaction.apply(&command.op))
            .collect::<Result<_>>()?;
        let alarm = transaction.alarm;
        let Some((at, events)) = transaction.finish()? else {
            txn.abort().map_err(broken)?;
            self.shared.usage.note(self.at.bytes, alarm);
            return Ok(outcomes);
        };
        txn.commit().map_err(broken)?;
        // The snapshot first: what has left the ring must be found in the table. Without it readers
        // would stay in the past, so the file is opened again.
        self.shared.renew(Snapshot::take(db)?);
        self.at = at;
        self.shared.usage.note(at.bytes, alarm);
        self.shared.hub.publish(events);
        Ok(outcomes)
    }
}

/// An open transaction with all its tables, and what it has done so far.
struct Transaction<'t> {
    index: Table<'t, (&'static str, Revision), Revision>,
    changes: Table<'t, Revision, tables::Change>,
    expiry: Table<'t, (i64, Revision), ()>,
    meta: Table<'t, &'static str, i64>,
    now: i64,
    at: Position,
    events: Vec<Arc<WatchEvent>>,
    changed: bool,
    /// The bytes that may be in use; 0 for any number.
    quota: i64,
    /// True if writes were refused for the quota; `None` if none were judged by it.
    alarm: Option<bool>,
}

impl<'t> Transaction<'t> {
    fn open(txn: &'t WriteTransaction, at: Position, now: i64) -> Result<Self> {
        Ok(Self {
            index: txn.open_table(INDEX).map_err(broken)?,
            changes: txn.open_table(CHANGES).map_err(broken)?,
            expiry: txn.open_table(EXPIRY).map_err(broken)?,
            meta: txn.open_table(META).map_err(broken)?,
            now,
            at,
            events: Vec::new(),
            changed: false,
            quota: 0,
            alarm: None,
        })
    }

    /// The outcome of one order. An error outside is the store's, one inside the order's.
    fn apply(&mut self, op: &Op) -> Result<Result<WriteOutcome>> {
        match op {
            Op::Write(write) => match self.check_quota(write) {
                Ok(()) => self.write(write).map(Ok),
                refused => Ok(refused.map(|()| WriteOutcome::Committed(self.at.revision))),
            },
            Op::Compact(revision) => Ok(self.compact(*revision)),
            Op::Tick => Ok(Ok(WriteOutcome::Committed(self.at.revision))),
        }
    }

    /// Refuses to add to a store that is full by its quota. Deletions go on, and the compactor's
    /// key, without which nothing would ever be freed.
    fn check_quota(&mut self, write: &Write) -> Result<()> {
        let Some(value) = &write.value else {
            return Ok(());
        };
        if self.quota == 0 || write.key == compaction::KEY {
            return Ok(());
        }
        let full = self.at.bytes + row_bytes(&write.key, value) > self.quota;
        self.alarm = Some(self.alarm.unwrap_or(false) | full);
        if full {
            return Err(StorageError::NoSpace(format!(
                "{} bytes are in use, the quota is {}",
                self.at.bytes, self.quota
            )));
        }
        Ok(())
    }

    fn write(
        &mut self,
        Write {
            key,
            value,
            expected,
            ttl,
        }: &Write,
    ) -> Result<WriteOutcome> {
        let standing = tables::version(&self.index, key, self.at.revision)?;
        let previous = standing
            .map(|v| tables::stored(&self.changes, v.revision))
            .transpose()?;
        if standing.map_or(0, |v| v.revision) != *expected
            || (value.is_none() && previous.is_none())
        {
            return Ok(WriteOutcome::Conflict(previous));
        }
        let revision = self.at.revision + 1;
        let created = match value {
            None => 0,
            Some(_) => standing.map_or(revision, |v| v.created),
        };
        let value = value.clone().unwrap_or_default();
        self.index
            .insert((key.as_str(), revision), created)
            .map_err(broken)?;
        self.changes
            .insert(revision, (key.as_str(), created, *expected, &value[..]))
            .map_err(broken)?;
        self.at.bytes += row_bytes(key, &value);
        if let Some(ttl) = ttl {
            let deadline = self
                .now
                .saturating_add(i64::try_from(ttl.as_micros()).unwrap_or(i64::MAX));
            self.expiry
                .insert((deadline, revision), ())
                .map_err(broken)?;
        }
        self.events.push(Arc::new(tables::event(
            revision, key, created, value, previous,
        )));
        self.at.revision = revision;
        self.changed = true;
        Ok(WriteOutcome::Committed(revision))
    }

    /// Raises the oldest readable revision; [`Transaction::clean`] does the work later.
    fn compact(&mut self, revision: Revision) -> Result<WriteOutcome> {
        if revision > self.at.revision {
            return Err(StorageError::FutureRevision {
                asked: revision,
                current: self.at.revision,
            });
        }
        if revision <= self.at.compacted {
            return Err(StorageError::Compacted {
                oldest: Some(self.at.compacted),
            });
        }
        self.at.compacted = revision;
        self.changed = true;
        Ok(WriteOutcome::Committed(self.at.revision))
    }

    /// Deletes the keys whose time has come, unless they were written since.
    fn expire(&mut self) -> Result<()> {
        let mut due = Vec::new();
        for row in self
            .expiry
            .range(..=(self.now, Revision::MAX))
            .map_err(broken)?
            .take(EXPIRE_KEYS)
        {
            due.push(row.map_err(broken)?.0.value());
        }
        for row in due {
            self.expiry.remove(row).map_err(broken)?;
            self.changed = true;
            let key = self
                .changes
                .get(row.1)
                .map_err(broken)?
                .map(|change| change.value().0.to_owned());
            // A row that compaction removed was superseded, and so is one that is no longer the
            // latest.
            if let Some(key) = key {
                self.write(&Write {
                    key,
                    value: None,
                    expected: row.1,
                    ttl: None,
                })?;
            }
        }
        Ok(())
    }

    /// Removes some of the versions that can no longer be read: those superseded, and deletions, up
    /// to the compacted revision.
    fn clean(&mut self) -> Result<()> {
        if self.at.cleaned >= self.at.compacted {
            return Ok(());
        }
        let until = self.at.compacted.min(self.at.cleaned + CLEAN_ROWS);
        let mut gone = Vec::new();
        for row in self
            .changes
            .range(self.at.cleaned + 1..=until)
            .map_err(broken)?
        {
            let (revision, row) = row.map_err(broken)?;
            let (key, created, previous, _) = row.value();
            if previous != 0 {
                gone.push((key.to_owned(), previous));
            }
            if created == 0 {
                gone.push((key.to_owned(), revision.value()));
            }
        }
        for (key, revision) in gone {
            self.index
                .remove((key.as_str(), revision))
                .map_err(broken)?;
            if let Some(row) = self.changes.remove(revision).map_err(broken)? {
                self.at.bytes -= row_bytes(&key, row.value().3);
            }
        }
        self.at.cleaned = until;
        self.changed = true;
        Ok(())
    }

    /// Records the position of the store; `None` if nothing changed. The tables are closed then.
    fn finish(mut self) -> Result<Option<(Position, Vec<Arc<WatchEvent>>)>> {
        if !self.changed {
            return Ok(None);
        }
        self.at.deadline = earliest(&self.expiry)?;
        for (name, number) in [
            (REVISION, self.at.revision),
            (COMPACTED, self.at.compacted),
            (CLEANED, self.at.cleaned),
            (BYTES, self.at.bytes),
        ] {
            self.meta.insert(name, number).map_err(broken)?;
        }
        Ok(Some((self.at, self.events)))
    }
}

/// The first deadline, in microseconds since 1970.
fn earliest(expiry: &impl ReadableTable<(i64, Revision), ()>) -> Result<Option<i64>> {
    Ok(expiry
        .first()
        .map_err(broken)?
        .map(|(row, _)| row.value().0))
}
