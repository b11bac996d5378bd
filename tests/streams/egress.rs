//! Ways out of the server through a proxy (`--egress-selector-config-file`).

use std::path::Path;
use std::sync::Arc;

use http_body_util::Full;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::json;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::commands::open;
use super::support::connect_proxy::{ConnectProxy, Reply, selecting};
use super::support::etcd::{self, Etcd};
use super::support::kubelet::{Act, Kubelet, Pki, say};
use super::support::{Store, TestServer};
use super::{Cluster, request, status};

/// An address at which nobody is.
pub const NODE: &str = "192.0.2.77";

/// The flag of a configuration by which networks are reached through a proxy.
fn flag(folder: &Path, networks: &[&str], transport: &str) -> String {
    let file = selecting(folder, networks, transport);
    format!("--egress-selector-config-file={file}")
}

/// A server whose ways into some networks lead through a proxy at a socket, and its pod on a node
/// at [`NODE`].
pub async fn start(
    folder: &Path,
    networks: &[&str],
    answer: impl Fn(&super::Seen) -> Act + Send + Sync + 'static,
) -> (Cluster, String) {
    let socket = folder.join("proxy.socket").display().to_string();
    let flag = flag(folder, networks, &format!("{{uds: {{udsName: {socket}}}}}"));
    let pki = Pki::new(NODE);
    let cluster = Cluster::start_with(&pki, &[&flag], answer).await;
    let addresses = json!([{"type": "InternalIP", "address": NODE}]);
    cluster.add_node("far", &addresses, 10250, &[]).await;
    cluster.add_pod("q", "far").await;
    (cluster, socket)
}

pub const LOG: &str = "/api/v1/namespaces/default/pods/q/log";

#[tokio::test]
async fn nodes_and_pods_are_reached_through_the_proxy() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, socket) = start(folder.path(), &["Cluster"], |seen| match &*seen.method {
        "POST" => Act::Command,
        _ => say("200 OK", "hello"),
    })
    .await;
    let plain = tokio::net::TcpListener::bind(("127.0.0.1", 0))
        .await
        .unwrap();
    let pod = plain.local_addr().unwrap().port();
    let pages = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut stream, _) = plain.accept().await.unwrap();
        stream.read_u8().await.unwrap();
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\npage";
        stream.write_all(answer).await.unwrap();
    });
    let kubelet = cluster.kubelet.port;
    let proxy = ConnectProxy::at_socket(socket.as_ref(), move |address| {
        Reply::Port(if address.ends_with(":10250") {
            kubelet
        } else {
            pod
        })
    });
    let answer = cluster.get(LOG).await;
    assert_eq!((answer.status, &answer.body[..]), (200, &b"hello"[..]));
    let path = "/api/v1/namespaces/default/pods/q/exec?command=cat&stdin=1&stdout=1";
    drop(open(&cluster, path, "v5.channel.k8s.io").await.unwrap());
    // The pod, by plain HTTP.
    let status = json!({"metadata": {"name": "q"}, "status": {"phase": "Running", "podIPs": [{"ip": "192.0.2.78"}], "podIP": "192.0.2.78"}});
    let answer = cluster
        .ask("PUT", "/api/v1/namespaces/default/pods/q/status", &status)
        .await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = cluster
        .get("/api/v1/namespaces/default/pods/q:8080/proxy/x")
        .await;
    assert_eq!((answer.status, &answer.body[..]), (200, &b"page"[..]));
    pages.await.unwrap();
    let asked = proxy.asked();
    assert!(asked.contains(&format!("{NODE}:10250")), "{asked:?}");
    assert_eq!(asked.last().unwrap(), "192.0.2.78:8080");
}

#[tokio::test]
async fn proxies_that_do_not_connect_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, socket) = start(folder.path(), &["cluster"], |_| say("200 OK", "hello")).await;
    let to = format!("{NODE}:10250");
    let failed = async |why: &str| {
        let why = format!("Get \"https://{to}/containerLogs/default/q/c\": {why}");
        let answer = cluster.get(LOG).await;
        assert_eq!(status(&answer), (500, String::new(), why));
    };
    failed(&format!(
        "dial unix {socket}: connect: no such file or directory"
    ))
    .await;
    for (reply, why) in [
        (
            "HTTP/1.1 403 Not For You\r\nContent-Length: 0\r\n\r\n",
            format!("proxy error from {socket} while dialing {to}, code 403: 403 Not For You"),
        ),
        (
            "HTTP/1.1 204 No Content\r\n\r\n",
            format!("proxy error from {socket} while dialing {to}, code 204: 204 No Content"),
        ),
        (
            "SSH-2.0-OpenSSH\r\n\r\n",
            format!(
                "reading HTTP response from CONNECT to {to} via proxy {socket} failed: malformed HTTP response"
            ),
        ),
        (
            "",
            format!(
                "reading HTTP response from CONNECT to {to} via proxy {socket} failed: unexpected EOF"
            ),
        ),
        (
            "HTTP/1.1 200 OK\r\n\r\nearly",
            format!("unexpected 5 bytes of buffered data from CONNECT proxy \"{socket}\""),
        ),
    ] {
        let proxy = ConnectProxy::at_socket(socket.as_ref(), move |_| Reply::Say(reply));
        failed(&why).await;
        drop(proxy);
        std::fs::remove_file(&socket).unwrap();
    }
}

/// Proxies know this server by its certificate, and it knows them by theirs.
#[tokio::test]
async fn proxies_with_tls_are_verified_and_shown_a_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let certs = Certs::new(folder.path());
    let pki = Pki::new(NODE);
    let kubelet = Kubelet::start(&pki, |_| say("200 OK", "hello")).await;
    let target = kubelet.port;
    let (proxy, port) = ConnectProxy::at_port(certs.server(), move |_| Reply::Port(target)).await;
    let tls = |ca: &str| {
        let (cert, key) = (certs.file("cert.pem"), certs.file("key.pem"));
        format!(
            "{{tcp: {{url: \"https://127.0.0.1:{port}\", tlsConfig: {{caBundle: \"{ca}\", clientCert: \"{cert}\", clientKey: \"{key}\"}}}}}}"
        )
    };
    let ask = async |ca: &str| {
        let flag = flag(folder.path(), &["cluster"], &tls(ca));
        let cluster = Cluster::start_with(&pki, &[&flag], |_| say("200 OK", "")).await;
        let addresses = json!([{"type": "InternalIP", "address": NODE}]);
        cluster.add_node("far", &addresses, 10250, &[]).await;
        cluster.add_pod("q", "far").await;
        cluster.get(LOG).await
    };
    let answer = ask(&certs.file("ca.pem")).await;
    assert_eq!((answer.status, &answer.body[..]), (200, &b"hello"[..]));
    assert_eq!(proxy.asked(), [format!("{NODE}:10250")]);
    let other = tempfile::tempdir().unwrap();
    let answer = ask(&Certs::new(other.path()).file("ca.pem")).await;
    let (code, _, message) = status(&answer);
    assert!(
        code == 500 && message.ends_with("x509: certificate signed by unknown authority"),
        "{message}"
    );
    assert_eq!(proxy.asked().len(), 1);
}

/// Webhooks by URL are in the network of the control plane, those behind Services in the cluster's.
#[tokio::test]
async fn webhooks_are_reached_through_the_proxy_of_their_network() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, socket) = start(folder.path(), &["controlplane"], |_| say("200 OK", "")).await;
    let refused = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";
    let proxy = ConnectProxy::at_socket(socket.as_ref(), move |_| Reply::Say(refused));
    let service = json!({"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443}]}});
    let services = "/api/v1/namespaces/default/services";
    assert_eq!(cluster.ask("POST", services, &service).await.status, 201);
    let webhook = |name: &str, client| {
        json!({
            "name": format!("{name}.example.com"), "clientConfig": client,
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 1,
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [name]}],
        })
    };
    let hooks = json!({
        "metadata": {"name": "h"},
        "webhooks": [
            webhook("configmaps", json!({"url": "https://192.0.2.9/hook"})),
            webhook("secrets", json!({"service": {"namespace": "default", "name": "hook"}})),
        ],
    });
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    assert_eq!(cluster.ask("POST", path, &hooks).await.status, 201);
    let create = async |resource: &str| {
        let path = format!("/api/v1/namespaces/default/{resource}");
        let answer = cluster
            .ask("POST", &path, &json!({"metadata": {"name": "x"}}))
            .await;
        status(&answer).2
    };
    let told = create("configmaps").await;
    let why = "while dialing 192.0.2.9:443, code 403: 403 Forbidden";
    assert!(told.contains(why), "{told}");
    assert_eq!(proxy.asked(), ["192.0.2.9:443"]);
    // Nothing is said of the cluster: it is reached directly, though in vain.
    let told = create("secrets").await;
    assert!(!told.is_empty() && !told.contains("proxy error"), "{told}");
    assert_eq!(proxy.asked().len(), 1);
}

/// The store is reached through a proxy, too, and again when its connections break off.
#[tokio::test]
async fn etcd_is_reached_through_the_proxy() {
    let folder = tempfile::tempdir().unwrap();
    let certs = Certs::new(folder.path());
    let etcd = Etcd::start_with(Some(etcd::Tls {
        ca: certs.file("ca.pem").into(),
        cert: certs.file("cert.pem").into(),
        key: certs.file("key.pem").into(),
    }));
    let socket = folder.path().join("proxy.socket");
    let port = etcd.port();
    let proxy = ConnectProxy::at_socket(&socket, move |_| Reply::Port(port));
    let transport = format!("{{uds: {{udsName: {}}}}}", socket.display());
    let flags = [
        flag(folder.path(), &["etcd"], &transport),
        format!("--etcd-cafile={}", certs.file("ca.pem")),
        format!("--etcd-certfile={}", certs.file("cert.pem")),
        format!("--etcd-keyfile={}", certs.file("key.pem")),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    // The first member is not there.
    let members = format!("https://127.0.0.1:1,https://127.0.0.1:{port}");
    let server = TestServer::start_with(folder.path(), Store::Etcd(&members), &flags).await;
    let create = async |name: &str| {
        let body = json!({"metadata": {"name": name}}).to_string();
        let request = request("POST", "/api/v1/namespaces/default/configmaps")
            .header("Content-Type", super::JSON)
            .body(Full::new(body.into()))
            .unwrap();
        let answer = super::wire::call(server.port(), request, super::PATIENCE).await;
        answer.unwrap().status
    };
    assert_eq!(create("a").await, 201);
    assert!(proxy.asked().contains(&format!("127.0.0.1:{port}")));
    drop(proxy);
    std::fs::remove_file(&socket).unwrap();
    let again = ConnectProxy::at_socket(&socket, move |_| Reply::Port(port));
    // The first write may still go to a connection that is about to end.
    let mut codes = vec![create("b").await];
    while codes.last() != Some(&201) {
        assert!(codes.len() < 10, "{codes:?}");
        codes.push(create(&format!("b{}", codes.len())).await);
    }
    assert!(again.asked().contains(&format!("127.0.0.1:{port}")));
}

/// A file that says what is not to be had is refused, not ignored.
#[tokio::test]
async fn files_that_cannot_be_obeyed_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let flag = flag(folder.path(), &["cluster"], "{uds: {udsName: /run/proxy}}");
    let file = folder.path().join("egress.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    for (text, why) in [
        (
            text.replace("HTTPConnect", "GRPC"),
            "failed to setup egress selector: failed to create dialer for egressSelection \"cluster\": the protocol GRPC is not implemented, use HTTPConnect",
        ),
        (
            text.replace("name: cluster", "name: master"),
            "failed to validate egress selector configuration: service.connection: Unsupported value: \"master\": supported values: \"cluster\", \"controlplane\", \"etcd\"",
        ),
        (
            text.replace("egressSelections", "selections"),
            "failed to read egress selector config:",
        ),
    ] {
        std::fs::write(&file, text).unwrap();
        let flags = [flag.clone(), "--data-dir=data".to_owned()];
        let mut server = TestServer::run(folder.path(), &flags);
        assert!(!server.ends().await);
        assert!(server.log().contains(why), "{}", server.log());
    }
}

/// The certificates of a server that is a client as well, by an authority of its own.
struct Certs {
    folder: std::path::PathBuf,
    chain: Vec<rustls_pki_types::CertificateDer<'static>>,
    key: Vec<u8>,
}

impl Certs {
    fn new(folder: &Path) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let cert = params.signed_by(&key, &authority).unwrap();
        for (name, text) in [
            ("ca.pem", authority.pem()),
            ("cert.pem", cert.pem()),
            ("key.pem", key.serialize_pem()),
        ] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        Self {
            folder: folder.to_owned(),
            chain: vec![cert.der().clone(), authority.der().clone()],
            key: key.serialize_der(),
        }
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// A server that wants a certificate from its clients.
    fn server(&self) -> ServerConfig {
        let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.chain[1].clone()).unwrap();
        let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.clone()));
        ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients.build().unwrap())
            .with_single_cert(self.chain[..1].to_vec(), key)
            .unwrap()
    }
}
