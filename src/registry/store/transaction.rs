//! Conditional writes to storage, and the state that they begin with.

use bytes::Bytes;

use crate::meta::Object;
use crate::meta::status::Result;
use crate::storage::{self, Revision, Stored, WriteOutcome};

use super::Store;
use super::reservation::Failure;

/// The state that a write begins with. That of the cache is nearly always right, and if it is not
/// the transaction fails; a write that ends without a transaction must check it against storage.
pub(super) struct CurrentState {
    pub stored: Option<Stored>,
    /// True if the state was read from storage.
    pub fresh: bool,
}

/// Options of a write to storage.
#[derive(Clone, Copy, Default)]
pub(super) struct PutOptions {
    /// The revision that the object must be at; `None` for a new one.
    pub expected: Option<Revision>,
    /// See [`Updater::keeps_managers`](super::Updater::keeps_managers).
    pub keeps_managers: bool,
}

impl Store {
    /// Creates a key.
    async fn put_new(&self, key: &str, value: Bytes) -> std::result::Result<WriteOutcome, Failure> {
        self.written(
            self.storage.create(key, value, self.resource.ttl).await,
            "create",
        )
    }

    /// Replaces the value of a key that is at the revision `expected`.
    pub(super) async fn put(
        &self,
        key: &str,
        value: Bytes,
        expected: Revision,
    ) -> std::result::Result<WriteOutcome, Failure> {
        self.written(
            self.storage
                .update(key, value, expected, self.resource.ttl)
                .await,
            "update",
        )
    }

    /// Creates an object, or replaces the one at the revision `expected`. `value` is its encoding.
    /// If storage finds that too large, tries again without the managed fields, unless the write
    /// keeps them. Returns the bytes that were written.
    pub(super) async fn put_object(
        &self,
        key: &str,
        object: &mut Object,
        value: Bytes,
        write: PutOptions,
    ) -> std::result::Result<(WriteOutcome, Bytes), Failure> {
        let first = self.put_at(key, value.clone(), write.expected).await;
        let too_large =
            matches!(&first, Err(failure) if failure.status.message == storage::TOO_LARGE);
        if !too_large
            || write.keeps_managers
            || object
                .metadata_mut()
                .shift_remove("managedFields")
                .is_none()
        {
            return first.map(|outcome| (outcome, value));
        }
        let value = self.codec.encode(object)?;
        self.put_at(key, value.clone(), write.expected)
            .await
            .map(|outcome| (outcome, value))
    }

    async fn put_at(
        &self,
        key: &str,
        value: Bytes,
        expected: Option<Revision>,
    ) -> std::result::Result<WriteOutcome, Failure> {
        match expected {
            Some(expected) => self.put(key, value, expected).await,
            None => self.put_new(key, value).await,
        }
    }

    /// Deletes a key that is still at the revision that it was read at.
    pub(super) async fn erase(&self, stored: &Stored) -> Result<WriteOutcome> {
        Ok(self.written(
            self.storage.delete(&stored.key, stored.mod_revision).await,
            "delete",
        )?)
    }

    /// Maps the outcome of a transaction, and makes cached reads wait for what was written.
    fn written(
        &self,
        outcome: storage::Result<WriteOutcome>,
        verb: &str,
    ) -> std::result::Result<WriteOutcome, Failure> {
        let outcome = outcome
            .map_err(|error| Failure::of_transaction(&error, self.fault(error.clone(), verb)))?;
        if let (WriteOutcome::Committed(revision), Some(cacher)) = (&outcome, &self.cacher) {
            cacher.record_write(*revision);
        }
        Ok(outcome)
    }

    /// Returns the state that a write begins with, from the cache if it has the key.
    pub(super) async fn current_state(&self, key: &str, verb: &str) -> Result<CurrentState> {
        if let Some(snapshot) = self.cacher.as_ref().and_then(|cacher| cacher.snapshot())
            && let Some(stored) = snapshot.get(key)
        {
            return Ok(CurrentState {
                stored: Some(Stored::clone(stored)),
                fresh: false,
            });
        }
        self.read_current(key, verb).await
    }

    /// Reads the state of a key from storage.
    pub(super) async fn read_current(&self, key: &str, verb: &str) -> Result<CurrentState> {
        let stored = self
            .storage
            .get(key)
            .await
            .map_err(|error| self.fault(error, verb))?;
        Ok(CurrentState {
            stored,
            fresh: true,
        })
    }
}
