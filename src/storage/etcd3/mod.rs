//! The store in an etcd cluster, with the transactions and leases that kube-apiserver uses on it.
//! Keys come complete.

mod channel;
mod error;
pub mod export;
mod lease;
pub mod metrics;
mod traced;
mod version;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use bytes::Bytes;
use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, GetOptions, Identity, KeyValue,
    KvClient, PutOptions, TlsOptions,
};
use etcd_client::{TxnOp, TxnOpResponse, TxnResponse, WatchClient};
use tokio::time::{sleep, timeout};

use self::error::{interpret, lease_is_gone, was_never_sent};
use self::lease::Leases;
use self::metrics::Method;
use super::{
    ListPage, ListRequest, Result, Revision, Storage, StorageError, Stored, WatchStream,
    WriteOutcome,
};
use crate::base::dial::{Egress, Network};
use crate::base::supervise::FailureTracker;
use crate::telemetry::latency::{Layer, measure};

/// Timeout of establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Silence on a connection after which it is probed, and how long the probe may take
/// (kube-apiserver's: `storagebackend/factory/etcd3.go`).
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a read or write of one key, or of a lease request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of one chunk of a list.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of a compaction.
const COMPACT_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of a health check (`--etcd-healthcheck-timeout`'s default).
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of attempts of a request that may be repeated.
const ATTEMPTS: u32 = 4;
/// The pause before the second attempt; doubles with each one after that.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Items of an unlimited list that are read at once.
const LIST_CHUNK: i64 = 10_000;
/// The largest answer that is read: as much as gRPC has.
const MAX_ANSWER_BYTES: usize = i32::MAX as usize;
/// The key whose reading shows that etcd works (kube-apiserver's health check reads it, too).
/// Nobody writes it.
const HEALTH_KEY: &str = "health";

/// The addresses of etcd and the credentials for it.
#[derive(Clone, Debug)]
pub struct Config {
    /// `http://host:port` or `https://host:port`, one for each member.
    pub endpoints: Vec<String>,
    /// PEM with the authorities that etcd's certificate may come from; needed for https.
    pub ca_file: Option<PathBuf>,
    /// PEM with the certificate to show, and its key.
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
    pub connect_timeout: Duration,
    pub request_timeout: Duration,
    pub health_timeout: Duration,
    /// Maximum delay of a key's expiry, so that many keys can share a lease.
    pub lease_reuse: Duration,
    /// The ways out of this server, of which etcd's counts.
    pub egress: Egress,
    /// True if calls have spans.
    pub traced: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            ca_file: None,
            cert_file: None,
            key_file: None,
            connect_timeout: CONNECT_TIMEOUT,
            request_timeout: REQUEST_TIMEOUT,
            health_timeout: HEALTH_TIMEOUT,
            lease_reuse: lease::REUSE_MAX,
            egress: Egress::default(),
            traced: false,
        }
    }
}

impl Config {
    /// The TLS options; `None` if no endpoint is https.
    fn tls(&self) -> Result<Option<TlsOptions>> {
        if !self.endpoints.iter().any(|e| e.starts_with("https://")) {
            return Ok(None);
        }
        let read = |path: &PathBuf| {
            std::fs::read(path)
                .map_err(|e| StorageError::Internal(format!("cannot read {}: {e}", path.display())))
        };
        let mut tls = TlsOptions::new();
        if let Some(ca) = &self.ca_file {
            tls = tls.ca_certificate(Certificate::from_pem(read(ca)?));
        }
        if let (Some(cert), Some(key)) = (&self.cert_file, &self.key_file) {
            tls = tls.identity(Identity::from_pem(read(cert)?, read(key)?));
        }
        Ok(Some(tls))
    }
}

/// The clients that share the connections to a cluster.
struct Clients {
    all: Client,
    kv: KvClient,
    watch: WatchClient,
}

impl Clients {
    async fn open(config: &Config) -> Result<Self> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(config.connect_timeout)
            .with_keep_alive(KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT)
            .with_keep_alive_while_idle(true)
            .with_require_leader(true);
        let opened = match config.egress.dialer(Network::Etcd) {
            Some(dialer) => {
                let channel = channel::open(config, dialer)?;
                let channel = match config.traced {
                    true => traced::calls(channel),
                    false => channel,
                };
                Client::from_channel(channel, Some(options)).await
            }
            None => {
                if let Some(tls) = config.tls()? {
                    options = options.with_tls(tls);
                }
                let (endpoints, options) = (&config.endpoints, Some(options));
                match config.traced {
                    true => {
                        let traced = traced::TracedChannel;
                        Client::connect_with_balanced_channel(endpoints, options, traced).await
                    }
                    false => Client::connect(endpoints, options).await,
                }
            }
        };
        let all = opened.map_err(|e| interpret(&e, 0))?;
        Ok(Self {
            kv: all.kv_client().max_decoding_message_size(MAX_ANSWER_BYTES),
            watch: all
                .watch_client()
                .max_decoding_message_size(MAX_ANSWER_BYTES),
            all,
        })
    }
}

/// The latest revision that etcd is known to have had.
#[derive(Debug, Default)]
struct LatestRevision(AtomicI64);

impl LatestRevision {
    fn get(&self) -> Revision {
        self.0.load(Ordering::Acquire)
    }

    fn record(&self, revision: Revision) {
        self.0.fetch_max(revision, Ordering::AcqRel);
    }
}

/// The store in etcd.
pub struct Etcd3 {
    config: Config,
    clients: Arc<ArcSwap<Clients>>,
    leases: Leases,
    /// Counts the requests for progress; every watch follows it.
    asked: tokio::sync::watch::Sender<u64>,
    /// Not set back where etcd is restored: whoever goes on from a later revision than etcd has
    /// must learn that.
    latest: Arc<LatestRevision>,
    /// True if etcd can be reached.
    link: Arc<FailureTracker>,
    /// True if every member whose version is known reports the progress of watches reliably.
    reliable: AtomicBool,
    request_timeout: Duration,
    health_timeout: Duration,
}

impl Etcd3 {
    /// A client of the cluster. Connections come up when they are needed, so this fails for bad
    /// configuration only; [`Storage::check_health`] reports whether etcd is available.
    ///
    /// # Errors
    /// A bad configuration.
    pub async fn connect(config: Config) -> Result<Self> {
        Ok(Self {
            clients: Arc::new(ArcSwap::from_pointee(Clients::open(&config).await?)),
            leases: Leases::new(config.lease_reuse),
            asked: tokio::sync::watch::Sender::new(0),
            latest: Arc::default(),
            link: Arc::new(FailureTracker::new(format!(
                "reaching etcd at {}",
                config.endpoints.join(", ")
            ))),
            reliable: AtomicBool::new(true),
            request_timeout: config.request_timeout,
            health_timeout: config.health_timeout,
            config,
        })
    }

    /// Reads the files of the configuration again. Requests, and watches when they break off, go
    /// over new connections from now on; what is under way ends on the old ones.
    ///
    /// # Errors
    /// Files that cannot be used; then nothing is changed.
    pub async fn reconnect(&self) -> Result<()> {
        self.clients
            .store(Arc::new(Clients::open(&self.config).await?));
        Ok(())
    }

    /// Asks the members for their versions. Those of versions that may say too much of the progress
    /// of watches make reads of the latest state go to etcd; those that do not answer count as
    /// good.
    pub async fn check_versions(&self) {
        let check = |endpoint: &String| {
            let config = Config {
                endpoints: vec![endpoint.clone()],
                ..self.config.clone()
            };
            async move {
                let asked = timeout(config.health_timeout, async {
                    Clients::open(&config)
                        .await
                        .ok()?
                        .all
                        .maintenance_client()
                        .status()
                        .await
                        .ok()
                });
                let version = asked.await.ok().flatten()?.version().to_owned();
                (!version::has_reliable_progress(&version))
                    .then(|| (config.endpoints.join(""), version))
            }
        };
        for (endpoint, version) in
            futures::future::join_all(self.config.endpoints.iter().map(check))
                .await
                .into_iter()
                .flatten()
        {
            tracing::warn!(
                "etcd {version} at {endpoint} may tell wrongly how far its watches are: reads of the latest state are not served from \
                 memory; 3.4.31, 3.5.13 and later ones do not"
            );
            self.reliable.store(false, Ordering::Release);
        }
    }

    /// Takes note of whether etcd could be reached.
    fn note<T>(&self, outcome: Result<T>) -> Result<T> {
        match &outcome {
            Err(StorageError::Unavailable(why)) => self.link.record_failure(why),
            _ => self.link.record_success(),
        }
        outcome
    }

    fn kv(&self) -> KvClient {
        self.clients.load().kv.clone()
    }

    /// One read, repeated while etcd is away.
    async fn range(
        &self,
        key: &[u8],
        options: GetOptions,
        asked: Revision,
        limit: Duration,
    ) -> Result<etcd_client::GetResponse> {
        let send = || {
            let (mut kv, key, options) = (self.kv(), key.to_vec(), options.clone());
            async move { Method::Range.count(kv.get(key, Some(options))).await }
        };
        let answer = self.note(repeat(limit, |_| true, asked, send).await)?;
        self.latest
            .record(answer.header().map_or(0, |header| header.revision()));
        Ok(answer)
    }

    /// Makes `change` if `key` is at `expected`, else returns its current value.
    async fn conditional(
        &self,
        key: &str,
        expected: Revision,
        change: impl Fn() -> TxnOp,
    ) -> std::result::Result<TxnResponse, Attempt> {
        attempt(self.request_timeout, was_never_sent, || {
            let mut kv = self.kv();
            let txn = etcd_client::Txn::new()
                .when([Compare::mod_revision(key, CompareOp::Equal, expected)])
                .and_then([change()])
                .or_else([TxnOp::get(key, None)]);
            async move { Method::Txn.count(kv.txn(txn)).await }
        })
        .await
    }

    async fn put(
        &self,
        key: &str,
        value: Bytes,
        expected: Revision,
        ttl: Option<Duration>,
    ) -> Result<WriteOutcome> {
        let mut again = true;
        loop {
            let mut lease = 0;
            if let Some(ttl) = ttl {
                let mut client = self.clients.load().all.lease_client();
                let granted = timeout(self.request_timeout, self.leases.get(&mut client, ttl))
                    .await
                    .map_err(|_| timed_out())?;
                lease = granted.map_err(|e| interpret(&e, 0))?;
            }
            let put = || TxnOp::put(key, &*value, Some(PutOptions::new().with_lease(lease)));
            match self.conditional(key, expected, put).await {
                // etcd was restored, or the lease was revoked: a new one will do.
                Err(Attempt::Failed(e)) if again && ttl.is_some() && lease_is_gone(&e) => {
                    self.leases.forget().await;
                    again = false;
                }
                outcome => return self.outcome(outcome),
            }
        }
    }

    /// The outcome of a conditional change.
    fn outcome(&self, answer: std::result::Result<TxnResponse, Attempt>) -> Result<WriteOutcome> {
        let answer = self.note(answer.map_err(|e| e.interpret(0)))?;
        self.latest
            .record(answer.header().map_or(0, |header| header.revision()));
        outcome_of(&answer)
    }

    /// The future revision with the current one, if that can be had.
    async fn with_current(&self, error: StorageError) -> StorageError {
        match error {
            StorageError::FutureRevision { asked, .. } => match self.current_revision().await {
                Ok(current) => StorageError::FutureRevision { asked, current },
                Err(error) => error,
            },
            error => error,
        }
    }

    async fn chunk(
        &self,
        start: &[u8],
        end: &[u8],
        limit: i64,
        at: Revision,
    ) -> Result<etcd_client::GetResponse> {
        let options = GetOptions::new()
            .with_range(end)
            .with_limit(limit)
            .with_revision(at);
        match self.range(start, options, at, LIST_TIMEOUT).await {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.with_current(error).await),
        }
    }
}

/// The reason an attempt failed.
enum Attempt {
    TimedOut,
    Failed(etcd_client::Error),
}

impl Attempt {
    fn interpret(self, asked: Revision) -> StorageError {
        match self {
            Self::TimedOut => timed_out(),
            Self::Failed(error) => interpret(&error, asked),
        }
    }
}

fn timed_out() -> StorageError {
    StorageError::Unavailable("etcd does not answer in time".into())
}

/// Sends a request, and again if etcd is away and `repeatable` allows, all within `limit`.
async fn attempt<T, F>(
    limit: Duration,
    repeatable: impl Fn(&etcd_client::Error) -> bool,
    send: impl Fn() -> F,
) -> std::result::Result<T, Attempt>
where
    F: Future<Output = std::result::Result<T, etcd_client::Error>>,
{
    let all = async {
        let mut tried = 1;
        loop {
            match send().await {
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    let away = matches!(interpret(&error, 0), StorageError::Unavailable(_));
                    if tried == ATTEMPTS || !away || !repeatable(&error) {
                        return Err(Attempt::Failed(error));
                    }
                    metrics::retried(&error);
                    sleep(RETRY_PAUSE * (1 << (tried - 1))).await;
                    tried += 1;
                }
            }
        }
    };
    let answer = measure(Layer::Storage, timeout(limit, all)).await;
    answer.unwrap_or(Err(Attempt::TimedOut))
}

/// [`attempt`] with the error interpreted.
async fn repeat<T, F>(
    limit: Duration,
    repeatable: impl Fn(&etcd_client::Error) -> bool,
    asked: Revision,
    send: impl Fn() -> F,
) -> Result<T>
where
    F: Future<Output = std::result::Result<T, etcd_client::Error>>,
{
    attempt(limit, repeatable, send)
        .await
        .map_err(|e| e.interpret(asked))
}

fn outcome_of(answer: &TxnResponse) -> Result<WriteOutcome> {
    if answer.succeeded() {
        return Ok(WriteOutcome::Committed(
            answer.header().map_or(0, |h| h.revision()),
        ));
    }
    match answer.op_responses().into_iter().next() {
        Some(TxnOpResponse::Get(mut found)) => Ok(WriteOutcome::Conflict(
            found
                .take_kvs()
                .into_iter()
                .next()
                .map(stored)
                .transpose()?,
        )),
        _ => Err(StorageError::Internal(
            "etcd's answer to a transaction has no value in it".into(),
        )),
    }
}

fn stored(kv: KeyValue) -> Result<Stored> {
    let (created, written) = (kv.create_revision(), kv.mod_revision());
    let (key, value) = kv.into_key_value();
    stored_from(key, value.into(), created, written)
}

fn stored_from(
    key: Vec<u8>,
    value: Bytes,
    create_revision: Revision,
    mod_revision: Revision,
) -> Result<Stored> {
    Ok(Stored {
        key: text(key)?,
        value,
        create_revision,
        mod_revision,
    })
}

fn text(key: Vec<u8>) -> Result<String> {
    String::from_utf8(key)
        .map_err(|e| StorageError::Internal(format!("the key {:?} is not UTF-8", e.as_bytes())))
}

/// The first key that etcd is asked for: it takes no empty one.
fn range_start(prefix: &str) -> Vec<u8> {
    if prefix.is_empty() {
        vec![0]
    } else {
        prefix.into()
    }
}

/// The first key behind all that begin with `prefix`, as etcd wants it; a zero byte stands for the
/// end of all keys.
fn range_end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    match end.last_mut() {
        // UTF-8 has no byte 0xff.
        Some(last) => *last += 1,
        None => end.push(0),
    }
    end
}

#[async_trait]
impl Storage for Etcd3 {
    async fn get(&self, key: &str) -> Result<Option<Stored>> {
        Ok(self.get_with_revision(key).await?.0)
    }

    async fn get_with_revision(&self, key: &str) -> Result<(Option<Stored>, Revision)> {
        let mut answer = self
            .range(key.as_bytes(), GetOptions::new(), 0, self.request_timeout)
            .await?;
        let revision = answer.header().map_or(0, |h| h.revision());
        Ok((
            answer
                .take_kvs()
                .into_iter()
                .next()
                .map(stored)
                .transpose()?,
            revision,
        ))
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        let mut page = ListPage {
            revision: request.revision.unwrap_or(0),
            ..ListPage::default()
        };
        let mut start = range_start(request.start.as_str().max(request.prefix.as_str()));
        let end = range_end(&request.prefix);
        let limit = if request.limit == 0 {
            LIST_CHUNK
        } else {
            i64::try_from(request.limit).unwrap_or(i64::MAX)
        };
        loop {
            let mut answer = self.chunk(&start, &end, limit, page.revision).await?;
            if page.items.is_empty() {
                page.count = answer.count();
            }
            if page.revision == 0 {
                page.revision = answer.header().map_or(0, |h| h.revision());
            }
            page.more = answer.more();
            for kv in answer.take_kvs() {
                page.items.push(stored(kv)?);
            }
            match page.items.last() {
                Some(last) if page.more && request.limit == 0 => {
                    start = super::next_key(&last.key).into_bytes()
                }
                _ => break,
            }
        }
        Ok(page)
    }

    async fn create(&self, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<WriteOutcome> {
        self.put(key, value, 0, ttl).await
    }

    async fn update(
        &self,
        key: &str,
        value: Bytes,
        expected: Revision,
        ttl: Option<Duration>,
    ) -> Result<WriteOutcome> {
        self.put(key, value, expected, ttl).await
    }

    async fn delete(&self, key: &str, expected: Revision) -> Result<WriteOutcome> {
        if expected == 0 {
            // To etcd, deleting nothing is a success.
            return Ok(WriteOutcome::Conflict(self.get(key).await?));
        }
        let outcome = self
            .conditional(key, expected, || TxnOp::delete(key, None))
            .await;
        self.outcome(outcome)
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<WatchStream> {
        Ok(watch::open(
            self.clients.clone(),
            prefix,
            after,
            true,
            self.asked.subscribe(),
            self.latest.clone(),
            self.link.clone(),
        )
        .changes())
    }

    async fn watch_without_previous(&self, prefix: &str, after: Revision) -> Result<WatchStream> {
        let mut watch = watch::open(
            self.clients.clone(),
            prefix,
            after,
            false,
            self.asked.subscribe(),
            self.latest.clone(),
            self.link.clone(),
        );
        watch.begin().await;
        Ok(watch.changes())
    }

    fn has_reliable_progress(&self) -> bool {
        self.reliable.load(Ordering::Acquire)
    }

    async fn request_progress(&self) -> Result<()> {
        self.asked.send_modify(|n| *n += 1);
        Ok(())
    }

    async fn current_revision(&self) -> Result<Revision> {
        let answer = self
            .range(
                HEALTH_KEY.as_bytes(),
                GetOptions::new().with_count_only(),
                0,
                self.request_timeout,
            )
            .await?;
        Ok(answer.header().map_or(0, |h| h.revision()))
    }

    async fn compact(&self, revision: Revision) -> Result<()> {
        let compacted = repeat(COMPACT_TIMEOUT, was_never_sent, revision, || {
            let mut kv = self.kv();
            async move { Method::Compact.count(kv.compact(revision, None)).await }
        });
        match compacted.await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.with_current(error).await),
        }
    }

    async fn check_health(&self) -> Result<()> {
        let mut kv = self.kv();
        let read = timeout(
            self.health_timeout,
            Method::Range.count(kv.get(HEALTH_KEY, None)),
        )
        .await;
        self.note(
            read.map_err(|_| timed_out())
                .and_then(|answer| answer.map(drop).map_err(|e| interpret(&e, 0))),
        )
    }

    async fn size(&self) -> Result<u64> {
        let mut maintenance = self.clients.load().all.maintenance_client();
        let status = Method::Status.count(maintenance.status());
        let status = timeout(self.request_timeout, status).await;
        let status = status.map_err(|_| timed_out())?;
        let bytes = status.map_err(|error| interpret(&error, 0))?.db_size();
        Ok(u64::try_from(bytes).unwrap_or(0))
    }

    fn check_integrity(&self) -> Result<()> {
        // etcd checks its own members.
        Ok(())
    }
}
