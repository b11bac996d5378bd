//! The way to kubelets (kubernetes `pkg/kubelet/client`), and to pods.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::base::dial::Dial;
use crate::meta::status::Result;
use crate::meta::{Object, Status, str_at};
use crate::proxy::{Direct, Location, Scheme, Transport, TransportConfig};
use crate::webhook::tls::{ClientCert, Trust};

/// The port of kubelets whose node names none.
const DEFAULT_PORT: i64 = 10250;
/// The time after which certificates are read again (client-go `CertCallbackRefreshDuration`).
const REFRESH: Duration = Duration::from_secs(5 * 60);
/// The feature by which a kubelet declares that it speaks the newer protocols over WebSocket.
const WEBSOCKETS: &str = "ExtendWebSocketsToKubelet";

/// The configuration of requests to kubelets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeletConfig {
    /// Without one, kubelets' certificates are not verified, as upstream.
    pub certificate_authority: Option<PathBuf>,
    /// The files of the client certificate and its key.
    pub client: Option<(PathBuf, PathBuf)>,
    /// In the order of preference.
    pub address_types: Vec<String>,
}

/// Reaches kubelets.
pub struct Kubelets {
    config: KubeletConfig,
    dialer: Arc<dyn Dial>,
    transports: Mutex<Transports>,
    /// Reaches pods: with any certificate, for nothing says what it should be.
    pods: Arc<Transport>,
}

#[derive(Clone)]
struct Transports {
    verifying: Arc<Transport>,
    /// Takes any certificate of a kubelet.
    insecure: Arc<Transport>,
    files: Files,
    read: Instant,
}

#[derive(Clone, PartialEq, Eq)]
struct Files {
    authority: Option<Vec<u8>>,
    chain: Vec<u8>,
    key: Vec<u8>,
}

/// The kubelet of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubelet {
    pub host: String,
    pub port: String,
    /// It speaks the newer protocols over WebSocket itself.
    pub speaks_websockets: bool,
}

impl Kubelets {
    /// Returns the way to kubelets and pods: directly, or as a dialer connects.
    ///
    /// # Errors
    /// A certificate that cannot be read.
    pub fn new(
        config: KubeletConfig,
        dialer: Option<Arc<dyn Dial>>,
    ) -> std::result::Result<Self, String> {
        let dialer = dialer.unwrap_or_else(|| Arc::new(Direct));
        let pods = Transport::new(TransportConfig {
            dialer: dialer.clone(),
            keeps_connections: false,
            ..TransportConfig::new(Trust::All)
        })?;
        let files = Files::read(&config)?;
        let transports = Transports::new(files, &dialer)?;
        Ok(Self {
            config,
            dialer,
            transports: Mutex::new(transports),
            pods: Arc::new(pods),
        })
    }

    /// Returns the way to a kubelet whose certificate is verified, if the flags say by what.
    pub fn transport(&self) -> Arc<Transport> {
        self.current().verifying
    }

    /// Returns the way to a kubelet whose certificate is not verified.
    pub fn insecure_transport(&self) -> Arc<Transport> {
        self.current().insecure
    }

    /// Returns the way to pods.
    pub fn pod_transport(&self) -> Arc<Transport> {
        self.pods.clone()
    }

    fn current(&self) -> Transports {
        let mut transports = self.transports.lock();
        if transports.read.elapsed() < REFRESH {
            return transports.clone();
        }
        transports.read = Instant::now();
        let renewed = Files::read(&self.config).and_then(|files| {
            if files == transports.files {
                return Ok(None);
            }
            Transports::new(files, &self.dialer).map(Some)
        });
        match renewed {
            Ok(Some(renewed)) => *transports = renewed,
            Ok(None) => {}
            Err(why) => tracing::warn!("the certificates for kubelets: {why}"),
        }
        transports.clone()
    }

    /// Returns the kubelet of a node.
    ///
    /// # Errors
    /// The node has no address of a preferred type.
    pub fn of(&self, node: &Object) -> Result<Kubelet> {
        let addresses = node.array_at("/status/addresses");
        let found = self.config.address_types.iter().find_map(|preferred| {
            let mut addresses = addresses.iter();
            addresses.find(|one| str_at(one, "/type") == preferred)
        });
        let Some(found) = found else {
            let known: Vec<String> = addresses
                .iter()
                .map(|one| format!("{{{} {}}}", str_at(one, "/type"), str_at(one, "/address")))
                .collect();
            let why = format!(
                "no preferred addresses found; known addresses: [{}]",
                known.join(" ")
            );
            return Err(Status::failure(500, "", why));
        };
        let port = node.i64_at("/status/daemonEndpoints/kubeletEndpoint/Port");
        let port = port.filter(|port| *port > 0).unwrap_or(DEFAULT_PORT);
        let features = node.array_at("/status/declaredFeatures");
        Ok(Kubelet {
            host: str_at(found, "/address").to_owned(),
            port: port.to_string(),
            speaks_websockets: features.iter().any(|one| one.as_str() == Some(WEBSOCKETS)),
        })
    }
}

impl Transports {
    fn new(files: Files, dialer: &Arc<dyn Dial>) -> std::result::Result<Self, String> {
        let transport = |trust| {
            let cert = ClientCert {
                chain: files.chain.clone(),
                key: files.key.clone(),
            };
            let transport = Transport::new(TransportConfig {
                cert: (!cert.chain.is_empty()).then_some(cert),
                dialer: dialer.clone(),
                ..TransportConfig::new(trust)
            });
            transport.map(Arc::new)
        };
        let trust = files.authority.clone().map_or(Trust::All, Trust::Bundle);
        Ok(Self {
            verifying: transport(trust)?,
            insecure: transport(Trust::All)?,
            files,
            read: Instant::now(),
        })
    }
}

impl Files {
    fn read(config: &KubeletConfig) -> std::result::Result<Self, String> {
        let read = |path: &PathBuf| {
            fs::read(path).map_err(|why| format!("open {}: {why}", path.display()))
        };
        let (chain, key) = match &config.client {
            Some((chain, key)) => (read(chain)?, read(key)?),
            None => (Vec::new(), Vec::new()),
        };
        Ok(Self {
            authority: config
                .certificate_authority
                .as_ref()
                .map(read)
                .transpose()?,
            chain,
            key,
        })
    }
}

impl Kubelet {
    /// The URL of the kubelet with a path and a query.
    pub fn location(&self, path: String, query: String) -> Location {
        Location {
            scheme: Scheme::Https,
            authority: join_host_port(&self.host, &self.port),
            path,
            query,
        }
    }
}

/// A host and a port as one text (Go's `net.JoinHostPort`).
pub fn join_host_port(host: &str, port: &str) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    /// Clients choose the ports of pods, and could have any number of connections kept.
    #[tokio::test]
    async fn connections_to_pods_are_not_kept() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await;
        let listener = listener.expect("a port");
        let authority = listener.local_addr().expect("an address").to_string();
        let pods = Kubelets::new(KubeletConfig::default(), None).expect("a way");
        let pods = pods.pod_transport();
        let answering = async {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let mut head = [0; 1024];
                let _ = stream.read(&mut head).await.expect("a request");
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                stream.write_all(answer).await.expect("written");
                // It could be used again, and is closed by the client.
                assert_eq!(stream.read(&mut head).await.expect("an end"), 0);
            }
        };
        let asking = async {
            for _ in 0..2 {
                let request = http::Request::get(format!("http://{authority}/"));
                let request = request.body(crate::proxy::empty()).expect("a request");
                assert_eq!(pods.send(request).await.expect("an answer").status(), 200);
            }
        };
        let both = async { tokio::join!(answering, asking) };
        let both = tokio::time::timeout(Duration::from_secs(30), both).await;
        both.expect("no connection is kept");
    }

    #[test]
    fn addresses_are_chosen_by_the_preferred_types() {
        let config = KubeletConfig {
            address_types: vec!["Hostname".to_owned(), "InternalIP".to_owned()],
            ..KubeletConfig::default()
        };
        let kubelets = Kubelets::new(config, None).expect("a way");
        let node = |status| {
            Object::from_value(json!({"metadata": {"name": "n"}, "status": status}))
                .expect("an object")
        };
        let found = kubelets.of(&node(json!({
            "addresses": [
                {"type": "InternalIP", "address": "fd00::1"},
                {"type": "ExternalIP", "address": "1.2.3.4"},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 1234}},
            "declaredFeatures": ["ExtendWebSocketsToKubelet"],
        })));
        let found = found.expect("a kubelet");
        let location = found.location("/a b".to_owned(), "x=1".to_owned());
        assert_eq!(location.to_string(), "https://[fd00::1]:1234/a%20b?x=1");
        assert!(found.speaks_websockets);
        let none = kubelets.of(&node(json!({
            "addresses": [{"type": "ExternalIP", "address": "1.2.3.4"}],
        })));
        assert_eq!(
            none.expect_err("no address").message,
            "no preferred addresses found; known addresses: [{ExternalIP 1.2.3.4}]"
        );
    }
}
