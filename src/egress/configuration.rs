//! An EgressSelectorConfiguration (apiserver `apis/apiserver`, `server/egressselector/config.go`).

use std::path::Path as FilePath;

use crate::base::dial::Network;
use crate::codec::configuration::FileType;
use crate::meta::{ErrorList, Path, Value, json, str_at, value_at};

/// The networks by the names that files give them, sorted.
const NETWORKS: [(&str, Network); 3] = [
    ("cluster", Network::Cluster),
    ("controlplane", Network::ControlPlane),
    ("etcd", Network::Etcd),
];
const PROTOCOLS: [&str; 3] = ["Direct", "HTTPConnect", "GRPC"];

/// A selection as it is written.
#[derive(Debug, Default)]
pub struct Written {
    name: String,
    protocol: String,
    transport: Option<WrittenTransport>,
}

#[derive(Debug, Default)]
struct WrittenTransport {
    tcp: Option<Tcp>,
    /// The path of a socket.
    uds: Option<String>,
}

/// A proxy at an address.
#[derive(Clone, Debug, Default)]
pub struct Tcp {
    pub url: String,
    pub tls: Option<Tls>,
}

/// The files of certificates, and the name that the proxy's must have; empty where it says none.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    pub ca_bundle: String,
    pub client_key: String,
    pub client_cert: String,
    pub server_name: String,
}

/// The way into a network that a valid file chooses.
#[derive(Debug)]
pub struct Selection {
    pub network: Network,
    pub protocol: Protocol,
}

#[derive(Debug)]
pub enum Protocol {
    Direct,
    HttpConnect(Transport),
    Grpc,
}

/// The place of a proxy.
#[derive(Debug)]
pub enum Transport {
    Tcp(Tcp),
    /// The path of a socket.
    Uds(String),
}

/// The name of a network.
pub fn name(network: Network) -> &'static str {
    let mut networks = NETWORKS.iter();
    let found = networks.find(|(_, one)| *one == network);
    found.map_or("", |(name, _)| name)
}

/// Reads the selections of a file.
///
/// # Errors
/// It holds something else, or fields that there are not.
pub fn read(bytes: &[u8]) -> Result<Vec<Written>, String> {
    let object = FileType::EGRESS.decode(bytes)?;
    let selections = object.array_at("/egressSelections").iter();
    Ok(selections.map(selection).collect())
}

fn text(value: &Value, path: &str) -> String {
    str_at(value, path).to_owned()
}

/// The object at a path; `None` where it is not given.
fn given<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    value_at(value, path).filter(|value| value.is_object())
}

fn selection(item: &Value) -> Written {
    let transport = given(item, "/connection/transport");
    Written {
        name: text(item, "/name"),
        protocol: text(item, "/connection/proxyProtocol"),
        transport: transport.map(|transport| WrittenTransport {
            tcp: given(transport, "/tcp").map(|tcp| Tcp {
                url: text(tcp, "/url"),
                tls: given(tcp, "/tlsConfig").map(tls),
            }),
            uds: given(transport, "/uds").map(|uds| text(uds, "/udsName")),
        }),
    }
}

fn tls(config: &Value) -> Tls {
    Tls {
        ca_bundle: text(config, "/caBundle"),
        client_key: text(config, "/clientKey"),
        client_cert: text(config, "/clientCert"),
        server_name: text(config, "/tlsServerName"),
    }
}

/// Checks selections, and returns what they choose.
///
/// # Errors
/// What is wrong, in upstream's words.
pub fn validate(written: &[Written]) -> Result<Vec<Selection>, String> {
    let mut errors = ErrorList::new();
    let path = Path::new("service").child("connection");
    let protocols: Vec<Option<Protocol>> = written
        .iter()
        .map(|one| protocol(&mut errors, &path, one))
        .collect();
    let mut seen: Vec<String> = Vec::new();
    let mut selections = Vec::new();
    for (at, (one, protocol)) in written.iter().zip(protocols).enumerate() {
        let name = one.name.to_lowercase();
        let known = NETWORKS.iter().find(|(known, _)| *known == name);
        if seen.contains(&name) {
            errors.duplicate(&path.index(at), name.as_str());
            continue;
        }
        match (known, protocol) {
            (Some((_, network)), Some(protocol)) => selections.push(Selection {
                network: *network,
                protocol,
            }),
            (Some(_), None) => {}
            (None, _) => {
                errors.not_supported(&path, name.as_str(), &NETWORKS.map(|(name, _)| name))
            }
        }
        seen.push(name);
    }
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    match texts.as_slice() {
        [] => Ok(selections),
        [only] => Err(only.clone()),
        all => Err(format!("[{}]", all.join(", "))),
    }
}

/// The protocol of a selection, if it is valid.
fn protocol(errors: &mut ErrorList, path: &Path, written: &Written) -> Option<Protocol> {
    let at_transport = path.child("transport");
    let transport = written.transport.as_ref();
    match (written.protocol.as_str(), transport) {
        ("Direct", None) => Some(Protocol::Direct),
        ("Direct", Some(_)) => {
            let why = "config must be absent for direct connect";
            errors.invalid(&at_transport, "direct", why);
            None
        }
        (name @ ("HTTPConnect" | "GRPC"), None) => {
            errors.required(&at_transport, format!("transport must be set for {name}"));
            None
        }
        ("HTTPConnect", Some(transport)) => http_connect(errors, path, transport),
        ("GRPC", Some(transport)) => {
            match &transport.uds {
                Some(name) => check_uds(errors, path, name),
                None => errors.required(&path.child("uds"), "UDS must be set with GRPC"),
            }
            Some(Protocol::Grpc)
        }
        (other, _) => {
            errors.not_supported(&path.child("protocol"), other, &PROTOCOLS);
            None
        }
    }
}

fn http_connect(
    errors: &mut ErrorList,
    path: &Path,
    transport: &WrittenTransport,
) -> Option<Protocol> {
    let at_tcp = path.child("tcp");
    match (&transport.tcp, &transport.uds) {
        (Some(tcp), Some(_)) => {
            errors.invalid(&at_tcp, shown(tcp), "TCP and UDS cannot both be set");
            None
        }
        (None, None) => {
            errors.required(&at_tcp, "One of TCP or UDS must be set");
            None
        }
        (Some(tcp), None) => {
            check_tcp(errors, path, tcp);
            Some(Protocol::HttpConnect(Transport::Tcp(tcp.clone())))
        }
        (None, Some(name)) => {
            check_uds(errors, path, name);
            Some(Protocol::HttpConnect(Transport::Uds(name.clone())))
        }
    }
}

/// The transport as errors show it.
fn shown(tcp: &Tcp) -> Value {
    let tls = tcp.tls.as_ref().map(|tls| {
        json!({
            "CABundle": tls.ca_bundle,
            "ClientKey": tls.client_key,
            "ClientCert": tls.client_cert,
            "TLSServerName": tls.server_name,
        })
    });
    json!({"URL": tcp.url, "TLSConfig": tls})
}

fn check_uds(errors: &mut ErrorList, path: &Path, name: &str) {
    if name.is_empty() {
        let why = "must be present for UDS connections";
        errors.invalid(&path.child("udsName"), "nil", why);
    }
}

fn check_tcp(errors: &mut ErrorList, path: &Path, tcp: &Tcp) {
    let at_tls = path.child("tlsConfig");
    if tcp.url.starts_with("http://") {
        if tcp.tls.is_some() {
            let why = "config must not be present when using HTTP";
            errors.invalid(&at_tls, "nil", why);
        }
    } else if tcp.url.starts_with("https://") {
        match &tcp.tls {
            Some(tls) => check_tls(errors, &at_tls, tls),
            None => errors.required(&at_tls, "TLSConfig must be present when using HTTPS"),
        }
    } else {
        let why = "supported connection protocols are http:// and https://";
        errors.invalid(&path.child("url"), tcp.url.as_str(), why);
    }
}

fn check_tls(errors: &mut ErrorList, path: &Path, tls: &Tls) {
    let is_absent = |file: &str| !FilePath::new(file).exists();
    let bundle = tls.ca_bundle.as_str();
    if !bundle.is_empty() && is_absent(bundle) {
        let why = "TLS config ca bundle does not exist";
        errors.invalid(&path.child("caBundle"), bundle, why);
    }
    for (field, file, needed, absent) in [
        (
            "clientCert",
            tls.client_cert.as_str(),
            "Using TLS requires clientCert",
            "TLS client cert does not exist",
        ),
        (
            "clientKey",
            tls.client_key.as_str(),
            "Using TLS requires requires clientKey",
            "TLS client key does not exist",
        ),
    ] {
        if file.is_empty() {
            errors.invalid(&path.child(field), "nil", needed);
        } else if is_absent(file) {
            errors.invalid(&path.child(field), file, absent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(selections: &str) -> Result<usize, String> {
        let text = format!(
            "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections: [{selections}]"
        );
        let written = read(text.as_bytes())?;
        validate(&written).map(|selections| selections.len())
    }

    #[test]
    fn selections_are_checked_in_upstreams_words() {
        let tcp = |text: &str| {
            format!(
                "{{name: cluster, connection: {{proxyProtocol: HTTPConnect, transport: {{tcp: {text}}}}}}}"
            )
        };
        let connection = |text: &str| format!("{{name: cluster, connection: {{{text}}}}}");
        for (selections, why) in [
            (connection("proxyProtocol: Direct, transport: {}"),
                r#"service.connection.transport: Invalid value: "direct": config must be absent for direct connect"#),
            (connection("proxyProtocol: Other"),
                r#"service.connection.protocol: Unsupported value: "Other": supported values: "Direct", "HTTPConnect", "GRPC""#),
            (connection("proxyProtocol: HTTPConnect"),
                "service.connection.transport: Required value: transport must be set for HTTPConnect"),
            (connection("proxyProtocol: GRPC, transport: {tcp: {url: a}}"),
                "service.connection.uds: Required value: UDS must be set with GRPC"),
            (connection("proxyProtocol: HTTPConnect, transport: {}"),
                "service.connection.tcp: Required value: One of TCP or UDS must be set"),
            (connection("proxyProtocol: HTTPConnect, transport: {uds: {udsName: ''}}"),
                r#"service.connection.udsName: Invalid value: "nil": must be present for UDS connections"#),
            (connection("proxyProtocol: HTTPConnect, transport: {uds: {udsName: a}, tcp: {url: b}}"),
                r#"service.connection.tcp: Invalid value: {"URL":"b","TLSConfig":null}: TCP and UDS cannot both be set"#),
            (tcp("{url: 'ftp://a'}"),
                r#"service.connection.url: Invalid value: "ftp://a": supported connection protocols are http:// and https://"#),
            (tcp("{url: 'http://a', tlsConfig: {}}"),
                r#"service.connection.tlsConfig: Invalid value: "nil": config must not be present when using HTTP"#),
            (tcp("{url: 'https://a'}"),
                "service.connection.tlsConfig: Required value: TLSConfig must be present when using HTTPS"),
            (tcp("{url: 'https://a', tlsConfig: {caBundle: /none, clientCert: /none}}"),
                r#"[service.connection.tlsConfig.caBundle: Invalid value: "/none": TLS config ca bundle does not exist, service.connection.tlsConfig.clientCert: Invalid value: "/none": TLS client cert does not exist, service.connection.tlsConfig.clientKey: Invalid value: "nil": Using TLS requires requires clientKey]"#),
            ("{name: etcd, connection: {proxyProtocol: Direct}}, {name: ETCD, connection: {proxyProtocol: Direct}}".to_owned(),
                r#"service.connection[1]: Duplicate value: "etcd""#),
            ("{name: master, connection: {proxyProtocol: Direct}}".to_owned(),
                r#"service.connection: Unsupported value: "master": supported values: "cluster", "controlplane", "etcd""#),
        ] {
            assert_eq!(check(&selections), Err(why.to_owned()), "{selections}");
        }
    }

    #[test]
    fn selections_that_are_valid_are_taken() {
        let all = "{name: cluster, connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: /run/proxy}}}},\
            {name: ControlPlane, connection: {proxyProtocol: HTTPConnect, transport: {tcp: {url: 'http://a:1'}}}},\
            {name: etcd, connection: {proxyProtocol: Direct}}";
        assert_eq!(check(all), Ok(3));
        assert_eq!(check(""), Ok(0));
        let unknown = check("{name: etcd, conection: {}}").expect_err("an unknown field");
        assert!(unknown.contains("conection"), "{unknown}");
    }
}
