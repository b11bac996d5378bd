//! Operations that take all keys elsewhere, and that no server needs: reading keys with their
//! expiry, and raising the revision.

use std::collections::HashMap;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};

use super::error::interpret;
use super::{Etcd3, range_end, range_start, stored};
use crate::base::clock::Clock;
use crate::storage::snapshot::Entry;
use crate::storage::{Result, Revision, Storage, next_key};

/// Keys that are read at a time.
const PAGE: i64 = 2000;
/// The key that is written to raise the revision; nothing else uses it.
const RAISING_KEY: &str = "keelson-migrate";
/// Writes of it that are sent at a time.
const CONCURRENT_WRITES: usize = 128;

/// The times at which leases end, in microseconds since 1970, as far as they were asked for.
pub type Leases = HashMap<i64, i64>;

/// Keys in their order.
pub struct ExportPage {
    pub entries: Vec<Entry>,
    /// True if there are keys behind them.
    pub more: bool,
    /// The number of these keys and those behind them.
    pub count: u64,
}

impl Etcd3 {
    /// Reads keys under `prefix` behind the key `after`, as they were at a revision.
    ///
    /// # Errors
    /// The revision is compacted away, a key is no text, or etcd fails.
    pub async fn export_page(
        &self,
        prefix: &str,
        after: Option<&str>,
        revision: Revision,
        leases: &mut Leases,
    ) -> Result<ExportPage> {
        let start = after.map_or_else(|| range_start(prefix), |key| next_key(key).into_bytes());
        let end = range_end(prefix);
        let mut answer = self.chunk(&start, &end, PAGE, revision).await?;
        let mut entries = Vec::new();
        for kv in answer.take_kvs() {
            let expires = self.expiry(kv.lease(), leases).await?;
            let stored = stored(kv)?;
            entries.push(Entry { stored, expires });
        }
        Ok(ExportPage {
            more: answer.more() && !entries.is_empty(),
            count: answer.count().unsigned_abs(),
            entries,
        })
    }

    async fn expiry(&self, lease: i64, leases: &mut Leases) -> Result<Option<i64>> {
        if lease == 0 {
            return Ok(None);
        }
        if let Some(known) = leases.get(&lease) {
            return Ok(Some(*known));
        }
        let mut client = self.clients.load().all.lease_client();
        let answer =
            tokio::time::timeout(self.request_timeout, client.time_to_live(lease, None)).await;
        let answer = answer.map_err(|_| super::timed_out())?;
        let ttl = answer.map_err(|error| interpret(&error, 0))?.ttl();
        // A lease that is gone takes its keys along.
        let left = Duration::from_secs(ttl.max(1).unsigned_abs());
        let ends = Clock::system().now().as_microsecond() + left.as_micros() as i64;
        leases.insert(lease, ends);
        Ok(Some(ends))
    }

    /// Raises the revision to `goal` by writing a key again and again; `each` is told of each.
    ///
    /// # Errors
    /// etcd's.
    pub async fn raise_revision(&self, goal: Revision, mut each: impl FnMut()) -> Result<()> {
        let present = self.current_revision().await?;
        // The deletion of the key is a change, too.
        let writes = stream::iter(present..goal - 1).map(|_| async {
            let put = self.kv().put(RAISING_KEY, "", None).await;
            put.map_err(|error| interpret(&error, 0))
        });
        let mut writes = writes.buffer_unordered(CONCURRENT_WRITES);
        while writes.try_next().await?.is_some() {
            each();
        }
        let deleted = self.kv().delete(RAISING_KEY, None).await;
        deleted.map(drop).map_err(|error| interpret(&error, 0))
    }
}
