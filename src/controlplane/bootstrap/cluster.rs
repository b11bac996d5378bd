//! The other objects of a fresh server: namespaces, priority classes, the `kubernetes` service with
//! its endpoints, the configuration that other servers read, the identity lease
//! (`pkg/controlplane/controller`).

use std::net::IpAddr;

use aws_lc_rs::digest;
use jiff::Timestamp;
use jiff::civil::Date;

use super::extension_authentication::{CLIENT_CA, PROXY_CA};
use super::{Params, object};
use crate::meta::{Gvr, Map, Object, Value, json};

/// Namespaces that every cluster has; none of them can be deleted but kube-node-lease.
pub const NAMESPACES: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", "default"];

/// Seconds that an identity lease is good for without being renewed.
pub const IDENTITY_LEASE_SECONDS: i64 = 3600;

/// The port of the `kubernetes` service.
const SERVICE_PORT: u16 = 443;

const PRIORITY_CLASSES: [(&str, i64, &str); 2] = [
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
];

fn with(mut object: Object, members: &[(&str, Value)]) -> Object {
    for (key, value) in members {
        object.insert((*key).to_owned(), value.clone());
    }
    object
}

fn labelled(mut object: Object, labels: Value) -> Object {
    object.metadata_mut().insert("labels", labels);
    object
}

pub(super) fn namespaces() -> Vec<(Gvr, Object)> {
    let one = |name: &&str| {
        let namespace = labelled(
            object("v1", "Namespace", "", name),
            json!({"kubernetes.io/metadata.name": name}),
        );
        (Gvr::new("", "v1", "namespaces"), namespace)
    };
    NAMESPACES.iter().map(one).collect()
}

pub(super) fn priority_classes() -> Vec<(Gvr, Object)> {
    let one = |(name, value, description): &(&str, i64, &str)| {
        let class = object("scheduling.k8s.io/v1", "PriorityClass", "", name);
        let members = [
            ("value", json!(value)),
            ("description", json!(description)),
            ("preemptionPolicy", json!("PreemptLowerPriority")),
        ];
        (
            Gvr::new("scheduling.k8s.io", "v1", "priorityclasses"),
            with(class, &members),
        )
    };
    PRIORITY_CLASSES.iter().map(one).collect()
}

/// The address of the `kubernetes` service: the first of the first range.
pub fn service_address(params: &Params) -> Option<IpAddr> {
    let range = params.service_cidrs.first()?;
    match range.network() {
        IpAddr::V4(base) => u32::from(base)
            .checked_add(1)
            .map(|address| IpAddr::V4(address.into())),
        IpAddr::V6(base) => u128::from(base)
            .checked_add(1)
            .map(|address| IpAddr::V6(address.into())),
    }
    .filter(|address| range.contains(address))
}

pub(super) fn service(params: &Params, address: IpAddr) -> (Gvr, Object) {
    let mut port = json!({"name": "https", "protocol": "TCP", "port": SERVICE_PORT, "targetPort": params.secure_port});
    let mut kind = "ClusterIP";
    if params.service_node_port > 0 {
        port["nodePort"] = params.service_node_port.into();
        kind = "NodePort";
    }
    let spec = json!({
        "ports": [port], "clusterIP": address.to_string(), "type": kind, "sessionAffinity": "None", "ipFamilyPolicy": "SingleStack",
    });
    let labels = json!({"component": "apiserver", "provider": "kubernetes"});
    (
        Gvr::new("", "v1", "services"),
        with(
            labelled(object("v1", "Service", "default", "kubernetes"), labels),
            &[("spec", spec)],
        ),
    )
}

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

/// The Endpoints and the EndpointSlice of the `kubernetes` service: where the living servers
/// listen.
pub fn endpoints(servers: &[IpAddr], port: u16) -> [(Gvr, Object); 2] {
    let mut servers = servers.to_vec();
    servers.sort_unstable();
    servers.dedup();
    let ports = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
    let addresses: Vec<Value> = servers
        .iter()
        .map(|server| json!({"ip": server.to_string()}))
        .collect();
    let labels = json!({"endpointslice.kubernetes.io/skip-mirror": "true"});
    let all = labelled(object("v1", "Endpoints", "default", "kubernetes"), labels);
    let all = if servers.is_empty() {
        all
    } else {
        with(
            all,
            &[("subsets", json!([{"addresses": addresses, "ports": ports}]))],
        )
    };

    let ready: Vec<Value> = servers
        .iter()
        .map(|server| json!({"addresses": [server.to_string()], "conditions": {"ready": true}}))
        .collect();
    let kind = servers.first().map_or("IPv4", |server| family(*server));
    let labels = json!({"kubernetes.io/service-name": "kubernetes"});
    let slice = labelled(
        object(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            "default",
            "kubernetes",
        ),
        labels,
    );
    let slice = with(
        slice,
        &[
            ("addressType", json!(kind)),
            ("endpoints", json!(ready)),
            ("ports", ports),
        ],
    );
    [
        (Gvr::new("", "v1", "endpoints"), all),
        (Gvr::new("discovery.k8s.io", "v1", "endpointslices"), slice),
    ]
}

fn config_map(name: &str, data: Map) -> (Gvr, Object) {
    let map = with(
        object("v1", "ConfigMap", "kube-system", name),
        &[("data", Value::Object(data))],
    );
    (Gvr::new("", "v1", "configmaps"), map)
}

/// Returns the ConfigMap that extension servers read to authenticate as this server does.
pub(super) fn extension_authentication(params: &Params) -> (Gvr, Object) {
    let mut data = Map::new();
    if let Some(ca) = &params.client_ca {
        data.insert(CLIENT_CA.to_owned(), ca.as_str().into());
    }
    if let Some(proxy) = &params.front_proxy {
        let list = |values: &[String]| Value::String(json!(values).to_string());
        data.insert(
            "requestheader-allowed-names".to_owned(),
            list(&proxy.allowed_names),
        );
        data.insert(PROXY_CA.to_owned(), proxy.client_ca.as_str().into());
        data.insert(
            "requestheader-extra-headers-prefix".to_owned(),
            list(&proxy.extra_prefixes),
        );
        data.insert(
            "requestheader-group-headers".to_owned(),
            list(&proxy.group_headers),
        );
        if !proxy.uid_headers.is_empty() {
            data.insert(
                "requestheader-uid-headers".to_owned(),
                list(&proxy.uid_headers),
            );
        }
        data.insert(
            "requestheader-username-headers".to_owned(),
            list(&proxy.username_headers),
        );
    }
    config_map("extension-apiserver-authentication", data)
}

/// The format of [`token_tracking`]'s day.
const DAY: &str = "%Y-%m-%d";

/// Since when the use of legacy service account tokens is tracked
/// (`pkg/controlplane/controller/legacytokentracking`).
pub(super) fn token_tracking(now: Timestamp) -> (Gvr, Object) {
    let day = now.strftime(DAY).to_string();
    config_map(
        "kube-apiserver-legacy-service-account-token-tracking",
        [("since".to_owned(), day.into())].into_iter().collect(),
    )
}

/// Reports whether a [`token_tracking`] that exists tells a day.
pub(super) fn has_day(tracking: &Object) -> bool {
    Date::strptime(DAY, tracking.str_at("/data/since")).is_ok()
}

/// The name of this machine's identity lease: a hash of its host name, as kube-apiserver makes it.
pub fn identity(hostname: &str) -> String {
    const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut data = Vec::new();
    for part in [hostname, "kube-apiserver"] {
        data.extend((part.len() as u16).to_be_bytes());
        data.extend(part.as_bytes());
    }
    let hash = digest::digest(&digest::SHA256, &data);
    let mut out = String::from("apiserver-");
    let (mut bits, mut held) = (0u32, 0);
    for byte in &hash.as_ref()[..16] {
        bits = bits << 8 | u32::from(*byte);
        held += 8;
        while held >= 5 {
            held -= 5;
            out.push(BASE32[(bits >> held & 31) as usize] as char);
        }
    }
    out.push(BASE32[(bits << (5 - held) & 31) as usize] as char);
    out
}

/// The identity Lease of this server; renew it well within [`IDENTITY_LEASE_SECONDS`].
pub fn identity_lease(params: &Params) -> (Gvr, Object) {
    let name = identity(&params.hostname);
    let labels = json!({"apiserver.kubernetes.io/identity": "kube-apiserver", "kubernetes.io/hostname": params.hostname});
    let mut lease = labelled(
        object("coordination.k8s.io/v1", "Lease", "kube-system", &name),
        labels,
    );
    let address =
        std::net::SocketAddr::new(params.advertise_address, params.secure_port).to_string();
    lease.metadata_mut().insert(
        "annotations",
        json!({"kubernetes.io/peer-advertise-address": address}),
    );
    let spec = json!({
        "holderIdentity": format!("{name}_{}", params.instance), "leaseDurationSeconds": IDENTITY_LEASE_SECONDS,
        "renewTime": params.now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
    });
    (
        Gvr::new("coordination.k8s.io", "v1", "leases"),
        with(lease, &[("spec", spec)]),
    )
}
