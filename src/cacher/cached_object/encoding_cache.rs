//! The common budget of all encodings, and its metrics.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::{self, MetricFamily, MetricType};

use crate::telemetry::metrics::family;

use super::CachedObject;
use super::encodings::{NODE_BYTES, Retention};

/// An object whose stored bytes are more than this part of the budget is not kept in any encoding.
const LARGEST_SHARE: usize = 32;
/// Objects in use that the clock hand passes over for one insertion, at most.
const MAX_SECOND_CHANCES: usize = 64;
/// Objects at the front of the queue that each insertion looks at, to take out those that are gone:
/// two for each that comes keep the queue shorter than twice the objects that are there.
const SWEPT_PER_INSERTION: usize = 2;

/// The budget of all encodings. It holds none of them: they hang on their objects, and go with
/// them. When they take more than they may, those that were not used lately are dropped (CLOCK: a
/// queue of objects; those used since the hand passed get a second chance).
#[derive(Debug)]
pub struct EncodingCache {
    limit: usize,
    bytes: AtomicUsize,
    queue: Mutex<VecDeque<Weak<CachedObject>>>,
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
}

impl EncodingCache {
    /// A cache of at most so many bytes; none are kept where that is 0.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            bytes: AtomicUsize::new(0),
            queue: Mutex::default(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        }
    }

    /// The bytes that are held.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// A cache of at most `limit` bytes, with metrics that are exposed for as long as it is held.
    pub fn with_metrics(limit: usize) -> Arc<Self> {
        let cache = Arc::new(Self::new(limit));
        match prometheus::register(Box::new(CacheMetrics::new(&cache))) {
            // Those of another server in this process are exposed already.
            Ok(()) | Err(prometheus::Error::AlreadyReg) => {}
            Err(why) => tracing::error!("the metrics of encoded objects: {why}"),
        }
        cache
    }

    pub(super) fn take(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(super) fn record_hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn record_miss(&self) {
        self.misses.fetch_add(1, Ordering::Relaxed);
    }

    /// Reports whether an encoding of the object is to be kept.
    pub(super) fn admits(&self, object: &CachedObject, retention: Retention) -> bool {
        if object.value.len() >= self.limit / LARGEST_SHARE {
            return false;
        }
        match retention {
            Retention::Scan => self.bytes() + 2 * object.value.len() + NODE_BYTES <= self.limit,
            Retention::Request => !object.is_first_request(),
            Retention::Event => true,
        }
    }

    /// Takes note of an object that has a new encoding. Where there are too many, those of others
    /// are dropped, or, for a scan, its own.
    pub(super) fn record_encoding(&self, object: &Arc<CachedObject>, retention: Retention) {
        if retention == Retention::Scan && self.bytes() > self.limit {
            object.clear_encodings();
            return;
        }
        if !object.queued.swap(true, Ordering::AcqRel) {
            let mut queue = self.queue.lock();
            queue.push_back(Arc::downgrade(object));
            for _ in 0..SWEPT_PER_INSERTION {
                let Some(front) = queue.pop_front() else {
                    break;
                };
                if front.strong_count() > 0 {
                    queue.push_back(front);
                }
            }
        }
        if self.bytes() > self.limit {
            self.evict();
        }
    }

    fn evict(&self) {
        let mut queue = self.queue.lock();
        let mut second_chances = MAX_SECOND_CHANCES;
        while self.bytes() > self.limit {
            let Some(front) = queue.pop_front() else {
                return;
            };
            let Some(object) = front.upgrade() else {
                continue;
            };
            if second_chances > 0 && object.used.swap(false, Ordering::Relaxed) {
                second_chances -= 1;
                queue.push_back(front);
                continue;
            }
            // Who adds an encoding meanwhile either sees this and puts the object into the queue
            // again, or has added it before it is dropped.
            object.queued.store(false, Ordering::SeqCst);
            object.clear_encodings();
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The name, help and type of each metric.
const METRICS: [(&str, &str, MetricType); 4] = [
    (
        "keelson_encoded_object_cache_bytes",
        "[ALPHA] Bytes of memory that the encodings of objects in the watch cache take.",
        MetricType::GAUGE,
    ),
    (
        "keelson_encoded_object_cache_hits_total",
        "[ALPHA] Number of times that the encoding of an object was there already.",
        MetricType::COUNTER,
    ),
    (
        "keelson_encoded_object_cache_misses_total",
        "[ALPHA] Number of times that an object had to be encoded.",
        MetricType::COUNTER,
    ),
    (
        "keelson_encoded_object_cache_evictions_total",
        "[ALPHA] Number of objects whose encodings were dropped because there were too many.",
        MetricType::COUNTER,
    ),
];

/// The metrics of a cache, read when they are asked for: nothing is counted twice.
struct CacheMetrics {
    cache: Weak<EncodingCache>,
    descs: Vec<Desc>,
}

impl CacheMetrics {
    fn new(cache: &Arc<EncodingCache>) -> Self {
        let desc = |(name, help, _): &(&str, &str, MetricType)| {
            Desc::new(
                (*name).into(),
                (*help).into(),
                Vec::new(),
                Default::default(),
            )
            .ok()
        };
        Self {
            cache: Arc::downgrade(cache),
            descs: METRICS.iter().filter_map(desc).collect(),
        }
    }
}

impl Collector for CacheMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Some(cache) = self.cache.upgrade() else {
            return Vec::new();
        };
        let values = [
            cache.bytes() as f64,
            cache.hits.load(Ordering::Relaxed) as f64,
            cache.misses.load(Ordering::Relaxed) as f64,
            cache.evictions.load(Ordering::Relaxed) as f64,
        ];
        let metric = |((name, help, kind), value): ((&str, &str, MetricType), f64)| {
            let mut metric = proto::Metric::default();
            if kind == MetricType::GAUGE {
                let mut gauge = proto::Gauge::default();
                gauge.set_value(value);
                metric.set_gauge(gauge);
            } else {
                let mut counter = proto::Counter::default();
                counter.set_value(value);
                metric.set_counter(counter);
            }
            family(name, help, kind, vec![metric])
        };
        METRICS.into_iter().zip(values).map(metric).collect()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::cacher::{Encoding, EncodingId, Representation, ServedId};
    use crate::storage::Stored;

    const ENCODED: usize = 4096;

    fn object(number: usize) -> Arc<CachedObject> {
        CachedObject::shared(Stored {
            key: format!("/{number}"),
            value: Bytes::new(),
            create_revision: 1,
            mod_revision: 2,
        })
    }

    fn id() -> EncodingId {
        EncodingId {
            served: ServedId::unique(),
            representation: Representation::Json,
        }
    }

    fn encode(
        cache: &Arc<EncodingCache>,
        object: &Arc<CachedObject>,
        id: EncodingId,
        retention: Retention,
    ) {
        let encoding = object.encoding(cache, id, retention, || {
            Ok(Encoding {
                bytes: Bytes::from(vec![0; ENCODED]),
                ..Encoding::EMPTY
            })
        });
        drop(encoding.expect("encoded"));
    }

    #[test]
    fn bytes_stay_within_the_budget_and_what_is_used_stays() {
        const OBJECTS: usize = 1000;
        let (cache, id) = (Arc::new(EncodingCache::new(100 * 2 * ENCODED)), id());
        let all: Vec<_> = (0..OBJECTS).map(object).collect();
        for object in &all {
            encode(&cache, object, id, Retention::Event);
            assert!(cache.bytes() <= cache.limit);
            // The first is used all the time.
            assert!(all[0].existing_encoding(&cache, id).is_some());
        }
        let kept = all
            .iter()
            .filter(|object| object.existing_encoding(&cache, id).is_some())
            .count();
        assert!((100..200).contains(&kept), "{kept}");
        assert_eq!(
            cache.evictions.load(Ordering::Relaxed),
            (OBJECTS - kept) as u64
        );
        assert!(cache.queue.lock().len() <= OBJECTS);
    }

    #[test]
    fn objects_that_go_give_their_bytes_back_at_once() {
        let (cache, id) = (Arc::new(EncodingCache::new(1 << 20)), id());
        let standing = object(0);
        encode(&cache, &standing, id, Retention::Event);
        let one = cache.bytes();
        for number in 1..10_000 {
            // Each write takes the place of the one before.
            let current = object(number);
            encode(&cache, &current, id, Retention::Event);
            assert_eq!(cache.bytes(), 2 * one);
            drop(current);
            assert_eq!(cache.bytes(), one);
        }
        assert_eq!(cache.evictions.load(Ordering::Relaxed), 0);
        assert!(
            cache.queue.lock().len() < 10,
            "objects that are gone leave the queue"
        );
        drop(standing);
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn a_scan_takes_the_room_there_is_and_evicts_nothing() {
        let (cache, id) = (Arc::new(EncodingCache::new(100 * 2 * ENCODED)), id());
        let hot: Vec<_> = (0..10).map(object).collect();
        for object in &hot {
            encode(&cache, object, id, Retention::Event);
        }
        let scanned: Vec<_> = (0..1000).map(object).collect();
        for _ in 0..3 {
            for object in &scanned {
                encode(&cache, object, id, Retention::Scan);
            }
        }
        let is_kept = |object: &&Arc<CachedObject>| object.existing_encoding(&cache, id).is_some();
        assert_eq!(hot.iter().filter(is_kept).count(), hot.len());
        assert!(scanned.iter().take_while(|one| is_kept(one)).count() > 100);
        assert_eq!(cache.evictions.load(Ordering::Relaxed), 0);
        assert!(cache.bytes() <= cache.limit);
    }

    #[test]
    fn a_cache_of_no_bytes_keeps_nothing() {
        let (cache, object, id) = (Arc::new(EncodingCache::new(0)), object(0), id());
        for _ in 0..3 {
            encode(&cache, &object, id, Retention::Event);
            assert!(object.existing_encoding(&cache, id).is_none());
        }
        assert_eq!(cache.bytes(), 0);
    }
}
