//! The metrics of encryption (apiserver `storage/value/metrics.go`,
//! `storage/value/encrypt/envelope/metrics` and `server/options/encryptionconfig/metrics`).

use std::collections::VecDeque;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use parking_lot::Mutex;

use crate::telemetry::metrics::{Counter, Declared, FloatGauge, Gauge, Histogram};

use super::TransformError;

/// The maximum number of key ids that each metric of them tells of.
const MAX_KEY_IDS: usize = 100;

static OPERATIONS: Counter = Counter::new(
    "apiserver_storage_transformation_operations_total",
    "[ALPHA] Total number of transformations. Successful transformation will have a status 'OK' and a varied status string when the transformation fails. The status, resource, and transformation_type fields can be used for alerting purposes. For example, you can monitor for encryption/decryption failures using the transformation_type (e.g., from_storage for decryption and to_storage for encryption). Additionally, these fields can be used to ensure that the correct transformers are applied to each resource.",
    &[
        "resource",
        "transformation_type",
        "transformer_prefix",
        "status",
    ],
);
static DURATIONS: Histogram = Histogram::new(
    "apiserver_storage_transformation_duration_seconds",
    "[ALPHA] Latencies in seconds of value transformation operations.",
    &["transformation_type", "transformer_prefix"],
    &[
        5e-6, 1e-5, 2e-5, 4e-5, 8e-5, 0.00016, 0.00032, 0.00064, 0.00128, 0.00256, 0.00512,
        0.01024, 0.02048, 0.04096, 0.08192, 0.16384, 0.32768, 0.65536, 1.31072, 2.62144, 5.24288,
        10.48576, 20.97152, 41.94304, 83.88608,
    ],
);
static CACHE_MISSES: Counter = Counter::new(
    "apiserver_storage_envelope_transformation_cache_misses_total",
    "[ALPHA] Total number of cache misses while accessing key decryption key(KEK).",
    &[],
);
static KEY_FAILURES: Counter = Counter::new(
    "apiserver_storage_data_key_generation_failures_total",
    "[ALPHA] Total number of failed data encryption key(DEK) generation operations.",
    &[],
);
static KEY_GENERATION: Histogram = Histogram::new(
    "apiserver_storage_data_key_generation_duration_seconds",
    "[ALPHA] Latencies in seconds of data encryption key(DEK) generation operations.",
    &[],
    &[
        5e-6, 1e-5, 2e-5, 4e-5, 8e-5, 0.00016, 0.00032, 0.00064, 0.00128, 0.00256, 0.00512,
        0.01024, 0.02048, 0.04096,
    ],
);
static KMS_LATENCY: Histogram = Histogram::new(
    "apiserver_envelope_encryption_kms_operations_latency_seconds",
    "[ALPHA] KMS operation duration with gRPC error code status total.",
    &["provider_name", "method_name", "grpc_status_code"],
    &[
        0.0001, 0.0002, 0.0004, 0.0008, 0.0016, 0.0032, 0.0064, 0.0128, 0.0256, 0.0512, 0.1024,
        0.2048, 0.4096, 0.8192, 1.6384, 3.2768, 6.5536, 13.1072, 26.2144, 52.4288,
    ],
);
static KEY_ID_USES: Counter = Counter::new(
    "apiserver_envelope_encryption_key_id_hash_total",
    "[ALPHA] Number of times a keyID is used split by transformation type, provider, and apiserver identity.",
    &[
        "transformation_type",
        "provider_name",
        "key_id_hash",
        "apiserver_id_hash",
    ],
);
static KEY_ID_LAST_USE: Gauge = Gauge::new(
    "apiserver_envelope_encryption_key_id_hash_last_timestamp_seconds",
    "[ALPHA] The last time in seconds when a keyID was used.",
    &[
        "transformation_type",
        "provider_name",
        "key_id_hash",
        "apiserver_id_hash",
    ],
);
static KEY_ID_LAST_STATUS: Gauge = Gauge::new(
    "apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds",
    "[ALPHA] The last time in seconds when a keyID was returned by the Status RPC call.",
    &["provider_name", "key_id_hash", "apiserver_id_hash"],
);
static INVALID_KEY_IDS: Counter = Counter::new(
    "apiserver_envelope_encryption_invalid_key_id_from_status_total",
    "[ALPHA] Number of times an invalid keyID is returned by the Status RPC call split by error.",
    &["provider_name", "error"],
);
static DEK_SOURCES: Gauge = Gauge::new(
    "apiserver_envelope_encryption_dek_source_cache_size",
    "[ALPHA] Number of records in data encryption key (DEK) source cache. On a restart, this value is an approximation of the number of decrypt RPC calls the server will make to the KMS plugin.",
    &["provider_name"],
);
static DEK_CACHE_FILL: FloatGauge = FloatGauge::new(
    "apiserver_envelope_encryption_dek_cache_fill_percent",
    "[ALPHA] Percent of the cache slots currently occupied by cached DEKs.",
    &[],
);
static RELOADS: Counter = Counter::new(
    "apiserver_encryption_config_controller_automatic_reloads_total",
    "[ALPHA] Total number of reload successes and failures of encryption configuration split by apiserver identity.",
    &["status", "apiserver_id_hash"],
);
static LAST_RELOAD: Gauge = Gauge::new(
    "apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds",
    "[ALPHA] Timestamp of the last successful or failed automatic reload of encryption configuration split by apiserver identity.",
    &["status", "apiserver_id_hash"],
);
static LAST_CONFIG: Gauge = Gauge::new(
    "apiserver_encryption_config_controller_last_config_info",
    "[ALPHA] Information about the last applied encryption configuration with hash as label, split by apiserver identity.",
    &["apiserver_id_hash", "hash"],
);

pub static METRICS: &[&dyn Declared] = &[
    &OPERATIONS,
    &DURATIONS,
    &CACHE_MISSES,
    &KEY_GENERATION,
    &KEY_FAILURES,
    &KMS_LATENCY,
    &KEY_ID_USES,
    &KEY_ID_LAST_USE,
    &KEY_ID_LAST_STATUS,
    &INVALID_KEY_IDS,
    &DEK_CACHE_FILL,
    &DEK_SOURCES,
    &RELOADS,
    &LAST_RELOAD,
    &LAST_CONFIG,
];

/// The key ids that the metrics of use and of status tell of, the oldest first.
static USED: Mutex<VecDeque<[String; 4]>> = Mutex::new(VecDeque::new());
static TOLD: Mutex<VecDeque<[String; 4]>> = Mutex::new(VecDeque::new());

/// A direction of transformation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    FromStorage,
    ToStorage,
}

impl Direction {
    fn label(self) -> &'static str {
        match self {
            Self::FromStorage => "from_storage",
            Self::ToStorage => "to_storage",
        }
    }
}

/// Returns `sha256:` and the hash of a text in hexadecimal; nothing for the empty text.
pub fn hash(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    hash_bytes(text.as_bytes())
}

/// Returns `sha256:` and the hash of bytes in hexadecimal.
pub fn hash_bytes(bytes: &[u8]) -> String {
    let mut out = "sha256:".to_owned();
    for byte in digest(&SHA256, bytes).as_ref() {
        out.push_str(&format!("{byte:02x}"));
    }
    out
}

/// Records a transformation of a value of a resource by the provider with that prefix.
pub fn record_transformation(
    resource: &str,
    direction: Direction,
    prefix: &str,
    elapsed: Duration,
    error: Option<&TransformError>,
) {
    let status = error.map_or("OK", TransformError::status_label);
    OPERATIONS.inc(&[resource, direction.label(), prefix, status]);
    if error.is_none() {
        DURATIONS.observe(&[direction.label(), prefix], elapsed.as_secs_f64());
    }
}

/// Records that the key of a value had to be asked for.
pub fn record_cache_miss() {
    CACHE_MISSES.inc(&[]);
}

/// Records how long it took to make a key.
pub fn record_key_generation(elapsed: Duration) {
    KEY_GENERATION.observe(&[], elapsed.as_secs_f64());
}

/// Records that no key could be made.
pub fn record_key_failure() {
    KEY_FAILURES.inc(&[]);
}

/// Records a call of a plugin.
pub fn record_call(provider: &str, method: &str, code: &str, elapsed: Duration) {
    KMS_LATENCY.observe(&[provider, method, code], elapsed.as_secs_f64());
}

/// Records that a value was transformed with a key of a plugin. `now` is in seconds.
pub fn record_key_id(
    direction: Direction,
    provider: &str,
    key_id: &str,
    server_hash: &str,
    now: i64,
) {
    let labels = [
        direction.label().to_owned(),
        provider.to_owned(),
        hash(key_id),
        server_hash.to_owned(),
    ];
    let values = labels.each_ref().map(String::as_str);
    KEY_ID_USES.inc(&values);
    KEY_ID_LAST_USE.set(&values, now);
    if let Some(forgotten) = remember(&USED, labels) {
        let values = forgotten.each_ref().map(String::as_str);
        KEY_ID_USES.remove(&values);
        KEY_ID_LAST_USE.remove(&values);
    }
}

/// Records the key id that a plugin reports.
pub fn record_key_id_status(provider: &str, key_id: &str, server_hash: &str, now: i64) {
    let key_hash = hash(key_id);
    KEY_ID_LAST_STATUS.set(&[provider, &key_hash, server_hash], now);
    let labels = [
        String::new(),
        provider.to_owned(),
        key_hash,
        server_hash.to_owned(),
    ];
    if let Some([_, provider, key_hash, server_hash]) = remember(&TOLD, labels) {
        KEY_ID_LAST_STATUS.remove(&[&provider, &key_hash, &server_hash]);
    }
}

/// Puts labels behind the others. Returns the oldest if there are too many.
fn remember(all: &Mutex<VecDeque<[String; 4]>>, labels: [String; 4]) -> Option<[String; 4]> {
    let mut all = all.lock();
    match all.iter().position(|known| *known == labels) {
        Some(at) => {
            all.remove(at);
            all.push_back(labels);
            None
        }
        None => {
            all.push_back(labels);
            (all.len() > MAX_KEY_IDS).then(|| all.pop_front()).flatten()
        }
    }
}

/// Records that a plugin reports a key id that cannot be used.
pub fn record_invalid_key_id(provider: &str, error: &str) {
    INVALID_KEY_IDS.inc(&[provider, error]);
}

/// Records how many keys of a plugin are known.
pub fn record_dek_sources(provider: &str, size: u64) {
    DEK_SOURCES.set(&[provider], i64::try_from(size).unwrap_or(i64::MAX));
}

/// Records the part of the keys of a plugin of version 1 that are known, from 0 to 1.
pub fn record_dek_cache_fill(part: f64) {
    DEK_CACHE_FILL.set(&[], part);
}

/// Records the configuration that a server uses, in place of the one before.
pub fn record_configuration(server_hash: &str, hash: &str, before: Option<&str>) {
    if let Some(before) = before.filter(|before| *before != hash) {
        LAST_CONFIG.remove(&[server_hash, before]);
    }
    LAST_CONFIG.set(&[server_hash, hash], 1);
}

/// Records an attempt to reload the configuration. `now` is in seconds.
pub fn record_reload(server_hash: &str, succeeded: bool, now: i64) {
    let status = if succeeded { "success" } else { "failure" };
    RELOADS.inc(&[status, server_hash]);
    LAST_RELOAD.set(&[status, server_hash], now);
}
