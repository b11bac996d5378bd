//! A plugin on a Unix socket that signs service account tokens and knows the keys that verify them
//! (kubernetes `serviceaccount/externaljwt/plugin`).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Deserialize;
use tokio::sync::Mutex;
use tonic::Status;
use tonic::transport::Channel;

use super::keys::{KeySet, VerifyingKey};
use crate::base::allowance::Allowance;
use crate::base::clock::Clock;
use crate::base::grpc::{self, code_of, error_text};
use crate::meta::Map;
use crate::telemetry::metrics::{Counter, Declared, Gauge, Histogram};

use generated::external_jwt_signer_client::ExternalJwtSignerClient;
use generated::{FetchKeysRequest, FetchKeysResponse, MetadataRequest, SignJwtRequest};

#[allow(clippy::all, dead_code)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/v1.rs"));
}

/// The time in which keys must be there.
const FETCH_TIMEOUT: Duration = Duration::from_secs(60);
/// The time in which the plugin must tell about itself.
const METADATA_TIMEOUT: Duration = Duration::from_secs(10);
/// The time that a signature may take; a request has no longer either.
const SIGN_TIMEOUT: Duration = Duration::from_secs(60);
/// The time after which keys that could not be fetched are fetched again (upstream
/// `fallbackRefreshDuration`).
const FALLBACK_REFRESH: Duration = Duration::from_secs(10);
/// The shortest lifetime that a plugin may support.
const MIN_TOKEN_SECONDS: i64 = 10 * 60;
/// The length of a key's name.
const MAX_KEY_ID: usize = 1024;
/// The keys of a plugin.
const MAX_KEYS: usize = 1024;
/// The size of an answer.
const MAX_ANSWER_BYTES: usize = 4 << 20;
/// The fetches that tokens with unknown keys may cause at once, and the time in which each is
/// allowed again.
const MAX_FETCHES: u32 = 10;
const FETCH_INTERVAL: Duration = Duration::from_secs(1);

static FETCHED_AT: Gauge = Gauge::new(
    "apiserver_externaljwt_fetch_keys_success_timestamp",
    "[ALPHA] Unix Timestamp in seconds of the last successful FetchKeys request",
    &[],
);
static DATA_TIMESTAMP: Gauge = Gauge::new(
    "apiserver_externaljwt_fetch_keys_data_timestamp",
    "[ALPHA] Unix Timestamp in seconds of the last successful FetchKeys data_timestamp value returned by the external signer",
    &[],
);
static FETCHES: Counter = Counter::new(
    "apiserver_externaljwt_fetch_keys_request_total",
    "[ALPHA] Total attempts at syncing supported JWKs",
    &["code"],
);
static SIGNATURES: Counter = Counter::new(
    "apiserver_externaljwt_sign_request_total",
    "[ALPHA] Total attempts at signing JWT",
    &["code"],
);
static SECONDS: Histogram = Histogram::new(
    "apiserver_externaljwt_request_duration_seconds",
    "[ALPHA] Request duration and time for calls to external-jwt-signer",
    &["method", "code"],
    &[
        0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    ],
);

pub static METRICS: &[&dyn Declared] = &[
    &FETCHED_AT,
    &DATA_TIMESTAMP,
    &FETCHES,
    &SIGNATURES,
    &SECONDS,
];

/// The keys of a plugin as they were fetched.
#[derive(Clone, Default)]
struct Known {
    all: KeySet,
    /// Those that the discovery documents show.
    shown: KeySet,
    /// The names of the others.
    hidden: HashSet<String>,
    refresh: Duration,
    version: u64,
}

/// The plugin.
pub struct ExternalSigner {
    client: ExternalJwtSignerClient<Channel>,
    known: ArcSwap<Known>,
    allowance: Allowance,
    /// Held by the one who fetches.
    fetching: Mutex<()>,
    max_seconds: i64,
}

impl ExternalSigner {
    /// Connects to the plugin on a socket, and asks for its keys.
    ///
    /// # Errors
    /// It does not answer in time, or not with what it should.
    pub async fn connect(socket: &str) -> Result<Arc<Self>, String> {
        let failed = |why: String| format!("while setting up external-jwt-signer: {why}");
        let channel = grpc::channel(&path_of(socket))
            .map_err(|why| failed(format!("while dialing grpc socket at {socket:?}: {why}")))?;
        let client =
            ExternalJwtSignerClient::new(channel).max_decoding_message_size(MAX_ANSWER_BYTES);
        let mut signer = Self {
            client,
            known: ArcSwap::default(),
            allowance: Allowance::new(MAX_FETCHES, FETCH_INTERVAL),
            fetching: Mutex::default(),
            max_seconds: 0,
        };
        signer.fetch().await.map_err(|why| {
            failed(format!(
                "while initially filling key cache: while performing initial cache fill: {why}"
            ))
        })?;
        signer.max_seconds = signer.metadata().await.map_err(failed)?;
        if signer.max_seconds < MIN_TOKEN_SECONDS {
            return Err(format!(
                "max token life supported by external-jwt-signer ({}s) is less than acceptable (min {MIN_TOKEN_SECONDS}s)",
                signer.max_seconds
            ));
        }
        Ok(Arc::new(signer))
    }

    /// The longest lifetime of a token, in seconds.
    pub fn max_seconds(&self) -> i64 {
        self.max_seconds
    }

    /// The keys that the discovery documents show.
    pub fn shown_keys(&self) -> KeySet {
        self.known.load().shown.clone()
    }

    /// Returns the keys that a token may be signed with that names one of them; where it is
    /// unknown, the plugin is asked.
    pub async fn keys(&self, id: &str) -> KeySet {
        let known = self.known.load_full();
        if known.all.candidates(id).next().is_some() {
            return known.all.clone();
        }
        let _fetching = self.fetching.lock().await;
        let current = self.known.load_full();
        if current.version == known.version
            && self.allowance.take()
            && let Err(why) = self.fetch().await
        {
            tracing::error!("Error while syncing keys: {why}");
        }
        self.known.load().all.clone()
    }

    /// Returns a token with these claims.
    ///
    /// # Errors
    /// Upstream's text: the plugin does not sign, or with a key that nobody could know.
    pub async fn sign(&self, claims: &Map) -> Result<String, String> {
        let payload = serde_json::to_vec(claims).map_err(|why| why.to_string())?;
        let payload = BASE64_URL_SAFE_NO_PAD.encode(payload);
        let request = SignJwtRequest {
            claims: payload.clone(),
        };
        let call = || {
            let (mut client, request) = (self.client.clone(), request.clone());
            async move { client.sign(request).await }
        };
        let answer = call_within(SIGN_TIMEOUT, "Sign", call).await;
        SIGNATURES.inc(&[code_of(&answer)]);
        let answer = answer
            .map_err(|why| format!("while signing jwt: {}", error_text(&why)))?
            .into_inner();
        self.check_header(&answer.header)
            .await
            .map_err(|why| format!("while validating header: {why}"))?;
        if answer.signature.is_empty() {
            return Err("empty signature returned".to_owned());
        }
        Ok(format!("{}.{payload}.{}", answer.header, answer.signature))
    }

    async fn check_header(&self, header: &str) -> Result<(), String> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Header {
            #[serde(default)]
            alg: String,
            #[serde(default)]
            kid: String,
            #[serde(default)]
            typ: String,
        }
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(header);
        let bytes = bytes.map_err(|why| format!("while unwrapping header: {why}"))?;
        let header: Header = serde_json::from_slice(&bytes)
            .map_err(|why| format!("while parsing header JSON: {why}"))?;
        if header.typ != "JWT" {
            return Err("bad type".to_owned());
        }
        if header.kid.is_empty() {
            return Err("key id missing".to_owned());
        }
        if header.kid.len() > MAX_KEY_ID {
            return Err("key id longer than 1 kb".to_owned());
        }
        if !matches!(header.alg.as_str(), "RS256" | "ES256" | "ES384" | "ES512") {
            return Err(format!("bad signing algorithm {:?}", header.alg));
        }
        self.keys(&header.kid).await;
        match self.known.load().hidden.contains(&header.kid) {
            true => Err(format!(
                "key used for signing JWT (kid: {}) is excluded from OIDC discovery docs",
                header.kid
            )),
            false => Ok(()),
        }
    }

    async fn metadata(&self) -> Result<i64, String> {
        let call = || {
            let mut client = self.client.clone();
            async move { client.metadata(MetadataRequest {}).await }
        };
        let answer = call_within(METADATA_TIMEOUT, "Metadata", call).await;
        let answer = answer.map_err(|why| error_text(&why))?;
        Ok(answer.into_inner().max_token_expiration_seconds)
    }

    /// Fetches the keys.
    async fn fetch(&self) -> Result<(), String> {
        let failed = |why: String| format!("while fetching token verification keys: {why}");
        let call = || {
            let mut client = self.client.clone();
            async move { client.fetch_keys(FetchKeysRequest {}).await }
        };
        let answer = call_within(FETCH_TIMEOUT, "FetchKeys", call).await;
        FETCHES.inc(&[code_of(&answer)]);
        let answer = answer.map_err(|why| {
            let why = error_text(&why);
            failed(format!(
                "while getting externally supported jwt signing keys: {why}"
            ))
        })?;
        let answer = answer.into_inner();
        let known = read(&answer, self.known.load().version + 1).map_err(failed)?;
        self.known.store(Arc::new(known));
        FETCHED_AT.set(&[], Clock::system().now().as_second());
        DATA_TIMESTAMP.set(&[], answer.data_timestamp.map_or(0, |time| time.seconds));
        Ok(())
    }

    /// Fetches the keys again whenever the plugin wants it, and calls `changed` each time.
    pub async fn follow(self: Arc<Self>, changed: impl Fn(KeySet) + Send + Sync) {
        let mut pause = self.known.load().refresh;
        loop {
            tokio::time::sleep(pause).await;
            let _fetching = self.fetching.lock().await;
            pause = match self.fetch().await {
                Ok(()) => {
                    changed(self.shown_keys());
                    self.known.load().refresh
                }
                Err(why) => {
                    tracing::error!(
                        "when syncing supported public keys(Stale set of keys will be supported): {why}"
                    );
                    FALLBACK_REFRESH
                }
            };
        }
    }
}

/// Reads the keys of a plugin.
fn read(answer: &FetchKeysResponse, version: u64) -> Result<Known, String> {
    let seconds = answer.refresh_hint_seconds;
    let refresh = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
    let refresh = refresh.ok_or_else(|| format!("found invalid refresh hint ({seconds}s)"))?;
    if answer.keys.is_empty() {
        return Err("found no keys".to_owned());
    }
    if answer.keys.len() > MAX_KEYS {
        return Err(format!("found more than {MAX_KEYS} keys"));
    }
    if answer.data_timestamp.is_none() {
        return Err("invalid data timestamp: proto: invalid nil Timestamp".to_owned());
    }
    let mut known = Known {
        refresh: Duration::from_secs(refresh),
        version,
        ..Known::default()
    };
    for key in &answer.keys {
        if key.key_id.is_empty() || key.key_id.len() > MAX_KEY_ID {
            return Err(format!("found invalid public key id {:?}", key.key_id));
        }
        if key.key.is_empty() {
            return Err("found empty public key".to_owned());
        }
        let parsed = VerifyingKey::named(&key.key_id, &key.key)
            .map_err(|why| format!("while parsing external public keys: {why}"))?;
        match key.exclude_from_oidc_discovery {
            true => drop(known.hidden.insert(key.key_id.clone())),
            false => known.shown.push(parsed.clone()),
        }
        known.all.push(parsed);
    }
    Ok(known)
}

/// The path of a socket, which begins with a zero byte if it is an abstract one.
fn path_of(socket: &str) -> String {
    match socket.strip_prefix('@') {
        Some(name) => format!("\0{name}"),
        None => socket.to_owned(),
    }
}

/// Makes a call, and measures it.
async fn call_within<T, F: Future<Output = Result<T, Status>> + Send>(
    timeout: Duration,
    method: &str,
    call: impl Fn() -> F + Send + Sync,
) -> Result<T, Status> {
    let start = Instant::now();
    let outcome = grpc::call_within(timeout, call).await;
    let method = format!("/v1.ExternalJWTSigner/{method}");
    let code = code_of(&outcome);
    SECONDS.observe(&[&method, code], start.elapsed().as_secs_f64());
    outcome
}
