//! One watch as a stream: events from the hub, and from the table where they have left the hub's
//! memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::Notify;

use super::Shared;
use super::hub::WatchStep;
use crate::storage::{Result, Revision, StorageError, WatchEvent, WatchStream};

/// Rows of the table read in one go.
const REPLAY_ROWS: Revision = 256;
/// The pause before the table is read again while the file is opened anew after a failure.
const REOPEN_PAUSE: Duration = Duration::from_millis(50);
/// Bytes of values read from the table in one go, about.
const REPLAY_BYTES: usize = 1 << 20;

/// A watch of the keys under `prefix`, from the change after `after` on.
pub fn open(shared: Arc<Shared>, prefix: &str, after: Revision) -> WatchStream {
    let (id, wake) = shared.hub.register(prefix, after.max(0));
    let cursor = Cursor {
        shared,
        id,
        wake,
        prefix: prefix.to_owned(),
        ready: VecDeque::new(),
        done: false,
    };
    futures::stream::unfold(cursor, |mut cursor| async move {
        cursor.next().await.map(|item| (item, cursor))
    })
    .boxed()
}

struct Cursor {
    shared: Arc<Shared>,
    id: u64,
    wake: Arc<Notify>,
    prefix: String,
    ready: VecDeque<WatchEvent>,
    done: bool,
}

impl Cursor {
    async fn next(&mut self) -> Option<Result<WatchEvent>> {
        while !self.done {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            if let Err(error) = self.advance().await {
                self.done = true;
                return Some(Err(error));
            }
        }
        None
    }

    /// Fetches more events, or waits until there are some.
    async fn advance(&mut self) -> Result<()> {
        let snapshot = self.shared.snapshot()?;
        match self.shared.hub.next_step(self.id, snapshot.compacted)? {
            WatchStep::Events(events) => self
                .ready
                .extend(events.into_iter().map(Arc::unwrap_or_clone)),
            WatchStep::Progress(revision) => self.ready.push_back(WatchEvent::Progress(revision)),
            WatchStep::Replay(from) => {
                let (events, next) =
                    match snapshot.replay(&self.prefix, from, REPLAY_ROWS, REPLAY_BYTES) {
                        Ok(read) => read,
                        // What is to be told is still there when the file is open again.
                        Err(StorageError::Unavailable(_)) => {
                            drop(snapshot);
                            tokio::time::sleep(REOPEN_PAUSE).await;
                            return Ok(());
                        }
                        Err(error) => return Err(error),
                    };
                self.shared.hub.replayed(self.id, next);
                self.ready.extend(events);
                drop(snapshot);
                // A long history must not keep other tasks from running.
                tokio::task::yield_now().await;
            }
            WatchStep::Wait => {
                drop(snapshot);
                self.wake.notified().await;
            }
        }
        Ok(())
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.shared.hub.unregister(self.id);
    }
}
