//! Gets, and the choice of the state that a get, list or watch reads.

use std::sync::Arc;

use opentelemetry::KeyValue;

use crate::cacher::{CachedObject, Snapshot};
use crate::meta::Status;
use crate::meta::options::parse_resource_version;
use crate::meta::status::Result;
use crate::storage::Revision;
use crate::storage::encryption::is_encrypted;
use crate::telemetry::trace;

use super::errors::revision_of;
use super::items::SnapshotRange;
use super::{Selection, Store, index, too_large_resource_version};

impl Store {
    /// Returns one object. `resource_version` is the oldest state that will do; empty for the
    /// latest.
    ///
    /// # Errors
    /// 404 where there is none, 504 where that state does not come in time, 500 where storage
    /// fails or the object cannot be converted.
    pub async fn get(
        &self,
        namespace: &str,
        name: &str,
        resource_version: &str,
    ) -> Result<Arc<CachedObject>> {
        let key = self.key(namespace, name)?;
        let attributes = || {
            let version = trace::truncated(resource_version);
            vec![
                KeyValue::new("key", trace::truncated(&key)),
                KeyValue::new("resource-version", version),
            ]
        };
        let work = self.get_key(name, &key, resource_version);
        trace::in_span("cacher.Get", trace::SLOW, attributes, work).await
    }

    async fn get_key(
        &self,
        name: &str,
        key: &str,
        resource_version: &str,
    ) -> Result<Arc<CachedObject>> {
        let version = parse_resource_version(resource_version)
            .map_err(|why| Status::failure(500, "", why))?;
        let stored = match self.snapshot(version).await? {
            // What the cache could not decrypt, storage may be able to, or says why it is not.
            Some(snapshot)
                if !snapshot
                    .get(key)
                    .is_some_and(|stored| is_encrypted(&stored.value)) =>
            {
                snapshot.get(key).cloned()
            }
            _ => {
                trace::step("About to Get from underlying storage");
                let (stored, revision) = self
                    .storage
                    .get_with_revision(key)
                    .await
                    .map_err(|error| self.fault(error, "get"))?;
                check_reached(version, revision)?;
                stored.map(Arc::from)
            }
        };
        let stored = stored.ok_or_else(|| Status::not_found(&self.resource.gvr, name))?;
        self.served_object(stored).await
    }

    /// The cached state that a read of a version may be served from. `None` where only storage can
    /// tell.
    pub(super) async fn snapshot(&self, version: Option<u64>) -> Result<Option<Snapshot>> {
        let Some(cacher) = &self.cacher else {
            return Ok(None);
        };
        match version {
            None => {
                let snapshot = cacher.linearizable_snapshot().await;
                self.metrics.consistent_read(snapshot.is_some());
                Ok(snapshot)
            }
            Some(0) => Ok(cacher.snapshot()),
            Some(asked) => cacher
                .snapshot_not_older_than(revision_of(version))
                .await
                .map_err(|current| too_large_resource_version(asked, current)),
        }
    }

    /// The stretch of a snapshot to look through.
    pub(super) fn snapshot_range(
        &self,
        snapshot: Snapshot,
        prefix: String,
        selection: &Selection,
    ) -> SnapshotRange {
        let keys = index::keys(selection, &*self.resource.strategy);
        SnapshotRange {
            metrics: self.metrics.clone(),
            index_key: snapshot.most_selective(&keys, &prefix),
            snapshot,
            prefix,
        }
    }
}

/// Refuses a read that asks for a state newer than the store has.
pub(super) fn check_reached(version: Option<u64>, revision: Revision) -> Result<()> {
    match version {
        Some(asked) if revision_of(version) > revision => {
            Err(too_large_resource_version(asked, revision))
        }
        _ => Ok(()),
    }
}
