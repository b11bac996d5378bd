//! Every flag of kube-apiserver v1.36, its type, its default and what this server does with it.

use super::{Effect, Flag, Kind};
use Kind::{Array, Duration, Int, List, Map, Number, Switch, Text};

const fn used(kind: Kind, name: &'static str, default: &'static str, help: &'static str) -> Flag {
    Flag {
        name,
        kind,
        default,
        effect: Effect::Used,
        text: help,
    }
}

/// A flag that is accepted and changes nothing that a client could see; `why` says why.
const fn idle(kind: Kind, name: &'static str, default: &'static str, why: &'static str) -> Flag {
    Flag {
        name,
        kind,
        default,
        effect: Effect::Ignored,
        text: why,
    }
}

/// A flag that is refused with anything but its default, since the server would otherwise not do
/// what it was told to.
const fn refused(kind: Kind, name: &'static str, default: &'static str, why: &'static str) -> Flag {
    Flag {
        name,
        kind,
        default,
        effect: Effect::Refused,
        text: why,
    }
}

const NO_AUDIT: &str = "auditing is not implemented";
const NO_AUDIT_TUNING: &str = "it tunes auditing, which is not configured";
const NO_OIDC: &str = "OpenID Connect authentication is not implemented";
const NO_AUTHN_WEBHOOK: &str = "token webhooks are not implemented";
const NO_AUTHZ_WEBHOOK: &str = "authorization webhooks are not implemented";
const NO_PEERS: &str = "requests are not proxied between API servers of different versions";
const NO_KUBELET: &str = "no requests are sent to kubelets";
const NO_PROXY: &str = "no requests are proxied to aggregated API servers";
const NO_BUFFER: &str = "log lines are written at once";
const NO_ALPHA_LOGGING: &str = "LoggingAlphaOptions is off: every line goes to stderr at once";
const NO_ELECTION: &str =
    "leaders are not elected by the server (CoordinatedLeaderElection is off)";

/// The flags in the groups of `--help`.
pub const SECTIONS: &[(&str, &[Flag])] = &[
    ("Keelson", KEELSON),
    ("Generic", GENERIC),
    ("Etcd", ETCD),
    ("Secure serving", SERVING),
    ("Auditing", AUDITING),
    ("Features", FEATURES),
    ("Authentication", AUTHENTICATION),
    ("Authorization", AUTHORIZATION),
    ("API enablement", APIS),
    ("Admission", ADMISSION),
    ("Metrics", METRICS),
    ("Logs", LOGS),
    ("Traces", TRACES),
    ("Misc", MISC),
    ("Global", GLOBAL),
];

const KEELSON: &[Flag] = &[
    used(
        Text,
        "data-dir",
        "./keelson-data",
        "where the embedded store is, and the certificates and keys that the server makes itself",
    ),
    used(
        Int,
        "worker-threads",
        "0",
        "how many threads answer requests, at least 2; 0 for one on each processor",
    ),
];

const GENERIC: &[Flag] = &[
    used(
        Text,
        "advertise-address",
        "",
        "the address of this server for the rest of the cluster; the bind address, or the default interface's",
    ),
    refused(List, "cors-allowed-origins", "", "CORS is not implemented"),
    refused(List, "emulated-version", "", "only v1.36 can be served"),
    refused(
        Switch,
        "emulation-forward-compatible",
        "false",
        "only v1.36 can be served",
    ),
    used(
        Text,
        "external-hostname",
        "",
        "the host name in URLs that lead back to this server, such as those of OpenID discovery",
    ),
    used(List, "feature-gates", "", "name=true|false pairs"),
    used(
        Number,
        "goaway-chance",
        "0",
        "how likely a request has its HTTP/2 client open another connection, for balance; at most 0.02",
    ),
    idle(
        Duration,
        "livez-grace-period",
        "0s",
        "nothing starts after the server listens that /livez would wait for",
    ),
    used(
        Int,
        "max-mutating-requests-inflight",
        "200",
        "how many mutating requests are served at once; others get 429. 0 for no limit",
    ),
    used(
        Int,
        "max-requests-inflight",
        "400",
        "how many non-mutating requests are served at once; others get 429. 0 for no limit",
    ),
    refused(
        List,
        "min-compatibility-version",
        "",
        "only v1.36 can be served",
    ),
    used(
        Int,
        "min-request-timeout",
        "1800",
        "seconds that a watch lasts at least; each gets a random time up to twice as long",
    ),
    used(
        Duration,
        "request-timeout",
        "1m0s",
        "how long a request may take, its answer included, unless it is a watch or stream",
    ),
    refused(
        Switch,
        "runtime-config-emulation-forward-compatible",
        "false",
        "only v1.36 can be served",
    ),
    idle(
        Switch,
        "send-retry-after-while-not-ready-once",
        "false",
        "the server does not listen before it can answer",
    ),
    used(
        Duration,
        "shutdown-delay-duration",
        "0s",
        "how long to go on serving, not ready, before shutdown begins",
    ),
    refused(
        Switch,
        "shutdown-send-retry-after",
        "false",
        "the listener closes at shutdown",
    ),
    used(
        Duration,
        "shutdown-watch-termination-grace-period",
        "0s",
        "over how long a shutdown spreads the end of watches",
    ),
    used(
        Duration,
        "storage-initialization-timeout",
        "1m0s",
        "how long to wait for the store at start",
    ),
    refused(
        List,
        "strict-transport-security-directives",
        "",
        "the Strict-Transport-Security header is not sent",
    ),
];

const ETCD: &[Flag] = &[
    idle(
        Int,
        "delete-collection-workers",
        "1",
        "a collection is deleted by one worker",
    ),
    refused(
        Switch,
        "enable-garbage-collector",
        "true",
        "deletes always mark objects for the garbage collector",
    ),
    refused(
        Text,
        "encryption-provider-config",
        "",
        "encryption at rest is not implemented",
    ),
    refused(
        Switch,
        "encryption-provider-config-automatic-reload",
        "false",
        "encryption at rest is not implemented",
    ),
    used(Text, "etcd-cafile", "", "the certificate authority of etcd"),
    used(Text, "etcd-certfile", "", "the client certificate for etcd"),
    used(
        Duration,
        "etcd-compaction-interval",
        "5m0s",
        "how often old revisions are compacted away; 0 for never",
    ),
    idle(
        Duration,
        "etcd-count-metric-poll-period",
        "1m0s",
        "objects are not counted by polling",
    ),
    idle(
        Duration,
        "etcd-db-metric-poll-interval",
        "30s",
        "the size of the database is not polled",
    ),
    used(
        Duration,
        "etcd-healthcheck-timeout",
        "2s",
        "how long the store may take to prove its health",
    ),
    used(
        Text,
        "etcd-keyfile",
        "",
        "the key of the client certificate for etcd",
    ),
    used(
        Text,
        "etcd-prefix",
        "/registry",
        "what every key in the store begins with",
    ),
    used(
        Duration,
        "etcd-readycheck-timeout",
        "2s",
        "how long the store may take to prove that it is ready",
    ),
    used(
        List,
        "etcd-servers",
        "",
        "the etcd servers (scheme://ip:port); without any, the embedded store in --data-dir is used",
    ),
    used(
        List,
        "etcd-servers-overrides",
        "",
        "group/resource#server;server of resources (events, mostly) that are in an etcd of their own",
    ),
    used(
        Int,
        "lease-reuse-duration-seconds",
        "60",
        "how much longer than asked events may live in etcd, so that many can share a lease",
    ),
    refused(
        Text,
        "storage-backend",
        "etcd3",
        "the only backend is etcd3 (or none, for the embedded store)",
    ),
    refused(
        Text,
        "storage-media-type",
        "application/vnd.kubernetes.protobuf",
        "objects are stored as protobuf",
    ),
    used(
        Int,
        "encoded-object-cache-bytes",
        "201326592",
        "memory for objects of the watch cache as clients get them, encoded once for all; 0 for none",
    ),
    used(
        Switch,
        "watch-cache",
        "true",
        "serve reads and watches from memory",
    ),
    used(
        List,
        "watch-cache-sizes",
        "",
        "resource[.group]#0 for each resource that is not to be cached; other sizes mean nothing",
    ),
];

const SERVING: &[Flag] = &[
    used(Text, "bind-address", "0.0.0.0", "the address to listen on"),
    used(
        Text,
        "cert-dir",
        "",
        "where a serving certificate is made if no --tls-cert-file is given (default: pki in --data-dir)",
    ),
    used(
        Switch,
        "disable-http2-serving",
        "false",
        "speak HTTP/1.1 only",
    ),
    used(
        Int,
        "http2-max-streams-per-connection",
        "0",
        "how many requests one HTTP/2 connection may have open; 0 for 100",
    ),
    idle(
        Switch,
        "permit-address-sharing",
        "false",
        "SO_REUSEADDR is always set",
    ),
    used(
        Switch,
        "permit-port-sharing",
        "false",
        "set SO_REUSEPORT on the listening socket",
    ),
    used(
        Int,
        "secure-port",
        "6443",
        "the port to serve HTTPS on; 0 for any free one",
    ),
    used(
        Text,
        "tls-cert-file",
        "",
        "the serving certificate (PEM), followed by its intermediates; made if absent",
    ),
    used(
        List,
        "tls-cipher-suites",
        "",
        "the TLS 1.2 cipher suites to allow, by their IANA names",
    ),
    used(
        List,
        "tls-curve-preferences",
        "",
        "the key exchanges to allow, by their TLS numbers: 23, 24, 29, 4588",
    ),
    used(Text, "tls-min-version", "", "VersionTLS12 or VersionTLS13"),
    used(
        Text,
        "tls-private-key-file",
        "",
        "the key of --tls-cert-file",
    ),
    used(
        Array,
        "tls-sni-cert-key",
        "",
        "another certificate: CERT,KEY[:domain,domain...]; domains default to the names in the certificate",
    ),
];

const AUDITING: &[Flag] = &[
    idle(Int, "audit-log-batch-buffer-size", "10000", NO_AUDIT_TUNING),
    idle(Int, "audit-log-batch-max-size", "1", NO_AUDIT_TUNING),
    idle(Duration, "audit-log-batch-max-wait", "0s", NO_AUDIT_TUNING),
    idle(Int, "audit-log-batch-throttle-burst", "0", NO_AUDIT_TUNING),
    idle(
        Switch,
        "audit-log-batch-throttle-enable",
        "false",
        NO_AUDIT_TUNING,
    ),
    idle(Number, "audit-log-batch-throttle-qps", "0", NO_AUDIT_TUNING),
    idle(Switch, "audit-log-compress", "false", NO_AUDIT_TUNING),
    idle(Text, "audit-log-format", "json", NO_AUDIT_TUNING),
    idle(Int, "audit-log-maxage", "366", NO_AUDIT_TUNING),
    idle(Int, "audit-log-maxbackup", "100", NO_AUDIT_TUNING),
    idle(Int, "audit-log-maxsize", "100", NO_AUDIT_TUNING),
    idle(Text, "audit-log-mode", "blocking", NO_AUDIT_TUNING),
    refused(Text, "audit-log-path", "", NO_AUDIT),
    idle(
        Switch,
        "audit-log-truncate-enabled",
        "false",
        NO_AUDIT_TUNING,
    ),
    idle(
        Int,
        "audit-log-truncate-max-batch-size",
        "10485760",
        NO_AUDIT_TUNING,
    ),
    idle(
        Int,
        "audit-log-truncate-max-event-size",
        "102400",
        NO_AUDIT_TUNING,
    ),
    idle(
        Text,
        "audit-log-version",
        "audit.k8s.io/v1",
        NO_AUDIT_TUNING,
    ),
    refused(Text, "audit-policy-file", "", NO_AUDIT),
    idle(
        Int,
        "audit-webhook-batch-buffer-size",
        "10000",
        NO_AUDIT_TUNING,
    ),
    idle(Int, "audit-webhook-batch-max-size", "400", NO_AUDIT_TUNING),
    idle(
        Duration,
        "audit-webhook-batch-max-wait",
        "30s",
        NO_AUDIT_TUNING,
    ),
    idle(
        Int,
        "audit-webhook-batch-throttle-burst",
        "15",
        NO_AUDIT_TUNING,
    ),
    idle(
        Switch,
        "audit-webhook-batch-throttle-enable",
        "true",
        NO_AUDIT_TUNING,
    ),
    idle(
        Number,
        "audit-webhook-batch-throttle-qps",
        "10",
        NO_AUDIT_TUNING,
    ),
    refused(Text, "audit-webhook-config-file", "", NO_AUDIT),
    idle(
        Duration,
        "audit-webhook-initial-backoff",
        "10s",
        NO_AUDIT_TUNING,
    ),
    idle(Text, "audit-webhook-mode", "batch", NO_AUDIT_TUNING),
    idle(
        Switch,
        "audit-webhook-truncate-enabled",
        "false",
        NO_AUDIT_TUNING,
    ),
    idle(
        Int,
        "audit-webhook-truncate-max-batch-size",
        "10485760",
        NO_AUDIT_TUNING,
    ),
    idle(
        Int,
        "audit-webhook-truncate-max-event-size",
        "102400",
        NO_AUDIT_TUNING,
    ),
    idle(
        Text,
        "audit-webhook-version",
        "audit.k8s.io/v1",
        NO_AUDIT_TUNING,
    ),
];

const FEATURES: &[Flag] = &[
    refused(
        Switch,
        "contention-profiling",
        "false",
        "there is no Go runtime to profile",
    ),
    refused(
        Text,
        "debug-socket-path",
        "",
        "there is no debugging socket",
    ),
    idle(
        Switch,
        "enable-priority-and-fairness",
        "true",
        "there are no priority levels: in any case the --max-*-inflight flags limit requests",
    ),
    idle(
        Switch,
        "profiling",
        "true",
        "there is no Go runtime to profile: /debug/pprof is not served in any case",
    ),
];

const AUTHENTICATION: &[Flag] = &[
    used(
        Switch,
        "anonymous-auth",
        "true",
        "let requests without credentials in as system:anonymous",
    ),
    used(
        List,
        "api-audiences",
        "",
        "the audiences that service account tokens must have been made for (default: the issuers)",
    ),
    refused(
        Text,
        "authentication-config",
        "",
        "structured authentication configuration is not implemented",
    ),
    idle(
        Duration,
        "authentication-token-webhook-cache-ttl",
        "2m0s",
        "it tunes a webhook that is not configured",
    ),
    refused(
        Text,
        "authentication-token-webhook-config-file",
        "",
        NO_AUTHN_WEBHOOK,
    ),
    idle(
        Text,
        "authentication-token-webhook-version",
        "v1beta1",
        "it tunes a webhook that is not configured",
    ),
    used(
        Text,
        "client-ca-file",
        "",
        "the certificate authorities of client certificates",
    ),
    used(
        Switch,
        "enable-bootstrap-token-auth",
        "false",
        "accept the bootstrap tokens that are secrets in kube-system",
    ),
    refused(Text, "oidc-ca-file", "", NO_OIDC),
    refused(Text, "oidc-client-id", "", NO_OIDC),
    refused(Text, "oidc-groups-claim", "", NO_OIDC),
    refused(Text, "oidc-groups-prefix", "", NO_OIDC),
    refused(Text, "oidc-issuer-url", "", NO_OIDC),
    refused(Map, "oidc-required-claim", "", NO_OIDC),
    refused(List, "oidc-signing-algs", "RS256", NO_OIDC),
    refused(Text, "oidc-username-claim", "sub", NO_OIDC),
    refused(Text, "oidc-username-prefix", "", NO_OIDC),
    used(
        List,
        "requestheader-allowed-names",
        "",
        "the common names that a front proxy may have; any if empty",
    ),
    used(
        Text,
        "requestheader-client-ca-file",
        "",
        "the certificate authorities of front proxies",
    ),
    used(
        List,
        "requestheader-extra-headers-prefix",
        "",
        "what the headers for a user's extra attributes begin with",
    ),
    used(
        List,
        "requestheader-group-headers",
        "",
        "the headers in which a front proxy names groups",
    ),
    used(
        List,
        "requestheader-uid-headers",
        "",
        "the headers in which a front proxy gives the user's UID",
    ),
    used(
        List,
        "requestheader-username-headers",
        "",
        "the headers in which a front proxy names the user",
    ),
    used(
        Switch,
        "service-account-extend-token-expiration",
        "true",
        "make the tokens that pods get valid for a year, to warn before refusing",
    ),
    used(
        Array,
        "service-account-issuer",
        "",
        "who issues service account tokens; further ones are accepted too",
    ),
    used(
        Text,
        "service-account-jwks-uri",
        "",
        "the URI of the key set in the OpenID discovery document",
    ),
    used(
        Array,
        "service-account-key-file",
        "",
        "a public key (PEM) of service account tokens; may be repeated",
    ),
    used(
        Switch,
        "service-account-lookup",
        "true",
        "ask the store whether a legacy token's secret and account still exist",
    ),
    used(
        Duration,
        "service-account-max-token-expiration",
        "0s",
        "the longest time a token may be asked for; 0 for no limit",
    ),
    used(
        Text,
        "token-auth-file",
        "",
        "a CSV file of tokens: token,user,uid[,groups]",
    ),
];

const AUTHORIZATION: &[Flag] = &[
    refused(
        Text,
        "authorization-config",
        "",
        "structured authorization configuration is not implemented",
    ),
    used(
        List,
        "authorization-mode",
        "Node,RBAC",
        "the authorizers to ask, in order: Node, RBAC, AlwaysAllow, AlwaysDeny (kube-apiserver's default: AlwaysAllow)",
    ),
    refused(
        Text,
        "authorization-policy-file",
        "",
        "ABAC is not implemented",
    ),
    idle(
        Duration,
        "authorization-webhook-cache-authorized-ttl",
        "5m0s",
        "it tunes a webhook that is not configured",
    ),
    idle(
        Duration,
        "authorization-webhook-cache-unauthorized-ttl",
        "30s",
        "it tunes a webhook that is not configured",
    ),
    refused(
        Text,
        "authorization-webhook-config-file",
        "",
        NO_AUTHZ_WEBHOOK,
    ),
    idle(
        Text,
        "authorization-webhook-version",
        "v1beta1",
        "it tunes a webhook that is not configured",
    ),
];

const APIS: &[Flag] = &[
    used(
        List,
        "runtime-config",
        "",
        "what to serve: group/version[/resource]=true|false, and api/all, api/ga, api/beta, api/alpha",
    ),
    refused(
        Text,
        "egress-selector-config-file",
        "",
        "egress proxies are not implemented",
    ),
];

const ADMISSION: &[Flag] = &[
    refused(
        List,
        "admission-control",
        "",
        "it is deprecated; use --enable-admission-plugins",
    ),
    refused(
        Text,
        "admission-control-config-file",
        "",
        "admission plugins cannot be configured by file",
    ),
    used(
        Int,
        "default-not-ready-toleration-seconds",
        "300",
        "how long new pods tolerate a node that is not ready",
    ),
    used(
        Int,
        "default-unreachable-toleration-seconds",
        "300",
        "how long new pods tolerate a node that cannot be reached",
    ),
    used(
        List,
        "disable-admission-plugins",
        "",
        "default plugins to switch off",
    ),
    used(
        List,
        "enable-admission-plugins",
        "",
        "plugins to switch on besides the default ones",
    ),
];

const METRICS: &[Flag] = &[
    refused(
        Map,
        "allow-metric-labels",
        "",
        "labels of metrics cannot be restricted",
    ),
    refused(
        Text,
        "allow-metric-labels-manifest",
        "",
        "labels of metrics cannot be restricted",
    ),
    refused(
        List,
        "disabled-metrics",
        "",
        "metrics cannot be switched off",
    ),
    idle(
        Text,
        "show-hidden-metrics-for-version",
        "",
        "no metric is hidden",
    ),
];

const LOGS: &[Flag] = &[
    idle(Duration, "log-flush-frequency", "5s", NO_BUFFER),
    refused(Text, "log-json-info-buffer-size", "0", NO_ALPHA_LOGGING),
    refused(Switch, "log-json-split-stream", "false", NO_ALPHA_LOGGING),
    refused(Text, "log-text-info-buffer-size", "0", NO_ALPHA_LOGGING),
    refused(Switch, "log-text-split-stream", "false", NO_ALPHA_LOGGING),
    used(Text, "logging-format", "text", "text or json"),
    used(
        Int,
        "v",
        "0",
        "how much to log: 0 for what matters, 3 for a line for each request, 4 for debugging",
    ),
    idle(
        Text,
        "vmodule",
        "",
        "it names Go source files, and there are none that could match",
    ),
];

const TRACES: &[Flag] = &[refused(
    Text,
    "tracing-config-file",
    "",
    "traces are not exported",
)];

const MISC: &[Flag] = &[
    idle(
        Switch,
        "aggregator-reject-forwarding-redirect",
        "true",
        NO_PROXY,
    ),
    used(
        Switch,
        "allow-privileged",
        "false",
        "allow privileged containers",
    ),
    idle(
        Duration,
        "coordinated-leadership-lease-duration",
        "15s",
        NO_ELECTION,
    ),
    idle(
        Duration,
        "coordinated-leadership-renew-deadline",
        "10s",
        NO_ELECTION,
    ),
    idle(
        Duration,
        "coordinated-leadership-retry-period",
        "2s",
        NO_ELECTION,
    ),
    idle(Switch, "enable-aggregator-routing", "false", NO_PROXY),
    refused(Switch, "enable-logs-handler", "false", "there is no /logs"),
    used(
        Text,
        "endpoint-reconciler-type",
        "lease",
        "who keeps the endpoints of the kubernetes service: lease or none",
    ),
    used(Duration, "event-ttl", "1h0m0s", "how long events are kept"),
    idle(Text, "kubelet-certificate-authority", "", NO_KUBELET),
    idle(Text, "kubelet-client-certificate", "", NO_KUBELET),
    idle(Text, "kubelet-client-key", "", NO_KUBELET),
    idle(
        List,
        "kubelet-preferred-address-types",
        "Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP",
        NO_KUBELET,
    ),
    idle(Duration, "kubelet-timeout", "5s", NO_KUBELET),
    used(
        Int,
        "kubernetes-service-node-port",
        "0",
        "the node port of the kubernetes service; 0 for none",
    ),
    refused(
        Int,
        "max-connection-bytes-per-sec",
        "0",
        "connections are not throttled",
    ),
    refused(Text, "peer-advertise-ip", "", NO_PEERS),
    refused(Text, "peer-advertise-port", "", NO_PEERS),
    refused(Text, "peer-ca-file", "", NO_PEERS),
    idle(Text, "proxy-client-cert-file", "", NO_PROXY),
    idle(Text, "proxy-client-key-file", "", NO_PROXY),
    refused(
        Text,
        "service-account-signing-endpoint",
        "",
        "external signers are not implemented",
    ),
    used(
        Text,
        "service-account-signing-key-file",
        "",
        "the private key (PEM) that signs service account tokens",
    ),
    used(
        Text,
        "service-cluster-ip-range",
        "10.0.0.0/24",
        "the CIDRs of cluster IPs: one, or one of each family",
    ),
    used(
        Text,
        "service-node-port-range",
        "30000-32767",
        "the ports of NodePort services",
    ),
];

const GLOBAL: &[Flag] = &[
    used(Switch, "help", "false", "print this and exit (-h)"),
    used(Text, "version", "false", "print the version and exit"),
];
