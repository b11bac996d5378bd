//! Flags of the section "Misc": those of kube-apiserver itself (`controlplane/apiserver/options`).

use super::{Flag, ignored, refused, used};
use crate::options::flags::Kind::{Duration, Int, List, Switch, Text};

const NO_PEERS: &str = "requests are not proxied between API servers of different versions";
const NO_ELECTION: &str =
    "leaders are not elected by the server (CoordinatedLeaderElection is off)";

#[rustfmt::skip]
pub const FLAGS: &[Flag] = &[
    used(Switch, "aggregator-reject-forwarding-redirect", "true",
        "answer 502 where an extension API server redirects"),
    used(Switch, "allow-privileged", "false", "allow privileged containers"),
    ignored(Duration, "coordinated-leadership-lease-duration", "15s", NO_ELECTION),
    ignored(Duration, "coordinated-leadership-renew-deadline", "10s", NO_ELECTION),
    ignored(Duration, "coordinated-leadership-retry-period", "2s", NO_ELECTION),
    used(Switch, "enable-aggregator-routing", "false",
        "send requests to webhooks and extension API servers to the endpoints of their services"),
    refused(Switch, "enable-logs-handler", "false", "there is no /logs"),
    used(Text, "endpoint-reconciler-type", "lease",
        "who keeps the endpoints of the kubernetes service: lease or none"),
    used(Duration, "event-ttl", "1h0m0s", "how long events are kept"),
    used(Text, "kubelet-certificate-authority", "",
        "the authorities (PEM) of kubelets' certificates, which are not verified without"),
    used(Text, "kubelet-client-certificate", "",
        "the client certificate (PEM) for requests to kubelets"),
    used(Text, "kubelet-client-key", "", "the key (PEM) of that certificate"),
    used(List, "kubelet-preferred-address-types",
        "Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP",
        "the types of node addresses by which kubelets are reached, the first that a node has"),
    ignored(Duration, "kubelet-timeout", "5s",
        "requests to kubelets last as long as their clients, as those of kube-apiserver do"),
    used(Int, "kubernetes-service-node-port", "0",
        "the node port of the kubernetes service; 0 for none"),
    refused(Int, "max-connection-bytes-per-sec", "0", "connections are not throttled"),
    refused(Text, "peer-advertise-ip", "", NO_PEERS),
    refused(Text, "peer-advertise-port", "", NO_PEERS),
    refused(Text, "peer-ca-file", "", NO_PEERS),
    used(Text, "proxy-client-cert-file", "",
        "the certificate by which extension API servers know this server"),
    used(Text, "proxy-client-key-file", "", "its key"),
    used(Text, "service-account-signing-endpoint", "",
        "the Unix socket of a plugin that signs service account tokens and knows their keys"),
    used(Text, "service-account-signing-key-file", "",
        "the private key (PEM) that signs service account tokens"),
    used(Text, "service-cluster-ip-range", "10.0.0.0/24",
        "the CIDRs of cluster IPs: one, or one of each family"),
    used(Text, "service-node-port-range", "30000-32767", "the ports of NodePort services"),
];
