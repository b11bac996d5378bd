//! The encodings of cached objects.

use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use jiff::Timestamp;

use crate::meta::Status;
use crate::meta::status;

use super::CachedObject;
use super::encoding_cache::EncodingCache;

/// The memory of an encoding besides its bytes: its node, its share of the queue, the allocator.
pub(super) const NODE_BYTES: usize = 192;

/// The identity of a served resource under its present definition. A store of the same resource
/// with another definition has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedId(u32);

impl ServedId {
    /// A unique id.
    pub fn unique() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The representation of an object: media type and form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Representation {
    Json,
    Protobuf,
    /// PartialObjectMetadata of meta.k8s.io/v1.
    JsonMetadata,
    ProtobufMetadata,
    /// The cells of the row of a Table.
    TableRow,
}

/// The identity of an encoding of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodingId {
    pub served: ServedId,
    pub representation: Representation,
}

/// The likelihood that an encoding is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// Requested by a list: kept while there is room.
    Scan,
    /// Requested alone: kept the second time, in place of unused ones.
    Request,
    /// One that all watchers are about to want: kept at once.
    Event,
}

/// One encoding of an object. It is encoded as a whole watch event, of which other readers take the
/// part that they show.
#[derive(Debug)]
pub struct Encoding {
    pub bytes: Bytes,
    /// The object within the event.
    pub object: Range<u32>,
    /// JSON: the offset of the fields of the object after its kind and apiVersion.
    pub fields: u32,
    /// JSON: the metadata, if the object shows them as they are shown alone. Protobuf: the message
    /// within its envelope.
    pub part: Range<u32>,
    /// Offsets into the cells of a row where ages go, and since when they count.
    pub ages: Vec<(u32, Timestamp)>,
    /// The object in the version that is served, where a webhook converts it, with encodings of
    /// its own. It is an encoding by itself.
    pub converted: Option<Arc<CachedObject>>,
}

impl Encoding {
    /// No encoding at all.
    pub const EMPTY: Self = Self {
        bytes: Bytes::new(),
        object: 0..0,
        fields: 0,
        part: 0..0,
        ages: Vec::new(),
        converted: None,
    };

    /// The bytes of a part; none if it is not within them.
    pub fn slice(&self, part: &Range<u32>) -> &[u8] {
        self.bytes
            .get(part.start as usize..part.end as usize)
            .unwrap_or_default()
    }

    /// The memory that it takes.
    fn weight(&self) -> usize {
        self.bytes.len() + size_of_val(self.ages.as_slice()) + NODE_BYTES
    }
}

/// An encoding of an object, in the list of all of them.
pub struct SharedEncoding {
    id: EncodingId,
    encoding: OnceLock<Result<Encoding, Box<Status>>>,
    next: Option<Arc<SharedEncoding>>,
    cache: Arc<EncodingCache>,
}

impl std::fmt::Debug for SharedEncoding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedEncoding({:?})", self.id)
    }
}

impl Deref for SharedEncoding {
    type Target = Encoding;

    fn deref(&self) -> &Encoding {
        static EMPTY: Encoding = Encoding::EMPTY;
        match self.encoding.get() {
            Some(Ok(encoding)) => encoding,
            // Nobody is given a node before it is encoded.
            _ => &EMPTY,
        }
    }
}

impl SharedEncoding {
    pub(super) fn new(
        cache: &Arc<EncodingCache>,
        id: EncodingId,
        next: Option<Arc<Self>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            encoding: OnceLock::new(),
            next,
            cache: cache.clone(),
        })
    }

    pub(super) fn id(&self) -> EncodingId {
        self.id
    }

    pub(super) fn next(&self) -> Option<&Arc<Self>> {
        self.next.as_ref()
    }

    /// The number of encodings from this one on.
    pub(super) fn length(&self) -> usize {
        std::iter::successors(Some(self), |node| node.next.as_deref()).count()
    }

    /// The encoding, or the reason there is none, after the first attempt.
    pub(super) fn get(&self) -> Option<status::Result<&Encoding>> {
        let outcome = self.encoding.get()?;
        Some(outcome.as_ref().map_err(|status| Status::clone(status)))
    }

    /// The encoding, which the first caller makes while the others wait.
    pub(super) fn get_or_encode(
        &self,
        encode: impl FnOnce() -> status::Result<Encoding>,
    ) -> status::Result<&Encoding> {
        let outcome = self.encoding.get_or_init(|| {
            let outcome = encode().map_err(Box::new);
            let weight = outcome.as_ref().map_or(NODE_BYTES, Encoding::weight);
            self.cache.take(weight);
            outcome
        });
        outcome.as_ref().map_err(|status| Status::clone(status))
    }
}

impl Drop for SharedEncoding {
    fn drop(&mut self) {
        if let Some(outcome) = self.encoding.get() {
            let weight = outcome.as_ref().map_or(NODE_BYTES, Encoding::weight);
            self.cache.give_back(weight);
        }
    }
}
