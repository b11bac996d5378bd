//! The life of a server: command line, store, identity, handler, listener, shutdown.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::num::NonZero;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use super::auditing;
use super::build::{BuildError, BuiltServer, build_server, hostname};
use super::encryption::Encryption;
use super::filters::HandlerChain;
use super::health;
use super::limits;
use super::listener::Listener;
use super::local_store;
use super::metrics;
use super::reload::{self, Reloader, SighupListener};
use super::shutdown::{Shutdown, Signals};
use super::storage_overrides::{Backend, StorageOverrides};
use super::tls::{self, TlsError};
use crate::audit::Auditor;
use crate::auth::authn::service_account::Issuer;
use crate::base::backoff::Backoff;
use crate::base::clock::Clock;
use crate::base::dial::{Egress, Network};
use crate::base::supervise::{FailureTracker, catch_panic};
use crate::builtin;
use crate::cacher::Reflector;
use crate::controllers::{self, ControllerDeps};
use crate::controlplane::bootstrap;
use crate::controlplane::endpoint_reconciler::EndpointReconciler;
use crate::controlplane::informer::Informers;
use crate::discovery::version;
use crate::egress;
use crate::etcd_stand_in::{self, Handover};
use crate::meta::tree::STACK_BYTES;
use crate::options::certificates::{self, Admin, CertError, Identity};
use crate::options::config::{Config, MIN_WORKER_THREADS, StorageConfig};
use crate::options::data_dir;
use crate::options::flags::{self, Command, FlagError, Flags};
use crate::options::own_files::OwnFiles;
use crate::options::tracing as tracing_file;
use crate::registry::store::DefaultingStorage;
use crate::schema;
use crate::storage::compaction::Compactor;
use crate::storage::embedded::{Embedded, Medium};
use crate::storage::encryption::{EncryptedStorage, Transformers};
use crate::storage::etcd3::{self, Etcd3};
use crate::storage::{Storage, StorageError};
use crate::telemetry::health::Health;
use crate::telemetry::{metric_options, panics, trace};

/// The time that blocking work has left when everything else has ended.
const LAST_TIMEOUT: Duration = Duration::from_secs(5);

/// The time that connections have to close where requests have finished before (apiserver
/// `server/genericapiserver.go`).
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The wait before an etcd that does not answer is asked again; doubles with each attempt.
const ETCD_PAUSE: Duration = Duration::from_millis(200);
/// The longest wait before that.
const ETCD_PAUSE_MAX: Duration = Duration::from_secs(5);

/// An error that ends a server, or keeps it from starting.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Flags(#[from] FlagError),
    #[error(transparent)]
    Cert(#[from] CertError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("{0}")]
    Storage(#[from] StorageError),
    #[error("{0}")]
    Encryption(String),
    #[error("{0}")]
    Audit(String),
    #[error("{0}")]
    Egress(String),
    #[error("{0}")]
    Traces(String),
    #[error("listening on {address}: {source}")]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error("the server does not become ready: {0}")]
    NotReady(String),
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// The dependencies that a server is built of.
#[derive(Clone)]
pub struct ServerDeps {
    pub config: Arc<Config>,
    pub identity: Arc<Identity>,
    /// The address that the rest of the cluster reaches this server at.
    pub advertise: SocketAddr,
    pub storage: Arc<dyn Storage>,
    /// The reflector of the watch caches; `None` where the operator wants none.
    pub reflector: Option<Arc<Reflector>>,
    /// The stores of single resources.
    pub storage_overrides: StorageOverrides,
    pub health: Arc<Health>,
    /// `None` if nothing is audited.
    pub auditor: Option<Arc<Auditor>>,
    pub tracer: trace::Tracer,
    pub shutdown: Shutdown,
    /// The ways to other servers.
    pub egress: Egress,
}

/// Runs the server with `args` (without argv[0]) until a signal arrives.
pub fn main(args: impl IntoIterator<Item = String>) -> ExitCode {
    let outcome = match flags::parse(args) {
        Ok(Command::Help) => writeln!(io::stdout(), "{}", flags::Help).map_err(RunError::from),
        Ok(Command::Version) => {
            writeln!(io::stdout(), "{}", version::line()).map_err(RunError::from)
        }
        Ok(Command::Run(flags)) => start(&flags),
        Err(why) => Err(why.into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // If even stderr is gone there is nobody left to tell.
            let _ = writeln!(io::stderr(), "Error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn start(flags: &Flags) -> Result<(), RunError> {
    let config = Config::from_flags(flags)?;
    crate::telemetry::log::start(config.log.verbosity, config.log.json);
    tracing::info!("{}", version::line());
    log_flags(flags, &config);
    panics::install();
    tracing::debug!("up to {} files may be open", limits::raise_descriptors());
    let runtime = runtime(config.worker_threads)?;
    let shutdown = Shutdown::new();
    let (leaving, timeout) = (config.shutdown.clone(), config.requests.timeout);
    {
        // From here on a signal is an orderly end.
        let _context = runtime.enter();
        let shutdown = shutdown.clone();
        runtime.spawn(shutdown.on_signals(Signals::new(), leaving, timeout));
    }
    // Not on this thread, whose stack is the system's.
    let outcome = runtime.block_on(runtime.spawn(run(config, shutdown)));
    runtime.shutdown_timeout(LAST_TIMEOUT);
    outcome.map_err(io::Error::other)?
}

/// Logs the flags and feature gates that have no effect, and the gates that have.
pub fn log_flags(flags: &Flags, config: &Config) {
    for (name, why) in flags.without_effect() {
        tracing::warn!("--{name} has no effect: {why}");
    }
    for (name, on, consulted) in config.feature_gates.changed() {
        let whose = if consulted {
            ""
        } else {
            ", which changes nothing here: it is another component's, or about kube-apiserver's inside"
        };
        tracing::info!("feature gate {name} is {on}{whose}");
    }
}

/// Returns the runtime: one thread for each processor, and two at least, so that a task that
/// computes long does not stop all others. The number is always set, so that no environment
/// variable of tokio's counts.
///
/// # Errors
/// The system has no threads left.
pub fn runtime(worker_threads: Option<usize>) -> io::Result<Runtime> {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = worker_threads.unwrap_or(processors).max(MIN_WORKER_THREADS);
    Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build()
}

/// Serves until `shutdown` closes.
///
/// # Errors
/// The server cannot start: its store, certificates or address are not to be had.
async fn run(config: Config, shutdown: Shutdown) -> Result<(), RunError> {
    let prepared = tokio::select! {
        prepared = prepare(config, &shutdown, SighupListener::listen()) => prepared?,
        // It may be waiting for a store that never answers.
        () = shutdown.stopped() => return Ok(()),
    };
    match prepared
        .admin
        .as_ref()
        .and_then(|admin| admin.path.as_ref())
    {
        Some(kubeconfig) => introduce(kubeconfig)?,
        None => tracing::info!("serving on {}", prepared.address),
    }
    prepared.serve(shutdown).await;
    Ok(())
}

/// A server that is about to serve.
pub struct Prepared {
    pub listener: Listener,
    pub chain: HandlerChain,
    pub endpoint_reconciler: EndpointReconciler,
    /// The address that it listens on.
    pub address: SocketAddr,
    /// Present where the server made its own client authority.
    pub admin: Option<Admin>,
    /// The time that connections have to finish once it closes.
    drain: Duration,
    traces: Option<trace::Provider>,
}

impl Prepared {
    /// Serves until `shutdown` closes.
    pub async fn serve(self, shutdown: Shutdown) {
        let auditor = self.chain.auditor.clone();
        let (leaving, endpoint_reconciler) = (shutdown.clone(), self.endpoint_reconciler);
        let endpoint_reconciler = tokio::spawn(async move {
            endpoint_reconciler.run(leaving.stopping()).await;
            leaving.set_deregistered();
        });
        let handler = Arc::new(self.chain);
        self.listener.serve(handler, shutdown, self.drain).await;
        if let Some(auditor) = auditor {
            auditor.shut_down().await;
        }
        // It deregisters the server while the requests that run finish, in a bounded time.
        if endpoint_reconciler.await.is_err() {
            tracing::error!("what keeps the cluster's objects has panicked");
        }
        if let Some(traces) = self.traces {
            traces.shut_down().await;
        }
    }
}

/// Returns the time that connections have to finish.
fn drain_timeout(config: &Config) -> Duration {
    if config.shutdown.send_retry_after {
        // Requests have finished before it closes.
        CLOSE_TIMEOUT
    } else {
        config.requests.timeout.max(config.shutdown.watch_grace)
    }
}

/// Opens the store, binds the address and puts the handler together. Files are read again when they
/// change, and at once upon `hangup`.
///
/// # Errors
/// The store, certificates or address are not to be had.
pub async fn prepare(
    config: Config,
    shutdown: &Shutdown,
    hangup: SighupListener,
) -> Result<Prepared, RunError> {
    // It takes a while to read, and is not needed at once.
    tokio::task::spawn_blocking(schema::builtin);
    let (config, clock) = (Arc::new(handed_over(config).await), Clock::system());
    start_metrics(&config)?;
    config.data_dir.iter().for_each(|dir| data_dir::secure(dir));
    let egress = load_egress(&config)?;
    let traces = start_traces(&config, &egress)?;
    let auditor = auditing::start(&config.audit, &egress, &clock).map_err(RunError::Audit)?;
    let health = Arc::new(Health::default());
    // The store comes first: it is what a second server on the same directory fails on.
    let (etcd_files, mut etcds) = (reload::etcd_files(&config.storage)?, Vec::new());
    let encryption = encryption(&config, &health, shutdown).await?;
    let storage = open_storage(&config, encryption.as_ref(), &egress, &mut etcds, shutdown).await?;
    let advertise = advertise_address(&config);
    let (identity, own_files) = certificates::make(&config, advertise, clock.now())?;
    let identity = Arc::new(identity);
    let (tls, certificates) = tls::set_up(&config.serving, &identity.serving)?;
    let listen = |source| RunError::Listen {
        address: SocketAddr::new(config.serving.bind_address, config.serving.port),
        source,
    };
    let listener = Listener::bind(&config.serving, tls).map_err(listen)?;
    let address = listener.address()?;
    // The disk takes its time, and nobody reads them before the end of this.
    let written = write_own_files(own_files, identity.admin.clone(), address);
    let backend = Backend::new(storage, &config.storage);
    let storage_overrides =
        open_overrides(&config, encryption.as_ref(), &egress, &mut etcds).await?;
    health::add_basics(&health);
    health::add_storage(&health, &config, &backend);
    health::add_overrides(&health, &config, &storage_overrides);
    let deps = ServerDeps {
        config: config.clone(),
        identity: identity.clone(),
        advertise: SocketAddr::new(advertise, address.port()),
        storage: backend.storage.clone(),
        reflector: backend.reflector.clone(),
        storage_overrides,
        health,
        auditor,
        tracer: trace::tracer(traces.as_ref()),
        shutdown: shutdown.clone(),
        egress,
    };
    let BuiltServer {
        chain,
        endpoint_reconciler,
        authentication,
        informers,
        watched,
    } = build_server(&deps).await?;
    start_controllers(&deps, &chain, informers, authentication.issuer.clone());
    written.await.map_err(io::Error::other)??;
    let mut reloader = Reloader::new(
        &deps,
        address,
        &certificates,
        &authentication,
        &endpoint_reconciler.authorities(),
        clock,
    );
    reloader.add(reload::etcd_watched_files(&etcd_files, etcds));
    watched.into_iter().for_each(|source| reloader.add(source));
    tokio::spawn(reloader.run(hangup, shutdown.clone()));
    spawn_compactors(&config, &backend, &deps.storage_overrides, shutdown);
    Ok(Prepared {
        listener,
        chain,
        endpoint_reconciler,
        address,
        admin: identity.admin.clone(),
        drain: drain_timeout(&config),
        traces,
    })
}

/// Makes the metrics what the flags want, and shows those of the configuration.
fn start_metrics(config: &Config) -> Result<(), RunError> {
    metric_options::configure(config.metrics.options()?);
    metrics::declare();
    metrics::record(config);
    Ok(())
}

/// The configuration with an embedded store in the place of a stand-in for etcd.
async fn handed_over(config: Config) -> Config {
    let Some(Handover {
        data_dir,
        unsafe_no_fsync,
    }) = etcd_stand_in::ask(&config.storage.etcd_servers).await
    else {
        return config;
    };
    tracing::info!(
        "the etcd that --etcd-servers names is Keelson's stand-in: the store is in {}",
        data_dir.display()
    );
    let medium = if unsafe_no_fsync {
        Medium::UnsyncedFile
    } else {
        Medium::File
    };
    let storage = StorageConfig {
        etcd_servers: Vec::new(),
        medium,
        ..config.storage
    };
    Config {
        data_dir: Some(data_dir),
        storage,
        ..config
    }
}

/// Starts the controllers that the flags name.
fn start_controllers(
    deps: &ServerDeps,
    chain: &HandlerChain,
    informers: Informers,
    issuer: Option<Arc<Issuer>>,
) {
    let parts = ControllerDeps {
        api: chain.api.clone(),
        informers,
        shared_store: !deps.config.storage.etcd_servers.is_empty(),
        stopping: deps.shutdown.stopping(),
        root_ca: deps.identity.serving_ca.as_str().into(),
        issuer,
    };
    controllers::start(&deps.config.controllers, &parts);
}

/// Writes what the server has made itself, and the kubeconfig of a server at that address.
fn write_own_files(
    files: OwnFiles,
    admin: Option<Admin>,
    address: SocketAddr,
) -> JoinHandle<Result<(), CertError>> {
    tokio::task::spawn_blocking(move || {
        files.write()?;
        admin.map_or(Ok(()), |admin| admin.write(address))
    })
}

/// Compacts all stores from time to time, unless others are to.
fn spawn_compactors(
    config: &Config,
    backend: &Backend,
    others: &StorageOverrides,
    shutdown: &Shutdown,
) {
    let Some(interval) = config.storage.compaction_interval else {
        return;
    };
    for backend in std::iter::once(backend).chain(others.backends()) {
        tokio::spawn(compact(backend.clone(), interval, shutdown.clone()));
    }
}

/// The ways out of this server that a file gives.
fn load_egress(config: &Config) -> Result<Egress, RunError> {
    let egress = config.egress.as_deref().map(egress::load).transpose();
    Ok(egress.map_err(RunError::Egress)?.unwrap_or_default())
}

/// Begins to send spans, if the flags say so.
fn start_traces(config: &Config, egress: &Egress) -> Result<Option<trace::Provider>, RunError> {
    let Some(file) = &config.tracing_file else {
        return Ok(None);
    };
    let settings = tracing_file::read_file(file).map_err(RunError::Traces)?;
    let identity = bootstrap::identity(&hostname());
    let dialer = egress.dialer(Network::ControlPlane);
    let started = trace::Provider::start(&settings, &identity, dialer);
    Ok(Some(started.map_err(RunError::Traces)?))
}

/// The encryption of the stores, if there is any.
async fn encryption(
    config: &Config,
    health: &Health,
    shutdown: &Shutdown,
) -> Result<Option<Arc<Transformers>>, RunError> {
    let Some(file) = &config.storage.encryption else {
        return Ok(None);
    };
    let kms_v1 = config.feature_gates.enabled("KMSv1");
    let started = Encryption::start(file, kms_v1, &hostname(), health, shutdown).await;
    Ok(Some(started.map_err(RunError::Encryption)?))
}

/// Returns a store as its readers see it: decrypted, with all defaults.
fn readable(
    storage: Arc<dyn Storage>,
    encryption: Option<&Arc<Transformers>>,
    prefix: &str,
) -> Arc<dyn Storage> {
    let storage = match encryption {
        Some(transformers) => EncryptedStorage::wrap(storage, prefix, transformers.clone()),
        None => storage,
    };
    DefaultingStorage::wrap(storage, prefix, builtin::strategy)
}

/// The embedded store, or etcd as soon as it answers.
async fn open_storage(
    config: &Config,
    encryption: Option<&Arc<Transformers>>,
    egress: &Egress,
    etcds: &mut Vec<Arc<Etcd3>>,
    shutdown: &Shutdown,
) -> Result<Arc<dyn Storage>, RunError> {
    if config.storage.etcd_servers.is_empty() {
        let folder = config.data_dir.as_deref();
        let embedded = Embedded::open_on(config.storage.medium, folder.unwrap_or(Path::new("")))?;
        let embedded = Arc::new(embedded);
        local_store::start(&embedded, folder, &config.storage.embedded, shutdown)?;
        return Ok(readable(embedded, encryption, &config.storage.prefix));
    }
    let etcd = open_etcd(config, &config.storage.etcd_servers, egress, etcds).await?;
    Ok(readable(etcd, encryption, &config.storage.prefix))
}

/// The etcds of single resources.
async fn open_overrides(
    config: &Config,
    encryption: Option<&Arc<Transformers>>,
    egress: &Egress,
    etcds: &mut Vec<Arc<Etcd3>>,
) -> Result<StorageOverrides, RunError> {
    let (given, mut backends) = (&config.storage, Vec::new());
    for servers in StorageOverrides::servers(&given.etcd_overrides) {
        let etcd = open_etcd(config, &servers, egress, etcds).await?;
        let storage = readable(etcd, encryption, &given.prefix);
        backends.push(Backend::new(storage, given));
    }
    Ok(StorageOverrides::new(&given.etcd_overrides, backends))
}

/// An etcd as soon as it answers; it is added to `etcds`.
async fn open_etcd(
    config: &Config,
    servers: &[String],
    egress: &Egress,
    etcds: &mut Vec<Arc<Etcd3>>,
) -> Result<Arc<dyn Storage>, RunError> {
    let given = &config.storage;
    let (cert_file, key_file) = given
        .etcd_client
        .clone()
        .map(|files| (files.cert, files.key))
        .unzip();
    let etcd = Etcd3::connect(etcd3::Config {
        endpoints: servers.to_vec(),
        ca_file: given.etcd_ca.clone(),
        cert_file,
        key_file,
        // Each check has its own limit.
        health_timeout: given.health_timeout.max(given.ready_timeout),
        lease_reuse: given.lease_reuse,
        egress: egress.clone(),
        traced: config.tracing_file.is_some(),
        ..etcd3::Config::default()
    })
    .await?;
    let etcd = Arc::new(etcd);
    etcds.push(etcd.clone());
    let (end, mut backoff) = (
        Instant::now() + given.start_timeout,
        Backoff::new(ETCD_PAUSE, ETCD_PAUSE_MAX),
    );
    while let Err(why) = etcd.check_health().await {
        if Instant::now() > end {
            return Err(StorageError::Unavailable(format!(
                "etcd at {} does not answer: {why}",
                servers.join(", ")
            ))
            .into());
        }
        tokio::time::sleep(backoff.next_delay()).await;
    }
    etcd.check_versions().await;
    Ok(etcd)
}

/// Compacts old history every `interval`.
async fn compact(backend: Backend, interval: Duration, shutdown: Shutdown) {
    let (mut compactor, compacting) = (
        Compactor::default(),
        FailureTracker::new("compacting the store"),
    );
    loop {
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = shutdown.drained() => return,
        }
        match catch_panic(
            "compactor",
            compactor.compact_once(backend.storage.as_ref()),
        )
        .await
        .map_err(StorageError::Internal)
        .flatten()
        {
            Ok(revision) => {
                compacting.record_success();
                if let (Some(revision), Some(reflector)) = (revision, &backend.reflector) {
                    reflector.record_compaction(revision);
                }
            }
            Err(why) => compacting.record_failure(&why.to_string()),
        }
    }
}

/// The address for the rest of the cluster: the flag's, the bind address, or that of the interface
/// that leads outside.
fn advertise_address(config: &Config) -> IpAddr {
    let bind = config.serving.bind_address;
    if let Some(address) = config.serving.advertise_address {
        return address;
    }
    if !bind.is_unspecified() && !bind.is_loopback() {
        return bind;
    }
    // Connecting a UDP socket sends nothing, but chooses the interface. The address is one for
    // documentation (RFC 5737).
    let outside = || -> io::Result<IpAddr> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
        Ok(socket.local_addr()?.ip())
    };
    outside()
        .ok()
        .filter(|address| !address.is_unspecified())
        .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// Prints how to go on to the terminal.
fn introduce(kubeconfig: &Path) -> io::Result<()> {
    let path = std::path::absolute(kubeconfig).unwrap_or_else(|_| kubeconfig.to_owned());
    let mut out = io::stdout().lock();
    writeln!(out, "\nKeelson is ready. In another terminal:\n")?;
    writeln!(
        out,
        "  export KUBECONFIG={}\n  kubectl get ns",
        path.display()
    )?;
    out.flush()
}
