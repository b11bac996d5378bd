//! The frames of watch events, rendered once for all watchers that want the same: in bounded memory, for a while.

use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use moka::sync::Cache;

use crate::meta::Gvr;
use crate::registry::store::{Event, EventKind};
use crate::storage::Revision;

use super::negotiate::Output;

/// Bytes of frames that are kept, about. An event is rendered for its first watcher and taken by the others soon after.
const MAX_BYTES: u64 = 8 << 20;

/// Which frame: of what change, told as what, in which form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameKey {
    revision: Revision,
    kind: EventKind,
    output: Output,
    /// A hash of the served resource and of the object's key.
    object: u64,
}

impl FrameKey {
    /// The key of an event's frame; `None` for events that carry no object.
    pub fn new(gvr: &Gvr, event: &Event, output: Output) -> Option<Self> {
        let stored = event.stored.as_ref()?;
        let mut hasher = DefaultHasher::new();
        gvr.hash(&mut hasher);
        stored.key.hash(&mut hasher);
        Some(Self { revision: event.revision, kind: event.kind, output, object: hasher.finish() })
    }
}

/// Rendered frames by what they tell.
#[derive(Debug)]
pub struct FrameCache(Cache<FrameKey, Bytes>);

impl Default for FrameCache {
    fn default() -> Self {
        let weigh = |_: &FrameKey, frame: &Bytes| u32::try_from(frame.len()).unwrap_or(u32::MAX);
        Self(Cache::builder().weigher(weigh).max_capacity(MAX_BYTES).build())
    }
}

impl FrameCache {
    /// The frame if it is there, else what `render` makes.
    pub fn get_or_render<E>(&self, key: FrameKey, render: impl FnOnce() -> Result<Bytes, E>) -> Result<Bytes, E> {
        if let Some(frame) = self.0.get(&key) {
            return Ok(frame);
        }
        let frame = render()?;
        self.0.insert(key, frame.clone());
        Ok(frame)
    }
}
