//! The frames of watch events, rendered once for all watchers that want the same: in bounded memory, for a while.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::meta::Gvr;
use crate::registry::store::{Event, EventKind};
use crate::storage::Revision;

use super::negotiate::Output;

/// Parts of the cache, each behind a lock of its own.
const SHARDS: usize = 16;
/// Frames that a part keeps. An event is rendered for its first watcher and taken by the others soon after.
const MAX_FRAMES: usize = 32;
/// Bytes that a part keeps, if that is more than one frame.
const MAX_BYTES: usize = 1 << 20;

/// What the frames of a watch look like: a hash of the resource and the representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looks(u64);

impl Looks {
    pub fn new(gvr: &Gvr, output: Output) -> Self {
        let mut hasher = DefaultHasher::new();
        (gvr, Output { pretty: false, ..output }).hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// Which frame: of what change, told as what, in which form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameKey {
    revision: Revision,
    kind: EventKind,
    looks: Looks,
    /// A hash of the object's key.
    object: u64,
}

impl FrameKey {
    /// The key of an event's frame; `None` for events that carry no object.
    pub fn new(looks: Looks, event: &Event) -> Option<Self> {
        let stored = event.stored.as_ref()?;
        let mut hasher = DefaultHasher::new();
        stored.key.hash(&mut hasher);
        Some(Self { revision: event.revision, kind: event.kind, looks, object: hasher.finish() })
    }
}

/// The latest frames, by what they tell.
#[derive(Debug, Default)]
pub struct FrameCache([Mutex<Shard>; SHARDS]);

/// Frames in the order that they were rendered in.
#[derive(Debug, Default)]
struct Shard {
    frames: VecDeque<(FrameKey, Bytes)>,
    bytes: usize,
}

impl FrameCache {
    /// The frame, if it was rendered of late.
    pub fn get(&self, key: &FrameKey) -> Option<Bytes> {
        let shard = self.shard(key).lock();
        shard.frames.iter().rev().find(|(of, _)| of == key).map(|(_, frame)| frame.clone())
    }

    /// Keeps a frame in place of the oldest ones.
    pub fn insert(&self, key: FrameKey, frame: Bytes) {
        let mut shard = self.shard(&key).lock();
        shard.bytes += frame.len();
        shard.frames.push_back((key, frame));
        while shard.frames.len() > MAX_FRAMES || (shard.bytes > MAX_BYTES && shard.frames.len() > 1) {
            let Some((_, gone)) = shard.frames.pop_front() else { return };
            shard.bytes -= gone.len();
        }
    }

    fn shard(&self, key: &FrameKey) -> &Mutex<Shard> {
        &self.0[(key.object ^ key.revision as u64) as usize % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(revision: Revision) -> FrameKey {
        FrameKey { revision, kind: EventKind::Added, looks: Looks(1), object: 0 }
    }

    #[test]
    fn the_latest_frames_are_kept_however_large_the_last_one_is() {
        let cache = FrameCache::default();
        let (shards, frames) = (SHARDS as Revision, MAX_FRAMES as Revision);
        for turn in 0..2 * frames {
            cache.insert(key(turn * shards), Bytes::from(turn.to_string()));
        }
        let kept = (0..2 * frames).filter(|turn| cache.get(&key(turn * shards)).is_some()).collect::<Vec<_>>();
        assert_eq!(kept, (frames..2 * frames).collect::<Vec<_>>());
        assert_eq!(cache.get(&FrameKey { looks: Looks(2), ..key(frames * shards) }), None);
        cache.insert(key(0), Bytes::from(vec![0; 2 * MAX_BYTES]));
        assert_eq!(cache.get(&key(0)).map(|frame| frame.len()), Some(2 * MAX_BYTES));
        assert_eq!(cache.get(&key((2 * frames - 1) * shards)), None);
        assert_eq!(cache.shard(&key(0)).lock().bytes, 2 * MAX_BYTES);
    }
}
