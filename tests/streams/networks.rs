//! The network of each server that this one asks: which of its connections go through the proxies
//! of `--egress-selector-config-file`, and how they are counted.

use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http_body_util::Full;
use serde_json::{Value, json};

use super::egress::{LOG, NODE, start};
use super::support::connect_proxy::{ConnectProxy, Reply, selecting};
use super::support::http::Answer;
use super::support::kubelet::say;
use super::support::oidc::{Key, Provider};
use super::support::webhook::{Identity, Reply as Said, Webhook};
use super::support::{ADMIN, Store, TestServer, USER};
use super::{PATIENCE, wire};

const FORBIDDEN: &str = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";

/// A server that reaches some networks through a proxy at a socket, which is returned, too.
async fn server(folder: &Path, networks: &[&str], flags: &[String]) -> (TestServer, String) {
    let socket = folder.join("proxy.socket").display().to_string();
    let file = selecting(folder, networks, &format!("{{uds: {{udsName: {socket}}}}}"));
    let egress = format!("--egress-selector-config-file={file}");
    let flags: Vec<&str> = std::iter::once(egress.as_str())
        .chain(flags.iter().map(String::as_str))
        .collect();
    let server = TestServer::start_with(folder, Store::Embedded, &flags).await;
    (server, socket)
}

async fn ask(server: &TestServer, by: &str, method: &str, path: &str, body: &Value) -> Answer {
    let body = match body {
        Value::Null => Bytes::new(),
        body => body.to_string().into(),
    };
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("Host", "localhost")
        .header("Authorization", format!("Bearer {by}"))
        .header("Content-Type", super::JSON)
        .body(Full::new(body));
    let answer = wire::call(server.port(), request.unwrap(), PATIENCE).await;
    answer.unwrap_or_else(|why| panic!("{method} {path}: {why}"))
}

async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let begun = std::time::Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// A kubeconfig file for a server at a URL.
fn kubeconfig(folder: &Path, name: &str, url: &str) -> String {
    let file = folder.join(name);
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "w",
        "contexts": [{"name": "w", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url, "insecure-skip-tls-verify": true}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    });
    std::fs::write(&file, config.to_string()).unwrap();
    file.display().to_string()
}

/// Extension servers are in the network of the cluster, and so are webhooks behind Services; the
/// names of their hosts are looked up there.
#[tokio::test(flavor = "multi_thread")]
async fn services_are_reached_through_the_proxy_of_the_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let extension = Webhook::start_as(Identity::new(&["ext.default.svc"]), |seen| {
        match seen.uri.starts_with("/hook") {
            true => Said::Json(json!({
                "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "response": {"uid": seen.body["request"]["uid"], "allowed": true},
            })),
            false => Said::Json(json!({"kind": "Thing"})),
        }
    })
    .await;
    let (server, socket) = server(folder.path(), &["cluster"], &[]).await;
    let port = extension.port;
    let proxy = ConnectProxy::at_socket(socket.as_ref(), move |_| Reply::Port(port));
    let (ca, reference) = (
        BASE64_STANDARD.encode(&extension.ca),
        json!({"namespace": "default", "name": "ext", "path": "/hook"}),
    );
    let create = async |path: &str, object: Value| {
        let made = ask(&server, ADMIN, "POST", path, &object).await;
        assert_eq!(made.status, 201, "{made:?}");
    };
    let services = "/api/v1/namespaces/default/services";
    let external = json!({"type": "ExternalName", "externalName": "ext.example.invalid"});
    create(
        services,
        json!({"metadata": {"name": "ext"}, "spec": external}),
    )
    .await;
    let spec = json!({
        "group": "wardle.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
        "service": {"namespace": "default", "name": "ext", "port": 443}, "caBundle": ca,
    });
    let service = json!({"metadata": {"name": "v1.wardle.example.com"}, "spec": spec});
    create("/apis/apiregistration.k8s.io/v1/apiservices", service).await;
    let things = "/apis/wardle.example.com/v1/things";
    let answered = async || {
        ask(&server, ADMIN, "GET", things, &Value::Null)
            .await
            .status
            == 200
    };
    until("the extension server answers", answered).await;
    assert!(
        proxy
            .asked()
            .iter()
            .all(|one| one == "ext.example.invalid:443")
    );
    let seen = extension.take();
    assert!(seen.iter().any(|seen| seen.uri == things), "{seen:?}");
    let asked = proxy.asked().len();
    let hooks = json!({"metadata": {"name": "h"}, "webhooks": [{
        "name": "hook.example.com", "clientConfig": {"service": reference, "caBundle": ca},
        "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
    }]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    create(path, hooks).await;
    create(
        "/api/v1/namespaces/default/configmaps",
        json!({"metadata": {"name": "a"}}),
    )
    .await;
    let seen = extension.take();
    assert!(
        seen.iter().any(|seen| seen.uri.starts_with("/hook")),
        "{seen:?}"
    );
    assert!(proxy.asked().len() > asked, "{:?}", proxy.asked());
}

/// Issuers of tokens are in the network that the configuration names, or are reached directly.
#[tokio::test(flavor = "multi_thread")]
async fn issuers_are_reached_through_the_proxy_of_their_network() {
    let folder = tempfile::tempdir().unwrap();
    let key = Key::ec();
    let mut providers = Vec::new();
    for network in ["cluster", "controlplane", ""] {
        let provider = Provider::start().await;
        provider.keys(&[("a", &key)]);
        providers.push((network, provider));
    }
    let issuers = providers.iter().map(|(network, provider)| {
        let mut issuer = json!({
            "url": provider.issuer(), "certificateAuthority": provider.server.ca, "audiences": ["kubernetes"],
        });
        if !network.is_empty() {
            issuer["egressSelectorType"] = (*network).into();
        }
        json!({"issuer": issuer, "claimMappings": {"username": {"claim": "sub", "prefix": "oidc:"}}})
    });
    let config = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
        "jwt": issuers.collect::<Vec<_>>(),
    });
    let file = folder.path().join("authn.yaml");
    std::fs::write(&file, config.to_string()).unwrap();
    let flags = [format!("--authentication-config={}", file.display())];
    let socket = folder.path().join("proxy.socket");
    let proxy = ConnectProxy::at_socket(&socket, |address| {
        let (_, port) = address.rsplit_once(':').unwrap_or_default();
        Reply::Port(port.parse().unwrap_or_default())
    });
    let (server, _) = server(folder.path(), &["cluster", "controlplane"], &flags).await;
    for (network, provider) in &providers {
        let claims = json!({
            "iss": provider.issuer(), "aud": "kubernetes", "sub": "jane",
            "exp": jiff::Timestamp::now().as_second() + 600,
        });
        let token = key.sign(&json!({"alg": "ES256", "typ": "JWT", "kid": "a"}), &claims);
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let known = async || {
            let review =
                json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
            ask(&server, &token, "POST", path, &review).await.status == 201
        };
        until("the token is known", known).await;
        let address = format!("localhost:{}", provider.server.port);
        let went = proxy.asked().contains(&address);
        assert_eq!(went, !network.is_empty(), "{network}: {:?}", proxy.asked());
    }
}

/// Those that the server asks by a URL of its flags are in the network of the control plane.
#[tokio::test(flavor = "multi_thread")]
async fn servers_of_flags_are_reached_through_the_proxy_of_the_control_plane() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n";
    std::fs::write(path("policy.yaml"), policy).unwrap();
    let tracing = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: 192.0.2.4:4317\nsamplingRatePerMillion: 1000000\n";
    std::fs::write(path("tracing.yaml"), tracing).unwrap();
    let config = |name: &str, host: u8| {
        let url = format!("https://192.0.2.{host}/{name}");
        kubeconfig(folder.path(), name, &url)
    };
    let flags = [
        format!(
            "--authentication-token-webhook-config-file={}",
            config("authn", 1)
        ),
        "--authorization-mode=RBAC,Webhook".to_owned(),
        format!("--authorization-webhook-config-file={}", config("authz", 2)),
        format!("--audit-policy-file={}", path("policy.yaml")),
        format!("--audit-webhook-config-file={}", config("audit", 3)),
        "--audit-webhook-batch-max-size=1".to_owned(),
        "--audit-webhook-initial-backoff=10ms".to_owned(),
        format!("--tracing-config-file={}", path("tracing.yaml")),
    ];
    let socket = folder.path().join("proxy.socket");
    let proxy = ConnectProxy::at_socket(&socket, |_| Reply::Say(FORBIDDEN));
    let (mut server, _) = server(folder.path(), &["controlplane"], &flags).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let status = async |by: &str| ask(&server, by, "GET", maps, &Value::Null).await.status;
    assert_eq!((status("unknown").await, status(USER).await), (401, 500));
    for to in ["192.0.2.1:443", "192.0.2.2:443", "192.0.2.3:443"] {
        until(to, async || proxy.asked().iter().any(|one| one == to)).await;
    }
    // What is left of the spans is sent in the end.
    server.terminate().await;
    let asked = proxy.asked();
    assert!(asked.iter().any(|one| one == "192.0.2.4:4317"), "{asked:?}");
}

#[tokio::test]
async fn dials_are_counted_by_the_stage_at_which_they_fail() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, socket) = start(folder.path(), &["cluster"], |_| say("200 OK", "hello")).await;
    // Nobody is at the socket.
    assert_eq!(cluster.get(LOG).await.status, 500);
    let proxy = ConnectProxy::at_socket(socket.as_ref(), |_| Reply::Say(FORBIDDEN));
    assert_eq!(cluster.get(LOG).await.status, 500);
    drop(proxy);
    std::fs::remove_file(&socket).unwrap();
    let kubelet = cluster.kubelet.port;
    let proxy = ConnectProxy::at_socket(socket.as_ref(), move |_| Reply::Port(kubelet));
    assert_eq!(cluster.get(LOG).await.status, 200);
    assert_eq!(proxy.asked(), [format!("{NODE}:10250")]);
    let page = cluster.get("/metrics").await;
    let page = String::from_utf8(page.body.to_vec()).unwrap();
    let of = "protocol=\"http_connect\"";
    for line in [
        format!("apiserver_egress_dialer_dial_start_total{{{of},transport=\"uds\"}} 3"),
        format!(
            "apiserver_egress_dialer_dial_failure_count{{{of},stage=\"connect\",transport=\"uds\"}} 1"
        ),
        format!(
            "apiserver_egress_dialer_dial_failure_count{{{of},stage=\"proxy\",transport=\"uds\"}} 1"
        ),
        format!("apiserver_egress_dialer_dial_duration_seconds_count{{{of},transport=\"uds\"}} 1"),
    ] {
        assert!(
            page.lines().any(|one| one == line),
            "{line} is not in\n{page}"
        );
    }
}
