//! The configuration of a server: the flags, typed and validated, before any file is read.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use super::aggregation::Aggregation;
use super::api_enablement::ApiEnablement;
use super::audit::AuditConfig;
use super::authentication::{Jwt, TokenWebhook};
use super::authorization::Authorization;
use super::browsers::Browsers;
pub use super::cert_files::CertFiles;
use super::cert_files::path;
use super::controllers::{self, Controller};
use super::embedded_store::EmbeddedConfig;
use super::flag_readers::{address, number, port_range};
use super::flags::{Command, FeatureGates, FlagError, Flags, parse, split_list};
use super::memory::Memory;
use super::metrics::Metrics;
use super::request_header::RequestHeader;
use crate::admission::plugins::{self, Support};
use crate::endpoints::kubelet::KubeletConfig;
use crate::storage::embedded::Medium;

/// The issuer of service account tokens where none is given.
pub const DEFAULT_ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// The streams of one HTTP/2 connection (apiserver `server/secure_serving.go`).
pub const DEFAULT_MAX_STREAMS: u32 = 100;
/// The fewest threads that run tasks: one that computes long must not be the only one.
pub const MIN_WORKER_THREADS: usize = 2;
/// The maximum number of threads that run tasks.
pub const MAX_WORKER_THREADS: usize = 1024;
/// The largest `--goaway-chance` (apiserver `server/options/server_run_options.go`).
pub const MAX_GOAWAY_CHANCE: f64 = 0.02;

/// The configuration of a server, grouped by the modules that need it.
#[derive(Clone, Debug)]
pub struct Config {
    /// The folder of the embedded store and self-made certificates. It is not touched if neither is
    /// needed. `None` for a server that keeps both in memory.
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) serving: Serving,
    pub(crate) storage: StorageConfig,
    pub(crate) authentication: Authentication,
    pub(crate) service_accounts: ServiceAccounts,
    pub(crate) authorization: Authorization,
    pub(crate) admission: Admission,
    pub(crate) services: Services,
    pub(crate) aggregation: Aggregation,
    pub(crate) requests: Requests,
    pub(crate) browsers: Browsers,
    pub(crate) kubelet: KubeletConfig,
    /// The file of an EgressSelectorConfiguration.
    pub(crate) egress: Option<PathBuf>,
    pub(crate) shutdown: Shutdown,
    /// The controllers that run inside this server.
    pub(crate) controllers: Vec<Controller>,
    /// The API versions and resources that are served.
    pub(crate) apis: ApiEnablement,
    pub(crate) feature_gates: FeatureGates,
    /// The time for which events are kept.
    pub(crate) event_ttl: Duration,
    pub(crate) allow_privileged: bool,
    /// True if this server keeps itself among the endpoints of the kubernetes service.
    pub(crate) reconcile_endpoints: bool,
    /// The number of threads that run tasks; `None` for one on each processor.
    pub(crate) worker_threads: Option<usize>,
    pub(crate) memory: Memory,
    pub(crate) log: Log,
    pub(crate) metrics: Metrics,
    pub(crate) audit: AuditConfig,
    /// A TracingConfiguration; without one no spans are sent.
    pub(crate) tracing_file: Option<PathBuf>,
    /// True if verbosity can be changed over HTTP, and the process profiled.
    pub(crate) profiling: bool,
    /// All flags as they are printed, for `/flagz`.
    pub(crate) flags: BTreeMap<&'static str, String>,
}

/// Addresses and TLS.
#[derive(Clone, Debug)]
pub struct Serving {
    pub(crate) bind_address: IpAddr,
    /// The address for others; `None` to find one.
    pub(crate) advertise_address: Option<IpAddr>,
    /// 0 for any free port.
    pub(crate) port: u16,
    pub(crate) external_hostname: String,
    /// The folder of the serving certificate without `tls`; `None` for `pki` in the data directory.
    pub(crate) cert_dir: Option<PathBuf>,
    pub(crate) tls: Option<CertFiles>,
    pub(crate) sni: Vec<SniCert>,
    /// IANA names; empty for all that are safe.
    pub(crate) cipher_suites: Vec<String>,
    /// TLS group numbers; empty for all that are safe.
    pub(crate) curves: Vec<u16>,
    pub(crate) tls13_only: bool,
    pub(crate) http2: bool,
    pub(crate) max_streams: u32,
    pub(crate) reuse_port: bool,
}

/// A certificate for some host names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SniCert {
    pub(crate) files: CertFiles,
    /// Empty for the names in the certificate.
    pub(crate) names: Vec<String>,
}

/// The configuration of the store.
#[derive(Clone, Debug)]
pub struct StorageConfig {
    /// Empty for the embedded store.
    pub(crate) etcd_servers: Vec<String>,
    /// The medium of the embedded store.
    pub(crate) medium: Medium,
    /// Other servers for some resources.
    pub(crate) etcd_overrides: Vec<EtcdOverride>,
    pub(crate) etcd_ca: Option<PathBuf>,
    pub(crate) etcd_client: Option<CertFiles>,
    /// The prefix of every key, with one leading slash and none at the end: `/registry`.
    pub(crate) prefix: String,
    /// `None` for never.
    pub(crate) compaction_interval: Option<Duration>,
    /// The time between two counts of the stored objects; `None` for never.
    pub(crate) count_period: Option<Duration>,
    /// True if reads and watches are served from memory.
    pub(crate) watch_cache: bool,
    /// The resources (`deployments.apps`) for which they are not.
    pub(crate) uncached: Vec<String>,
    pub(crate) health_timeout: Duration,
    pub(crate) ready_timeout: Duration,
    pub(crate) start_timeout: Duration,
    pub(crate) lease_reuse: Duration,
    /// `None` if nothing is encrypted.
    pub(crate) encryption: Option<EncryptionFile>,
    pub(crate) embedded: EmbeddedConfig,
}

/// The file of an EncryptionConfiguration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncryptionFile {
    pub(crate) path: PathBuf,
    /// True if it is read again when it changes.
    pub(crate) reload: bool,
}

/// The etcd servers of one resource, or (`*`) of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdOverride {
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) servers: Vec<String>,
}

/// The configuration of authentication.
#[derive(Clone, Debug)]
pub struct Authentication {
    pub(crate) anonymous: bool,
    /// A flag says whether they are let in.
    pub(crate) anonymous_is_given: bool,
    pub(crate) client_ca: Option<PathBuf>,
    pub(crate) bootstrap_tokens: bool,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) request_header: RequestHeader,
    /// Empty for the issuers of service account tokens.
    pub(crate) api_audiences: Vec<String>,
    pub(crate) jwt: Jwt,
    pub(crate) token_webhook: Option<TokenWebhook>,
}

/// Service account tokens.
#[derive(Clone, Debug)]
pub struct ServiceAccounts {
    /// Never empty; the first one signs.
    pub(crate) issuers: Vec<String>,
    pub(crate) key_files: Vec<PathBuf>,
    pub(crate) signing_key: Option<PathBuf>,
    /// The socket of a plugin that signs in place of a key.
    pub(crate) signing_endpoint: Option<String>,
    pub(crate) jwks_uri: String,
    pub(crate) lookup: bool,
    pub(crate) extend_expiration: bool,
    /// `None` for no limit.
    pub(crate) max_expiration: Option<Duration>,
}

/// Admission plugins besides, and less than, the default ones.
#[derive(Clone, Debug)]
pub struct Admission {
    pub(crate) enabled: Vec<String>,
    pub(crate) disabled: Vec<String>,
    pub(crate) not_ready_toleration_seconds: i64,
    pub(crate) unreachable_toleration_seconds: i64,
    pub(crate) configuration_file: Option<PathBuf>,
}

impl Admission {
    /// Reports whether the plugin runs, given whether it does by default.
    pub fn runs(&self, plugin: &str, by_default: bool) -> bool {
        let named = |list: &[String]| list.iter().any(|name| name == plugin);
        (by_default && !named(&self.disabled)) || named(&self.enabled)
    }

    /// The plugins that are named and have nothing to do here, each with the reason.
    pub fn inert(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        plugins::PLUGINS
            .iter()
            .filter_map(|plugin| match plugin.support {
                Support::Inert(why) if self.runs(plugin.name, false) => Some((plugin.name, why)),
                _ => None,
            })
    }
}

/// The addresses and ports of services.
#[derive(Clone, Debug)]
pub struct Services {
    /// One, or one of each family; the first is the primary one.
    pub(crate) cluster_ip_ranges: Vec<IpNet>,
    pub(crate) node_ports: RangeInclusive<u16>,
    /// True if requests to Services go to their endpoints, not to the cluster IPs.
    pub(crate) routes_to_endpoints: bool,
    /// The node port of the kubernetes service; 0 for none.
    pub(crate) kubernetes_node_port: u16,
}

impl Services {
    /// The address of the kubernetes service: the first host of the primary range.
    pub fn kubernetes_ip(&self) -> IpAddr {
        match self.cluster_ip_ranges.first() {
            Some(IpNet::V4(range)) => IpAddr::V4(Ipv4Addr::from_bits(
                u32::from(range.network()).wrapping_add(1),
            )),
            Some(IpNet::V6(range)) => {
                IpAddr::V6((u128::from(range.network()).wrapping_add(1)).into())
            }
            None => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        }
    }
}

/// Limits of requests.
#[derive(Clone, Debug)]
pub struct Requests {
    /// Requests wait for the seats of priority levels, which share the sum of the next two.
    pub(crate) priority_and_fairness: bool,
    pub(crate) max_in_flight: usize,
    pub(crate) max_mutating_in_flight: usize,
    pub(crate) timeout: Duration,
    /// The shortest time that a watch lasts.
    pub(crate) min_watch: Duration,
    /// The most objects of a collection that are deleted at the same time.
    pub(crate) delete_collection_workers: usize,
    /// The probability that a response asks an HTTP/2 client to open a new connection (GOAWAY).
    pub(crate) goaway_chance: f64,
}

/// The configuration of the shutdown.
#[derive(Clone, Debug)]
pub struct Shutdown {
    /// The time for which it goes on serving, not ready.
    pub(crate) delay: Duration,
    /// The time over which watches end.
    pub(crate) watch_grace: Duration,
    /// It listens until all requests have finished, and turns new ones away.
    pub(crate) send_retry_after: bool,
}

/// The configuration of the log.
#[derive(Clone, Debug)]
pub struct Log {
    /// klog's levels: 0 to 10.
    pub(crate) verbosity: i64,
    pub(crate) json: bool,
}

/// The command of a command line that has been checked.
#[derive(Debug)]
pub struct Checked {
    /// The configuration in Rust's debugging syntax: equal texts are equal configurations.
    pub configuration: String,
    /// The flags that are given and have no effect.
    pub without_effect: Vec<String>,
}

/// Checks a command line (without the program's name) as a start does, before any file is read.
///
/// # Errors
/// A flag is unknown or refused, values are wrong or contradict each other, or the command line
/// asks for help or the version.
pub fn check(args: impl IntoIterator<Item = String>) -> Result<Checked, FlagError> {
    let Command::Run(flags) = parse(args)? else {
        return Err(FlagError::new("no server is to be started"));
    };
    // The flags as they are printed differ with every flag, whatever comes of it.
    let config = Config {
        flags: BTreeMap::new(),
        ..Config::from_flags(&flags)?
    };
    let configuration = format!("{config:?}");
    Ok(Checked {
        configuration,
        without_effect: flags
            .without_effect()
            .map(|(name, _)| name.to_owned())
            .collect(),
    })
}

impl Config {
    /// Returns the configuration of the flags.
    ///
    /// # Errors
    /// Values that are wrong, or that contradict each other.
    pub fn from_flags(flags: &Flags) -> Result<Self, FlagError> {
        if let Some(name) = flags.negative_duration() {
            return Err(FlagError::new(format!(
                "--{name} can not be a negative value"
            )));
        }
        let feature_gates =
            FeatureGates::parse(flags.array("feature-gates").iter().map(String::as_str))?;
        feature_gates.check_effect()?;
        let reconcile_endpoints = match flags.text("endpoint-reconciler-type") {
            "lease" => true,
            "none" => false,
            other => {
                return Err(FlagError::new(format!(
                    "--endpoint-reconciler-type={other} is not supported: only lease and none are"
                )));
            }
        };
        let json = match flags.text("logging-format") {
            "text" | "" => false,
            "json" => true,
            other => {
                return Err(FlagError::invalid(
                    "logging-format",
                    other,
                    "Unsupported log format",
                ));
            }
        };
        Ok(Self {
            data_dir: Some(flags.text("data-dir").into()),
            serving: Serving::from_flags(flags)?,
            storage: StorageConfig::from_flags(flags)?,
            authentication: Authentication::from_flags(flags)?,
            service_accounts: ServiceAccounts::from_flags(flags)?,
            authorization: Authorization::from_flags(flags)?,
            admission: Admission::from_flags(flags)?,
            services: Services::from_flags(flags)?,
            aggregation: Aggregation::from_flags(flags)?,
            requests: Requests::from_flags(flags)?,
            browsers: Browsers::from_flags(flags)?,
            egress: path(flags, "egress-selector-config-file"),
            kubelet: KubeletConfig {
                certificate_authority: path(flags, "kubelet-certificate-authority"),
                client: CertFiles::of_flags(
                    flags,
                    ["kubelet-client-certificate", "kubelet-client-key"],
                )?
                .map(|files| (files.cert, files.key)),
                address_types: flags.list("kubelet-preferred-address-types"),
            },
            shutdown: Shutdown {
                delay: flags.duration("shutdown-delay-duration"),
                watch_grace: flags.duration("shutdown-watch-termination-grace-period"),
                send_retry_after: flags.switch("shutdown-send-retry-after"),
            },
            controllers: controllers::enabled(flags)?,
            apis: ApiEnablement::parse(flags.array("runtime-config").iter().map(String::as_str))?,
            feature_gates,
            event_ttl: flags.duration("event-ttl"),
            allow_privileged: flags.switch("allow-privileged"),
            reconcile_endpoints,
            worker_threads: worker_threads(flags)?,
            memory: Memory::from_flags(flags)?,
            log: Log {
                verbosity: flags.int("v"),
                json,
            },
            metrics: Metrics::from_flags(flags)?,
            audit: AuditConfig::from_flags(flags)?,
            tracing_file: path(flags, "tracing-config-file"),
            profiling: flags.switch("profiling"),
            flags: flags.values(),
        })
    }
}

impl Serving {
    fn from_flags(flags: &Flags) -> Result<Self, FlagError> {
        let max_streams = match number(flags, "http2-max-streams-per-connection")? {
            0 => DEFAULT_MAX_STREAMS,
            given => given,
        };
        let tls13_only = match flags.text("tls-min-version") {
            "" | "VersionTLS12" => false,
            "VersionTLS13" => true,
            old @ ("VersionTLS10" | "VersionTLS11") => {
                return Err(FlagError::new(format!(
                    "--tls-min-version={old} is not supported: the oldest is VersionTLS12"
                )));
            }
            other => {
                let why = format!("unknown tls version {}", crate::meta::go::quote(other));
                return Err(FlagError::new(why));
            }
        };
        let curves = flags.list("tls-curve-preferences").into_iter().map(|text| {
            let why = format!("strconv.ParseInt: parsing \"{text}\": invalid syntax");
            text.parse()
                .map_err(|_| FlagError::invalid("tls-curve-preferences", &text, &why))
        });
        Ok(Self {
            bind_address: address(flags, "bind-address")?
                .unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            advertise_address: address(flags, "advertise-address")?,
            port: number(flags, "secure-port")?,
            external_hostname: flags.text("external-hostname").to_owned(),
            cert_dir: path(flags, "cert-dir"),
            tls: CertFiles::of_flags(flags, ["tls-cert-file", "tls-private-key-file"])?,
            sni: flags
                .array("tls-sni-cert-key")
                .iter()
                .map(|value| sni_cert(value))
                .collect::<Result<_, _>>()?,
            cipher_suites: flags.list("tls-cipher-suites"),
            curves: curves.collect::<Result<_, _>>()?,
            tls13_only,
            http2: !flags.switch("disable-http2-serving"),
            max_streams,
            reuse_port: flags.switch("permit-port-sharing"),
        })
    }
}

impl StorageConfig {
    fn from_flags(flags: &Flags) -> Result<Self, FlagError> {
        Ok(Self {
            etcd_servers: flags.list("etcd-servers"),
            medium: medium(flags)?,
            etcd_overrides: flags
                .list("etcd-servers-overrides")
                .iter()
                .map(|text| etcd_override(text))
                .collect::<Result<_, _>>()?,
            etcd_ca: path(flags, "etcd-cafile"),
            etcd_client: CertFiles::of_flags(flags, ["etcd-certfile", "etcd-keyfile"])?,
            prefix: format!("/{}", flags.text("etcd-prefix").trim_matches('/')),
            compaction_interval: Some(flags.duration("etcd-compaction-interval"))
                .filter(|interval| !interval.is_zero()),
            count_period: Some(flags.duration("etcd-count-metric-poll-period"))
                .filter(|period| !period.is_zero()),
            watch_cache: flags.switch("watch-cache"),
            uncached: uncached(&flags.list("watch-cache-sizes"))?,
            health_timeout: flags.duration("etcd-healthcheck-timeout"),
            ready_timeout: flags.duration("etcd-readycheck-timeout"),
            start_timeout: flags.duration("storage-initialization-timeout"),
            lease_reuse: Duration::from_secs(number(flags, "lease-reuse-duration-seconds")?),
            encryption: encryption_file(flags)?,
            embedded: EmbeddedConfig::from_flags(flags)?,
        })
    }
}

/// Returns what the embedded store is on.
fn medium(flags: &Flags) -> Result<Medium, FlagError> {
    let named = [
        ("in-memory", Medium::Memory),
        ("unsafe-no-fsync", Medium::UnsyncedFile),
    ];
    let mut given = named.into_iter().filter(|(name, _)| flags.switch(name));
    let Some((name, medium)) = given.next() else {
        return Ok(Medium::File);
    };
    if !flags.list("etcd-servers").is_empty() {
        return Err(FlagError::new(format!(
            "--{name} is about the embedded store, and --etcd-servers names another"
        )));
    }
    Ok(medium)
}

/// Returns the file of the EncryptionConfiguration, if there is one.
fn encryption_file(flags: &Flags) -> Result<Option<EncryptionFile>, FlagError> {
    let file = path(flags, "encryption-provider-config");
    let reload = flags.switch("encryption-provider-config-automatic-reload");
    if reload && file.is_none() {
        return Err(FlagError::new(
            "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config",
        ));
    }
    Ok(file.map(|path| EncryptionFile { path, reload }))
}

impl Authentication {
    fn from_flags(flags: &Flags) -> Result<Self, FlagError> {
        Ok(Self {
            anonymous: flags.switch("anonymous-auth"),
            anonymous_is_given: flags.given().any(|(flag, _)| flag.name == "anonymous-auth"),
            client_ca: path(flags, "client-ca-file"),
            bootstrap_tokens: flags.switch("enable-bootstrap-token-auth"),
            token_file: path(flags, "token-auth-file"),
            request_header: RequestHeader::from_flags(flags)?,
            api_audiences: flags.list("api-audiences"),
            jwt: Jwt::from_flags(flags)?,
            token_webhook: TokenWebhook::from_flags(flags)?,
        })
    }
}

impl ServiceAccounts {
    fn from_flags(flags: &Flags) -> Result<Self, FlagError> {
        let mut issuers = flags.array("service-account-issuer");
        for (at, issuer) in issuers.iter().enumerate() {
            if issuer.is_empty() {
                return Err(FlagError::new(
                    "service-account-issuer should not be an empty string",
                ));
            }
            if issuers.iter().take(at).any(|earlier| earlier == issuer) {
                return Err(FlagError::new(format!(
                    "service-account-issuer {issuer:?} is already specified"
                )));
            }
        }
        if issuers.is_empty() {
            issuers.push(DEFAULT_ISSUER.to_owned());
        }
        let jwks_uri = flags.text("service-account-jwks-uri").to_owned();
        if !jwks_uri.is_empty() && !jwks_uri.starts_with("https://") {
            return Err(FlagError::new(format!(
                "service-account-jwks-uri requires https scheme, parsed as: {jwks_uri}"
            )));
        }
        Ok(Self {
            issuers,
            key_files: flags
                .array("service-account-key-file")
                .into_iter()
                .map(PathBuf::from)
                .collect(),
            signing_key: path(flags, "service-account-signing-key-file"),
            signing_endpoint: signing_endpoint(flags)?,
            jwks_uri,
            lookup: flags.switch("service-account-lookup"),
            extend_expiration: flags.switch("service-account-extend-token-expiration"),
            max_expiration: Some(flags.duration("service-account-max-token-expiration"))
                .filter(|limit| !limit.is_zero()),
        })
    }
}

impl Admission {
    fn from_flags(flags: &Flags) -> Result<Self, FlagError> {
        let (enabled, disabled) = (
            flags.list("enable-admission-plugins"),
            flags.list("disable-admission-plugins"),
        );
        for (flag, names) in [
            ("enable-admission-plugins", &enabled),
            ("disable-admission-plugins", &disabled),
        ] {
            if let Some(unknown) = names.iter().find(|name| plugins::find(name).is_none()) {
                return Err(FlagError::new(format!(
                    "{flag} plugin {unknown:?} is unknown"
                )));
            }
        }
        if let Some(both) = enabled.iter().find(|name| disabled.contains(name)) {
            return Err(FlagError::new(format!(
                "[{both}] in enable-admission-plugins and disable-admission-plugins overlapped"
            )));
        }
        Ok(Self {
            enabled,
            disabled,
            not_ready_toleration_seconds: flags.int("default-not-ready-toleration-seconds"),
            unreachable_toleration_seconds: flags.int("default-unreachable-toleration-seconds"),
            configuration_file: path(flags, "admission-control-config-file"),
        })
    }
}

impl Services {
    fn from_flags(flags: &Flags) -> Result<Self, FlagError> {
        let text = flags.text("service-cluster-ip-range");
        let ranges = split_list(text).into_iter().map(|cidr| {
            let wrong = || {
                FlagError::new(format!(
                    "service-cluster-ip-range is not a valid cidr: {cidr}"
                ))
            };
            cidr.trim()
                .parse::<IpNet>()
                .map(|net| net.trunc())
                .map_err(|_| wrong())
        });
        let cluster_ip_ranges = ranges.collect::<Result<Vec<_>, _>>()?;
        let is_v4 = |net: &IpNet| matches!(net, IpNet::V4(_));
        match cluster_ip_ranges.as_slice() {
            [_] => {}
            [first, second] if is_v4(first) != is_v4(second) => {}
            [_, _] => {
                return Err(FlagError::new(
                    "--service-cluster-ip-range and --secondary-service-cluster-ip-range must be of different IP family",
                ));
            }
            _ => {
                return Err(FlagError::new(
                    "--service-cluster-ip-range must contain at least one and at most two IP ranges",
                ));
            }
        }
        let node_ports = port_range(flags.text("service-node-port-range"))?;
        let kubernetes_node_port = number(flags, "kubernetes-service-node-port")?;
        if kubernetes_node_port > 0 && !node_ports.contains(&kubernetes_node_port) {
            let (first, last) = (node_ports.start(), node_ports.end());
            return Err(FlagError::new(format!(
                "kubernetes service node port range {first}-{last} doesn't contain {kubernetes_node_port}"
            )));
        }
        Ok(Self {
            cluster_ip_ranges,
            node_ports,
            routes_to_endpoints: flags.switch("enable-aggregator-routing"),
            kubernetes_node_port,
        })
    }
}

impl Requests {
    fn from_flags(flags: &Flags) -> Result<Self, FlagError> {
        let goaway_chance = flags.text("goaway-chance").parse().unwrap_or(0.0);
        if !(0.0..=MAX_GOAWAY_CHANCE).contains(&goaway_chance) {
            return Err(FlagError::new(
                "--goaway-chance can not be less than 0 or greater than 0.02",
            ));
        }
        for name in ["max-requests-inflight", "max-mutating-requests-inflight"] {
            if flags.int(name) < 0 {
                return Err(FlagError::new(format!(
                    "--{name} can not be negative value"
                )));
            }
        }
        if flags.duration("request-timeout").is_zero() {
            return Err(FlagError::new("--request-timeout must be greater than 0"));
        }
        let priority_and_fairness = flags.switch("enable-priority-and-fairness");
        let max_in_flight: usize = number(flags, "max-requests-inflight")?;
        let max_mutating_in_flight: usize = number(flags, "max-mutating-requests-inflight")?;
        if priority_and_fairness && max_in_flight + max_mutating_in_flight == 0 {
            return Err(FlagError::new(format!(
                "invalid configuration: MaxRequestsInFlight={max_in_flight} and MaxMutatingRequestsInFlight={max_mutating_in_flight}; they must add up to something positive"
            )));
        }
        Ok(Self {
            goaway_chance,
            priority_and_fairness,
            max_in_flight,
            max_mutating_in_flight,
            // As upstream: fewer than one are one.
            delete_collection_workers: number(flags, "delete-collection-workers")
                .unwrap_or(1)
                .max(1),
            timeout: flags.duration("request-timeout"),
            min_watch: Duration::from_secs(number(flags, "min-request-timeout")?),
        })
    }
}

fn worker_threads(flags: &Flags) -> Result<Option<usize>, FlagError> {
    match number(flags, "worker-threads")? {
        0 => Ok(None),
        given if (MIN_WORKER_THREADS..=MAX_WORKER_THREADS).contains(&given) => Ok(Some(given)),
        given => Err(FlagError::new(format!(
            "--worker-threads={given} is out of range: {MIN_WORKER_THREADS} to {MAX_WORKER_THREADS}, or 0 for one on each processor"
        ))),
    }
}

/// The socket of an external signer (kubernetes `controlplane/apiserver/options/validation.go`).
fn signing_endpoint(flags: &Flags) -> Result<Option<String>, FlagError> {
    let endpoint = flags.text("service-account-signing-endpoint");
    if endpoint.is_empty() {
        return Ok(None);
    }
    let keys = [
        "service-account-signing-key-file",
        "service-account-key-file",
    ];
    if flags.given().any(|(flag, _)| keys.contains(&flag.name)) {
        return Err(FlagError::new(
            "can't set `--service-account-signing-key-file` and/or `--service-account-key-file` with `--service-account-signing-endpoint` (They are mutually exclusive)",
        ));
    }
    let is_word = |part: &str| {
        let of_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        !part.is_empty() && part.chars().all(of_word)
    };
    match endpoint.strip_prefix('@') {
        Some(name) if !name.split('.').all(is_word) => Err(FlagError::new(format!(
            "invalid value {} passed for `--service-account-signing-endpoint`, when prefixed with @ must be a valid abstract socket name",
            crate::meta::go::quote(endpoint)
        ))),
        _ => Ok(Some(endpoint.to_owned())),
    }
}

/// `CERT,KEY` or `CERT,KEY:name,name`.
fn sni_cert(text: &str) -> Result<SniCert, FlagError> {
    let wrong = || {
        FlagError::invalid(
            "tls-sni-cert-key",
            text,
            "expected comma separated certificate and key file paths",
        )
    };
    let (files, names) = text.split_once(':').unwrap_or((text, ""));
    let (cert, key) = files.split_once(',').ok_or_else(wrong)?;
    if cert.is_empty() || key.is_empty() || key.contains(',') {
        return Err(wrong());
    }
    let names = names
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect();
    Ok(SniCert {
        files: CertFiles {
            cert: cert.trim().into(),
            key: key.trim().into(),
        },
        names,
    })
}

/// `group/resource#server;server`.
fn etcd_override(text: &str) -> Result<EtcdOverride, FlagError> {
    let wrong = || {
        let form = "must be of format: group/resource#servers, where servers are URLs, semicolon separated";
        FlagError::new(format!("--etcd-servers-overrides invalid, {form}"))
    };
    let (name, servers) = text
        .split_once('#')
        .filter(|(_, servers)| !servers.contains('#'))
        .ok_or_else(wrong)?;
    let (group, resource) = name
        .split_once('/')
        .filter(|(_, resource)| !resource.contains('/'))
        .ok_or_else(wrong)?;
    let servers: Vec<String> = servers.split(';').map(str::to_owned).collect();
    if servers.iter().any(String::is_empty) {
        return Err(wrong());
    }
    Ok(EtcdOverride {
        group: group.to_owned(),
        resource: resource.to_owned(),
        servers,
    })
}

/// The resources of `resource[.group]#size` settings whose size is 0.
fn uncached(settings: &[String]) -> Result<Vec<String>, FlagError> {
    let mut uncached = Vec::new();
    for setting in settings {
        let wrong = |why: &str| {
            FlagError::new(format!(
                "invalid value of watch cache size: {setting}: {why}"
            ))
        };
        let (resource, size) = setting
            .split_once('#')
            .ok_or_else(|| wrong("it has no '#'"))?;
        let size: i64 = size.parse().map_err(|_| wrong("the size is no number"))?;
        match size {
            ..0 => return Err(wrong("the size is negative")),
            0 => uncached.push(resource.to_owned()),
            _ => {}
        }
    }
    Ok(uncached)
}

#[cfg(test)]
mod tests {
    use super::super::flags::{Command, parse};
    use super::*;

    fn config(args: &[&str]) -> Result<Config, FlagError> {
        match parse(args.iter().map(ToString::to_string))? {
            Command::Run(flags) => Config::from_flags(&flags),
            other => panic!("{args:?} gave {other:?}"),
        }
    }

    #[test]
    fn configuration_without_flags_is_valid() {
        let config = config(&[]).expect("defaults");
        assert_eq!(config.serving.port, 6443);
        assert_eq!(config.services.kubernetes_ip().to_string(), "10.0.0.1");
        assert_eq!(config.services.node_ports, 30000..=32767);
        assert_eq!(config.service_accounts.issuers, [DEFAULT_ISSUER]);
        assert_eq!(config.storage.prefix, "/registry");
        assert_eq!(
            config.storage.compaction_interval,
            Some(Duration::from_secs(300))
        );
    }

    #[test]
    fn resources_may_have_their_own_etcd() {
        let given = config(&[
            "--etcd-servers-overrides=/events#http://a:1;http://b:2,apps/deployments#https://c:3",
        ])
        .expect("understood");
        let texts = |one: &EtcdOverride| {
            format!("{}/{} {}", one.group, one.resource, one.servers.join(" "))
        };
        let overrides: Vec<String> = given.storage.etcd_overrides.iter().map(texts).collect();
        assert_eq!(
            overrides,
            [
                "/events http://a:1 http://b:2",
                "apps/deployments https://c:3"
            ]
        );
        for wrong in [
            "events#http://a:1",
            "/events",
            "/events#",
            "/events#http://a;",
            "a/b/c#http://a",
            "/events#a#b",
        ] {
            let error = config(&["--etcd-servers-overrides", wrong])
                .expect_err("not understood")
                .to_string();
            assert!(
                error.contains("must be of format: group/resource#servers"),
                "{wrong}: {error}"
            );
        }
    }

    #[test]
    fn a_kubeadm_manifest_is_understood() {
        let args = "--advertise-address=172.18.0.2 --allow-privileged=true --authorization-mode=Node,RBAC
            --client-ca-file=/etc/kubernetes/pki/ca.crt --enable-admission-plugins=NodeRestriction
            --enable-bootstrap-token-auth=true --etcd-cafile=/etc/kubernetes/pki/etcd/ca.crt
            --etcd-certfile=/etc/kubernetes/pki/apiserver-etcd-client.crt
            --etcd-keyfile=/etc/kubernetes/pki/apiserver-etcd-client.key --etcd-servers=https://127.0.0.1:2379
            --kubelet-client-certificate=/etc/kubernetes/pki/apiserver-kubelet-client.crt
            --kubelet-client-key=/etc/kubernetes/pki/apiserver-kubelet-client.key
            --kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname
            --proxy-client-cert-file=/etc/kubernetes/pki/front-proxy-client.crt
            --proxy-client-key-file=/etc/kubernetes/pki/front-proxy-client.key
            --requestheader-allowed-names=front-proxy-client
            --requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt
            --requestheader-extra-headers-prefix=X-Remote-Extra- --requestheader-group-headers=X-Remote-Group
            --requestheader-username-headers=X-Remote-User --runtime-config= --secure-port=6443
            --service-account-issuer=https://kubernetes.default.svc.cluster.local
            --service-account-key-file=/etc/kubernetes/pki/sa.pub
            --service-account-signing-key-file=/etc/kubernetes/pki/sa.key --service-cluster-ip-range=10.96.0.0/16
            --tls-cert-file=/etc/kubernetes/pki/apiserver.crt --tls-private-key-file=/etc/kubernetes/pki/apiserver.key";
        let config = config(&args.split_whitespace().collect::<Vec<_>>()).expect("understood");
        assert_eq!(config.services.kubernetes_ip().to_string(), "10.96.0.1");
        assert_eq!(config.storage.etcd_servers, ["https://127.0.0.1:2379"]);
        assert_eq!(
            config.authentication.request_header.group_headers,
            ["X-Remote-Group"]
        );
        assert!(
            config.admission.runs("NodeRestriction", false)
                && config.apis == ApiEnablement::default()
        );
    }

    #[test]
    fn contradictions_are_refused() {
        for (arg, message) in [
            (
                "--tls-cert-file=x",
                "--tls-cert-file and --tls-private-key-file must be specified together",
            ),
            (
                "--enable-admission-plugins=Nope",
                r#"enable-admission-plugins plugin "Nope" is unknown"#,
            ),
            (
                "--service-cluster-ip-range=x",
                "service-cluster-ip-range is not a valid cidr: x",
            ),
            (
                "--worker-threads=1",
                "--worker-threads=1 is out of range: 2 to 1024, or 0 for one on each processor",
            ),
            (
                "--max-requests-inflight=-1",
                "--max-requests-inflight can not be negative value",
            ),
            (
                "--request-timeout=0s",
                "--request-timeout must be greater than 0",
            ),
            (
                "--goaway-chance=0.5",
                "--goaway-chance can not be less than 0 or greater than 0.02",
            ),
            ("--secure-port=70000", "--secure-port=70000 is out of range"),
            (
                "--kubernetes-service-node-port=80",
                "kubernetes service node port range 30000-32767 doesn't contain 80",
            ),
            (
                "--kubernetes-service-node-port=-1",
                "--kubernetes-service-node-port=-1 is out of range",
            ),
            (
                "--kubernetes-service-node-port=65536",
                "--kubernetes-service-node-port=65536 is out of range",
            ),
            (
                "--bind-address=x",
                r#"invalid argument "x" for "--bind-address" flag: failed to parse IP: "x""#,
            ),
            (
                "--tls-min-version=VersionTLS10",
                "--tls-min-version=VersionTLS10 is not supported: the oldest is VersionTLS12",
            ),
        ] {
            assert_eq!(config(&[arg]).expect_err(arg).to_string(), message);
        }
    }

    #[test]
    fn ranges_and_pairs() {
        assert_eq!(port_range("1000+5").expect("a range"), 1000..=1005);
        assert_eq!(port_range("80").expect("a port"), 80..=80);
        assert!(port_range("9-8").is_err());
        let sni = sni_cert("a.crt,a.key:*.example.com,b").expect("a pair");
        assert_eq!(
            (sni.files.cert.to_str(), sni.names),
            (
                Some("a.crt"),
                vec!["*.example.com".to_owned(), "b".to_owned()]
            )
        );
        let dual =
            config(&["--service-cluster-ip-range=10.0.0.0/16,fd00::/108"]).expect("both families");
        assert_eq!(dual.services.cluster_ip_ranges.len(), 2);
    }
}
