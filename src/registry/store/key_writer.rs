//! Conditional writes of one key, and the state that they begin with.

use bytes::Bytes;
use opentelemetry::KeyValue;

use crate::meta::Object;
use crate::meta::status::Result;
use crate::storage::encryption::is_encrypted;
use crate::storage::{self, Revision, Stored, WriteOutcome};
use crate::telemetry::trace;

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

/// The writer of one key in storage.
pub(super) struct KeyWriter<'a> {
    store: &'a Store,
    key: &'a str,
}

impl Store {
    /// Returns the attributes of the span of an access to a key (apiserver
    /// `storage/etcd3/store.go`).
    pub(super) fn span_attributes(&self, key: &str) -> Vec<KeyValue> {
        let (gvr, gvk) = (&self.resource.gvr, &self.resource.gvk);
        vec![
            KeyValue::new("key", trace::truncated(key)),
            KeyValue::new("type", gvk.kind.clone()),
            KeyValue::new("group", gvr.group.clone()),
            KeyValue::new("resource", gvr.resource.clone()),
        ]
    }

    pub(super) fn key_writer<'a>(&'a self, key: &'a str) -> KeyWriter<'a> {
        KeyWriter { store: self, key }
    }
}

impl KeyWriter<'_> {
    /// Creates an object, or replaces the one at the revision `expected`. `value` is its encoding.
    /// If storage finds that too large, tries again without the managed fields, unless the write
    /// keeps them. Returns the bytes that were written.
    ///
    /// # Errors
    /// Those of storage, and 500 for an object that cannot be encoded.
    pub async fn put_object(
        &self,
        object: &mut Object,
        value: Bytes,
        options: PutOptions,
    ) -> std::result::Result<(WriteOutcome, Bytes), Failure> {
        let first = self.put(value.clone(), options.expected).await;
        let too_large =
            matches!(&first, Err(failure) if failure.status.message == storage::TOO_LARGE);
        if !too_large
            || options.keeps_managers
            || object
                .metadata_mut()
                .shift_remove("managedFields")
                .is_none()
        {
            return first.map(|outcome| (outcome, value));
        }
        let value = self.store.encode(object).await?;
        self.put(value.clone(), options.expected)
            .await
            .map(|outcome| (outcome, value))
    }

    /// Replaces the value of a key that is at the revision `expected`; creates the key if there is
    /// none.
    ///
    /// # Errors
    /// Those of storage.
    pub async fn put(
        &self,
        value: Bytes,
        expected: Option<Revision>,
    ) -> std::result::Result<WriteOutcome, Failure> {
        let (storage, ttl) = (&self.store.storage, self.store.resource.ttl);
        match expected {
            Some(expected) => {
                let outcome = storage.update(self.key, value, expected, ttl).await;
                trace::step("Txn call completed");
                self.written(outcome, "update")
            }
            None => {
                let attributes = || self.store.span_attributes(self.key);
                let work = storage.create(self.key, value, ttl);
                let outcome = trace::in_span("Create etcd3", trace::SLOW, attributes, async {
                    let outcome = work.await;
                    trace::step(match outcome.is_ok() {
                        true => "Txn call succeeded",
                        false => "Txn call failed",
                    });
                    outcome
                });
                self.written(outcome.await, "create")
            }
        }
    }

    /// Deletes the key if it is at the revision `expected`.
    ///
    /// # Errors
    /// Those of storage.
    pub async fn delete(&self, expected: Revision) -> Result<WriteOutcome> {
        let outcome = self.store.storage.delete(self.key, expected).await;
        Ok(self.written(outcome, "delete")?)
    }

    /// Maps the outcome of a transaction, and makes cached reads wait for what was written.
    fn written(
        &self,
        outcome: storage::Result<WriteOutcome>,
        verb: &str,
    ) -> std::result::Result<WriteOutcome, Failure> {
        let outcome = outcome.map_err(|error| {
            Failure::of_transaction(&error, self.store.fault(error.clone(), verb))
        })?;
        if let (WriteOutcome::Committed(revision), Some(cacher)) = (&outcome, &self.store.cacher) {
            cacher.record_write(*revision);
        }
        Ok(outcome)
    }

    /// Returns the state that a write begins with, from the cache if it has the key.
    ///
    /// # Errors
    /// Those of storage.
    pub async fn current_state(&self, verb: &str) -> Result<CurrentState> {
        let cacher = self.store.cacher.as_ref();
        if let Some(snapshot) = cacher.and_then(|cacher| cacher.snapshot())
            && let Some(stored) = snapshot.get(self.key)
            && !is_encrypted(&stored.value)
        {
            return Ok(CurrentState {
                stored: Some(Stored::clone(stored)),
                fresh: false,
            });
        }
        self.read_current(verb).await
    }

    /// Reads the state of the key from storage.
    ///
    /// # Errors
    /// Those of storage.
    pub async fn read_current(&self, verb: &str) -> Result<CurrentState> {
        let stored = self
            .store
            .storage
            .get(self.key)
            .await
            .map_err(|error| self.store.fault(error, verb))?;
        Ok(CurrentState {
            stored,
            fresh: true,
        })
    }
}
