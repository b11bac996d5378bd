//! Accepted flags are obeyed: each test starts servers that differ in flags and observes the
//! difference. `src/options/flag_coverage.rs` maps flags to tests.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rcgen::SigningKey;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme,
    SupportedProtocolVersion,
};

use super::connections::reads;
use super::support::etcd::Etcd;
use super::support::{ADMIN, Process, Store, TestServer, USER, free_port, http as wire};
use super::{PATIENCE, ask, both, embedded, start};

/// Interval of polling for an expected state.
const LOOK: Duration = Duration::from_millis(20);

/// Starts a server process on that port, with the data in the folder and further flags.
fn spawn(folder: &Path, port: u16, flags: &[&str]) -> Process {
    let own = ["--data-dir=data", "--bind-address=127.0.0.1"];
    let flags = own.iter().chain(flags).map(|flag| (*flag).to_owned());
    let port = format!("--secure-port={port}");
    TestServer::run(folder, &flags.chain([port]).collect::<Vec<_>>())
}

/// Waits until a GET is answered with the status.
async fn becomes(server: &TestServer, path: &str, status: u16) {
    let begun = Instant::now();
    loop {
        let answer = ask("GET", path).answer(server).await;
        if answer.0 == status {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{path}: {answer:?}");
        tokio::time::sleep(LOOK).await;
    }
}

async fn create(server: &TestServer, path: &str, object: Value) -> Value {
    let (status, made) = ask("POST", path).json(&object).answer(server).await;
    assert_eq!(status, 201, "{path}: {made}");
    made
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn services_are_where_the_flags_say() {
    let flags = [
        "--service-cluster-ip-range=10.99.0.0/24",
        "--service-node-port-range=31000-31001",
        "--kubernetes-service-node-port=31000",
    ];
    let (_folder, server) = embedded(&flags).await;
    let (_, own) = ask("GET", "/api/v1/namespaces/default/services/kubernetes")
        .answer(&server)
        .await;
    assert_eq!(
        (
            &own["spec"]["clusterIP"],
            &own["spec"]["ports"][0]["nodePort"]
        ),
        (&json!("10.99.0.1"), &json!(31000))
    );
    let service = |name: &str| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    let made = create(&server, "/api/v1/namespaces/default/services", service("a")).await;
    assert_eq!(made["spec"]["ports"][0]["nodePort"], 31001);
    assert!(
        made["spec"]["clusterIP"]
            .as_str()
            .unwrap()
            .starts_with("10.99.0."),
        "{made}"
    );
    assert_ne!(
        ask("POST", "/api/v1/namespaces/default/services")
            .json(&service("b"))
            .status(&server)
            .await,
        201
    );
}

/// Returns the claims of a token that the server issued.
async fn claims(server: &TestServer, spec: Value) -> Value {
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    ask("POST", "/api/v1/namespaces/default/serviceaccounts")
        .json(&account)
        .status(server)
        .await;
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let made = create(
        server,
        "/api/v1/namespaces/default/serviceaccounts/robot/token",
        request,
    )
    .await;
    let token = made["status"]["token"].as_str().unwrap().to_owned();
    let payload = BASE64_URL_SAFE_NO_PAD
        .decode(token.split('.').nth(1).unwrap())
        .unwrap();
    serde_json::from_slice(&payload).unwrap()
}

#[tokio::test]
async fn tokens_of_service_accounts_are_as_the_flags_say() {
    let seconds =
        |claims: &Value| claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap();
    // What kubelets ask for pods.
    let warned = json!({"expirationSeconds": 3607});
    let flags = [
        "--service-account-issuer=https://issuer.example",
        "--service-account-jwks-uri=https://keys.example/keys",
        "--service-account-max-token-expiration=2h",
        "--service-account-extend-token-expiration=false",
        "--api-audiences=one,two",
    ];
    let (_folder, server) = embedded(&flags).await;
    let long = claims(&server, json!({"expirationSeconds": 86400})).await;
    assert_eq!(
        (&long["iss"], &long["aud"], seconds(&long)),
        (
            &json!("https://issuer.example"),
            &json!(["one", "two"]),
            7200
        )
    );
    let (_, documents) = ask("GET", "/.well-known/openid-configuration")
        .answer(&server)
        .await;
    assert_eq!(
        (&documents["issuer"], &documents["jwks_uri"]),
        (
            &json!("https://issuer.example"),
            &json!("https://keys.example/keys")
        )
    );

    let (_folder, server) = embedded(&["--external-hostname=api.example"]).await;
    let long = claims(&server, json!({"expirationSeconds": 86400})).await;
    assert_eq!(seconds(&long), 86400);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]}});
    create(&server, "/api/v1/namespaces/default/pods", pod).await;
    let bound = json!({"expirationSeconds": 3607, "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p"}});
    assert_eq!(
        seconds(&claims(&server, bound.clone()).await),
        365 * 24 * 3600
    );
    let (_, documents) = ask("GET", "/.well-known/openid-configuration")
        .answer(&server)
        .await;
    let uri = documents["jwks_uri"].as_str().unwrap();
    assert!(uri.starts_with("https://api.example:"), "{uri}");

    let (_folder, server) = embedded(&["--service-account-extend-token-expiration=false"]).await;
    assert_eq!(seconds(&claims(&server, warned).await), 3607);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]}});
    create(&server, "/api/v1/namespaces/default/pods", pod).await;
    assert_eq!(seconds(&claims(&server, bound).await), 3607);
}

#[tokio::test]
async fn browsers_are_told_what_the_flags_say() {
    let flags = [
        r"--cors-allowed-origins=^https://example\.com$,//b\.org(:|$)",
        "--strict-transport-security-directives=max-age=31536000,includeSubDomains",
    ];
    let (_folder, server) = embedded(&flags).await;
    let cors = |answer: &wire::Answer| {
        let names = [
            "access-control-allow-origin",
            "access-control-allow-methods",
            "access-control-allow-headers",
            "access-control-expose-headers",
            "access-control-allow-credentials",
        ];
        names.map(|name| match answer.headers.get(name) {
            Some(value) => value.to_str().unwrap().to_owned(),
            None => String::new(),
        })
    };
    let allowed = |origin: &str| {
        [
            origin,
            "POST, GET, OPTIONS, PUT, DELETE, PATCH",
            "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since",
            "Date",
            "true",
        ]
        .map(str::to_owned)
    };
    let nothing = [const { String::new() }; 5];
    // Preflights have no credentials; other requests are answered as ever.
    for (method, token, origin, status, want) in [
        (
            "OPTIONS",
            "",
            "https://example.com",
            204,
            allowed("https://example.com"),
        ),
        (
            "OPTIONS",
            "",
            "https://b.org:8080",
            204,
            allowed("https://b.org:8080"),
        ),
        (
            "OPTIONS",
            "",
            "https://example.com.evil.org",
            403,
            nothing.clone(),
        ),
        (
            "GET",
            ADMIN,
            "https://example.com",
            200,
            allowed("https://example.com"),
        ),
        (
            "GET",
            "wrong",
            "https://example.com",
            401,
            allowed("https://example.com"),
        ),
        ("GET", ADMIN, "http://example.com", 200, nothing.clone()),
    ] {
        let ask = ask(method, "/api/v1/namespaces/default/pods").by(token);
        let answer = ask.header("Origin", origin).send(&server).await;
        assert_eq!(
            (answer.status, cors(&answer)),
            (status, want),
            "{method} {origin}"
        );
        let told = &answer.headers["strict-transport-security"];
        assert_eq!(told, "max-age=31536000; includeSubDomains");
    }
    let answer = ask("GET", "/version").send(&server).await;
    assert_eq!(cors(&answer), nothing);
}

#[tokio::test]
async fn authentication_and_authorization_flags_are_obeyed() {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token", "metadata": {"name": "bootstrap-token-abcdef"},
        "stringData": {"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"},
    });
    let bootstrap = "abcdef.0123456789abcdef";
    for (flag, anonymous, bootstrapper, user) in [
        ("--anonymous-auth=true", 200, 401, 403),
        ("--anonymous-auth=false", 401, 401, 403),
        ("--enable-bootstrap-token-auth=true", 200, 200, 403),
        // Nobody in particular is not allowed everything.
        ("--authorization-mode=AlwaysAllow", 401, 401, 200),
        ("--authorization-mode=AlwaysDeny", 403, 401, 403),
    ] {
        // Modes add up, but this server begins without those of the others.
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let tokens = folder.path().join("tokens.csv");
        std::fs::write(
            &tokens,
            format!("{ADMIN},admin,1,\"system:masters\"\n{USER},alice,2,\"devs\"\n"),
        )
        .unwrap();
        let known = format!("--token-auth-file={}", tokens.display());
        let mut process = spawn(folder.path(), port, &[&known, flag]);
        let ready = async || match wire::get_status(port, "/readyz").await {
            // Who asks without a token may not be let in.
            Some(401 | 403) => Some(200),
            other => other,
        };
        process.ready(flag, ready).await;
        let status = async |method: &str, path: &str, token: &str, body: &Value| {
            let mut request = http::Request::builder()
                .method(method)
                .uri(path)
                .header("Host", "localhost");
            if !token.is_empty() {
                request = request.header("Authorization", format!("Bearer {token}"));
            }
            let request = request.header("Content-Type", "application/json");
            let body = if body.is_null() {
                String::new()
            } else {
                body.to_string()
            };
            wire::call(
                port,
                request
                    .body(http_body_util::Full::new(body.into()))
                    .unwrap(),
                PATIENCE,
            )
            .await
            .unwrap()
            .status
        };
        assert_eq!(
            status(
                "POST",
                "/api/v1/namespaces/kube-system/secrets",
                ADMIN,
                &secret
            )
            .await,
            201,
            "{flag}"
        );
        assert_eq!(
            status("GET", "/version", "", &Value::Null).await,
            anonymous,
            "{flag}"
        );
        assert_eq!(
            status("GET", "/api", bootstrap, &Value::Null).await,
            bootstrapper,
            "{flag}"
        );
        assert_eq!(
            status("GET", "/api/v1/secrets", USER, &Value::Null).await,
            user,
            "{flag}"
        );
    }
}

/// An ECDSA signature of P-256 as JWTs have it, of one in DER: two numbers of 32 bytes each.
fn fixed(der: &[u8]) -> Vec<u8> {
    let mut rest = &der[2..];
    let mut out = Vec::new();
    for _ in 0..2 {
        let (number, after) = rest[2..].split_at(usize::from(rest[1]));
        let digits = &number[number.iter().take_while(|byte| **byte == 0).count()..];
        out.extend(std::iter::repeat_n(0, 32 - digits.len()));
        out.extend(digits);
        rest = after;
    }
    out
}

/// A token of a secret that there is not, signed with the key of the server.
/// The token of a service account in `default` that is kept in the secret NAME-token.
pub fn secret_token(key: &rcgen::KeyPair, name: &str, uid: &str) -> String {
    let header = BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256"}"#);
    let claims = json!({
        "iss": "kubernetes/serviceaccount",
        "sub": format!("system:serviceaccount:default:{name}"),
        "kubernetes.io/serviceaccount/namespace": "default",
        "kubernetes.io/serviceaccount/secret.name": format!("{name}-token"),
        "kubernetes.io/serviceaccount/service-account.name": name,
        "kubernetes.io/serviceaccount/service-account.uid": uid,
    });
    let claims = BASE64_URL_SAFE_NO_PAD.encode(claims.to_string());
    let signed = format!("{header}.{claims}");
    let signature = fixed(&key.sign(signed.as_bytes()).unwrap());
    format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
}

#[tokio::test]
async fn tokens_of_secrets_are_looked_up_unless_the_flag_is_off() {
    let key = rcgen::KeyPair::generate().unwrap();
    let token = secret_token(&key, "robot", "1");
    for (flag, status) in [
        ("--service-account-lookup=true", 401),
        ("--service-account-lookup=false", 200),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("robot.key");
        std::fs::write(&file, key.serialize_pem()).unwrap();
        let key_file = format!("--service-account-key-file={}", file.display());
        let server = start(folder.path(), Store::Embedded, &[&key_file, flag]).await;
        assert_eq!(
            ask("GET", "/api").by(&token).status(&server).await,
            status,
            "{flag}"
        );
    }
}

#[tokio::test]
async fn stored_objects_are_counted_as_often_as_the_flag_says() {
    let count = async |server: &TestServer, series: &str| {
        let answer = ask("GET", "/metrics").send(server).await;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        line.map(|value| value.trim().parse::<i64>().unwrap())
    };
    let maps = "/api/v1/namespaces/default/configmaps";
    let resource = r#"apiserver_resource_objects{group="",resource="configmaps"}"#;
    both(&["--etcd-count-metric-poll-period=10ms"], async |server| {
        let end = tokio::time::Instant::now() + PATIENCE;
        let reaches = async |series: &str, wanted: i64| {
            while count(server, series).await != Some(wanted) {
                assert!(tokio::time::Instant::now() < end, "{series} {wanted}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one-more"}});
        let before = count(server, resource).await.unwrap_or(0);
        assert_eq!(ask("POST", maps).json(&map).status(server).await, 201);
        reaches(resource, before.max(2) + 1).await;
        reaches(
            r#"apiserver_storage_objects{resource="configmaps"}"#,
            before.max(2) + 1,
        )
        .await;
        reaches(
            r#"apiserver_storage_objects{resource="deployments.apps"}"#,
            0,
        )
        .await;
        let bytes = r#"apiserver_resource_size_estimate_bytes{group="",resource="configmaps"}"#;
        assert!(count(server, bytes).await > Some(100));
        let database = r#"apiserver_storage_size_bytes{storage_cluster_id="etcd-0"}"#;
        assert!(count(server, database).await > Some(4096));
    })
    .await;
    let (_folder, server) = embedded(&["--etcd-count-metric-poll-period=0"]).await;
    assert_eq!(count(&server, resource).await, None);
}

#[tokio::test]
async fn new_pods_are_as_the_flags_say() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let pods = "/api/v1/namespaces/default/pods";
    let (_folder, server) = embedded(&[
        "--default-not-ready-toleration-seconds=7",
        "--default-unreachable-toleration-seconds=8",
    ])
    .await;
    // There is no service account.
    assert_eq!(ask("POST", pods).json(&pod).status(&server).await, 403);
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    create(
        &server,
        "/api/v1/namespaces/default/serviceaccounts",
        account,
    )
    .await;
    let made = create(&server, pods, pod.clone()).await;
    let seconds: Vec<i64> = made["spec"]["tolerations"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one["tolerationSeconds"].as_i64())
        .collect();
    assert_eq!(seconds, [7, 8]);

    let (_folder, server) =
        embedded(&["--disable-admission-plugins=ServiceAccount,DefaultTolerationSeconds"]).await;
    assert!(create(&server, pods, pod).await["spec"]["tolerations"].is_null());
}

#[tokio::test]
async fn events_and_history_end_when_the_flags_say() {
    let flags = [
        "--event-ttl=1s",
        "--etcd-compaction-interval=50ms",
        "--min-request-timeout=1",
        "--watch-cache=false",
    ];
    let (_folder, server) = embedded(&flags).await;
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}});
    create(&server, "/api/v1/namespaces/default/events", event).await;
    becomes(&server, "/api/v1/namespaces/default/events/e", 404).await;

    let made = create(&server, MAPS, map("a")).await;
    let version = made["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned();
    create(&server, MAPS, map("b")).await;
    becomes(
        &server,
        &format!("{MAPS}?resourceVersion={version}&resourceVersionMatch=Exact"),
        410,
    )
    .await;

    // A watch ends by itself, well before the half hour that is the default.
    assert_eq!(
        ask("GET", &format!("{MAPS}?watch=1")).status(&server).await,
        200
    );
    assert_eq!(ask("GET", "/readyz/watch-cache").status(&server).await, 404);

    let (_folder, server) = embedded(&["--etcd-compaction-interval=0"]).await;
    assert_eq!(ask("GET", "/readyz/watch-cache").status(&server).await, 200);
}

#[tokio::test]
async fn logging_flags_are_obeyed() {
    let (_folder, server) = embedded(&["--logging-format=json"]).await;
    let log = server.log();
    let line = log
        .lines()
        .find(|line| line.contains("admission plugins"))
        .expect("a line about plugins");
    assert!(
        serde_json::from_str::<Value>(line).is_ok_and(|line| line["v"] == 0 && line["ts"].is_f64()),
        "{line}"
    );
    let (_folder, quiet) = embedded(&["--v=0"]).await;
    let (_folder, loud) = embedded(&["--v=3"]).await;
    for server in [&quiet, &loud] {
        assert_eq!(
            ask("GET", "/api/v1/namespaces/default")
                .status(server)
                .await,
            200
        );
    }
    let begun = Instant::now();
    while !loud.log().contains("/api/v1/namespaces/default") {
        assert!(begun.elapsed() < PATIENCE, "{}", loud.log());
        tokio::time::sleep(LOOK).await;
    }
    assert!(
        !quiet.log().contains("/api/v1/namespaces/default"),
        "{}",
        quiet.log()
    );
}

#[tokio::test]
async fn the_verbosity_of_a_running_server_can_be_changed() {
    let (_folder, server) = embedded(&[]).await;
    let put = |body: &'static str| ask("PUT", "/debug/flags/v").body("text/plain", body);
    for (request, status, text) in [
        (
            put("x"),
            400,
            "strconv.ParseUint: parsing \"x\": invalid syntax",
        ),
        (ask("GET", "/debug/flags/v"), 406, "unsupported http method"),
        (
            put("3"),
            200,
            "successfully set klog.logging.verbosity to 3",
        ),
    ] {
        let answer = request.send(&server).await;
        assert_eq!(
            (answer.status, answer.body.as_ref()),
            (status, text.as_bytes())
        );
    }
    let anyone = ask("PUT", "/debug/flags/v").by("");
    assert_eq!(anyone.status(&server).await, 403);
    let path = "/api/v1/namespaces/kube-public";
    assert_eq!(ask("GET", path).status(&server).await, 200);
    let begun = Instant::now();
    while !server.log().contains(path) {
        assert!(begun.elapsed() < PATIENCE, "{}", server.log());
        tokio::time::sleep(LOOK).await;
    }
    let (_folder, server) = embedded(&["--profiling=false"]).await;
    assert_eq!(ask("GET", "/debug/flags/v").status(&server).await, 404);
}

#[tokio::test]
async fn pages_about_the_process_follow_their_gates() {
    let (_folder, server) = embedded(&["--event-ttl=90s"]).await;
    let structured = |kind: &str| format!("application/json;g=config.k8s.io;v=v1beta1;as={kind}");
    for (path, kind) in [("/flagz", "Flagz"), ("/statusz", "Statusz")] {
        let text = ask("GET", path).send(&server).await.body;
        let text = String::from_utf8_lossy(&text);
        assert!(text.contains("not meant to be machine parseable"), "{text}");
        let answer = ask("GET", path).header("Accept", structured(kind));
        let (_, page) = answer.answer(&server).await;
        assert_eq!(page["kind"], kind);
        match kind {
            "Flagz" => assert_eq!(page["flags"]["event-ttl"], "1m30s"),
            _ => assert_eq!(page["emulationVersion"], "1.36"),
        }
        let answer = ask("GET", path).header("Accept", "application/json");
        let (status, refused) = answer.answer(&server).await;
        assert_eq!(status, 406);
        assert_eq!(
            refused["message"],
            "only the following media types are accepted: application/json, application/yaml, text/plain"
        );
        assert_eq!(ask("GET", path).by("").status(&server).await, 403);
    }
    let gates = "--feature-gates=ComponentFlagz=false,ComponentStatusz=false";
    let (_folder, server) = embedded(&[gates]).await;
    for path in ["/flagz", "/statusz"] {
        assert_eq!(ask("GET", path).status(&server).await, 404, "{path}");
    }
}

#[tokio::test]
async fn an_answer_is_compressed_unless_its_gate_is_off() {
    for (gate, encoding) in [
        ("APIResponseCompression=true", Some("gzip")),
        ("APIResponseCompression=false", None),
    ] {
        let (_folder, server) = embedded(&[&format!("--feature-gates={gate}")]).await;
        let mut large = map("large");
        large["data"] = json!({"a": "x".repeat(200_000)});
        create(&server, MAPS, large).await;
        let answer = ask("GET", &format!("{MAPS}/large"))
            .header("Accept-Encoding", "gzip")
            .send(&server)
            .await;
        assert_eq!(
            answer
                .headers
                .get("content-encoding")
                .map(|value| value.to_str().unwrap()),
            encoding,
            "{gate}"
        );
    }
}

#[tokio::test]
async fn a_store_that_does_not_come_is_waited_for_as_long_as_the_flag_says() {
    let folder = tempfile::tempdir().unwrap();
    let flags = [
        "--etcd-servers=http://127.0.0.1:1",
        "--storage-initialization-timeout=1s",
        "--data-dir=data",
    ]
    .map(str::to_owned);
    assert!(!TestServer::run(folder.path(), &flags).ends().await);
}

#[tokio::test]
async fn a_port_is_shared_if_the_flag_says_so() {
    let port = free_port();
    let run = async |flag: &str, others: bool| {
        let folder = tempfile::tempdir().unwrap();
        let certs = folder.path().join("certs");
        let kept = format!("--cert-dir={}", certs.display());
        let mut process = spawn(folder.path(), port, &[&kept, flag]);
        if others {
            process
                .ready("a server", async || wire::get_status(port, "/readyz").await)
                .await;
            assert!(
                std::fs::read_dir(&certs).unwrap().count() > 0,
                "no certificates in --cert-dir"
            );
        }
        (folder, process)
    };
    let _first = run("--permit-port-sharing=true", true).await;
    let (folder, mut second) = run("--permit-port-sharing=true", false).await;
    let begun = Instant::now();
    while !second.log().contains("Keelson is ready") {
        assert!(begun.elapsed() < PATIENCE, "{}", second.log());
        tokio::time::sleep(LOOK).await;
    }
    second.kill();
    drop(folder);
    let (_folder, mut third) = run("--permit-port-sharing=false", false).await;
    assert!(!third.ends().await);
}

#[tokio::test]
async fn a_server_serves_on_for_as_long_as_the_flag_says() {
    let (_folder, mut server) = embedded(&["--shutdown-delay-duration=1h"]).await;
    server.process().terminate();
    becomes(&server, "/readyz", 500).await;
    assert_eq!(ask("GET", "/livez").status(&server).await, 200);
    create(&server, MAPS, map("late")).await;
}

/// Takes any certificate: the tests know whom they started.
#[derive(Debug)]
struct Trusting(Arc<CryptoProvider>);

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Returns the server's limit of concurrent streams on an HTTP/2 connection (RFC 9113,
/// SETTINGS_MAX_CONCURRENT_STREAMS).
async fn streams(port: u16) -> Option<u32> {
    let mut stream = connect(port, "localhost", &TLS13).await?;
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await
        .ok()?;
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.ok()?;
    assert_eq!(head[3], 4, "the first frame has the settings");
    let mut settings = vec![0; usize::from(u16::from_be_bytes([head[1], head[2]]))];
    stream.read_exact(&mut settings).await.ok()?;
    let found = settings.chunks(6).find(|setting| setting[..2] == [0, 3])?;
    Some(u32::from_be_bytes([found[2], found[3], found[4], found[5]]))
}

async fn connect(
    port: u16,
    name: &str,
    version: &'static SupportedProtocolVersion,
) -> Option<TlsStream<TcpStream>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[version])
        .unwrap();
    let mut config = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trusting(provider)))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(ServerName::try_from(name.to_owned()).unwrap(), stream)
        .await
        .ok()
}

/// Negotiates as a client of this version of TLS: suite, key exchange, protocol; `None` where the
/// server refuses.
async fn handshake(
    port: u16,
    name: &str,
    version: &'static SupportedProtocolVersion,
) -> Option<(String, String, Option<String>, Vec<u8>)> {
    let stream = connect(port, name, version).await?;
    let connection: &ClientConnection = stream.get_ref().1;
    let suite = format!("{:?}", connection.negotiated_cipher_suite()?.suite());
    let group = format!("{:?}", connection.negotiated_key_exchange_group()?.name());
    let protocol = connection
        .alpn_protocol()
        .map(|name| String::from_utf8_lossy(name).into_owned());
    Some((
        suite,
        group,
        protocol,
        connection.peer_certificates()?.first()?.to_vec(),
    ))
}

#[tokio::test]
async fn tls_is_as_the_flags_say() {
    let folder = tempfile::tempdir().unwrap();
    let other = rcgen::generate_simple_self_signed(["other.example".to_owned()]).unwrap();
    let (cert, key) = (
        folder.path().join("other.crt"),
        folder.path().join("other.key"),
    );
    std::fs::write(&cert, other.cert.pem()).unwrap();
    std::fs::write(&key, other.signing_key.serialize_pem()).unwrap();
    let sni = format!("--tls-sni-cert-key={},{}", cert.display(), key.display());
    let suites = "--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
    let server = start(
        folder.path(),
        Store::Embedded,
        &[
            suites,
            "--tls-curve-preferences=24",
            &sni,
            "--http2-max-streams-per-connection=17",
        ],
    )
    .await;
    assert_eq!(streams(server.port()).await, Some(17));
    let (suite, group, protocol, usual) =
        handshake(server.port(), "localhost", &TLS12).await.unwrap();
    assert!(suite.ends_with("_WITH_AES_128_GCM_SHA256"), "{suite}");
    assert_eq!(
        (group.as_str(), protocol.as_deref()),
        ("secp384r1", Some("h2"))
    );
    let named = handshake(server.port(), "other.example", &TLS13)
        .await
        .unwrap()
        .3;
    assert!(named == other.cert.der().to_vec() && named != usual);

    // One that is not safe is not offered; one that nobody knows is a mistake.
    let run = |name: &str, suites: &str| {
        let data = folder.path().join(name).display().to_string();
        let flags = [
            format!("--data-dir={data}"),
            "--secure-port=0".to_owned(),
            format!("--tls-cipher-suites={suites}"),
        ];
        TestServer::run(folder.path(), &flags)
    };
    let mut process = run("unknown", "TLS_RSA_WITH_RC4_128_SHA,TLS_FOO");
    assert!(!process.ends().await);
    let why = "Cipher suite TLS_FOO not supported or doesn't exist";
    assert!(process.log().contains(why), "{}", process.log());

    let (_folder, server) = embedded(&[
        "--tls-min-version=VersionTLS13",
        "--disable-http2-serving=true",
    ])
    .await;
    assert_eq!(handshake(server.port(), "localhost", &TLS12).await, None);
    assert_eq!(
        handshake(server.port(), "localhost", &TLS13)
            .await
            .unwrap()
            .2
            .as_deref(),
        Some("http/1.1")
    );
}

/// The number of threads of the server's runtime.
fn runtime_threads(server: &TestServer) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    let names = tasks.filter_map(|task| name(task.ok()?).ok());
    names.filter(|name| name.starts_with("tokio")).count()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn worker_threads_follow_the_flag_only() {
    // Tokio refuses the first of these, and would have obeyed the second.
    for (environment, flags, many) in [
        ("TOKIO_WORKER_THREADS=0", &["--worker-threads=47"][..], true),
        ("TOKIO_WORKER_THREADS=447", &[], false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let set = format!("export {environment}");
        let server = TestServer::start_after(&set, folder.path(), Store::Embedded, flags).await;
        let threads = runtime_threads(&server);
        assert_eq!(threads >= 47, many, "{environment}: {threads} threads");
        assert!(threads < 447, "{environment}: {threads} threads");
    }
}

#[tokio::test]
async fn resources_without_a_watch_cache_are_read_from_etcd() {
    let etcd = tokio::task::spawn_blocking(Etcd::start).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--watch-cache-sizes=configmaps#0,secrets#100"];
    let server = start(folder.path(), Store::Etcd(&etcd.endpoint()), &flags).await;
    const READS: u32 = 200;
    for (resource, cached) in [("configmaps", false), ("secrets", true)] {
        let path = format!("/api/v1/namespaces/default/{resource}?resourceVersion=0");
        let before = reads(&etcd.endpoint()).await;
        for _ in 0..READS {
            assert_eq!(ask("GET", &path).status(&server).await, 200);
        }
        // The server itself reads something now and then.
        let asked = reads(&etcd.endpoint()).await - before;
        assert_eq!(asked < f64::from(READS), cached, "{resource}: {asked}");
    }
}

#[tokio::test]
async fn the_embedded_store_is_on_what_the_flags_say() {
    for (flags, is_kept) in [
        (&[][..], true),
        (&["--unsafe-no-fsync"][..], true),
        (&["--in-memory"][..], false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut server = start(folder.path(), Store::Embedded, flags).await;
        let object = json!({"metadata": {"name": "kept"}});
        create(&server, "/api/v1/namespaces/default/configmaps", object).await;
        let file = folder.path().join("data/keelson.redb");
        assert_eq!(file.exists(), is_kept, "{flags:?}");
        server.terminate().await;
        let server = start(folder.path(), Store::Embedded, flags).await;
        let path = "/api/v1/namespaces/default/configmaps/kept";
        let expected = if is_kept { 200 } else { 404 };
        assert_eq!(
            ask("GET", path).status(&server).await,
            expected,
            "{flags:?}"
        );
    }
}
