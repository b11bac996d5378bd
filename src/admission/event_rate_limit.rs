//! EventRateLimit: limits how many events are written, by buckets of tokens
//! (`plugin/pkg/admission/eventratelimit`).

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use parking_lot::Mutex;

use super::{Attributes, Operation, Plugin};
use crate::auth::authz::aggregate;
use crate::meta::field::{ErrorList, Path};
use crate::meta::status::Result;
use crate::meta::{Object, Status, Value, array_at, i64_at, str_at};

const API_VERSION: &str = "eventratelimit.admission.k8s.io/v1alpha1";
/// The buckets of a limit that says nothing about it.
const DEFAULT_CACHE_SIZE: u64 = 4096;

/// The events that share a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LimitType {
    Server,
    Namespace,
    User,
    SourceAndObject,
}

impl LimitType {
    const ALL: [Self; 4] = [
        Self::Namespace,
        Self::Server,
        Self::SourceAndObject,
        Self::User,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Server => "Server",
            Self::Namespace => "Namespace",
            Self::User => "User",
            Self::SourceAndObject => "SourceAndObject",
        }
    }

    /// Returns the name of the bucket of a request.
    fn key(self, attributes: &Attributes<'_>) -> String {
        match self {
            Self::Server => String::new(),
            Self::Namespace => attributes.namespace.to_owned(),
            Self::User => attributes.user.name.clone(),
            Self::SourceAndObject => attributes
                .object()
                .map(source_and_object)
                .unwrap_or_default(),
        }
    }
}

fn source_and_object(event: &Object) -> String {
    const PATHS: [&str; 7] = [
        "/source/component",
        "/source/host",
        "/involvedObject/kind",
        "/involvedObject/namespace",
        "/involvedObject/name",
        "/involvedObject/uid",
        "/involvedObject/apiVersion",
    ];
    PATHS.map(|path| event.str_at(path)).concat()
}

/// A limit as it is configured.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Limit {
    kind: LimitType,
    /// The tokens that a bucket gets each second.
    qps: f64,
    /// The tokens that fit into a bucket.
    burst: f64,
    /// The buckets that are kept.
    cache_size: u64,
}

/// The configuration of the plugin.
#[derive(Clone, Debug, Default)]
pub struct Configuration(Vec<Limit>);

impl Configuration {
    /// Reads a `Configuration` of the group of the plugin. One that names no limit is refused, as
    /// is the plugin without any configuration.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(value: &Value) -> std::result::Result<Self, String> {
        if str_at(value, "/kind") != "Configuration" || str_at(value, "/apiVersion") != API_VERSION
        {
            return Err(format!("expected Configuration of {API_VERSION}"));
        }
        let (mut errors, mut limits) = (ErrorList::new(), Vec::new());
        let path = Path::new("limits");
        if array_at(value, "/limits").is_empty() {
            let none = value.get("limits").cloned().unwrap_or_default();
            errors.invalid(&path, none, "must not be empty");
        }
        for (index, limit) in array_at(value, "/limits").iter().enumerate() {
            limits.extend(read_limit(limit, &path.index(index), &mut errors));
        }
        match errors.is_empty() {
            true => Ok(Self(limits)),
            false => Err(aggregate(
                &errors.iter().map(ToString::to_string).collect::<Vec<_>>(),
            )),
        }
    }

    /// Reports whether nothing is limited, which is not allowed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn read_limit(limit: &Value, path: &Path, errors: &mut ErrorList) -> Option<Limit> {
    let number = |field: &str| i64_at(limit, &format!("/{field}")).unwrap_or(0);
    let name = str_at(limit, "/type");
    let kind = LimitType::ALL
        .into_iter()
        .find(|kind| kind.as_str() == name);
    if kind.is_none() {
        let names = LimitType::ALL.map(LimitType::as_str);
        errors.not_supported(&path.child("type"), name, &names);
    }
    for field in ["burst", "qps"] {
        if number(field) <= 0 {
            errors.invalid(&path.child(field), number(field), "must be positive");
        }
    }
    let cache_size = u64::try_from(number("cacheSize"));
    if kind != Some(LimitType::Server) && cache_size.is_err() {
        let path = path.child("cacheSize");
        errors.invalid(&path, number("cacheSize"), "must not be negative");
    }
    Some(Limit {
        kind: kind?,
        qps: number("qps") as f64,
        burst: number("burst") as f64,
        cache_size: match cache_size {
            Ok(0) | Err(_) => DEFAULT_CACHE_SIZE,
            Ok(size) => size,
        },
    })
}

/// Tokens that come back with time.
#[derive(Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    /// Takes a token; returns false if there is none.
    fn take(&mut self, limit: &Limit, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = limit.burst.min(self.tokens + since * limit.qps);
        self.at = now;
        let has_one = self.tokens >= 1.0;
        if has_one {
            self.tokens -= 1.0;
        }
        has_one
    }
}

/// A limit with its buckets. Those that were not used for the longest time go where there are too
/// many. Their keys are hashes, because a client may choose names as long as it likes.
struct Enforcer {
    limit: Limit,
    buckets: Cache<u64, Arc<Mutex<Bucket>>>,
}

impl Enforcer {
    fn new(limit: Limit) -> Self {
        Self {
            limit,
            buckets: Cache::builder()
                .max_capacity(limit.cache_size)
                .eviction_policy(EvictionPolicy::lru())
                .build(),
        }
    }

    fn takes(&self, key: u64, now: Instant) -> bool {
        let full = || {
            let tokens = self.limit.burst;
            Arc::new(Mutex::new(Bucket { tokens, at: now }))
        };
        let bucket = self.buckets.get_with(key, full);
        bucket.lock().take(&self.limit, now)
    }
}

/// The plugin.
pub struct EventRateLimit {
    enforcers: Vec<Enforcer>,
    hasher: RandomState,
}

impl EventRateLimit {
    pub fn new(configuration: &Configuration) -> Self {
        Self {
            enforcers: configuration.0.iter().copied().map(Enforcer::new).collect(),
            hasher: RandomState::new(),
        }
    }
}

#[async_trait]
impl Plugin for EventRateLimit {
    fn name(&self) -> &'static str {
        "EventRateLimit"
    }

    /// Events of the group `events.k8s.io` are of another kind, which upstream does not limit.
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        matches!(attributes.operation, Operation::Create | Operation::Update)
            && attributes.gvk.kind == "Event"
            && attributes.gvk.group.is_empty()
            && !attributes.dry_run
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<()> {
        let now = Instant::now();
        // Each limit counts the event, also if another one refuses it.
        let mut reached: Vec<String> = Vec::new();
        for enforcer in &self.enforcers {
            let kind = enforcer.limit.kind;
            let key = kind.key(attributes);
            if !enforcer.takes(self.hasher.hash_one(&key), now) {
                let kind = kind.as_str();
                reached.push(format!("limit reached on type {kind} for key {key}"));
            }
        }
        if reached.is_empty() {
            return Ok(());
        }
        let why = format!("Too many requests: {}", aggregate(&reached));
        Err(Status::too_many_requests(why, 0))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::meta::json;

    fn read(limits: Value) -> std::result::Result<Configuration, String> {
        let (kind, version) = ("Configuration", API_VERSION);
        Configuration::read(&json!({"kind": kind, "apiVersion": version, "limits": limits}))
    }

    #[test]
    fn a_bucket_holds_its_burst_and_fills_with_time() {
        let limit = read(json!([{"type": "User", "qps": 2, "burst": 3, "cacheSize": 8}]));
        let enforcer = Enforcer::new(limit.expect("a limit").0[0]);
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let taken = |key, millis| enforcer.takes(key, at(millis));
        assert_eq!(
            [0, 0, 0, 0].map(|millis| taken(1, millis)),
            [true, true, true, false]
        );
        assert!(taken(2, 0), "another bucket");
        assert_eq!(
            [499, 500, 501].map(|millis| taken(1, millis)),
            [false, true, false]
        );
        // Never more than the burst.
        let later = [90_000; 4].map(|millis| taken(1, millis));
        assert_eq!(later, [true, true, true, false]);
    }

    #[test]
    fn a_configuration_is_checked() {
        for (limits, why) in [
            (json!([]), "limits: Invalid value: []: must not be empty"),
            (
                json!([{"type": "Pod", "qps": 1, "burst": 1}]),
                "limits[0].type: Unsupported value: \"Pod\": supported values: \"Namespace\", \
                 \"Server\", \"SourceAndObject\", \"User\"",
            ),
            (
                json!([{"type": "Server", "qps": 1, "burst": 0, "cacheSize": -1}]),
                "limits[0].burst: Invalid value: 0: must be positive",
            ),
            (
                json!([{"type": "User", "burst": 1, "cacheSize": -1}]),
                "[limits[0].qps: Invalid value: 0: must be positive, limits[0].cacheSize: Invalid \
                 value: -1: must not be negative]",
            ),
        ] {
            assert_eq!(read(limits).err().as_deref(), Some(why));
        }
    }
}
