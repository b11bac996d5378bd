//! Objects whose stored bytes lack a default that clients see: a new job is stored before the
//! labels that it takes from its pods are known, a new claim without a phase. Upstream defaults all
//! that it decodes; here such bytes are completed where they are read.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;

use crate::codec::protobuf::{self, Message};
use crate::meta::Gvk;
use crate::registry::Strategy;
use crate::schema::{ResourceDecl, TypeRef, builtin as schema};
use crate::storage::{
    ListPage, ListRequest, Result, Revision, Storage, Stored, WatchEvent, WatchStream, WriteOutcome,
};

/// The bytes with all defaults, where some are missing.
pub(super) fn with_read_defaults(
    value: &Bytes,
    gvk: &Gvk,
    ty: TypeRef<'_>,
    strategy: &dyn Strategy,
) -> Option<Bytes> {
    let incomplete = strategy.needs_read_defaults()?;
    let envelope = protobuf::unwrap(value).ok()?;
    if !incomplete(&Message {
        bytes: envelope.raw,
        ty,
    }) {
        return None;
    }
    let mut object = protobuf::decode(envelope.raw, ty).ok()?;
    strategy.default(&mut object);
    Some(
        protobuf::wrap(
            &gvk.api_version(),
            &gvk.kind,
            &protobuf::encode(&object, ty),
        )
        .into(),
    )
}

/// Returns the strategy of a built-in resource, by group and plural.
pub type Strategies = fn(&str, &str) -> &'static dyn Strategy;

/// A kind with objects that may have to be completed.
struct Kind {
    prefix: String,
    gvk: Gvk,
    strategy: &'static dyn Strategy,
}

impl Kind {
    fn of(decl: &ResourceDecl, root: &str, strategies: Strategies) -> Option<Self> {
        let strategy = strategies(&decl.group, &decl.resource);
        strategy.needs_read_defaults()?;
        let gvk = decl
            .storage_gvk
            .clone()
            .unwrap_or_else(|| Gvk::new(&decl.group, &decl.version, &decl.kind));
        Some(Self {
            prefix: format!("{root}/{}/", decl.storage_prefix),
            gvk,
            strategy,
        })
    }
}

/// A store whose lists, watches and reads with a revision show complete objects. [`Storage::get`],
/// with which writes begin, shows what is really there.
pub struct DefaultingStorage {
    inner: Arc<dyn Storage>,
    kinds: Arc<[Kind]>,
}

impl DefaultingStorage {
    /// Wraps a store with all of Kubernetes below `root`, whose built-in resources have these
    /// strategies.
    pub fn wrap(inner: Arc<dyn Storage>, root: &str, strategies: Strategies) -> Arc<dyn Storage> {
        let root = root.trim_end_matches('/');
        let kinds = schema()
            .resources
            .iter()
            .filter_map(|decl| Kind::of(decl, root, strategies))
            .collect();
        Arc::new(Self { inner, kinds })
    }

    fn completing(&self, events: WatchStream) -> WatchStream {
        let kinds = self.kinds.clone();
        let complete = move |mut event: Result<WatchEvent>| {
            event
                .iter_mut()
                .for_each(|event| complete_event(&kinds, event));
            event
        };
        events.map(complete).boxed()
    }
}

fn complete(kinds: &[Kind], stored: &mut Stored) {
    let Some(kind) = kinds
        .iter()
        .find(|kind| stored.key.starts_with(&kind.prefix))
    else {
        return;
    };
    let Some(ty) = schema().get(&kind.gvk) else {
        return;
    };
    if let Some(value) = with_read_defaults(&stored.value, &kind.gvk, ty, kind.strategy) {
        stored.value = value;
    }
}

fn complete_event(kinds: &[Kind], event: &mut WatchEvent) {
    let (current, previous) = match event {
        WatchEvent::Put { current, previous } => (Some(current), previous),
        WatchEvent::Delete { previous, .. } => (None, previous),
        WatchEvent::Progress(_) | WatchEvent::Unread { .. } => return,
    };
    current
        .into_iter()
        .chain(previous)
        .for_each(|stored| complete(kinds, stored));
}

#[async_trait]
impl Storage for DefaultingStorage {
    async fn get(&self, key: &str) -> Result<Option<Stored>> {
        self.inner.get(key).await
    }

    async fn get_with_revision(&self, key: &str) -> Result<(Option<Stored>, Revision)> {
        let (mut stored, revision) = self.inner.get_with_revision(key).await?;
        stored
            .iter_mut()
            .for_each(|stored| complete(&self.kinds, stored));
        Ok((stored, revision))
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        let mut page = self.inner.list(request).await?;
        page.items
            .iter_mut()
            .for_each(|stored| complete(&self.kinds, stored));
        Ok(page)
    }

    async fn create(&self, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<WriteOutcome> {
        self.inner.create(key, value, ttl).await
    }

    async fn update(
        &self,
        key: &str,
        value: Bytes,
        expected: Revision,
        ttl: Option<Duration>,
    ) -> Result<WriteOutcome> {
        self.inner.update(key, value, expected, ttl).await
    }

    async fn delete(&self, key: &str, expected: Revision) -> Result<WriteOutcome> {
        self.inner.delete(key, expected).await
    }

    async fn is_stale(&self, key: &str) -> Result<bool> {
        self.inner.is_stale(key).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<WatchStream> {
        Ok(self.completing(self.inner.watch(prefix, after).await?))
    }

    async fn watch_without_previous(&self, prefix: &str, after: Revision) -> Result<WatchStream> {
        Ok(self.completing(self.inner.watch_without_previous(prefix, after).await?))
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
