//! Certificates, keys and tokens that are replaced under a running server: revocation also ends
//! established connections.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use kube::client::ConfigExt;
use kube::config::AuthInfo;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::json;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::support::etcd::{Etcd, Tls};
use super::support::{ADMIN, Store, TestServer, until};
use super::{JSON, ask};

const PODS: &str = "/api/v1/pods";

/// A folder of certificates and keys.
struct Pki(PathBuf);

impl Pki {
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn flag(&self, flag: &str, name: &str) -> String {
        format!("--{flag}={}", self.path(name).display())
    }

    /// Writes as rotating tools do: the new file takes the old one's place.
    fn write(&self, name: &str, text: &str) {
        fs::write(self.path("new"), text).unwrap();
        fs::rename(self.path("new"), self.path(name)).unwrap();
    }

    /// A new authority in `ca`, with a certificate for each user, of an administrator's group.
    fn authority(&self, ca: &str, users: &[&str]) {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, ca);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        self.write(ca, &params.self_signed(&key).unwrap().pem());
        let issuer = Issuer::new(params, key);
        for user in users {
            let key = KeyPair::generate().unwrap();
            let mut params =
                CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])
                    .unwrap();
            params.distinguished_name = DistinguishedName::new();
            params
                .distinguished_name
                .push(DnType::OrganizationName, "system:masters");
            params.distinguished_name.push(DnType::CommonName, *user);
            self.write(
                &format!("{user}.crt"),
                &params.signed_by(&key, &issuer).unwrap().pem(),
            );
            self.write(&format!("{user}.key"), &key.serialize_pem());
        }
    }

    fn key(&self, name: &str) {
        self.write(name, &KeyPair::generate().unwrap().serialize_pem());
    }

    fn certificate(&self, name: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(self.path(name)).unwrap()
    }
}

/// A connection of a client that shows a certificate.
struct Line {
    sender: tokio::sync::Mutex<SendRequest<Full<Bytes>>>,
    /// The certificate that the server presented.
    shown: CertificateDer<'static>,
}

impl Line {
    async fn open(port: u16, cert: PathBuf, key: PathBuf) -> Self {
        let mut config = kube::Config::new(http::Uri::from_static("https://127.0.0.1"));
        config.accept_invalid_certs = true;
        let (cert, key) = (cert.display().to_string(), key.display().to_string());
        config.auth_info = AuthInfo {
            client_certificate: Some(cert),
            client_key: Some(key),
            ..AuthInfo::default()
        };
        let tls = TlsConnector::from(Arc::new(config.rustls_client_config().unwrap()));
        let tcp = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let stream = tls
            .connect(ServerName::try_from("localhost").unwrap(), tcp)
            .await
            .unwrap();
        let shown = stream.get_ref().1.peer_certificates().unwrap()[0]
            .clone()
            .into_owned();
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        Self {
            sender: tokio::sync::Mutex::new(sender),
            shown,
        }
    }

    async fn get(&self, path: &str) -> u16 {
        let request = Request::get(path)
            .header("Host", "localhost")
            .body(Full::default())
            .unwrap();
        let mut sender = self.sender.lock().await;
        // The connection is ready when its task has seen the end of the last answer.
        sender.ready().await.unwrap();
        let answer = sender.send_request(request).await.unwrap();
        let status = answer.status().as_u16();
        answer.into_body().collect().await.unwrap();
        status
    }
}

fn folder() -> (tempfile::TempDir, Pki) {
    let folder = tempfile::tempdir().unwrap();
    let pki = Pki(folder.path().join("pki"));
    fs::create_dir(&pki.0).unwrap();
    (folder, pki)
}

async fn start(folder: &Path, store: Store<'_>, flags: &[String]) -> TestServer {
    TestServer::start_with(
        folder,
        store,
        &flags.iter().map(String::as_str).collect::<Vec<_>>(),
    )
    .await
}

async fn line(server: &TestServer, pki: &Pki, user: &str) -> Line {
    Line::open(
        server.port(),
        pki.path(&format!("{user}.crt")),
        pki.path(&format!("{user}.key")),
    )
    .await
}

#[tokio::test]
async fn a_client_of_a_removed_authority_is_refused_on_new_and_old_connections() {
    let (folder, pki) = folder();
    pki.authority("ca.crt", &["alice"]);
    pki.authority("serving-ca.crt", &["serving"]);
    let flags = [
        pki.flag("client-ca-file", "ca.crt"),
        pki.flag("tls-cert-file", "serving.crt"),
        pki.flag("tls-private-key-file", "serving.key"),
    ];
    let server = start(folder.path(), Store::Embedded, &flags).await;
    let alice = line(&server, &pki, "alice").await;
    assert_eq!(
        (alice.get(PODS).await, &alice.shown),
        (200, &pki.certificate("serving.crt"))
    );

    fs::copy(pki.path("alice.crt"), pki.path("old.crt")).unwrap();
    fs::copy(pki.path("alice.key"), pki.path("old.key")).unwrap();
    pki.authority("ca.crt", &["bob"]);
    pki.authority("serving-ca.crt", &["serving"]);
    server.hang_up();
    until("an old connection is refused", async || {
        alice.get(PODS).await == 401
    })
    .await;
    until("the new certificate is shown", async || {
        line(&server, &pki, "bob").await.shown == pki.certificate("serving.crt")
    })
    .await;
    assert!(server.log().contains("SIGHUP"), "{}", server.log());
    let again = line(&server, &pki, "old").await;
    let bob = line(&server, &pki, "bob").await;
    assert_eq!(
        (
            again.get(PODS).await,
            bob.get(PODS).await,
            alice.get(PODS).await
        ),
        (401, 200, 401)
    );
    // What extension servers are told follows: others may still use the old authority.
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let ca = fs::read_to_string(pki.path("ca.crt")).unwrap();
    until("extension servers are told", async || {
        let told = ask("GET", path).answer(&server).await.1;
        let told = told["data"]["client-ca-file"].as_str().unwrap().to_owned();
        told.ends_with(&ca) && told.len() > ca.len()
    })
    .await;

    // What cannot be used is named, and changes nothing.
    pki.write("ca.crt", "no certificate");
    pki.write(
        "serving.key",
        &fs::read_to_string(pki.path("bob.key")).unwrap(),
    );
    server.hang_up();
    for flag in [
        pki.flag("client-ca-file", "ca.crt"),
        pki.flag("tls-private-key-file", "serving.key"),
    ] {
        until("it is told", async || {
            server.log().contains(&format!("{flag}: "))
        })
        .await;
    }
    assert_eq!(bob.get(PODS).await, 200);
    assert_eq!(
        line(&server, &pki, "bob").await.shown,
        pki.certificate("serving.crt")
    );
}

#[tokio::test]
async fn tokens_end_with_their_line_and_their_key() {
    let (folder, pki) = folder();
    pki.key("sa.key");
    let flags = [
        pki.flag("service-account-key-file", "sa.key"),
        pki.flag("service-account-signing-key-file", "sa.key"),
        "--service-account-issuer=https://example.com".to_owned(),
    ];
    let server = start(folder.path(), Store::Embedded, &flags).await;
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bob"}});
    assert_eq!(
        ask("POST", "/api/v1/namespaces/default/serviceaccounts")
            .json(&account)
            .status(&server)
            .await,
        201
    );
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let issue = async |by: &str| {
        let path = "/api/v1/namespaces/default/serviceaccounts/bob/token";
        let (status, answer) = ask("POST", path)
            .by(by)
            .body(JSON, request.to_string())
            .answer(&server)
            .await;
        assert_eq!(status, 201, "{answer}");
        answer["status"]["token"].as_str().unwrap().to_owned()
    };
    let old = issue(ADMIN).await;
    assert_eq!(ask("GET", "/api").by(&old).status(&server).await, 200);

    fs::write(
        folder.path().join("tokens.csv"),
        "other,admin,admin-uid,\"system:masters\"\n",
    )
    .unwrap();
    pki.key("sa.key");
    server.hang_up();
    until("the token is revoked", async || {
        ask("GET", "/api").status(&server).await == 401
    })
    .await;
    until("the key is gone", async || {
        ask("GET", "/api").by(&old).status(&server).await == 401
    })
    .await;
    assert_eq!(ask("GET", PODS).by("other").status(&server).await, 200);
    until("the new key signs", async || {
        ask("GET", "/api")
            .by(&issue("other").await)
            .status(&server)
            .await
            == 200
    })
    .await;
}

#[tokio::test]
async fn etcd_is_asked_with_a_new_certificate() {
    let (folder, pki) = folder();
    pki.authority("etcd-ca.crt", &["member", "client"]);
    let files = Tls {
        ca: pki.path("etcd-ca.crt"),
        cert: pki.path("member.crt"),
        key: pki.path("member.key"),
    };
    let mut etcd = tokio::task::spawn_blocking(|| Etcd::start_with(Some(files)))
        .await
        .unwrap();
    let flags = [
        pki.flag("etcd-cafile", "etcd-ca.crt"),
        pki.flag("etcd-certfile", "client.crt"),
        pki.flag("etcd-keyfile", "client.key"),
    ];
    let server = start(folder.path(), Store::Etcd(&etcd.endpoint()), &flags).await;
    let map =
        |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let maps = "/api/v1/namespaces/default/configmaps";
    assert_eq!(
        ask("POST", maps).json(&map("before")).status(&server).await,
        201
    );

    // Nothing of the old authority is trusted by the etcd that comes back.
    pki.authority("etcd-ca.crt", &["member", "client"]);
    let etcd = tokio::task::spawn_blocking(move || {
        etcd.restart();
        etcd
    });
    let _etcd = etcd.await.unwrap();
    server.hang_up();
    // Of one that was cut off nobody knows whether it was done.
    until("etcd is written to again", async || {
        matches!(
            ask("POST", maps).json(&map("after")).status(&server).await,
            201 | 409
        )
    })
    .await;
    // The watch caches go on, too.
    let latest = format!("{maps}?resourceVersion=0");
    let has = async |name: &str| {
        let (_, list) = ask("GET", &latest).answer(&server).await;
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .any(|item| item["metadata"]["name"] == name)
    };
    until("the watch goes on", async || has("after").await).await;
    assert!(has("before").await);
}

/// Requests never see a state between two files, however often and under whatever load they change.
#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_replaced_under_load() {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 5;
    let (folder, pki) = folder();
    pki.authority("ca.crt", &["alice"]);
    let authority = fs::read_to_string(pki.path("ca.crt")).unwrap();
    let flags = [pki.flag("client-ca-file", "ca.crt")];
    let server = start(folder.path(), Store::Embedded, &flags).await;
    let stays = format!("{ADMIN},admin,admin-uid,\"system:masters\"\n");
    let tokens = |more: &str| {
        pki.write("tokens.csv", &format!("{stays}{more}"));
        fs::rename(pki.path("tokens.csv"), folder.path().join("tokens.csv")).unwrap();
    };
    let lines = futures::future::join_all((0..CLIENTS).map(|_| line(&server, &pki, "alice")));
    let (lines, answered) = (lines.await, std::sync::atomic::AtomicUsize::new(0));
    let load = futures::future::join_all(lines.iter().map(async |alice| {
        loop {
            assert_eq!(alice.get(PODS).await, 200, "she is always known");
            assert_eq!(
                ask("GET", "/api").status(&server).await,
                200,
                "the administrator"
            );
            answered.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }));
    let changes = async {
        for round in 0..ROUNDS {
            let (token, user) = (format!("token-{round}"), format!("user-{round}"));
            // Another authority, and another token, each beside what stays.
            pki.authority("more.crt", &[&user]);
            let more = fs::read_to_string(pki.path("more.crt")).unwrap();
            tokens(&format!("{token},guest,guest-uid,\"system:masters\"\n"));
            pki.write("ca.crt", &format!("{authority}{more}"));
            server.hang_up();
            let guest = line(&server, &pki, &user).await;
            until("they are known", async || {
                let by_token = ask("GET", "/api").by(&token).status(&server).await;
                (by_token, guest.get(PODS).await) == (200, 200)
            })
            .await;
            tokens("");
            pki.write("ca.crt", &authority);
            server.hang_up();
            until("they are known no more", async || {
                let by_token = ask("GET", "/api").by(&token).status(&server).await;
                (by_token, guest.get(PODS).await) == (401, 401)
            })
            .await;
        }
    };
    tokio::select! {
        _ = load => unreachable!("the load has no end"),
        () = changes => {}
    }
    let answered = answered.into_inner();
    assert!(answered > CLIENTS * ROUNDS, "{answered} requests");
}
