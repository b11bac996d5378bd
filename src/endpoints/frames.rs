//! The frames of watch events, rendered once for all watchers that want the same: in bounded
//! memory, for a while.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::meta::Gvr;
use crate::registry::store::EventKind;
use crate::storage::Revision;

use super::negotiate::Output;

/// Parts of the cache, each behind a lock of its own.
const SHARDS: usize = 16;
/// Frames that a part keeps. An event is rendered for its first watcher and taken by the others
/// soon after.
const MAX_FRAMES: usize = 32;
/// Bytes that a part keeps, if that is more than one frame.
const MAX_BYTES: usize = 1 << 20;

/// What the frames of a watch look like: a hash of the resource and the representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looks(u64);

impl Looks {
    pub fn new(gvr: &Gvr, output: Output) -> Self {
        let mut hasher = DefaultHasher::new();
        (
            gvr,
            Output {
                pretty: false,
                ..output
            },
        )
            .hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// Which frame: of what change, told as what, in which form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameKey<'a> {
    pub revision: Revision,
    pub kind: EventKind,
    pub looks: Looks,
    /// The key of the object: one revision may change several.
    pub object: &'a str,
}

/// The latest frames, by what they tell.
#[derive(Debug, Default)]
pub struct FrameCache([Mutex<Shard>; SHARDS]);

/// Frames in the order that they were rendered in.
#[derive(Debug, Default)]
struct Shard {
    frames: VecDeque<Frame>,
    bytes: usize,
}

#[derive(Debug)]
struct Frame {
    revision: Revision,
    kind: EventKind,
    looks: Looks,
    object: Box<str>,
    bytes: Bytes,
}

impl Frame {
    fn key(&self) -> FrameKey<'_> {
        let Self {
            revision,
            kind,
            looks,
            ref object,
            ..
        } = *self;
        FrameKey {
            revision,
            kind,
            looks,
            object,
        }
    }
}

impl FrameCache {
    /// The frame, if it was rendered of late.
    pub fn get(&self, key: FrameKey<'_>) -> Option<Bytes> {
        let shard = self.shard(key).lock();
        shard
            .frames
            .iter()
            .rev()
            .find(|frame| frame.key() == key)
            .map(|frame| frame.bytes.clone())
    }

    /// Keeps a frame in place of the oldest ones.
    pub fn insert(&self, key: FrameKey<'_>, bytes: Bytes) {
        let FrameKey {
            revision,
            kind,
            looks,
            object,
        } = key;
        let mut shard = self.shard(key).lock();
        shard.bytes += bytes.len();
        shard.frames.push_back(Frame {
            revision,
            kind,
            looks,
            object: object.into(),
            bytes,
        });
        while shard.frames.len() > MAX_FRAMES || (shard.bytes > MAX_BYTES && shard.frames.len() > 1)
        {
            let Some(gone) = shard.frames.pop_front() else {
                return;
            };
            shard.bytes -= gone.bytes.len();
        }
    }

    /// Frames of a revision are together: mostly there is but one in each form.
    fn shard(&self, key: FrameKey<'_>) -> &Mutex<Shard> {
        &self.0[key.revision.unsigned_abs() as usize % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(revision: Revision) -> FrameKey<'static> {
        FrameKey {
            revision,
            kind: EventKind::Added,
            looks: Looks(1),
            object: "/a",
        }
    }

    #[test]
    fn the_latest_frames_are_kept_however_large_the_last_one_is() {
        let cache = FrameCache::default();
        let (shards, frames) = (SHARDS as Revision, MAX_FRAMES as Revision);
        for turn in 0..2 * frames {
            cache.insert(key(turn * shards), Bytes::from(turn.to_string()));
        }
        let kept = (0..2 * frames)
            .filter(|turn| cache.get(key(turn * shards)).is_some())
            .collect::<Vec<_>>();
        assert_eq!(kept, (frames..2 * frames).collect::<Vec<_>>());
        assert_eq!(
            cache.get(FrameKey {
                looks: Looks(2),
                ..key(frames * shards)
            }),
            None
        );
        assert_eq!(
            cache.get(FrameKey {
                object: "/b",
                ..key(frames * shards)
            }),
            None
        );
        cache.insert(key(0), Bytes::from(vec![0; 2 * MAX_BYTES]));
        assert_eq!(
            cache.get(key(0)).map(|frame| frame.len()),
            Some(2 * MAX_BYTES)
        );
        assert_eq!(cache.get(key((2 * frames - 1) * shards)), None);
        assert_eq!(cache.shard(key(0)).lock().bytes, 2 * MAX_BYTES);
    }
}
