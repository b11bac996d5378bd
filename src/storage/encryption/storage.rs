//! A store that holds encrypted values, in front of the store that keeps them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::base::coop::CoopBudget;
use crate::storage::{
    ListPage, ListRequest, Result, Revision, Storage, StorageError, Stored, WatchEvent,
    WatchStream, WriteOutcome,
};

use super::providers::Transformers;
use super::resources::KeySpace;
use super::transformer::{Context, Decrypted, Transform, not_encrypted};
use super::{ENCRYPTED, TransformError, is_encrypted};

/// Wraps a store. Values that stay unreadable are passed on encrypted, but for [`Storage::get`],
/// which says why: one of them does not keep the others from being read.
pub struct EncryptedStorage {
    inner: Arc<dyn Storage>,
    values: Arc<Values>,
}

/// The transformation of the values of a store.
struct Values {
    keys: KeySpace,
    transformers: Arc<Transformers>,
    /// Keys of values that could not be read, one of each resource.
    unreadable: Mutex<BTreeSet<String>>,
}

impl EncryptedStorage {
    /// Wraps a store with all of Kubernetes below `root`.
    pub fn wrap(
        inner: Arc<dyn Storage>,
        root: &str,
        transformers: Arc<Transformers>,
    ) -> Arc<dyn Storage> {
        let values = Values {
            keys: KeySpace::new(root),
            transformers,
            unreadable: Mutex::default(),
        };
        Arc::new(Self {
            inner,
            values: Arc::new(values),
        })
    }

    /// Maps the outcome of a conditional write. The standing value is what it is, where it cannot
    /// be read.
    async fn written(&self, mut outcome: WriteOutcome) -> WriteOutcome {
        if let WriteOutcome::Conflict(Some(standing)) = &mut outcome {
            match self.values.decrypt(standing, true).await {
                Ok(decrypted) => standing.value = decrypted.value,
                Err(_) => hide(standing),
            }
        }
        outcome
    }

    /// Returns a watch of decrypted values; each event waits for plugins if `may_wait`.
    fn decrypted(&self, events: WatchStream, may_wait: bool) -> WatchStream {
        let values = self.values.clone();
        let events = events.then(move |event| {
            let values = values.clone();
            async move { values.decrypt_event(event?, may_wait).await }
        });
        // Nothing comes behind an error.
        let ending = |ended: &mut bool, event: Result<WatchEvent>| {
            let item = (!*ended).then_some(event);
            *ended |= matches!(item, Some(Err(_)));
            std::future::ready(item)
        };
        events.scan(false, ending).boxed()
    }

    /// Adds events to a watch: when the configuration changes, values that could not be read are
    /// to be looked at again.
    fn with_changes(&self, events: WatchStream) -> WatchStream {
        let replaced = self.values.transformers.replaced();
        let changes = stream::unfold(
            (replaced, self.values.clone()),
            async |(mut replaced, values): (watch::Receiver<u64>, Arc<Values>)| {
                replaced.changed().await.ok()?;
                let keys = std::mem::take(&mut *values.unreadable.lock());
                Some((keys, (replaced, values)))
            },
        );
        let changes = changes.flat_map(|keys| {
            let unread = |key| Ok(WatchEvent::Unread { key, revision: 0 });
            stream::iter(keys.into_iter().map(unread))
        });
        // It must end with the events.
        let events = events.map(Some).chain(stream::iter([None]));
        stream::select(events, changes.map(Some))
            .take_while(|event| std::future::ready(event.is_some()))
            .filter_map(std::future::ready)
            .boxed()
    }
}

impl Values {
    /// Decrypts a stored value. Keys of no resource are not encrypted.
    async fn decrypt(
        &self,
        stored: &Stored,
        may_wait: bool,
    ) -> std::result::Result<Decrypted, TransformError> {
        let (configuration, value) = (self.transformers.current(), stored.value.clone());
        let resource = self.keys.resource(&stored.key);
        let prefixed = resource
            .as_deref()
            .and_then(|resource| Some((resource, configuration.of(resource)?)));
        match prefixed {
            Some((resource, prefixed)) => {
                let cx = Context {
                    key: &stored.key,
                    resource: &resource.to_string(),
                    may_wait,
                };
                prefixed.decrypt(value, cx).await
            }
            None if is_encrypted(&value) => Err(not_encrypted()),
            None => Ok(Decrypted {
                value,
                stale: false,
            }),
        }
    }

    /// Encrypts the value of a key.
    async fn encrypt(&self, key: &str, value: Bytes) -> Result<Bytes> {
        let configuration = self.transformers.current();
        let resource = self.keys.resource(key);
        let prefixed = resource
            .as_deref()
            .and_then(|resource| Some((resource, configuration.of(resource)?)));
        let Some((resource, prefixed)) = prefixed else {
            return Ok(value);
        };
        let cx = Context {
            key,
            resource: &resource.to_string(),
            may_wait: false,
        };
        let mut out = Vec::new();
        let encrypted = prefixed.encrypt(&value, &mut out, cx).await;
        encrypted.map_err(|why| {
            tracing::error!(key, "failed to encrypt data: {why}");
            StorageError::NotEncrypted(why.to_string())
        })?;
        Ok(out.into())
    }

    /// Notes that a value could not be read.
    fn note_unreadable(&self, key: &str, why: &TransformError) {
        let resource = self.keys.resource(key);
        let mut all = self.unreadable.lock();
        let noted = |known: &String| self.keys.resource(known) == resource;
        if !all.iter().any(noted) {
            tracing::error!(key, "failed to decrypt data: {why}");
            all.insert(key.to_owned());
        }
    }

    /// Decrypts a value in place, unless it is unreadable for good.
    async fn decrypt_in_place(
        &self,
        stored: &mut Stored,
        may_wait: bool,
    ) -> std::result::Result<(), TransformError> {
        match self.decrypt(stored, may_wait).await {
            Ok(decrypted) => stored.value = decrypted.value,
            Err(why) if why.is_temporary() => return Err(why),
            Err(why) => {
                self.note_unreadable(&stored.key, &why);
                hide(stored);
            }
        }
        Ok(())
    }

    async fn decrypt_event(&self, mut event: WatchEvent, may_wait: bool) -> Result<WatchEvent> {
        let (current, previous) = match &mut event {
            WatchEvent::Put { current, previous } => (Some(current), previous),
            WatchEvent::Delete { previous, .. } => (None, previous),
            WatchEvent::Progress(_) | WatchEvent::Unread { .. } => return Ok(event),
        };
        if let Some(stored) = previous
            && let Err(why) = self.decrypt_in_place(stored, may_wait).await
        {
            if may_wait {
                return Err(unreadable(&stored.key, &why));
            }
            *previous = None;
        }
        if let Some(stored) = current
            && let Err(why) = self.decrypt_in_place(stored, may_wait).await
        {
            if may_wait {
                return Err(unreadable(&stored.key, &why));
            }
            return Ok(WatchEvent::Unread {
                key: stored.key.clone(),
                revision: stored.mod_revision,
            });
        }
        Ok(event)
    }
}

/// Puts a value that looks encrypted in the place of one that is not and should be: nobody may read
/// it.
fn hide(stored: &mut Stored) {
    if !is_encrypted(&stored.value) {
        stored.value = Bytes::from_static(ENCRYPTED);
    }
}

/// The error for a value that cannot be read, which says whose it is.
fn unreadable(key: &str, why: &TransformError) -> StorageError {
    StorageError::Internal(format!("unable to transform key {key:?}: {why}"))
}

#[async_trait]
impl Storage for EncryptedStorage {
    async fn get(&self, key: &str) -> Result<Option<Stored>> {
        Ok(self.get_with_revision(key).await?.0)
    }

    async fn get_with_revision(&self, key: &str) -> Result<(Option<Stored>, Revision)> {
        let (mut stored, revision) = self.inner.get_with_revision(key).await?;
        if let Some(stored) = &mut stored {
            let decrypted = self.values.decrypt(stored, true).await;
            stored.value = decrypted
                .map_err(|why| StorageError::Internal(why.to_string()))?
                .value;
        }
        Ok((stored, revision))
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        let mut page = self.inner.list(request).await?;
        let mut budget = CoopBudget::default();
        for stored in &mut page.items {
            if let Err(why) = self.values.decrypt_in_place(stored, true).await {
                return Err(unreadable(&stored.key, &why));
            }
            budget.step().await;
        }
        Ok(page)
    }

    async fn create(&self, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<WriteOutcome> {
        let value = self.values.encrypt(key, value).await?;
        let outcome = self.inner.create(key, value, ttl).await?;
        Ok(self.written(outcome).await)
    }

    async fn update(
        &self,
        key: &str,
        value: Bytes,
        expected: Revision,
        ttl: Option<Duration>,
    ) -> Result<WriteOutcome> {
        let value = self.values.encrypt(key, value).await?;
        let outcome = self.inner.update(key, value, expected, ttl).await?;
        Ok(self.written(outcome).await)
    }

    async fn delete(&self, key: &str, expected: Revision) -> Result<WriteOutcome> {
        let outcome = self.inner.delete(key, expected).await?;
        Ok(self.written(outcome).await)
    }

    async fn is_stale(&self, key: &str) -> Result<bool> {
        let Some(stored) = self.inner.get(key).await? else {
            return Ok(false);
        };
        let decrypted = self.values.decrypt(&stored, true).await;
        Ok(decrypted
            .map_err(|why| StorageError::Internal(why.to_string()))?
            .stale)
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<WatchStream> {
        let events = self.inner.watch(prefix, after).await?;
        Ok(self.decrypted(events, true))
    }

    async fn watch_without_previous(&self, prefix: &str, after: Revision) -> Result<WatchStream> {
        let events = self.inner.watch_without_previous(prefix, after).await?;
        Ok(self.with_changes(self.decrypted(events, false)))
    }

    async fn request_progress(&self) -> Result<()> {
        self.inner.request_progress().await
    }

    fn has_reliable_progress(&self) -> bool {
        self.inner.has_reliable_progress()
    }

    async fn current_revision(&self) -> Result<Revision> {
        self.inner.current_revision().await
    }

    async fn compact(&self, revision: Revision) -> Result<()> {
        self.inner.compact(revision).await
    }

    async fn check_health(&self) -> Result<()> {
        self.inner.check_health().await
    }

    async fn size(&self) -> Result<u64> {
        self.inner.size().await
    }

    fn check_integrity(&self) -> Result<()> {
        self.inner.check_integrity()
    }
}
